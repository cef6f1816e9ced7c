"""What gfx1250 has of its own: 1024 registers, WMMA of its shapes, transposing loads, the tensor data mover.

Layouts of matrices are written here anew, element by element, after Triton's LinearLayoutConversions.cpp.
"""

import numpy as np
import pytest
import torch

from gpu_utils.errors import OutOfBounds, UninitialisedShared, UnsupportedInstruction, VirtualGpuError
from gpu_utils.virtual import virtual_gpu
from gpu_utils.virtual.amdgcn import decode

from .single import execute

LANE = np.arange(32)
RANDOM = np.random.default_rng(15)
VALUES = {
    "FP8": lambda c: _float(c, 4, 3), "BF8": lambda c: _float(c, 5, 2), "FP6": lambda c: _float(c, 2, 3),
    "BF6": lambda c: _float(c, 3, 2), "FP4": lambda c: _float(c, 2, 1),
}  # fmt: skip
BITS = {"FP8": 8, "BF8": 8, "FP6": 6, "BF6": 6, "FP4": 4}


def _float(code, exponent_bits, mantissa_bits):
    size = code & ((1 << (exponent_bits + mantissa_bits)) - 1)
    exponent, digits = size >> mantissa_bits, size & ((1 << mantissa_bits) - 1)
    lead = digits + (exponent > 0) * (1 << mantissa_bits)
    value = lead * 2.0 ** (max(exponent, 1) - (1 << (exponent_bits - 1)) + 1 - mantissa_bits)
    return -value if code > size else value


def place(k, run):
    """(half of the wave, number within the lane) of element k of a row: runs take turns between the halves."""
    return k // run % 2, k // (2 * run) * run + k % run


