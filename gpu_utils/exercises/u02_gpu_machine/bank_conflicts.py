"""02.bank_conflicts: the extra cycles of one access to shared memory (LDS), for 32 and 64 banks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

Addresses = Sequence[int | None]
WORD = 4


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    """Addresses base + stride * (lane % rows), or random bytes of random words below `within`; lanes in `off` and from
    `on` on are off."""
    lanes, base = case["lanes"], case.get("base", 0)
    if case.get("within"):
        found = torch.randint(0, WORD * case["within"], (lanes,), generator=generator).tolist()
        addresses: list[int | None] = [base + byte for byte in found]
    else:
        addresses = [base + case["stride"] * (lane % case.get("rows", lanes)) for lane in range(lanes)]
    for lane in (*case.get("off", ()), *range(case.get("on", lanes), lanes)):
        addresses[lane] = None
    return {"addresses": addresses, "banks": case["banks"]}


def _groups(addresses: Addresses, size: int) -> list[list[int]]:
    """Active addresses of each group of `size` lanes that has any."""
    parts = (addresses[start : start + size] for start in range(0, len(addresses), size))
    active = ([at for at in part if at is not None] for part in parts)
    return [part for part in active if part]


def _most_on_one_bank(words: set[int], banks: int) -> int:
    return max(sum(word % banks == bank for word in words) for bank in range(banks))


def bank_conflicts_reference(addresses: Addresses, banks: int) -> int:
    """Group by group, bank by bank: distinct words beyond the first.

    >>> bank_conflicts_reference([128 * lane for lane in range(4)], 32)
    3
    """
    return _extra(addresses, banks, banks)


def _extra(addresses: Addresses, size: int, banks: int) -> int:
    """Extra cycles when groups have `size` lanes."""
    return sum(_most_on_one_bank({at // WORD for at in part}, banks) - 1 for part in _groups(addresses, size))


def _bytes_as_banks(addresses: Addresses, banks: int) -> int:
    return sum(_most_on_one_bank(set(part), banks) - 1 for part in _groups(addresses, banks))


def _no_broadcast(addresses: Addresses, banks: int) -> int:
    groups = _groups(addresses, banks)
    return sum(max(sum(at // WORD % banks == bank for at in part) for bank in range(banks)) - 1 for part in groups)


def _same_address_only(addresses: Addresses, banks: int) -> int:
    groups = _groups(addresses, banks)
    return sum(max(sum(at // WORD % banks == bank for at in set(part)) for bank in range(banks)) - 1 for part in groups)


def _sum_over_banks(addresses: Addresses, banks: int) -> int:
    words = [{at // WORD for at in part} for part in _groups(addresses, banks)]
    return sum(len(part) - len({word % banks for word in part}) for part in words)


def _address_0_is_off(addresses: Addresses, banks: int) -> int:
    return bank_conflicts_reference([at or None for at in addresses], banks)


def _all_lanes_at_once(addresses: Addresses, banks: int) -> int:
    return _extra(addresses, len(addresses), banks)


def _all_lanes_at_once_and_somebody_is_on(addresses: Addresses, banks: int) -> int:
    words = {at // WORD for at in addresses if at is not None}
    return max(sum(word % banks == bank for word in words) for bank in {word % banks for word in words}) - 1


def _an_idle_group_is_asked(addresses: Addresses, banks: int) -> int:
    parts = (addresses[start : start + banks] for start in range(0, len(addresses), banks))
    return sum(_all_lanes_at_once_and_somebody_is_on(part, banks) for part in parts)


def _always_32_banks(addresses: Addresses, banks: int) -> int:
    return bank_conflicts_reference(addresses, 32)


def _groups_of_32(addresses: Addresses, banks: int) -> int:
    return _extra(addresses, 32, banks)


def _one_off_for_each_idle_group(addresses: Addresses, banks: int) -> int:
    idle = -(-len(addresses) // banks) - len(_groups(addresses, banks))
    return bank_conflicts_reference(addresses, banks) - idle


def _nearest_word(addresses: Addresses, banks: int) -> int:
    return bank_conflicts_reference([None if at is None else WORD * round(at / WORD) for at in addresses], banks)


def _off_lanes_at_0(addresses: Addresses, banks: int) -> int:
    return bank_conflicts_reference([at or 0 for at in addresses], banks)


def _each_word_once(addresses: Addresses, banks: int) -> int:
    read: set[int] = set()
    extra = 0
    for part in _groups(addresses, banks):
        new = {at // WORD for at in part} - read
        extra += _most_on_one_bank(new, banks) - 1 if new else 0
        read |= new
    return extra


def _off_lanes_move_up(addresses: Addresses, banks: int) -> int:
    return bank_conflicts_reference([at for at in addresses if at is not None], banks)


def _cycles(addresses: Addresses, banks: int) -> int:
    return bank_conflicts_reference(addresses, banks) + len(_groups(addresses, banks))


def _worst_group_only(addresses: Addresses, banks: int) -> int:
    return max((bank_conflicts_reference(part, banks) for part in _groups(addresses, banks)), default=0)


def _fresh(rng: random.Random) -> Case:
    lanes, banks = rng.choice([(32, 32), (64, 32), (64, 64)])
    off = tuple(sorted(rng.sample(range(lanes), rng.randint(0, 8))))
    return Case("fresh words", lanes=lanes, banks=banks, within=rng.randint(150, 400), off=off)


_WRONG: tuple[tuple[str, Callable[..., int], str], ...] = (
    (
        "nearest_word",
        _nearest_word,
        "The word of an address is rounded here. Bytes 8, 9, 10 and 11 all lie in word 2: divide by 4 and round down.",
    ),
    (
        "off_lanes_at_0",
        _off_lanes_at_0,
        "A lane that is off is taken for one that reads address 0. It reads nothing: leave it out.",
    ),
    (
        "each_word_once",
        _each_word_once,
        "A word that an earlier group has read is not counted again. Each group asks for itself: only lanes of one "
        "group share a word.",
    ),
    (
        "off_lanes_move_up",
        _off_lanes_move_up,
        "Lanes that are off are taken out before the wave is cut into groups, so the others move up into a group that "
        "is not theirs. A lane keeps its place: cut first, then look who is on.",
    ),
    (
        "same_address_only",
        _same_address_only,
        "Lanes share a cycle when they want the same word, not only the same address: two float16 values side by side "
        "lie in one word.",
    ),
    (
        "always_32_banks",
        _always_32_banks,
        "This works with 32 banks only. On gfx950 there are 64, and a group is 64 lanes: use `banks` for both.",
    ),
    (
        "groups_of_32",
        _groups_of_32,
        "Groups have 32 lanes here always. A group has as many lanes as there are banks: on the 64 banks of gfx950 all "
        "64 lanes go together.",
    ),
    (
        "one_off_for_each_idle_group",
        _one_off_for_each_idle_group,
        "A group with no active lane counts as -1. It takes no cycle and has none to spare: leave it out.",
    ),
    (
        "bytes_as_banks",
        _bytes_as_banks,
        "This takes the bank of a byte as address % banks. A bank holds words of 4 bytes: first which word, then which "
        "bank.",
    ),
    (
        "no_broadcast",
        _no_broadcast,
        "Lanes that want the same word are counted against each other. A bank hands one word to any number of lanes "
        "in one cycle; only different words of one bank wait.",
    ),
    (
        "sum_over_banks",
        _sum_over_banks,
        "The extra words of all banks are added up. Banks work at the same time: the longest queue of a group decides.",
    ),
    (
        "address_0_is_off",
        _address_0_is_off,
        "The lane at address 0 is lost: `if at` is false for 0 as well as for None. Ask `at is not None`.",
    ),
    (
        "all_lanes_at_once",
        _all_lanes_at_once,
        "All lanes are served as one group here. With 32 banks, 64 lanes go in two groups of 32 one after the other, "
        "and lanes of different groups never meet.",
    ),
    (
        "all_lanes_at_once_and_somebody_is_on",
        _all_lanes_at_once_and_somebody_is_on,
        "All lanes are served as one group here; cut the wave into groups of `banks` lanes first. And where no lane of "
        "a group is on, there is no longest queue to ask for: it takes no cycle.",
    ),
    (
        "an_idle_group_is_asked",
        _an_idle_group_is_asked,
        "Right where each group has an active lane. One without any has no longest queue to ask for: leave it out.",
    ),
    (
        "cycles",
        _cycles,
        "These are all cycles. Asked are the extra ones: every group with an active lane needs one cycle anyhow.",
    ),
    (
        "worst_group_only",
        _worst_group_only,
        "Only the worst group is counted. The groups of a wave go one after the other, so their extra cycles add up.",
    ),
)

EXERCISE = Exercise(
    id="02.bank_conflicts",
    title="Bank conflicts of one access",
    parameters=("addresses", "banks"),
    kind="host",
    inputs=_inputs,
    reference=bank_conflicts_reference,
    cases=(
        Example("the example of the docstring", addresses=[0, 16, 32, 4, 8, 10, 8, 24], banks=4),
        Case("neighbouring words on a warp: no conflict", lanes=32, stride=4, banks=32),
        Case(
            "a column of a 32 x 32 tile, lane 0 off: all on one bank",
            lanes=32,
            stride=128,
            off=(0,),
            banks=32,
        ),
        Case("a column of float16 values, rows padded to 33 of them: no conflict", lanes=32, stride=66, banks=32),
        Case("every other word: two words on each bank", lanes=32, stride=8, banks=32),
        Case("all lanes want one word: a broadcast", lanes=32, stride=0, base=20, banks=32),
        Case("float16 values side by side: two lanes share a word", lanes=64, stride=2, banks=32),
        Case("a wavefront on 32 banks: two groups, which read one column", lanes=64, stride=128, rows=32, banks=32),
        Case("a wavefront on the 64 banks of gfx950", lanes=64, stride=128, banks=64),
        Case("random words", lanes=64, within=300, banks=32),
        Case("the second half of a wavefront is off", lanes=64, within=90, on=32, banks=32),
        Case("some lanes of the first group are off", lanes=64, stride=4, off=(10, 11, 12), banks=32),
        Case("upper halves of words, all of the last bank", lanes=32, stride=128, base=126, off=(5,), banks=32),
        Case("all lanes are off", lanes=32, stride=4, on=0, banks=32),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "Three steps for every group of `banks` lanes: which word does each active lane want, on which bank does it "
        "lie, and which bank has most different words?",
        "word = address // 4, bank = word % banks. Collect the words of each bank in a set, so that a word that "
        "several lanes want counts once. A group waits for its longest queue.",
        "For start in range(0, len(addresses), banks): words = {at // 4 for at in addresses[start:start + banks] if at "
        "is not None}. If words is not empty, add the largest number of words with the same word % banks, minus 1.",
    ),
    explanation=(
        "Shared memory is cut into banks of 4-byte words that work side by side, each with one word a cycle. A group "
        "of lanes takes as many cycles as the bank with most different words. A column of a 32 x 32 tile puts 32 words "
        "on one bank: 31 extra cycles for a warp, 62 for a wavefront on 32 banks. One word of padding a row moves each "
        "row by a bank, and the conflicts are gone."
    ),
)
