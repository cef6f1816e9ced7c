"""Which reader a file is for, told by its content; several files become one profile.

A reader is a module with `FORM` (what it reads, for people), `fits(opened) -> bool` and `read(opened) -> Profile`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling.files import Opened, opened
from gpu_utils.profiling.profile import LEFT_OUT, Origin, Profile
from gpu_utils.profiling.quick import uncollected

READERS = (
    "nsight_systems",
    "rocpd",
    "rocprof_json",
    "torch_trace",
    "nsight_compute",
    "nsight_stats",
    "rocprof_csv",
)
"""Modules beside this one, in the order in which they are asked."""

NAMED = {
    ".ncu-rep": "is a report of ncu; export it: ncu --import {name} --csv --page raw > {stem}.csv",
    ".nsys-rep": "is a report of nsys; export it: nsys export --type sqlite -o {stem}.sqlite {name}",
    ".qdrep": "is an old report of nsys; export it: nsys export --type sqlite -o {stem}.sqlite {name}",
    ".pftrace": "is a Perfetto trace; profile again with rocprofv3 --output-format csv",
    ".otf2": "is an OTF2 trace; profile again with rocprofv3 --output-format csv",
    ".tmp": "is unfinished: torch.profiler renames it when it is written; let the run end",
}
"""Endings of files that no reader can use -> what to do."""


def read(*paths: str | Path) -> Profile:
    """What these files say together; figures of one kernel in several files are joined (`gpu_utils.profiling.joining`).

    A file that no reader can use is left out with a remark where another can be read. Raises ProfileUnreadable for one
    that is not there, and for the first where none can be read.
    """
    if not paths:
        raise ProfileUnreadable("", "no file was named; name at least one, such as trace.json")
    found: list[Profile] = []
    errors: list[ProfileUnreadable] = []
    for path in paths:
        try:
            found.append(_read(path))
        except ProfileUnreadable as error:
            if not Path(path).exists():
                raise
            errors.append(error)
    if not found:
        raise errors[0]
    return _together([*found, *map(_left_out, errors)])


def _left_out(error: ProfileUnreadable) -> Profile:
    what = str(error).removeprefix(f"{error.path} ").partition(";")[0]
    return Profile(origins=[Origin(error.path, "no profiler", LEFT_OUT, "", (f"left out: it {what}",))])


def _together(profiles: list[Profile]) -> Profile:
    from gpu_utils.profiling.deriving import derived
    from gpu_utils.profiling.joining import joined

    with uncollected():
        return derived(joined(profiles))


def _read(path: str | Path) -> Profile:
    return _profile_of(opened(path), NAMED.get(Path(path).suffix, ""))


def read_texts(files: Mapping[str, str]) -> Profile:
    """`read` for files that are in memory: name, which stands for the path in messages -> text."""
    return _together([_profile_of(Opened(name, text.encode()), "") for name, text in files.items()])


def _profile_of(found: Opened, advice: str) -> Profile:
    readers: Sequence[Any] = [import_module(f"gpu_utils.profiling.{name}") for name in READERS]
    for reader in readers:
        if reader.fits(found):
            with uncollected():
                return reader.read(found)
    name = Path(found.path)
    forms = ", ".join(reader.FORM for reader in readers)
    other = f"is no profile that can be read here; there are readers for {forms}"
    raise ProfileUnreadable(found.path, advice.format(name=name.name, stem=name.stem) or other)
