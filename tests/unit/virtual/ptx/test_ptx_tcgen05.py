"""tcgen05: tensor memory word by word, descriptors built here from the manual's tables, products against float64."""

from __future__ import annotations

import itertools
import re
from contextlib import nullcontext

import numpy as np
import pytest
from ptx_harness import launch

from gpu_utils.errors import OutOfBounds, ResourceLimit, TensorMemoryFault, UninitialisedShared, UnsupportedInstruction

HEAD = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) .reqntid 128 {
.reg .pred %p<8>; .reg .b32 %r<600>; .reg .b64 %rd<40>;
.shared .align 1024 .b8 data[DATA];
.shared .align 16 .b8 place[16];
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; and.b32 %r2, %r0, 31;
setp.eq.u32 %p0, %r1, 0; setp.eq.u32 %p1, %r0, 0;
ld.param.u64 %rd0, [in]; ld.param.u64 %rd1, [out];
mov.u32 %r3, place; mov.u32 %r4, data;
"""
ALLOC = """@%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r3], COUNT;
bar.sync 0;
ld.shared.b32 %r5, [%r3];
"""
FREE = "bar.sync 0;\n@%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r5, COUNT;\nret; }\n"
OWN = "shl.b32 %r6, %r1, 21; add.u32 %r7, %r5, %r6;\n"  # this warp's quarter
LD, ST, WAIT = "tcgen05.ld.sync.aligned", "tcgen05.st.sync.aligned", "tcgen05.wait::{}.sync.aligned;\n"


def registers(first, count):
    return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


def kernel(body, columns=128, data=16, free=True, alloc=ALLOC):
    end = FREE if free else "ret; }\n"
    return (HEAD + alloc + OWN + body + end).replace("COUNT", str(columns)).replace("DATA", str(data))


def save(first, count, rows=128):
    """Each thread's registers to out[thread][count]."""
    lines = [f"mad.wide.u32 %rd2, %r0, {4 * count}, %rd1;\n"]
    return "".join([*lines, *(f"st.global.b32 [%rd2+{4 * i}], %r{first + i};\n" for i in range(count))])


def fill(count):
    """Word (lane, column) of tensor memory becomes 65536 * lane + 3 * column + 7, by 32x32b."""
    lines = ["shl.b32 %r8, %r0, 16;\n", *(f"add.u32 %r{10 + i}, %r8, {3 * i + 7};\n" for i in range(count))]
    return "".join([*lines, f"{ST}.32x32b.x{count}.b32 [%r7], {registers(10, count)};\n", WAIT.format("st")])


def run(text, inputs=None, out=128, target="sm_100", grid=(1, 1, 1)):
    result = np.zeros(out, np.uint32)
    launch(
        text,
        [np.zeros(4, np.uint32) if inputs is None else inputs, result],
        block=(128, 1, 1),
        grid=grid,
        target=target,
    )
    return result


def place_of(shape, lane, i):
    """(row, column) of register i of a lane, from the figures of the manual's "Matrix fragments for shape"."""
    group, quad = lane // 4, lane % 4
    if shape == "32x32b":
        return lane, i
    if shape == "16x64b":
        return group + (8 if lane % 2 else 0), 2 * i + (lane % 4 >= 2)
    if shape == "16x128b":
        return group + (8 if i % 2 else 0), i // 2 * 4 + quad
    if shape == "16x256b":
        return group + (8 if i % 4 >= 2 else 0), i // 4 * 8 + 2 * quad + i % 2
    raise AssertionError(shape)


SHAPES = [("32x32b", 1, 4), ("16x64b", 1, 4), ("16x128b", 2, 4), ("16x256b", 4, 2), ("16x128b", 2, 1), ("32x32b", 1, 1)]


