"""Barriers for the listings of 07.barriers: the right ones, and those that learners put in."""

from __future__ import annotations

from collections.abc import Callable

from gpu_utils.grading.exercise import Misconception

_WAIT = {"gfx9": "s_waitcnt lgkmcnt(0)", "gfx11": "s_waitcnt lgkmcnt(0)", "gfx12": "s_wait_dscnt 0"}
_PLACES = {"ptx": (2, 9, 11, 12, 15), "amd": (2, 10, 13, 14, 17)}
"""Behind the first write; inside of the `if`, behind the read; before the write; behind it; before the last read."""


def _lines(family: str) -> tuple[int, ...]:
    return _PLACES["ptx" if family == "ptx" else "amd"]


def barrier(family: str) -> str:
    """A barrier for all waves of a block."""
    if family == "ptx":
        return "bar.sync 0;"
    return "s_barrier_signal -1\ns_barrier_wait -1" if family == "gfx12" else "s_barrier"


def behind_a_write(family: str) -> str:
    """The same behind an access of LDS that is still under way."""
    return barrier(family) if family == "ptx" else f"{_WAIT[family]}\n{barrier(family)}"


def barriers_of(family: str) -> dict[int, str]:
    """The right barriers of a family: "ptx", "gfx9", "gfx11" or "gfx12"."""
    first, _, before, behind, _ = _lines(family)
    return {first: behind_a_write(family), before: barrier(family), behind: behind_a_write(family)}


def _at(*places: int) -> Callable[[str], dict[int, str]]:
    """Waits and barriers at some of the places."""
    return lambda family: {_lines(family)[place]: behind_a_write(family) for place in places}


def everywhere(family: str) -> dict[int, str]:
    """Around every access of shared memory that all threads come to."""
    first, _, before, behind, last = _lines(family)
    top = 4
    return {line: behind_a_write(family) for line in (first, top, before, behind, last)}


def top_and_bottom(family: str) -> dict[int, str]:
    """Three in a round."""
    return barriers_of(family) | {4: behind_a_write(family)}


def without_the_last(family: str) -> dict[int, str]:
    return {4: behind_a_write(family), _lines(family)[2]: barrier(family)}


def without_waits(family: str) -> dict[int, str]:
    return dict.fromkeys(barriers_of(family), barrier(family))


def inside_the_wave(family: str) -> dict[int, str]:
    """Right on AMD, where there is no such instruction."""
    right = barriers_of(family)
    return dict.fromkeys(right, "bar.warp.sync 0xffffffff;") if family == "ptx" else right


def signal_alone(family: str) -> dict[int, str]:
    return {line: text.replace("\ns_barrier_wait -1", "") for line, text in barriers_of(family).items()}


def fence_alone(family: str) -> dict[int, str]:
    """Right on AMD, where there is no such instruction."""
    right = barriers_of(family)
    return dict.fromkeys(right, "membar.cta;") if family == "ptx" else right


def lines_of_ptx(family: str) -> dict[int, str]:
    return barriers_of(family) if family == "ptx" else dict.fromkeys((2, 11, 12), behind_a_write(family))


def counts_of_a_warp(family: str) -> dict[int, str]:
    right = barriers_of(family)
    return dict.fromkeys(right, "bar.sync 0, 32;") if family == "ptx" else right


def old_wait(family: str) -> dict[int, str]:
    return {line: text.replace("s_wait_dscnt 0", "s_waitcnt lgkmcnt(0)") for line, text in barriers_of(family).items()}


def old_barrier(family: str) -> dict[int, str]:
    return barriers_of("gfx9" if family == "gfx12" else family)


