"""11.bandwidth_rule: which links hide the traffic of experts behind their work, and which expert width would."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.chips import CHIPS
from gpu_utils.chips.links import LINKS
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

GIGA, TERA, TILE = 1e9, 1e12, 128
PEERS = 7
"""Other GPUs of a node of MI300X: as many xGMI links of each."""

Figures = Mapping[str, float | None]


def sheet(name: str, dtype: str = "fp8") -> dict[str, float | None]:
    """What a data sheet says of a chip: TFLOP/s, and GB/s of all its links to other GPUs, both directions together."""
    chip, xgmi = CHIPS[name], LINKS["xGMI of MI300X"].gb.value
    link = chip.link_gb.value
    if name == "MI300X" and xgmi is not None:
        link = 2 * PEERS * xgmi
    return {"tflops": chip.peak(dtype), "link_gb": link}


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return {
        "chips": {name: dict(figures) for name, figures in case["chips"].items()},
        **{name: case[name] for name in ("expert_width", "dispatch_bits", "combine_bits", "ranks")},
    }


def _up(value: float) -> int:
    return math.ceil(value / TILE) * TILE


def _rule(
    flops: float = 6,
    moved: Callable[[int, int], float] = lambda dispatch, combine: (dispatch + combine) / 8,
    away: Callable[[int], float] = lambda ranks: (ranks - 1) / ranks,
    direction: float = 0.5,
    giga: float = GIGA,
    rounded: Callable[[float], Any] = _up,
    hides: Callable[[float, float], bool] = lambda link, needed: link >= needed,
    unknown: Any = None,
) -> Callable[..., dict[str, Any]]:
    """An answer with these rules, each of which can be wrong."""

    def answer(
        chips: Mapping[str, Figures], expert_width: int, dispatch_bits: int, combine_bits: int, ranks: int
    ) -> dict[str, Any]:
        needed: dict[str, Any] = {}
        hidden: dict[str, Any] = {}
        width: dict[str, Any] = {}
        for name, figures in chips.items():
            peak, both = figures["tflops"], figures["link_gb"]
            bytes_of_flop = moved(dispatch_bits, combine_bits) * away(ranks) / flops  # times the expert's width
            least = None if peak is None else peak * TERA * bytes_of_flop / expert_width / giga
            needed[name] = unknown if least is None else least
            if least is None or peak is None or both is None:
                hidden[name], width[name] = (None, None) if unknown is None else (False, unknown)
                continue
            hidden[name] = hides(both * direction, least)
            width[name] = rounded(peak * TERA * bytes_of_flop / (both * direction * giga))
        return {"needed": needed, "hides": hidden, "width": width}

    return answer


def _fresh(rng: random.Random) -> Case:
    while True:
        chips: dict[str, Figures] = {
            f"chip {letter}": {"tflops": rng.uniform(200, 5000), "link_gb": rng.uniform(100, 2000)} for letter in "abcd"
        }
        chips["chip e"] = {"tflops": rng.uniform(200, 5000), "link_gb": None}
        case = Case(
            "chips nobody sells",
            chips=chips,
            expert_width=128 * rng.randrange(4, 40),
            dispatch_bits=rng.choice([4, 8]),
            combine_bits=16,
            ranks=rng.choice([8, 32, 64]),
        )
        if _clear(case):
            return case


def _clear(case: Case) -> bool:
    """Whether no width lies so near to a multiple that the order of operations could decide it."""
    exact = _rule(rounded=lambda value: value / TILE)
    given = {name: case[name] for name in ("expert_width", "dispatch_bits", "combine_bits", "ranks")}
    widths = exact(chips=case["chips"], **given)["width"].values()
    return all(value is None or 0.02 < value % 1 < 0.98 for value in widths)


_WRONG: tuple[tuple[str, Callable[..., Any], str], ...] = (
    (
        "both_directions",
        _rule(direction=1.0),
        "`needed` is right. The data sheet adds both directions of a link; what a GPU sends has one of them: half.",
    ),
    (
        "direction_halved_twice",
        _rule(direction=0.25),
        "`needed` is right. The bandwidth is halved twice: link_gb is both directions, so one is half of it.",
    ),
    (
        "multiply_add_as_one",
        _rule(flops=3),
        "Half of the FLOP are missing: a multiply-add is two. Three matrices of h x d are 6 h d a token.",
    ),
    (
        "two_matrices",
        _rule(flops=4),
        "An expert has two matrices here. A gated MLP has three: gate, up and down.",
    ),
    (
        "one_matrix",
        _rule(flops=2),
        "An expert has one matrix here. A gated MLP has three: gate, up and down.",
    ),
    (
        "combine_forgotten",
        _rule(moved=lambda dispatch, combine: dispatch / 8),
        "The way back is missing: each dispatched token comes back, with combine_bits a number.",
    ),
    (
        "dispatch_forgotten",
        _rule(moved=lambda dispatch, combine: combine / 8),
        "The way there is missing: only what comes back is counted.",
    ),
    (
        "bf16_as_one_byte",
        _rule(moved=lambda dispatch, combine: (min(dispatch, 8) + min(combine, 8)) / 8),
        "BF16 is counted as one byte. It has 16 bits: combine_bits / 8 bytes.",
    ),
    (
        "dispatch_in_bf16",
        _rule(moved=lambda dispatch, combine: 2 * combine / 8),
        "Both ways are counted with combine_bits. The way there is narrower: dispatch_bits.",
    ),
    (
        "at_least_a_byte",
        _rule(moved=lambda dispatch, combine: (max(dispatch, 8) + combine) / 8),
        "A dispatch of 4 bits is counted as a whole byte. Two numbers share one.",
    ),
    (
        "bits_as_bytes",
        _rule(moved=lambda dispatch, combine: dispatch + combine),
        "Bits are counted as bytes: eight times too many.",
    ),
    (
        "own_tokens_travel",
        _rule(away=lambda ranks: 1.0),
        "All pairs of token and expert are counted. Those whose expert is on the token's own rank do not travel: with "
        "even routing (ranks - 1) / ranks of them do.",
    ),
    (
        "own_tokens_alone",
        _rule(away=lambda ranks: 1 / ranks),
        "The share of 1 / ranks is what stays at home. What travels is the rest.",
    ),
    (
        "one_rank_too_many",
        _rule(away=lambda ranks: ranks / (ranks + 1)),
        "The share that travels is ranks / (ranks + 1). `ranks` counts the token's own: (ranks - 1) / ranks.",
    ),
    (
        "binary_gigabytes",
        _rule(giga=2**30),
        "A GB/s is 10**9 bytes a second, not 2**30: `needed` is off by 7%.",
    ),
    (
        "width_rounded_down",
        _rule(rounded=lambda value: math.floor(value / TILE) * TILE),
        "Only the width is wrong: rounded down to a multiple of 128 it does not hide any more. Round up.",
    ),
    (
        "width_to_the_nearest",
        _rule(rounded=lambda value: round(value / TILE) * TILE),
        "Only the width is wrong: rounded to the nearest multiple of 128 it hides only half of the time. Round up.",
    ),
    (
        "width_not_a_multiple",
        _rule(rounded=math.ceil),
        "Only the width is wrong: it is to be a multiple of 128.",
    ),
    (
        "width_a_power_of_two",
        _rule(rounded=lambda value: 2 ** math.ceil(math.log2(value))),
        "Only the width is wrong: the next power of two is more than is needed. Multiples of 128 will do.",
    ),
    (
        "hides_upside_down",
        _rule(hides=lambda link, needed: link < needed),
        "Only `hides` is wrong, and it is wrong everywhere: traffic hides where the link has at least what is needed.",
    ),
    (
        "unknown_as_zero",
        _rule(unknown=0),
        "Where a figure is None there is nothing to compute: the result is None, not 0 or False.",
    ),
)


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    return tolerance(torch.float64, magnitude=0.0, roundings=6)


_REAL: dict[str, dict[str, float | None]] = {name: sheet(name) for name in ("H100", "H20", "B200", "MI300X", "MI355X")}

EXERCISE = Exercise(
    id="11.bandwidth_rule",
    title="GB/s for each TFLOP/s",
    parameters=("chips", "expert_width", "dispatch_bits", "combine_bits", "ranks"),
    kind="host",
    inputs=_inputs,
    reference=_rule(),
    tolerance=_tolerance,
    dtype=lambda inputs: None,
    cases=(
        Example(
            "the example of the docstring",
            chips={"a": {"tflops": 600.0, "link_gb": 300.0}, "b": {"tflops": None, "link_gb": 100.0}},
            **{"expert_width": 1000, "dispatch_bits": 8, "combine_bits": 16, "ranks": 4},
        ),
        Case(
            "chips of the registry, experts as wide as DeepSeek-V3's",
            chips=_REAL,
            **{"expert_width": 2048, "dispatch_bits": 8, "combine_bits": 16, "ranks": 8},
        ),
        Case(
            "over one network card of 50 GB/s a direction, 64 ranks",
            chips={name: {**figures, "link_gb": 100.0} for name, figures in _REAL.items()},
            **{"expert_width": 3072, "dispatch_bits": 8, "combine_bits": 16, "ranks": 64},
        ),
        Case(
            "a dispatch of 4 bits, narrow experts",
            chips=_REAL | {"slow": {"tflops": 100.0, "link_gb": 8.0}},
            **{"expert_width": 256, "dispatch_bits": 4, "combine_bits": 16, "ranks": 32},
        ),
        Case(
            "half a column above a multiple of 128, and a quarter below",
            chips={"above": {"tflops": 375.6, "link_gb": 200.0}, "below": {"tflops": 375.4, "link_gb": 200.0}},
            **{"expert_width": 1024, "dispatch_bits": 8, "combine_bits": 16, "ranks": 4},
        ),
        Case(
            "experts that are no multiple of 128: enough for the link, and the multiple is wider; one of 128 would do",
            chips={"fits": {"tflops": 380.0, "link_gb": 300.0}, "weak": {"tflops": 40.0, "link_gb": 300.0}},
            **{"expert_width": 1000, "dispatch_bits": 8, "combine_bits": 16, "ranks": 4},
        ),
        Case(
            "nothing is known",
            chips={"no link": {"tflops": 300.0, "link_gb": None}, "nothing": {"tflops": None, "link_gb": None}},
            **{"expert_width": 1024, "dispatch_bits": 8, "combine_bits": 16, "ranks": 16},
        ),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "One token that goes to one expert: how many FLOP does the expert do with it, and how many bytes of it cross a "
        "link? Write h for the model's width. What happens to h in the quotient?",
        "FLOP of a pair: 3 matrices, h x d each, 2 for a multiply-add. Bytes of a pair: h * dispatch_bits / 8 there "
        "and h * combine_bits / 8 back, but only for the share that is not on its own rank. Hidden means: bytes / "
        "bandwidth <= FLOP / peak.",
        "per_width = (dispatch_bits + combine_bits) / 8 * (ranks - 1) / ranks / 6; needed = tflops * 1e12 * per_width "
        "/ expert_width / 1e9; hides = link_gb / 2 >= needed; width = ceil(tflops * 1e12 * per_width / (link_gb / 2 * "
        "1e9) / 128) * 128; None where a figure is None.",
    ),
    explanation=(
        "The model's width cancels, so that the rule has one size in it, the expert's: peak over bandwidth may be at "
        "most 2 d FLOP a byte with FP8 there and BF16 back. A faster chip on the same link therefore wants wider "
        "experts, or a faster link, and a narrower format for the way there helps less than one for the way back. "
        "Real kernels reach neither peak: the same share on both sides leaves the rule as it is."
    ),
)
