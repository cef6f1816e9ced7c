"""Scalar instructions, comparisons and packed halves against AMD's pseudo-code, or a reference written here."""

import itertools

import numpy as np
import pytest

from gpu_utils.virtual.amdgcn import compare, packed, scalar
from gpu_utils.virtual.amdgcn.state import SGPR, VCC

from .pcode import Evaluator, _pick, bits_of, fma, view
from .single import execute
from .test_amdgcn_oracle import EDGES, _half_to_zero, _pack, pseudo_code

WIDTHS = {"f16": 16, "u32": 32, "i32": 32, "f32": 32, "u64": 64, "i64": 64}
NEWER = {"rdna3": "gfx1100", "rdna4": "gfx1201", "cdna": "gfx942"}
FLAG = {"own", "nonzero"}


def rows_for(entry):
    lists = [EDGES[kind] if kind != "scc" else [0, 1] for kind in entry.sources]
    return list(itertools.islice(itertools.product(*lists), 700))


def machine(target, name, entry, rows):
    registers, texts, at = {}, [], 8
    for i, kind in enumerate(entry.sources):
        column = np.array([int(row[i]) for row in rows], np.uint64)
        if kind == "scc":
            registers["scc"] = column.reshape(-1, 1).astype(bool)
            continue
        registers[f"s{at}"] = column & np.uint64(0xFFFFFFFF)
        if WIDTHS[kind] == 64:
            registers[f"s{at + 1}"] = column >> np.uint64(32)
        texts.append(f"s[{at}:{at + 1}]" if WIDTHS[kind] == 64 else f"s{at}")
        at += 2
    out = "s[0:1]" if WIDTHS[entry.out] == 64 else "s0"
    if name.startswith(("s_bitset", "s_fmac")):  # these read their destination
        out = texts.pop()
    state = execute(target, f"{name} {out}, {', '.join(texts)}", registers, waves=len(rows))
    first = SGPR + int(out.strip("s[]").split(":")[0])
    value = state.U[first].astype(np.uint64)
    if WIDTHS[entry.out] == 64:
        value = value | state.U[first + 1].astype(np.uint64) << np.uint64(32)
    return [int(v) for v in value[:, 0]], [bool(v) for v in state.scc[:, 0]]


def wanted(text, entry, row):
    plain = [value for value, kind in zip(row, entry.sources, strict=True) if kind != "scc"]
    env = {f"S{i}": int(value) for i, value in enumerate(plain)}
    env |= {"SCC": int(row[-1]) if "scc" in entry.sources else 0, "D0": int(plain[-1]) if len(plain) else 0}
    done = Evaluator(text).run(env)
    return bits_of(done["D0"], WIDTHS[entry.out]), bool(done["SCC"])


def found(name, entry):
    family, text = pseudo_code(name)
    if text is None:
        return None
    try:
        wanted(text, entry, rows_for(entry)[3])
    except (NotImplementedError, KeyError, ValueError, TypeError, IndexError):
        return None
    return family, text


WRITTEN_ONLY = frozenset(
    (
        "s_rndne_f32",
        "s_rndne_f16",
        "s_cvt_pk_rtz_f16_f32",
        "s_flbit_i32",
        "s_cls_i32",
        "s_wqm_b32",
        "s_wqm_b64",
        "s_bfe_i32",
        "s_bfe_u32",
        "s_bfe_u64",
        "s_bfe_i64",
    )
)
ORACLE = {name: hit for name, entry in scalar.TABLE.items() if name not in WRITTEN_ONLY and (hit := found(name, entry))}


@pytest.mark.parametrize("name", sorted(ORACLE))
def test_scalar_instruction_does_what_the_manual_says(name):
    family, text = ORACLE[name]
    entry = scalar.TABLE[name]
    rows = rows_for(entry)
    values, flags = machine(NEWER[family], name, entry, rows)
    for row, value, flag in zip(rows, values, flags, strict=True):
        want, scc = wanted(text, entry, row)
        where = f"{name} {[hex(int(v)) for v in row]}"
        if entry.out[0] == "f" and np.isnan(view(want, entry.out)):
            assert np.isnan(view(value, entry.out)), where
        else:
            assert value == want, f"{where}: {value:#x}, the manual says {want:#x}"
        if entry.scc in FLAG:
            assert flag == scc, f"{where}: SCC {flag}, the manual says {scc}"


