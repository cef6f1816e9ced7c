"""Memory instructions of AMDGCN: every width and every atomic of the tables, addressing, range checks, scratch, fp8."""

import numpy as np
import pytest
import torch

from gpu_utils.analytic.access import SHAPES
from gpu_utils.errors import OutOfBounds, VirtualGpuError
from gpu_utils.virtual.amdgcn import decode, fp8, new_state
from gpu_utils.virtual.amdgcn.mem import ATOMIC, WIDTHS
from gpu_utils.virtual.amdgcn.state import SGPR
from gpu_utils.virtual.counters import Counters
from gpu_utils.virtual.global_memory import Memory
from gpu_utils.virtual.isa import Launch
from gpu_utils.virtual.machine import run_batches
from gpu_utils.virtual.models import MODELS
from gpu_utils.virtual.regions import Region

from .single import execute, with_info

LANE = np.arange(64)[None]


def run_on(target, lines, registers, buffers, races=True):
    """Execute instructions with NumPy arrays as tensors; an int64 register value is an address and fills two."""
    text = "kernel:\n" + "".join(f"\t{line}\n" for line in lines) + "\ts_endpgm\n"
    program = decode(text, target, "kernel")
    program = with_info(program, vgprs=max(program.info.vgprs, 24))
    memory = Memory(races)
    for name, array in buffers.items():
        memory.add(Region(name, array.ctypes.data, array.nbytes, "tensor", array))
    launch = Launch(
        "kernel", target, program, (1, 1, 1), (program.lanes, 1, 1), np.zeros(64, np.uint8), memory,
        Counters(program, SHAPES[target]), 4096, MODELS[target],
    )  # fmt: skip
    state = new_state(program, launch, np.zeros((1, 3), np.int64), 1)
    for name, value in registers.items():
        row = int(name[1:]) + (SGPR if name[0] == "s" else 0)
        value = np.asarray(value)
        if value.dtype == np.int64:
            value = np.broadcast_to(value, (1, 1 if name[0] == "s" else program.lanes))
            state.U[row][...] = value & 0xFFFFFFFF
            state.U[row + 1][...] = value >> 32
        else:
            state.U[row][...] = value
    run_batches(iter([state]))
    return state


def address(array, step):
    return np.int64(array.ctypes.data) + LANE.astype(np.int64) * step


LDS = {"u16_d16": "lo", "u16_d16_hi": "hi", "u8_d16": "lo", "u8_d16_hi": "hi", "i8_d16": "lo", "i8_d16_hi": "hi"}
STORES = {"byte", "b8", "short", "b16", "byte_d16_hi", "d16_hi_b8", "b8_d16_hi", "b16_d16_hi"}
LOADS = sorted(set(WIDTHS) - set(LDS) - STORES)


def lanes_of(target):
    return LANE[:, :32] if target.startswith("gfx1") else LANE


@pytest.mark.parametrize("name", LOADS)
def test_global_loads_of_every_width(name):
    width = WIDTHS[name]
    new = (name[0] in "bdiu" and name[1] in "0123456789") or name.startswith("d16")
    target, instruction = ("gfx1100" if new else "gfx942"), f"global_load_{name}"
    memory = np.random.default_rng(1).integers(0, 256, 4096, dtype=np.uint8)
    size = width.width * width.count
    where = np.int64(memory.ctypes.data) + lanes_of(target).astype(np.int64) * size
    out = "v4" if width.count == 1 else f"v[4:{3 + width.count}]"
    state = run_on(target, [f"{instruction} {out}, v[2:3], off"], {"v2": where, "v4": 0xAAAABBBB}, {"x": memory})
    raw = memory[: size * lanes_of(target).size].reshape(-1, width.count, width.width)
    for lane, parts in enumerate(raw):
        for i, part in enumerate(parts):
            value = int.from_bytes(part.tobytes(), "little", signed=width.signed) & 0xFFFFFFFF
            if width.half == "lo":
                value = 0xAAAA0000 | value & 0xFFFF
            elif width.half == "hi":
                value = 0xBBBB | (value & 0xFFFF) << 16
            assert int(state.U[4 + i][0, lane]) == value, (lane, i)


