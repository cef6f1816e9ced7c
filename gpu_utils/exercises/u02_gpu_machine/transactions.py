"""02.transactions: how many memory transactions one access of a warp or wavefront takes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

Addresses = Sequence[int | None]


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    """Addresses base + stride * lane, shuffled or not, or random units; lanes in `off` and from `on` on are off."""
    lanes, stride, base = case["lanes"], case.get("stride", 0), case.get("base", 0)
    addresses: list[int | None] = [base + stride * lane for lane in range(lanes)]
    if case.get("shuffled"):
        order = torch.randperm(lanes, generator=generator).tolist()
        addresses = [addresses[place] for place in order]
    if case.get("within"):
        places = torch.randint(0, case["within"] // case["unit"], (lanes,), generator=generator).tolist()
        addresses = [base + case["unit"] * place for place in places]
    for lane in (*case.get("off", ()), *range(case.get("on", lanes), lanes)):
        addresses[lane] = None
    return {"addresses": addresses, "access_bytes": case["access_bytes"], "segment": case["segment"]}


def transactions_reference(addresses: Addresses, access_bytes: int, segment: int) -> int:
    """Every byte of every active lane, put into its segment.

    >>> transactions_reference([0, 4, 8, None, 62], 4, 32)
    3
    """
    return len({(at + byte) // segment for at in addresses if at is not None for byte in range(access_bytes)})


def _active(addresses: Addresses) -> list[int]:
    return [at for at in addresses if at is not None]


def _bytes_over_segment(addresses: Addresses, access_bytes: int, segment: int) -> int:
    return -(-len(_active(addresses)) * access_bytes // segment)


def _from_first_to_last(addresses: Addresses, access_bytes: int, segment: int) -> int:
    active = _active(addresses)
    return (max(active) + access_bytes - 1) // segment - min(active) // segment + 1 if active else 0


def _one_for_each_lane(addresses: Addresses, access_bytes: int, segment: int) -> int:
    return sum((at + access_bytes - 1) // segment - at // segment + 1 for at in _active(addresses))


def _first_byte_only(addresses: Addresses, access_bytes: int, segment: int) -> int:
    return len({at // segment for at in _active(addresses)})


def _one_byte_too_far(addresses: Addresses, access_bytes: int, segment: int) -> int:
    return transactions_reference(addresses, access_bytes + 1, segment)


def _segments_start_at_the_first_address(addresses: Addresses, access_bytes: int, segment: int) -> int:
    active = _active(addresses)
    return transactions_reference([at - min(active) for at in active], access_bytes, segment)


def _always_sectors_of_32(addresses: Addresses, access_bytes: int, segment: int) -> int:
    return transactions_reference(addresses, access_bytes, 32)


def _off_lanes_read_address_0(addresses: Addresses, access_bytes: int, segment: int) -> int:
    return transactions_reference([at or 0 for at in addresses], access_bytes, segment)


def _address_0_is_off(addresses: Addresses, access_bytes: int, segment: int) -> int:
    return transactions_reference([at or None for at in addresses], access_bytes, segment)


def _neighbours_only(addresses: Addresses, access_bytes: int, segment: int) -> int:
    count, last = 0, None
    for at in _active(addresses):
        for number in range(at // segment, (at + access_bytes - 1) // segment + 1):
            count += number != last
            last = number
    return count


def _fresh(rng: random.Random) -> Case:
    lanes, segment = rng.choice([(32, 32), (64, 64), (64, 128)])
    return Case(
        "a fresh pattern",
        lanes=lanes,
        segment=segment,
        access_bytes=4,
        base=4096 + 4 * rng.randrange(1, segment // 4),
        within=segment * rng.randint(24, 48),
        unit=4,
        off=tuple(sorted(rng.sample(range(lanes), rng.randint(1, 9)))),
    )


_WRONG: tuple[tuple[str, Callable[..., int], str], ...] = (
    (
        "bytes_over_segment",
        _bytes_over_segment,
        "This divides the bytes by the size of a segment, as if they lay side by side and began where a segment "
        "begins. The addresses decide: two lanes far apart cost two transactions, two in one segment cost one.",
    ),
    (
        "from_first_to_last",
        _from_first_to_last,
        "This counts every segment from the lowest address to the highest. Segments between them that no lane "
        "touches are not moved.",
    ),
    (
        "one_for_each_lane",
        _one_for_each_lane,
        "Segments are counted once for each lane here. Lanes of one wave that touch the same segment share one "
        "transaction.",
    ),
    (
        "first_byte_only",
        _first_byte_only,
        "Only the first byte of each lane is placed. An access that begins near the end of a segment reaches into the "
        "next: where does its last byte lie?",
    ),
    (
        "one_byte_too_far",
        _one_byte_too_far,
        "A lane reaches one byte too far: `access_bytes` bytes from `at` on end at at + access_bytes - 1.",
    ),
    (
        "segments_start_at_the_first_address",
        _segments_start_at_the_first_address,
        "Segments are laid from the lowest address here. In hardware they are aligned: segment k always holds bytes "
        "k * segment to (k + 1) * segment - 1, wherever the lanes begin.",
    ),
    (
        "always_sectors_of_32",
        _always_sectors_of_32,
        "Segments have 32 bytes here, whatever is asked. That is NVIDIA's sector; on AMD they are longer: use "
        "`segment`.",
    ),
    (
        "off_lanes_read_address_0",
        _off_lanes_read_address_0,
        "A lane with None is switched off and moves nothing. Here it counts as if it read address 0.",
    ),
    (
        "address_0_is_off",
        _address_0_is_off,
        "The lane that reads address 0 is lost: `if at` is false for 0 as well as for None. Ask `at is not None`.",
    ),
    (
        "neighbours_only",
        _neighbours_only,
        "A segment is counted again whenever the lane before touched another one. All lanes of the wave count "
        "together, in any order: which segments are there at all?",
    ),
)

EXERCISE = Exercise(
    id="02.transactions",
    title="Transactions of one access",
    parameters=("addresses", "access_bytes", "segment"),
    kind="host",
    inputs=_inputs,
    reference=transactions_reference,
    cases=(
        Case("a warp, neighbouring words: the best case", lanes=32, stride=4, access_bytes=4, segment=32),
        Case("the same, moved by one word: one sector more", lanes=32, stride=4, base=4, access_bytes=4, segment=32),
        Case("every other word: half of what moves is unused", lanes=32, stride=8, access_bytes=4, segment=32),
        Case("a column of a matrix: a sector for each lane", lanes=32, stride=4096, access_bytes=4, segment=32),
        Case("all lanes read one word", lanes=32, stride=0, base=8192, access_bytes=4, segment=32),
        Case(
            "the right words in a random order: the order of lanes costs nothing",
            lanes=64,
            stride=4,
            base=1024,
            shuffled=True,
            access_bytes=4,
            segment=128,
        ),
        Case("a wavefront, 16 bytes a lane", lanes=64, stride=16, base=256, access_bytes=16, segment=128),
        Case(
            "AMD takes 16 bytes from addresses that 16 does not divide: some lanes need two lines",
            lanes=64,
            stride=264,
            base=120,
            access_bytes=16,
            segment=128,
        ),
        Case(
            "a mask has switched lanes off",
            lanes=64,
            stride=32,
            base=640,
            on=40,
            access_bytes=4,
            segment=64,
        ),
        Case("all lanes are off", lanes=32, on=0, access_bytes=4, segment=32),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "Draw the memory as a row of boxes of `segment` bytes, and mark every byte that an active lane wants. "
        "How many boxes have a mark?",
        "Byte b lies in segment b // segment. A lane wants the bytes from at to at + access_bytes - 1. "
        "A Python set forgets repetitions.",
        "Add the segments at // segment and (at + access_bytes - 1) // segment of every lane that is not None to a "
        "set (no access here is wider than a segment) and return its len().",
    ),
    explanation=(
        "The memory system moves whole aligned segments, once for each wave instruction. So the cost is the number of "
        "distinct segments, whatever the order of the lanes, and whatever share of a segment they use. 32 neighbouring "
        "words are 4 sectors of 32 bytes; one word each in 32 rows is 32 sectors, eight times the traffic."
    ),
)