def _leading(x, width):
    return width - x.bit_length() if x else -1


def _same_signs(x):
    x = view(x, "i32")
    return _leading(~x if x < 0 else x, 32) if x not in (0, -1) else -1


def _quads(x, width):
    return sum(15 << 4 * i for i in range(width // 4) if x >> 4 * i & 15)


def _field(x, control, width, signed=False):
    size = min(control >> 16 & 127, width) if not signed or width == 64 else control >> 16 & 31
    if width == 32 and not signed:
        size = min(size, 31)
    value = (view(x, f"i{width}") if signed else x) >> (control & (width - 1)) & ((1 << size) - 1)
    return value - (1 << size) if signed and size and value >> (size - 1) & 1 else value


REFERENCES = {
    **dict.fromkeys(("s_flbit_i32_b32", "s_clz_i32_u32"), lambda a: _leading(a, 32)),
    **dict.fromkeys(("s_flbit_i32_b64", "s_clz_i32_u64"), lambda a: _leading(a, 64)),
    **dict.fromkeys(("s_flbit_i32", "s_cls_i32"), _same_signs),
    **dict.fromkeys(("s_ff1_i32_b32", "s_ctz_i32_b32", "s_ff1_i32_b64", "s_ctz_i32_b64"),
    lambda a: (a & -a).bit_length() - 1),
    "s_wqm_b32": lambda a: _quads(a, 32), "s_wqm_b64": lambda a: _quads(a, 64),
    "s_bfe_u32": lambda a, b: _field(a, b, 32), "s_bfe_i32": lambda a, b: _field(a, b, 32, True),
    "s_bfe_u64": lambda a, b: _field(a, b, 64), "s_bfe_i64": lambda a, b: _field(a, b, 64, True),
    "s_brev_b64": lambda a: int(f"{a:064b}"[::-1], 2), "s_brev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    **dict.fromkeys(("s_add_nc_u64", "s_add_u64"), lambda a, b: a + b), **dict.fromkeys(("s_sub_nc_u64", "s_sub_u64"),
    lambda a, b: a - b),
    "s_mul_u64": lambda a, b: a * b, "s_not_b32": lambda a: ~a, "s_not_b64": lambda a: ~a,
    "s_bcnt0_i32_b32": lambda a: 32 - a.bit_count(), "s_bcnt0_i32_b64": lambda a: 64 - a.bit_count(),
    "s_bcnt1_i32_b32": lambda a: a.bit_count(), "s_bcnt1_i32_b64": lambda a: a.bit_count(),
    **{f"s_{a}_b{w}": f for w in (32, 64) for a, f in (
        ("and_not1", lambda a, b: a & ~b), ("or_not1", lambda a, b: a | ~b), ("andn2", lambda a, b: a & ~b),
        ("orn2", lambda a, b: a | ~b), ("bitset0", lambda a, b, w=w: b & ~(1 << (a & (w - 1)))),
        ("bitset1", lambda a, b, w=w: b | 1 << (a & (w - 1))))},
    **dict.fromkeys(("s_fmac_f32", "s_fmaak_f32", "s_fmamk_f32"), lambda a, b, c: fma(*(view(x, "f32") for x in (a, b,
    c)))),
    **{f"s_{m}{n}_f32": lambda a, b, o=o: _pick(view(a, "f32"), view(b, "f32"), o) for m, o in (("min", min), ("max",
    max))
       for n in ("", "_num")},
    "s_add_f32": lambda a, b: view(a, "f32") + view(b, "f32"), "s_sub_f32": lambda a, b: view(a, "f32") - view(b,
    "f32"),
    "s_mul_f32": lambda a, b: view(a, "f32") * view(b, "f32"), "s_rndne_f32": lambda a: np.rint(view(a, "f32")),
    "s_ceil_f32": lambda a: np.ceil(view(a, "f32")), "s_floor_f32": lambda a: np.floor(view(a, "f32")),
    "s_trunc_f32": lambda a: np.trunc(view(a, "f32")), "s_rndne_f16": lambda a: np.rint(view(a, "f16")),
    "s_fmac_f16": lambda a, b, c: fma(*(view(x, "f16") for x in (a, b, c))),
    **{f"s_{m}{n}_f16": lambda a, b, o=o: _pick(view(a, "f16"), view(b, "f16"), o) for m, o in (("min", min), ("max",
    max))
       for n in ("", "_num")},
    "s_cvt_pk_rtz_f16_f32": lambda a, b: _pack(_half_to_zero)(view(a, "f32"), view(b, "f32")),
    "s_cvt_f32_f16": lambda a: np.float32(view(a, "f16")),
    "s_cvt_hi_f32_f16": lambda a: np.float32(view(a >> 16, "f16")),
    "s_cvt_f32_u32": lambda a: np.float32(a), "s_cvt_f32_i32": lambda a: np.float32(view(a, "i32")),
    "s_cvt_i32_f32": lambda a: _whole(a, -(2**31), 2**31 - 1), "s_cvt_u32_f32": lambda a: _whole(a, 0, 2**32 - 1),
    **dict.fromkeys(("s_add_co_u32", "s_add_co_i32"), lambda a, b: a + b),
    **dict.fromkeys(("s_sub_co_u32", "s_sub_co_i32"), lambda a, b: a - b),
    "s_add_co_ci_u32": lambda a, b, c: a + b + c, "s_sub_co_ci_u32": lambda a, b, c: a - b - c,
}  # fmt: skip


def _whole(bits, low, high):
    x = np.float64(view(bits, "f32"))
    return 0 if np.isnan(x) else int(min(max(np.trunc(x), low), high))


def test_every_scalar_instruction_has_a_reference():
    assert sorted(set(scalar.TABLE) - set(ORACLE) - set(REFERENCES)) == []


@pytest.mark.parametrize("name", sorted(set(REFERENCES) & set(scalar.TABLE)))
def test_scalar_instruction_agrees_with_its_written_reference(name):
    entry = scalar.TABLE[name]
    rows = rows_for(entry)
    values, _ = machine("gfx1201", name, entry, rows)
    for row, value in zip(rows, values, strict=True):
        with np.errstate(all="ignore"):
            want = REFERENCES[name](*(int(v) for v in row))
        want = bits_of(want, WIDTHS[entry.out])
        if entry.out[0] == "f" and np.isnan(view(want, entry.out)):
            assert np.isnan(view(value, entry.out))
        else:
            assert value == want, f"{name} {[hex(int(v)) for v in row]}: {value:#x}, expected {want:#x}"


ORDERS = {
    "lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "ne": lambda a, b: a != b, "lg": lambda a, b: a < b or a > b, "neq": lambda a, b: a != b,
    "nlt": lambda a, b: not a < b,
    "nle": lambda a, b: not a <= b, "ngt": lambda a, b: not a > b, "nge": lambda a, b: not a >= b,
    "nlg": lambda a, b: not (a < b or a > b), "o": lambda a, b: a == a and b == b, "u": lambda a, b: a != a or b != b,
    "f": lambda a, b: False, "t": lambda a, b: True, "tru": lambda a, b: True,
}  # fmt: skip


def test_every_comparison_is_tested():
    assert set(ORDERS) == set(compare.COMPARE)


@pytest.mark.parametrize("kind", ["f16", "f32", "f64", "i16", "u16", "i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("order", sorted(ORDERS))
def test_vector_comparison(order, kind):
    rows = list(itertools.islice(itertools.cycle(itertools.product(EDGES[kind], EDGES[kind])), 576))
    a, b = (np.array([row[i] for row in rows], np.uint64).reshape(9, 64) for i in (0, 1))
    registers = {
        "v2": a & np.uint64(0xFFFFFFFF),
        "v4": b & np.uint64(0xFFFFFFFF),
        "v3": a >> np.uint64(32),
        "v5": b >> np.uint64(32),
    }
    operands = "v[2:3], v[4:5]" if kind.endswith("64") else "v2, v4"
    state = execute("gfx942", f"v_cmp_{order}_{kind}_e64 s[0:1], {operands}", registers, waves=9)
    got = state.lane_mask(SGPR).ravel()
    for row, bit in zip(rows, got, strict=True):
        with np.errstate(invalid="ignore"):
            want = bool(ORDERS[order](*(view(int(x), kind) for x in row)))
        assert bool(bit) == want, f"{order} {kind} {[hex(v) for v in row]}"


def test_comparison_clears_the_bits_of_inactive_lanes():
    active = np.arange(64)[None] % 3 == 0
    state = execute("gfx942", "v_cmp_eq_u32_e32 vcc, 0, v2", {"v2": 0, "vcc": np.uint64(2**64 - 1)}, executable=active)
    assert (state.lane_mask(VCC) == active).all()


@pytest.mark.parametrize("kind", ["f16", "f32"])
@pytest.mark.parametrize(
    "order", ["lt", "eq", "le", "gt", "lg", "ge", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt"]
)
def test_scalar_comparison_of_floats(order, kind):
    rows = list(itertools.product(EDGES[kind], EDGES[kind]))
    a, b = (np.array([row[i] for row in rows], np.uint64) for i in (0, 1))
    if kind == "f16":  # the high half is not looked at
        a, b = a | np.uint64(0x7E000000), b | np.uint64(0x12340000)
    state = execute("gfx1201", f"s_cmp_{order}_{kind} s2, s4", {"s2": a, "s4": b}, waves=len(rows))
    for row, bit in zip(rows, state.scc[:, 0], strict=True):
        with np.errstate(invalid="ignore"):
            want = bool(ORDERS[order](*(view(int(x), kind) for x in row)))
        assert bool(bit) == want, f"{order} {kind} {[hex(v) for v in row]}"


def test_scalar_halves_clear_the_high_half():
    registers = {"s0": 0xDEADBEEF, "s2": 0xABCD3C00, "s3": 0x12344000}  # 1.0 and 2.0 below other bits
    state = execute("gfx1201", ["s_add_f16 s0, s2, s3", "s_cvt_hi_f32_f16 s1, 0x3c00abcd"], registers)
    assert state.U[SGPR][0, 0] == 0x4200
    assert state.F[SGPR + 1][0, 0] == 1.0


@pytest.mark.parametrize(("bits", "place"), [
    (0x7F800001, 0), (0x7FC00000, 1), (0xFF800000, 2), (0xBF800000, 3), (0x80000001, 4), (0x80000000, 5), (0, 6), (1,
    7),
    (0x3F800000, 8), (0x7F800000, 9),
])  # fmt: skip
def test_class_of_a_float(bits, place):
    for i in range(10):
        state = execute("gfx942", "v_cmp_class_f32_e64 s[0:1], v2, v3", {"v2": bits, "v3": 1 << i})
        assert state.lane_mask(SGPR).all() == (i == place), i


@pytest.mark.parametrize("name", sorted(packed.PACKED16))
def test_packed_halves_work_on_both_halves(name):
    dtype, count, _ = packed.PACKED16[name]
    kind = {np.float16: "f16", np.uint16: "u16", np.int16: "i16"}[dtype]
    single = name.replace("v_pk_", "v_")
    table = {"v_mad_u16": lambda a, b, c: a * b + c, "v_mad_i16": lambda a, b, c: a * b + c}
    random = np.random.default_rng(3)
    rows = random.choice(np.array(EDGES[kind]), (256, 2, count))
    words = [(rows[:, 0, i] | rows[:, 1, i] << 16).astype(np.uint32).reshape(4, 64) for i in range(count)]
    registers = {f"v{2 + i}": word for i, word in enumerate(words)}
    state = execute("gfx942", f"{name} v0, {', '.join(f'v{2 + i}' for i in range(count))}", registers, waves=4)
    reference = table.get(single) or HALVES[single]
    for row, word in zip(rows, state.U[0].ravel(), strict=True):
        for half in (0, 1):
            with np.errstate(all="ignore"):
                want = reference(*(view(int(v), kind) for v in row[half]))
            want = bits_of(np.float16(want), 16) if kind == "f16" else int(want) & 0xFFFF
            got = int(word) >> 16 * half & 0xFFFF
            nans = kind == "f16" and np.isnan(view(want, "f16")) and np.isnan(view(got, "f16"))
            assert got == want or nans, f"{name} {row[half]}: {got:#x}, expected {want:#x}"


def _keep_nan(order):
    return lambda *v: np.float16(np.nan) if any(np.isnan(x) for x in v) else _fold(order, v)


def _fold(order, values):
    first = values[0]
    for value in values[1:]:
        first = _pick(first, value, order)
    return first


HALVES = {
    "v_add_f16": lambda a, b: a + b, "v_mul_f16": lambda a, b: a * b, "v_fma_f16": fma,
    **{f"v_{m}{n}_f16": lambda *v, o=o: _fold(o, v) for m, o in (("max", max), ("min", min)) for n in ("", "_num")},
    **{f"v_{m}imum{n}_f16": _keep_nan(o) for m, o in (("max", max), ("min", min)) for n in ("", "3")},
    "v_add_u16": lambda a, b: a + b, "v_add_i16": lambda a, b: a + b, "v_sub_u16": lambda a, b: a - b,
    "v_sub_i16": lambda a, b: a - b,
    "v_mul_lo_u16": lambda a, b: a * b, "v_max_u16": max, "v_min_u16": min, "v_max_i16": max, "v_min_i16": min,
    "v_lshlrev_b16": lambda a, b: b << (a & 15), "v_lshrrev_b16": lambda a, b: b >> (a & 15),
    "v_ashrrev_i16": lambda a, b: b >> (a & 15),
}  # fmt: skip


def test_op_sel_swaps_the_halves_of_a_packed_operand():
    state = execute(
        "gfx942", "v_pk_add_u16 v0, v1, v2 op_sel:[1,0] op_sel_hi:[0,1]", {"v1": 0x00020001, "v2": 0x00300010}
    )
    assert (state.U[0] == 0x00310012).all()


def test_packed_float32_picks_registers_by_op_sel():
    values = {"v2": 1.0, "v3": 2.0, "v4": 10.0, "v5": 20.0}
    registers = {name: np.float32(value).view(np.uint32) for name, value in values.items()}
    state = execute("gfx942", "v_pk_add_f32 v[0:1], v[2:3], v[4:5] op_sel:[0,1] op_sel_hi:[1,0]", registers)
    assert (state.F[0] == 21).all()
    assert (state.F[1] == 12).all()


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("line", ["s_or_b32 null, s0, s1", "s_or_b64 null, s[0:1], s[2:3]"])
def test_a_result_that_nobody_wants_still_sets_scc(target, line):
    registers = {"s0": [3], "s1": [0], "s2": [4], "s3": [0]}
    state = execute(target, [line, "s_mov_b32 s4, null", "s_cselect_b32 s5, 7, 8"], registers)
    assert [state.U[SGPR + i].item() for i in (4, 5)] == [0, 7]


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_null_is_zero_in_64_bits_too(target):
    state = execute(target, "s_or_b64 s[4:5], null, s[2:3]", {"s2": [5], "s3": [6], "s4": [1], "s5": [1]})
    assert [state.U[SGPR + i].item() for i in (4, 5)] == [5, 6]
