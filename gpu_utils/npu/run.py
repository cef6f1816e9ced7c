"""`run_ascendc`: a kernel in AscendC, executed on a virtual AI core in a process of its own, on CPU tensors."""

from __future__ import annotations

import json
import mmap
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gpu_utils.compiler.ascendc import build
from gpu_utils.compiler.ascendc_text import Prepared, prepare
from gpu_utils.errors import BadArgument, VirtualGpuError

INCLUDE = Path(__file__).parent / "include"
SECONDS = 60
"""A run that takes longer is stopped."""
PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
_GAP = 1 << 16
_PAGE = 4096


@dataclass(frozen=True)
class Fault:
    """What the virtual AI core found wrong.

    kind      "not ready", "overwritten", "written twice", "never written", "never set", "set twice", "left set",
              "out of bounds", "misaligned", "not locked", "left locked", "bad flag", "no end" or "not modelled"
    sentence  who did what to what, with lines, pipes and cores
    missing   what to write; "" where no single line would do
    line      of the source; times: how often it was found
    """

    kind: str
    sentence: str
    missing: str
    line: int
    times: int

    def __str__(self) -> str:
        return f"{self.kind}: {self.sentence}" + (f"; missing: {self.missing}" if self.missing else "")


@dataclass(frozen=True)
class Operation:
    """One operation as it was issued.

    block, core  where: core is "cube", "vector 0" or "vector 1"
    pipe, name, line, bytes  who does it, what, in which line of the source, and how much it moves
    step         the earliest at which it could start, if each copy, product and vector function took one step: what
                 flags, locks and the order in each pipe leave to overlap
    """

    block: int
    core: str
    pipe: str
    name: str
    line: int
    bytes: int
    step: int


@dataclass(frozen=True)
class NpuRun:
    """A run on the virtual AI core.

    counters    bytes by path ("GM->L1", "L1->L0A", "L0C->UB", "UB->GM"; of vector functions' own loads and stores
                "vector_read" and "vector_written"), "cube_flops", "vector_elements", "notifies", "waits", "arrives",
                "locks"
    faults      empty where all is in order
    operations  the first 20,000 in the order in which the scalar units issued them
    """

    counters: Mapping[str, int]
    faults: tuple[Fault, ...]
    operations: tuple[Operation, ...]

    @property
    def steps(self) -> int:
        """Steps from the first operation to the end of the last one, as `Operation.step` counts them."""
        return max((one.step + 1 for one in self.work), default=0)

    @property
    def work(self) -> list[Operation]:
        """Copies, products and vector functions, without flags and locks."""
        return [one for one in self.operations if one.name.startswith(("asc_copy", "asc_mmad", "vector"))]


class NpuFault(VirtualGpuError):
    """The virtual AI core found faults; `run` has what was counted, `run.faults` each of them."""

    def __init__(self, run: NpuRun) -> None:
        self.run = run
        several = f" (and {len(run.faults) - 1} more)" if len(run.faults) > 1 else ""
        super().__init__(f"{run.faults[0]}{several}")


def run_ascendc(source: str, kernel: str, blocks: int, tensors: Sequence[Any], *, check: bool = True) -> NpuRun:
    """Execute an AscendC kernel on virtual AI cores: one cube core and two vector cores for each block.

    source   AscendC in the dialect that TileLang lowers to
    kernel   the name of its `extern "C" __global__` function
    blocks   how many blocks run, each on an AI core of its own
    tensors  on the CPU, contiguous, in the order of the kernel's parameters; written in place
    check    raise NpuFault for faults; False returns them

    Errors: BadArgument; those of `build`; NpuFault; NpuStopped where it crashes or takes more than a minute.
    """
    if not isinstance(blocks, int) or blocks < 1:
        raise BadArgument(f"blocks is {blocks!r}; give a whole number of 1 or more")
    prepared = prepare(source, kernel)
    _agree(prepared, tensors)
    library = build(prepared, INCLUDE)
    with tempfile.TemporaryDirectory(prefix="w2w-npu-") as folder:
        report = _execute(library, blocks, tensors, Path(folder))
    faults = _faults(report["faults"])
    run = NpuRun(report["counters"], faults, tuple(_operation(*one) for one in report["ops"]))
    if check and faults:
        raise NpuFault(run)
    return run


