"""07.fix_race: a queue between blocks in global memory, repaired until nothing depends on who comes first."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.errors import Race, StepLimit
from gpu_utils.exercises.u07_ptx_and_amdgcn.fix_race_slips import AS_GIVEN, SLIPS
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.cpp import Framed, launching
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception
from gpu_utils.virtual import active_gpu
from gpu_utils.virtual.asm import LoadedModule

WORDS = 100
"""Numbers of a tile, as the source says."""

STEP_LIMIT = 600
"""Rounds of one loop after which a launch counts as hung: the solution's longest wait has about 100."""

_WHY = {
    "no release": r"has released nothing",
    "released before": r"did it after the last release",
    "no acquire": r"found what program",
    "nobody": r"has waited for nobody",
    "other address": r"has acquired at no address",
}
"""Why two accesses have no order, as `gpu_utils/virtual/global_order.py` says it."""


def _queue(why: str, tiles: int, slots: int, senders: int, receivers: int, threads: int) -> Case:
    return Case(why, tiles=tiles, slots=slots, senders=senders, receivers=receivers, threads=threads)


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    x = torch.randint(-1000, 1001, (case["tiles"], WORDS), generator=generator).float()
    return {"x": x, **{name: case[name] for name in ("slots", "senders", "receivers", "threads")}}


def pass_on_reference(x: Tensor, slots: int, senders: int, receivers: int, threads: int) -> Tensor:
    """Every number doubled by its sender and by its receiver, whoever they are."""
    return 4 * x.double()


def _launch(module: LoadedModule, inputs: Inputs) -> dict[str, Any]:
    """The result; or how the launch ended, in the words of the virtual GPU, with the counters of the queue."""
    x, slots = inputs["x"], inputs["slots"]
    ring, out = torch.full((slots, WORDS), float("nan")), torch.full_like(x, float("nan"))
    full, empty = torch.zeros(slots, dtype=torch.int32), torch.zeros(slots, dtype=torch.int32)
    blocks = inputs["senders"] + inputs["receivers"]
    clock = torch.zeros(blocks, dtype=torch.int32)
    args = [x, ring, full, empty, out, clock, len(x), slots, inputs["senders"]]
    ended = {"race": "", "hang": ""}
    active_gpu().step_limit = STEP_LIMIT
    try:
        module.launch("pass_on", blocks, inputs["threads"], args)
    except Race as problem:
        ended["race"] = str(problem)
    except StepLimit as problem:
        ended["hang"] = str(problem).partition(" (a longer loop")[0]
    return {"out": out, "full": full, "empty": empty, **ended}


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    if race := value["race"]:
        why = next((name for name, words in _WHY.items() if re.search(words, race)), "no atomic")
        place = "counter" if re.search(r" of (full|empty),? ", race) else "tile"
        return Difference(f"race:{place}:{why}", race)
    if hang := value["hang"]:
        turns = -(-len(inputs["x"]) // inputs["slots"])
        full, empty = value["full"], value["empty"]
        beyond = int(max(full.max(), empty.max())) > turns
        counts = f"full is {full.tolist()} and empty is {empty.tolist()} by then"
        return Difference("hang:beyond" if beyond else "hang", f"{hang}; {counts}, and each slot is used {turns} times")
    return compare(pass_on_reference(**inputs), value["out"], EXACT, None)


ANSWER = Framed.read(Path(__file__).with_suffix(".cu"))


def _writes(value: str) -> Callable[[], str]:
    head, _, rest = ANSWER.frame.partition("@@@")
    idle = "__device__ void send(Queue, const float *, int, int *) {}"
    body = f"for (int i = threadIdx.x; i < WORDS; i += blockDim.x) out[t * WORDS + i] = {value};"
    return lambda: f"{head}{idle}\n__device__ void receive(Queue, float *out, int t, int *) {{ {body} }}\n{rest}"


def _copies() -> str:
    kernel = (
        "const float *x, float *ring, int *full, int *empty, float *out, int *clock, int tiles, int slots, int senders"
    )
    return f"__global__ void pass_on({kernel}) {{ for (int i = 0; i < {WORDS} * tiles; ++i) out[i] = x[i]; }}"


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a queue nobody chose",
        tiles=rng.randrange(5, 9),
        slots=rng.randrange(1, 4),
        senders=rng.randrange(1, 3),
        receivers=rng.randrange(1, 4),
        threads=rng.choice([64, 96, 128]),
    )


EXERCISE = Exercise(
    id="07.fix_race",
    title="A queue between blocks that does not depend on who comes first",
    parameters=(),
    kind="cpp",
    targets=("sm_80", "gfx942", "gfx1100"),
    inputs=_inputs,
    reference=pass_on_reference,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: torch.float32,
    call=launching(_launch),
    cases=(
        _queue("two slots, each used three times, and several waves in a block", 6, 2, 1, 1, 128),
        _queue("one wave in a block: nothing happens between waves", 6, 2, 1, 2, 32),
        _queue("several blocks in each role share a slot, one after another", 9, 4, 2, 3, 128),
        _queue("a slot for each tile: none is used again", 4, 4, 1, 1, 64),
        _queue("a single slot", 4, 1, 1, 1, 128),
    ),
    fresh=_fresh,
    trivial={"zeros": _writes("0.0f"), "ones": _writes("1.0f"), "nan": _writes("NAN"), "the input": _copies},
    misconceptions=tuple(
        Misconception(name, ANSWER.filled(AS_GIVEN) if changes is None else ANSWER.changed(*changes), hint)
        for name, changes, hint in SLIPS
    ),
    hints=(
        "Two sides want the same two things. Before a counter rises, all that the block did must be done, by all its "
        "waves, and seen by the whole GPU. After a counter was found high enough, no wave may use what it read before. "
        "And there are two waits: for data, and for room.",
        "Write two helpers that all threads of a block call. publish(counter): a barrier of the block, then thread 0 "
        "fences (__threadfence()) and raises the counter. wait_for(counter, value): the same three things in reverse. "
        "Tile t is number t / slots of its slot: which value of full does its receiver wait for, which of empty its "
        "sender?",
        "wait_for: if (threadIdx.x == 0) { while (atomicAdd(counter, 0) != value) {} __threadfence(); } "
        "__syncthreads();  publish: __syncthreads(); if (threadIdx.x == 0) { __threadfence(); atomicAdd(counter, 1); } "
        " With turn = t / slots the sender waits for empty == turn, the receiver for full == turn + 1.",
    ),
    explanation=(
        "A counter in global memory orders two blocks only together with fences. __threadfence() before the atomic "
        "makes it a release: what came before is visible before the counter rises. __threadfence() after the wait "
        "makes it an acquire: no later load is served from before. One thread of a block does both, so a barrier must "
        "join it to the other waves: before the release, so that their stores are covered, and after the acquire, so "
        "that they do not run ahead. The same pair stands on both sides of the ring: full says that the data is there, "
        "empty says that its place is free, and a slot that is overwritten early is lost as surely as one that is read "
        "early. Counters that only rise, compared with the turn of a tile, need no reset. Two traps that execution "
        "here does not show: a plain store for the counter (the compiler may move or merge it; the virtual GPU lets it "
        "release, as old code wants), and on gfx1100 a missing fence before the counter (there __syncthreads() waits "
        "for stores as well): right by luck, on one chip. In Triton the same is tl.debug_barrier() and "
        'tl.atomic_add(..., sem="release") on one side, sem="acquire" on the other.'
    ),
    seconds=60.0,
)
