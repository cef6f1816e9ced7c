"""02.divergence: what a branch costs when the lanes of a wave do not agree, for waves of 32 and of 64 lanes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

Paths = Sequence[int | None]
Cost = dict[str, int]

RULES: dict[str, Callable[[int], int | None]] = {
    "first half": lambda thread: 0 if thread < 64 else 1,
    "first 32": lambda thread: 0 if thread < 32 else 1,
    "alternating": lambda thread: thread % 2,
    "one lane": lambda thread: 0 if thread == 7 else 1,
    "blocks of 32": lambda thread: thread // 32 % 2,
    "three ways": lambda thread: thread % 3,
    "some returned": lambda thread: None if thread % 4 == 3 else thread // 48 % 2,
    "all returned": lambda thread: None,
    "same": lambda thread: 0,
}


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    threads, width, instructions = case["threads"], case["width"], case["instructions"]
    if case["rule"] == "random":
        drawn = torch.rand(threads, generator=generator).tolist()
        paths = [None if value < 0.1 else int(value > case["share"]) for value in drawn]
        paths[32 : 32 + 32] = [1] * 32  # one warp that agrees, beside those that do not
    else:
        paths = [RULES[case["rule"]](thread) for thread in range(threads)]
    return {"paths": paths, "instructions": list(instructions), "width": width}


def _waves(paths: Paths, width: int) -> list[Paths]:
    return [paths[start : start + width] for start in range(0, len(paths), width)]


def divergence_reference(paths: Paths, instructions: Sequence[int], width: int) -> Cost:
    """Wave by wave and path by path: a path that a lane takes is issued to all lanes.

    >>> divergence_reference([0, 0, 1, None], [10, 4], 4)
    {'issued': 14, 'lost': 32}
    """
    issued = useful = 0
    for wave in _waves(paths, width):
        for path, cost in enumerate(instructions):
            lanes = sum(own == path for own in wave)
            issued += cost if lanes else 0
            useful += cost * lanes
    return {"issued": issued, "lost": issued * width - useful}


def _only_present_lanes(paths: Paths, instructions: Sequence[int], width: int) -> Cost:
    issued = lost = 0
    for wave in _waves(paths, width):
        for path, cost in enumerate(instructions):
            lanes = sum(own == path for own in wave)
            issued += cost if lanes else 0
            lost += cost * (sum(own is not None for own in wave) - lanes) if lanes else 0
    return {"issued": issued, "lost": lost}


def _last_wave_short(paths: Paths, instructions: Sequence[int], width: int) -> Cost:
    found = divergence_reference(paths, instructions, width)
    last = paths[-(len(paths) % width) :] if len(paths) % width else []
    issued = sum(cost for path, cost in enumerate(instructions) if path in last)
    return {**found, "lost": found["lost"] - issued * (width - len(last))}


def _returned_threads_removed(paths: Paths, instructions: Sequence[int], width: int) -> Cost:
    return divergence_reference([path for path in paths if path is not None], instructions, width)


def _longest_path_only(paths: Paths, instructions: Sequence[int], width: int) -> Cost:
    issued = useful = 0
    for wave in _waves(paths, width):
        costs = [instructions[path] for path in wave if path is not None]
        issued += max(costs, default=0)
        useful += sum(costs)
    return {"issued": issued, "lost": issued * width - useful}


def _every_wave_runs_all(paths: Paths, instructions: Sequence[int], width: int) -> Cost:
    issued = sum(instructions) * len(_waves(paths, width))
    useful = sum(instructions[path] for path in paths if path is not None)
    return {"issued": issued, "lost": issued * width - useful}


def _always_32(paths: Paths, instructions: Sequence[int], width: int) -> Cost:
    return divergence_reference(paths, instructions, 32)


def _lanes_not_slots(paths: Paths, instructions: Sequence[int], width: int) -> Cost:
    lost = 0
    for wave in _waves(paths, width):
        taken = {path for path in wave if path is not None and instructions[path]}
        lost += sum(width - sum(own == path for own in wave) for path in taken)
    return {"issued": divergence_reference(paths, instructions, width)["issued"], "lost": lost}


def _minority(paths: Paths, instructions: Sequence[int], width: int) -> Cost:
    """Counts as lost what the lanes of the less taken paths do."""
    issued = lost = 0
    for wave in _waves(paths, width):
        lanes = [sum(own == path for own in wave) for path in range(len(instructions))]
        issued += sum(cost for cost, count in zip(instructions, lanes, strict=True) if count)
        main = lanes.index(max(lanes))
        lost += sum(
            cost * count for path, (cost, count) in enumerate(zip(instructions, lanes, strict=True)) if path != main
        )
    return {"issued": issued, "lost": lost}


def _per_thread(paths: Paths, instructions: Sequence[int], width: int) -> Cost:
    issued = sum(instructions[path] for path in paths if path is not None)
    return {"issued": issued, "lost": divergence_reference(paths, instructions, width)["lost"]}


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a fresh branch",
        rule="random",
        threads=rng.choice([128, 224, 256]),
        share=rng.uniform(0.3, 0.7),
        instructions=(rng.randint(3, 40), rng.randint(41, 90)),
        width=rng.choice([32, 64]),
    )


_WRONG: tuple[tuple[str, Callable[..., Cost], str], ...] = (
    (
        "only_present_lanes",
        _only_present_lanes,
        "Lanes of threads that have returned, and lanes of a last wave that is not full, are missing among the lost. "
        "A wave issues to all its `width` lanes; whoever does not work is lost.",
    ),
    (
        "last_wave_short",
        _last_wave_short,
        "Lost lanes of the last wave are counted as if the wave were as short as the block leaves it. It has `width` "
        "lanes too; those without a thread are off in every instruction.",
    ),
    (
        "returned_threads_removed",
        _returned_threads_removed,
        "Threads that have returned are taken out before the block is cut into waves, so the others move up. A thread "
        "keeps its lane for good: cut first, then look who is left.",
    ),
    (
        "longest_path_only",
        _longest_path_only,
        "Each wave is charged for its longest path only, as if the paths ran at the same time. A wave has one program "
        "counter in use at a time: it runs the paths one after the other.",
    ),
    (
        "every_wave_runs_all",
        _every_wave_runs_all,
        "Every wave is charged for every path. A path that no lane of a wave takes is jumped over and costs nothing.",
    ),
    (
        "always_32",
        _always_32,
        "This cuts the block into waves of 32 lanes always. Use `width`: on CDNA a wavefront has 64 lanes, and "
        "disagrees more often.",
    ),
    (
        "lanes_not_slots",
        _lanes_not_slots,
        "Lost lanes are counted once for each path, not once for each instruction. A lane that is off during 10 "
        "instructions loses 10 slots.",
    ),
    (
        "minority",
        _minority,
        "The work of the smaller group is counted as lost. It is useful work; lost is what the switched-off lanes "
        "could have done meanwhile: the other group while the smaller one runs, and the smaller one while the other "
        "runs.",
    ),
    (
        "per_thread",
        _per_thread,
        "The issued instructions are counted for each thread here. One instruction of a wave serves all lanes that "
        "take the path: count waves.",
    ),
)

EXERCISE = Exercise(
    id="02.divergence",
    title="Lanes lost to a branch",
    parameters=("paths", "instructions", "width"),
    kind="host",
    inputs=_inputs,
    reference=divergence_reference,
    cases=(
        Case("odd and even lanes part, 32 wide", rule="alternating", threads=128, instructions=(10, 4), width=32),
        Case("the border lies between two warps", rule="first 32", threads=128, instructions=(10, 4), width=32),
        Case("the same border cuts a wavefront", rule="first 32", threads=128, instructions=(10, 4), width=64),
        Case("one lane keeps 63 waiting", rule="one lane", threads=256, instructions=(100, 1), width=64),
        Case("warps agree, wavefronts do not", rule="blocks of 32", threads=256, instructions=(7, 9), width=64),
        Case("three ways of a switch", rule="three ways", threads=192, instructions=(5, 6, 7), width=32),
        Case("an if without else", rule="alternating", threads=128, instructions=(12, 0), width=64),
        Case("some threads have returned", rule="some returned", threads=224, instructions=(8, 3), width=64),
        Case("a last wave that is not full", rule="same", threads=100, instructions=(20,), width=64),
        Case("all threads have returned", rule="all returned", threads=64, instructions=(8, 3), width=32),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "Cut the block into waves of `width` threads. For each wave and each path: does any lane take it?",
        "A path with at least one lane is issued: its instructions count once for the wave. While they run, width "
        "minus the lanes on that path are lost, in each instruction.",
        "For every wave and path p with lanes = wave.count(p) above 0: issued += instructions[p] and lost += "
        "instructions[p] * (width - lanes).",
    ),
    explanation=(
        "A wave runs one instruction at a time for all its lanes; on a path that only some take, the others are "
        "switched off (AMD: bits of EXEC, NVIDIA: the active mask). So a branch costs the sum of the paths that occur "
        "in a wave, and what counts is whether lanes of one wave agree. A border every 32 threads is free on a warp "
        "and halves a wavefront of 64."
    ),
)
