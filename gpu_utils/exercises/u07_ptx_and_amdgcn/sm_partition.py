"""07.sm_partition: how many SMs of a persistent kernel send, and how many compute."""

from __future__ import annotations

import random
from typing import Any

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u07_ptx_and_amdgcn.sm_partition_slips import MISCONCEPTIONS, Number, searched
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs

_NAMES = ("sms", "tiles", "tile_us", "megabytes", "sm_gb", "link_gb")


def _case(why: str, *values: Number) -> Case:
    return Case(why, **dict(zip(_NAMES, values, strict=True)))


def _inputs(case: Case, generator: Any) -> Inputs:
    return dict(case.params)


def sm_partition_reference(
    sms: int, tiles: int, tile_us: Number, megabytes: Number, sm_gb: Number, link_gb: Number
) -> int:
    """Every split, in fractions: what is equal is equal."""
    return searched()(sms, tiles, tile_us, megabytes, sm_gb, link_gb)


def _in_floats(sms: int, tiles: int, tile_us: float, megabytes: float, sm_gb: float, link_gb: float) -> int:
    """The same in floats: a case on whose roundings the answer hangs is not drawn."""
    best, chosen = 1000 * megabytes / min(sms * sm_gb, link_gb) + -(-tiles // sms) * tile_us, 0
    for n in range(1, sms):
        time = max(1000 * megabytes / min(n * sm_gb, link_gb), -(-tiles // (sms - n)) * tile_us)
        if time < best:
            best, chosen = time, n
    return chosen


def _fresh(rng: random.Random) -> Case:
    while True:
        sms = rng.choice([78, 108, 132, 148, 256, 304])
        each = rng.choice([1.25, 2.5, 4.0])
        case = _case(
            "a chip, a link and a load that nobody chose",
            sms,
            rng.randrange(2 * sms, 20 * sms),
            rng.randrange(20, 200) / 2,
            rng.randrange(4, 120) / 2,
            each,
            each * rng.randrange(8, 60),
        )
        if _in_floats(**case.params) == sm_partition_reference(**case.params):
            return case


EXERCISE = Exercise(
    id="07.sm_partition",
    title="How many SMs for communication?",
    parameters=_NAMES,
    kind="host",
    inputs=_inputs,
    reference=sm_partition_reference,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        Example(
            "the example of the docstring",
            **{"sms": 8, "tiles": 24, "tile_us": 10.0, "megabytes": 1.0, "sm_gb": 10.0, "link_gb": 40.0},
        ),
        _case("132 SMs and a link of 50 GB/s that 20 of them fill", 132, 1120, 40.0, 20.0, 2.5, 50.0),
        _case("132 SMs and a link of 160 GB/s: the last round is nearly empty", 132, 1200, 40.0, 24.0, 2.5, 160.0),
        _case("304 CUs and a link of 320 GB/s that 80 of them fill", 304, 4000, 12.5, 60.0, 4.0, 320.0),
        _case("as many tiles as SMs, and little to send", 132, 132, 100.0, 1.0, 2.5, 160.0),
        _case("one after the other is exactly as fast as the best split", 4, 4, 10.0, 0.5, 50.0, 50.0),
        _case("much to send: the link decides", 132, 600, 10.0, 200.0, 2.5, 50.0),
        _case("much to compute: few SMs are enough, however slow they send", 132, 13100, 40.0, 8.0, 2.5, 160.0),
        _case("one SM alone fills the link", 16, 61, 20.0, 4.0, 64.0, 40.0),
        _case("two SMs, which cannot fill the link", 2, 9, 8.0, 0.3, 4.0, 40.0),
        _case("one tile, and three of four SMs send: the last split is the best", 4, 1, 40.0, 1.0, 5.0, 100.0),
        _case("with n = 19 sending takes a fifth of a microsecond too long", 132, 1120, 40.0, 19.01, 2.5, 50.0),
    ),
    fresh=_fresh,
    misconceptions=MISCONCEPTIONS,
    hints=(
        "For one n there are two times, and the launch ends with the longer one. Write them down in microseconds for "
        "n = 1 and n = 2 of the example. Then compare with all SMs doing the one and then the other.",
        "Send: 1000 * megabytes / min(n * sm_gb, link_gb) us. Compute: tiles in whole rounds over sms - n SMs, so "
        "-(-tiles // (sms - n)) * tile_us. Try every n from 1 to sms - 1: there are few.",
        "Begin with best = the time of one after the other, with all sms on both sides, and answer 0. For n = 1, 2, "
        "... take the larger of the two times, and only where it is less than best, remember it and n.",
    ),
    explanation=(
        "The time to send falls with n until the link is full, then it is flat. The time to compute is a staircase: "
        "it rises only where one more round of tiles is needed. So the longer of the two has flat stretches, and the "
        "fewest SMs at the lowest stretch leave the most room. With a strict comparison and n from 0 upwards, ties "
        "fall to the fewest by themselves. DeepSeek-V3 gave 20 of 132 SMs to communication. A model like this one says "
        "what that costs (112 instead of 132 SMs compute, 18% more rounds where tiles are many) and what it buys (the "
        "transfer hides behind the work). Where a launch has few rounds, a partial last round can be worth more "
        "than any overlap, and 0 wins. What the model leaves out: senders take bandwidth of memory and caches too."
    ),
)