def registers_of(codes, bits, run, first):
    """Registers of an operand (rows, K) whose lanes hold runs of `run` elements; rows from 16 on come after."""
    rows, depth = codes.shape
    each = depth // 2 * bits // 32
    words = np.zeros((rows // 16 * each, 32), object)
    for row in range(rows):
        for k in range(depth):
            half, at = place(k, run)
            word, shift = divmod(at * bits, 32)
            value = int(codes[row, k]) << shift
            words[row // 16 * each + word, row % 16 + 16 * half] += value & 0xFFFFFFFF
            if value >> 32:
                words[row // 16 * each + word + 1, row % 16 + 16 * half] += value >> 32
    return {f"v{first + i}": word.astype(np.uint32) for i, word in enumerate(words)}


def result_of(state, first, rows=16):
    """The float32 result (rows, 16) in registers from `first` on."""
    got = np.stack([state.F[first + i][0] for i in range(rows // 2)])
    return np.array([
        [got[row // 16 * 8 + row % 8, column + 16 * (row % 16 // 8)] for column in range(16)] for row in range(rows)
    ])  # fmt: skip


def codes_below(rows, depth, bits, most):
    """Random codes of values that are small: all sums are exact."""
    return RANDOM.integers(0, most, (rows, depth)) | RANDOM.integers(0, 2, (rows, depth)) << (bits - 1)


@pytest.mark.parametrize(("kind", "depth"), [("fp8_fp8", 64), ("bf8_fp8", 128), ("f16", 32), ("f32", 4)])
def test_wmma_of_its_own_shapes_multiplies_exactly(kind, depth):
    a, b = (RANDOM.integers(-7, 8, (16, depth)).astype(np.float32) for _ in range(2))
    bits = {"f16": 16, "f32": 32}.get(kind, 8)
    words = []
    for values, name in zip((a, b), (kind.split("_") * 2)[:2], strict=True):
        if bits == 8:
            dtype = {"fp8": torch.float8_e4m3fn, "bf8": torch.float8_e5m2}[name]
            values[...] = torch.tensor(values).to(dtype).float().numpy()
            words.append(torch.tensor(values).to(dtype).view(torch.uint8).numpy())
        else:
            words.append(values.astype(f"f{bits // 8}").view(f"u{bits // 8}"))
    count = depth // 2 * bits // 32
    run = min(depth // 2, 8)
    registers = registers_of(words[0], bits, run, 8) | registers_of(words[1], bits, run, 40)
    line = f"v_wmma_f32_16x16x{depth}_{kind} v[0:7], v[8:{7 + count}], v[40:{39 + count}], 1.0"
    assert (result_of(execute("gfx1250", line, registers), 0) == a @ b.T + 1).all()


def test_wmma_of_bytes_takes_signs_from_neg_lo():
    a, b = RANDOM.integers(0, 256, (16, 64)), RANDOM.integers(0, 256, (16, 64))
    registers = registers_of(a, 8, 8, 8) | registers_of(b, 8, 8, 16)
    state = execute("gfx1250", "v_wmma_i32_16x16x64_iu8 v[0:7], v[8:15], v[16:23], 0 neg_lo:[1,0,0]", registers)
    signed = np.where(a > 127, a - 256, a)
    want = signed @ b.T
    assert (result_of(state, 0).view(np.int32) == want).all()


@pytest.mark.parametrize(
    ("first", "second", "scale", "rows"),
    [("FP8", "FP4", 32, 16), ("FP4", "BF8", 32, 16), ("FP4", "FP4", 16, 16), ("FP6", "BF6", 32, 16),
     ("FP4", "FP4", 32, 32)],
)  # fmt: skip
def test_block_scaled_wmma_knows_formats_and_scales(first, second, scale, rows):
    kinds, sizes, at = (first, second), (rows, 16), (32, 64)
    registers, values, powers = {}, [], []
    for i, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
        bits = BITS[kind]
        codes = codes_below(size, 128, bits, 1 << bits - 2)
        registers |= registers_of(codes, bits, 16 if bits == 8 else 32, at[i])
        values.append(np.vectorize(VALUES[kind])(codes))
        scales = RANDOM.integers(125, 130, (size, 128 // scale))
        powers.append(2.0 ** (scales - 127.0))
        upper = 16 if size == 16 else 0  # matrix_x_scale:MATRIX_SCALE_ROW1
        for word in range(128 // scale // 4):
            packed = RANDOM.integers(0, 2**32, 32, dtype=np.uint32)
            packed[upper : upper + size] = sum(
                scales[:, 4 * word + byte].astype(np.uint32) << np.uint32(8 * byte) for byte in range(4)
            )
            registers[f"v{90 + 2 * i + word}"] = packed
    a, b = (value * power.repeat(scale, axis=1) for value, power in zip(values, powers, strict=True))
    name = "v_wmma_scale16" if scale == 16 else "v_wmma_scale"
    one = ("v90", "v92") if scale == 32 else ("v[90:91]", "v[92:93]")
    counts = [size * 4 * BITS[kind] // 32 for kind, size in zip(kinds, sizes, strict=True)]
    shape = f"16x16x128_f8f6f4 v[0:7], v[32:{31 + counts[0]}]" if rows == 16 else "32x16x128_f4 v[0:15], v[32:47]"
    line = f"{name}_f32_{shape}, v[64:{63 + counts[1]}], 0, {one[0]}, {one[1]} matrix_b_scale:MATRIX_SCALE_ROW1"
    if rows == 16:
        line += " matrix_a_scale:MATRIX_SCALE_ROW1" + "".join(
            f" matrix_{side}_fmt:MATRIX_FMT_{kind}" for side, kind in zip("ab", kinds, strict=True)
        )
    state = execute("gfx1250", line, registers)
    assert np.allclose(result_of(state, 0, rows), a @ b.T, rtol=1e-6, atol=1e-4)


def test_s_set_vgpr_msb_chooses_among_1024_registers():
    lines = ["s_set_vgpr_msb 0xc1", "v_add_nc_u32_e32 v4 /*v772*/, v5 /*v261*/, v6", "s_set_vgpr_msb 0xc100"]
    state = execute("gfx1250", lines, {"v5": LANE, "v6": 7 * LANE, "v261": 100 + LANE, "v772": 0, "v4": 3})
    assert (state.U[772] == 100 + 8 * LANE).all()
    assert (state.U[4] == 3).all()
    op = state.program.ops[1]
    assert (set(op.reads) - set(op.guards), set(op.writes)) == ({"v261", "v6"}, {"v772"})


def test_the_mode_register_sets_the_banks_too():
    lines = ["s_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 25, 1), 0x2001", "v_mov_b32_e32 v1 /*v513*/, v0"]
    assert (execute("gfx1250", lines, {"v0": LANE}).U[513] == LANE).all()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["s_set_vgpr_msb 64", "v_mov_b32 v1 /*v513*/, v0"], "names v257"),
        (["s_cbranch_scc0 .L", "s_set_vgpr_msb 64", ".L:", "v_mov_b32 v1, v0"], "is reached under"),
        (["s_barrier_signal 1"], "named barriers"),
        (["tensor_load_to_lds s[0:3], s[4:11]", "v_swmmac_f32_16x16x64_f16 v[0:7], v[8:15], v[16:31], v32"], "swmmac"),
    ],
)
def test_what_it_cannot_execute_is_refused_before_anything_runs(lines, said):
    with pytest.raises(UnsupportedInstruction, match=said):
        decode("kernel:\n" + "".join(f"\t{line}\n" for line in lines) + "\ts_endpgm\n", "gfx1250", "kernel")


def test_the_new_instructions_stay_unknown_to_gfx1201():
    for line in ("v_wmma_f32_16x16x32_f16 v[0:7], v[8:15], v[16:23], 0", "tensor_load_to_lds s[0:3], s[4:11]",
                 "ds_load_tr16_b128 v[0:3], v4", "v_cvt_scale_pk8_f16_fp8 v[0:3], v[4:5], v6"):  # fmt: skip
        with pytest.raises(UnsupportedInstruction):
            decode(f"kernel:\n\t{line}\n\ts_endpgm\n", "gfx1201", "kernel")


def test_transposing_loads_give_each_lane_a_column():
    rows = np.arange(16 * 16, dtype=np.uint16).reshape(16, 16)  # K by columns
    lines = [f"ds_store_b128 v0, v[4:7] offset:{0}", "ds_load_tr16_b128 v[8:11], v1"]
    raw = rows.reshape(32, 8).view(np.uint32).T
    # lane 16 * h + 8 * g + i reads row 8 * h + i from column 8 * g on
    half, group, i = LANE // 16, LANE // 8 % 2, LANE % 8
    registers = {"v0": LANE * 16, "v1": (8 * half + i) * 32 + 16 * group, **{f"v{4 + j}": raw[j] for j in range(4)}}
    state = execute("gfx1250", lines, registers, shared=1024)
    got = np.stack([state.U[8 + j][0] for j in range(4)], axis=1).copy().view(np.uint16)
    assert (got == np.stack([rows[8 * (lane // 16) : 8 * (lane // 16) + 8, lane % 16] for lane in LANE])).all()


def test_transposing_loads_of_bytes_give_each_lane_a_column():
    rows = np.arange(16 * 16).astype(np.uint8).reshape(16, 16)
    raw = rows.reshape(32, 8).view(np.uint32).T
    upper, half, row = LANE // 8, LANE // 4 % 2, LANE % 4
    registers = {"v0": LANE * 8, "v1": (4 * upper + row) * 16 + 8 * half, "v4": raw[0], "v5": raw[1]}
    state = execute("gfx1250", ["ds_store_b64 v0, v[4:5]", "ds_load_tr8_b64 v[8:9], v1"], registers, shared=1024)
    got = np.stack([state.U[8 + j][0] for j in range(2)], axis=1).copy().view(np.uint8)
    assert (got == np.stack([rows[8 * (lane // 16) : 8 * (lane // 16) + 8, lane % 16] for lane in LANE])).all()


@pytest.mark.parametrize("select", range(8))
def test_eight_bytes_widen_with_the_scale_that_scale_sel_chooses(select):
    codes = RANDOM.integers(0, 120, (32, 8)).astype(np.uint8)
    scales = RANDOM.integers(124, 131, (32, 4)).astype(np.uint8)
    words = codes.view(np.uint32)
    line = f"v_cvt_scale_pk8_f32_fp8 v[8:15], v[0:1], v2 scale_sel:{select}"
    state = execute("gfx1250", line, {"v0": words[:, 0], "v1": words[:, 1], "v2": scales.view(np.uint32)[:, 0]})
    byte = (0, 0, 2, 2, 1, 1, 3, 3)[select]
    for lane in LANE:
        power = 2.0 ** (int(scales[lane % 16 + 16 * (select % 2), byte]) - 127)
        assert [state.F[8 + i][0, lane] for i in range(8)] == [_float(int(c), 4, 3) * power for c in codes[lane]]


def test_eight_nibbles_widen_with_a_scale_for_each_half_of_the_wave():
    codes, scales = RANDOM.integers(0, 16, (32, 8)), RANDOM.integers(124, 131, (32, 4)).astype(np.uint8)
    word = sum(codes[:, i].astype(np.uint32) << np.uint32(4 * i) for i in range(8))
    line = "v_cvt_scale_pk8_f16_fp4 v[8:11], v0, v2 scale_sel:3"
    state = execute("gfx1250", line, {"v0": word, "v2": scales.view(np.uint32)[:, 0]})
    got = np.stack([state.U[8 + j][0] for j in range(4)], axis=1).copy().view(np.float16)
    for lane in LANE:
        power = 2.0 ** (int(scales[16 + lane % 16, 2 + lane // 16]) - 127)
        assert got[lane].tolist() == [_float(int(c), 2, 1) * power for c in codes[lane]]


def test_eight_floats_are_rounded_once_over_their_scale():
    x = RANDOM.normal(size=(8, 32)).astype(np.float32) * 8
    line = "v_cvt_scalef32_pk8_fp8_f32 v[8:9], v[0:7], 4.0"
    state = execute("gfx1250", line, {f"v{i}": x[i].view(np.uint32) for i in range(8)})
    got = np.stack([state.U[8 + j][0] for j in range(2)], axis=1).copy().view(np.uint8)
    assert (got == torch.tensor(x.T / 4).to(torch.float8_e4m3fn).view(torch.uint8).numpy()).all()


DESCRIPTOR = "s_mov_b32 s{}, {:#x}"
MOVER = """\t.text
\t.amdgcn_target "amdgcn-amd-amdhsa--gfx1250"
mover:
\ts_load_b128 s[16:19], s[0:1], 0x0
{lines}
\ts_endpgm
\t.amdhsa_kernel mover
\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t.amdhsa_user_sgpr_count 2
\t.amdhsa_group_segment_fixed_size 4096
\t.end_amdhsa_kernel
\t.amdgpu_metadata
amdhsa.kernels:
  - .args:
      - .offset: 0
        .size: 8
        .value_kind: global_buffer
      - .offset: 8
        .size: 8
        .value_kind: global_buffer
    .kernarg_segment_size: 16
    .name: mover
    .wavefront_size: 32
\t.end_amdgpu_metadata
"""


def moved(x, out, load, store, gather=(), mode=0):
    """Run a load of a tile and a store of one; load, store: the words of group 1."""
    lines = ["s_mov_b32 s20, 0x1", "s_mov_b32 s21, 0", "s_mov_b32 s22, s16", "s_or_b32 s23, s17, 0x80000000"]
    lines = [lines[0] if not mode else f"s_mov_b32 s20, {1 | mode:#x}", *lines[1:]]
    lines += [DESCRIPTOR.format(24 + i, word) for i, word in enumerate(load)]
    lines += [DESCRIPTOR.format(32 + i, word) for i, word in enumerate(gather)]
    more = ", s[32:35], s[36:39]" if gather else ""
    lines += [f"tensor_load_to_lds s[20:23], s[24:31]{more}", "s_wait_tensorcnt 0x0"]
    lines += ["s_mov_b32 s20, 0x1", "s_mov_b32 s22, s18", "s_or_b32 s23, s19, 0x80000000"]
    lines += [DESCRIPTOR.format(24 + i, word) for i, word in enumerate(store)]
    lines += ["tensor_store_from_lds s[20:23], s[24:31]", "s_wait_tensorcnt 0x0"]
    with virtual_gpu("gfx1250") as gpu:
        module = gpu.load(MOVER.format(lines="\n".join(f"\t{line}" for line in lines)))
        module.launch("mover", 1, 32, [x, out])
    return out


def group1(size, dims, tile, stride, control=0):
    """Words of group 1; dims, tile: innermost first; stride: elements between rows."""
    low = [dims[0] << 16, dims[0] >> 16 | dims[1] << 16, dims[1] >> 16 | tile[0] << 16]
    return [word & 0xFFFFFFFF for word in (size << 16 | control, *low, tile[1], stride, 0, 0)]


def test_the_tensor_data_mover_fills_with_zeros_and_drops_what_lies_outside():
    x, out = torch.arange(1, 61, dtype=torch.int16).reshape(5, 12), torch.full((6, 10), -1, dtype=torch.int16)
    moved(x, out, group1(1, (7, 3), (8, 4), 12), group1(1, (10, 4), (8, 4), 10))
    want = torch.full((6, 10), -1, dtype=torch.int16)
    want[:4, :8] = 0
    want[:3, :7] = x[:3, :7]
    assert (out == want).all()


def test_the_tensor_data_mover_leaves_gaps_in_lds():
    x, out = torch.arange(32, dtype=torch.int32).reshape(4, 8), torch.zeros(4, 10, dtype=torch.int32)
    gaps = 1 << 20 | 2 << 22 | 1 << 25  # after 8 words two more
    with pytest.raises(UninitialisedShared, match="tensor_store_from_lds"):
        moved(x, out, group1(2, (8, 4), (8, 4), 8, gaps), group1(2, (10, 4), (10, 4), 10))
    moved(x, out, group1(2, (8, 4), (8, 4), 8, gaps), group1(2, (8, 4), (10, 4), 10))
    assert (out[:, :8] == x).all()


def test_the_tensor_data_mover_gathers_listed_rows():
    x, out = torch.arange(64, dtype=torch.int32).reshape(8, 8), torch.zeros(3, 8, dtype=torch.int32)
    rows = [7, 2, 5, 0, 0, 0, 0, 0]
    moved(x, out, group1(2, (8, 8), (8, 3), 8), group1(2, (8, 3), (8, 3), 8), rows, 0xC0000000)
    assert (out == x[[7, 2, 5]]).all()


def test_the_tensor_data_mover_says_what_it_does_not_do_and_where_it_leaves_a_tensor():
    x, out = torch.zeros(4, 8, dtype=torch.int32), torch.zeros(4, 8, dtype=torch.int32)
    with pytest.raises(VirtualGpuError, match="arrives at a barrier in LDS"):
        moved(x, out, group1(2, (8, 4), (8, 4), 8, 1 << 18), group1(2, (8, 4), (8, 4), 8))
    with pytest.raises(OutOfBounds, match="tensor_load_to_lds"):
        moved(x, out, group1(2, (8, 9), (8, 9), 8), group1(2, (8, 4), (8, 4), 8))


def test_asynchronous_copies_go_through_lds():
    x, out = torch.arange(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    lines = ["v_lshlrev_b32_e32 v1, 3, v0", "global_load_async_to_lds_b64 v1, v1, s[16:17]", "s_wait_asynccnt 0x0",
             "v_xor_b32_e32 v2, 8, v1", "global_store_async_from_lds_b64 v1, v2, s[18:19]"]  # fmt: skip
    with virtual_gpu("gfx1250") as gpu:
        module = gpu.load(MOVER.format(lines="\n".join(f"\t{line}" for line in lines)))
        module.launch("mover", 1, 32, [x, out])
    assert (out.reshape(16, 2, 2) == x.reshape(16, 2, 2).flip(1)).all()


@pytest.mark.parametrize("half", ["lo", "hi"])
def test_a_mixed_product_of_bfloat16_takes_signed_halves_and_rounds_once_more(half):
    words = RANDOM.integers(0, 1 << 32, 32).astype(np.uint32) & np.uint32(0xBFFFBFFF)  # finite, not too large
    factor, addend = RANDOM.standard_normal((2, 32)).astype(np.float32)
    line = f"v_fma_mix{half}_bf16 v3, -v0, |v1|, v2 op_sel:[0,0,0] op_sel_hi:[1,0,0]"
    held = {"v0": words, "v1": factor.view(np.uint32), "v2": addend.view(np.uint32), "v3": 0x12345678}
    got = execute("gfx1250", line, held).U[3][0]
    low = torch.from_numpy((words << np.uint32(16)).view(np.float32)).double()
    exact = (-low * torch.from_numpy(np.abs(factor)).double() + torch.from_numpy(addend).double()).float().bfloat16()
    shift, other = (0, 0x1234) if half == "lo" else (16, 0x5678)
    assert torch.equal(torch.from_numpy((got >> np.uint32(shift) & np.uint32(0xFFFF)).astype(np.int32)).short(),
                       exact.view(torch.int16))  # fmt: skip
    assert (got >> np.uint32(16 - shift) & np.uint32(0xFFFF) == other).all()