def _agree(prepared: Prepared, tensors: Sequence[Any]) -> None:
    if len(tensors) != len(prepared.parameters):
        raise BadArgument(f"the kernel has {len(prepared.parameters)} parameters and {len(tensors)} tensors were given")
    for place, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            raise BadArgument(f"tensor {place} is a {type(tensor).__name__}; give a torch tensor on the CPU")
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            raise BadArgument(f"tensor {place} must be contiguous and on the CPU; try .cpu().contiguous()")


def _execute(library: Path, blocks: int, tensors: Sequence[torch.Tensor], folder: Path) -> dict[str, Any]:
    offsets, end = [], _GAP
    for tensor in tensors:
        offsets.append(end)
        end += -(-tensor.nbytes // _PAGE) * _PAGE + _GAP
    arena_path, report_path, spec_path = folder / "arena", folder / "report.json", folder / "spec.json"
    with open(arena_path, "w+b") as file:
        file.truncate(end)
        with mmap.mmap(file.fileno(), end) as arena:
            for tensor, offset in zip(tensors, offsets, strict=True):
                arena[offset : offset + tensor.nbytes] = _bytes(tensor)
            spec = {"arena": str(arena_path), "report": str(report_path), "offsets": offsets, "blocks": blocks}
            spec |= {"bytes": [t.nbytes for t in tensors], "grains": [t.element_size() for t in tensors]}
            spec_path.write_text(json.dumps(spec))
            child = Path(__file__).with_name("child.py")
            try:
                done = subprocess.run(
                    [sys.executable, "-S", "-E", str(child), str(library), str(spec_path)],
                    capture_output=True,
                    text=True,
                    timeout=SECONDS,
                )
            except subprocess.TimeoutExpired:
                raise NpuStopped(
                    f"the kernel ran for more than {SECONDS} s and was stopped; is there an endless loop?"
                ) from None
            if done.returncode:
                raise NpuStopped(_crash(done))
            for tensor, offset in zip(tensors, offsets, strict=True):
                _fill(tensor, arena[offset : offset + tensor.nbytes])
    return json.loads(report_path.read_text())


class NpuStopped(VirtualGpuError):
    """The process that ran the kernel did not come to its end."""


def _crash(done: subprocess.CompletedProcess[str]) -> str:
    if -done.returncode in (signal.SIGSEGV, signal.SIGBUS):
        return "the kernel used an address outside of every buffer and tensor, and its process ended"
    return f"the kernel's process ended with {done.returncode}: {done.stderr.strip()[-300:]}"


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.nbytes else b""


def _fill(tensor: torch.Tensor, data: bytes) -> None:
    if data:
        found = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(tensor.dtype).reshape(tensor.shape)
        with torch.no_grad():
            tensor.copy_(found)


_ORDER = (
    "not modelled",
    "no end",
    "bad flag",
    "not locked",
    "out of bounds",
    "misaligned",
    "not ready",
    "overwritten",
    "written twice",
)
"""Causes before what follows from them: a wait that is missing leaves its flag set, too."""


def _faults(found: Sequence[Mapping[str, Any]]) -> tuple[Fault, ...]:
    """All faults; that nothing had been written is no fault of its own where a flag is missing for the same line."""
    found = sorted(found, key=lambda one: _ORDER.index(one["kind"]) if one["kind"] in _ORDER else len(_ORDER))
    late = {one["line"] for one in found if one["kind"] == "not ready"}
    kept = [one for one in found if one["kind"] != "never written" or one["line"] not in late]
    return tuple(Fault(one["kind"], one["sentence"], one["missing"], one["line"], one["times"]) for one in kept)


def _operation(block: int, kind: int, name: str, pipe: int, line: int, size: int, step: int) -> Operation:
    return Operation(block, ("cube", "vector 0", "vector 1")[kind], PIPES[pipe], name, line, size, step)
