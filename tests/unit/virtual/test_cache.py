"""The model of the L2 against a plain simulation of one access at a time, and on kernels whose traffic is known."""

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_utils.chips import CHIPS
from gpu_utils.chips.caches import DEFAULTS, L2_OF_TARGET, CacheSizes
from gpu_utils.errors import BadArgument
from gpu_utils.virtual import MODELS, virtual_gpu
from gpu_utils.virtual.cache import SECTOR, Stream, l2_traffic, replay, stream_of

ONE_SET = CacheSizes(size=4 * 128, line=128, fill=32, ways=4, parts=1, units=1)


@triton.jit
def copy_kernel(x_ptr, out_ptr, STEP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i * STEP))


@triton.jit
def row_kernel(x_ptr, out_ptr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    """Every program reads the same ROUNDS blocks."""
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(ROUNDS):
        total += tl.load(x_ptr + k * BLOCK + i)
    tl.store(out_ptr + tl.program_id(0) * BLOCK + i, total)


@triton.jit
def count_kernel(out_ptr, BLOCK: tl.constexpr):
    tl.atomic_add(out_ptr + tl.arange(0, BLOCK), 1)


def stream(sectors, writes=(), part=0):
    """Reads of `sectors` in this order; the entries numbered in `writes` are writes."""
    sectors = np.array(sectors, np.int64)
    write = np.isin(np.arange(len(sectors)), list(writes))
    return Stream(sectors, ~write, write, np.full(len(sectors), part, np.int64))


def one_at_a_time(given_stream, cache):
    """(bytes read, bytes written, bytes dirty at the end, read hits) of a cache with a single set."""
    per_line, per_fill = cache.line // SECTOR, cache.fill // SECTOR
    lines = OrderedDict()
    filled = written = hits = 0
    for sector, read, write in zip(given_stream.sector, given_stream.read, given_stream.write, strict=True):
        line = sector // per_line
        if line not in lines:
            if len(lines) == cache.ways:
                written += len(lines.popitem(last=False)[1]["dirty"])
            lines[line] = {"used": set(), "dirty": set(), "filled": set()}
        lines.move_to_end(line)
        entry = lines[line]
        if read and sector in entry["used"]:
            hits += 1
        elif read:
            grain = sector // per_fill
            filled += grain not in entry["filled"]
            entry["filled"].add(grain)
        entry["used"].add(sector)
        if write:
            entry["dirty"].add(sector)
    dirty = sum(len(entry["dirty"]) for entry in lines.values())
    return filled * cache.fill, (written + dirty) * SECTOR, dirty * SECTOR, hits


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.tuples(st.integers(0, 39), st.sampled_from(["read", "write", "atomic"])), max_size=120),
    st.sampled_from([32, 64, 128]),
    st.integers(1, 6),
)
def test_replay_agrees_with_one_access_at_a_time(accesses, fill, ways):
    cache = CacheSizes(size=ways * 128, line=128, fill=fill, ways=ways, parts=1, units=1)
    sectors = np.array([sector for sector, _ in accesses], np.int64)
    kinds = np.array([kind for _, kind in accesses], object)
    made = Stream(sectors, kinds != "write", kinds != "read", np.zeros(len(sectors), np.int64))
    found = replay(made, cache)
    assert (found.read_bytes, found.written_bytes, found.dirty_bytes, found.read_hits) == one_at_a_time(made, cache)


def test_the_line_that_was_used_last_stays():
    lines = [0, 1, 2, 3, 0, 4, 0, 1]  # 4 lines fit: 4 evicts 1, so that 1 misses again and 0 does not
    found = replay(stream([4 * line for line in lines]), ONE_SET)
    assert found.read_hits == 2
    assert found.read_bytes == 6 * 32


def test_only_the_sectors_of_a_line_that_are_read_are_fetched():
    assert replay(stream([0, 1, 0, 1]), ONE_SET).read_bytes == 64
    assert replay(stream([0, 1, 0, 1]), replace(ONE_SET, fill=128)).read_bytes == 128


def test_a_dirty_sector_is_written_once_however_often_it_changes():
    found = replay(stream([5] * 10, writes=range(10)), ONE_SET)
    assert (found.written_bytes, found.dirty_bytes, found.read_bytes) == (32, 32, 0)


def test_what_was_evicted_dirty_is_written_and_read_again():
    lines = [0, 1, 2, 3, 4, 0]
    found = replay(stream([4 * line for line in lines], writes=[0]), ONE_SET)
    assert found.written_bytes == 32
    assert found.dirty_bytes == 0
    assert found.read_bytes == 5 * 32  # lines 1 to 4, and 0 when it comes back


