"""11.ring_all_reduce: the sum over all ranks, by passing pieces to the next rank of a ring."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import tolerance
from gpu_utils.exercises.drawing import signed
from gpu_utils.exercises.on_ranks import on_ranks
from gpu_utils.exercises.u11_expert_parallelism import ring_all_reduce_slips as slips
from gpu_utils.exercises.u11_expert_parallelism.ring_all_reduce_slips import Ring
from gpu_utils.exercises.u11_expert_parallelism.sent_bytes import (
    HANGING,
    bits,
    collectives,
    of_rank,
    padded,
    results,
    size_in_bytes,
    too_few,
)
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    groups = case.get("groups", (tuple(range(case.get("world", 0))),))
    shape = case["shape"]
    each = []
    for _ in range(sum(len(group) for group in groups)):
        x = signed(tuple(reversed(shape)), generator).T if case.get("turned") else signed(tuple(shape), generator)
        each.append({"x": x})
    return {"each": each, "shared": {}, "groups": [list(group) for group in groups]}


def reference(each: list[dict[str, Tensor]], shared: dict[str, Any], groups: list[list[int]]) -> list[Tensor]:
    """By rank: the sum over its group, in float64."""
    group_of = {rank: group for group in groups for rank in group}
    return [torch.stack([each[other]["x"].double() for other in group_of[rank]]).sum(0) for rank in range(len(each))]


def _bytes(inputs: Inputs, value: Any) -> Difference | None:
    too_many, first = [], ""
    for group in inputs["groups"]:
        n, x = len(group), inputs["each"][group[0]]["x"]
        most = size_in_bytes(2 * (n - 1) * padded(x.numel(), n))
        for rank in group:
            sent = of_rank(value, rank, lambda *pair: True)
            if sent > most:
                too_many.append(rank)
                first = first or (
                    f"rank {rank} sent {sent:,} bytes, expected at most {most:,}: 2 x {n - 1} pieces of "
                    f"{padded(x.numel(), n)} elements, for {x.numel()} elements on {n} ranks"
                )
    if not too_many:
        return None
    return Difference("bytes" if len(too_many) > len(inputs["groups"]) else "bytes of one rank", first)


def _neighbours(inputs: Inputs, value: Any) -> Difference | None:
    for group in inputs["groups"]:
        for at, rank in enumerate(group):
            near = {group[at - 1], group[(at + 1) % len(group)]}
            far = [to for to, size in enumerate(value["sent"][rank]) if size and to not in near]
            if far:
                return Difference(
                    "not a ring",
                    f"rank {rank} sent to rank {far[0]}; in a ring of {group} it talks to its neighbours alone, "
                    f"{', '.join(map(str, sorted(near)))}",
                )
    return None


def _needed(inputs: Inputs) -> int:
    """Elements that a sum takes: in each group n - 1 ranks give theirs away, and n - 1 are told the sum."""
    return sum(2 * (len(group) - 1) * inputs["each"][group[0]]["x"].numel() for group in inputs["groups"])


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    longest = max(map(len, inputs["groups"]))
    tol = tolerance(torch.float32, k=longest, magnitude=1.5)
    return (
        results(value, reference(**inputs), tol, torch.float32)
        or bits(value, inputs["groups"])
        or collectives(value)
        or _bytes(inputs, value)
        or _neighbours(inputs, value)
        or too_few(value, _needed(inputs))
    )


def _fresh(rng: random.Random) -> Case:
    return Case("sizes nobody chose", world=rng.choice([3, 4]), shape=(rng.randrange(1, 9), rng.randrange(1, 40)))


EXERCISE = Exercise(
    id="11.ring_all_reduce",
    title="An all-reduce from send and receive",
    parameters=("x", "group"),
    kind="host",
    inputs=_inputs,
    reference=reference,
    call=on_ranks(HANGING),
    ranks=True,
    judge=_judge,
    dtype=lambda inputs: None,
    cases=(
        Case("four pieces of three elements", world=4, shape=(12,)),
        Case("an odd number of ranks, and a remainder", world=3, shape=(16,)),
        Case("two dimensions, and no piece is whole rows", world=4, shape=(5, 7)),
        Case("two groups that know nothing of each other", groups=((0, 2), (1, 3)), shape=(9,)),
        Case("fewer elements than ranks", world=3, shape=(2,)),
        Case("no element at all", world=3, shape=(0, 4)),
        Case("columns of a larger tensor: its elements are not beside each other", world=3, shape=(4, 6), turned=True),
        Case("a group of one", groups=((0,),), shape=(5,)),
        Case("five ranks, a quarter of a million elements", world=5, shape=(250_001,)),
    ),
    fresh=_fresh,
    seconds=60.0,
    trivial={
        "zeros": lambda x, group: torch.zeros_like(x),
        "ones": lambda x, group: torch.ones_like(x),
        "nan": lambda x, group: torch.full_like(x, math.nan),
        "the input": lambda x, group: x,
    },
    misconceptions=(
        Misconception(
            "uses_a_collective",
            slips.uses_all_reduce,
            "The sum is right, and a collective of torch.distributed has made it. Here you write that collective: "
            "isend, irecv and recv are all it needs.",
        ),
        Misconception(
            "drops_the_remainder",
            Ring(longer=False),
            "The last elements are not summed: x.numel() // n pieces leave a remainder behind. Round the piece's "
            "length up and pad with zeros, or give some pieces one element more.",
        ),
        Misconception(
            "second_half_begins_with_the_wrong_chunk",
            Ring(second=0),
            "The first half is right, and the second begins with a piece that is not finished. After n - 1 steps the "
            "finished piece of a rank is not the one that it sent first: which piece did it add to last?",
        ),
        Misconception(
            "second_half_adds",
            Ring(adds=True),
            "Pieces are counted more than once: in the second half a piece arrives finished. It takes the place of "
            "what is there; it is not added.",
        ),
        Misconception(
            "one_step_short",
            Ring(short=1),
            "Some pieces lack a rank's part. A piece must visit every rank: that is n - 1 steps for each half.",
        ),
        Misconception(
            "averages",
            Ring(scale=lambda n: 1 / n),
            "Everything is the sum divided by the number of ranks: that is the mean. The caller divides, if it wants "
            "one.",
        ),
        Misconception(
            "ignores_the_group",
            Ring(everyone=True),
            "Right where the group is everybody, wrong where it is a part. Ask the group for its size and for your "
            "number in it, and send with group=group, group_dst=...",
        ),
        Misconception(
            "numbers_of_the_world",
            Ring(as_world=True),
            "Right where the group is everybody. dst= and src= take numbers of the world, also beside group=group: a "
            "number in the group goes to group_dst= and group_src=.",
        ),
        Misconception(
            "changes_x",
            slips.in_place,
            "x was changed. It belongs to the caller: copy it into memory of your own first.",
        ),
        Misconception(
            "carries_the_whole_tensor",
            slips.carries_the_whole,
            "The whole tensor goes around, and each rank adds what passes in its own order: the bits differ, and n / 2 "
            "times the bytes are sent. Cut the tensor into n pieces, and let each be summed along one path.",
        ),
        Misconception(
            "everything_to_everybody",
            slips.to_everybody,
            "The sum is right, and every rank has sent its whole tensor to every other: n - 1 tensors instead of less "
            "than two. Send a piece to the next rank, add, pass it on.",
        ),
        Misconception(
            "through_rank_0",
            slips.through_rank_0,
            "The sum is right, and one rank has sent it n - 1 times while the others waited for its link. In a ring "
            "all ranks send the same amount at the same time.",
        ),
        Misconception(
            "everybody_in_one_step",
            slips.direct,
            "Right, and with as few bytes as a ring: pieces go directly to the rank that sums them. That is the direct "
            "algorithm, good where every pair has a link of its own. Here each rank talks to its neighbours only.",
        ),
        Misconception(
            "everybody_sends_first",
            Ring(blocking=True),
            "Each rank waits for another and nobody goes on: a deadlock. send waits until the other side receives, "
            "recv until it sends. Begin the sends without waiting (isend), receive, then wait for the sends.",
        ),
    ),
    hints=(
        "Play it with three ranks and three numbers each, on paper: one column a rank. Draw an arrow for each piece. "
        "After how many steps is the first piece complete, and who holds it?",
        "First half, step s: rank r sends piece (r - s) and adds what it gets to piece (r - s - 1), all modulo n. "
        "Second half: it sends piece (r + 1 - s), and what it gets replaces piece (r - s).",
        "flat = zeros(n * size), x in front; chunks = flat.view(n, size). A step: work = dist.isend(chunks[i], "
        "group=group, group_dst=(me + 1) % n); dist.recv(got, group=group, group_src=(me - 1) % n); work.wait(). "
        "n - 1 steps that add, n - 1 that copy; return flat[:x.numel()].view(x.shape).",
    ),
    explanation=(
        "Each piece travels once around the ring to be summed and once more to be known: 2 (n - 1) steps, in each of "
        "which every rank sends one n-th of the tensor and every link is used. So a rank sends 2 (n - 1) / n tensors, "
        "never as much as two, however many ranks there are; the price is 2 (n - 1) waits one after the other. Since "
        "one rank finishes a piece and the others copy it, all ranks hold the same bits, though the order of additions "
        "differs from piece to piece. A blocking send would wait for a neighbour that waits itself: isend."
    ),
)
