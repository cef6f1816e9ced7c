"""What the text of a ported project must show, with no compiler: nothing of CUDA is left, and nothing is lost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from gpu_utils.compiler.leftovers import KINDS, leftovers, readings, strings_on_rocm
from gpu_utils.compiler.source_text import Token
from gpu_utils.exercises.u03_porting_to_rocm.hipify_project import Variant, hipified_project
from gpu_utils.grading.compare import Difference

FOR_HOPPER = "csrc/hopper_hip.cuh"
"""The one file that a port may empty: nothing that it holds has a counterpart."""

BINDING = "csrc/binding_hip.cpp"

MOST_PLACES = 8
MOST_TEXT = 400_000
"""Characters of the whole project that are read; ours has 15,000."""

_HEADERS = {
    "roctx": ("roctracer/roctx.h", "rocprofiler-sdk-roctx/roctx.h", "roctx.h"),
    "hipBLAS": ("hipblas/hipblas.h", "hipblas.h"),
    "RCCL": ("rccl/rccl.h", "rccl.h"),
}
_LIBRARIES = {
    "hipBLAS": ("hipblas",),
    "RCCL": ("rccl",),
    "roctx": ("roctx64", "rocprofiler-sdk-roctx"),
}


def text_problem(given: dict[str, str], variant: Variant, fixed: Any) -> Difference | None:
    """The first kind of mistake in the files of an answer, with every place where it is; None when there is none."""
    return _contract(given, fixed) or _read(tuple(fixed.items()), variant)


@lru_cache(maxsize=256)
def _read(files: tuple[tuple[str, str], ...], variant: Variant) -> Difference | None:
    fixed = dict(files)
    return _left(fixed) or next(_lost(fixed, variant), None)


def _contract(given: dict[str, str], fixed: Any) -> Difference | None:
    if not isinstance(fixed, dict):
        return Difference(
            "nothing" if fixed is None else "files",
            f"the result is {_name(fixed)}, expected a dict from path to text, like the one that was given",
        )
    if fixed == given:
        count = sum(one.certain for one in leftovers(given))
        return Difference("unchanged", f"every file is as hipify wrote it; {count} places are certain to be wrong")
    missing = [path for path in given if path not in fixed]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return Difference("files", f"the result has no file {missing[0]}{more}; return every file, also unchanged ones")
    for path, text in fixed.items():
        if not isinstance(path, str) or not isinstance(text, str):
            return Difference(
                "files", f"result[{path!r}] is of type {type(text).__name__}, expected the text of a file"
            )
        if not text.strip() and given.get(path, "").strip() and path != FOR_HOPPER:
            return Difference("files", f"result[{path!r}] is empty; fix the file instead of dropping what it does")
    if sum(map(len, fixed.values())) > MOST_TEXT:
        return Difference(
            "files", f"the result has more than {MOST_TEXT:,} characters; is something appended in a loop?"
        )
    return None


def _name(value: Any) -> str:
    return "None (is a return missing?)" if value is None else f"of type {type(value).__name__}"


def _left(fixed: dict[str, str]) -> Difference | None:
    """What is certain to be wrong, the first kind in the order of KINDS; how many places of other kinds follow."""
    found = [one for one in leftovers(fixed) if one.certain]
    if not found:
        return None
    kind = next(kind for kind in KINDS if any(one.kind == kind for one in found))
    places = [str(one) for one in found if one.kind == kind]
    shown = "; ".join(places[:MOST_PLACES]) + (
        f"; and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
    )
    others = {one.kind: sum(other.kind == one.kind for other in found) for one in found if one.kind != kind}
    rest = (
        f". Other kinds that are left: {', '.join(f'{name} ({count})' for name, count in others.items())}"
        if others
        else ""
    )
    first = next(one.file for one in found if one.kind == kind)  # one kind has another remedy in another file
    return Difference(f"{kind} in {first}", f"{KINDS[kind][1]}, at {shown}{rest}")


def _lost(fixed: dict[str, str], variant: Variant) -> Iterator[Difference]:
    seen = readings(fixed)
    tokens = [token for reading in seen for token in reading.tokens]
    included = {
        directive.rest.strip('<>" ')
        for reading in seen
        for directive in reading.directives
        if directive.word == "include"
    }
    called = {token.text for token in tokens if token.kind == "name"}
    if not called & {"roctxRangePush", "roctxRangePushA", "roctxRangeStart", "roctxRangeStartA"}:
        yield Difference("ranges-gone", "no active code pushes a range any more; roctxRangePushA is there on ROCm")
    for library, headers in _HEADERS.items():
        if not included & set(headers):
            yield Difference(
                "header-gone", f"no active code includes {library}'s header any more, expected {headers[0]}"
            )
    for kernel in variant.kernels:
        if not any(_launches(reading.tokens, kernel) for reading in seen):
            yield Difference(
                "launch-gone", f"{kernel} is launched nowhere any more; hipLaunchKernelGGL or <<<...>>> does it"
            )
    if gone := _names_gone(fixed, variant):
        yield Difference(
            "binding-gone",
            f"{BINDING} does not say {gone} as often as before; hipify had translated this file but for one header",
        )
    built = _strings(fixed.get("setup.py", ""))
    sources = {string.rpartition("/")[2].partition(".")[0] for string in built}
    if missing := {"binding", "comm", "launch"} - sources:
        yield Difference("source-gone", f"setup.py builds no {min(missing)} any more; keep all three sources")
    for library, names in _LIBRARIES.items():
        if not built & set(names):
            yield Difference("library-gone", f"setup.py links no {library} on ROCm, expected {' or '.join(names)}")


def _names_gone(fixed: dict[str, str], variant: Variant) -> str:
    """The first name of the binding that active code of it has less often than what hipify wrote; "" for none."""
    before, now = (
        Counter(
            _plain(token.text)
            for reading in readings(files)
            for token in reading.tokens
            if token.kind == "name" and token.file == BINDING
        )
        for files in (hipified_project(variant), fixed)
    )
    return next(iter(before - now), "")


def _plain(name: str) -> str:
    """A name without the platform in it: getCurrentCUDAStream and getCurrentHIPStream are one."""
    return re.sub(r"MasqueradingAsCUDA|cuda|hip|CUDA|HIP", "", name)


def _launches(tokens: tuple[Token, ...], kernel: str) -> bool:
    """Whether the kernel's name stands before <<<, or among the first arguments of a function that launches."""
    for i, token in enumerate(tokens):
        if token.text != kernel:
            continue
        if i + 1 < len(tokens) and tokens[i + 1].text == "<<<":
            return True
        if any(other.kind == "name" and "Launch" in other.text for other in tokens[max(0, i - 14) : i]):
            return True
    return False


def _strings(text: str) -> set[str]:
    try:
        return {string for _, string in strings_on_rocm(text)}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
