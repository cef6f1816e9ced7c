"""A small training program on a virtual GPU, as it should be or with one of six faults, and the files it leaves.

It trains one layer, a = max(0, x w), on an invented task by the six kernels of `kernels/step.cu`, and reads the loss
back. What each kernel executes is counted exactly. There is no clock: times are modelled (`modelled_ns`), on a GPU with
one SM or CU, and the files say so. Results are the same with every fault, to the bit: a fault costs time, nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from gpu_utils.chips.targets import TARGETS
from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.profiling.modelled import Costs, Modelled
from gpu_utils.profiling.profile import Device, Event, Profile
from gpu_utils.profiling.reading import read_texts
from gpu_utils.profiling.writing import chrome_trace
from gpu_utils.virtual import virtual_gpu
from gpu_utils.virtual.export import ncu_csv, rocprof_counters_csv, rocprof_trace_csv
from gpu_utils.virtual.isa import Launch
from gpu_utils.virtual.predict import bounds_in_cycles

SOURCE = Path(__file__).parent / "kernels" / "step.cu"
SMALL_TARGETS = ("sm_80", "gfx942")
_ELEMENTWISE, _PRODUCTS = ("activation", "loss_gradient", "update"), ("forward", "weight_gradient")
WHERE: dict[str, tuple[str, ...]] = {
    "uncoalesced": (*_ELEMENTWISE, "transpose"),
    "bank_conflicts": (*_PRODUCTS, "transpose"),
    "spills": (*_ELEMENTWISE, *_PRODUCTS),
    "low_occupancy": (*_ELEMENTWISE, *_PRODUCTS, "transpose"),
    "launch_bound": (),
    "host_sync": (),
}
"""The six faults: the kernels that can have each; the last two are the host's."""

FAULTS = tuple(WHERE)
RATE, SLICE, LOOK = 0.5, 4_000, 20_000
"""Of the training; ns of the host for a view of some rows, and for a look at a number that came back."""

CLOCK, L2_BYTES = 1.5, 32
"""Of the modelled GPU: cycles of a nanosecond; bytes that its one SM or CU gets from the L2 in a cycle."""


@dataclass(frozen=True)
class SmallRun:
    """What a run left behind.

    target   "sm_80" or "gfx942"; fault, kernel: what was planted, None for a program as it should be
    losses   of each step
    files    name -> text: "trace.json" as torch.profiler writes it for that vendor, "counters.csv" as `ncu --csv` or
             rocprofv3 write it, on AMD "kernel_trace.csv" beside it
    """

    target: str
    fault: str | None
    kernel: str | None
    losses: tuple[float, ...]
    files: dict[str, str]

    @cached_property
    def profile(self) -> Profile:
        """All files, read and joined by the readers that read those of a real GPU."""
        return read_texts(self.files)

    def save(self, folder: str | Path) -> list[Path]:
        """Write the files into a folder, which must be new or empty; their paths.

        Raises BadArgument where something is there already.
        """
        place = Path(folder)
        if place.exists() and any(place.iterdir()):
            raise BadArgument(f"{place} is not empty; name a new folder, so that no profile is overwritten")
        place.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            (place / name).write_text(text, "utf-8")
        return [place / name for name in self.files]


def small_run(
    target: str, fault: str | None = None, *, kernel: str | None = None, steps: int = 3, seed: int = 0
) -> SmallRun:
    """Train for some steps on the virtual GPU of a target.

    fault   one of FAULTS, or None; kernel: which one has it, of those in WHERE, the first if not named
    seed    draws sizes, data and weights

    Errors: UnknownName for a target, a fault, or a kernel that cannot have that fault.
    """
    if target not in SMALL_TARGETS:
        raise UnknownName("target of the small run", target, SMALL_TARGETS)
    if fault is not None and fault not in FAULTS:
        raise UnknownName("fault", fault, FAULTS)
    can = WHERE[fault] if fault else ()
    if kernel is not None and kernel not in can:
        raise UnknownName(f"kernel with the fault {fault}", kernel, can)
    faulty = kernel or next(iter(can), None)
    with virtual_gpu(target, races=False) as gpu:
        run = _Timed(gpu, target, {faulty: fault} if faulty and fault else {})
        losses = _trained(run, random.Random(seed), steps, fault)
        files = run.files()
    return SmallRun(target, fault, faulty, losses, files)


def planted(number: int, steps: int = 3) -> SmallRun:
    """The program with one of the six faults, or none, hidden behind a number: see `drawn`."""
    target, fault, kernel, seed = drawn(number)
    return small_run(target, fault, kernel=kernel, steps=steps, seed=seed)


def drawn(number: int) -> tuple[str, str | None, str | None, int]:
    """What follows from a number by a draw: (target, fault or None, the kernel that has it or None, seed)."""
    rng = random.Random(f"13.planted {number}")
    fault = rng.choice([*FAULTS, None])
    kernel = rng.choice(WHERE[fault]) if fault and WHERE[fault] else None
    return rng.choice(SMALL_TARGETS), fault, kernel, rng.randrange(10**6)


