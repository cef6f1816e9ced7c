"""Files that `w2w profile` itself writes: how they are known again, and what may be written over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_utils.errors import CannotWrite, ProfileUnreadable

REPORT, TABLE = "report", "table of launches"

MARKS = {
    REPORT: b'<meta name="generator" content="w2w profile">',
    TABLE: b"name,kind,device,lane,process,number,start (ns),duration (ns)",
}
"""What stands near the beginning of each."""

NAMES = {REPORT: ("--html", "report.html"), TABLE: ("--csv", "table.csv")}
"""The option that writes it, and a name to advise."""

_BEGINNING = 1000


def made_here(path: Path) -> str | None:
    """REPORT or TABLE where the file is one of ours; None for any other, and for one that cannot be read."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            beginning = file.read(_BEGINNING)
    except OSError:
        return None
    return next((what for what, mark in MARKS.items() if mark in beginning), None)


def foreign(files: Sequence[Path]) -> list[Path]:
    """The files without our own, so that a folder can be read again. Raises ProfileUnreadable where all are ours."""
    left = [path for path in files if made_here(path) is None]
    if files and not left:
        what = made_here(files[0])
        raise ProfileUnreadable(files[0], f"is a {what} of w2w profile; name the files that it was made of")
    return left


def check(targets: Mapping[str, Path | None], files: Sequence[Path] = ()) -> None:
    """Refuse to write over what is not ours. targets: REPORT or TABLE -> where it is to go.

    Raises CannotWrite, one sentence, before anything is written.
    """
    seen: dict[Path, str] = {}
    for what, path in targets.items():
        if path is None:
            continue
        option, advised = NAMES[what]
        place = path.resolve()
        if place in {each.resolve() for each in files}:
            raise CannotWrite(
                f"{path} is a file to read, and {option} would overwrite it; name a new file: {option} {advised}"
            )
        if place in seen:
            raise CannotWrite(f"{path} is the target of {seen[place]} and of {option}; name two files")
        seen[place] = option
        if path.exists() and not (made_here(path) == what or _is_empty(path)):
            raise CannotWrite(
                f"{path} is there and is no {what} of w2w profile, so it was left as it is; "
                f"name a new file: {option} {advised}"
            )


def _is_empty(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == 0
