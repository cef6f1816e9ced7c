"""DPP, SDWA, swizzles, permutes, readlane, LDS and matrix layouts of AMDGCN, one instruction at a time."""

import itertools

import numpy as np
import pytest

from gpu_utils.errors import OutOfBounds, UninitialisedShared, UnsupportedInstruction
from gpu_utils.virtual.amdgcn.state import SGPR

from .single import execute

LANE = np.arange(64, dtype=np.uint32)[None]


def dpp(control, old=999, lanes=64, target="gfx942", **more):
    state = execute(
        target, f"v_mov_b32_dpp v1, v0 {control} row_mask:0xf bank_mask:0xf", {"v0": LANE[:, :lanes], "v1": old}, **more
    )
    return state.U[1][0].tolist()


@pytest.mark.parametrize(("control", "source"), [
    ("quad_perm:[1,0,3,2]", lambda i: i ^ 1),
    ("row_shl:1", lambda i: i + 1 if i % 16 < 15 else None),
    ("row_shr:4", lambda i: i - 4 if i % 16 >= 4 else None),
    ("row_ror:3", lambda i: i // 16 * 16 + (i - 3) % 16),
    ("wave_shl:1", lambda i: i + 1 if i < 63 else None),
    ("wave_shr:1", lambda i: i - 1 if i else None),
    ("wave_rol:1", lambda i: (i + 1) % 64),
    ("row_mirror", lambda i: i // 16 * 16 + 15 - i % 16),
    ("row_half_mirror", lambda i: i // 8 * 8 + 7 - i % 8),
    ("row_bcast:15", lambda i: i // 16 * 16 - 1 if i >= 16 else None),
    ("row_bcast:31", lambda i: 31 if i >= 32 else None),
    ("row_newbcast:5", lambda i: i // 16 * 16 + 5),
])  # fmt: skip
def test_dpp_reads_the_right_lane(control, source):
    want = [999 if source(i) is None else source(i) for i in range(64)]
    assert dpp(control) == want
    assert dpp(f"{control} bound_ctrl:1") == [0 if source(i) is None else source(i) for i in range(64)]


def test_dpp_of_rdna_shares_a_row():
    assert dpp("row_share:3", lanes=32, target="gfx1100") == [i // 16 * 16 + 3 for i in range(32)]
    assert dpp("row_xmask:5", lanes=32, target="gfx1100") == [i ^ 5 for i in range(32)]


def test_dpp_masks_keep_rows_and_banks():
    state = execute("gfx942", "v_mov_b32_dpp v1, v0 row_shl:0 row_mask:0x5 bank_mask:0x3", {"v0": LANE, "v1": 999})
    assert state.U[1][0].tolist() == [i if (i >> 4) % 2 == 0 and (i >> 2 & 3) < 2 else 999 for i in range(64)]


def test_dpp_from_an_inactive_lane_leaves_the_destination():
    active = LANE % 2 == 0
    state = execute(
        "gfx942",
        "v_mov_b32_dpp v1, v0 quad_perm:[1,0,2,3] row_mask:0xf bank_mask:0xf",
        {"v0": LANE, "v1": 999},
        executable=active,
    )
    assert state.U[1][0].tolist() == [999 if i % 4 != 2 else i for i in range(64)]


def test_sdwa_selects_bytes_and_words():
    registers = {"v0": 0xAABBCCDD, "v1": 0x11223344, "v2": 0x99999999}
    line = "v_add_u32_sdwa v2, v0, v1 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_3 src1_sel:WORD_0"
    assert (execute("gfx942", line, registers).U[2] == ((0xAA + 0x3344) << 16 | 0x9999)).all()
    line = "v_add_u32_sdwa v2, sext(v0), v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:BYTE_1"
    assert (execute("gfx942", line, registers).U[2] == (0xDD - 256 + 0x33) % 2**32).all()


HALVES = np.resize(np.array([0, 1, 0x3C00, 0x4248, 0x7BFF, 0x7C00, 0x7E01, 0x8000, 0xBC00, 0xFC00], np.uint32), (1, 32))


def with_sign(bits, sign):
    bits = bits & 0x7FFF if "|" in sign else bits
    return bits ^ 0x8000 if "-" in sign else bits


@pytest.mark.parametrize("signs", list(itertools.product(("", "-", "|", "-|"), repeat=2)))
def test_pack_takes_the_signs_of_floats(signs):
    first, second = (sign + name + "|" * ("|" in sign) for sign, name in zip(signs, ("v1", "v2"), strict=True))
    low, high = HALVES, HALVES[:, ::-1]
    state = execute("gfx1201", f"v_pack_b32_f16 v0, {first}, {second}", {"v1": low, "v2": high})
    want = with_sign(low, signs[0]) | with_sign(high, signs[1]) << 16
    assert state.U[0].tolist() == want.tolist()


def test_pack_takes_the_sign_of_a_high_half():
    state = execute("gfx1201", "v_pack_b32_f16 v0, -v1, v2 op_sel:[1,0,0]", {"v1": HALVES << 16, "v2": 0x1234})
    assert state.U[0].tolist() == (HALVES ^ 0x8000 | 0x12340000).tolist()


@pytest.mark.parametrize("sign", ["", "-", "|", "-|"])
def test_a_bfloat16_that_is_widened_has_its_sign_changed(sign):
    state = execute("gfx950", f"v_cvt_f32_bf16_e64 v0, {sign}v1{'|' * ('|' in sign)}", {"v1": np.tile(HALVES, 2)})
    assert state.U[0].tolist() == (with_sign(np.tile(HALVES, 2), sign) << 16).tolist()


@pytest.mark.parametrize(("target", "line"), [
    ("gfx1201", "v_dot2_f16_f16 v0, -v1, v2, v3"),
    ("gfx950", "v_dot2c_f32_bf16_e64 v0, |v1|, v2"),
    ("gfx942", "v_dot2_f32_f16 v0, v1, v2, v3 neg_lo:[1,0,0]"),
    ("gfx942", "v_dot2_f32_f16 v0, v1, v2, v3 op_sel_hi:[0,1,1]"),
    ("gfx942", "v_dot2_f32_f16 v0, v1, v2, v3 op_sel:[1,0,0]"),
    ("gfx942", "v_pk_add_u16 v0, v1, v2 neg_lo:[1,0] neg_hi:[1,0]"),
])  # fmt: skip
def test_signs_and_halves_that_are_not_executed_are_refused(target, line):
    with pytest.raises(UnsupportedInstruction, match=line.split()[0]):
        execute(target, line, {})


@pytest.mark.parametrize("signs", list(itertools.product((0, 1), repeat=2)))
@pytest.mark.parametrize(("name", "width"), [("v_dot4_i32_iu8", 8), ("v_dot8_i32_iu4", 4)])
def test_a_dot_product_of_small_integers_takes_signs_from_neg_lo(name, width, signs):
    a, b = np.random.default_rng(width).integers(0, 1 << 32, (2, 32), dtype=np.uint32)
    line = f"{name} v0, v1, v2, 0xe1d" + f" neg_lo:[{signs[0]},{signs[1]},0]" * any(signs)
    parts = []
    for words, signed in zip((a, b), signs, strict=True):
        fields = (words[:, None] >> np.arange(0, 32, width, dtype=np.uint32) & ((1 << width) - 1)).astype(int)
        parts.append(np.where(signed and fields >> (width - 1), fields - (1 << width), fields))
    state = execute("gfx1201", line, {"v1": a, "v2": b})
    assert (state.I[0][0] == (parts[0] * parts[1]).sum(axis=1) + 0xE1D).all()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("v_dot2_bf16_bf16 v0, v1, 2.0, 0", (0x3F803FC0, 0x4040)),
        ("v_dot2_bf16_bf16 v0, v1, -1.0, 1.0", (0x3F803FC0, 0xBF00)),
        ("v_dot2_f16_f16 v0, v1, 2.0, 0", (0x3C003E00, 0x4200)),
        ("v_dot2_f32_f16 v0, v1, 2.0, 1.0", (0x3C003E00, 0x40800000)),
        ("v_dot2_f32_bf16 v0, v1, 0.15915494, 0", (0x3F803F80, 0x3E220000)),
    ],
)
def test_a_float_constant_for_two_halves_is_the_low_one(line, words):
    state = execute("gfx1100", line, {"v1": np.full(32, words[0], np.uint32)})
    assert hex(state.U[0][0, 0] & (0xFFFFFFFF if "_f32" in line else 0xFFFF)) == hex(words[1])


def test_readlane_writelane_and_readfirstlane():
    active = LANE >= 10
    lines = ["v_readlane_b32 s0, v0, 5", "v_readfirstlane_b32 s1, v0", "v_writelane_b32 v1, s0, 7"]
    state = execute("gfx942", lines, {"v0": LANE * 3, "v1": 1}, executable=active)
    assert (int(state.U[SGPR][0, 0]), int(state.U[SGPR + 1][0, 0])) == (15, 30)
    assert state.U[1][0].tolist() == [15 if i == 7 else 1 for i in range(64)]


def test_mbcnt_counts_lower_lanes():
    lines = ["v_mbcnt_lo_u32_b32 v1, -1, 0", "v_mbcnt_hi_u32_b32 v1, -1, v1"]
    assert execute("gfx942", lines, {}).U[1][0].tolist() == list(range(64))


@pytest.mark.parametrize(("pattern", "source"), [
    ("0x8000", lambda i: i // 4 * 4), ("swizzle(SWAP,4)", lambda i: i ^ 4), ("swizzle(REVERSE,8)", lambda i: i ^ 7),
    ("swizzle(BROADCAST,16,3)", lambda i: i // 16 * 16 + 3), ('swizzle(BITMASK_PERM,"p0i1p")',
    lambda i: (i & 0b110001) | (~i & 4) | 2),
    ("swizzle(QUAD_PERM,3,2,1,0)", lambda i: i ^ 3), ("0x041f", lambda i: i ^ 1),
])  # fmt: skip
def test_swizzle_patterns(pattern, source):
    state = execute("gfx942", f"ds_swizzle_b32 v1, v0 offset:{pattern}", {"v0": LANE})
    assert state.U[1][0].tolist() == [source(i) for i in range(64)]


def test_bpermute_pulls_and_permute_pushes():
    address = (LANE * 7 % 64) * 4
    pulled = execute("gfx942", "ds_bpermute_b32 v2, v1, v0", {"v0": LANE + 100, "v1": address}).U[2][0]
    assert pulled.tolist() == [i * 7 % 64 + 100 for i in range(64)]
    pushed = execute("gfx942", "ds_permute_b32 v2, v1, v0", {"v0": LANE + 100, "v1": address}).U[2][0]
    want = [0] * 64
    for i in range(64):
        want[i * 7 % 64] = i + 100
    assert pushed.tolist() == want


def test_permute_lets_the_highest_lane_win():
    state = execute("gfx942", "ds_permute_b32 v2, v1, v0", {"v0": LANE, "v1": 8})
    assert state.U[2][0].tolist() == [0, 0, 63] + [0] * 61


def test_permlane_swaps_of_gfx950():
    lines = "v_permlane32_swap_b32_e32 v0, v1"
    state = execute("gfx950", lines, {"v0": LANE, "v1": LANE + 100})
    assert state.U[0][0].tolist() == [i if i < 32 else i - 32 + 100 for i in range(64)]
    assert state.U[1][0].tolist() == [i + 32 if i < 32 else i + 100 for i in range(64)]


def test_permlane16_of_rdna():
    select = {"s0": 0x76543210, "s1": 0xFEDCBA98}
    state = execute("gfx1100", "v_permlanex16_b32 v1, v0, s0, s1", {"v0": LANE[:, :32], **select})
    assert state.U[1][0].tolist() == [i ^ 16 for i in range(32)]


def test_dual_issue_reads_before_it_writes():
    line = "v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v1, v0"
    state = execute("gfx1100", line, {"v0": 1, "v1": 2})
    assert (int(state.U[0][0, 0]), int(state.U[1][0, 0])) == (2, 1)


def test_carry_chain_adds_64_bits():
    lines = ["v_add_co_u32_e32 v4, vcc, v0, v2", "v_addc_co_u32_e32 v5, vcc, v1, v3, vcc"]
    state = execute("gfx942", lines, {"v0": 0xFFFFFFFF, "v1": 1, "v2": LANE, "v3": 5})
    total = 0x1FFFFFFFF + (LANE.astype(np.uint64) | np.uint64(5 << 32))
    assert (state.pair(4) == total).all()


def test_lds_write_then_read_with_every_width():
    registers = {"v0": LANE * 16, "v4": LANE, "v5": LANE + 100, "v6": LANE + 200, "v7": LANE + 300, "v1": LANE * 16 + 5}
    lines = [
        "ds_write_b128 v0, v[4:7]",
        "ds_read_b128 v[8:11], v0",
        "ds_read2_b32 v[12:13], v0 offset0:3 offset1:1",
        "ds_read_u8 v14, v0 offset:4",
    ]
    state = execute("gfx942", lines, registers, shared=1024)
    assert [int(state.U[8 + i][0, 9]) for i in range(4)] == [9, 109, 209, 309]
    assert [int(state.U[12 + i][0, 9]) for i in range(3)] == [309, 109, 109]


def test_lds_read2st64_strides_by_64_elements():
    lines = ["ds_write_b32 v0, v1", "ds_write_b32 v0, v2 offset:256", "ds_read2st64_b32 v[4:5], v0 offset1:1"]
    state = execute("gfx942", lines, {"v0": LANE * 4, "v1": LANE, "v2": LANE + 50}, shared=512)
    assert (state.U[4] == LANE).all()
    assert (state.U[5] == LANE + 50).all()


def test_lds_atomic_returns_old_values_in_lane_order():
    lines = ["v_mov_b32_e32 v0, 0", "ds_write_b32 v0, v0", "ds_add_rtn_u32 v3, v0, v1"]
    state = execute("gfx942", lines, {"v1": 2}, shared=64)
    assert state.U[3][0].tolist() == [2 * i for i in range(64)]


def test_reading_lds_that_nobody_wrote_is_reported():
    with pytest.raises(UninitialisedShared, match="offset 128"):
        execute("gfx942", ["ds_write_b32 v0, v0", "ds_read_b32 v1, v2"], {"v0": LANE * 0, "v2": 128}, shared=512)


def test_lds_past_the_end_is_out_of_bounds():
    with pytest.raises(OutOfBounds, match="512 bytes per block"):
        execute("gfx942", "ds_write_b32 v0, v0", {"v0": LANE * 16}, shared=512)


@pytest.mark.parametrize("line", ["v_made_up_f32 v0, v1", "s_unknown_b32 s0, s1", "ds_frobnicate_b32 v0, v1",
"v_mfma_f32_5x5x5_f16 v0, v1, v2, v3",
                                  "global_load_dwordx9 v0, v[2:3], off",
                                  "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1"])  # fmt: skip
def test_an_unknown_instruction_is_refused_by_name(line):
    with pytest.raises(UnsupportedInstruction, match=line.split()[0]):
        execute("gfx942", line, {})


def matrix_registers(kind, rows, per_lane, random):
    """Random small integers as a matrix operand: register words (registers, 64) and the values (64, per_lane)."""
    values = random.integers(-4, 5, (64, per_lane))
    if kind == "f16":
        raw = values.astype(np.float16).view(np.uint16)
    elif kind == "bf16":
        raw = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif kind == "i8":
        raw = values.astype(np.int8)
    elif kind == "f64":
        raw = values.astype(np.float64)
    else:
        raw = values.astype(np.float32)
    words = np.ascontiguousarray(raw).view(np.uint32).reshape(64, -1)
    return words.T, values


@pytest.mark.parametrize(("m", "k", "blocks", "kind", "out", "suffix"), [
    (32, 8, 1, "f16", "f32", "f16"), (16, 16, 1, "f16", "f32", "f16"), (32, 8, 1, "bf16", "f32", "bf16_1k"), (32, 2, 1,
    "f32", "f32", "f32"),
    (16, 4, 1, "f32", "f32", "f32"), (32, 16, 1, "i8", "i32", "i8"), (16, 32, 1, "i8", "i32", "i8"), (4, 4, 16, "f16",
    "f32", "f16"),
    (16, 4, 4, "f16", "f32", "f16"), (32, 4, 2, "f16", "f32", "f16"), (16, 4, 1, "f64", "f64", "f64"),
])  # fmt: skip
def test_mfma_layouts(m, k, blocks, kind, out, suffix):
    """A lane holds consecutive k of one row: lane = group * (m * blocks) + block * m + row."""
    random = np.random.default_rng(m * k)
    per_lane = m * k * blocks // 64
    a_words, a = matrix_registers(kind, m, per_lane, random)
    b_words, b = matrix_registers(kind, m, per_lane, random)
    count = len(a_words)
    d = m * m * blocks // 64 * (2 if out == "f64" else 1)
    registers = {f"v{32 + i}": w for i, w in enumerate(a_words)} | {f"v{40 + i}": w for i, w in enumerate(b_words)}
    span = lambda first, n: f"v{first}" if n == 1 else f"v[{first}:{first + n - 1}]"  # noqa: E731
    name = f"v_mfma_{out}_{m}x{m}x{k}{'' if '1k' in suffix else '_'}{suffix}"
    line = f"{name} {span(0, d)}, {span(32, count)}, {span(40, count)}, 0"
    state = execute("gfx90a" if "1k" in suffix else "gfx942", line, registers)
    wide_a, wide_b = np.zeros((blocks, m, k)), np.zeros((blocks, m, k))
    for lane in range(64):
        row, block, group = lane % m, lane // m % blocks, lane // (m * blocks)
        wide_a[block, row, group * per_lane : (group + 1) * per_lane] = a[lane]
        wide_b[block, row, group * per_lane : (group + 1) * per_lane] = b[lane]
    want = wide_a @ wide_b.transpose(0, 2, 1)
    for lane in range(64):
        for r in range(m * m * blocks // 64):
            if m == 32:
                block, row, column = r // 16, 8 * (r % 16 // 4) + 4 * (lane // 32) + r % 4, lane % 32
            elif m == 16 and out == "f64":
                block, row, column = 0, 4 * r + lane // 16, lane % 16
            elif m == 16:
                block, row, column = r // 4, 4 * (lane // 16) + r % 4, lane % 16
            else:
                block, row, column = lane // 4, r, lane % 4
            if out == "f64":
                got = float(state.pair(2 * r).view(np.float64)[0, lane])
            else:
                got = float((state.F if out == "f32" else state.I)[r][0, lane])
            assert got == want[block, row, column], (lane, r)


def test_wmma_of_rdna3_replicates_its_operands():
    random = np.random.default_rng(5)
    a, b = random.integers(-4, 5, (2, 16, 16)).astype(np.float16)
    registers = {}
    for first, matrix in ((8, a), (16, b.T)):
        words = np.ascontiguousarray(matrix).view(np.uint32)  # (16 rows, 8 registers)
        registers |= {f"v{first + r}": np.tile(words[:, r], 2)[None] for r in range(8)}
    state = execute("gfx1100", "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], 0", registers)
    want = a.astype(float) @ b.astype(float)
    for lane in range(32):
        for r in range(8):
            assert float(state.F[r][0, lane]) == want[2 * r + lane // 16, lane % 16]


def test_wmma_of_rdna4_splits_k_between_the_halves():
    random = np.random.default_rng(6)
    a, b = random.integers(-4, 5, (2, 16, 16)).astype(np.float16)
    registers = {}
    for first, matrix in ((8, a), (12, b.T)):
        words = np.ascontiguousarray(matrix).view(np.uint32)
        registers |= {f"v{first + r}": np.concatenate([words[:, r], words[:, 4 + r]])[None] for r in range(4)}
    state = execute("gfx1201", "v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], 0", registers)
    want = a.astype(float) @ b.astype(float)
    for lane in range(32):
        for r in range(8):
            assert float(state.F[r][0, lane]) == want[8 * (lane // 16) + r, lane % 16]


@pytest.mark.parametrize("comment", ["; as LLVM writes it", "// as people do", "// a ; b", '; "quoted" ; //'])
def test_a_comment_ends_an_instruction(comment):
    lines = [f"v_mov_b32 v1, v0 {comment}", f"v_mov_b32_dpp v2, v1 quad_perm:[1,0,3,2] {comment}"]
    assert (execute("gfx942", lines, {"v0": LANE}).U[2] == LANE ^ 1).all()
