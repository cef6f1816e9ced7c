"""Large launches for `bench virtual`: a matrix product, GPT-2's attention, 200,000 programs; cold, warm, and where the
time goes.

A workload runs once with nothing compiled, REPEATS times more for the best time, and once under a stopwatch that gives
each instruction its share. Its neighbour is torch doing the same floating-point operations on one core of this CPU.
Goals are for CPU seconds, which other work on the machine stretches little; on a quiet machine the wall shows the same.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import triton.language as tl
from triton import knobs

from gpu_utils.kernelset.attention import flash_kernel
from gpu_utils.kernelset.elementwise import vector_add_kernel
from gpu_utils.kernelset.matmuls import matmul_kernel
from gpu_utils.virtual import virtual_gpu
from gpu_utils.virtual.machine import Op, State
from gpu_utils.virtual.models import MODELS, isa_of
from gpu_utils.virtual.trace import Trace

REPEATS = 2
SHOWN = 4


@dataclass(frozen=True)
class Workload:
    """Launches of one kernel on inputs of one size.

    prepare() -> (launch, whether the result is right, the same work in torch). seconds: the goal for the CPU time of a
    warm launch, or None. flops: floating-point operations, 0 where they do not count.
    """

    name: str
    prepare: Callable[[], tuple[Callable[[], Any], Callable[[], bool], Callable[[], Any]]]
    targets: tuple[str, ...]
    seconds: float | None
    flops: float


def _matmul(size: int) -> Any:
    a, b = torch.randn(size, size).half(), torch.randn(size, size).half()
    c = torch.empty(size, size, dtype=torch.float16)
    wide_a, wide_b = a.float(), b.float()

    def launch() -> None:
        strides = (size, 1, size, 1, size, 1)
        meta = {"BM": 128, "BN": 128, "BK": 32, "ACC": tl.float32, "num_warps": 4}
        matmul_kernel[(size // 128, size // 128)](a, b, c, size, size, size, *strides, **meta)

    def neighbour() -> torch.Tensor:
        return wide_a @ wide_b

    return launch, lambda: torch.allclose(c.float(), neighbour(), rtol=2e-3, atol=2e-2), neighbour


def _attention(heads: int = 12, length: int = 1024, depth: int = 64) -> Any:
    q, k, v = (torch.randn(heads, length, depth).half() for _ in range(3))
    o, lse = torch.empty_like(q), torch.empty(heads, length)
    wide = q.float(), k.float(), v.float()

    def launch() -> None:
        meta = {"D": depth, "BM": 64, "BN": 64, "CAUSAL": True, "num_warps": 4}
        flash_kernel[(length // 64, heads)](q, k, v, o, lse, length, depth**-0.5, **meta)

    def neighbour() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=True)

    return launch, lambda: torch.allclose(o.float(), neighbour(), rtol=2e-3, atol=2e-3), neighbour


def _programs(count: int = 200_000, block: int = 64) -> Any:
    x, y = torch.randn(count * block), torch.randn(count * block)
    out = torch.empty_like(x)

    def launch() -> None:
        vector_add_kernel[(count,)](x, y, out, count * block, BLOCK=block, num_warps=1)

    return launch, lambda: torch.equal(out, x + y), lambda: x + y


_FAST_MATMUL = ("sm_90", "gfx942")
WORKLOADS = (
    Workload("matmul fp16 1024", lambda: _matmul(1024), _FAST_MATMUL, 0.7, 2 * 1024**3),
    Workload("matmul fp16 2048", lambda: _matmul(2048), _FAST_MATMUL, None, 2 * 2048**3),
    # half of the 2 * 2 * length^2 * depth operations of a head are masked
    Workload("attention 12 x 1024 x 64", _attention, tuple(MODELS), 4.0, 12 * 2 * 1024**2 * 64),
    Workload("200,000 programs", _programs, ("sm_80", "gfx942"), 3.0, 0),
)
MOST_GROWTH = 8.5
"""CPU seconds of the larger matrix product over those of the smaller; the operations are 8 times as many."""


class Stopwatch(Trace):
    """In the place of a trace: CPU nanoseconds by instruction."""

    def __init__(self) -> None:
        super().__init__()
        self.spent: Counter[Op] = Counter()
        self.last = 0

    def begin(self, state: State) -> None:
        self.last = time.thread_time_ns()

    def __call__(self, state: State, op: Op) -> None:
        self.spent[op] += time.thread_time_ns() - self.last
        self.last = time.thread_time_ns()

    def shares(self) -> dict[str, dict[str, float]]:
        """Shares of the time by class of instruction and, of the SHOWN largest, by mnemonic."""
        total = sum(self.spent.values()) or 1
        kinds: Counter[str] = Counter()
        names: Counter[str] = Counter()
        for op, spent in self.spent.items():
            kinds[op.kind] += spent
            names[op.mnemonic] += spent
        return {
            "kinds": {kind: spent / total for kind, spent in kinds.most_common()},
            "instructions": {name: spent / total for name, spent in names.most_common(SHOWN)},
        }


@dataclass(frozen=True)
class Timing:
    """Seconds of one workload on one target.

    first: with nothing compiled; of that decode: reading the assembly text. wall, cpu: the best warm launch. torch: the
    neighbour on one core. shares: of the time inside instructions, see Stopwatch.
    """

    workload: str
    target: str
    goal: float | None
    first: float
    decode: float
    wall: float
    cpu: float
    torch: float
    gflops: float
    right: bool
    shares: dict[str, dict[str, float]]

    @property
    def met(self) -> bool:
        return self.right and (self.goal is None or self.cpu <= self.goal)


def _best(call: Callable[[], Any], times: int) -> tuple[float, float]:
    """The least wall and CPU seconds."""
    measured = []
    for _ in range(times):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        measured.append((time.perf_counter() - wall, time.process_time() - cpu))
    return min(wall for wall, _ in measured), min(cpu for _, cpu in measured)


def measure(workload: Workload, target: str) -> Timing:
    """One workload on one target."""
    torch.manual_seed(0)
    launch, right, neighbour = workload.prepare()
    threads = torch.get_num_threads()
    with virtual_gpu(target) as gpu:
        first, _ = _best(launch, 1)
        text, name = gpu.last.text, gpu.last.name
        decode, _ = _best(lambda: isa_of(target).decode(text, target, name), 1)
        wall, cpu = _best(launch, REPEATS)
        ok = right()
        gpu.tracer = watch = Stopwatch()
        launch()
    torch.set_num_threads(1)
    try:
        beside, _ = _best(neighbour, 1 + REPEATS)
    finally:
        torch.set_num_threads(threads)
    gflops = workload.flops / cpu / 1e9
    return Timing(workload.name, target, workload.seconds, first, decode, wall, cpu, beside, gflops, ok, watch.shares())


def growth(timings: list[Timing]) -> dict[str, float]:
    """Target -> how much longer the product of 2048 takes than that of 1024."""
    small, large = ({t.target: t.cpu for t in timings if t.workload == f"matmul fp16 {size}"} for size in (1024, 2048))
    return {target: large[target] / small[target] for target in small if target in large}


def run() -> tuple[list[dict[str, Any]], bool]:
    """Measure all, print a table; (rows for JSON, whether every goal is met)."""
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    asked = [(workload, target) for workload in WORKLOADS for target in workload.targets]
    with tempfile.TemporaryDirectory() as folder, knobs.cache.scope():
        knobs.cache.dir = folder  # a fresh one, so that the first launch compiles
        timings = [measure(*each) for each in track(asked, "large launches", transient=True)]
    table = Table(title="Large launches: seconds; where the time inside instructions goes")
    for head in ("workload", "target"):
        table.add_column(head)
    for head in ("first", "decode", "warm", "CPU", "goal", "x torch"):
        table.add_column(head, justify="right")
    table.add_column("shares")
    for t in timings:
        cells = [f"{t.first:.2f}", f"{t.decode:.2f}", f"{t.wall:.2f}", f"{t.cpu:.2f}", f"{t.goal or '':}"]
        shares = ", ".join(f"{name} {share:.0%}" for name, share in list(t.shares["kinds"].items())[:SHOWN])
        table.add_row(t.workload, t.target, *cells, f"{t.cpu / t.torch:.0f}", shares if t.right else "WRONG")
    Console(width=140).print(table)
    grown = growth(timings)
    for target, ratio in grown.items():
        print(f"matmul on {target}: 2048 takes {ratio:.1f} times as long as 1024 (goal {MOST_GROWTH:g})")
    met = all(t.met for t in timings) and all(ratio <= MOST_GROWTH for ratio in grown.values())
    return [asdict(t) for t in timings], met
