"""Waits for the listing of 07.waitcnt: the right ones, and those of learners who count in another way."""

from __future__ import annotations

from collections.abc import Callable

from gpu_utils.grading.exercise import Misconception

Waits = dict[int, tuple[str, int]]
"""Line -> what it waits for ("load", "store", "lds" or "scalar"), and how many of its counter may stay under way."""

_COUNTERS = {"load": "vmcnt", "store": "vmcnt", "lds": "lgkmcnt", "scalar": "lgkmcnt"}
_OF_GFX12 = {"load": "loadcnt", "store": "storecnt", "lds": "dscnt", "scalar": "kmcnt"}
_STORES_OF_GFX11 = "s_waitcnt_vscnt null, 0x0"
_ADDRESS_OF_OUT = 15
"""The line that needs the third scalar load: on gfx9 and gfx11 the wait for LDS before it covers that one."""


def _placed(family: str) -> Waits:
    stores = int(family == "gfx9")
    placed: Waits = {
        5: ("scalar", 0),
        10: ("load", 3),
        12: ("load", 1),
        14: ("lds", 0),
        16: ("load", 1 + stores),
        19: ("load", stores),
        21: ("lds", 2),
        23: ("lds", 0),
    }
    return placed | {_ADDRESS_OF_OUT: ("scalar", 0)} if family == "gfx12" else placed


def _spelled(family: str, placed: Waits) -> dict[int, str]:
    if family == "gfx12":
        return {line: f"s_wait_{_OF_GFX12[what]} {count}" for line, (what, count) in placed.items()}
    return {line: f"s_waitcnt {_COUNTERS[what]}({count})" for line, (what, count) in placed.items()}


def waits_of(family: str) -> dict[int, str]:
    """The right waits of a family: "gfx9", "gfx11" or "gfx12"."""
    return _spelled(family, _placed(family))


def _with(changes: Callable[[str], Waits]) -> Callable[[str], dict[int, str]]:
    """The right waits with some changed or added."""
    return lambda family: _spelled(family, _placed(family) | changes(family))


def waits_for_all(family: str) -> dict[int, str]:
    return _spelled(family, {line: (what, 0) for line, (what, _) in _placed(family).items()})


def counts_the_older_ones(family: str) -> dict[int, str]:
    return _with(lambda family: {10: ("load", 0), 12: ("load", 2), 16: ("load", 0), 19: ("load", 1), 21: ("lds", 1)})(
        family
    )


def at_the_issue(family: str) -> dict[int, str]:
    """A wait behind every load: before the line that follows it."""
    loads = dict.fromkeys((6, 7, 8, 9, 14), ("load", 0))
    scalars, lds = dict.fromkeys((2, 3, 10), ("scalar", 0)), dict.fromkeys((12, 18, 21), ("lds", 0))
    return _spelled(family, loads | scalars | lds)


def behind_the_use(family: str) -> dict[int, str]:
    return {line + 1: text for line, text in waits_of(family).items()}


def between_write_and_read(family: str) -> dict[int, str]:
    return _with(lambda family: dict.fromkeys((11, 17, 20), ("lds", 0)))(family)


def one_queue_for_lds_and_scalars(family: str) -> dict[int, str]:
    placed = _placed(family)
    placed.pop(_ADDRESS_OF_OUT, None)
    return _spelled(family, placed)


def before_the_end(family: str) -> dict[int, str]:
    last = {"gfx11": _STORES_OF_GFX11}.get(family) or _spelled(family, {25: ("store", 0)})[25]
    return waits_of(family) | {25: last}


