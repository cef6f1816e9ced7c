"""Barriers and waits of compiled kernels, each removed by itself: do the sanitizers notice?

A kernel is launched as compiled, then once for each of its ops that order something, without that op and on the same
inputs. A removal that no sanitizer catches must have a stated argument why the kernel does not need the op.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gpu_utils.errors import VirtualGpuError
from gpu_utils.kernelset.case import CASES, Run
from gpu_utils.virtual import VirtualGpu, virtual_gpu
from gpu_utils.virtual.machine import Op, Program
from gpu_utils.virtual.machine.op import nothing
from gpu_utils.virtual.models import isa_of

ORDERS = {
    "amdgcn": re.compile(
        r"s_barrier(_signal|_wait)?\b|s_waitcnt|s_wait_(load|store|ds|km|sample|bvh|exp|async|tensor)cnt"
    ),
    "ptx": re.compile(
        r"(barrier\.|bar\.)(cta\.)?(sync|arrive|red|warp)|cp\.async\.(commit|wait|mbarrier|bulk\.commit|bulk\.wait)"
        r"|mbarrier\.(init|arrive|expect|complete|test|try)|wgmma\.(fence|commit|wait)|fence\.|membar"
        r"|tcgen05\.(wait|commit|fence)"
    ),
}
"""Instruction set -> the beginning of the mnemonics that order something, and compute nothing."""

TOOLS = ("racecheck", "waitcheck", "synccheck")
STEP_LIMIT = 20_000


@dataclass(frozen=True)
class Removal:
    """One op of a kernel that was removed.

    case     of CASES; kernel: its name in the machine code; target
    op       the instruction, and `line` of the source, or None
    caught   the name of the error that the launch without it raised; "" when it raised none
    why      its message; or, when nothing was raised, the argument why the kernel does not need the op; or ""
    changed  whether the launch without it ended and left other bytes than the launch as compiled
    """

    case: str
    kernel: str
    target: str
    op: str
    line: int | None
    caught: str
    why: str
    changed: bool = False

    @property
    def missed(self) -> bool:
        """Neither caught nor shown to be unnecessary."""
        return not self.caught and not self.why


@dataclass
class Recorded:
    """One launch of a case: how to repeat it, and the bytes of its tensors before it and after."""

    program: Program
    arguments: tuple[Any, ...]
    storages: list[torch.Tensor]
    before: list[torch.Tensor]
    after: list[torch.Tensor]

    def again(self, gpu: VirtualGpu, program: Program) -> None:
        """Launch another program on what the first one found."""
        for storage, bytes_before in zip(self.storages, self.before, strict=True):
            storage.copy_(bytes_before)
        gpu.execute(program, *self.arguments)

    def same(self) -> bool:
        """Whether the tensors hold what the launch as compiled left."""
        return all(torch.equal(*pair) for pair in zip(self.storages, self.after, strict=True))


def recorded(case: str, target: str, seed: int = 0) -> list[Recorded]:
    """The launches of a case as compiled, one of each program."""
    found: dict[Program, Recorded] = {}
    with virtual_gpu(target, ptxas=False) as gpu:
        run, plain = Run(target, seed), gpu.execute

        def execute(program: Program, *arguments: Any) -> Any:
            values = [value for *_, value in arguments[2]] + [tensor for _, tensor in gpu.registered]
            storages = _storages(values)
            before = [storage.clone() for storage in storages]
            launch = plain(program, *arguments)
            if program not in found:
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
    """The program with an op that does nothing in the place of another."""
    if removed.ends:  # goes on with the next op
        idle = Op(lambda state: False, "removed", removed.kind, "", removed.line, "branch", removed.index + 1)
    else:
        idle = Op(nothing, "removed", removed.kind, "", removed.line)
    idle.index = removed.index
    ops = (*program.ops[: removed.index], idle, *program.ops[removed.index + 1 :])
    return program.with_ops(ops, lambda segment: ())


def removals(
    case: str,
    target: str,
    unnecessary: Callable[[Recorded, Op], str | None],
    pick: Callable[[list[Op]], list[Op]] = list,
) -> Iterator[Removal]:
    """Each op of a case's kernels that orders something, removed by itself.

    unnecessary: why a launch does not need an op, or None. pick: which of the ops of one kernel are removed.
    Raises what the sanitizers raise of the kernel as compiled: a false alarm.
    """
    launches = recorded(case, target)
    with virtual_gpu(target, ptxas=False, sanitize=TOOLS, step_limit=STEP_LIMIT) as gpu:
        for launch in launches:
            launch.again(gpu, launch.program)
            for op in pick(ordering(launch.program)):
                caught = why = ""
                changed = False
                try:
                    launch.again(gpu, without(launch.program, op))
                except VirtualGpuError as error:
                    caught, why = type(error).__name__, str(error)
                else:
                    changed, why = not launch.same(), unnecessary(launch, op) or ""
                line = op.line[1] if op.line else None
                yield Removal(case, launch.program.name, target, op.text.strip(), line, caught, why, changed)