@pytest.mark.parametrize(("shape", "each", "repeats"), SHAPES)
def test_loads_and_stores_place_every_word_as_the_figures_do(shape, each, repeats):
    count = each * repeats
    offset = 2 + (0x100000 if shape != "32x32b" else 0)  # rows 16 to 31 of the quarter
    load = f"{LD}.{shape}.x{repeats}.b32 {registers(200, count)}, [%r7+{offset}];\n" + WAIT.format("ld")
    found = run(kernel(fill(64) + load + save(200, count)), out=128 * count).reshape(128, count)
    for thread, i in itertools.product(range(128), range(count)):
        row, column = place_of(shape, thread % 32, i)
        lane = thread // 32 * 32 + row + (offset >> 16)
        assert found[thread, i] == 65536 * lane + 3 * (column + 2) + 7, (thread, i)
    numbers = "".join(f"mad.lo.u32 %r{200 + i}, %r0, 1000, {i};\n" for i in range(count))
    body = numbers + f"{ST}.{shape}.x{repeats}.b32 [%r7+{offset}], {registers(200, count)};\n" + WAIT.format("st")
    back = f"{LD}.32x32b.x32.b32 {registers(300, 32)}, [%r7];\n" + WAIT.format("ld") + save(300, 32)
    found = run(kernel(fill(64) + body + back), out=128 * 32).reshape(128, 32)
    expected = 65536 * np.arange(128)[:, None] + 3 * np.arange(32) + 7
    for thread, i in itertools.product(range(128), range(count)):
        row, column = place_of(shape, thread % 32, i)
        expected[thread // 32 * 32 + row + (offset >> 16), column + 2] = 1000 * thread + i
    assert np.array_equal(found, expected)


def test_two_halves_of_16_rows_come_from_two_addresses():
    load = f"{LD}.16x32bx2.x4.b32 {registers(200, 4)}, [%r7+4], 20;\n" + WAIT.format("ld")
    found = run(kernel(fill(64) + load + save(200, 4)), out=512).reshape(128, 4)
    lane = np.arange(128)
    row, first = lane // 32 * 32 + lane % 16, np.where(lane % 32 < 16, 4, 24)
    assert np.array_equal(found, 65536 * row[:, None] + 3 * (first[:, None] + np.arange(4)) + 7)


def test_packed_loads_take_the_low_halves_of_two_columns_and_unpacked_stores_spread_them():
    body = f"{LD}.32x32b.x2.pack::16b.b32 {registers(200, 2)}, [%r7+6];\n" + WAIT.format("ld")
    body += f"{ST}.32x32b.x2.unpack::16b.b32 [%r7+32], {registers(200, 2)};\n" + WAIT.format("st")
    body += f"{LD}.32x32b.x4.b32 {registers(202, 4)}, [%r7+32];\n" + WAIT.format("ld")
    found = run(kernel(fill(64) + body + save(200, 6)), out=768).reshape(128, 6)
    low = 3 * (6 + np.arange(4)) + 7
    assert np.array_equal(found, np.tile([low[0] | low[1] << 16, low[2] | low[3] << 16, *low], (128, 1)))


# operands in shared memory ------------------------------------------------------------------------------------------
CODES = {"none": 0, "128x32": 1, "128": 2, "64": 4, "32": 6}


def layout(rows, k_bytes, size, swizzle, turned):
    """(byte places (rows, k_bytes), leading, stride, bytes): canonical layouts of CUTLASS's mma_sm100_desc.hpp."""
    r, b = np.meshgrid(np.arange(rows), np.arange(k_bytes), indexing="ij")
    width = {"none": 16, "128x32": 128}.get(swizzle) or int(swizzle)
    tall = 4 if swizzle == "128x32" else 8
    if turned:
        k, x = b // size, r * size + b % size
        blocks_x = -(-rows * size // width)
        if swizzle == "none":
            lead, stride = 16 * 8, 16 * 8 * -(-k_bytes // size // 8)
            at = x // 16 * stride + k // 8 * lead + k % 8 * 16 + x % 16
        else:
            lead, stride = width * tall, width * tall * blocks_x
            at = x // width * lead + k // tall * stride + k % tall * width + x % width
    elif swizzle == "none":
        lead, stride = 128, 128 * (k_bytes // 16)
        at = r // 8 * stride + b // 16 * lead + r % 8 * 16 + b % 16
    else:
        lead, stride = 16, 8 * width
        at = r // 8 * stride + r % 8 * width + b
    if swizzle == "128x32":
        at ^= (at >> 7 & 3) << 5
    elif swizzle != "none":
        at ^= (at >> 7 & width // 16 - 1) << 4
    return at, lead, stride


def descriptor(start, lead, stride, swizzle):
    return start >> 4 | lead >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | CODES[swizzle] << 61


NUMBERS = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5, "u8": 0, "s8": 1}
FINITE = {"e4m3": (4, 3, 7), "e5m2": (5, 2, 15), "e2m3": (2, 3, 1), "e3m2": (3, 2, 3), "e2m1": (2, 1, 1)}


def decoded(code, kind):
    exponent_bits, mantissa_bits, bias = FINITE[kind]
    sign = -1.0 if code >> (exponent_bits + mantissa_bits) & 1 else 1.0
    e, m = code >> mantissa_bits & (1 << exponent_bits) - 1, code & (1 << mantissa_bits) - 1
    return sign * (m + ((e > 0) << mantissa_bits)) * 2.0 ** (max(e, 1) - bias - mantissa_bits)


def numbers(random, kind, rows, k, packed=False):
    """(bytes of the operand (rows, 32), values float64 (rows, k))."""
    if kind in ("f16", "bf16", "tf32"):
        values = random.integers(-32, 33, (rows, k)) / 4
        raw = values.astype(np.float32).view(np.uint32)
        words = values.astype(np.float16).view(np.uint16) if kind == "f16" else raw >> 16 if kind == "bf16" else raw
        return words.astype(np.uint32 if kind == "tf32" else np.uint16).view(np.uint8).reshape(rows, -1), values
    if kind in ("s8", "u8"):
        values = random.integers(-128, 128, (rows, k)) if kind == "s8" else random.integers(0, 256, (rows, k))
        return values.astype(np.uint8), values.astype(float)
    bits = 1 + sum(FINITE[kind][:2])
    codes = random.integers(0, 1 << bits, (rows, k))
    if kind in ("e4m3", "e5m2"):
        codes = codes & 0xB7  # no NaN, no infinity
    values = np.vectorize(lambda code: decoded(int(code), kind))(codes)
    if bits == 8:
        return codes.astype(np.uint8), values
    raw = np.full((rows, 32), 0xA5, np.uint8)
    for row in range(rows):
        for chunk in range(2):
            own = codes[row, chunk * (k // 2) : (chunk + 1) * (k // 2)]
            word = sum(int(code) << bits * i for i, code in enumerate(own))
            used = len(own) * bits // 8
            raw[row, 16 * chunk : 16 * chunk + used] = np.frombuffer(word.to_bytes(used, "little"), np.uint8)
    return raw, values


COPY_IN = """mov.u32 %r9, %r0;
again: setp.ge.u32 %p2, %r9, WORDS; @%p2 bra done;
mad.wide.u32 %rd2, %r9, 4, %rd0; ld.global.b32 %r20, [%rd2]; shl.b32 %r21, %r9, 2; add.u32 %r21, %r21, %r4;
st.shared.b32 [%r21], %r20; add.u32 %r9, %r9, 128; bra again;
done: bar.sync 0;
"""
MMA_END = """bar.sync 0;
"""


def product_of(form, idesc, a, b, tail="%p3", d_columns=64, extra="", columns=256, keep=0):
    """A kernel that copies `data` in, multiplies and stores all lanes of D."""
    setup = f"mov.u64 %rd10, {a:#x}; mov.u64 %rd11, {b:#x}; mov.u32 %r30, {idesc:#x}; setp.ne.u32 %p3, 0, {keep};\n"
    setup += (
        "cvt.u64.u32 %rd12, %r4; shr.u64 %rd12, %rd12, 4; add.u64 %rd10, %rd10, %rd12; add.u64 %rd11, %rd11, %rd12;\n"
    )
    zero = "".join(f"mov.b32 %r{100 + i}, {0x3F800000:#x};\n" for i in range(d_columns))
    zero += f"{ST}.32x32b.x{d_columns}.b32 [%r7], {registers(100, d_columns)};\n" + WAIT.format("st") + "bar.sync 0;\n"
    mma = f"@%p1 tcgen05.mma.{form} [%r5], %rd10, %rd11, %r30, {tail};\n{MMA_END}"
    load = f"{LD}.32x32b.x{d_columns}.b32 {registers(100, d_columns)}, [%r7];\n" + WAIT.format("ld")
    return kernel(COPY_IN + setup + zero + extra + mma + load + save(100, d_columns), columns, "SIZE")


def laid_out(operands):
    """(bytes of shared memory, a descriptor for each of (raw, size, swizzle, turned)); gaps are filled with 0xFF."""
    places, start = [], 0
    for raw, size, swizzle, turned in operands:
        at, lead, stride = layout(*raw.shape, size, swizzle, turned)
        places.append((at + start, descriptor(start, lead, stride, swizzle)))
        start += -(-(int(at.max()) + 16) // 1024) * 1024
    memory = np.full(start, 0xFF, np.uint8)
    for (at, _), (raw, *_) in zip(places, operands, strict=True):
        memory[at] = raw
    return memory, [d for _, d in places]


PRODUCTS = [
    ("f16", "f16", "f16", 128, 64, "128", "128", False, False),
    ("f16", "bf16", "bf16", 64, 24, "64", "none", False, False),
    ("f16", "f16", "f16", 128, 64, "128", "64", True, True),
    ("f16", "f16", "f16", 64, 64, "none", "32", True, True),
    ("tf32", "tf32", "tf32", 128, 32, "32", "128", False, False),
    ("tf32", "tf32", "tf32", 64, 32, "128x32", "128x32", True, True),
    ("i8", "s8", "u8", 128, 64, "128", "64", False, True),
    ("f8f6f4", "e4m3", "e5m2", 128, 64, "128", "none", True, False),
    ("f8f6f4", "e2m1", "e3m2", 128, 16, "128", "32", False, False),
    ("f8f6f4", "e2m3", "e4m3", 64, 64, "64", "128", False, True),
]


def read_d(found, m, n, kind):
    rows = np.arange(m) if m == 128 else np.arange(m) % 16 + np.arange(m) // 16 * 32
    words = found.reshape(128, -1)[rows, :n]
    return words.view(np.int32).astype(float) if kind == "i8" else words.view(np.float32).astype(float)


@pytest.mark.parametrize(("kind", "a", "b", "m", "n", "sa", "sb", "ta", "tb"), PRODUCTS)
@pytest.mark.parametrize("keep", [0, 1])
def test_products_of_operands_in_shared_memory(kind, a, b, m, n, sa, sb, ta, tb, keep):
    random = np.random.default_rng(m + n)
    size = {"f16": 2, "tf32": 4}.get(kind, 1)
    (left, x), (right, y) = numbers(random, a, m, 32 // size), numbers(random, b, n, 32 // size)
    memory, (da, db) = laid_out([(left, size, sa, ta), (right, size, sb, tb)])
    negative = kind != "i8"
    idesc = (2 if kind == "i8" else 1) << 4 | NUMBERS[a] << 7 | NUMBERS[b] << 10 | negative << 13
    idesc |= ta << 15 | tb << 16 | n >> 3 << 17 | m >> 4 << 24
    form = f"cta_group::1.kind::{kind}" + (".collector::a::fill" if keep else "")
    text = (
        product_of(form, idesc, da, db, keep=keep)
        .replace("SIZE", str(len(memory)))
        .replace("WORDS", str(len(memory) // 4))
    )
    found = read_d(run(text, memory.view(np.uint32), 128 * 64), m, n, kind)
    before = (0x3F800000 if kind == "i8" else 1.0) if keep else 0
    bound = 34 * 2.0**-23 * (abs(x) @ abs(y).T) if kind == "f8f6f4" else 0
    assert (abs(found - (-1 if negative else 1) * (x @ y.T) - before) <= bound).all()


def test_an_operand_in_tensor_memory_a_scaled_accumulator_and_lanes_that_are_left_alone():
    random = np.random.default_rng(5)
    (left, x), (right, y) = numbers(random, "f16", 128, 16), numbers(random, "f16", 32, 16)
    memory, (db,) = laid_out([(right, 2, "32", False)])
    memory = np.concatenate([memory, left.ravel()])
    take = "".join(f"ld.shared.b32 %r{60 + i}, [%r50+{len(memory) - left.size + 4 * i}];\n" for i in range(8))
    take = f"shl.b32 %r50, %r0, 5; add.u32 %r50, %r50, %r4;\n{take}"
    take += (
        f"{ST}.32x32b.x8.b32 [%r7+64], {registers(60, 8)};\n"
        + WAIT.format("st")
        + "bar.sync 0; add.u32 %r51, %r5, 64;\n"
    )
    take += "mov.u32 %r55, 0xF0; mov.u32 %r56, 0;\n"
    idesc = 1 << 4 | 32 >> 3 << 17 | 128 >> 4 << 24
    text = product_of("cta_group::1.kind::f16", idesc, 0, db, "{%r55, %r56, %r56, %r56}, %p3, 2", extra=take, keep=1)
    text = text.replace("[%r5], %rd10", "[%r5], [%r51]")
    text = text.replace("SIZE", str(len(memory))).replace("WORDS", str(len(memory) // 4))
    found = read_d(run(text, memory.view(np.uint32), 128 * 64), 128, 32, "f16")
    expected = x @ y.T + 0.25
    expected[4:8] = 1
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("m", [32, 64])
def test_with_stationary_weights_the_columns_share_the_lanes(m):
    random = np.random.default_rng(m)
    (left, x), (right, y) = numbers(random, "f16", m, 16), numbers(random, "f16", 64, 16)
    memory, (da, db) = laid_out([(left, 2, "128", False), (right, 2, "128", False)])
    idesc = 1 << 4 | 64 >> 3 << 17 | m >> 4 << 24
    text = product_of("ws.cta_group::1.kind::f16", idesc, da, db)
    text = text.replace("SIZE", str(len(memory))).replace("WORDS", str(len(memory) // 4))
    found = run(text, memory.view(np.uint32), 128 * 64).view(np.float32).reshape(128 // m, m, 64)[..., : 64 * m // 128]
    assert np.array_equal(np.concatenate(list(found), axis=1), x @ y.T)


SCALED = [("mxf8f6f4", "scale_vec::1X", "e4m3", "e2m1", 1, 2, 1, 32),
          ("mxf8f6f4", "block32", "e5m2", "e3m2", 1, 0, 3, 32),
          ("mxf4", "scale_vec::2X", "e2m1", "e2m1", 2, 2, 0, 64),
          ("mxf4nvf4", "scale_vec::4X", "e2m1", "e2m1", 4, 0, 0, 64),
          ("mxf4nvf4", "block16", "e2m1", "e2m1", 4, 0, 0, 64)]  # fmt: skip


@pytest.mark.parametrize(("kind", "vector", "a", "b", "count", "first_a", "first_b", "k"), SCALED)
def test_block_scales_that_a_copy_spreads_over_the_four_quarters(kind, vector, a, b, count, first_a, first_b, k):
    random, m, n = np.random.default_rng(k + count), 128, 64
    (left, x), (right, y) = numbers(random, a, m, k), numbers(random, b, n, k)
    powers = vector != "block16"
    scales = [
        random.integers(125, 130, (rows, 4)) if powers else random.integers(0x30, 0x50, (rows, 4)) for rows in (m, n)
    ]
    tables = []
    for codes in scales:  # row r: 32 rows of 16 bytes, row r % 32, word r / 32
        table = np.zeros((32, 4, 4), np.uint8)
        table[np.arange(len(codes)) % 32, np.arange(len(codes)) // 32] = codes
        tables.append((table.reshape(32, 16), 1, "none", False))
    memory, (da, db, dsa, dsb) = laid_out([(left, 1, "128", False), (right, 1, "64", False), *tables])
    packed = k == 64
    idesc = (1 if packed else NUMBERS[a]) << 7 | (1 if packed else NUMBERS[b]) << 10
    idesc |= first_b << 4 | n >> 3 << 17 | powers << 23 | m >> 4 << 24 | first_a << 29
    copy = "add.u32 %r40, %r5, 64; add.u32 %r41, %r5, 68;\n"
    copy += (
        f"mov.u64 %rd13, {dsa:#x}; mov.u64 %rd14, {dsb:#x}; add.u64 %rd13, %rd13, %rd12; add.u64 %rd14, %rd14, %rd12;\n"
    )
    for target, source in ((40, 13), (41, 14)):
        form = "32x128b.warpx4" if target == 40 else "warpx4.32x128b"  # Triton writes the second
        copy += f"@%p1 tcgen05.cp.cta_group::1.{form} [%r{target}], %rd{source};\n"
    text = product_of(
        f"cta_group::1.kind::{kind}.block_scale.{vector}", idesc, da, db, "[%r40], [%r41], %p3", extra=copy
    )
    text = text.replace("SIZE", str(len(memory))).replace("WORDS", str(len(memory) // 4))
    found = read_d(run(text, memory.view(np.uint32), 128 * 64), m, n, "f32")
    value = (lambda code: 2.0 ** (int(code) - 127)) if powers else (lambda code: decoded(int(code), "e4m3"))
    own = [
        np.vectorize(value)(codes)[:, first : first + count]
        for codes, first in zip(scales, (first_a, first_b), strict=True)
    ]
    xs, ys = (v * np.repeat(s, k // count, axis=1) for v, s in zip((x, y), own, strict=True))
    assert (abs(found - xs @ ys.T) <= 34 * 2.0**-24 * (abs(xs) @ abs(ys).T)).all()


COPIES = [("128x256b", 128, 32), ("128x128b", 128, 16), ("4x256b", 4, 32), ("64x128b.warpx2::02_13", 64, 16),
          ("64x128b.warpx2::01_23", 64, 16), ("128x128b.b8x16.b4x16_p64", 128, 16),
          ("128x256b.b8x16.b6x16_p32", 128, 32)]  # fmt: skip


@pytest.mark.parametrize(("form", "rows", "count"), COPIES)
def test_copies_from_shared_memory(form, rows, count):
    raw = np.random.default_rng(rows).integers(0, 256, (rows, count)).astype(np.uint8)
    memory, (source,) = laid_out([(raw, 1, "32" if count == 32 else "none", False)])
    start = fill(64) + COPY_IN
    body = (
        f"cvt.u64.u32 %rd12, %r4; shr.u64 %rd12, %rd12, 4; mov.u64 %rd13, {source:#x}; add.u64 %rd13, %rd13, %rd12;\n"
    )
    body += f"@%p1 tcgen05.cp.cta_group::1.{form} [%r5], %rd13;\nbar.sync 0;\n"
    load = f"{LD}.32x32b.x8.b32 {registers(100, 8)}, [%r7];\n" + WAIT.format("ld")
    text = kernel(start + body + load + save(100, 8), 128, len(memory)).replace("WORDS", str(len(memory) // 4))
    found = run(text, memory.view(np.uint32), 1024).reshape(128, 8).view(np.uint8)[:, :count]
    if "b8x16" in form:
        bits = 4 if "b4" in form else 6
        words = [int.from_bytes(chunk.tobytes()[: 2 * bits], "little") for chunk in raw.reshape(-1, 16)]
        raw = np.array([[w >> bits * i & (1 << bits) - 1 for i in range(16)] for w in words], np.uint8).reshape(
            rows, count
        )
    if rows == 128:
        expected = {lane: raw[lane] for lane in range(128)}
    elif rows == 4:
        expected = {lane: raw[lane % 32 - 28] for lane in range(128) if lane % 32 >= 28}
    elif form.endswith("02_13"):
        expected = {lane: raw[lane % 64] for lane in range(128)}
    else:
        expected = {lane: raw[lane // 64 * 32 + lane % 32] for lane in range(128)}
    assert all(np.array_equal(found[lane], row) for lane, row in expected.items())
    untouched = [lane for lane in range(128) if lane not in expected]
    assert np.array_equal(found[untouched].view(np.uint32)[:, 0], 65536 * np.array(untouched, int) + 7)


def test_a_commit_arrives_at_its_mbarrier():
    body = """add.u32 %r60, %r3, 8;
@%p1 mbarrier.init.shared::cta.b64 [%r60], 1;
bar.sync 0;
@%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r60];
bar.sync 0;
mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r60], 0;
selp.u32 %r61, 1, 0, %p4;
"""
    assert run(kernel(body + save(61, 1))).all()


def test_columns_are_handed_out_and_taken_back_block_by_block():
    more = ALLOC.replace("COUNT", "64").replace("%r5", "%r70") + ALLOC.replace("COUNT", "32").replace("%r5", "%r71")
    give = "".join(f"@%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r{r}, {n};\n" for r, n in ((70, 64), (71, 32)))
    found = run(kernel(more + save(70, 2) + give), out=256, grid=(3, 1, 1)).reshape(128, 2)
    assert np.array_equal(found, np.tile([128, 192], (128, 1)))


LOAD = f"{LD}.32x32b.x1.b32 {{%r100}}, [%r7+ADD];\n"
FAULTS = [
    ("not given back", kernel("", free=False), TensorMemoryFault, "ended with 128 columns of tensor memory"),
    ("not its own", kernel(fill(64) + LOAD.replace("ADD", "128")), OutOfBounds, "columns 128 to 128 of tensor memory"),
    ("another quarter", kernel(fill(64) + LOAD.replace("ADD", str(32 << 16))), TensorMemoryFault,
     "a warp has the quarter"),
    ("too many", kernel(ALLOC.replace("COUNT", "512")), ResourceLimit, "512 side by side are not free"),
    ("48 columns", kernel("", 48), TensorMemoryFault, "names 48 columns"),
    ("given back twice", kernel(FREE.replace("ret; }", "")), TensorMemoryFault, "there is no allocation"),
    ("no right", kernel("@%p0 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n" + ALLOC), TensorMemoryFault,
     "gave up the right"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "error", "words"), FAULTS, ids=[row[0] for row in FAULTS])
def test_what_the_manual_forbids_is_reported(name, text, error, words):
    with pytest.raises(error, match=words):
        run(text)


@pytest.mark.parametrize("keep", [0, 1])
def test_a_product_onto_words_that_nobody_has_written_is_reported_where_it_keeps_them(keep):
    memory, (da, db) = laid_out([(np.zeros((128, 32), np.uint8), 2, "32", False)] * 2)
    idesc = 1 << 4 | 32 >> 3 << 17 | 128 >> 4 << 24
    text = product_of("cta_group::1.kind::f16", idesc, da, db, keep=keep, extra="add.u32 %r51, %r5, 128;\n")
    text = text.replace("[%r5], %rd10", "[%r51], %rd10")
    text = text.replace("SIZE", str(len(memory))).replace("WORDS", str(len(memory) // 4))
    with pytest.raises(UninitialisedShared, match="column 128 of tensor memory") if keep else nullcontext():
        run(text, memory.view(np.uint32), 128 * 64)


def test_a_load_of_words_that_nobody_has_written_gives_numbers_that_are_none():
    found = run(kernel(LOAD.replace("ADD", "3") + WAIT.format("ld") + save(100, 1)))
    assert np.isnan(found.view(np.float32)).all()
    assert np.isnan(found.view(np.float16)).all()


def test_an_address_of_the_first_quarter_stands_for_the_warp_s_own():
    found = run(kernel(fill(64) + LOAD.replace("%r7+ADD", "%r5+2") + save(100, 1)))
    assert np.array_equal(found, 65536 * np.arange(128) + 13)


@pytest.mark.parametrize(("idesc", "a", "words"), [
    (1 << 4 | 8 << 17 | 8 << 24, 0, "no shared-memory descriptor of sm_100"),
    (1 << 4 | 8 << 17 | 3 << 24, 1 << 46, "M = 48"),
    (1 << 4 | 8 << 17 | 8 << 24 | 5 << 7, 1 << 46, "types 5"),
])  # fmt: skip
def test_a_descriptor_that_is_none_is_reported(idesc, a, words):
    text = product_of("cta_group::1.kind::f16", idesc, a, 1 << 46).replace("SIZE", "4096").replace("WORDS", "1024")
    with pytest.raises(TensorMemoryFault, match=words):
        run(text, np.zeros(1024, np.uint32), 128 * 64)


@pytest.mark.parametrize(("line", "target"), [
    ("tcgen05.mma.sp.cta_group::1.kind::f16 [%r5], %rd10, %rd11, [%r6], %r30, %p3;", "sm_100"),
    ("tcgen05.mma.cta_group::2.kind::f16 [%r5], %rd10, %rd11, %r30, %p3;", "sm_100"),
    ("tcgen05.wait::ld.sync.aligned;", "sm_120"),
    ("tcgen05.shift.cta_group::1.down [%r5];", "sm_100"),
])  # fmt: skip
def test_what_is_not_executed_is_refused(line, target):
    with pytest.raises(
        UnsupportedInstruction, match=f"virtual {target} cannot execute .*{re.escape(line.split()[0][:7])}"
    ):
        run(kernel(line + "\n"), target=target)
