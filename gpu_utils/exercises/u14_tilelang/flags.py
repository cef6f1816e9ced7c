"""14.flags: the synchronisation of a kernel with three pipes and two buffers, in AscendC."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import tolerance
from gpu_utils.exercises.u14_tilelang import flags_slips as slips
from gpu_utils.exercises.u14_tilelang.flags_allowed import check_part
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.cpp import Framed, text_of
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception
from gpu_utils.npu.session import active_ai_cores

TILE, BLOCKS = 512, 2
"""Floats of a tile, as in the kernel; vector cores that it is run on."""

_PIPES = re.compile(r"PIPE_(\w+), PIPE_(\w+)")
_LINE = re.compile(r"\bline (\d+)\b")

ANSWER = Framed.read(Path(__file__).with_suffix(".cpp"))


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    # nowhere near 0, where silu is 0, or where it is its argument
    x = torch.rand(BLOCKS * case["tiles"] * TILE, generator=generator) + 0.5
    return {"x": x * torch.where(torch.rand(x.shape, generator=generator) < 0.5, -1, 1), "tiles": case["tiles"]}


def silu_reference(x: Tensor, tiles: int) -> dict[str, Tensor]:
    """x / (1 + exp(-x)) in float64."""
    return {"y": torch.nn.functional.silu(x.double())}


def _call(answer: Callable[[], str], inputs: Inputs) -> dict[str, Any]:
    """The result, what the virtual AI core found wrong, and how many operations follow one another."""
    source = text_of(answer()).lstrip("\n")
    check_part(source, ANSWER)
    tiles = torch.tensor([inputs["tiles"]], dtype=torch.int32)
    y = torch.full_like(inputs["x"], float("nan"))
    cores = active_ai_cores()
    run = cores.launch(source, "silu_tiles", BLOCKS, [inputs["x"], y, tiles], check=False) if cores else None
    if run is None:
        return {"y": y, "faults": [], "steps": 0, "notifies": 0}
    faults = [[one.kind, one.sentence, one.missing, one.times] for one in run.faults]
    faults = [[kind, _quoted(sentence, source), missing, times] for kind, sentence, missing, times in faults]
    return {"y": y, "faults": faults, "steps": run.steps, "notifies": run.counters["notifies"]}


def _quoted(sentence: str, source: str) -> str:
    """The sentence, with the texts of the lines that it names."""
    lines = source.split("\n")
    numbers = dict.fromkeys(int(number) for number in _LINE.findall(sentence))
    named = [f"line {number} is `{lines[number - 1].strip()}`" for number in numbers if 0 < number <= len(lines)]
    return f"{sentence} ({'; '.join(named)})" if named else sentence


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    """Faults first, then the numbers, then whether the pipes work at the same time."""
    if value["faults"]:
        kind, sentence, missing, _times = value["faults"][0]
        more = len(value["faults"]) - 1
        said = f"{kind}: {sentence}" + (f"; what is missing: {missing}" if missing else "")
        return Difference(_kind_of(value), said + (f"; and {more} more" if more else ""))
    expected = silu_reference(**inputs)["y"]
    wrong = compare(expected, value["y"], tolerance(torch.float32, roundings=5), torch.float32, "y")
    if wrong is not None:
        return wrong
    most = least_steps(case["tiles"])
    if value["steps"] <= most:
        return None
    how = "asc_sync" if value["notifies"] == 0 else "flags"
    return Difference(
        f"stalls: {value['steps']} by {how}",
        f"no fault, and y is right; but the longest way through the kernel is {value['steps']} operations one after "
        f"the other, and {most} are enough for {case['tiles']} tiles when load, compute and store of different tiles "
        "overlap. Which wait is for something that nobody needs?",
    )


def least_steps(tiles: int) -> int:
    """Operations on the longest way, were load, compute and store each one step: all loads, and two more.

    >>> least_steps(4)
    6
    """
    return tiles + 2


def _kind_of(value: Any) -> str:
    """Stable words for faults: what kinds they are, between which pipes; and whether there is any flag at all."""
    kinds = set()
    for kind, sentence, missing, _times in value["faults"]:
        pipes = _PIPES.search(missing or sentence)
        kinds.add(f"{kind} {pipes[1]} to {pipes[2]}" if pipes else kind)
    return f"faults: {', '.join(sorted(kinds))}" + ("" if value["notifies"] else ", no flag")


def _fresh(rng: random.Random) -> Case:
    return Case("a number of tiles nobody chose", tiles=rng.randrange(3, 12))


def _slip(name: str, hint: str) -> Misconception:
    return Misconception(name, ANSWER.filled(slips.PARTS[name]), hint)


EXERCISE = Exercise(
    id="14.flags",
    title="Flags between three pipes and two buffers",
    parameters=(),
    kind="cpp",
    targets=("ascend950",),
    inputs=_inputs,
    reference=silu_reference,
    judge=_judge,
    dtype=lambda inputs: torch.float32,
    call=_call,
    cases=(
        Case("each buffer is used twice", tiles=4),
        Case("one tile: the second buffer is never used", tiles=1),
        Case("each buffer is used once: nothing is written over", tiles=2),
        Case("an odd number: the buffers are not used equally often", tiles=7),
    ),
    fresh=_fresh,
    trivial={  # numbers cannot be written by a part that only orders the operations
        "nothing": ANSWER.filled("  asc_sync();"),
        "one tile": ANSWER.filled("  load(0); asc_sync(); compute(0); asc_sync(); store(0);"),
    },
    misconceptions=(
        _slip(
            "no_flags",
            "The three pipes run at the same time: a call hands an operation to its pipe and returns. Nothing makes "
            "PIPE_V wait for the tile that PIPE_MTE2 is still bringing. What says that it is there?",
        ),
        _slip(
            "forward_only",
            "Data goes forward in order now. But a buffer is used again two tiles later: what keeps load(t + 2) from "
            "writing over x while compute(t) reads it, and compute(t + 2) from writing over y while store(t) reads it?",
        ),
        _slip(
            "x_never_freed",
            "load(t + 2) writes into the x that compute(t) may still be reading. PIPE_MTE2 has to wait for PIPE_V, "
            "once for each use of a buffer.",
        ),
        _slip(
            "y_never_freed",
            "compute(t + 2) writes into the y that store(t) may still be reading. PIPE_V has to wait for PIPE_MTE3, "
            "once for each use of a buffer.",
        ),
        _slip(
            "waits_for_the_first",
            "The first load waits for a buffer that nobody has freed, because nobody has used it yet: a wait without a "
            "notify never ends. Who says at the start that the buffers are free?",
        ),
        _slip(
            "first_buffer_only",
            "Buffer 0 is free at the start and buffer 1 is not: its first wait never ends. There are two buffers, with "
            "a flag each.",
        ),
        _slip(
            "left_set",
            "Every result is right, and flags are still set when the kernel ends: the next kernel on this core would "
            "find them. Each notify needs its wait, also the last ones, for which there is no next tile.",
        ),
        _slip(
            "one_id",
            "Both buffers have the flag with id 0, and it is set a second time before anyone has waited for it: a flag "
            "holds one notify. What tells the buffers apart?",
        ),
        _slip(
            "id_of_the_tile",
            "The id is the number of the tile, and so no tile waits for the one that had its buffer before. A flag "
            "belongs to a buffer; and there are 16 ids, however many tiles there are.",
        ),
        _slip(
            "swapped_pipes",
            "asc_sync_notify(from, to, id): the first pipe sets the flag when it has come that far, the second "
            "one waits "
            "for it. Yours are the other way round, in notify and in wait.",
        ),
        _slip(
            "set_too_early",
            "A notify is queued on its pipe behind what was given to that pipe before. Yours stand before the "
            "operation "
            "that they should report: the flag is set when nothing has been done yet.",
        ),
        _slip(
            "barriers",
            "It is right, and nothing overlaps: asc_sync() waits until every pipe is empty. While tile t is computed, "
            "the next one could be on its way. Which single pair of operations has to be in order?",
        ),
        _slip(
            "one_after_the_other",
            "It is right, and nothing overlaps: each load waits for the store before it. With two buffers load(t + 1) "
            "has a buffer of its own. Which tile had that buffer before?",
        ),
        _slip(
            "one_flag_for_both",
            "It is right, and load(t + 1) waits for compute(t), which has the other buffer. With a flag for each "
            "buffer it waits for compute(t - 1).",
        ),
        _slip(
            "freed_by_the_store",
            "It is right, and load(t + 2) waits for store(t). What it writes over is x, and the last one to read that "
            "is compute(t).",
        ),
    ),
    hints=(
        "Draw the two buffers of x and the two of y, and under each the operations that touch it, tile by tile. Two "
        "neighbours on different pipes need a flag between them: which pairs of pipes are these?",
        "Four pairs: MTE2 to V and V to MTE3 for data that is ready, V to MTE2 and MTE3 to V for a buffer "
        "that is free. "
        "The id is the buffer's number. The last two are waited for before they were ever set by an operation.",
        "Before the loop notify (V, MTE2) and (MTE3, V) for both ids. In the loop: wait (V, MTE2), load, notify "
        "(MTE2, V); wait (MTE2, V) and (MTE3, V), compute, notify (V, MTE2) and (V, MTE3); wait (V, MTE3), store, "
        "notify (MTE3, V). After it wait (V, MTE2) and (MTE3, V) for both ids.",
    ),
    explanation=(
        "A flag is a promise in one direction. Two say that data is there, two that a buffer is free again; the second "
        "kind is what is forgotten, because a kernel with one tile for each buffer is right without it. A flag for "
        "each buffer lets the pipes be two tiles apart: the kernel takes n + 2 steps in place of 3 n. On a "
        "GPU the same "
        "four promises are the full and the empty barrier of each stage."
    ),
    seconds=20.0,
)