MISCONCEPTIONS = (
    Misconception(
        "waits_for_all",
        waits_for_all,
        "The places are right, and every wait empties its queue: a load that nobody needs yet is waited for as well, "
        "and nothing is left to hide behind the work. How many newer accesses may stay under way?",
    ),
    Misconception(
        "counts_the_older_ones",
        counts_the_older_ones,
        "The number in a wait is how many of the newest may stay under way. You have counted those that were issued "
        "before the access that you need; count those behind it.",
    ),
    Misconception(
        "stores_count_nowhere",
        _with(lambda family: {16: ("load", 1), 19: ("load", 0)}),
        "Right on gfx11 and gfx12, too tight on gfx9: there a store joins the same queue as the loads, and one more "
        "access may stay under way.",
    ),
    Misconception(
        "stores_count_everywhere",
        _with(lambda family: {16: ("load", 2), 19: ("load", 1)}),
        "Right on gfx9 only, where stores count in vmcnt. Since gfx10 they have a counter of their own (vscnt, on "
        "gfx12 storecnt), so that one fewer of the loads' counter may stay under way.",
    ),
    Misconception(
        "scalars_in_order",
        _with(lambda family: {5: ("scalar", 1)}),
        "Two scalar loads are under way, and you let the newer one stay. Scalar loads come back in any order: that one "
        "is left does not say which. What is the only safe number?",
    ),
    Misconception(
        "at_the_issue",
        at_the_issue,
        "Each load is waited for as soon as it is issued, so no two are ever under way together. Put a wait before "
        "the first line that uses what has been loaded.",
    ),
    Misconception(
        "behind_the_use",
        behind_the_use,
        "The number at an entry is the line *before* which its wait stands. Yours come one line too late: the line has "
        "used the register by then.",
    ),
    Misconception(
        "between_write_and_read",
        between_write_and_read,
        "Between a ds_write and a ds_read of the same wave no wait is needed: the LDS does the accesses of one wave "
        "in the order in which they were issued. Only what comes back into a register must be waited for.",
    ),
    Misconception(
        "only_reads_count",
        _with(lambda family: {21: ("lds", 1)}),
        "Line 21 waits for one access too many. A ds_write joins the queue of LDS accesses as a ds_read does: how many "
        "accesses of LDS were issued behind the one that line 21 needs?",
    ),
    Misconception(
        "waits_again",
        _with(lambda family: {18: ("load", 3 + (family == "gfx9"))}),
        "A register needs one wait, before its first use. y of row 1 was issued before y of row 0, loads come back in "
        "order, and you have waited for y of row 0 already.",
    ),
    Misconception(
        "no_wait_for_the_addresses",
        lambda family: {line: text for line, text in waits_of(family).items() if line != 5},
        "Scalar loads are loads as well: line 5 reads an address that line 1 is still to bring. All other waits stand "
        "right. Which counter do s_loads have, and which number is safe when they come back in any order?",
    ),
    Misconception(
        "before_an_overwrite",
        _with(lambda family: {13: ("load", 0)}),
        "Line 13 overwrites a register that line 12 has read. A register that is only read is read when its line is "
        "issued, and v4's own load was waited for before line 12: nothing has to be waited for here.",
    ),
    Misconception(
        "text_of_gfx12",
        lambda family: waits_of("gfx12"),
        "s_wait_loadcnt and its like are instructions of gfx12. gfx9 and gfx11 have one, s_waitcnt, which names the "
        "counter in its operand: vmcnt or lgkmcnt.",
    ),
    Misconception(
        "before_the_end",
        before_the_end,
        "A store gives nothing back to a register, so no line needs it. A wave may end while its stores are under way: "
        "they reach memory without it.",
    ),
    Misconception(
        "one_queue_for_lds_and_scalars",
        one_queue_for_lds_and_scalars,
        "Right on gfx9 and gfx11, where LDS and scalar loads share lgkmcnt: the wait for one covers the other. On "
        "gfx12 they have a counter each (dscnt and kmcnt): who waits there for the address that line 9 loads?",
    ),
    Misconception(
        "one_text_for_all",
        lambda family: waits_of("gfx9"),
        "These are the waits of gfx9, for every family. On gfx11 stores have left vmcnt; on gfx12 each kind of access "
        "has a counter and an instruction of its own: s_wait_loadcnt, s_wait_dscnt, s_wait_kmcnt.",
    ),
)
