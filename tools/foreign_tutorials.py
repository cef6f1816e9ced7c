"""Triton's tutorials for `foreign_kernels.py`: how the kernels of a file are taken, and the sizes they are run with."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from foreign_operations import HALF, Operation, attention, normal


class Launched(Exception):
    """A statement of the demonstration would launch a kernel."""


@contextmanager
def no_launches() -> Iterator[None]:
    from triton.runtime.jit import KernelInterface

    def refuse(self: Any, grid: Any) -> Any:
        raise Launched

    before = KernelInterface.__getitem__
    KernelInterface.__getitem__ = refuse
    try:
        yield
    finally:
        KernelInterface.__getitem__ = before


@cache
def tutorial(folder: Path, beginning: str) -> ModuleType:
    """The definitions of the file whose name begins so. Its demonstration is left out: calls that stand alone, and
    statements that would launch a kernel, that need the result of one, or a vendor's library (a RuntimeError).
    """
    (path,) = sorted(folder.glob(f"{beginning}-*.py"))
    module = ModuleType(path.stem.replace("-", "_"))
    module.__file__ = str(path)
    linecache.checkcache(str(path))
    with no_launches():
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, (ast.Expr, ast.Assert, ast.For, ast.With)):
                continue
            if isinstance(statement, ast.If) and "__main__" in ast.unparse(statement.test):
                continue
            try:
                exec(compile(ast.Module([statement], []), str(path), "exec"), module.__dict__)
            except (Launched, NameError, RuntimeError):
                continue
    return module


def asin(module: Any, x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    module.asin_kernel[(1,)](x, out, x.numel(), BLOCK_SIZE=1024)
    return out


def matmuls(module: Any, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Every form that the target has: plain, persistent, with descriptors of the host and of the device."""
    across, found = b.T.contiguous(), [module.matmul(a, b), module.matmul_persistent(a, b)]
    if module.HAS_HOST_TENSOR_DESC:
        found += [module.matmul_tma(a, across, False), module.matmul_tma_persistent(a, across, False)]
    if module.HAS_TENSOR_DESC:
        found.append(module.matmul_descriptor_persistent(a, across, False))
    return tuple(found)


def block_scaled(module: Any) -> None:
    """Compares by itself; cuBLAS, with which it would compare too, is not there."""
    module.cublas = None
    module.validate_block_scaled(128, 256, 256, "mxfp8")


def attended(module: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return module.attention(q, k, v, True, 0.5, False)


def attended_right(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attention(*(x.transpose(1, 2) for x in (q, k, v)), scale=0.5).transpose(1, 2)


PAIR = {"x": normal(1500), "y": normal(1500)}
FACTORS = {"a": normal(90, 80, dtype=HALF), "b": normal(80, 72, dtype=HALF)}
TILES = {"a": normal(128, 64, dtype=HALF), "b": normal(64, 128, dtype=HALF)}
HEADS = {name: normal(1, 1, 128, 64, dtype=HALF) for name in "qkv"}


def without_gradients(
    number: str,
    name: str,
    inputs: Any,
    call: Any,
    reference: Any = None,
    tolerance: float = 1e-3,
    targets: tuple[str, ...] = (),
) -> Operation:
    return Operation(f"{number} {name}", number, inputs, call, reference, tolerance, False, targets)


TUTORIALS = (
    without_gradients("01", "vector add", PAIR, lambda m, x, y: m.add(x, y), lambda x, y: x + y),
    without_gradients(
        "02", "fused softmax", {"x": normal(37, 181)}, lambda m, x: m.softmax(x), lambda x: x.softmax(-1)
    ),
    without_gradients("03", "matmul", FACTORS, lambda m, a, b: m.matmul(a, b), lambda a, b: a @ b),
    without_gradients(
        "03",
        "matmul, leaky_relu",
        FACTORS,
        lambda m, a, b: m.matmul(a, b, activation="leaky_relu"),
        lambda a, b: torch.nn.functional.leaky_relu(a @ b),
    ),
    without_gradients(
        "04",
        "dropout",
        {"x": normal(1500), "keep": lambda: torch.randint(0, 2, (1500,), dtype=torch.int32)},
        lambda m, x, keep: m.dropout(x, keep, 0.5),
        lambda x, keep: 2 * x * keep,
    ),
    without_gradients("04", "seeded dropout", {"x": normal(1500)}, lambda m, x: m.seeded_dropout(x, 0.5, 123)),
    Operation(
        "05 layer norm",
        "05",
        {"x": normal(9, 77, dtype=HALF), "w": normal(77, dtype=HALF), "b": normal(77, dtype=HALF)},
        lambda m, x, w, b: m.layer_norm(x, (77,), w, b, 1e-5),
        lambda x, w, b: torch.nn.functional.layer_norm(x, (77,), w, b),
        1e-2,
    ),
    Operation("06 attention", "06", HEADS, attended, attended_right, 2e-2),
    without_gradients("07", "libdevice asin", {"x": lambda: torch.rand(1000)}, asin, torch.asin),
    without_gradients(
        "08", "grouped gemm", TILES, lambda m, a, b: m.group_gemm_fn([a, a], [b, b]), lambda a, b: (a @ b, a @ b)
    ),
    without_gradients(
        "08",
        "grouped gemm, descriptors",
        TILES,
        lambda m, a, b: m.group_gemm_tma_fn([a], [b.T.contiguous()]),
        lambda a, b: (a @ b,),
        targets=("sm_90", "sm_100"),
    ),
    without_gradients("09", "persistent matmul", FACTORS, matmuls, lambda a, b: (a @ b,)),
    without_gradients("10", "block scaled matmul", {}, block_scaled, targets=("sm_100",)),
    without_gradients(
        "10",
        "block scaled matmul, CDNA 4",
        {},
        lambda m: m.validate_block_scaled_amd(256, 256, 256),
        targets=("gfx950",),
    ),
    without_gradients(
        "11", "dependent launch", PAIR, lambda m, x, y: m.add(x, y), lambda x, y: x + y, targets=("sm_90", "sm_100")
    ),
)