@pytest.mark.parametrize(("instruction", "size", "shift", "target"), [
    ("global_store_byte", 1, 0, "gfx942"), ("global_store_short", 2, 0, "gfx942"), ("global_store_dword", 4, 0,
    "gfx942"),
    ("global_store_dwordx2", 8, 0, "gfx942"), ("global_store_dwordx3", 12, 0, "gfx942"), ("global_store_dwordx4", 16,
    0, "gfx942"),
    ("global_store_byte_d16_hi", 1, 16, "gfx942"), ("global_store_short_d16_hi", 2, 16, "gfx942"),
    ("global_store_b8", 1, 0, "gfx1100"), ("global_store_b16", 2, 0, "gfx1100"), ("global_store_b128", 16, 0,
    "gfx1100"),
    ("global_store_d16_hi_b8", 1, 16, "gfx1100"), ("global_store_d16_hi_b16", 2, 16, "gfx1100"),
])  # fmt: skip
def test_global_stores_of_every_width(instruction, size, shift, target):
    lanes = lanes_of(target)
    memory = np.zeros(64 * 16, np.uint8)
    data = np.random.default_rng(2).integers(0, 2**32, (4, lanes.size), dtype=np.uint32)
    words = max(1, size // 4)
    source = "v4" if words == 1 else f"v[4:{3 + words}]"
    registers = {"v2": np.int64(memory.ctypes.data) + lanes.astype(np.int64) * size} | {
        f"v{4 + i}": data[i][None] for i in range(4)
    }
    run_on(target, [f"{instruction} v[2:3], {source}, off"], registers, {"x": memory})
    for lane in range(lanes.size):
        want = (data[0, lane] >> np.uint32(shift)).tobytes()[:size] if size <= 4 else data[:words, lane].tobytes()
        assert memory[lane * size : (lane + 1) * size].tobytes() == want


def test_a_scalar_base_with_a_vector_offset_and_a_constant():
    memory = np.arange(256, dtype=np.uint32)
    registers = {"v2": (LANE * 4).astype(np.uint32), "s4": np.int64(memory.ctypes.data)}
    state = run_on("gfx942", ["global_load_dword v4, v2, s[4:5] offset:40"], registers, {"x": memory})
    assert state.U[4][0].tolist() == list(range(10, 74))


def buffer_registers(memory, records, offsets):
    base = memory.ctypes.data
    return {"s4": np.uint32(base & 0xFFFFFFFF), "s5": np.uint32(base >> 32), "s6": np.uint32(records),
    "s7": np.uint32(0x27000),
            "v2": offsets.astype(np.uint32)}  # fmt: skip


def test_a_buffer_load_past_its_records_reads_zero_and_a_store_is_dropped():
    memory = np.arange(1, 65, dtype=np.uint32)
    registers = buffer_registers(memory, 100, LANE * 4) | {"v4": np.uint32(7)}
    state = run_on(
        "gfx942",
        ["buffer_load_dword v5, v2, s[4:7], 0 offen", "buffer_store_dword v4, v2, s[4:7], 0 offen"],
        registers,
        {"x": memory},
    )
    assert state.U[5][0].tolist() == [i + 1 if i < 25 else 0 for i in range(64)]
    assert memory.tolist() == [7 if i < 25 else i + 1 for i in range(64)]


# target, a load of one word, a load of four, "no scalar offset", the last word of a raw descriptor
BUFFERS = [
    *((target, "buffer_load_dword", "buffer_load_dwordx4", "0", 0x27000) for target in ("gfx90a", "gfx942", "gfx950")),
    ("gfx1100", "buffer_load_b32", "buffer_load_b128", "0", 0x31027000),
    ("gfx1201", "buffer_load_b32", "buffer_load_b128", "null", 0x31027000),
]
each_buffer = pytest.mark.parametrize(("target", "load", "load4", "zero", "last"), BUFFERS)


def buffer_of(array, records, last, stride=0, **more):
    """Registers s4 to s7: a descriptor of an array."""
    low, high = np.int64(array.ctypes.data) & 0xFFFFFFFF, np.int64(array.ctypes.data) >> 32
    words = (low, high | stride << 16, records, last)
    return {f"s{4 + i}": np.uint32(word) for i, word in enumerate(words)} | more


@each_buffer
def test_the_offset_and_the_immediate_of_a_buffer_access_wrap_at_32_bits(target, load, load4, zero, last):
    memory = np.arange(512, dtype=np.uint32)
    lane = lanes_of(target).astype(np.uint32)
    registers = buffer_of(memory, memory.nbytes, last, v2=lane * 4 - np.uint32(1024))
    state = run_on(target, [f"{load} v5, v2, s[4:7], {zero} offen offset:1280"], registers, {"x": memory})
    assert (state.U[5] == lane + 64).all()


@each_buffer
def test_the_scalar_offset_of_a_buffer_access_does_not_wrap(target, load, load4, zero, last):
    memory = np.arange(512, dtype=np.uint32)
    registers = buffer_of(memory, memory.nbytes, last, v2=np.uint32(1024), s8=np.uint32(0xFFFFFF00), v5=np.uint32(9))
    state = run_on(target, [f"{load} v5, v2, s[4:7], s8 offen"], registers, {"x": memory})
    assert (state.U[5] == 0).all()  # 1024 - 256 would lie within
    state = run_on(target, [f"{load} v5, v2, s[4:7], s8 offen"], {**registers, "s8": np.uint32(256)}, {"x": memory})
    assert (state.U[5] == 320).all()


@each_buffer
def test_a_wide_buffer_access_is_checked_word_by_word(target, load, load4, zero, last):
    memory = np.arange(1, 513, dtype=np.uint32)
    lane = lanes_of(target).astype(np.uint32)
    registers = buffer_of(memory, 8 * 4, last, v2=lane * 4)
    state = run_on(target, [f"{load4} v[5:8], v2, s[4:7], {zero} offen"], registers, {"x": memory})
    for i in range(4):
        assert (state.U[5 + i] == np.where(lane + i < 8, lane + i + 1, 0)).all()
    data = {f"v{5 + i}": np.uint32(100 + i) for i in range(4)}
    store = load4.replace("load", "store")
    run_on(target, [f"{store} v[5:8], v2, s[4:7], {zero} offen"], {**registers, **data}, {"x": memory}, races=False)
    assert (memory[8:] == np.arange(9, 513)).all()
    assert memory[7] != 8


@each_buffer
def test_a_structured_buffer_counts_records_of_its_stride(target, load, load4, zero, last):
    memory = np.arange(512, dtype=np.uint32)
    lane = lanes_of(target).astype(np.uint32)
    registers = buffer_of(memory, 4, last & ~(3 << 28), stride=16, v2=lane, v3=np.uint32(4))
    state = run_on(target, [f"{load} v5, v[2:3], s[4:7], {zero} idxen offen offset:4"], registers, {"x": memory})
    assert (state.U[5] == np.where(lane < 4, lane * 4 + 2, 0)).all()
    state = run_on(target, [f"{load} v5, v2, s[4:7], {zero} idxen offset:16"], registers, {"x": memory})
    beyond = lane * 4 + 4 if target.startswith("gfx9") else 0  # gfx9 looks at the index alone
    assert (state.U[5] == np.where(lane < 4, beyond, 0)).all()


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_the_last_word_of_a_descriptor_selects_the_range_check(target):
    memory = np.arange(512, dtype=np.uint32)
    zero = "null" if target == "gfx1201" else "0"

    def load(select, records):
        registers = buffer_of(memory, records, 0x27000 | select << 28, v2=np.uint32(64))
        return run_on(target, [f"buffer_load_b32 v5, v2, s[4:7], {zero} offen"], registers, {"x": memory}).U[5][0, 0]

    assert load(3, 68) == 16
    assert load(3, 67) == 0
    assert load(2, 1) == 16  # anything but no records at all
    assert load(2, 0) == 0
    assert load(1, 1) == 16  # the index, which is 0, is below the records
    assert load(0, 68) == 0  # past the stride, which is 0


@each_buffer
def test_a_buffer_that_adds_the_lane_is_refused_by_name(target, load, load4, zero, last):
    memory = np.arange(512, dtype=np.uint32)
    registers = buffer_of(memory, 64, last | 1 << 23, v2=np.uint32(0))
    with pytest.raises(VirtualGpuError, match="swizzled or adds the lane"):
        run_on(target, [f"{load} v5, v2, s[4:7], {zero} offen"], registers, {"x": memory})


def test_a_buffer_address_sums_its_parts():
    memory = np.arange(256, dtype=np.uint32)
    registers = buffer_registers(memory, 1024, LANE * 4) | {"s8": np.uint32(16)}
    state = run_on("gfx942", ["buffer_load_dword v5, v2, s[4:7], s8 offen offset:8"], registers, {"x": memory})
    assert state.U[5][0].tolist() == list(range(6, 70))


def test_a_load_straight_into_lds():
    memory = np.arange(64, dtype=np.uint32) * 3
    registers = buffer_registers(memory, 256, LANE * 4) | {
        "s8": np.uint32(128),
        "v6": (LANE * 4 + 128).astype(np.uint32),
    }
    lines = ["s_mov_b32 m0, s8", "buffer_load_dword v2, s[4:7], 0 offen lds", "ds_read_b32 v7, v6"]
    assert run_on("gfx942", lines, registers, {"x": memory}).U[7][0].tolist() == [3 * i for i in range(64)]


REFERENCE = {
    "add": lambda old, v, bits: old + v, "sub": lambda old, v, bits: old - v, "and": lambda old, v, bits: old & v,
    "or": lambda old, v, bits: old | v, "xor": lambda old, v, bits: old ^ v, "exch": lambda old, v, bits: v,
    "umin": lambda old, v, bits: min(old, v), "umax": lambda old, v, bits: max(old, v),
    "smin": lambda old, v, bits: min(old, v, key=lambda x: signed(x, bits)),
    "smax": lambda old, v, bits: max(old, v, key=lambda x: signed(x, bits)),
    "inc": lambda old, v, bits: 0 if old >= v else old + 1, "dec": lambda old, v,
    bits: v if old == 0 or old > v else old - 1,
}  # fmt: skip


def signed(x, bits):
    return x - (1 << bits) if x >> (bits - 1) else x


def floats(kind, width):
    if kind.startswith("pk"):
        return np.float16 if kind.endswith("f16") and "bf" not in kind else None
    return {4: np.float32, 8: np.float64}[width]


@pytest.mark.parametrize("name", sorted(ATOMIC))
def test_global_atomics_of_every_kind(name):
    kind, width = ATOMIC[name]
    if kind.startswith("pk"):
        check_packed(name)
        return
    random = np.random.default_rng(4)
    bits, slots = 8 * width, 5
    if kind[0] == "f":
        dtype = floats(kind, width)
        memory = random.integers(-50, 50, slots).astype(dtype)
        data = random.integers(-50, 50, 64).astype(dtype)
        function = {"fadd": lambda a, b: a + b, "fmin": min, "fmax": max}[kind]
        want, old = memory.copy(), np.zeros(64, dtype)
    else:
        dtype = f"u{width}"
        memory = random.integers(0, 1 << (bits - 1), slots, dtype=np.uint64).astype(dtype) * 2
        data = random.integers(0, 1 << (bits - 1), 64, dtype=np.uint64).astype(dtype) * 2
        function = None
        want, old = memory.copy(), np.zeros(64, dtype)
    place = np.arange(64) * 7 % slots
    expected = np.where(np.arange(64) % 2, memory[place], memory[place] + memory.dtype.type(1))
    for lane, slot in enumerate(place):
        old[lane] = want[slot]
        if kind == "cas":
            want[slot] = data[lane] if want[slot] == expected[lane] else want[slot]
        elif function:
            want[slot] = function(want[slot], data[lane])
        else:
            want[slot] = REFERENCE[kind](int(want[slot]), int(data[lane]), bits) & ((1 << bits) - 1)
    words, compare = data.view(np.uint32).reshape(64, -1).T, expected.view(np.uint32).reshape(64, -1).T
    registers = {"v2": (np.int64(memory.ctypes.data) + place * width)[None]}
    registers |= {f"v{6 + i}": w[None] for i, w in enumerate([*words, *compare])}
    last = 5 + len(words) * (2 if kind == "cas" else 1)
    out = "v12" if width == 4 else "v[12:13]"
    source = "v6" if last == 6 else f"v[6:{last}]"
    state = run_on("gfx942", [f"global_atomic_{name} {out}, v[2:3], {source}, off sc0"], registers, {"x": memory})
    got = state.U[12][0] if width == 4 else np.ascontiguousarray(state.pair(12)[0])
    assert np.array_equal(got.view(dtype), old)
    assert np.array_equal(memory, want)


def check_packed(name):
    dtype = torch.bfloat16 if "bf16" in name else torch.float16
    memory, data = torch.tensor([1.5, -2.0]).to(dtype), torch.arange(128).remainder(7).to(dtype)
    want = memory.clone()
    for lane in range(64):
        want += data[2 * lane : 2 * lane + 2]
    raw = memory.view(torch.uint16).numpy()
    words = data.view(torch.uint16).numpy().view(np.uint32)[None]
    registers = {"v2": np.full((1, 64), raw.ctypes.data, np.int64), "v6": words}
    run_on("gfx942", [f"global_atomic_{name} v[2:3], v6, off"], registers, {"x": raw})
    assert torch.equal(memory, want)


def test_an_access_past_a_tensor_names_it():
    memory = np.zeros(16, np.uint32)
    with pytest.raises(OutOfBounds, match=r"lane 16 .*reads 4 bytes at byte offset 64 of x, which has 64 bytes"):
        run_on("gfx942", ["global_load_dword v4, v[2:3], off"], {"v2": address(memory, 4)}, {"x": memory})


def test_scalar_loads_fill_consecutive_registers():
    memory = np.arange(32, dtype=np.uint32)
    lines = ["s_load_dwordx4 s[8:11], s[4:5], 0x10", "s_load_dwordx2 s[12:13], s[4:5], s6 offset:0x8"]
    state = run_on("gfx942", lines, {"s4": np.int64(memory.ctypes.data), "s6": np.uint32(32)}, {"x": memory})
    assert [int(state.U[SGPR + i][0, 0]) for i in range(8, 14)] == [4, 5, 6, 7, 10, 11]


def test_unaligned_loads_are_allowed_as_on_the_hardware():
    memory = np.arange(256, dtype=np.uint8)
    state = run_on("gfx942", ["global_load_dword v4, v[2:3], off"], {"v2": address(memory, 3)}, {"x": memory})
    assert int(state.U[4][0, 1]) == 0x06050403


@pytest.mark.parametrize("name", sorted(LDS))
def test_lds_loads_into_halves(name):
    lines = ["ds_write_b32 v0, v1", f"ds_read_{name} v2, v0"]
    state = execute(
        "gfx942", lines, {"v0": (LANE * 4).astype(np.uint32), "v1": 0x123489AB, "v2": 0xAAAABBBB}, shared=256
    )
    value = {"u": 0x89AB if name.startswith("u16") else 0xAB, "i": 0xFFAB}[name[0]]
    assert (state.U[2] == (0xAAAA0000 | value if LDS[name] == "lo" else value << 16 | 0xBBBB)).all()


DS_ATOMICS = [
    ("ds_add_u32", "add"), ("ds_sub_u32", "sub"), ("ds_and_b32", "and"), ("ds_or_b32", "or"), ("ds_xor_b32", "xor"),
    ("ds_min_u32", "umin"),
    ("ds_max_u32", "umax"), ("ds_min_i32", "smin"), ("ds_max_i32", "smax"), ("ds_inc_u32", "inc"), ("ds_dec_u32",
    "dec"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), DS_ATOMICS)
def test_lds_atomics(name, kind):
    data = np.random.default_rng(3).integers(0, 2**32, 64, dtype=np.uint64)
    lines = ["v_mov_b32_e32 v0, 0", "ds_write_b32 v0, v3", f"{name} v0, v1", "ds_read_b32 v2, v0"]
    state = execute("gfx942", lines, {"v1": data[None].astype(np.uint32), "v3": 1000}, shared=64)
    want = 1000
    for value in data.tolist():
        want = REFERENCE[kind](want, value, 32) & 0xFFFFFFFF
    assert (state.U[2] == want).all()


def test_lds_compare_and_swap_takes_the_compare_value_first():
    lines = ["v_mov_b32_e32 v0, 0", "ds_write_b32 v0, v0", "ds_cmpst_rtn_b32 v3, v0, v1, v2", "ds_read_b32 v4, v0"]
    state = execute("gfx942", lines, {"v1": LANE.astype(np.uint32), "v2": (LANE + 1).astype(np.uint32)}, shared=64)
    assert state.U[3][0].tolist() == list(range(64))
    assert (state.U[4] == 64).all()


@pytest.mark.parametrize(("fnuz", "bits", "dtype"), [
    (True, 4, torch.float8_e4m3fnuz), (True, 5, torch.float8_e5m2fnuz), (False, 4, torch.float8_e4m3fn), (False, 5,
    torch.float8_e5m2),
])  # fmt: skip
def test_fp8_tables_are_those_of_the_formats(fnuz, bits, dtype):
    codes = torch.arange(256, dtype=torch.uint8)
    want = codes.view(dtype).float().numpy()
    assert np.array_equal(fp8.decode_table(fnuz, bits), want, equal_nan=True)
    x = torch.cat([torch.randn(20000) * s for s in (1e-4, 0.01, 1, 50)]).clamp(
        float(-want[np.isfinite(want)].max()), None
    )
    x = x.clamp(max=float(want[np.isfinite(want)].max()))
    middles = torch.from_numpy(want[np.isfinite(want)]).sort().values
    x = torch.cat([x, (middles[1:] + middles[:-1]) / 2])
    got = fp8.encode(x.numpy(), fnuz, bits, saturate=False).astype(np.uint8)
    assert np.array_equal(want[got], x.to(dtype).float().numpy())


def test_fp8_overflow_saturates_only_when_the_mode_says_so():
    big = np.array([1e6, -1e6, np.nan], np.float32)
    assert fp8.decode_table(True, 4)[fp8.encode(big, True, 4, saturate=True)][:2].tolist() == [240, -240]
    assert np.isnan(fp8.decode_table(True, 4)[fp8.encode(big, True, 4, saturate=False)]).all()
    assert np.isinf(fp8.decode_table(False, 5)[fp8.encode(big, False, 5, saturate=False)][:2]).all()


def test_fp8_pack_keeps_the_other_half():
    lines = [
        "v_cvt_pk_fp8_f32 v2, v0, v1",
        "v_cvt_pk_fp8_f32 v2, v1, v0 op_sel:[0,0,1]",
        "v_cvt_pk_f32_fp8_sdwa v[4:5], v2 src0_sel:WORD_1",
    ]
    registers = {"v0": np.float32(1.5).view(np.uint32), "v1": np.float32(-3).view(np.uint32), "v2": 0}
    state = execute("gfx942", lines, registers)
    assert (float(state.F[4][0, 0]), float(state.F[5][0, 0])) == (-3.0, 1.5)
    assert (state.U[2] & 0xFFFF == state.U[2] >> 16).sum() == 0


def test_scaled_conversions_of_gfx950():
    halves = (
        np.array([[1.5, -3.0]], np.float16).view(np.uint32)[0, 0],
        np.array([[0.5, 8.0]], np.float16).view(np.uint32)[0, 0],
    )
    lines = ["v_cvt_scalef32_pk_fp8_f16 v2, v0, 2.0", "v_cvt_scalef32_pk_fp8_f16 v2, v1, 2.0 op_sel:[0,0,1]",
             "v_cvt_scalef32_pk_f32_fp8 v[4:5], v2, 4.0 op_sel:[1,0,0]",
             "v_cvt_scalef32_pk_f32_fp8 v[6:7], v2, 1.0"]  # fmt: skip
    state = execute("gfx950", lines, {"v0": halves[0], "v1": halves[1], "v2": 0})
    assert [float(state.F[i][0, 0]) for i in range(4, 8)] == [1.0, 16.0, 0.75, -1.5]


@pytest.mark.parametrize("between", [[], ["s_nop 0"]])
def test_an_address_of_constant_data_counts_from_getpc(between):
    step = 4 * len(between)
    lines = ["s_getpc_b64 s[4:5]", *between, f"s_add_u32 s4, s4, table@rel32@lo+{4 + step + 8}",
             f"s_addc_u32 s5, s5, table@rel32@hi+{12 + step + 8}", "s_load_dword s6, s[4:5], 0x0"]  # fmt: skip
    body = "".join(f"\t{line}\n" for line in lines)
    text = f'kernel:\n{body}\ts_endpgm\n\t.section .rodata\ntable:\n\t.long 10\n\t.long 11\n\t.quad 12\n\t.asciz "ab"\n'
    program = decode(text, "gfx942", "kernel")
    memory = Memory()
    memory.add_array("constants", program.info.data, "constant")
    launch = Launch(
        "kernel", "gfx942", program, (1, 1, 1), (64, 1, 1), np.zeros(64, np.uint8), memory,
        Counters(program, SHAPES["gfx942"]), 0, MODELS["gfx942"],
    )  # fmt: skip
    state = new_state(program, launch, np.zeros((1, 3), np.int64), 1)
    run_batches(iter([state]))
    assert int(state.U[SGPR + 6][0, 0]) == 12


def test_an_atomic_through_a_flat_address_of_lds_is_refused_by_name():
    with pytest.raises(VirtualGpuError, match=r"kernel kernel: `flat_atomic_add v\[0:1\], v4` is a flat atomic on an"):
        run_on("gfx942", ["flat_atomic_add v[0:1], v4"], {"v0": np.full((1, 64), 1 << 48), "v4": 1}, {})
