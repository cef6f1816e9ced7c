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
from gpu_utils.exercises.u07_ptx_and_amdgcn.fix_race_slips import SLIPS
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.cpp import Framed, launching
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception
from gpu_utils.virtual import active_gpu
from gpu_utils.virtual.asm import LoadedModule

ANSWER = Framed.read(Path(__file__).with_suffix(".cu"))
FRAME = tuple(ANSWER.frame.split("@@@"))
"""The text before the first mark, and behind the second."""

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

_OF_TRITON = ", and an update may be lost (tl.atomic_add updates in one step)"
_READS = re.compile(r"program (\d+) reads \S+ at byte offset \d+ of ring, which program (\d+) has written")
_HAS_READ = re.compile(r"program (\d+) has read \S+ at byte offset \d+ of ring, and program (\d+) writes")
_BOTH_WRITE = re.compile(r"programs \d+ and \d+ both write byte offset \d+ of ring")

_SIDES = {
    "data": "It is the way from a sender to a receiver: from the end of double_tile in send, over full, to double_tile "
    "in receive",
    "room": "It is the way back from a receiver to the sender that fills the slot next: from the end of double_tile in "
    "receive, over empty, to double_tile in send",
    "senders": "Two senders fill one slot, one turn after the other: what lies between them is the receiver, full and "
    "empty",
}
"""What a race in the ring is about, in a sentence."""


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
        ended["race"] = str(problem).replace(_OF_TRITON, "")
    except StepLimit as problem:
        ended["hang"] = str(problem).partition(" (a longer loop")[0]
    return {"out": out, "ring": ring, "full": full, "empty": empty, **ended}


_launched = launching(_launch)


def _call(answer: Callable[[], Any], inputs: Inputs) -> dict[str, Any]:
    source = answer()
    return {**_launched(lambda: source, inputs), "frame": _changed_frame(source)}


def _bare(source: str) -> str:
    """The source without comments, its continued lines joined."""
    joined = re.sub(r"\\[ \t]*\r?\n", "", source)
    text = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
    return text.sub(lambda found: found[0] if found[0].startswith('"') else " ", joined)


def _changed_frame(source: str) -> str:
    """What is wrong with the text around the marks, or with its words between them; or ""."""
    head, tail = (_bare(part) for part in FRAME)
    text = _bare(source)
    given = set(re.findall(r"[A-Za-z_]\w*", head + tail))
    found = re.findall(r"(?:#|%:)\s*define\s+(\w+)", text)
    if taken := next((name for name in found if name in given), ""):
        return f"`#define {taken}` gives another meaning to a word of the text around the marks; take another name"
    bare, first, last = ("".join(part.split()) for part in (text, head, tail))
    if not bare.startswith(first):
        return "the text before the first mark (Queue, WORDS, double_tile) is not what was given; put it back"
    if not bare.endswith(last) or 'R"' in source:
        return "the text behind the second mark (the kernel pass_on) is not what was given; put it back"
    between = bare[len(first) : len(bare) - len(last)]
    if word := next((word for word in ("__global__", "pass_on", "__attribute__", "##") if word in between), ""):
        return f"between the marks stands `{word}`; pass_on is the only kernel, write functions for it"
    return ""


def _of_race(inputs: Inputs, race: str) -> Difference:
    why = next((name for name, words in _WHY.items() if re.search(words, race)), "no atomic")
    senders, place = inputs["senders"], "tile"
    if re.search(r" of (full|empty),? ", race):
        place = "counter"
    elif _BOTH_WRITE.search(race):
        place = "senders"
    elif (found := _READS.search(race)) and int(found[2]) < senders <= int(found[1]):
        place = "data"
    elif (found := _HAS_READ.search(race)) and int(found[2]) < senders <= int(found[1]):
        place = "room"
    return Difference(f"race:{place}:{why}", f"{race}. {_SIDES[place]}" if place in _SIDES else race)


