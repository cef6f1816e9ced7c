"""cp.async, mbarrier, tensor maps and bulk tensor copies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ptx_harness import HEADER, launch

from gpu_utils import virtual_gpu
from gpu_utils.errors import OutOfBounds
from gpu_utils.virtual.ptx import tensor
from gpu_utils.virtual.ptx.asynchronous import CP_ASYNC_FORMS, pack, settle, unpack


@pytest.mark.parametrize("form", CP_ASYNC_FORMS)
@pytest.mark.parametrize("size", [4, 8, 16])
def test_cp_async_copies_and_fills_with_zeros(form, size):
    if ".cg" in form and size != 16:
        size = 16
    data = np.random.default_rng(0).integers(1, 256, (32, size), np.uint8)
    limits = np.array([size, 0, 1, size - 1] * 8, np.uint32)
    out = np.zeros((32, size), np.uint8)
    lines = [f"{form} [%s], [%a], {size}, %l; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;"]
    lines += [f"ld.shared.b8 %b, [%s+{i}]; st.global.b8 [%o+{i}], %b;" for i in range(size)]
    text = HEADER + f""".visible .entry k(.param .u64 data, .param .u64 limits, .param .u64 out) {{
      .reg .b32 %t, %s, %l; .reg .b64 %a, %o; .reg .b16 %b; .shared .align 16 .b8 tile[{32 * size}]; mov.u32 %t, %tid.x;
      ld.param.u64 %a, [limits]; mad.wide.u32 %a, %t, 4, %a; ld.global.u32 %l, [%a]; ld.param.u64 %a, [data];
      mad.wide.u32 %a, %t, {size}, %a; ld.param.u64 %o, [out]; mad.wide.u32 %o, %t, {size}, %o;
      mul.lo.u32 %s, %t, {size};
      add.u32 %s, %s, tile;""" + "\n".join(lines) + "\nret; }"  # fmt: skip
    launch(text, [data, limits, out])
    assert (out == np.where(np.arange(size) < limits[:, None], data, 0)).all()


def test_an_mbarrier_completes_a_phase_when_arrivals_and_bytes_are_there():
    word = pack(0, 0, 2, 2)
    phase, pending_bytes, expected, pending = unpack(word)
    assert (phase, pending_bytes, expected, pending) == (0, 0, 2, 2)
    word = settle(0, 64, 2, 1)
    word = settle(*unpack(word)[:3], 0)
    assert unpack(word) == (0, 64, 2, 0)
    phase, _, expected, pending = unpack(word)
    assert unpack(settle(phase, 0, expected, pending)) == (1, 0, 2, 2)


def test_a_copy_may_come_before_the_bytes_are_announced():
    assert unpack(settle(0, -32, 1, 1)) == (0, -32, 1, 1)


def test_warps_wait_at_an_mbarrier_for_the_arrivals_of_the_others():
    out = np.zeros(64, np.uint32)
    text = (
        HEADER
        + """.visible .entry k(.param .u64 out) { .reg .b32 %t, %v; .reg .b64 %a; .reg .pred %p, %w, %first;
      .shared .align 8 .b64 bar; .shared .align 4 .b32 cell; mov.u32 %t, %tid.x; setp.eq.u32 %first, %t, 0;
      @%first mbarrier.init.shared::cta.b64 [bar], 32; bar.sync 0; setp.ge.u32 %p, %t, 32; @%p bra PRODUCE;
      WAIT: mbarrier.try_wait.parity.shared::cta.b64 %w, [bar], 0; @!%w bra WAIT; ld.shared.u32 %v, [cell]; bra END;
      PRODUCE: st.shared.u32 [cell], 5; mbarrier.arrive.shared::cta.b64 _, [bar]; mov.b32 %v, 6;
      END: ld.param.u64 %a, [out]; mad.wide.u32 %a, %t, 4, %a; st.global.u32 [%a], %v; ret; }"""
    )
    launch(text, [out], block=(64, 1, 1))
    assert out.tolist() == [5] * 32 + [6] * 32


def test_mbarrier_test_wait_and_counts_work_on_state_tokens():
    out = np.zeros(2, np.uint32)
    text = (
        HEADER
        + """.visible .entry k(.param .u64 out) { .reg .b32 %v, %x; .reg .b64 %a, %s; .reg .pred %p, %w;
      .shared .align 8 .b64 bar; mov.u32 %x, %tid.x; setp.eq.u32 %p, %x, 0; @!%p ret; mbarrier.init.shared.b64 [bar], 3;
      mbarrier.arrive.shared.b64 %s, [bar]; mbarrier.test_wait.shared.b64 %w, [bar], %s; selp.b32 %v, 1, 0, %w;
      ld.param.u64 %a, [out];
      st.global.u32 [%a], %v; mbarrier.arrive.shared.b64 _, [bar], 2; mbarrier.test_wait.shared.b64 %w, [bar], %s;
      selp.b32 %v, 1, 0, %w; st.global.u32 [%a+4], %v; mbarrier.inval.shared.b64 [bar]; ret; }"""
    )
    launch(text, [out])
    assert out.tolist() == [0, 1]


ROUND_TRIP = (
    HEADER
    + """.visible .entry k(.param .u64 from, .param .u64 to, .param .u64 out, .param .u32 x, .param .u32 y) {{
  .reg .b32 %t, %x, %y, %s, %v, %q; .reg .b64 %f, %g, %o; mov.u32 %q, 0; .reg .pred %one, %w;
  .shared .align 1024 .b8 tile[{size}];
  .shared .align 8 .b64 bar; mov.u32 %t, %tid.x; setp.eq.u32 %one, %t, 0; ld.param.u64 %f, [from];
  ld.param.u64 %g, [to];
  ld.param.u32 %x, [x]; ld.param.u32 %y, [y]; @%one mbarrier.init.shared::cta.b64 [bar], 1; bar.sync 0;
  @%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {size}; mov.u32 %s, tile;
  @%one cp.async.bulk.tensor.{rank}d.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%f, {{{corner}}}], [bar];
  WAIT: mbarrier.try_wait.parity.shared::cta.b64 %w, [bar], 0; @!%w bra WAIT;
  {dump}
  @%one cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%g, {{{corner}}}], [%s];
  cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; ret; }}"""
)


@pytest.mark.parametrize("wait", ["test_wait", "try_wait"])
def test_an_mbarrier_can_be_waited_for_by_its_token_in_every_phase(wait):
    out = np.zeros(64, np.uint32)
    text = (
        HEADER
        + f""".visible .entry k(.param .u64 out) {{
      .reg .b32 %t, %v; .reg .b64 %o, %token; .reg .pred %p, %q; .shared .align 8 .b64 bar; .shared .b32 box[64];
      mov.u32 %t, %tid.x; mov.b32 %v, box; mad.lo.u32 %v, %t, 4, %v; setp.eq.u32 %p, %t, 0;
      @%p mbarrier.init.shared.b64 [bar], 64; bar.sync 0;
      mbarrier.arrive.shared.b64 %token, [bar];
      one: mbarrier.{wait}.shared.b64 %q, [bar], %token; @!%q bra one;
      st.shared.b32 [%v], %t;
      mbarrier.arrive.shared.b64 %token, [bar];
      two: mbarrier.{wait}.shared.b64 %q, [bar], %token; @!%q bra two;
      xor.b32 %t, %t, 32; mov.b32 %v, box; mad.lo.u32 %v, %t, 4, %v; ld.shared.b32 %v, [%v];
      ld.param.u64 %o, [out]; mad.wide.u32 %o, %t, 4, %o;
      st.global.b32 [%o], %v; ret; }}"""
    )
    launch(text, [out], block=(64, 1, 1))
    assert sorted(out.tolist()) == list(range(64))


@pytest.mark.parametrize(("form", "arrivals"), [("", 0), (".noinc", 1)])
def test_an_arrival_after_copies_counts_only_when_the_text_says_noinc(form, arrivals):
    out = np.zeros(1, np.uint32)
    text = (
        HEADER
        + f""".visible .entry k(.param .u64 out) {{
      .reg .b32 %v; .reg .b64 %o; .reg .pred %q; .shared .align 8 .b64 bar;
      mbarrier.init.shared.b64 [bar], 1; cp.async.mbarrier.arrive{form}.shared::cta.b64 [bar];
      mbarrier.test_wait.parity.shared.b64 %q, [bar], 0; selp.b32 %v, 1, 0, %q;
      ld.param.u64 %o, [out]; st.global.b32 [%o], %v; ret; }}"""
    )
    launch(text, [out], block=(1, 1, 1))
    assert out[0] == arrivals


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize(("x", "y"), [(0, 0), (16, 8), (-16, 4), (48, 12)])
def test_a_box_is_copied_both_ways_and_cut_at_the_edges(rank, mode, x, y):
    """16-bit elements; rows of the box are as wide as the swizzle, so that 16-byte chunks move within 8 rows."""
    inner = {0: 16, 1: 16, 2: 32, 3: 64}[mode]
    shape, box = [(64,), (16, 64), (2, 16, 64)][rank - 1], [(inner,), (8, inner), (2, 8, inner)][rank - 1]
    source = np.random.default_rng(1).integers(1, 2**16, shape, np.uint16)
    target = np.zeros_like(source)
    size = int(np.prod(box)) * 2
    out = np.zeros(size // 2, np.uint16)
    dump = ["ld.param.u64 %o, [out];"]
    dump += [f"@%one ld.shared.b32 %v, [%s+{4 * i}]; @%one st.global.b32 [%o+{4 * i}], %v;" for i in range(size // 4)]
    maps = []
    for array in (source, target):
        strides = list(array.strides[::-1][1:])
        maps.append(tensor.encode(array.ctypes.data, list(shape)[::-1], strides, list(box)[::-1], 1, mode))
    corner = ["%x", "%x, %y", "%x, %y, %q"][rank - 1]
    text = ROUND_TRIP.format(size=size, rank=rank, corner=corner, dump="\n".join(dump))
    text = text.replace(".param .u32 y)", ".param .u32 y, .param .u64 a, .param .u64 b)")
    launch(text, [maps[0], maps[1], out, x, y, source, target])
    starts = [x, y, 0][:rank][::-1]
    want, copied = np.zeros(box, np.uint16), np.zeros_like(target)
    for index in np.ndindex(*box):
        place = tuple(s + i for s, i in zip(starts, index, strict=True))
        if all(0 <= p < n for p, n in zip(place, shape, strict=True)):
            want[index] = source[place]
            copied[place] = source[place]
    chunks = want.reshape(-1, inner).view(np.uint8).reshape(-1, inner // 8, 16)
    stored = out.view(np.uint8).reshape(chunks.shape)
    for row in range(len(chunks)):
        turn = {0: 0, 1: row % 8 // 4, 2: row % 8 // 2, 3: row % 8}[mode]
        for chunk in range(chunks.shape[1]):
            place = chunk ^ (turn % chunks.shape[1])
            assert (stored[row, place] == chunks[row, chunk]).all()
    assert (target == copied).all()


def test_a_tensor_map_that_reaches_past_its_tensor_is_out_of_bounds():
    source, out = np.zeros((16, 64), np.uint16), np.zeros(512, np.uint16)
    wrong = tensor.encode(source.ctypes.data, [64, 64], [128], [64, 8], 1, 0)
    text = ROUND_TRIP.format(size=1024, rank=2, corner="%x, %y", dump="").replace(
        ".param .u32 y)", ".param .u32 y, .param .u64 a)"
    )
    with pytest.raises(OutOfBounds, match="through a tensor map"):
        launch(text, [wrong, wrong, out, 0, 16, source])


def test_every_field_of_a_tensor_map_can_be_replaced():
    values = {"global_address": 0x123456789ABCDEF0, "rank": 3, "global_dim": 77, "box_dim": 33, "element_stride": 2,
              "interleave_layout": 1, "swizzle_mode": 3, "fill_mode": 1, "elemtype": 10,
              "global_stride": 0x1122334455667788}  # fmt: skip
    assert set(values) == set(tensor.FIELDS)
    lines = []
    for field, value in values.items():
        start, size, step = tensor.FIELDS[field]
        kind = "b64" if size == 8 else "b32"
        ordinal = "0x1, " if step else ""
        lines.append(f"mov.b64 %v, {value}; mov.b32 %w, {value & 0xFFFFFFFF};")
        operand = "%v" if size == 8 else value if size == 1 or field == "rank" else "%w"
        lines.append(f"@%one tensormap.replace.tile.{field}.shared::cta.b1024.{kind} [%s], {ordinal}{operand};")
    out = np.zeros(128, np.uint8)
    text = (
        HEADER
        + """.visible .entry k(.param .u64 out) { .reg .b32 %t, %w, %z, %a; .reg .b64 %s, %v, %o; .reg .pred %one;
      .shared .align 128 .b8 map[128]; mov.u32 %t, %tid.x; setp.eq.u32 %one, %t, 0; mov.u64 %s, map; mov.b32 %z, 0;
      mov.u32 %a, map; mad.lo.u32 %a, %t, 4, %a; st.shared.b32 [%a], %z; bar.warp.sync -1;"""
        + "\n".join(lines)
        + """
      bar.sync 0; ld.param.u64 %o, [out];
      tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%o], [%s], 128; ret; }"""
    )
    launch(text, [out])
    for field, value in values.items():
        start, size, step = tensor.FIELDS[field]
        assert int.from_bytes(out[start + step : start + step + size].tobytes(), "little") == value


@pytest.mark.parametrize(("op", "code", "dtype"), [
    ("add", 7, "f4"), ("add", 6, "f2"), ("min", 3, "i4"), ("max", 2, "u4"), ("max", 6, "f2"), ("and", 2, "u4"),
    ("or", 4, "u8"), ("xor", 2, "u4"), ("inc", 2, "u4"), ("dec", 2, "u4"), ("add", 9, "f8"),
])  # fmt: skip
def test_a_box_can_be_combined_with_what_is_there(op, code, dtype):
    shape, box = (8, 32), (8, 16)
    draw = np.random.default_rng(2)
    source, target = (draw.integers(0, 50, shape).astype(dtype) for _ in range(2))
    before, size = target.copy(), int(np.prod(box)) * source.dtype.itemsize
    maps = [tensor.encode(a.ctypes.data, [32, 8], [a.strides[0]], [16, 8], code, 0) for a in (source, target)]
    text = ROUND_TRIP.format(size=size, rank=2, corner="%x, %y", dump="").replace(
        ".param .u32 y)", ".param .u32 y, .param .u64 a, .param .u64 b)"
    )
    text = text.replace(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group",
        f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{op}.bulk_group",
    )
    launch(text, [maps[0], maps[1], np.zeros(1, np.uint16), 16, 0, source, target])
    old, new = before[:, 16:], source[:, 16:]
    want = {
        "add": lambda: old + new, "min": lambda: np.minimum(old, new), "max": lambda: np.maximum(old, new),
        "and": lambda: old & new, "or": lambda: old | new, "xor": lambda: old ^ new,
        "inc": lambda: np.where(old >= new, 0, old + 1), "dec": lambda: np.where((old == 0) | (old > new), new,
        old - 1),
    }[op]()  # fmt: skip
    assert (target[:, 16:] == want).all()
    assert (target[:, :16] == before[:, :16]).all()


PLAIN_BULK = """.version 8.0
.target sm_90
.address_size 64
.shared .align 16 .b8 kept[256];
.shared .align 8 .b64 bar;
.visible .entry k(.param .u64 x, .param .u64 y)
{{
  .reg .u64 %x, %y, %s; .reg .u32 %t; .reg .pred %p, %q;
  ld.param.u64 %x, [x]; ld.param.u64 %y, [y];
  mov.u32 %t, %tid.x; setp.ne.u32 %p, %t, 0; @%p bra END;
  mbarrier.init.shared.b64 [bar], 1;
  mbarrier.arrive.expect_tx.shared.b64 %s, [bar], {bytes};
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [kept], [%x+{skip}], {bytes}, [bar];
WAIT: mbarrier.try_wait.shared.b64 %q, [bar], %s; @!%q bra WAIT;
  cp.async.bulk.global.shared::cta.bulk_group [%y], [kept], {bytes};
  cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END: ret;
}}
"""


@pytest.mark.parametrize(("skip", "size"), [(0, 256), (16, 16), (32, 112)])
def test_a_plain_bulk_copy_goes_there_and_back(skip, size):
    x, y = torch.arange(300, dtype=torch.uint8), torch.zeros(256, dtype=torch.uint8)
    with virtual_gpu("sm_90", sanitize=True) as gpu:
        gpu.load(PLAIN_BULK.format(bytes=size, skip=skip)).launch("k", 1, 32, [x, y])
    assert torch.equal(y[:size], x[skip : skip + size])
    assert not y[size:].any()


def test_a_plain_bulk_copy_is_checked():
    x, y = torch.zeros(64, dtype=torch.uint8), torch.zeros(256, dtype=torch.uint8)
    for skip, size, says in ((0, 128, "reads by a bulk copy"), (8, 16, "multiples of 16")):
        with virtual_gpu("sm_90") as gpu, pytest.raises(OutOfBounds, match=says):
            gpu.load(PLAIN_BULK.format(bytes=size, skip=skip)).launch("k", 1, 32, [x, y])