@pytest.mark.parametrize("sets", [16, 20, 1])
def test_a_contiguous_array_of_the_size_of_the_cache_fits(sets):
    cache = CacheSizes(size=sets * 4 * 128, line=128, fill=32, ways=4, parts=1, units=1)
    sectors = np.tile(np.arange(cache.size // SECTOR), 2) + 1000 * sets * 4
    assert replay(stream(sectors), cache).read_bytes == cache.size


def test_strides_of_the_number_of_sets_do_not_all_fall_into_one_set():
    cache = CacheSizes(size=64 * 4 * 128, line=128, fill=32, ways=4, parts=1, units=1)
    lines = np.tile(np.arange(64) * 64, 4)
    assert replay(stream(4 * lines), cache).read_hit_rate > 0.5


def test_parts_do_not_see_each_other():
    both = stream([0, 0])
    assert replay(both, ONE_SET).read_bytes == 32
    assert replay(replace(both, part=np.array([0, 1])), replace(ONE_SET, parts=2, size=2048)).read_bytes == 64


def test_an_empty_stream_costs_nothing():
    assert replay(stream([]), ONE_SET).bytes == 0
    assert replay(stream([]), ONE_SET).read_hit_rate == 1.0


def test_blocks_that_are_there_together_take_turns():
    record = [(turn, np.array([0, 1, 2, 3]), 10 * turn + np.arange(4), True, False) for turn in range(2)]
    assert stream_of(record, parts=1, resident=4).sector.tolist() == [0, 1, 2, 3, 10, 11, 12, 13]
    assert stream_of(record, parts=1, resident=1).sector.tolist() == [0, 10, 1, 11, 2, 12, 3, 13]
    assert stream_of(record, parts=1, resident=2).sector.tolist() == [0, 1, 10, 11, 2, 3, 12, 13]
    assert stream_of(record, parts=2, resident=4).part.tolist() == [0, 1, 0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("target", MODELS)
def test_a_copy_reads_and_writes_every_byte_once(target):
    n = 1 << 15
    x, out = torch.zeros(n), torch.zeros(n)
    with virtual_gpu(target, l2=True) as gpu:
        copy_kernel[(n // 1024,)](x, out, STEP=1, BLOCK=1024)
    found = l2_traffic(gpu.last)
    assert (found.read_bytes, found.written_bytes) == (4 * n, 4 * n)
    assert found.reads == found.writes == 4 * n // SECTOR
    assert found.read_hits == 0


@pytest.mark.parametrize(("target", "fetched"), [("sm_80", 32), ("gfx90a", 64), ("gfx942", 128)])
def test_a_strided_read_fetches_a_whole_grain_for_each_word(target, fetched):
    x, out = torch.zeros(256 * 32), torch.zeros(256)
    with virtual_gpu(target, l2=True) as gpu:
        copy_kernel[(1,)](x, out, STEP=32, BLOCK=256)
    assert l2_traffic(gpu.last).read_bytes == 256 * fetched


@pytest.mark.parametrize(("target", "times"), [("sm_80", 1), ("gfx90a", 1), ("gfx942", 8), ("gfx950", 8)])
def test_what_all_programs_read_is_fetched_once_for_each_part_of_the_l2(target, times):
    x, out = torch.zeros(16 * 256), torch.zeros(32 * 256)
    with virtual_gpu(target, l2=True) as gpu:
        row_kernel[(32,)](x, out, ROUNDS=16, BLOCK=256)
    found = l2_traffic(gpu.last)
    assert found.read_bytes == times * 4 * x.numel()
    assert found.read_hit_rate == 1 - times / 32


def test_a_cache_too_small_for_what_is_shared_reads_it_again_for_each_program():
    x, out = torch.zeros(16 * 256), torch.zeros(8 * 256)
    with virtual_gpu("sm_80", l2=True) as gpu:
        row_kernel[(8,)](x, out, ROUNDS=16, BLOCK=256)
    small = replace(L2_OF_TARGET["sm_80"].sizes, size=8 * 1024, ways=64)
    assert l2_traffic(gpu.last, small, resident=1).read_bytes == 8 * 4 * x.numel()
    assert l2_traffic(gpu.last, small, resident=8).read_bytes == 4 * x.numel()  # side by side they share each block


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_an_atomic_reads_and_writes_in_the_l2(target):
    out = torch.zeros(64, dtype=torch.int32)
    with virtual_gpu(target, l2=True) as gpu:
        count_kernel[(1,)](out, BLOCK=64)
    found = l2_traffic(gpu.last)
    assert (found.read_bytes, found.written_bytes) == (256, 256)


def test_the_stream_does_not_depend_on_how_blocks_are_batched_or_where_tensors_lie(monkeypatch):
    from gpu_utils.virtual import gpu as gpu_module

    def run():
        x, out = torch.zeros(16 * 256), torch.zeros(32 * 256)
        with virtual_gpu("gfx942", l2=True) as gpu:
            row_kernel[(32,)](x, out, ROUNDS=16, BLOCK=256)
        return stream_of(gpu.counters.record, 8, 4)

    first = run()
    monkeypatch.setattr(gpu_module, "MAX_WAVES", 12)
    second = run()
    for name in ("sector", "read", "write", "part"):
        assert np.array_equal(getattr(first, name), getattr(second, name))


def test_recording_changes_no_counter_and_its_absence_is_said():
    x, out = torch.zeros(4096), torch.zeros(4096)
    with virtual_gpu("gfx90a") as plain:
        copy_kernel[(4,)](x, out, STEP=1, BLOCK=1024)
    with virtual_gpu("gfx90a", l2=True) as recorded:
        copy_kernel[(4,)](x, out, STEP=1, BLOCK=1024)
    assert plain.counters.totals() == recorded.counters.totals()
    with pytest.raises(BadArgument, match=r"copy_kernel were not recorded.*l2=True"):
        l2_traffic(plain.last)


def test_every_target_has_an_l2_and_every_figure_a_source_or_a_reason():
    assert set(L2_OF_TARGET) == set(MODELS)
    for cache in L2_OF_TARGET.values():
        for name in ("size", "line", "fill", "ways", "parts", "units", "l1_line"):
            figure = getattr(cache, name)
            assert figure.source if figure.value is not None else figure.note
        assert cache.sizes.size > 0
    assert L2_OF_TARGET["gfx942"].sizes.size == CHIPS["MI300X"].l2_mb.value * 2**20
    assert L2_OF_TARGET["gfx1201"].sizes.size == DEFAULTS["size"] * 2**20


def test_the_counters_use_the_line_that_the_registry_gives():
    for target, model in MODELS.items():
        line = L2_OF_TARGET[target].l1_line.value
        assert line is None or line == model.segment
