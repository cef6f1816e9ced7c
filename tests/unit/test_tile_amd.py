"""HIP that TileLang lowers: compiled by the course's clang, executed on AMD's virtual GPUs, against float64."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_utils.compiler.tile_hip import compile_hip
from gpu_utils.compiler.tilelang import Lowered, lower
from gpu_utils.errors import BadArgument, CompileFailed, CompilerMissing, VirtualGpuError
from gpu_utils.virtual import virtual_gpu

sys.path.insert(0, str(Path(__file__).parent))
import tile_programs as tiles

pytestmark = pytest.mark.usefixtures("tilelang")
SHARED = 48 << 10
"""Bytes of LDS that a launch gives its blocks: more than any of these kernels asks for."""


@dataclass
class Kernel:
    """A program with its sizes, its launch, its tensors by name (the output last), and what it must write."""

    program: Callable[..., Any]
    sizes: dict[str, Any]
    grid: int
    tensors: dict[str, torch.Tensor]
    expected: torch.Tensor
    threads: int = 128
    tolerance: float = 1e-4

    def values(self, lowered: Lowered) -> list[torch.Tensor]:
        """The tensors in the order of the lowered kernel's parameters, which is not that of the program's."""
        module = compile_hip(lowered)
        return [self.tensors[argument.name] for argument in module.kernels[lowered.kernel].arguments]

    def error(self) -> float:
        return float((list(self.tensors.values())[-1].double() - self.expected).abs().max())


def _randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full(shape, float("nan"), dtype=dtype)


def _gemm(dtype: torch.dtype, M=64, N=64, K=64, BM=32, BN=32, BK=32, threads=128, tolerance=1e-4) -> Kernel:
    a, b = _randn(M, K).to(dtype), _randn(N, K, seed=1).to(dtype)
    sizes = {
        "M": M,
        "N": N,
        "K": K,
        "BM": BM,
        "BN": BN,
        "BK": BK,
        "dtype": str(dtype).partition(".")[2],
        "threads": threads,
    }
    tensors = {"a": a, "b": b, "c": _empty(M, N)}
    product = a.double() @ b.double().T
    return Kernel(tiles.gemm, sizes, M // BM * (N // BN), tensors, product, threads, tolerance)


def _softmax() -> Kernel:
    x = _randn(16, 256)
    return Kernel(tiles.softmax, {"R": 16, "C": 256, "BR": 4}, 4, {"x": x, "y": _empty(16, 256)}, x.double().softmax(1))


def _layernorm() -> Kernel:
    x, w = _randn(16, 256).half(), _randn(256, seed=1).half()
    expected = torch.nn.functional.layer_norm(x.double(), (256,)) * w.double()
    tensors = {"x": x, "w": w, "y": _empty(16, 256, dtype=torch.float16)}
    return Kernel(tiles.layernorm, {"R": 16, "C": 256, "BR": 4}, 4, tensors, expected, tolerance=8e-3)


def _row_sum(columns: int = 512, rows: int = 4) -> Kernel:
    x = _randn(16, columns)
    sizes = {"R": 16, "C": columns, "BR": rows, "threads": 256}
    return Kernel(tiles.row_sum, sizes, 16 // rows, {"x": x, "y": _empty(16)}, x.double().sum(1), 256)


def _attention() -> Kernel:
    q, k, v = (_randn(128, 64, seed=seed).half() for seed in range(3))
    expected = (q.double() @ k.double().T / 8).softmax(1) @ v.double()
    tensors = {"q": q, "k": k, "v": v, "o": _empty(128, 64)}
    return Kernel(tiles.attention, {"S": 128, "D": 64, "BM": 64, "BN": 32}, 2, tensors, expected, tolerance=2e-3)


EVERYWHERE: dict[str, Callable[[], Kernel]] = {
    "gemm float16": lambda: _gemm(torch.float16, tolerance=1e-3),  # gfx90a takes a subnormal float16 for zero
    "gemm bfloat16": lambda: _gemm(torch.bfloat16),
    "gemm of large tiles": lambda: _gemm(torch.float16, 128, 128, 128, 128, 64, 64, 256, 1e-3),
    "softmax": _softmax,
    "layernorm": _layernorm,
    "row_sum": _row_sum,
    "row_sum across waves": lambda: _row_sum(1024, 1),
}
CDNA: dict[str, Callable[[], Kernel]] = {"gemm float32": lambda: _gemm(torch.float32), "attention": _attention}
"""What TileLang refuses to lower for RDNA: products of float32, and attention's layouts."""
FP8 = {"gfx942": torch.float8_e4m3fnuz, "gfx950": torch.float8_e4m3fn}
ALL = [
    *(("gfx942", name) for name in (*EVERYWHERE, *CDNA, "gemm float8")),
    *((target, name) for target in ("gfx90a", "gfx950", "gfx1100", "gfx1201") for name in list(EVERYWHERE)[::3]),
    ("gfx90a", "gemm float32"),
    ("gfx950", "attention"),
    ("gfx950", "gemm float8"),
]


def _made(target: str, name: str) -> tuple[Kernel, Lowered]:
    kernel = _gemm(FP8[target], BK=64) if name == "gemm float8" else {**EVERYWHERE, **CDNA}[name]()
    return kernel, lower(kernel.program, target, **kernel.sizes)


@pytest.mark.drawn("all", 4)
@pytest.mark.parametrize(("target", "name"), ALL)
def test_a_lowered_program_agrees_with_float64_and_no_sanitizer_reports_it(target: str, name: str) -> None:
    kernel, lowered = _made(target, name)
    module = compile_hip(lowered)
    with virtual_gpu(target, sanitize=True) as gpu:
        gpu.load(module).launch(lowered.kernel, kernel.grid, kernel.threads, kernel.values(lowered), SHARED)
    assert kernel.error() < kernel.tolerance
    if name.startswith("gemm") and name != "gemm of large tiles":
        assert re.search(r"v_(mfma|wmma)_", module.asm)


def test_a_barrier_that_is_missing_in_the_source_is_a_race() -> None:
    kernel, lowered = _made("gfx942", "gemm float16")
    places = [found.span() for found in re.finditer(r"__syncthreads\(\);", lowered.source)]
    assert len(places) == 2
    for start, end in places:
        source = lowered.source[:start] + lowered.source[end:]
        module = compile_hip(replace(lowered, source=source))
        with virtual_gpu("gfx942", sanitize=True) as gpu, pytest.raises(VirtualGpuError, match="barrier"):
            gpu.load(module).launch(lowered.kernel, kernel.grid, kernel.threads, kernel.values(lowered), SHARED)


def test_another_vendors_source_is_refused() -> None:
    with pytest.raises(BadArgument, match="lowered for an AMD target, not sm_90"):
        compile_hip(Lowered("sm_90", "nvidia", "", "main_kernel"))


def test_clangs_first_error_names_the_line_of_the_lowered_source() -> None:
    source = '#include <tl_templates/hip/common.h>\nextern "C" __global__ void main_kernel(float* a) {\n  a[0] = b;\n}'
    with pytest.raises(CompileFailed, match=r"line 3, `a\[0\] = b;`: use of undeclared identifier 'b'"):
        compile_hip(Lowered("gfx942", "amd", source, "main_kernel"))


def test_without_the_wheels_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompilerMissing, match=r"needs clang .*W2W_EXTRAS=hip,tilelang"):
        compile_hip(Lowered("gfx942", "amd", "", "main_kernel"))
