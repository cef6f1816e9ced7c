"""Differential tests: random elementwise expressions, shapes, masks and types, exact on every target.

Each drawn expression becomes a kernel of its own, is compiled for the targets and executed. Integers wrap as NumPy's
do; float32 operations round once each. Fusion of products and sums is switched off, so every result is exact.
"""

import ast
import functools
import importlib.util
import itertools

import numpy as np
import pytest
import torch
import triton
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_utils.virtual import MODELS, virtual_gpu

TARGETS = tuple(MODELS)
HEAD = """import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, first, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (i < n) & (i >= first)
    x = tl.load(x_ptr + i, mask=mask, other=OTHER)
    y = tl.load(y_ptr + i, mask=mask, other=OTHER)
    tl.store(out_ptr + i, EXPRESSION, mask=mask)
"""
# Kernel text -> the same on NumPy arrays. `a` and `b` stand for sub-expressions.
INTEGER = {
    "({a} + {b})": lambda a, b: a + b,
    "({a} - {b})": lambda a, b: a - b,
    "({a} * {b})": lambda a, b: a * b,
    "({a} & {b})": lambda a, b: a & b,
    "({a} | {b})": lambda a, b: a | b,
    "({a} ^ {b})": lambda a, b: a ^ b,
    "({a} << ({b} & 7))": lambda a, b: a << (b & a.dtype.type(7)),
    "({a} >> ({b} & 7))": lambda a, b: a >> (b & a.dtype.type(7)),
    "tl.minimum({a}, {b})": np.minimum,
    "tl.maximum({a}, {b})": np.maximum,
    "tl.where({a} < {b}, {a}, {b} ^ {a})": lambda a, b: np.where(a < b, a, b ^ a),
    "tl.where({a} == {b}, {a}, ~{b})": lambda a, b: np.where(a == b, a, ~b),
    "({a} // ({b} | 1))": lambda a, b: _quotient(a, b | a.dtype.type(1)),
    "({a} % ({b} | 1))": lambda a, b: a - _quotient(a, b | a.dtype.type(1)) * (b | a.dtype.type(1)),
}
FLOATING = {
    "({a} + {b})": lambda a, b: a + b,
    "({a} - {b})": lambda a, b: a - b,
    "({a} * {b})": lambda a, b: a * b,
    "tl.div_rn({a}, {b})": lambda a, b: a / b,
    "tl.minimum({a}, {b})": np.fmin,
    "tl.maximum({a}, {b})": np.fmax,
    "tl.where({a} < {b}, {a}, -{b})": lambda a, b: np.where(a < b, a, -b),
    "tl.where({a} >= {b}, tl.abs({a}), {b})": lambda a, b: np.where(a >= b, np.abs(a), b),
    "(tl.floor({a}) - {b})": lambda a, b: np.floor(a) - b,
    "tl.sqrt_rn(tl.abs({a} - {b}))": lambda a, b: np.sqrt(np.abs(a - b)),
}
KINDS = {
    torch.int32: INTEGER,
    torch.int64: INTEGER,
    torch.int16: INTEGER,
    torch.float32: FLOATING,
}
COUNTER = itertools.count()


def _quotient(a, b):
    """Integer division toward zero, as in C, with the wrap of the smallest number over -1."""
    wide_a, wide_b = a.astype(object), b.astype(object)
    magnitude = np.abs(wide_a) // np.abs(wide_b)
    signed = np.where((a < 0) ^ (b < 0), -magnitude, magnitude)
    bits = 8 * a.dtype.itemsize
    return np.array(
        [((int(v) + (1 << bits - 1)) % (1 << bits)) - (1 << bits - 1) for v in signed.ravel()], a.dtype
    ).reshape(a.shape)


def expressions(table):
    """Pairs of kernel text and a function of (x, y), nested up to three deep."""
    leaf = st.sampled_from([("x", lambda x, y: x), ("y", lambda x, y: y)])

    def combine(children):
        return st.tuples(st.sampled_from(sorted(table)), children, children).map(
            lambda drawn: (
                drawn[0].format(a=drawn[1][0], b=drawn[2][0]),
                lambda x, y: table[drawn[0]](drawn[1][1](x, y), drawn[2][1](x, y)),
            )
        )

    return combine(st.recursive(leaf, combine, max_leaves=4))


@functools.cache
def _folder():
    import tempfile

    return tempfile.mkdtemp(prefix="expressions")


def kernel_of(expression, dtype):
    """The drawn expression as a jitted kernel; Triton reads the source of a kernel from a file."""
    name = f"expression{next(COUNTER)}"
    path = f"{_folder()}/{name}.py"
    text = HEAD.replace("EXPRESSION", expression).replace("OTHER", "1.0" if dtype == torch.float32 else "1")
    ast.parse(text)
    with open(path, "w") as file:
        file.write(text)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def inputs(dtype, n, seed):
    random = np.random.default_rng(seed)
    if dtype == torch.float32:
        values = (random.standard_normal((2, n)) * 10.0 ** random.integers(-3, 4, (2, n))).astype(np.float32)
        values[:, : n // 8] = np.round(values[:, : n // 8])
        return values
    info = np.iinfo(str(dtype).removeprefix("torch."))
    values = random.integers(info.min, info.max, (2, n), info.dtype, endpoint=True)
    small = random.integers(-9, 10, (2, n)).astype(info.dtype)
    return np.where(random.random((2, n)) < 0.4, small, values)


@pytest.mark.parametrize("dtype", list(KINDS), ids=str)
@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_random_expression_is_exact_on_every_target(dtype, data):
    expression, reference = data.draw(expressions(KINDS[dtype]), label="expression")
    n = data.draw(st.integers(1, 700), label="n")
    first = data.draw(st.integers(0, n), label="first")
    block = data.draw(st.sampled_from([64, 128, 512]), label="block")
    warps = data.draw(st.sampled_from([1, 2, 4]), label="warps")
    x, y = inputs(dtype, n, data.draw(st.integers(0, 1000), label="seed"))
    with np.errstate(all="ignore"):
        expected = reference(x, y).astype(x.dtype)
    expected[:first] = 7
    kernel = kernel_of(expression, dtype)
    for target in TARGETS:
        out = torch.full((n,), 7, dtype=dtype)
        with virtual_gpu(target):
            args = (torch.from_numpy(x.copy()), torch.from_numpy(y.copy()), out, n, first)
            kernel[(triton.cdiv(n, block),)](*args, BLOCK=block, num_warps=warps, enable_fp_fusion=False)
        np.testing.assert_array_equal(out.numpy(), expected, f"{expression} of {dtype} on {target}")
