"""mma, wgmma, ldmatrix, stmatrix and movmatrix: fragments are placed by the manual's formulas, element by element."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from ptx_harness import HEADER, launch, run_lines
from ptx_reference import _from_fp8

from gpu_utils.errors import UnsupportedInstruction
from gpu_utils.virtual.ptx.matrix import LDMATRIX_FORMS, MMA_FORMS, STMATRIX_FORMS
from gpu_utils.virtual.ptx.wgmma import ORDER_FORMS, WGMMA_TYPES

BYTES = {"f16": 2, "bf16": 2, "tf32": 4, "f64": 8, "s8": 1, "u8": 1, "e4m3": 1, "e5m2": 1, "f32": 4, "s32": 4}
DRAW = np.random.default_rng(11)


def fp8_value(code: int, kind: str) -> float:
    return float(_from_fp8(code, kind)[1])


def draw(shape, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """(bits as unsigned words, exact values as float64)."""
    if kind in ("s8", "u8", "s32"):
        dtype = {"s8": "i1", "u8": "u1", "s32": "i4"}[kind]
        info = np.iinfo(dtype)
        values = DRAW.integers(max(info.min, -1000), min(info.max, 1000), shape, dtype, endpoint=True)
        return values.view(f"u{BYTES[kind]}"), values.astype(np.float64)
    if kind in ("e4m3", "e5m2"):
        codes = DRAW.integers(0, 0x58, shape, np.uint8) | (DRAW.integers(0, 2, shape, np.uint8) << 7)
        return codes, np.vectorize(lambda c: fp8_value(int(c), kind))(codes).astype(np.float64)
    values = DRAW.standard_normal(shape)
    if kind == "f64":
        return values.view(np.uint64), values
    if kind == "f16":
        half = values.astype(np.float16)
        return half.view(np.uint16), half.astype(np.float64)
    single = values.astype(np.float32).view(np.uint32)
    if kind == "bf16":
        return (single >> 16).astype(np.uint16), (single & 0xFFFF0000).view(np.float32).astype(np.float64)
    if kind == "tf32":
        return single, (single & 0xFFFFE000).view(np.float32).astype(np.float64)
    return single, single.view(np.float32).astype(np.float64)


def a_place(lane: int, i: int, kind: str, rows: int, k: int) -> tuple[int, int]:
    """(row, column) of element i of A, from the manual's tables."""
    group, quad = lane >> 2, lane & 3
    if kind == "f64":
        if rows == 8:
            return group, quad
        return group + 8 * (i % 2), quad + 4 * (i // 2)
    per = 4 // BYTES[kind]
    register, inside = divmod(i, per)
    row = group + (8 * (register % 2) if rows == 16 else 0)
    column = quad * per + inside + 4 * per * (register // 2 if rows == 16 else register)
    return row, column


def b_place(lane: int, i: int, kind: str) -> tuple[int, int]:
    group, quad = lane >> 2, lane & 3
    if kind == "f64":
        return quad + 4 * i, group
    per = 4 // BYTES[kind]
    return quad * per + i % per + 4 * per * (i // per), group


def c_place(lane: int, i: int) -> tuple[int, int]:
    return (lane >> 2) + 8 * (i // 2), (lane & 3) * 2 + i % 2


def fragments(matrix: np.ndarray, place, count: int, size: int) -> np.ndarray:
    """(32 lanes, bytes) that each lane holds of a matrix of words."""
    return np.stack(
        [np.array([matrix[place(lane, i)] for i in range(count)], f"u{size}").view(np.uint8) for lane in range(32)]
    )


def tolerance(kind: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The bound that matrix.py states, plus one rounding to the accumulator's type."""
    k = a.shape[1]
    size = np.abs(a) @ np.abs(b) + np.abs(c)
    unit = {"f32": 2.0**-23, "f16": 2.0**-10, "s32": 0.0, "f64": 2.0**-50}[kind]
    return size * ((k + 1) * (2.0**-23 if kind != "f64" else 2.0**-52) + unit) if unit else size * 0


@pytest.mark.parametrize("form", MMA_FORMS)
def test_mma_multiplies_what_the_manual_places_in_the_fragments(form):
    words = form.split(".")
    m, n, k = map(int, re.fullmatch(r"m(\d+)n(\d+)k(\d+)", words[3]).groups())
    d, a, b, c = words[-4:]
    (a_bits, a_values), (b_bits, b_values), (c_bits, c_values) = draw((m, k), a), draw((k, n), b), draw((m, n), c)
    count = {"A": m * k // 32, "B": k * n // 32, "C": m * n // 32}
    left = fragments(a_bits, lambda lane, i: a_place(lane, i, a, m, k), count["A"], BYTES[a])
    right = fragments(b_bits, lambda lane, i: b_place(lane, i, b), count["B"], BYTES[b])
    start = fragments(c_bits, c_place, count["C"], BYTES[c])
    out = np.zeros_like(start)
    width = 64 if a == "f64" else 32
    lines, registers = [], {}
    for name, data in (("a", left), ("b", right), ("c", start), ("d", out)):
        number = data.shape[1] * 8 // width
        registers[name] = "{" + ", ".join(f"%{name}{i}" for i in range(number)) + "}"
        lines.append(f".reg .b{width} %{name}<{number}>; .reg .b64 %p{name}; ld.param.u64 %p{name}, [{name}];")
        lines.append(f"mad.wide.u32 %p{name}, %t, {data.shape[1]}, %p{name};")
        if name != "d":
            lines += [f"ld.global.b{width} %{name}{i}, [%p{name}+{i * width // 8}];" for i in range(number)]
    lines.append(f"{form} {registers['d']}, {registers['a']}, {registers['b']}, {registers['c']};")
    lines += [f"st.global.b{width} [%pd+{i * width // 8}], %d{i};" for i in range(out.shape[1] * 8 // width)]
    params = ", ".join(f".param .u64 {name}" for name in "abcd")
    head = f".visible .entry k({params}) {{ .reg .b32 %t; mov.u32 %t, %tid.x;\n"
    arguments = [np.ascontiguousarray(x) for x in (left, right, start)]
    launch(HEADER + head + "\n".join(lines) + "\nret; }", [*arguments, out])
    result = np.zeros((m, n))
    view = {"f32": "f4", "f16": "f2", "s32": "i4", "f64": "f8"}[d]
    for lane in range(32):
        for i, value in enumerate(out[lane].view(view)):
            result[c_place(lane, i)] = value
    exact = a_values @ b_values + c_values
    assert (np.abs(result - exact) <= tolerance(d, a_values, b_values, c_values)).all()


def test_integer_mma_wraps_or_clamps_at_the_ends():
    for saturate, want in ((".satfinite", 2**31 - 1), ("", (2**31 - 1 + 32 * 127 * 127) % 2**32 - 2**32)):
        out = np.zeros(32 * 4, np.int32)
        text = (
            HEADER
            + f""".visible .entry k(.param .u64 out) {{ .reg .b32 %x, %c, %t, %d<4>; .reg .b64 %o;
          mov.b32 %x, 0x7f7f7f7f; mov.b32 %c, 0x7fffffff; mov.u32 %t, %tid.x; ld.param.u64 %o, [out];
          mad.wide.u32 %o, %t, 16, %o;
          mma.sync.aligned.m16n8k32.row.col{saturate}.s32.s8.s8.s32 {{%d0,%d1,%d2,%d3}}, {{%x,%x,%x,%x}}, {{%x,%x}},
          {{%c,%c,%c,%c}};
          st.global.v4.b32 [%o], {{%d0,%d1,%d2,%d3}}; ret; }}"""
        )
        launch(text, [out])
        assert set(out.tolist()) == {want}


@pytest.mark.parametrize("form", LDMATRIX_FORMS)
def test_ldmatrix_spreads_rows_or_columns_over_the_lanes(form):
    count, turned = int(form.split(".x")[1][0]), ".trans" in form
    data = DRAW.integers(0, 2**16, (4, 8, 8), np.uint16)
    out = np.zeros((32, count), np.uint32)
    registers = "{" + ", ".join(f"%d{i}" for i in range(count)) + "}"
    lines = [f"{form} {registers}, [%s];"] + [f"st.global.b32 [%o+{4 * i}], %d{i};" for i in range(count)]
    launch(_matrix_text(count, lines), [data, out])
    for lane in range(32):
        for i in range(count):
            matrix = data[i].T if turned else data[i]
            assert out[lane, i] == int(matrix[lane // 4, lane % 4 * 2]) | int(matrix[lane // 4, lane % 4 * 2 + 1]) << 16


@pytest.mark.parametrize("order", ["x4.m8n8.shared", "shared.m8n8.x4", "x4.shared::cta.m8n8", "m8n8.x4"])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_ldmatrix_and_stmatrix_take_their_modifiers_in_any_order(order, trans):
    data, out = DRAW.integers(0, 2**16, (4, 8, 8), np.uint16), np.zeros((32, 8), np.uint16)
    address = "[%s]"
    lines = [".reg .b32 %z; mov.b32 %z, 0; .reg .b64 %g; cvt.u64.u32 %g, %s; cvta.shared.u64 %g, %g;"]
    if "shared" not in order:
        address = "[%g]"  # without a state space the address is generic
    lines += [
        f"ldmatrix.sync.aligned.{order}{trans}.b16 {{%d0,%d1,%d2,%d3}}, {address};", "bar.sync 0;",
        f"stmatrix.sync.aligned.b16.{order} {address}, {{%d0,%d1,%d2,%d3}};", "bar.sync 0;",
        "ld.shared.v4.b32 {%w0,%w1,%w2,%w3}, [%s];", "ld.param.u64 %o, [out]; mad.wide.u32 %o, %t, 16, %o;",
        "st.global.v4.b32 [%o], {%w0,%w1,%w2,%w3};",
    ]  # fmt: skip
    launch(_matrix_text(4, lines), [data, out])
    assert (out.reshape(4, 8, 8) == (data.swapaxes(1, 2) if trans else data)).all()


@pytest.mark.parametrize(
    "form", ["x4.x2.m8n8.shared.b16", "m8n8.x3.shared.b16", "m8n8.x4.shared.b16.b16", "x4.shared.b16"]
)
def test_an_ldmatrix_that_ptx_does_not_have_is_refused(form):
    with pytest.raises(UnsupportedInstruction, match="ldmatrix"):
        launch(_matrix_text(4, [f"ldmatrix.sync.aligned.{form} {{%d0,%d1,%d2,%d3}}, [%s];"]), [])


def _matrix_text(count: int, lines: list[str]) -> str:
    """Copies `data` to shared memory, row r at offset 16 * r; %s is the row that lane r names, %o the lane's output."""
    return HEADER + f""".visible .entry k(.param .u64 data, .param .u64 out) {{
      .reg .b32 %t, %s, %d<4>; .reg .b64 %a, %o; .reg .b32 %w<4>; .shared .align 16 .b8 tile[512];
      mov.u32 %t, %tid.x; ld.param.u64 %a, [data]; mad.wide.u32 %a, %t, 16, %a;
      ld.global.v4.b32 {{%w0,%w1,%w2,%w3}}, [%a];
      shl.b32 %s, %t, 4; add.u32 %s, %s, tile; st.shared.v4.b32 [%s], {{%w0,%w1,%w2,%w3}}; bar.sync 0;
      ld.param.u64 %o, [out]; mad.wide.u32 %o, %t, {4 * count}, %o;
      """ + "\n".join(lines) + "\nret; }"  # fmt: skip


@pytest.mark.parametrize("form", STMATRIX_FORMS)
def test_stmatrix_is_the_inverse_of_ldmatrix(form):
    count = int(form.split(".x")[1][0])
    data, out = DRAW.integers(0, 2**16, (4, 8, 8), np.uint16), np.zeros((32, 8), np.uint16)
    registers = "{" + ", ".join(f"%d{i}" for i in range(count)) + "}"
    lines = [
        ".reg .b32 %z; mov.b32 %z, 0;", f"ld{form[2:]} {registers}, [%s];", "bar.sync 0;",
        "st.shared.v4.b32 [%s], {%z,%z,%z,%z};", "bar.sync 0;", f"{form} [%s], {registers};", "bar.sync 0;",
        "ld.shared.v4.b32 {%w0,%w1,%w2,%w3}, [%s];", "ld.param.u64 %o, [out]; mad.wide.u32 %o, %t, 16, %o;",
        "st.global.v4.b32 [%o], {%w0,%w1,%w2,%w3};",
    ]  # fmt: skip
    launch(_matrix_text(4, lines), [data, out])
    assert (out.reshape(4, 8, 8)[:count] == data[:count]).all()
    assert not out.reshape(4, 8, 8)[count:].any()


def test_movmatrix_transposes_across_the_warp():
    data, out = DRAW.integers(0, 2**16, (4, 8, 8), np.uint16), np.zeros((32, 1), np.uint32)
    lines = ["ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%d0}, [%s];", "movmatrix.sync.aligned.m8n8.trans.b16 %d1, %d0;",
             "st.global.b32 [%o], %d1;"]  # fmt: skip
    launch(_matrix_text(1, lines), [data, out])
    assert (out.view(np.uint16).reshape(8, 8) == data[0].T).all()


# wgmma -------------------------------------------------------------------------------------------------------------


def place_in_shared(matrix: np.ndarray, turned: bool, width: int) -> tuple[np.ndarray, int, int]:
    """(bytes, lead, stride) of a canonical layout of (rows, K) words with one swizzle atom of K.

    Written from the drawings of the manual: 8 rows of `width` bytes form an atom; chunks of 16 bytes are permuted by
    the row within it.
    """
    size = matrix.dtype.itemsize
    raw = np.zeros(64 * 1024, np.uint8)
    if width == 0:  # core matrices of 8 rows of 16 bytes, one after the other
        lines = matrix.T if turned else matrix
        outer, inner = lines.shape
        chunks = inner * size // 16
        for r in range(outer):
            for c in range(chunks):
                start = ((r // 8) * chunks + c) * 128 + r % 8 * 16
                raw[start : start + 16] = np.ascontiguousarray(lines[r]).view(np.uint8)[16 * c : 16 * c + 16]
        along, across = 128, 128 * chunks
        return raw, (across if turned else along), (along if turned else across)
    lines = np.ascontiguousarray(matrix.T if turned else matrix)
    outer, inner = lines.shape
    per = width // 16
    for r in range(outer):
        bytes_of_row = lines[r].view(np.uint8)
        for c in range(inner * size // 16):
            panel, inside = divmod(c, per)
            turn = r % 8 * width // 128 if width < 128 else r % 8
            start = panel * outer * width + r * width + ((inside ^ (turn % per)) * 16)
            raw[start : start + 16] = bytes_of_row[16 * c : 16 * c + 16]
    return raw, outer * width, 8 * width


@pytest.mark.parametrize("width", [0, 32, 64, 128])
@pytest.mark.parametrize(("d", "a", "b", "turned", "from_registers"), [
    *((d, a, b, False, False) for d, a, b in WGMMA_TYPES), ("f32", "f16", "f16", True, False),
    ("f32", "bf16", "bf16", True, False), ("f32", "f16", "f16", False, True), ("f32", "e4m3", "e4m3", False, True),
])  # fmt: skip
def test_wgmma_multiplies_tiles_that_lie_in_shared_memory(d, a, b, turned, from_registers, width):
    n, k = 64, 32 // BYTES[a]
    (a_bits, a_values), (b_bits, b_values), (c_bits, c_values) = draw((64, k), a), draw((n, k), b), draw((64, n), d)
    left, a_lead, a_stride = place_in_shared(a_bits, turned, width)
    right, b_lead, b_stride = place_in_shared(b_bits, turned, width)
    mode = {0: 0, 128: 1, 64: 2, 32: 3}[width]

    def descriptor(start: int, lead: int, stride: int) -> int:
        return start >> 4 | lead >> 4 << 16 | stride >> 4 << 32 | mode << 62

    size = BYTES[d]
    count = n // 2
    start = np.zeros((128, count * size), np.uint8)
    c_words = c_bits.view(f"u{size}")

    def accumulator_place(thread: int, i: int) -> tuple[int, int]:
        lane = thread % 32
        return thread // 32 * 16 + (lane >> 2) + 8 * (i // 2 % 2), 8 * (i // 4) + lane % 4 * 2 + i % 2

    for thread in range(128):
        start[thread] = np.array([c_words[accumulator_place(thread, i)] for i in range(count)], f"u{size}").view(
            np.uint8
        )
    held = np.zeros((128, 16), np.uint8)
    for thread in range(128):
        cells = [a_place(thread % 32, i, a, 16, k) for i in range(16 * k // 32)]
        held[thread] = np.array([a_bits[thread // 32 * 16 + r, c] for r, c in cells]).view(np.uint8)
    number = start.shape[1] // 4
    registers = "{" + ", ".join(f"%d{i}" for i in range(number)) + "}"
    source = "{%x0, %x1, %x2, %x3}" if from_registers else "%da"
    signs = "" if d == "s32" else ", 1, 1"
    turns = (f", {int(turned)}" if from_registers else f", {int(turned)}, {int(turned)}") if BYTES[a] == 2 else ""
    lines = [
        ".reg .b32 %t, %s, %w<4>, %x<4>; .reg .b64 %a, %o, %da, %db, %i; .reg .pred %one;",
        f".reg .b32 %d<{number}>; .shared .align 1024 .b8 tile[65536];", "mov.u32 %t, %tid.x; setp.eq.u32 %one, 0, 0;",
    ]  # fmt: skip
    for name, at in (("left", 0), ("right", 32768)):
        lines.append(
            f"ld.param.u64 %a, [{name}]; mad.wide.u32 %a, %t, 16, %a; shl.b32 %s, %t, 4; add.u32 %s, %s, {at};"
        )
        for block in range(32768 // 2048):
            lines.append(
                f"ld.global.v4.b32 {{%w0,%w1,%w2,%w3}}, [%a+{2048 * block}]; st.shared.v4.b32 "
                f"[%s+{2048 * block}], {{%w0,%w1,%w2,%w3}};"
            )
    lines.append(
        "bar.sync 0; ld.param.u64 %a, [held]; mad.wide.u32 %a, %t, 16, %a; ld.global.v4.b32 {%x0,%x1,%x2,%x3}, [%a];"
    )
    lines.append(f"ld.param.u64 %o, [start]; mad.wide.u32 %o, %t, {start.shape[1]}, %o;")
    lines += [f"ld.global.b32 %d{i}, [%o+{4 * i}];" for i in range(number)]
    lines.append(f"mov.b64 %da, {descriptor(0, a_lead, a_stride)}; mov.b64 %db, {descriptor(32768, b_lead, b_stride)};")
    lines += ["wgmma.fence.sync.aligned;",
              f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{d}.{a}.{b} {registers}, {source}, %db, %one{signs}{turns};",
              "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]  # fmt: skip
    lines += [f"st.global.b32 [%o+{4 * i}], %d{i};" for i in range(number)]
    params = ", ".join(f".param .u64 {name}" for name in ("left", "right", "held", "start"))
    text = HEADER + f".visible .entry k({params}) {{\n" + "\n".join(lines) + "\nret; }"
    launch(text, [left, right, held, start], block=(128, 1, 1))
    view = {"f32": "f4", "f16": "f2", "s32": "i4"}[d]
    result = np.zeros((64, n))
    for thread in range(128):
        for i, value in enumerate(start[thread].view(view)):
            result[accumulator_place(thread, i)] = value
    exact = a_values @ b_values.T + c_values
    assert (np.abs(result - exact) <= tolerance(d, a_values, b_values.T, c_values)).all()


def test_the_ordering_forms_are_the_three_of_the_manual():
    assert {form.split(".")[1] for form in ORDER_FORMS} == {"fence", "commit_group", "wait_group"}


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90"])
def test_a_product_that_nvidias_compiler_made_is_executed(target):
    text = (Path(__file__).parents[3] / "fixtures/ptx/product_in_the_order_of_cutlass.ptx").read_text()
    a, b = DRAW.standard_normal((2, 16, 16)).astype(np.float16)
    c = np.zeros((16, 16), np.float32)
    launch(text, [c, a, b], name="product", target=target)
    assert np.allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-5)


# .kind and block scales, sm_120 --------------------------------------------------------------------------------------
SMALL = {"e4m3": (4, 3, 7), "e5m2": (5, 2, 15), "e2m3": (2, 3, 1), "e3m2": (3, 2, 3), "e2m1": (2, 1, 1)}
SCALED_FORMS = (
    ("kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e3m2.f32", 0, 0, 0, 0),
    ("kind::f8f6f4.m16n8k32.row.col.f32.e2m3.e5m2.f32", 0, 0, 0, 0),
    ("kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e2m1.f32.ue8m0", 1, 2, 1, 1),
    ("kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0", 2, 2, 0, 1),
    ("kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3", 4, 0, 1, 0),
)


def small(code, kind):
    exponent_bits, mantissa_bits, bias = SMALL[kind]
    sign = -1.0 if code >> exponent_bits + mantissa_bits & 1 else 1.0
    e, m = code >> mantissa_bits & (1 << exponent_bits) - 1, code & (1 << mantissa_bits) - 1
    return sign * (m + ((e > 0) << mantissa_bits)) * 2.0 ** (max(e, 1) - bias - mantissa_bits)


@pytest.mark.parametrize(("form", "count", "byte", "ta", "tb"), SCALED_FORMS)
def test_mma_with_kinds_and_block_scales(form, count, byte, ta, tb):
    random = np.random.default_rng(count)
    k = 64 if "k64" in form else 32
    kinds = form.split("col.f32.")[1].split(".")[:2]
    words, values = [], []
    for rows, kind in zip((16, 8), kinds, strict=True):
        codes = random.integers(0, 1 << 1 + sum(SMALL[kind][:2]), (rows, k))
        codes = codes & 0xB7 if sum(SMALL[kind][:2]) == 7 else codes
        values.append(np.vectorize(lambda code, kind=kind: small(int(code), kind))(codes))
        raw = codes[:, ::2] | codes[:, 1::2] << 4 if k == 64 else codes << 2 if kind == "e2m1" else codes
        words.append(raw.astype(np.uint8).view(np.uint32))  # (rows, 8)
    lane = np.arange(32)
    group, quad = lane // 4, lane % 4
    a = [words[0][group + 8 * (i % 2), quad + 4 * (i // 2)] for i in range(4)]
    b = [words[1][group, quad + 4 * i] for i in range(2)]
    c = random.integers(-8, 8, (16, 8)).astype(np.float32)
    cs = [c[group + 8 * (i // 2), 2 * quad + i % 2].view(np.uint32) for i in range(4)]
    scales = [random.integers(0, 1 << 32, 32, dtype=np.uint64).astype(np.uint32) & 0x3E3E3E3E for _ in range(2)]
    scales = [s | np.uint32(0x40404040) for s in scales]
    operands = "{%out0,%out1,%out2,%out3}, {%in0,%in1,%in2,%in3}, {%in4,%in5}, {%in6,%in7,%in8,%in9}"
    if count:
        operands += f", %in10, {{{byte}, {ta}}}, %in11, {{{byte}, {tb}}}"
    found = run_lines(f"mma.sync.aligned.{form} {operands};", [*a, *b, *cs, *scales], [32] * 4, target="sm_120")
    if count:
        scale = (lambda x: 2.0 ** (int(x) - 127)) if "ue8m0" in form else (lambda x: small(int(x), "e4m3"))
        for i, (rows, lane_of) in enumerate(((16, lambda r: 4 * (r % 8) + 2 * ta + r // 8), (8, lambda r: 4 * r + tb))):
            for row in range(rows):
                own = [scale(scales[i][lane_of(row)] >> 8 * (byte + j) & 255) for j in range(count)]
                values[i][row] *= np.repeat(own, k // count)
    exact, size = values[0] @ values[1].T + c, abs(values[0]) @ abs(values[1]).T
    for i, result in enumerate(found):
        row, column = group + 8 * (i // 2), 2 * quad + i % 2
        error = abs(result.view(np.float32) - exact[row, column])
        assert (error <= 34 * 2.0**-23 * size[row, column] + 2.0**-23 * abs(c[row, column])).all()


def test_mma_with_kinds_is_for_sm_120():
    four = "{%r0,%r1,%r2,%r3}"
    line = f"mma.sync.aligned.{SCALED_FORMS[0][0]} {four}, {four}, {{%r0,%r1}}, {four};"
    with pytest.raises(UnsupportedInstruction, match=r"no mma\.sync with \.kind"):
        run_lines(line.replace("%r0", "%in0"), [np.zeros(32, np.uint32)], [32], registers=".reg .b32 %r<4>;")
