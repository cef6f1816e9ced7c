"""wmma: fragments loaded, multiplied and stored in every shape, type and layout, compared with a product of NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from gpu_utils import virtual_gpu
from gpu_utils.errors import UnsupportedInstruction
from gpu_utils.virtual.ptx.wmma import SHAPES, registers_of

WIDTH = {"f64": "b64"}
LETTER = {"f64": "fd"}
STORED = {
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "s32": np.int32,
    "s8": np.int8,
    "u8": np.uint8,
    "tf32": np.float32,
}


def registers(name: str, count: int) -> str:
    return "{" + ", ".join(f"%{name}{i}" for i in range(count)) + "}"


def kernel(shape: str, kinds: tuple[str, str, str, str], layouts: tuple[str, ...], strides, sat="") -> str:
    d, a, b, c = kinds
    counts = [registers_of(m, shape, kind) for m, kind in zip("abcd", (a, b, c, d), strict=True)]
    kind_of = dict(zip("abcd", (a, b, c, d), strict=True))
    wide = {m: "f64" if kind == "f64" else "f32" if kind == "f32" else "b32" for m, kind in kind_of.items()}
    ab = "" if a == "f16" else f".{a}.{b}"
    rounding = ".rn" if a == "f64" else ""
    space = {"a": ".global", "b": "", "c": ".global", "d": ".shared"}
    lines = [f".reg .{wide[m]} %{m}<{n}>;" for m, n in zip("abcd", counts, strict=True)]
    for m, n, layout, stride in zip("abc", counts, layouts, strides, strict=False):
        lines.append(
            f"ld.param.u64 %p, [{m}];\nmov.u32 %s, {stride};\n"
            f"wmma.load.{m}.sync.aligned.{layout}.{shape}{space[m]}.{kind_of[m]} {registers(m, n)}, [%p], %s;"
        )
    lines.append(
        f"wmma.mma.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}{rounding}.{d}{ab}.{c}{sat} "
        + ", ".join(registers(m, n) for m, n in zip("dabc", (counts[3], *counts[:3]), strict=True))
        + f";\nld.param.u64 %p, [d];\nmov.u32 %s, {strides[3]};\n"
        f"wmma.store.d.sync.aligned.{layouts[3]}.{shape}.global.{d} [%p], {registers('d', counts[3])}, %s;\nret;"
    )
    return (
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c,"
        " .param .u64 d)\n{\n.reg .u64 %p;\n.reg .u32 %s;\n" + "\n".join(lines) + "\n}\n"
    )


def laid(matrix: np.ndarray, layout: str, spare: int) -> tuple[np.ndarray, int]:
    """The matrix in memory, with rows (or columns) `spare` elements further apart than they are long."""
    rows = matrix if layout == "row" else matrix.T
    out = np.zeros((rows.shape[0], rows.shape[1] + spare), matrix.dtype)
    out[:, : rows.shape[1]] = rows
    return out, out.shape[1]


def drawn(kind: str, size: tuple[int, int], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(as stored, as float64 or int64)."""
    if kind == "bf16":
        bits = (rng.integers(-128, 128, size) / 16).astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return (bits >> 16).astype(np.uint16), bits.view(np.float32).astype(float)
    if kind in ("s8", "u8", "s32"):
        low, high = {"s8": (-128, 128), "u8": (0, 256), "s32": (-(2**31), 2**31)}[kind]
        value = rng.integers(low, high, size).astype(STORED[kind])
        return value, value.astype(np.int64)
    value = (rng.integers(-128, 128, size) / 16).astype(STORED[kind])
    return value, value.astype(float)


def cases():
    for kind, shapes in SHAPES.items():
        if kind in ("s4", "u4", "b1"):
            continue
        d_kinds = {"f16": ("f16", "f32"), "f64": ("f64",), "s8": ("s32",), "u8": ("s32",)}.get(kind, ("f32",))
        for shape, d in itertools.product(shapes, d_kinds):
            yield shape, kind, d


