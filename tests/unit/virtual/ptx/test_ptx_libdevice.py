"""NVIDIA's math library, compiled by Triton and executed as PTX, against Python's math module."""

from __future__ import annotations

import importlib.util
import math

import pytest
import torch

from gpu_utils.virtual import virtual_gpu

# name -> (reference, lowest argument, highest argument, relative error allowed in float32)
UNARY = {
    "acos": (math.acos, -1, 1, 3e-7), "acosh": (math.acosh, 1, 1e4, 5e-7), "asin": (math.asin, -1, 1, 3e-7),
    "asinh": (math.asinh, -1e4, 1e4, 5e-7), "atan": (math.atan, -1e4, 1e4, 3e-7), "atanh": (math.atanh, -0.99, 0.99,
    5e-7),
    "cbrt": (math.cbrt, -1e6, 1e6, 3e-7), "ceil": (math.ceil, -1e3, 1e3, 0), "cos": (math.cos, -1e5, 1e5, 5e-7),
    "cosh": (math.cosh, -20, 20, 5e-7), "erf": (math.erf, -4, 4, 5e-7), "erfc": (math.erfc, -3, 3, 1e-6),
    "exp": (math.exp, -80, 80, 5e-7), "exp10": (lambda x: 10.0**x, -30, 30, 5e-7), "exp2": (lambda x: 2.0**x, -100,
    100, 5e-7),
    "expm1": (math.expm1, -10, 10, 5e-7), "floor": (math.floor, -1e3, 1e3, 0), "lgamma": (math.lgamma, 3, 100, 2e-6),
    "log": (math.log, 1e-6, 1e6, 5e-7), "log10": (math.log10, 1e-6, 1e6, 5e-7), "log1p": (math.log1p, -0.9, 1e3, 5e-7),
    "log2": (math.log2, 1e-6, 1e6, 5e-7), "rint": (round, -1e3, 1e3, 0), "rsqrt": (lambda x: x**-0.5, 1e-6, 1e6, 5e-7),
    "sin": (math.sin, -1e5, 1e5, 5e-7), "sinh": (math.sinh, -20, 20, 5e-7), "sqrt": (math.sqrt, 0, 1e6, 2e-7),
    "tan": (math.tan, -1e3, 1e3, 1e-6), "tanh": (math.tanh, -10, 10, 5e-7), "tgamma": (math.gamma, 0.1, 30, 2e-6),
    "trunc": (math.trunc, -1e3, 1e3, 0), "sinpi": (lambda x: math.sin(math.pi * math.fmod(x, 2)), -3.3, 3.3, 1e-5),
}  # fmt: skip


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """A module with one kernel per function: Triton reads the source of its kernels from a file."""
    lines = ["import triton", "import triton.language as tl", "from triton.language.extra import libdevice", ""]
    for name in UNARY:
        lines += ["", "@triton.jit", f"def {name}_kernel(x_ptr, out_ptr, N: tl.constexpr):", "    i = tl.arange(0, N)",
                  f"    tl.store(out_ptr + i, libdevice.{name}(tl.load(x_ptr + i)))", ""]  # fmt: skip
    path = tmp_path_factory.mktemp("kernels") / "libdevice_kernels.py"
    path.write_text("\n".join(lines))
    spec = importlib.util.spec_from_file_location("libdevice_kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_the_math_library_agrees_with_python(kernels, name):
    fn, low, high, bound = UNARY[name]
    x = torch.linspace(low, high, 512)
    out = torch.zeros(512)
    with virtual_gpu("sm_80"):
        getattr(kernels, f"{name}_kernel")[(1,)](x, out, N=512)
    want = torch.tensor([float(fn(float(v))) for v in x], dtype=torch.float64)
    floor = 1e-7 if name in ("sin", "cos", "tan", "sinpi", "lgamma", "log", "log2", "log10") else 0.0
    wrong = (out.double() - want).abs() > bound * want.abs() + floor
    assert not wrong.any(), (x[wrong][:3], out[wrong][:3], want[wrong][:3])
