"""12.choose: degrees of parallelism for a described cluster and model, the fastest that fit.

An answer is judged by the lab's model of memory and time, not by its numbers: every choice that fits and is nearly as
fast as the best is right.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u12_pipeline_schedules import choose_slips as slips
from gpu_utils.exercises.u12_pipeline_schedules.choose_slips import Degrees, choosing
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

ROOM = 1.01
"""A step may take so many times as long as with the best choice."""

NEAR = 1e-6
"""No case has a choice whose memory is so close to the limit, as a share of it: rounding decides nothing."""


def _inputs(case: Case, generator: Any) -> Inputs:
    return {"cluster": dict(case["cluster"]), "model": dict(case["model"])}


def _whole(value: Any) -> int | None:
    try:
        return int(value) if not isinstance(value, (bool, str)) and int(value) == value else None
    except (TypeError, ValueError, OverflowError):
        return None


def _read(value: Any) -> Degrees | Difference:
    """The four degrees of an answer, or what is wrong with its form."""
    form = 'a dict with the whole numbers "pipeline", "expert", "data" and "tensor", or None where nothing fits'
    if not isinstance(value, Mapping):
        return Difference("form", f"the result is of type {type(value).__name__}; expected {form}")
    if set(value) != set(Degrees._fields):
        return Difference("form", f"the result has the names {sorted(map(str, value))}; expected {form}")
    numbers = {name: _whole(value[name]) for name in Degrees._fields}
    for name, number in numbers.items():
        if number is None or number < 1:
            return Difference("form", f"{name} is {value[name]!r}; expected {form}, each at least 1")
    return Degrees(**numbers)  # type: ignore[arg-type]


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    cluster, model = inputs["cluster"], inputs["model"]
    best = slips.right(cluster, model)
    if value is None:
        if best is None:
            return None
        needs = slips.cost(cluster, model, Degrees(**best)).memory
        return Difference(
            "none", f"the result is None, but something fits: {needs / 1e9:.4g} GB of {cluster['memory'] / 1e9:g} GB do"
        )
    at = _read(value)
    if isinstance(at, Difference):
        return at
    if broken := slips.fault(cluster, model, at):
        return Difference("rule", broken)
    found, limit = slips.cost(cluster, model, at), cluster["memory"]
    if found.memory > limit:
        nothing = "; nothing fits here, so None is right" if best is None else ""
        return Difference(
            f"memory:{found.memory:.6g}",
            f"the fullest chip needs {found.memory / 1e9:.4g} GB of {limit / 1e9:g} GB with {_said(at)}{nothing}",
        )
    assert best is not None, "what fits is among what is searched"
    least = slips.cost(cluster, model, Degrees(**best)).seconds
    if found.seconds <= ROOM * least:
        return None
    return Difference(
        f"slower:{found.seconds:.6g}",
        f"a step takes {found.seconds:.4g} s with {_said(at)}; {least:.4g} s is possible, and {ROOM * least:.4g} s "
        "would do",
    )


def _said(at: Degrees) -> str:
    return ", ".join(f"{name} {number}" for name, number in at._asdict().items())


def _described(rng: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """A cluster and a model of sizes that people build."""
    node = rng.choice((4, 8))
    width = rng.choice((1024, 2048, 4096, 7168))
    experts = rng.choice((0, 16, 64, 128))
    cluster = {
        "chips": node * rng.choice((2, 4, 8, 16, 32)),
        "node": node,
        "memory": rng.choice((24e9, 64e9, 80e9, 128e9, 192e9)),
        "flops": rng.choice((120e12, 300e12, 400e12, 520e12)),
        "inside": rng.choice((50e9, 160e9, 300e9, 450e9)),
        "across": rng.choice((12.5e9, 25e9, 50e9)),
    }
    model = {
        "layers": rng.choice((12, 24, 30, 40, 61)),
        "width": width,
        "dense": (4 if experts else 12) * width * width,
        "experts": experts,
        "expert": 3 * width * rng.choice((512, 1024, 2048)) if experts else 0,
        "active": rng.choice((2, 4, 8)) if experts else 0,
        "nodes": rng.choice((2, 4)) if experts else 1,
        "kept": rng.choice((10, 20, 34)) * width,
        "tokens": 4096 * rng.choice((256, 960, 1920, 3840)),
        "micro": 4096,
    }
    return cluster, model


def _fresh(rng: random.Random) -> Case:
    while True:
        cluster, model = _described(rng)
        needs = [slips.cost(cluster, model, at).memory for at in slips.possible(cluster, model)]
        apart = all(abs(each - cluster["memory"]) > NEAR * cluster["memory"] for each in needs)
        if apart and any(each <= cluster["memory"] for each in needs):
            return Case("a cluster and a model nobody chose", cluster=cluster, model=model)


def _chips(chips: int, node: int, memory: float, flops: float, inside: float, across: float) -> dict[str, Any]:
    return locals()


def _model(
    layers: int,
    width: int,
    dense: int,
    kept: int,
    tokens: int,
    micro: int,
    experts: int = 0,
    expert: int = 0,
    active: int = 0,
    nodes: int = 1,
) -> dict[str, Any]:
    return locals()


_V3 = _model(61, 7168, 231_000_000, 143_360, 62_914_560, 4096, experts=256, expert=44_040_192, active=8, nodes=4)
_H800 = _chips(2048, 8, 80e9, 400e12, 160e9, 50e9)


def _missed(name: str, hint: str, **wrong: Any) -> Misconception:
    """A term of the model, got wrong."""
    return Misconception(name, choosing(**wrong), hint)


EXERCISE = Exercise(
    id="12.choose",
    title="Degrees for a cluster",
    parameters=("cluster", "model"),
    kind="host",
    inputs=_inputs,
    reference=slips.right,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        Case(
            "the example of the statement: the fastest does not fit",
            cluster=_chips(4, 2, 2.2e9, 100e12, 100e9, 10e9),
            model=_model(4, 2048, 50_000_000, 70_000, 65_536, 4096),
        ),
        Case("256 nodes of 8 chips with 80 GB, and a model like DeepSeek-V3", cluster=_H800, model=_V3),
        Case(
            "the same model where a chip has 192 GB and a faster link inside of the node",
            cluster=_H800 | {"memory": 192e9, "flops": 500e12, "inside": 336e9},
            model=_V3,
        ),
        Case(
            "eight nodes with slow links",
            cluster=_chips(64, 8, 64e9, 120e12, 50e9, 12.5e9),
            model=_V3 | {"layers": 30, "experts": 64, "kept": 71_680, "tokens": 7_864_320},
        ),
        Case(
            "no experts, nodes of 4 chips, few micro-batches",
            cluster=_chips(128, 4, 64e9, 120e12, 300e9, 25e9),
            model=_model(12, 7168, 616_562_688, 71_680, 262_144, 8192),
        ),
        Case(
            "256 small experts and 24 GB",
            cluster=_chips(256, 8, 24e9, 120e12, 50e9, 25e9),
            model=_model(80, 4096, 100_663_296, 139_264, 3_932_160, 4096, 256, 12_582_912, active=4, nodes=8),
        ),
        Case(
            "two nodes: nothing fits",
            cluster=_chips(16, 8, 80e9, 400e12, 50e9, 12.5e9),
            model=_model(80, 2048, 25_165_824, 20_480, 7_864_320, 4096, 256, 12_582_912, active=2, nodes=4),
        ),
        Case(
            "fewer micro-batches than stages",
            cluster=_chips(8, 8, 24e9, 520e12, 50e9, 25e9),
            model=_model(80, 1024, 12_582_912, 34_816, 32_768, 8192),
        ),
        Case(
            "four micro-batches and experts that fill two nodes",
            cluster=_chips(16, 8, 141e9, 400e12, 50e9, 12.5e9),
            model=_model(30, 2048, 16_777_216, 20_480, 16_384, 4096, 128, 12_582_912, active=8, nodes=2),
        ),
        Case(
            "nodes of 4, a fast link inside of them and a slow one outside",
            cluster=_chips(32, 4, 80e9, 120e12, 450e9, 12.5e9),
            model=_model(12, 8192, 268_435_456, 278_528, 32_768, 4096, 64, 12_582_912, active=8, nodes=8),
        ),
        Case(
            "many small experts on 16 nodes",
            cluster=_chips(128, 8, 24e9, 300e12, 50e9, 12.5e9),
            model=_model(30, 2048, 25_165_824, 20_480, 1_048_576, 4096, 256, 3_145_728, active=8, nodes=4),
        ),
        Case(
            "deep and narrow, in 24 GB",
            cluster=_chips(32, 4, 24e9, 120e12, 300e9, 25e9),
            model=_model(80, 1024, 6_291_456, 10_240, 131_072, 8192, 64, 6_291_456, active=8, nodes=4),
        ),
        Case(
            "links of one rate inside and outside",
            cluster=_chips(32, 8, 141e9, 300e12, 50e9, 50e9),
            model=_model(61, 1024, 4_194_304, 20_480, 262_144, 8192, 16, 1_572_864, active=2, nodes=4),
        ),
        Case(
            "no experts, and as many micro-batches as the chips of half a node",
            cluster=_chips(32, 8, 24e9, 300e12, 450e9, 25e9),
            model=_model(61, 1024, 12_582_912, 20_480, 32_768, 8192),
        ),
        Case(
            "six nodes, and a stage for each of 8 layers",
            cluster=_chips(48, 8, 80e9, 120e12, 300e9, 12.5e9),
            model=_model(8, 2048, 25_165_824, 40_960, 196_608, 4096, 24, 12_582_912, active=8, nodes=4),
        ),
        Case(
            "one expert for each token: the exchange is nearly as long as the compute",
            cluster=_chips(64, 8, 24e9, 400e12, 300e9, 50e9),
            model=_model(61, 7168, 308_281_344, 243_712, 3_932_160, 4096, 16, 11_010_048, active=1, nodes=8),
        ),
        Case(
            "one node, half as many micro-batches as stages",
            cluster=_chips(8, 8, 64e9, 520e12, 50e9, 50e9),
            model=_model(40, 7168, 205_520_896, 71_680, 32_768, 8192, 16, 22_020_096, active=2, nodes=2),
        ),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "memory_ignored",
            slips.whatever_fits_or_not,
            "The fastest choice was taken, whether it fits or not. Leave out what needs more than cluster['memory'] "
            "before you compare times.",
        ),
        _missed(
            "no_states",
            "Weights and gradients were counted, 6 bytes of a weight, and the optimizer's 12 were not.",
            states=0.0,
        ),
        _missed(
            "states_not_shared",
            "Every rank was given all of its weights' optimizer states. The ranks that hold the same weights share "
            "them out: 12 / d bytes of a dense weight.",
            states_shared=False,
        ),
        _missed(
            "experts_shared_by_all",
            "The optimizer states of experts were shared out over all d ranks. Only d / e ranks hold the same experts.",
            experts_shared_by_all=True,
        ),
        _missed(
            "experts_not_divided",
            "Every rank was given all experts of its layers. With the expert degree e it holds experts / e of them.",
            experts_divided=False,
        ),
        _missed("no_activations", "The activations of the micro-batches under way were left out.", kept=0.0),
        _missed(
            "one_alive",
            "Activations of one micro-batch were counted. Under 1F1B the first stage keeps min(p, m) of them.",
            alive=lambda p, m: 1,
        ),
        _missed(
            "all_alive",
            "Activations of all m micro-batches were counted, as GPipe keeps them. Under 1F1B the first stage keeps "
            "min(p, m).",
            alive=lambda p, m: m,
        ),
        _missed(
            "p_alive",
            "Activations of p micro-batches were counted where there are fewer. The first stage keeps min(p, m).",
            alive=lambda p, m: p,
        ),
        _missed(
            "rounds_down",
            "Layers were divided by stages and rounded down, or not at all. The longest stage has ceil(layers / p) "
            "layers, all others wait for it, and it fills its chip most.",
            layers=int,
        ),
        _missed("no_bubble", "The step was given m slots of time. A pipeline takes m + p - 1.", bubble=False),
        _missed("no_exchange", "The exchange of the experts was taken for free.", exchange=0.0),
        _missed(
            "exchange_inside",
            "The exchange was counted on the link inside of a node alone. With e t > node, tokens cross nodes.",
            exchange_inside=True,
        ),
        _missed(
            "exchange_added",
            "Compute and exchange were added. Here the exchange of one micro-batch runs beside the compute of another: "
            "the longer one counts.",
            exchange_hidden=False,
        ),
        _missed("tensor_free", "The all-reduces of the tensor degree were taken for free.", tensor=0.0),
        _missed(
            "tensor_inside",
            "The all-reduces were counted on the link inside of the node whatever t is. With t > node they cross "
            "nodes, at that link's rate.",
            tensor_inside=True,
        ),
        _missed("no_reduce", "The sum of the gradients over the data ranks was taken for free.", reduced=0.0),
        Misconception(
            "largest_expert",
            slips.by(lambda at: (-at.expert, -at.data, at.tensor)),
            "The largest data and expert degrees that fit were taken. What fits must still be compared by its time.",
        ),
        Misconception(
            "longest_pipeline",
            slips.by(lambda at: (-at.pipeline, at.tensor, -at.expert)),
            "The longest pipeline that fits was taken. It needs the least memory and has the largest bubble: compare "
            "times.",
        ),
        Misconception(
            "largest_tensor",
            slips.by(lambda at: (-at.tensor, at.pipeline, -at.expert)),
            "The largest tensor degree that fits was taken. Each layer then waits for four all-reduces: compare times.",
        ),
        Misconception(
            "even_layers",
            slips.only(lambda cluster, model, at: model["layers"] % at.pipeline == 0),
            "Only pipelines that divide the layers were tried. Stages may be uneven: the longest has ceil(layers / p).",
        ),
        Misconception(
            "expert_is_data",
            slips.only(lambda cluster, model, at: at.expert == at.data),
            "Only expert degrees equal to the data degree were tried. Any divisor of d and of the experts will do: "
            "then d / e ranks hold the same experts.",
        ),
        Misconception(
            "within_node",
            slips.only(lambda cluster, model, at: at.expert * at.tensor <= cluster["node"]),
            "Only experts within a node were tried. The exchange may cross nodes if it is hidden behind compute.",
        ),
        Misconception(
            "no_tensor",
            slips.only(lambda cluster, model, at: at.tensor == 1),
            "Only a tensor degree of 1 was tried. Where the link inside of a node is fast, or memory is short, more "
            "is faster.",
        ),
    ),
    hints=(
        "Three parts: a loop over all degrees that keep the rules, the memory of one choice, the time of one choice. "
        "Check each against the table of the small example.",
        "Loop p over the divisors of chips, t over those of chips // p, d is the rest, e over those of d. Skip what "
        "breaks a rule or does not fit, keep the fastest. Two links are chosen by how many ranks the group spans: t, "
        "and d * t.",
        "L = ceil(layers / p); dense = L * model['dense'] / t; routed = L * experts / e * expert / t; memory = 6 * "
        "(dense + routed) + 12 * (dense / d + routed * e / d) + L * min(p, m) * micro * kept / t; seconds = "
        "(m + p - 1) * (max(compute, exchange) + all_reduce) + reduce.",
    ),
    explanation=(
        "The degrees divide different things: p layers and their activations under way, e experts, t every matrix, d "
        "the batch and the optimizer states. Each has its price: bubbles, the exchange, four all-reduces of a layer, "
        "one sum of gradients in a step. A few hundred choices can all be tried. For the model like DeepSeek-V3 on "
        "chips of 80 GB the search finds a pipeline of 32, experts over 64 and no tensor parallelism; the report's own "
        "choice, 16, 64 and none, takes 0.3% longer by this model and keeps every rule. The model leaves much out: "
        "FP8, DualPipe, the embedding and the head, sends between stages, recomputation."
    ),
)
