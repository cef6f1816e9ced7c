"""11.eplb: redundant experts for the busy ones, and a slot for each, so that no GPU bears much more than another.

Many placements are right, so an answer is judged: by what every placement must be, and by its busiest GPU. The rule is
that of github.com/deepseek-ai/EPLB (eplb.py), for one layer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u11_expert_parallelism import eplb_slips as slips
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

ROOM = 1.05
"""The busiest GPU may bear so many times what it bears after the two greedy steps."""


def busiest(load: Sequence[float], phy2log: Sequence[int], num_gpus: int) -> tuple[int, float]:
    """The GPU that bears most, and how much: the slots of an expert share its load evenly.

    >>> busiest([90, 30, 30, 30], [0, 1, 0, 2, 0, 3], num_gpus=3)
    (0, 60.0)
    """
    each = len(phy2log) // num_gpus
    shares = [load[e] / phy2log.count(e) for e in phy2log]
    borne = [sum(shares[g * each : (g + 1) * each]) for g in range(num_gpus)]
    return max(range(num_gpus), key=lambda g: borne[g]), max(borne)


def _drawn(case: Case, generator: torch.Generator) -> list[int]:
    """Tokens of each expert: a few are busy, as in a text on one subject; `idle` of them saw none."""
    experts = case["experts"]
    spread = torch.exp(case.get("spread", 1.0) * torch.randn(experts, generator=generator, dtype=torch.float64))
    load = [int(each) + 1 for each in (1000 * spread).tolist()]
    order = torch.randperm(experts, generator=generator).tolist()
    for factor, expert in zip(case.get("hot", ()), order, strict=False):
        load[expert] = int(factor * 1000)
    for expert in order[experts - case.get("idle", 0) :]:
        load[expert] = 0
    return load


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    if isinstance(case, Example):
        return case.inputs
    counts = {name: case[name] for name in ("num_replicas", "num_groups", "num_nodes", "num_gpus")}
    return {"load": _drawn(case, generator), **counts}


def _numbers(value: Any) -> list[int] | None:
    """A list of whole numbers, or None."""
    value = value.tolist() if isinstance(value, torch.Tensor) and value.ndim == 1 else value
    if not isinstance(value, (list, tuple)):
        return None
    whole = all(isinstance(one, (int, float)) and not isinstance(one, bool) and one == one // 1 for one in value)
    return [int(one) for one in value] if whole else None


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return Difference(
            "form", "the result is no pair; expected (phy2log, log2phy), a list of int and a list of lists"
        )
    phy2log = _numbers(value[0])
    rows = value[1].tolist() if isinstance(value[1], torch.Tensor) else value[1]
    log2phy = [_numbers(row) for row in rows] if isinstance(rows, (list, tuple)) else [None]
    if phy2log is None or any(row is None for row in log2phy):
        return Difference("form", "expected phy2log as a list of whole numbers and log2phy as a list of such lists")
    for look in (_counted, _mapped, _on_nodes, _balanced):
        if found := look(inputs, phy2log, log2phy):
            return found
    return None


def _counted(inputs: Inputs, phy2log: list[int], log2phy: list[Any]) -> Difference | None:
    experts, slots = len(inputs["load"]), inputs["num_replicas"]
    if len(phy2log) != slots:
        return Difference("slots", f"phy2log has {len(phy2log)} slots, expected num_replicas = {slots}")
    strange = next((e for e in phy2log if not 0 <= e < experts), None)
    if strange is not None:
        return Difference("range", f"phy2log names expert {strange}; the experts are 0 to {experts - 1}")
    missing = [e for e in range(experts) if e not in phy2log]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        return Difference("missing", f"expert {missing[0]}{more} has no slot; its tokens would have nowhere to go")
    return None


def _mapped(inputs: Inputs, phy2log: list[int], log2phy: list[Any]) -> Difference | None:
    if len(log2phy) != len(inputs["load"]):
        return Difference("maps", f"log2phy has {len(log2phy)} rows, expected one for each of {len(inputs['load'])}")
    for expert, slots in enumerate(log2phy):
        right = [slot for slot, e in enumerate(phy2log) if e == expert]
        if sorted(slots) != right:
            kind = "maps:fewer" if set(slots) < set(right) else "maps"
            return Difference(kind, f"log2phy[{expert}] is {slots}, but phy2log has expert {expert} in slots {right}")
    return None


def _on_nodes(inputs: Inputs, phy2log: list[int], log2phy: list[Any]) -> Difference | None:
    groups, nodes = inputs["num_groups"], inputs["num_nodes"]
    if groups % nodes:
        return None
    size, slots = len(inputs["load"]) // groups, len(phy2log) // nodes
    homes: dict[int, int] = {}
    for slot, expert in enumerate(phy2log):
        group, node = expert // size, slot // slots
        if homes.setdefault(group, node) != node:
            strided = all(
                phy2log[s] % groups != phy2log[t] % groups or s // slots == t // slots
                for s in range(len(phy2log))
                for t in range(s)
            )
            return Difference(
                "nodes:strided" if strided else "nodes",
                f"experts of group {group} are on node {homes[group]} and on node {node}, as expert {expert} in slot "
                f"{slot}; {nodes} nodes divide {groups} groups, so a group, with all of its slots, is on one node",
            )
    held = [sum(home == node for home in homes.values()) for node in range(nodes)]
    if len(set(held)) > 1:
        return Difference("nodes:count", f"the nodes hold {held} groups, expected {groups // nodes} each")
    return None


def _balanced(inputs: Inputs, phy2log: list[int], log2phy: list[Any]) -> Difference | None:
    load, gpus = inputs["load"], inputs["num_gpus"]
    gpu, most = busiest(load, phy2log, gpus)
    allowed = ROOM * busiest(load, slips.right(**inputs)[0], gpus)[1]
    if most <= allowed:
        return None
    return Difference(
        f"balance:{most:.6g}",
        f"GPU {gpu} bears {most:,.0f} tokens; the mean is {sum(load) / gpus:,.0f}, and {allowed:,.0f} would do: 5% "
        f"above "
        "the two greedy steps",
    )


def _fresh(rng: random.Random) -> Case:
    nodes, per_node = rng.choice(((1, 4), (2, 2), (2, 4), (4, 2)))
    groups = nodes * rng.choice((2, 3))
    if nodes > 1 and rng.random() < 0.3:
        groups += 1
    gpus, experts = nodes * per_node, groups * rng.choice((4, 6, 8))
    slots = (experts // gpus + rng.choice((1, 2))) * gpus
    return Case(
        "loads and a cluster nobody chose",
        experts=experts,
        num_replicas=slots,
        num_groups=groups,
        num_nodes=nodes,
        num_gpus=gpus,
        hot=[rng.uniform(5, 20) for _ in range(2)],
    )


EXERCISE = Exercise(
    id="11.eplb",
    title="Redundant experts, placed",
    parameters=("load", "num_replicas", "num_groups", "num_nodes", "num_gpus"),
    kind="host",
    inputs=_inputs,
    reference=slips.right,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        Example(
            "the example of the docstring",
            load=[90, 30, 20, 40],
            num_replicas=6,
            num_groups=1,
            num_nodes=1,
            num_gpus=3,
        ),
        Case(
            "one node: one expert has a third of all tokens",
            experts=12,
            num_replicas=16,
            num_groups=1,
            num_nodes=1,
            num_gpus=4,
            hot=(11.0, 9.0),
            spread=0.5,
        ),
        Case(
            "as many slots as experts: none to spare, and still a place to choose",
            experts=24,
            num_replicas=24,
            num_groups=1,
            num_nodes=1,
            num_gpus=4,
        ),
        Case(
            "two nodes divide four groups: a group stays together",
            experts=16,
            num_replicas=24,
            num_groups=4,
            num_nodes=2,
            num_gpus=4,
            hot=(9.0, 6.0, 5.0),
        ),
        Case(
            "two nodes and three groups: nodes do not count",
            experts=18,
            num_replicas=24,
            num_groups=3,
            num_nodes=2,
            num_gpus=4,
            hot=(16.0, 8.0),
            spread=0.5,
        ),
        Case(
            "four nodes, eight groups, and experts that saw no token",
            experts=64,
            num_replicas=80,
            num_groups=8,
            num_nodes=4,
            num_gpus=16,
            hot=(20.0, 12.0, 9.0, 8.0),
            idle=5,
        ),
        Example(
            "the first group is the busiest, and belongs beside the last",
            load=[25] * 4 + [15] * 4 + [12, 13, 12, 13] + [2, 3, 2, 3],
            num_replicas=16,
            num_groups=4,
            num_nodes=2,
            num_gpus=4,
        ),
        Example(
            "one expert has so much that it needs seven slots: each bears a seventh",
            load=[184, 20, 8, 17, 9, 12],
            num_replicas=12,
            num_groups=1,
            num_nodes=1,
            num_gpus=4,
        ),
        Example(
            "two spare slots, and two busy experts: one for each",
            load=[139, 91, 9, 17, 10, 11],
            num_replicas=8,
            num_groups=1,
            num_nodes=1,
            num_gpus=4,
        ),
        Example(
            "groups go by their sums, not by their busiest expert",
            load=[55, 39, 59, 9, 31, 40, 2, 17, 33, 46, 51, 49, 33, 5, 4, 42],
            num_replicas=20,
            num_groups=8,
            num_nodes=2,
            num_gpus=4,
        ),
        Example(
            "groups of uneven sums: in turn, there and back, is not even enough",
            load=[19, 33, 47, 8, 8, 11, 43, 14, 31, 14, 55, 59, 11, 5, 2, 19],
            num_replicas=20,
            num_groups=8,
            num_nodes=2,
            num_gpus=4,
        ),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "copies_by_load",
            slips.placing(slips.copies_by_load),
            "All spare slots went to the one expert with the most tokens. In two slots each bears half: compare load "
            "over slots, anew for every spare slot.",
        ),
        Misconception(
            "one_more_each",
            slips.placing(slips.one_more_for_the_heaviest),
            "The spare slots went to the heaviest experts, one each. An expert with a third of all tokens needs more "
            "than two: compare load over slots, anew for every spare slot.",
        ),
        Misconception(
            "copies_by_halves",
            slips.placing(slips.copies_by_halves),
            "With each further slot the load was halved. Only the second one halves it: three slots bear a third each. "
            "Compare load over slots.",
        ),
        Misconception(
            "in_proportion",
            slips.placing(slips.in_proportion),
            "Slots were shared out in proportion to the load, rounded, and an expert with few tokens got none. Every "
            "expert needs a slot first; only the others are shared out.",
        ),
        Misconception(
            "whole_load_of_a_copy",
            slips.placing(whole_load=True),
            "Packing weighs a slot as if it bore all tokens of its expert. An expert's slots share them: load over "
            "slots.",
        ),
        Misconception(
            "slots_in_order",
            slips.placing(packing=slips.in_order),
            "Slots of one expert stand beside each other, in the order of the experts, and were cut into GPUs. So they "
            "meet on one GPU, and nothing was balanced: pack them, the heaviest first.",
        ),
        Misconception(
            "copies_behind_all",
            slips.placing(packing=slips.in_order, copies_first=True),
            "The redundant experts stand behind all others, and the slots were cut into GPUs as they came. The second "
            "step is missing: pack them, the heaviest first, each to the GPU that bears least and has room.",
        ),
        Misconception(
            "heavy_together",
            slips.placing(packing=slips.sorted_by_weight),
            "Sorted by load and then cut: the heaviest are together on the first GPU. Each goes to the GPU that bears "
            "least so far and has room.",
        ),
        Misconception(
            "dealt_in_turn",
            slips.placing(packing=slips.dealt_in_turn),
            "Slots were dealt to the GPUs in turn, from the heaviest on: the first GPU gets the heavier one in every "
            "round. Look at what each bears so far.",
        ),
        Misconception(
            "lightest_first",
            slips.placing(packing=slips.lightest_first),
            "The lightest were packed first, and the heavy ones at the end found no gap to fill. Begin with the "
            "heaviest.",
        ),
        Misconception(
            "no_limit_of_slots",
            slips.placing(packing=slips.without_a_limit),
            "Packing took the lightest GPU even when its slots were full. All GPUs have as many slots, so slot s "
            "belongs to GPU s // (slots of a GPU), whatever list it came from: only GPUs with room may be chosen.",
        ),
        Misconception(
            "nodes_never_count",
            slips.placing(flat=True),
            "Nodes were left out. Where they divide the groups, a group stays on one node: a token that may go to "
            "few nodes would otherwise find experts of its group on others. First groups to nodes, then spare slots "
            "within a node, then GPUs.",
        ),
        Misconception(
            "nodes_always_count",
            slips.nodes_whatever_the_groups,
            "Nodes were given even parts of the experts although they do not divide the groups. Then there is no "
            "group to keep together: all experts and all GPUs are one pool.",
        ),
        Misconception(
            "groups_in_order",
            slips.placing(groups_to_nodes=slips.in_order),
            "Groups went to the nodes in their order. A node with two busy groups is too busy, however well its GPUs "
            "share: pack groups to nodes by their load, as many to each.",
        ),
        Misconception(
            "strided_groups",
            slips.placing(strided=True),
            "Expert e was taken for a member of group e % num_groups. A group is a stretch of neighbours: "
            "e // (experts of a group).",
        ),
        Misconception(
            "gpus_for_slots",
            slips.gpus_for_slots,
            "log2phy holds numbers of GPUs. It holds slots: those s where phy2log[s] is the expert.",
        ),
        Misconception(
            "first_slot_only",
            slips.first_slot_only,
            "log2phy has one slot for each expert. It has all of them, or redundant experts would never be asked.",
        ),
    ),
    hints=(
        "Two questions, one after the other: how many slots has each expert, and which GPU has which? Take the example "
        "on paper. Whose slots bear most after each spare one?",
        "Spare slot by spare slot: the expert with the largest load / slots gets one more. Then the heaviest "
        "first, each to the GPU with the smallest sum so far among those with a free slot. With nodes the second "
        "function runs twice: groups to nodes, and a node's experts to its GPUs.",
        "def pack(weights, packs): room = len(weights) // packs; for i in sorted(range(len(weights)), key=lambda i: "
        "-weights[i]): p = min((p for p in range(packs) if len(found[p]) < room), key=sums.__getitem__); ... Then: "
        "if num_groups % num_nodes: num_groups = num_nodes = 1, and one loop over the nodes serves both cases.",
    ),
    explanation=(
        "The slot that bears most decides how long a GPU works, so each spare one goes where load over slots is "
        "largest. Packing the heaviest first leaves the light ones to fill gaps; that every GPU has as many slots "
        "keeps memory even. Groups on one node serve group-limited routing: a token goes to few groups, so to few "
        "nodes. Both steps are greedy: the best placement is a packing problem without a fast exact answer, and "
        "within a few percent of the mean there is nothing left to win."
    ),
)