@pytest.mark.drawn("all", 6)
@pytest.mark.parametrize(("shape", "kind", "d"), list(cases()))
def test_a_product_in_every_layout(shape, kind, d):
    m, n, k = map(int, shape[1:].replace("n", " ").replace("k", " ").split())
    rng = np.random.default_rng(0)
    for number, layouts in enumerate(itertools.product(("row", "col"), repeat=4)):
        c_kind = d if d != "f32" or kind != "f16" else ("f16", "f32")[number % 2]
        numbers, memory, strides = [], [], []
        for each, size, layout in zip((kind, kind, c_kind), ((m, k), (k, n), (m, n)), layouts, strict=False):
            stored, value = drawn(each, size, rng)
            place, stride = laid(stored, layout, 16)
            numbers.append(value)
            memory.append(torch.from_numpy(place))
            strides.append(stride)
        out, stride = laid(np.zeros((m, n), STORED[d]), layouts[3], 16)
        sat = ".satfinite" if d == "s32" and number % 2 else ""
        text = kernel(shape, (d, kind, kind, c_kind), layouts, (*strides, stride), sat)
        result = torch.from_numpy(out)
        with virtual_gpu("sm_90") as gpu:
            gpu.load(text).launch("k", 1, 32, [*memory, result])
        rows = out[:, :-16] if layouts[3] == "row" else out[:, :-16].T
        expected = numbers[0] @ numbers[1] + numbers[2]
        if d == "s32":
            expected = np.clip(expected, -(2**31), 2**31 - 1) if sat else expected
            expected = expected.astype(np.int64).astype(np.int32)
        assert np.array_equal(rows, expected.astype(STORED[d])), layouts  # sixteenths below 2**24: sums are exact
        assert not out[:, -16:].any()


@pytest.mark.parametrize("kind", ["s4", "u4"])
def test_a_product_of_four_bits(kind):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 8, (8, 32)) if kind == "s4" else rng.integers(0, 16, (8, 32)) for _ in range(2))
    c = rng.integers(-100, 100, (8, 8)).astype(np.int32)
    packed = [torch.from_numpy(((x[:, 0::2] & 15) | (x[:, 1::2] & 15) << 4).astype(np.uint8)) for x in (a, b)]
    out = torch.zeros(8, 8, dtype=torch.int32)
    text = kernel("m8n8k32", ("s32", kind, kind, "s32"), ("row", "col", "row", "row"), (32, 32, 8, 8))
    with virtual_gpu("sm_80") as gpu:
        gpu.load(text.replace("sm_90", "sm_80")).launch("k", 1, 32, [*packed, torch.from_numpy(c), out])
    assert np.array_equal(out.numpy(), a @ b.T + c)


@pytest.mark.parametrize("join", ["xor", "and"])
def test_a_product_of_single_bits_counts_them(join):
    rng = np.random.default_rng(2)
    a, b = (rng.integers(0, 2, (8, 128)).astype(np.uint8) for _ in range(2))
    c, out = np.arange(64, dtype=np.int32).reshape(8, 8), torch.zeros(8, 8, dtype=torch.int32)
    packed = [torch.from_numpy(np.packbits(x, axis=1, bitorder="little")) for x in (a, b)]
    text = kernel("m8n8k128", ("s32", "b1", "b1", "s32"), ("row", "col", "row", "row"), (128, 128, 8, 8))
    text = text.replace("wmma.mma.", f"wmma.mma.{join}.popc.")
    with virtual_gpu("sm_90") as gpu:
        gpu.load(text).launch("k", 1, 32, [*packed, torch.from_numpy(c), out])
    joined = a[:, None] ^ b[None] if join == "xor" else a[:, None] & b[None]
    assert np.array_equal(out.numpy(), joined.sum(axis=2) + c)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("m16n16k16", "m16n16k8"),
        (".f32 {", ".s32 {"),
        ("wmma.mma.sync.aligned.row.col", "wmma.mma.sync.aligned.row.left"),
        ("wmma.load.a.sync.aligned.row", "wmma.load.a.sync.row"),
        ("{%a0, ", "{"),
    ],
)
def test_a_form_that_the_manual_lacks_is_refused(old, new):
    text = kernel("m16n16k16", ("f32", "f16", "f16", "f32"), ("row", "col", "row", "row"), (16, 16, 16, 16))
    assert old in text
    with virtual_gpu("sm_90") as gpu, pytest.raises(UnsupportedInstruction, match="wmma"):
        gpu.load(text.replace(old, new)).launch("k", 1, 32, [None] * 4)
