"""Barriers and waits of compiled kernels, each removed by itself: do the sanitizers notice?

A kernel is launched as compiled, then once for each of its ops that order something, without that op and on the same
inputs. A removal that no sanitizer catches must have a stated argument why the kernel does not need the op.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gpu_utils.errors import VirtualGpuError
from gpu_utils.kernelset.case import CASES, Run
from gpu_utils.virtual import VirtualGpu, virtual_gpu
from gpu_utils.virtual.isa import Launch
from gpu_utils.virtual.machine import Op, Program
from gpu_utils.virtual.machine.op import nothing
from gpu_utils.virtual.machine.program import Segment
from gpu_utils.virtual.models import isa_of
from gpu_utils.virtual.sanitize import amd_needed, barriers_apart, barriers_needed, ptx_needed
from gpu_utils.virtual.sanitize.amd_needed import late_without
from gpu_utils.virtual.sanitize.instrument import Call, NoHooks, instrumented

ORDERS = {
    "amdgcn": re.compile(
        r"s_barrier(_signal|_wait)?\b|s_waitcnt(?!_depctr)|s_wait_(load|store|ds|km|sample|bvh|exp|async|tensor)cnt"
    ),
    "ptx": re.compile(
        r"(barrier\.|bar\.)(cta\.)?(sync|arrive|red|warp)|cp\.async\.(commit|wait|mbarrier|bulk\.commit|bulk\.wait)"
        r"|mbarrier\.(init|arrive|expect|complete|test|try)|wgmma\.(fence|commit|wait)|fence\.|membar"
        r"|tcgen05\.(wait|commit|fence)"
    ),
}
"""Instruction set -> the beginning of the mnemonics that order something, and compute nothing."""

TOOLS = ("racecheck", "waitcheck", "synccheck")
OF_LANES = (*TOOLS, "lockstep")
"""Those under which a barrier of one warp is removed: what its lanes are to each other is lockstep's matter."""
STEP_LIMIT = 20_000
OUTCOMES = ("caught", "on another path", "unnecessary", "not executed", "missed")


@dataclass(frozen=True)
class Removal:
    """One op of a kernel that was removed.

    case     of CASES; kernel: its name in the machine code; target
    op       the instruction, and `line` of the source, or None
    kind     its mnemonic without types and state spaces: "bar.sync", "s_waitcnt"
    outcome  of OUTCOMES. "caught": a sanitizer raised in the launch without it. Where nothing was raised, the first
             that holds of: "unnecessary" by an argument; "on another path": waitcheck finds a register used too early
             on a path that this launch does not take; "not executed": no wave came to it; "missed"
    why      the message of the error, the argument, what is used too early, or ""
    error    the name of the error that was raised, or ""
    changed  whether the launch without it ended and left other bytes than the launch as compiled
    """

    case: str
    kernel: str
    target: str
    op: str
    line: int | None
    kind: str
    outcome: str
    why: str = ""
    error: str = ""
    changed: bool = False


@dataclass
class Recorded:
    """One launch of a case: how to repeat it, and the bytes of its tensors before it and after.

    times: how often the case launches its program; this is the first of these launches.
    """

    program: Program
    arguments: tuple[Any, ...]
    storages: list[torch.Tensor]
    before: list[torch.Tensor]
    after: list[torch.Tensor]
    times: int = 1

    def again(self, gpu: VirtualGpu, program: Program) -> Launch:
        """Launch another program on what the first one found."""
        for storage, bytes_before in zip(self.storages, self.before, strict=True):
            storage.copy_(bytes_before)
        gpu.launches.clear()
        return gpu.execute(program, *self.arguments)

    def same(self) -> bool:
        """Whether the tensors hold what the launch as compiled left."""
        return all(torch.equal(*pair) for pair in zip(self.storages, self.after, strict=True))


def recorded(case: str, target: str, sanitize: bool = False) -> list[Recorded]:
    """The launches of a case as compiled, one of each program.

    sanitize: under all sanitizers that cost little. What they raise of a kernel of the set is a false alarm.
    """
    found: dict[Program, Recorded] = {}
    with virtual_gpu(target, ptxas=False, sanitize=sanitize) as gpu:
        run, plain = Run(target), gpu.execute

        def execute(program: Program, *arguments: Any) -> Any:
            if program in found:
                found[program].times += 1
                return plain(program, *arguments)
            values = [value for *_, value in arguments[2]] + [tensor for _, tensor in gpu.registered]
            storages = _storages(values)
            before = [storage.clone() for storage in storages]
            launch = plain(program, *arguments)
            after = [storage.clone() for storage in storages]
            found[program] = Recorded(program, arguments, storages, before, after)
            return launch

        gpu.execute = execute  # type: ignore[method-assign, assignment]
        CASES[case].body(run)
    return list(found.values())


def _storages(values: Sequence[Any]) -> list[torch.Tensor]:
    """The bytes of every storage among the values, once each."""
    tensors = [getattr(value, "base", value) for value in values]
    found = {
        tensor.untyped_storage().data_ptr(): torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
        for tensor in tensors
        if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().nbytes()
    }
    return list(found.values())


def ordering(program: Program) -> list[Op]:
    """The ops of a program that order something."""
    pattern = ORDERS[isa_of(program.target).NAME]
    return [op for op in program.ops if pattern.match(op.mnemonic)]