def _trained(run: _Timed, rng: random.Random, steps: int, fault: str | None) -> tuple[float, ...]:
    rows, wide, deep = rng.choice((96, 128, 160)), rng.choice((128, 256)), rng.choice((64, 96))
    draw = torch.Generator().manual_seed(rng.randrange(2**31))
    x, w = torch.randn(rows, deep, generator=draw), torch.randn(deep, wide, generator=draw) / deep**0.5
    target = torch.relu(x @ torch.randn(deep, wide, generator=draw) / deep**0.5)
    h, a, d = (torch.zeros(rows, wide) for _ in range(3))
    across, gradient = torch.zeros(deep, rows), torch.zeros(deep, wide)
    losses = []

    def pieces(height: int, fewest: int) -> list[slice]:
        """All rows at once, or the fewest that a launch can take, where the host launches too much."""
        rows = fewest if fault == "launch_bound" else height
        return [slice(at, at + rows) for at in range(0, height, rows)]

    def sliced() -> None:
        """What making a view of some rows costs the host."""
        if fault == "launch_bound":
            with run.host.op("aten::slice", SLICE):
                pass

    def over(kernel: str, arrays: Sequence[torch.Tensor], *numbers: float) -> None:
        """An elementwise kernel over arrays of one shape."""
        for piece in pieces(len(arrays[0]), 4):
            part = [array[piece] for array in arrays]
            tall = len(part[0])
            sliced()
            run.launch(kernel, (tall * wide // 512, 1, 1), [*part, tall, wide, *numbers, 0])

    def product(kernel: str, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
        for piece in pieces(len(left), 16):
            tall, inner = left[piece].shape
            sliced()
            run.launch(kernel, (wide // 16, tall // 16, 1), [left[piece], right, out[piece], wide, inner, 0])

    def each() -> None:
        """After each kernel a look at its result, where the host waits too often."""
        if fault == "host_sync":
            with run.host.op("aten::isfinite"):
                run.host.item()
            run.host.work(LOOK, "python")

    for _ in range(steps):
        run.host.copy(4 * x.numel())
        with run.host.op("aten::mm"):
            product("forward", x, w, h)
        each()
        with run.host.op("aten::relu"):
            over("activation", (h, a))
        each()
        losses.append(float(((a - target) ** 2).mean()))
        with run.host.op("aten::mse_loss_backward"):
            over("loss_gradient", (a, target, d), 2.0 / a.numel())
        each()
        with run.host.op("aten::t"):
            run.launch("transpose", (deep // 32, rows // 32, 1), [x, across, rows, deep])
        each()
        with run.host.op("aten::mm"):
            product("weight_gradient", across, d, gradient)
        each()
        with run.host.op("optimizer step"):
            over("update", (w, gradient), RATE * wide)
    run.host.sync()
    return tuple(losses)


class _Timed:
    """Launches on a virtual GPU with a modelled timeline beside them.

    faults  kernel -> the fault that it has
    """

    def __init__(self, gpu: Any, target: str, faults: dict[str, str]) -> None:
        self.gpu, self.target, self.faults = gpu, target, faults
        self.vendor = TARGETS[target].vendor
        self.host = Modelled(self.vendor, Costs())
        self.module = gpu.load(compile_cpp(SOURCE.read_text("utf-8"), target))
        self.launches: list[Launch] = []
        self.kernels: list[Event] = []

    def launch(self, kernel: str, grid: tuple[int, int, int], arguments: list[Any]) -> None:
        launch = self.module.launch(f"{kernel}__{self.faults.get(kernel, 'sound')}", grid, 128, arguments)
        launch.name = kernel
        event = self.host.launch(kernel, modelled_ns(launch))
        source = "the launch"
        event.note("grid", launch.grid, source)
        event.note("block", launch.block, source)
        event.note("registers", launch.registers, source)
        event.note("shared_bytes", launch.shared_bytes, source)
        self.launches.append(launch)
        self.kernels.append(event)

    def files(self) -> dict[str, str]:
        device = Device(
            f"virtual {self.target}", self.vendor, self.target, units=1, lanes=TARGETS[self.target].lanes, virtual=True
        )
        times = [(event.start or 0, event.end or 0) for event in self.kernels]
        files = {"trace.json": chrome_trace(self.host.profile(f"virtual {self.target}", device))}
        if self.vendor == "nvidia":
            return files | {"counters.csv": ncu_csv(self.launches, times)}
        return files | {
            "kernel_trace.csv": rocprof_trace_csv(self.launches, times),
            "counters.csv": rocprof_counters_csv(self.launches, times),
        }


def modelled_ns(launch: Launch) -> int:
    """ns that a launch would take on one SM or CU: the longest of issue, memory, shared memory and waiting.

    The cycles of `gpu_utils.virtual.predict` but for memory: an L2 in front of it serves L2_BYTES a cycle, also of
    scratch and local memory.
    """
    totals = launch.counters.totals()
    sectors = totals["global_load_sectors"] + totals["global_store_sectors"]
    moved = sectors * totals["sector_bytes"] + totals["scratch_bytes"] + _local_bytes(launch)
    bounds = bounds_in_cycles(launch)
    return round(max(bounds.issue, bounds.shared, bounds.latency, moved / L2_BYTES) / CLOCK)


def _local_bytes(launch: Launch) -> int:
    """Bytes of local memory that a PTX program moves, 4 for each lane; AMD's scratch is among the totals."""
    executed = launch.counters.per_op()
    return sum(4 * executed[op.index][1] for op in launch.program.ops if ".local" in op.mnemonic)
