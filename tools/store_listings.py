"""Stores the listings of the course's own C++ kernels, which machines without the extra `hip` use instead of clang.

    python tools/store_listings.py

Stored are gpu_utils/exercises/*/kernels/*.cu for both vendors, both of AMD's widths and both numbers of its LDS banks,
and whatever the checks of exercises of kind "cpp" compile for their solutions and their misconceptions. Run it after a
change of any of these or of the header w2w_gpu.h; tests/unit/test_stored_listings.py recompiles all and compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu_utils.chips.npus import NPUS
from gpu_utils.compiler import clang, stored
from gpu_utils.compiler.cpp_module import CppModule

TARGETS = ("sm_80", "gfx942", "gfx950", "gfx1100")
EXERCISES = Path(__file__).parents[1] / "gpu_utils" / "exercises"


def lesson_sources() -> list[tuple[str, str]]:
    """(source, target) of every kernel file of a lesson."""
    return [
        (path.read_text("utf-8"), target) for path in sorted(EXERCISES.glob("*/kernels/*.cu")) for target in TARGETS
    ]


def explorer_sources() -> list[tuple[str, str]]:
    """(source, target) of what explore("divergence") runs."""
    from gpu_utils.ui.explore.divergence import SOURCE

    return [(SOURCE, target) for target in TARGETS]


def exercise_sources() -> list[tuple[str, str]]:
    """(source, target) of everything that is compiled when solutions and misconceptions are checked."""
    seen: dict[tuple[str, str], None] = {}
    really = clang.compile_cpp

    def recorded(source: str, target: str) -> CppModule:
        seen[source, target] = None
        return really(source, target)

    clang.compile_cpp = recorded  # before the modules that import it by name
    from gpu_utils import exercises
    from gpu_utils.course.sources import load_solution
    from gpu_utils.grading.check import check

    for exercise in exercises.every():
        if exercise.kind == "cpp" and not set(exercise.targets) <= set(NPUS):  # AscendC has no listing
            for answer in (load_solution(exercise.id), *(wrong.answer for wrong in exercise.misconceptions)):
                print(check(exercise, answer, seed=1))
    return list(seen)


if __name__ == "__main__":
    compile_cpp = clang.compile_cpp
    wanted = dict.fromkeys(exercise_sources() + lesson_sources() + explorer_sources())
    stored.write(stored.entry(source, target, compile_cpp) for source, target in wanted)
    print(f"{len(wanted)} listings, {stored.PLACE.stat().st_size:,} bytes in {stored.PLACE.name}")
