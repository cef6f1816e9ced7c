"""Placements of experts with one mistake each, and the right one. Plain Python: they run wherever an answer runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Placement = tuple[list[int], list[list[int]]]
Copies = Callable[[Sequence[float], int], list[int]]
Packing = Callable[[Sequence[int], Sequence[float], int], list[list[int]]]


# --- how many copies each expert gets ---------------------------------------------------------------------------


def copies_by_share(load: Sequence[float], slots: int) -> list[int]:
    """One for each, and every further one to the expert whose copies bear most."""
    copies = [1] * len(load)
    for _ in range(slots - len(load)):
        heaviest = max(range(len(load)), key=lambda e: load[e] / copies[e])
        copies[heaviest] += 1
    return copies


def copies_by_load(load: Sequence[float], slots: int) -> list[int]:
    copies = [1] * len(load)
    copies[max(range(len(load)), key=lambda e: load[e])] += slots - len(load)
    return copies


def copies_by_halves(load: Sequence[float], slots: int) -> list[int]:
    """Each further copy is taken for one that halves what the expert's copies bear."""
    left, copies = [float(each) for each in load], [1] * len(load)
    for _ in range(slots - len(load)):
        heaviest = max(range(len(load)), key=lambda e: left[e])
        left[heaviest] /= 2
        copies[heaviest] += 1
    return copies


def one_more_for_the_heaviest(load: Sequence[float], slots: int) -> list[int]:
    order = sorted(range(len(load)), key=lambda e: -load[e])
    copies = [1] * len(load)
    for at in range(slots - len(load)):
        copies[order[at % len(load)]] += 1
    return copies


def in_proportion(load: Sequence[float], slots: int) -> list[int]:
    """Rounded shares of all slots: an expert with little load gets none."""
    total = sum(load) or 1
    copies = [round(slots * each / total) for each in load]
    order = sorted(range(len(load)), key=lambda e: -load[e])
    while sum(copies) != slots:
        step = 1 if sum(copies) < slots else -1
        for e in order:
            if sum(copies) != slots and copies[e] + step > 0:
                copies[e] += step
    return copies


# --- which GPU gets which copy ----------------------------------------------------------------------------------


def to_the_lightest(items: Sequence[int], weight: Sequence[float], packs: int) -> list[list[int]]:
    """Heaviest first, each to the pack that bears least among those with room."""
    room = len(items) // packs
    found: list[list[int]] = [[] for _ in range(packs)]
    borne = [0.0] * packs
    for at in sorted(range(len(items)), key=lambda at: -weight[at]):
        pack = min((p for p in range(packs) if len(found[p]) < room), key=lambda p: borne[p])
        found[pack].append(items[at])
        borne[pack] += weight[at]
    return found


def lightest_first(items: Sequence[int], weight: Sequence[float], packs: int) -> list[list[int]]:
    room = len(items) // packs
    found: list[list[int]] = [[] for _ in range(packs)]
    borne = [0.0] * packs
    for at in sorted(range(len(items)), key=lambda at: weight[at]):
        pack = min((p for p in range(packs) if len(found[p]) < room), key=lambda p: borne[p])
        found[pack].append(items[at])
        borne[pack] += weight[at]
    return found


def without_a_limit(items: Sequence[int], weight: Sequence[float], packs: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(packs)]
    borne = [0.0] * packs
    for at in sorted(range(len(items)), key=lambda at: -weight[at]):
        pack = min(range(packs), key=lambda p: borne[p])
        found[pack].append(items[at])
        borne[pack] += weight[at]
    return found


def dealt_in_turn(items: Sequence[int], weight: Sequence[float], packs: int) -> list[list[int]]:
    order = sorted(range(len(items)), key=lambda at: -weight[at])
    return [[items[at] for at in order[pack::packs]] for pack in range(packs)]


def in_order(items: Sequence[int], weight: Sequence[float], packs: int) -> list[list[int]]:
    room = len(items) // packs
    return [list(items[at * room : (at + 1) * room]) for at in range(packs)]


def sorted_by_weight(items: Sequence[int], weight: Sequence[float], packs: int) -> list[list[int]]:
    order = sorted(range(len(items)), key=lambda at: -weight[at])
    return in_order([items[at] for at in order], weight, packs)


# --- an answer of such parts ------------------------------------------------------------------------------------


def with_maps(phy2log: list[int], experts: int) -> Placement:
    log2phy: list[list[int]] = [[] for _ in range(experts)]
    for slot, expert in enumerate(phy2log):
        log2phy[expert].append(slot)
    return phy2log, log2phy


def placing(
    copies: Copies = copies_by_share,
    packing: Packing = to_the_lightest,
    groups_to_nodes: Packing = to_the_lightest,
    whole_load: bool = False,
    flat: bool | None = None,
    strided: bool = False,
    copies_first: bool = False,
) -> Callable[..., Placement]:
    """An answer.

    whole_load    each copy is packed as if it bore the whole load
    flat          True: nodes never count; None: where nodes divide the groups they do
    strided       expert e is in group e % num_groups
    copies_first  copies stand behind all experts, as they were made, not beside their like
    """

    def eplb(load: list[int], num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int) -> Placement:
        nodes = 1 if flat or num_groups % num_nodes else num_nodes
        size = len(load) // num_groups
        groups = [
            list(range(len(load)))[g::num_groups] if strided else list(range(g * size, (g + 1) * size))
            for g in range(num_groups)
        ]
        if nodes == 1:
            groups = [list(range(len(load)))]
        sums = [float(sum(load[e] for e in group)) for group in groups]
        phy2log: list[int] = []
        for node in groups_to_nodes(range(len(groups)), sums, nodes):
            members = [e for g in node for e in groups[g]]
            count = copies([load[e] for e in members], num_replicas // nodes)
            if copies_first:
                items = members + [e for e, c in zip(members, count, strict=True) for _ in range(c - 1)]
            else:
                items = [e for e, c in zip(members, count, strict=True) for _ in range(c)]
            times = dict(zip(members, count, strict=True))
            weight = [load[e] / (1 if whole_load else times[e]) for e in items]
            for pack in packing(items, weight, num_gpus // nodes):
                phy2log += pack
        return with_maps(phy2log, len(load))

    return eplb


right = placing()


def gpus_for_slots(load: list[int], num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int) -> Placement:
    phy2log, log2phy = right(load, num_replicas, num_groups, num_nodes, num_gpus)
    each = num_replicas // num_gpus
    return phy2log, [[slot // each for slot in slots] for slots in log2phy]


def first_slot_only(load: list[int], num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int) -> Placement:
    phy2log, log2phy = right(load, num_replicas, num_groups, num_nodes, num_gpus)
    return phy2log, [slots[:1] for slots in log2phy]


def nodes_whatever_the_groups(
    load: list[int], num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int
) -> Placement:
    """Where groups do not divide, each node gets an even part of the experts in their order."""
    if num_groups % num_nodes == 0 or len(load) % num_nodes:
        return right(load, num_replicas, num_groups, num_nodes, num_gpus)
    return placing(groups_to_nodes=in_order)(load, num_replicas, num_nodes, num_nodes, num_gpus)
