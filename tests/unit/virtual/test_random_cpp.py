"""Random C++ expressions: one text, compiled by clang for this CPU and for every virtual GPU, gives the same bits."""

from __future__ import annotations

import ctypes
import platform
import random
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_utils.compiler import clang
from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.virtual import MODELS, virtual_gpu
from tests.conftest import unavailable

COUNT, LENGTH = 24, 192  # expressions of one kernel, elements of each input
TYPES = {
    "i8": "signed char", "u8": "unsigned char", "i16": "short", "u16": "unsigned short", "i32": "int",
    "u32": "unsigned", "i64": "long long", "u64": "unsigned long long", "f16": "_Float16", "f32": "float",
    "f64": "double",
}  # fmt: skip
DTYPES = {name: np.dtype(f"{name[0]}{int(name[1:]) // 8}") for name in TYPES}
INTEGERS = [name for name in TYPES if name[0] in "iu"]
# {x}, {y}: operands of the same type; {i}, {l}, {u}, {w}, {f}, {d}: of i32, i64, u32, u64, f32, f64; {n}: any integer.
# Nothing here is undefined: sums wrap in unsigned types, shifts are masked, divisors are not zero.
INTEGER_FORMS = [
    "({U})({x}) + ({U})({y})", "({U})({x}) - ({U})({y})", "({U})({x}) * ({U})({y})", "{x} & {y}", "{x} | {y}",
    "{x} ^ {y}", "~{x}", "({U})({x}) << ({u} & {last})", "{x} >> ({u} & {last})", "{x} / (({y} & 63) + 1)",
    "{x} % (({y} & 63) + 1)", "{l} < {l} ? {x} : {y}", "{w} >= {w} ? {x} : {y}", "{x} < {y} ? {x} : {y}", "{n}",
    "__builtin_popcountll({w})", "__builtin_popcount({u})", "__builtin_clzll({w} | 1)", "__builtin_ctz({u} | 65536)",
    "({f} < {f}) + 2 * ({d} >= {d})", "({u} << 7) | ({u} >> 25)", "(unsigned)(((unsigned long long){u} * {u}) >> 32)",
    "(int)__builtin_fminf(__builtin_fmaxf({f}, -1e6f), 1e6f)", "__builtin_bswap32({u})",
]  # fmt: skip
FLOAT_FORMS = [
    "{x} + {y}",
    "{x} - {y}",
    "{x} * {y}",
    "{x} / {y}",
    "-{x}",
    "{i} < {i} ? {x} : {y}",
    "{x} < {y} ? {x} : {y}",
]
WIDE_FORMS = [
    "__builtin_fma{s}({x}, {y}, {x})", "__builtin_sqrt{s}(__builtin_fabs{s}({x}))", "__builtin_floor{s}({x})",
    "__builtin_rint{s}({x})", "({C})({n})", "({C})({f})",
]  # fmt: skip
FORMS = {"integer": INTEGER_FORMS, "half": FLOAT_FORMS, "float": FLOAT_FORMS + WIDE_FORMS}


