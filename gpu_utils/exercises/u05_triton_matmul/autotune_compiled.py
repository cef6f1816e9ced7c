"""What the kernel of 05.autotune needs of a target in each configuration, from the compiler, or stored beforehand.

A compilation takes about a second, and one that spills ten. So what the usual configurations need comes with the
course, for one version of Triton and one text of the kernel; anything else is compiled when it is asked for.
`python tools/store_configurations.py` makes the file, and a test compiles some of it again.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import triton
import triton.language as tl

from gpu_utils.compiler import compile_for, resources

PLACE = Path(__file__).with_name("autotune_compiled.json")

SIGNATURE = {"a_ptr": "*fp16:16", "b_ptr": "*fp16:16", "c_ptr": "*fp16:16", "N": "i32:16", "K": "i32:16"}

Config = Mapping[str, int]


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """C = A B in float16, for whole tiles: A (M, K), B (K, N), C (M, N), row by row."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    a_ptrs = a_ptr + rows * K + tl.arange(0, BLOCK_K)[None, :]
    b_ptrs = b_ptr + tl.arange(0, BLOCK_K)[:, None] * N + cols
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N
    tl.store(c_ptr + rows * N + cols, acc.to(tl.float16))


@dataclass(frozen=True)
class Needs:
    """shared: bytes of a block; registers: of a lane; spills: bytes of a thread (NVIDIA), registers of a lane (AMD)."""

    shared: int
    registers: int
    spills: int


def needs(target: str, config: Config) -> Needs:
    """What `product_kernel` needs in a configuration. Errors: CompileFailed."""
    found = _stored().get(label(target, config))
    return Needs(**found) if found else compiled(target, config)


def compiled(target: str, config: Config) -> Needs:
    """The same, asked of the compiler."""
    launch: dict[str, Any] = dict(config)
    found = resources(compile_for(product_kernel, target, signature=SIGNATURE, **launch))
    return Needs(found.shared, found.registers, found.spills)


def label(target: str, config: Config) -> str:
    """
    >>> label("sm_80", {"num_warps": 4, "BLOCK_M": 64})
    'sm_80 BLOCK_M=64 num_warps=4'
    """
    return " ".join([target, *(f"{name}={config[name]}" for name in sorted(config))])


def of_kernel() -> dict[str, str]:
    """What the stored numbers hold for: nothing else is read from the file."""
    source = inspect.getsource(product_kernel.fn)
    return {"triton": triton.__version__, "kernel": hashlib.sha256(source.encode()).hexdigest()[:16]}


@functools.cache
def _stored() -> Mapping[str, dict[str, int]]:
    table = json.loads(PLACE.read_text("utf-8")) if PLACE.exists() else {}
    return table["needs"] if table.get("of") == of_kernel() else {}


def write(found: Mapping[str, Needs]) -> None:
    """Replace everything that is stored."""
    table = {"of": of_kernel(), "needs": {name: asdict(found[name]) for name in sorted(found)}}
    PLACE.write_text(json.dumps(table, indent=0) + "\n", "utf-8")
    _stored.cache_clear()
