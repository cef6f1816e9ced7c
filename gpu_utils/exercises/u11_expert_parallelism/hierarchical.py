"""11.hierarchical: an all-reduce that keeps most of its bytes inside of a node."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import tolerance
from gpu_utils.exercises.drawing import signed
from gpu_utils.exercises.on_ranks import on_ranks
from gpu_utils.exercises.u11_expert_parallelism import hierarchical_slips as slips
from gpu_utils.exercises.u11_expert_parallelism.hierarchical_slips import Hierarchy
from gpu_utils.exercises.u11_expert_parallelism.sent_bytes import (
    HANGING,
    bits,
    collectives,
    of_rank,
    off_rail,
    padded,
    results,
    size_in_bytes,
    too_few,
)
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return {
        "each": [{"x": signed(tuple(case["shape"]), generator)} for _ in range(case["world"])],
        "shared": {"node_size": case["node_size"]},
    }


def reference(each: list[dict[str, Tensor]], shared: dict[str, Any]) -> list[Tensor]:
    """By rank: the sum over all ranks, in float64."""
    total = torch.stack([one["x"].double() for one in each]).sum(0)
    return [total] * len(each)


def _bytes(inputs: Inputs, value: Any) -> Difference | None:
    world, node_size = len(inputs["each"]), inputs["shared"]["node_size"]
    nodes, piece = world // node_size, padded(inputs["each"][0]["x"].numel(), world)

    def crosses(source: int, to: int) -> bool:
        return source // node_size != to // node_size

    across = [of_rank(value, rank, crosses) for rank in range(world)]
    within = [of_rank(value, rank, lambda *pair: not crosses(*pair)) for rank in range(world)]
    most = {
        "to other nodes": size_in_bytes(2 * (nodes - 1) * piece),
        "inside of its node": size_in_bytes(2 * (node_size - 1) * nodes * piece),
    }
    for (where, allowed), sent in zip(most.items(), (across, within), strict=True):
        above = [rank for rank in range(world) if sent[rank] > allowed]
        if above:
            kind = f"bytes {where}"
            if where == "to other nodes":
                kind += ", of some" if len(above) < world else ", and few inside" if sum(within) < sum(across) else ""
            return Difference(
                kind,
                f"rank {above[0]} sent {sent[above[0]]:,} bytes {where}, expected at most {allowed:,}, for "
                f"{inputs['each'][0]['x'].numel():,} elements on {nodes} nodes of {node_size} ranks",
            )
    return None


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    world = len(inputs["each"])
    return (
        results(value, reference(**inputs), tolerance(torch.float32, k=world, magnitude=1.5), torch.float32)
        or bits(value, [range(world)])
        or collectives(value)
        or off_rail(value, inputs["shared"]["node_size"])
        or _bytes(inputs, value)
        or too_few(value, 2 * (world - 1) * inputs["each"][0]["x"].numel())
    )


def _fresh(rng: random.Random) -> Case:
    world, node_size = rng.choice([(4, 2), (6, 3), (6, 2)])
    return Case("sizes nobody chose", world=world, node_size=node_size, shape=(rng.randrange(7, 60),))


EXERCISE = Exercise(
    id="11.hierarchical",
    title="An all-reduce in three phases, for nodes",
    parameters=("x", "node_size"),
    kind="host",
    inputs=_inputs,
    reference=reference,
    call=on_ranks(HANGING),
    ranks=True,
    judge=_judge,
    dtype=lambda inputs: None,
    cases=(
        Case("two nodes of two, all pieces whole", world=4, node_size=2, shape=(16,)),
        Case("a remainder, and two dimensions", world=4, node_size=2, shape=(3, 5)),
        Case("two nodes of three", world=6, node_size=3, shape=(50,)),
        Case("three nodes of two", world=6, node_size=2, shape=(31,)),
        Case("one node alone", world=3, node_size=3, shape=(10,)),
        Case("every rank is a node", world=3, node_size=1, shape=(10,)),
        Case("fewer elements than ranks", world=4, node_size=2, shape=(3,)),
    ),
    fresh=_fresh,
    seconds=60.0,
    trivial={
        "zeros": lambda x, node_size: torch.zeros_like(x),
        "ones": lambda x, node_size: torch.ones_like(x),
        "nan": lambda x, node_size: torch.full_like(x, math.nan),
        "the input": lambda x, node_size: x,
    },
    misconceptions=(
        Misconception(
            "uses_a_collective",
            slips.uses_a_collective,
            "The sum is right, and a collective of torch.distributed made it. Here the three phases are yours, from "
            "send and receive.",
        ),
        Misconception(
            "one_ring_over_all",
            slips.flat_ring,
            "The sum is right, from one ring over all ranks. Where a node ends, that ring sends everything through one "
            "rank to a rank of another number in the next node. Sum inside of the node first, each rank a part.",
        ),
        Misconception(
            "whole_tensor_on_every_rail",
            slips.whole_on_each_rail,
            "The sum is right, and every rank took the whole sum of its node across: each rail carries the same bytes. "
            "After a reduce-scatter a rank holds one part, and only that part is its to take across.",
        ),
        Misconception(
            "one_leader_for_a_node",
            slips.one_leader,
            "The sum is right, and one rank of each node has done all the talking: one rail carries the whole tensor "
            "while the others idle. Each rank takes its own part across.",
        ),
        Misconception(
            "ranks_dealt_out_in_turn",
            slips.mixed_nodes,
            "The sum is right, and more bytes go between nodes than inside: node and local number are mixed up. A node "
            "holds ranks that follow each other: node = rank // node_size, local = rank % node_size.",
        ),
        Misconception(
            "drops_the_remainder",
            Hierarchy(longer=False),
            "The last elements are not summed: they did not fit into pieces of one length. Pad with zeros, to a "
            "multiple of the number of ranks.",
        ),
        Misconception(
            "stops_at_the_node",
            Hierarchy(crosses=False),
            "Each node has its own sum, and nothing has crossed. Between the two halves of the work inside of a node "
            "the finished part is summed over the rail.",
        ),
        Misconception(
            "no_gathering_at_the_end",
            Hierarchy(gathers=False),
            "Each rank has the sum of its own part, and old numbers elsewhere. The last phase gathers the parts of the "
            "neighbours.",
        ),
        Misconception(
            "takes_an_unfinished_part_across",
            Hierarchy(own=0),
            "A part went across that was not summed inside of the node yet. Which part of the ring is complete on "
            "which rank, after n - 1 steps?",
        ),
        Misconception(
            "sums_in_the_last_phase_too",
            Hierarchy(sums=True),
            "Some parts are counted more than once: the last phase does not add. What arrives is finished and takes "
            "the place of what is there.",
        ),
        Misconception(
            "everybody_sends_first",
            Hierarchy(blocking=True),
            "Each rank waits for another and nobody goes on: a deadlock. send waits until the other side receives, "
            "recv until it sends. Begin the sends without waiting (isend), receive, then wait for the sends.",
        ),
    ),
    hints=(
        "Draw two nodes of two ranks as two rows, and the tensor as four pieces. Which ranks hold which sum after the "
        "phase inside of a node? Who else holds the same part of another sum?",
        "Write the two halves of a ring as functions of (chunks, ring, at): ring is a list of ranks and at your place "
        "in it. Phase 1 is the first half over your node, phase 2 both halves over your rail on the one chunk that is "
        "yours, phase 3 the second half over your node.",
        "node, local = divmod(me, node_size); rail = range(local, world, node_size). chunks = flat.view(node_size, -1) "
        "with flat padded to a multiple of world; after the first half your chunk is chunks[(local + 1) % node_size]; "
        "its view(nodes, -1) goes around the rail. It is a view: phase 3 finds the sums in place.",
    ),
    explanation=(
        "A rank is responsible for one part of its node's sum, so together the ranks of a node take the tensor across "
        "once, each over its own link: 2 (M - 1) / M of a part of size 1 / S, for M nodes of S ranks. One ring over "
        "all would take nearly two tensors across, through one link of each node. The steps fall too: 2 (S - 1) fast "
        "ones and 2 (M - 1) slow ones instead of 2 (S M - 1) of which some are slow, and the fast wait for them. Phase "
        "2 works in place on a view of the rank's own chunk, so phase 3 needs to know nothing of it."
    ),
)