def _of_hang(inputs: Inputs, value: dict[str, Any]) -> Difference:
    turns = -(-len(inputs["x"]) // inputs["slots"])
    full, empty = value["full"], value["empty"]
    kind, said = "hang", ""
    if int(max(full.max(), empty.max())) > turns:
        kind, said = "hang:beyond", ": a counter went further than that"
    elif not int(full.max()) and not int(empty.max()):
        kind, said = "hang:start", ": no counter ever rose"
    elif not int(full.max()):
        kind, said = "hang:swapped", ": tiles were received before any was sent"
    elif not int(empty.max()) and int(full.max()) > 1:
        kind, said = "hang:ahead", ": full went on, and empty never rose"
    elif not int(empty.max()):
        kind, said = "hang:first", ": full rose, and empty never did"
    counts = f"full is {full.tolist()} and empty is {empty.tolist()} by then"
    return Difference(kind, f"{value['hang']}; {counts}, and each slot is used {turns} times{said}")


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    if value["frame"]:
        return Difference("frame", value["frame"])
    if value["race"]:
        return _of_race(inputs, value["race"])
    if value["hang"]:
        return _of_hang(inputs, value)
    if found := compare(pass_on_reference(**inputs), value["out"], EXACT, None):
        return found
    tiles, slots = len(inputs["x"]), inputs["slots"]
    for slot in range(min(tiles, slots)):
        last = slot + (tiles - 1 - slot) // slots * slots
        if not torch.equal(value["ring"][slot], 2 * inputs["x"][last]):
            detail = (
                f"out is right, and slot {slot} of ring does not hold 2 * x of tile {last}, the last one through it"
            )
            return Difference("ring", f"{detail}; every tile goes through its slot, doubled by its sender")
    return None


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
    call=_call,
    cases=(
        _queue("two slots, each used three times, and several waves in a block", 6, 2, 1, 1, 128),
        _queue("one wave in a block: nothing happens between waves", 6, 2, 1, 2, 32),
        _queue("several blocks in each role share a slot, one after another", 9, 3, 2, 4, 128),
        _queue("a slot for each tile: none is used again", 4, 4, 1, 1, 64),
        _queue("a single slot", 4, 1, 1, 1, 128),
    ),
    fresh=_fresh,
    trivial={"zeros": _writes("0.0f"), "ones": _writes("1.0f"), "nan": _writes("NAN"), "the input": _copies},
    misconceptions=(
        Misconception(
            "changes_the_frame",
            lambda: ANSWER().replace("4 * delay", "0 * delay"),
            "Only the text between the two marks is yours, with helpers of your own. The kernel, Queue and double_tile "
            "stay as they are: copy them from the lab again.",
        ),
        *(
            Misconception(name, ANSWER.filled(wrong) if isinstance(wrong, str) else ANSWER.changed(*wrong), hint)
            for name, wrong, hint in SLIPS
        ),
    ),
    hints=(
        "Two sides want the same two things. Before a counter rises, all that the block did must be done, by all its "
        "waves, and seen by the whole GPU. After a counter was found high enough, no wave may use what it read before. "
        "And there are two waits: for data, and for room.",
        "Write two helpers that all threads of a block call. publish(counter): a barrier of the block, then thread 0 "
        "fences (__threadfence()) and raises the counter. wait_for(counter, value): the same three things in reverse. "
        "Tile t is number t / slots of its slot: which value of full does its receiver wait for, which of empty its "
        "sender?",
        "wait_for: if (threadIdx.x == 0) { while (atomicAdd(counter, 0) < value) {} __threadfence(); } "
        "__syncthreads();  publish: __syncthreads(); if (threadIdx.x == 0) { __threadfence(); atomicAdd(counter, 1); } "
        " With turn = t / slots the sender waits for empty >= turn, the receiver for full >= turn + 1.",
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
    seconds=20.0,
)