class Writer:
    """Writes expressions of a wanted type from the inputs a_i8[i], b_i8[i], ... c_f64[i]."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def expression(self, kind: str, depth: int) -> str:
        if depth == 0 or self.random.random() < 0.1:
            return f"{self.random.choice('abc')}_{kind}[i]"
        form = self.random.choice(FORMS["integer" if kind[0] != "f" else "half" if kind == "f16" else "float"])
        of = {"x": kind, "y": kind, "i": "i32", "l": "i64", "u": "u32", "w": "u64", "f": "f32", "d": "f64"}
        of["n"] = self.random.choice(INTEGERS)
        wide = kind.endswith("64")
        words = {
            "U": TYPES["u64" if wide else "u32"],
            "last": int(kind[1:]) - 1,
            "s": "" if wide else "f",
            "C": TYPES[kind],
        }
        while "{" in form:
            name = form[form.index("{") + 1 : form.index("}")]
            part = str(words[name]) if name in words else self.expression(of[name], depth - 1)
            form = form.replace(f"{{{name}}}", part, 1)
        return f"(({TYPES[kind]})({form}))"


def kernel(seed: int) -> tuple[list[str], str, str]:
    """(types of the results, parameters, body) of one kernel."""
    writer = Writer(seed)
    kinds = [writer.random.choice(list(TYPES)) for _ in range(COUNT)]
    given = [f"const {TYPES[kind]} *{name}_{kind}" for name in "abc" for kind in TYPES]
    results = [f"{TYPES[kind]} *out{k}" for k, kind in enumerate(kinds)]
    body = "\n".join(f"  out{k}[i] = {writer.expression(kind, 4)};" for k, kind in enumerate(kinds))
    return kinds, ", ".join(given + results), body


def inputs(seed: int) -> list[np.ndarray]:
    generator, found = np.random.default_rng(seed), []
    for dtype in [DTYPES[kind] for _ in "abc" for kind in TYPES]:
        if dtype.kind == "f":
            values = generator.normal(size=LENGTH) * 10.0 ** generator.integers(-3, 4, LENGTH)
            values[:8] = [0, -0.0, 1, -1, 0.5, 1e4, -1e4, 3]
        else:
            info = np.iinfo(dtype)
            values = generator.integers(info.min, info.max, LENGTH, dtype=dtype, endpoint=True)
            values[:80] = generator.integers(0, 9, 80)
            values[:4] = [info.min, info.max, 0, 1]
        found.append(np.ascontiguousarray(generator.permutation(values).astype(dtype)))
    return found


@cache
def expected(seed: int, folder: Path) -> list[np.ndarray]:
    """The results of this CPU: clang without fast mathematics, no libraries."""
    kinds, parameters, body = kernel(seed)
    loop = f'extern "C" void k({parameters}) {{ for (int i = 0; i < {LENGTH}; ++i) {{\n{body}\n}} }}\n'
    (folder / f"{seed}.cpp").write_text(loop)
    wheel = clang.wheel_folder()
    assert wheel is not None
    zig, options = wheel / "zig", ["-O1", "-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-w", "-nostdinc"]
    target = ["-target", "x86_64-linux-gnu", "-march=x86-64-v3"]
    subprocess.run([zig, "clang", *target, *options, "-c", f"{seed}.cpp", "-o", f"{seed}.o"], cwd=folder, check=True)
    subprocess.run([zig, "ld.lld", "-shared", f"{seed}.o", "-o", f"{seed}.so"], cwd=folder, check=True)
    results = [np.zeros(LENGTH, DTYPES[kind]) for kind in kinds]
    arrays = [*inputs(seed), *results]
    ctypes.CDLL(str(folder / f"{seed}.so")).k(*[ctypes.c_void_p(array.ctypes.data) for array in arrays])
    return results


@pytest.fixture(scope="module", autouse=True)
def _tools(clang) -> None:
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    if platform.machine() != "x86_64" or "avx2" not in flags or "f16c" not in flags:
        unavailable("the reference needs an x86-64 CPU with AVX2 and F16C")


@pytest.mark.parametrize("target", list(MODELS))
@pytest.mark.parametrize("seed", range(3))
def test_random_expressions_agree_with_this_cpu(target, seed, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(clang, "_OPTIONS", [*clang._OPTIONS, "-ffp-contract=off"])
    wanted = expected(seed, tmp_path_factory.getbasetemp())
    kinds, parameters, body = kernel(seed)
    head = f"__global__ void k({parameters}) {{\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    found = [torch.from_numpy(np.zeros(LENGTH, DTYPES[kind])) for kind in kinds]
    args = [torch.from_numpy(array) for array in inputs(seed)] + found
    with virtual_gpu(target) as gpu:
        gpu.load(compile_cpp(f"{head}{body}\n}}\n", target)).launch("k", LENGTH // 64, 64, args)
    for line, want, got in zip(body.split("\n"), wanted, found, strict=True):
        np.testing.assert_array_equal(got.numpy(), want, err_msg=line)
        if want.dtype.kind == "f":
            numbers = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got.numpy()[numbers]), np.signbit(want[numbers]), err_msg=line)
