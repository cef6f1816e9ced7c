"""14.portability: what share of each chip's roofline a tile keeps, what bounds it there, and which tile to take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u14_tilelang import portability_slips as slips
from gpu_utils.exercises.u14_tilelang.portability_cases import CASES, fresh, inputs
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

NEAR = 1e-9
"""Relative: a few roundings of float64, far below what any other rule gives."""
FORM = "expected (tile, {chip: (bound, fraction)}), or (None, {})"


def _number(value: Any) -> float | None:
    if isinstance(value, (str, bool)):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None


def _pairs(report: Any) -> dict[str, tuple[str, float]] | None:
    """The report as chip -> (bound, fraction); None where it has another form."""
    if not isinstance(report, Mapping):
        return None
    found = {}
    for chip, pair in report.items():
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[0], str):
            return None
        if (share := _number(pair[1])) is None:
            return None
        found[chip] = (pair[0], share)
    return found


def _expected(tile: Any, counts: Any, chips: Any, work: Any) -> tuple[Any, dict[str, Any]]:
    """The right tile with its report: the given one where it is as good as any."""
    best, report = slips.right(counts, chips, work)
    if isinstance(tile, str) and tile in counts and best is not None:
        given, other = slips.right({tile: counts[tile]}, chips, work)
        if given and _least(other) >= _least(report) * (1 - NEAR):
            return given, other
    return best, report


def _least(report: Mapping[str, tuple[str, float]]) -> float:
    return slips.worst({chip: share for chip, (_, share) in report.items()})


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return Difference("form", f"the result is a {type(value).__name__}; {FORM}")
    tile, report = value[0], _pairs(value[1])
    if report is None:
        return Difference("form", f"the second part is not a dict of pairs of a word and a number; {FORM}")
    best, expected = _expected(tile, **inputs)
    if wrong := _named(tile, report, inputs):
        return wrong
    said = ", ".join(f"{chip} {bound} {share:.6g}" for chip, (bound, share) in report.items())
    kind = f"{tile}: {said}"
    if tile != best:
        return Difference(kind, _of_tiles(tile, best))
    if set(report) != set(expected):
        return Difference(kind, f"the report has {_list(report)}; expected {_list(expected)}")
    for chip, (bound, share) in expected.items():
        if not abs(report[chip][1] - share) <= NEAR * share:
            return Difference(kind, f"on {chip} the fraction is {_against(report[chip][1], share)}")
        if report[chip][0] != bound:
            return Difference(kind, f"on {chip} the bound is {report[chip][0]!r}, and another part takes longer")
    return None


def _named(tile: Any, report: Mapping[str, tuple[str, float]], inputs: Inputs) -> Difference | None:
    """A tile, a chip or a bound that does not exist; None where all do."""
    if tile is not None and (not isinstance(tile, str) or tile not in inputs["counts"]):
        return Difference(
            "form:tile", f"the tile is {_short(tile)}; expected one of {_list(inputs['counts'])}, or None"
        )
    if other := next((chip for chip in report if chip not in inputs["chips"]), None):
        return Difference("form:chip", f"the report has a chip {_short(other)}; expected {_list(inputs['chips'])}")
    for chip, (bound, _) in report.items():
        if bound not in slips.BOUNDS:
            return Difference("form:bound", f"on {chip} the bound is {_short(bound)}; expected {_list(slips.BOUNDS)}")
    return None


def _of_tiles(tile: str | None, best: str | None) -> str:
    if tile is None:
        return "the tile is None, but there is one that no chip refuses"
    if best is None:
        return f"the tile is {tile!r}, but every tile is refused by some chip; expected (None, {{}})"
    return f"the tile is {tile!r}, which is not the one that keeps most where it keeps least"


def _against(found: float, right: float) -> str:
    ratio = found / right
    if 0.999 < ratio < 1.001:
        return f"{found:.9g}, and off by {abs(ratio - 1):.2g} of itself; expected float64, and nothing rounded"
    return f"{found:.6g}: {ratio:.4g} times the right one"


def _list(words: Any) -> str:
    return ", ".join(map(repr, words)) or "nothing"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_HINTS = {
    "spills_left_out": "What is spilled goes to memory and comes back: it belongs to the bytes of a block.",
    "no_last_round": "The blocks were spread evenly, in fractions. A block runs on one unit: with 133 blocks on 132 "
    "units one unit runs two, and the launch ends with it.",
    "rounds_of_residents": "Blocks were dealt to units in groups of `resident`. A group that is not full has fewer "
    "blocks: the busiest unit has ceil(blocks / units) of them.",
    "memory_in_rounds": "Bytes were rounded up to full rounds as FLOPs are. Units share the way to memory: the bytes "
    "of all blocks over its rate, however they are spread.",
    "one_peak": "Other FLOPs were divided by the peak of the matrix units. They run elsewhere, at a rate of their own.",
    "peak_of_a_unit": "The FLOPs of one unit were divided by the FLOP/s of the whole chip. A unit has "
    "its share of them: "
    "the chip's rate over `units`.",
    "residents_at_once": "Resident blocks were taken to run side by side at full speed. They share the FLOP/s of their "
    "unit: two blocks take twice as long as one, also where both have room.",
    "kinds_added": "Matrix and other FLOPs were added up. The two units work side by side: arithmetic takes as long as "
    "the longer one.",
    "matrix_alone": "Other FLOPs take no time in your answer. Where they are many, they are the bound.",
    "one_block": "The counters are those of one block, and the launch has `blocks` of them.",
    "always_hidden": "The larger of copies and arithmetic was taken everywhere. With one resident block and one buffer "
    "nothing computes while something is copied: the two add up.",
    "never_hidden": "Copies and arithmetic were added everywhere. With a second block or a second buffer they run at "
    "the same time.",
    "needs_two_blocks": "Only a second resident block was taken to hide copies. A second buffer does it too.",
    "needs_two_buffers": "Only a second buffer was taken to hide copies. A second resident block does it too.",
    "all_added": "Where nothing is hidden, matrix and other FLOPs were added up as well. Those two units still work "
    "side by side: only copies wait for arithmetic.",
    "of_the_peak": "The fraction is that of the matrix peak. Where the operator itself is bound by memory, its roof is "
    "lower: the larger of two least times.",
    "of_the_memory": "The least time is that of the operator's bytes. Its FLOPs take time too: the larger one.",
    "least_times_added": "The two least times of the operator were added. Its roofline takes the larger one.",
    "needs_both": "A second resident block and a second buffer were both asked for. One of them hides the copies.",
    "best_on_average": "The tile that is best on average was picked. One program is to run on all chips: look at the "
    "chip where a tile keeps least.",
    "best_on_the_first": "The tile that is best on the first chip was picked: that is where the program comes from.",
    "best_somewhere": "A tile was picked for the chip that likes it most. Look at the chip where it keeps least.",
    "refused_is_no_matter": "A tile was picked that one of the chips refuses: its counters there are None.",
    "bound_of_the_work": "The bound was read off the operator's own FLOP per byte. A tile moves more bytes than that; "
    "what bounds it is what takes longest of its own three times.",
}

EXERCISE = Exercise(
    id="14.portability",
    title="Which tile survives the move?",
    parameters=("counts", "chips", "work"),
    kind="host",
    inputs=inputs,
    reference=slips.right,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=CASES,
    fresh=fresh,
    trivial={
        "zeros": lambda counts, chips, work: (next(iter(counts)), dict.fromkeys(chips, ("matrix", 0.0))),
        "ones": lambda counts, chips, work: (next(iter(counts)), dict.fromkeys(chips, ("matrix", 1.0))),
        "nan": lambda counts, chips, work: (next(iter(counts)), {chip: ("matrix", float("nan")) for chip in chips}),
        "the input": lambda counts, chips, work: counts,
    },
    misconceptions=tuple(Misconception(name, wrong, _HINTS[name]) for name, wrong in slips.WRONG.items()),
    hints=(
        "Three times first, each by itself: matrix FLOPs, other FLOPs, bytes. Two of them belong to the unit with the "
        "most blocks, the third to the whole chip.",
        "A launch takes the larger of arithmetic and copies where resident * buffers >= 2, else their sum. Arithmetic "
        "is the larger of its two kinds. The fraction is the operator's least time over that.",
        "For each tile that no chip refuses: the smallest of its fractions. Take the tile where that is largest.",
    ),
    explanation=(
        "A tile that is best on one chip can lose half on the next, for another reason on each: a last round with few "
        "blocks, spills, one buffer where two were needed, a way to memory that is narrower for its FLOPs. A program "
        "that is to run on all of them is as good as its worst chip. That is why ported kernels keep a tile for each "
        "chip, and why the numbers to look at first are the counted bytes."
    ),
)