def without(program: Program, removed: Op) -> Program:
    """The program with an op that does nothing in the place of another; what is asked of an mbarrier is taken as true.

    A loop that asks an mbarrier goes on at once, then, as if it were not there.
    """
    make = type(removed)
    if removed.ends:  # goes on with the next op
        idle = make(lambda state: False, "removed", removed.kind, "", removed.line, "branch", removed.index + 1)
    elif removed.mnemonic.startswith(("mbarrier.test", "mbarrier.try")):
        ((column, row),) = removed.targets  # type: ignore[attr-defined]

        def over(state: Any) -> None:
            state.files[column][row][... if state.mask is None else state.mask] = True

        idle = make(over, "removed", removed.kind, "", removed.line)
        idle.targets, idle.writes = removed.targets, removed.writes  # type: ignore[attr-defined]
    else:
        idle = make(nothing, "removed", removed.kind, "", removed.line)
    idle.index = removed.index
    ops = (*program.ops[: removed.index], idle, *program.ops[removed.index + 1 :])
    return program.with_ops(ops, lambda segment: ())


def kind_of(op: Op) -> str:
    """What an op is called in a table: its mnemonic without types, state spaces and the like.

    >>> kind_of(Op(nothing, "mbarrier.init.shared::cta.b64", "wait"))
    'mbarrier.init'
    """
    pattern = ORDERS["amdgcn" if op.mnemonic.startswith("s_") else "ptx"]
    match = pattern.match(op.mnemonic)
    end = 0 if match is None else match.end()
    return op.mnemonic[:end] + op.mnemonic[end:].partition(".")[0]


class _Reached(NoHooks):
    """Calls that note the segments which some wave runs. starts: of their first ops."""

    def __init__(self) -> None:
        self.starts: set[int] = set()

    def entering(self, segment: Segment) -> Call:
        return lambda state: self.starts.add(segment.start)


def reached(launch: Recorded, gpu: VirtualGpu) -> frozenset[int]:
    """The ops, by index, that some wave comes to in a launch; `gpu`: one without sanitizers."""
    hooks = _Reached()
    launch.again(gpu, instrumented(launch.program, [hooks]))
    segments = [launch.program.segments[start] for start in hooks.starts]
    return frozenset(index for segment in segments for index in range(segment.start, segment.next))


def removals(
    case: str, target: str, pick: Callable[[list[Op]], list[Op]] = list, launches: Sequence[Recorded] | None = None
) -> Iterator[Removal]:
    """Each op of a case's kernels that orders something, removed by itself.

    pick: which of the ops of one kernel are removed. launches: what `recorded` returns under the sanitizers, which
    this does itself where it is left out. Raises what they report of the kernel as compiled: a false alarm.
    """
    sanitized, of_lanes = (VirtualGpu(target, step_limit=STEP_LIMIT, sanitize=tools) for tools in (TOOLS, OF_LANES))
    plain = VirtualGpu(target)
    for launch in recorded(case, target, sanitize=True) if launches is None else launches:
        for op in pick(ordering(launch.program)):
            line = op.line[1] if op.line else None
            found = (case, launch.program.name, target, op.text.strip(), line, kind_of(op))
            try:
                launch.again(of_lanes if op.mnemonic.startswith("bar.warp") else sanitized, without(launch.program, op))
            except VirtualGpuError as error:
                yield Removal(*found, "caught", str(error), type(error).__name__)
            else:
                changed = not launch.same()
                yield Removal(*found, *_unseen(launch, op, plain), changed=changed)


def _unseen(launch: Recorded, op: Op, plain: VirtualGpu) -> tuple[str, str]:
    """The outcome of a removal that no launch shows, and why."""
    if why := why_unnecessary(launch, op, plain):
        return "unnecessary", why
    if launch.program.unit == "wave" and (late := late_without(launch.program, op)):
        return "on another path", f"`{late.use.text}` uses {late.register} before `{late.load.text}` has filled it"
    return ("missed" if op.index in reached(launch, plain) else "not executed"), ""


def why_unnecessary(launch: Recorded, op: Op, plain: VirtualGpu) -> str | None:
    """Why a launch does not need an op that orders something; None where no argument holds.

    To be asked after a launch without the op has ended with no report. plain: a virtual GPU without sanitizers.
    """
    program = launch.program

    def idle(barriers: Collection[Op]) -> bool:
        return _barriers(launch, barriers, plain) is not None

    if op.ends == "barrier":
        why = _barriers(launch, [op], plain)
        if why is None and program.unit == "lane":
            why = barriers_apart.apart(program, op, lambda other: launch.again(plain, other))
        return why
    if program.unit == "lane":
        return ptx_needed.unnecessary(program, op)
    why = amd_needed.unnecessary(program, op)
    if why is None:
        done = launch.again(plain, program)
        facts = amd_needed.Facts(barriers_needed.only_atomics(done), read_back(done), idle)
        why = amd_needed.unnecessary(program, op, facts)
    return why


def _barriers(launch: Recorded, ops: Collection[Op], plain: VirtualGpu) -> str | None:
    threads = math.prod(launch.arguments[1])
    return barriers_needed.unnecessary(launch.program, threads, ops, lambda other: launch.again(plain, other))


def read_back(launch: Launch) -> bool:
    """Whether a launch loads from a tensor that it stores to, or has atomics, whose tensors nobody notes."""
    logs = [region.log for region in launch.memory.regions if region.log is not None]
    atomics = any(op.communicates and op.kind == "global" for op in launch.program.ops)
    return atomics or any(log.loads and log.stores for log in logs)
