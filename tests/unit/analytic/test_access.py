"""The coalescing and bank rules against what the virtual GPU counts while it executes compiled machine code."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_utils.analytic.access import SHAPES, bank_conflicts, bank_cycles, coalescing, transactions
from gpu_utils.analytic.expression import addresses
from gpu_utils.chips import TARGETS
from gpu_utils.chips.banks import ACCESSES, BANKS, SIZES, plain, service
from gpu_utils.chips.source import is_dated
from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.virtual import virtual_gpu

TYPES = {1: "unsigned char", 2: "unsigned short", 4: "float", 8: "double", 16: "quad"}
WORDS = 4096
GATHER = """
typedef float quad __attribute__((ext_vector_type(4)));
__global__ void gather(const int *index, const TYPE *x, TYPE *out) {
  int at = blockIdx.x * blockDim.x + threadIdx.x, i = index[at];
  if (i >= 0) out[at] = x[i];
}
__global__ void from_shared(const int *index, TYPE *out) {
  __shared__ __attribute__((aligned(16))) float words[WORDS];
  for (int i = threadIdx.x; i < WORDS; i += blockDim.x) words[i] = i;
  __syncthreads();
  int at = blockIdx.x * blockDim.x + threadIdx.x, i = index[at];
  if (i >= 0) out[at] = ((const TYPE *)words)[i];
}
__global__ void to_shared(const int *index, TYPE *out) {
  __shared__ __attribute__((aligned(16))) float words[WORDS];
  int at = blockIdx.x * blockDim.x + threadIdx.x, i = index[at];
  if (i >= 0) ((volatile TYPE *)words)[i] = out[at];
}
"""


def counted(target: str, kernel: str, waves: list[list[int | None]], size: int) -> tuple[int, int]:
    """(transactions, least) of one access over all waves, each a block; lanes ask for elements of `size` bytes."""
    module = compile_cpp(GATHER.replace("TYPE", TYPES[size]).replace("WORDS", str(WORDS)), target)
    lanes = TARGETS[target].lanes
    index = torch.tensor([-1 if i is None else i for wave in waves for i in wave], dtype=torch.int32)
    out = torch.zeros(len(index) * size, dtype=torch.uint8)
    x = torch.zeros(4 * WORDS, dtype=torch.uint8)
    with virtual_gpu(target) as gpu:
        arguments = [index, x, out] if kernel == "gather" else [index, out]
        gpu.load(module).launch(kernel, len(waves), lanes, arguments)
    table = gpu.counters.globals if kernel == "gather" else gpu.counters.shareds
    kind = "store" if kernel == "to_shared" else "load"
    found = [access for _, access in sorted(table.items()) if access.kind == kind]
    return found[-1].transactions, found[-1].ideal


def patterns(target: str, size: int, seed: int) -> dict[str, list[list[int | None]]]:
    """Eight waves each of strides and offsets, of scattered and of near lanes, and of lanes of which some are off."""
    draw, lanes, most = random.Random(seed), TARGETS[target].lanes, 4 * WORDS // size

    def stride() -> list[int | None]:
        first, step = draw.randrange(most), draw.randint(-40, 40)
        return [(first + step * lane) % most for lane in range(lanes)]

    def scattered(of: int = most) -> list[int | None]:
        return [draw.randrange(of) for _ in range(lanes)]

    def masked() -> list[int | None]:
        on = draw.random()
        return [i if draw.random() < on or lane == 3 else None for lane, i in enumerate(scattered())]

    makers = {"strides": stride, "scattered": scattered, "near": lambda: scattered(40), "masked": masked}
    return {name: [make() for _ in range(8)] for name, make in makers.items()}


EVERY = ["sm_80", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250"]


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize("size", list(TYPES))
@pytest.mark.parametrize("target", EVERY)
def test_segments_of_any_pattern_are_those_that_the_virtual_gpu_counts(target, size):
    for name, waves in patterns(target, size, seed=size).items():
        ours = [coalescing(bytes_of(wave, size), size, SHAPES[target].sector) for wave in waves]
        total = sum(found.transactions for found in ours), sum(found.least for found in ours)
        assert total == counted(target, "gather", waves, size), name


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize("size", list(TYPES))
@pytest.mark.parametrize("target", EVERY)
def test_bank_cycles_of_any_pattern_are_those_that_the_virtual_gpu_counts(target, size):
    for way, kernel in (("read", "from_shared"), ("write", "to_shared")):
        for name, waves in patterns(target, size, seed=100 + size).items():
            ours = [
                bank_conflicts(bytes_of(wave, size), access_bytes=size, target=target, access=way) for wave in waves
            ]
            total = sum(found.cycles for found in ours), sum(found.least for found in ours)
            assert total == counted(target, kernel, waves, size), (name, way)


def bytes_of(wave: list[int | None], size: int) -> list[int | None]:
    return [None if i is None else size * i for i in wave]


sizes = st.sampled_from([1, 2, 4, 8, 12, 16])
lanes_of_a_wave = st.lists(st.one_of(st.none(), st.integers(0, 5000)), min_size=1, max_size=64)


@given(lanes_of_a_wave, sizes, st.sampled_from([32, 64, 128]))
def test_a_transaction_is_a_distinct_segment_of_some_byte(wave, size, segment):
    """Byte by byte, also where an access crosses a border."""
    touched = {(at + byte) // segment for at in wave if at is not None for byte in range(size)}
    found = coalescing(wave, size, segment)
    assert set(found.segments) == touched == {number for lane in found.lanes for number in lane}
    assert found.least <= found.transactions == transactions(wave, size, segment)
    assert 0 < found.efficiency <= 1
    assert found.used <= min(found.asked, found.moved)


@given(lanes_of_a_wave, sizes, st.sampled_from([32, 64]))
def test_the_picture_of_the_banks_adds_up_to_the_rule_for_whole_waves(wave, size, banks):
    wave = [None if at is None else at // 4 * 4 for at in wave]
    wave += [None] * (-len(wave) % plain(banks, size, 64).together)
    adds_up(wave, size, bank_conflicts(wave, banks, size))


@given(st.randoms(use_true_random=False), sizes, st.sampled_from(list(BANKS)), st.sampled_from(ACCESSES))
def test_the_picture_of_the_banks_of_a_target_adds_up(draw, size, target, way):
    wave = [draw.choice([None, 4 * draw.randrange(1000)]) for _ in range(TARGETS[target].lanes)]
    adds_up(wave, size, bank_conflicts(wave, access_bytes=size, target=target, access=way))


def adds_up(wave, size, found):
    rows = np.array([[-1 if at is None else at for at in wave]])
    assert (found.cycles, found.least) == bank_cycles(rows, size, found.served)
    assert found.conflicts == found.cycles - found.least >= 0
    served = [lane.cycle for lane in found.lanes if lane.cycle is not None]
    assert max(served, default=-1) < found.cycles
    for number, (lane, at) in enumerate(zip(found.lanes, wave, strict=True)):
        assert (lane.cycle is None) == (at is None) == (lane.words == ())
        assert number in found.served.phases[lane.group]
        assert all(bank == word % found.served.banks for bank, word in zip(lane.banks, lane.words, strict=True))


@pytest.mark.parametrize("target", list(BANKS))
def test_each_access_of_a_target_serves_every_lane_in_one_phase_and_fills_its_banks(target):
    for (way, size), row in BANKS[target].items():
        assert sorted(row.order) == list(range(TARGETS[target].lanes)), (way, size)
        assert len({len(phase) for phase in row.phases}) == 1
        assert row.together * (16 if size == 12 else size) <= 4 * row.banks
        assert row.banks <= TARGETS[target].banks
        assert is_dated(row.source.when)
    assert set(BANKS[target]) == {(way, size) for way in ACCESSES for size in SIZES}


@pytest.mark.parametrize(
    ("target", "way", "size", "banks", "phases"),
    [
        ("gfx950", "read", 4, 64, "0-63"),
        ("gfx950", "read", 8, 64, "0-31; 32-63"),
        ("gfx950", "read", 12, 32, "0-3 and 20-23; 32-35 and 52-55; 4-7 and 16-19; 36-39 and 48-51; "),
        ("gfx950", "read", 16, 64, "0-3 and 12-15 and 20-27; 32-35 and 44-47 and 52-59; "),
        ("gfx950", "write", 8, 32, "0-15; 16-31; 32-47; 48-63"),
        ("gfx942", "read", 16, 32, "0-3 and 20-23; 32-35 and 52-55; 4-7 and 16-19; 36-39 and 48-51; "),
        ("gfx942", "write", 16, 32, "0-7; 8-15; "),
        ("gfx1100", "read", 16, 32, "0-3 and 20-23; 4-7 and 16-19; 8-11 and 28-31; 12-15 and 24-27"),
        ("gfx1201", "read", 16, 32, "0-7; 8-15; 16-23; 24-31"),
        ("sm_90", "read", 16, 32, "0-7; 8-15; 16-23; 24-31"),
    ],
)
def test_the_phases_are_those_that_were_published(target, way, size, banks, phases):
    row = service(target, way, size)
    assert row.banks == banks
    assert row.said.startswith(phases)


def test_two_lanes_conflict_in_one_phase_and_not_in_two():
    for target, other, cycles in (("gfx942", 20, 2), ("gfx942", 4, 1), ("gfx950", 12, 2), ("gfx950", 32, 1)):
        wave = [None] * 64
        wave[0], wave[other] = 0, 256
        found = bank_conflicts(wave, access_bytes=16, target=target)
        assert found.cycles - found.least == cycles - 1, (target, other)


def test_half_a_wave_is_no_wave_of_a_target():
    with pytest.raises(BadArgument, match="there are 32 addresses; expected 64, one for each lane of a wave of gfx950"):
        bank_conflicts([0] * 32, target="gfx950")
    with pytest.raises(UnknownName, match="there is no access 'load'"):
        bank_conflicts([0] * 64, target="gfx950", access="load")
    with pytest.raises(UnknownName, match="there is no target 'gfx94'"):
        bank_conflicts([0] * 64, target="gfx94")


@pytest.mark.parametrize(
    ("pattern", "banks", "size", "cycles"),
    [
        ("lane", 32, 4, 1),
        ("lane * 2", 32, 4, 2),
        ("lane * 32", 32, 4, 32),
        ("lane * 33", 32, 4, 1),  # padding by one word
        ("lane * 32", 64, 4, 16),
        ("7", 32, 4, 1),  # one word for all lanes
        ("lane // 2", 32, 4, 1),
        ("lane", 32, 8, 2),  # two groups of 16 lanes
        ("lane", 32, 16, 4),
        ("lane", 64, 16, 2),
        ("lane * 2", 32, 16, 8),
    ],
)
def test_a_warp_of_32_lanes_by_hand(pattern, banks, size, cycles):
    assert bank_conflicts(addresses(pattern, 32, size), banks, size).cycles == cycles


def test_two_lanes_of_one_bank_are_served_one_after_the_other():
    found = bank_conflicts([0, 128, 0, 256, None])
    assert [lane.cycle for lane in found.lanes] == [0, 1, 0, 2, None]
    assert (found.cycles, found.least, found.conflicts) == (3, 1, 2)


def test_twelve_bytes_go_as_sixteen_do():
    assert [plain(64, size, 64).together for size in (1, 4, 8, 12, 16)] == [64, 64, 32, 16, 16]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: transactions([0, -4], 4, 32), "lane 1 has address -4"),
        (lambda: transactions([], 4, 32), "there are no lanes"),
        (lambda: transactions([0], 0, 32), "a lane accesses 0 bytes"),
        (lambda: transactions([0], 4, 48), "a segment of 48 bytes was asked for; expected a power of two"),
        (lambda: bank_conflicts([0], banks=33), "33 banks were asked for; expected a power of two"),
    ],
)
def test_what_cannot_be_is_one_sentence(call, message):
    with pytest.raises(BadArgument, match=message):
        call()