MISCONCEPTIONS = (
    Misconception(
        "only_the_first",
        _at(0),
        "One barrier before the loop keeps the first round's reads behind the first writes, and no more. Each round "
        "writes where others still read, and reads what others have just written.",
    ),
    Misconception(
        "only_the_end_of_a_round",
        _at(3),
        "What is written before the loop is read in the first round, and inside a round a wave may store its sum while "
        "another one has not read yet. A barrier behind the store of a round orders neither.",
    ),
    Misconception(
        "reads_need_none",
        _at(0, 3),
        "A read needs a barrier behind it too, if somebody overwrites the place: a fast wave stores its new sum while "
        "a slow one has still to read the old one.",
    ),
    Misconception(
        "only_before_the_write",
        _at(0, 2),
        "The round's reads are safe from its writes. But the next round reads what this one has written, and so does "
        "the line behind the loop.",
    ),
    Misconception(
        "without_the_first",
        _at(2, 3),
        "The rounds are right, and nothing stands between the write before the loop and the first round: who says that "
        "the other waves have written when a thread reads a[t - d] for the first time?",
    ),
    Misconception(
        "only_the_top_of_a_round",
        lambda family: {4: behind_a_write(family)},
        "One barrier at the top lets a round read what the one before has written. Inside a round a fast wave still "
        "overwrites what a slow one has to read, and nothing stands behind the last round's writes.",
    ),
    Misconception(
        "without_the_last",
        without_the_last,
        "With the barrier at the top of a round, the last round's writes have none behind them: who comes to the top "
        "again? The total is read behind the loop.",
    ),
    Misconception(
        "three_in_a_round",
        top_and_bottom,
        "No race is left, and in every round one barrier stands where nothing has been touched since the one before. "
        "Between which two accesses does it stand?",
    ),
    Misconception(
        "everywhere",
        everywhere,
        "No race is left, and the waves meet more often than they must: at the end of a round, again at the top of the "
        "next one, and once more behind the loop. One barrier keeps apart all that lies before it from all behind it.",
    ),
    Misconception(
        "inside_the_if",
        _at(0, 1, 3),
        "A barrier inside of the `if` is not reached by everybody: in PTX a part of a warp comes to it and the other "
        "does not, and on AMD a wave whose lanes are all off jumps over it. Put it where all threads come by.",
    ),
    Misconception(
        "without_waits",
        without_waits,
        "The barriers stand at the right places. On AMD a barrier lets waves go on, and does not look at the LDS: what "
        "a wave has written may still be under way. What must stand before the barrier?",
    ),
    Misconception(
        "inside_the_wave",
        inside_the_wave,
        "bar.warp.sync is for the threads of one warp, __syncwarp() in C++. Here a thread reads what one of another "
        "warp has written: the whole block must meet.",
    ),
    Misconception(
        "lines_of_ptx",
        lines_of_ptx,
        "These are the lines of the PTX listing. The listing of AMD has two lines more, so the same numbers stand at "
        "other places: there lines 7 to 11 belong to the `if`, which a wave jumps over.",
    ),
    Misconception(
        "fence_alone",
        fence_alone,
        "A fence orders what one thread does to memory, and nobody waits at it: a fast wave comes to the next line "
        "long before a slow one has written. What waits until all have come?",
    ),
    Misconception(
        "counts_of_a_warp",
        counts_of_a_warp,
        "The second operand of bar.sync says how many threads it waits for. With 32 each warp waits for itself and "
        "goes on. Without it the barrier is for all threads of the block.",
    ),
    Misconception(
        "signal_alone",
        signal_alone,
        "On gfx12 a barrier is two instructions: s_barrier_signal says that this wave has come, and goes on at once. "
        "Which instruction holds it until the others have come too?",
    ),
    Misconception(
        "old_wait",
        old_wait,
        "gfx12 has a counter and an instruction for each kind of access, and s_waitcnt is gone. The barrier is right; "
        "which instruction waits there for the LDS?",
    ),
    Misconception(
        "old_barrier",
        old_barrier,
        "gfx12 has no s_barrier: it is split into s_barrier_signal -1 and s_barrier_wait -1. The counter of LDS "
        "accesses has an instruction of its own there, too.",
    ),
)
