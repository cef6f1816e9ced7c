"""11.all_to_all_two_hop: an uneven all-to-all whose messages between nodes are few and large."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.drawing import signed
from gpu_utils.exercises.on_ranks import on_ranks
from gpu_utils.exercises.u11_expert_parallelism import all_to_all_two_hop_slips as slips
from gpu_utils.exercises.u11_expert_parallelism.all_to_all_two_hop_slips import TwoHops
from gpu_utils.exercises.u11_expert_parallelism.sent_bytes import (
    HANGING,
    collectives,
    of_rank,
    off_rail,
    results,
    size_in_bytes,
    too_few,
)
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    world, most = case["world"], case["most"]
    counts = torch.randint(0, most + 1, (world, world), generator=generator)
    if case.get("idle"):
        counts[1] = 0
        counts[:, 2] = 0
    each = [{"chunks": [signed((int(count),), generator) for count in row]} for row in counts]
    return {"each": each, "shared": {"counts": counts, "node_size": case["node_size"]}}


def reference(each: list[dict[str, Any]], shared: dict[str, Any]) -> list[list[Tensor]]:
    """By rank: what each rank had for it, in the order of ranks."""
    return [[one["chunks"][rank] for one in each] for rank in range(len(each))]


def _bytes(inputs: Inputs, value: Any) -> Difference | None:
    counts, node_size = inputs["shared"]["counts"], inputs["shared"]["node_size"]
    world = len(counts)

    def crosses(source: int, to: int) -> bool:
        return source // node_size != to // node_size

    def stays(source: int, to: int) -> bool:
        return not crosses(source, to)

    def other_number(source: int, to: int) -> bool:
        return source % node_size != to % node_size

    def wanted(pairs: Any) -> int:
        every = ((source, to) for source in range(world) for to in range(world))
        return size_in_bytes(sum(int(counts[pair]) for pair in every if pairs(*pair)))

    for where, sent, needed in (
        ("between nodes", crosses, wanted(crosses)),
        ("inside of nodes", stays, wanted(other_number)),
    ):
        found = sum(of_rank(value, rank, sent) for rank in range(world))
        if found > needed:
            return Difference(
                f"bytes {where}",
                f"{found:,} bytes were sent {where}, expected {needed:,}: each number once, for each pair of ranks "
                f"{'in different nodes' if sent is crosses else 'with different local numbers'}",
            )
    return None


def _needed(inputs: Inputs) -> int:
    """Elements that move, in one hop or in two."""
    counts, node_size = inputs["shared"]["counts"], inputs["shared"]["node_size"]
    every = ((source, to) for source in range(len(counts)) for to in range(len(counts)))
    return sum(
        int(counts[source, to]) * ((source // node_size != to // node_size) + (source % node_size != to % node_size))
        for source, to in every
    )


def _messages(inputs: Inputs, value: Any) -> Difference | None:
    node_size = inputs["shared"]["node_size"]
    for rank, events in enumerate(value["events"]):
        sent = Counter(event["to"] for event in events if event["name"] == "send")
        for to, times in sent.items():
            if to // node_size != rank // node_size and times > 1:
                return Difference(
                    "messages between nodes",
                    f"rank {rank} sent {times} messages to rank {to}, in another node; expected one: what goes "
                    "the same way goes together",
                )
    return None


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    return (
        results(value, reference(**inputs), EXACT, torch.float32)
        or collectives(value)
        or off_rail(value, inputs["shared"]["node_size"])
        or _bytes(inputs, value)
        or _messages(inputs, value)
        or too_few(value, _needed(inputs))
    )


def _fresh(rng: random.Random) -> Case:
    world, node_size = rng.choice([(4, 2), (6, 3), (6, 2)])
    return Case("sizes nobody chose", world=world, node_size=node_size, most=rng.randrange(3, 12))


def _filled(number: float) -> Any:
    def answer(chunks: list[Tensor], counts: Tensor, node_size: int) -> list[Tensor]:
        import torch.distributed as dist

        return [torch.full((int(count),), number) for count in counts[:, dist.get_rank()]]

    return answer


EXERCISE = Exercise(
    id="11.all_to_all_two_hop",
    title="An all-to-all in two hops",
    parameters=("chunks", "counts", "node_size"),
    kind="host",
    inputs=_inputs,
    reference=reference,
    call=on_ranks(HANGING),
    ranks=True,
    judge=_judge,
    dtype=lambda inputs: None,
    cases=(
        Case("nothing at all", world=4, node_size=2, most=0),
        Case("two nodes of two", world=4, node_size=2, most=5),
        Case("two nodes of three", world=6, node_size=3, most=4),
        Case("three nodes of two, larger chunks", world=6, node_size=2, most=900),
        Case("a rank that has nothing to send, and one that gets nothing", world=4, node_size=2, most=6, idle=True),
        Case("one node: one hop is enough", world=3, node_size=3, most=5),
        Case("every rank is a node: no hop inside", world=3, node_size=1, most=5),
    ),
    fresh=_fresh,
    seconds=60.0,
    trivial={
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "nan": _filled(math.nan),
        "the input": lambda chunks, counts, node_size: chunks,
    },
    misconceptions=(
        Misconception(
            "uses_a_collective",
            slips.uses_a_collective,
            "Right, by a collective of torch.distributed, which sends as it likes. Here you decide which rank talks to "
            "which: send and receive.",
        ),
        Misconception(
            "one_hop",
            slips.direct,
            "Every chunk arrived, straight from its source. That is S messages from a rank to each other node, where "
            "one is enough: hand a chunk to the neighbour with the local number of its destination first.",
        ),
        Misconception(
            "everything_to_every_node",
            slips.whole_nodes_across,
            "Every chunk arrived, but chunks crossed that are for other nodes: each node got all of them and threw "
            "most away. Take across what is for that node only.",
        ),
        Misconception(
            "everything_to_every_neighbour",
            TwoHops(all_parts=True),
            "Between nodes all is well. Inside of the node each neighbour got everything, also what is not for its "
            "rail. Send it the chunks for the ranks that have its local number.",
        ),
        Misconception(
            "a_message_for_each_chunk",
            TwoHops(together=False),
            "The right ranks talk to each other, and each chunk is a message of its own on the slow link: as many "
            "waits as without the first hop. torch.cat what goes to the same rank; counts says where to cut it.",
        ),
        Misconception(
            "in_the_order_of_arrival",
            TwoHops(order=slips.by_local_number),
            "All chunks are there, in another order: place s of the list is what rank s sent. Rank s has node s // "
            "node_size and local number s % node_size.",
        ),
        Misconception(
            "last_source_first",
            TwoHops(order=slips.last_first),
            "All chunks are there, and the list is the wrong way round: place 0 is what rank 0 sent.",
        ),
        Misconception(
            "own_chunk_first",
            TwoHops(order=slips.own_first),
            "All chunks are there, and your own stands in front. It belongs into place r of rank r.",
        ),
        Misconception(
            "own_node_first",
            TwoHops(order=slips.own_node_first),
            "All chunks are there, and those of your own node stand in front. Place s is what rank s sent, on every "
            "rank.",
        ),
        Misconception(
            "from_itself_on",
            TwoHops(order=slips.onwards),
            "All chunks are there, and the list begins with rank r on rank r, as one goes around a ring. Place s is "
            "what rank s sent, on every rank.",
        ),
        Misconception(
            "counts_the_other_way_round",
            TwoHops(turned=True),
            "Messages were cut at the wrong places: counts[source][destination] was read as "
            "counts[destination][source].",
        ),
        Misconception(
            "own_chunk_lost",
            TwoHops(own_lost=True),
            "What a rank has for itself is missing. No message carries it, and it belongs into the list all the same.",
        ),
        Misconception(
            "everybody_sends_first",
            TwoHops(blocking=True),
            "Each rank waits for another and nobody goes on: a deadlock. send waits until the other side receives, "
            "recv until it sends. Begin the sends without waiting (isend), receive, then wait for the sends.",
        ),
    ),
    hints=(
        "Take two nodes of two ranks and the chunk from rank 0 to rank 3. Which rank of node 0 may talk to rank 3? So "
        "who gets the chunk first, and what else does that rank get from rank 0?",
        "Hop 1, in your node: the neighbour with local number j gets your chunks for all ranks with local number j, "
        "one after the other, in the order of nodes. Hop 2, along your rail: each node's rank gets what your "
        "neighbours gave you for it, in the order of neighbours. counts says how long everything is.",
        "parts[peer] = torch.cat([chunks[to] for to in range(peer % S, world, S)]); what comes back from a neighbour p "
        "is split by [counts[p][to] for to in rail]. second[to] = torch.cat([pieces[p][at] for p in neighbours]); what "
        "arrives from rank t of your rail is split by [counts[s][me] for s in the node of t].",
    ),
    explanation=(
        "Both hops are all-to-alls of a few ranks: S in the node, then M on the rail. A chunk for another node and "
        "another number moves twice, once over the fast links and once over the slow one, so the bytes on the slow "
        "link are those that must cross, in (M - 1) messages from each rank instead of S (M - 1), each S times as "
        "large. The other order, first the rail and then the node, is as good; DeepSeek-V3's kernels take it (arXiv "
        "2412.19437, section 3.2.2). The counts are known before: a real dispatch exchanges them first, a few bytes."
    ),
)
