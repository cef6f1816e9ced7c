"""What a sanitizer found: both sides, and what is missing between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from gpu_utils.errors import VirtualGpuError
from gpu_utils.virtual.machine import Op, State, source_of

Error = TypeVar("Error", bound=VirtualGpuError)


@dataclass(frozen=True)
class Side:
    """One of the two accesses that meet.

    does   what it does, a verb: "reads", "writes", "updates"
    text   the instruction
    line   of the source, (file, number), or None where the kernel has no line table
    where  which program, wave and lane, in words
    """

    does: str
    text: str
    line: tuple[str, int] | None
    where: str


@dataclass(frozen=True)
class Report:
    """A fault. It is the attribute `report` of the error that a launch raises.

    tool     of TOOLS
    kernel, target
    what     what both sides use: "offset 16 of shared memory (LDS)", "v5", "byte offset 8 of x_ptr"
    second   the side at which it was found
    first    the side that it meets; None where nobody did anything (memory that was never written)
    missing  what must stand between them, in words: "a barrier", "s_waitcnt vmcnt(0)"
    """

    tool: str
    kernel: str
    target: str
    what: str
    second: Side
    first: Side | None
    missing: str


def side_of(does: str, op: Op, state: State, wave: int, lane: int = 0) -> Side:
    """The side of one lane of the batch."""
    return Side(does, op.text, op.line, state.where(wave, lane))


def kernel_and_line(state: State, op: Op) -> str:
    """How every message begins: the kernel and the line of the source."""
    return f"kernel {state.program.name}{source_of(op)}"


def reported(error: Error, tool: str, state: State, what: str, second: Side, first: Side | None, missing: str) -> Error:
    """The error with its Report."""
    error.report = Report(tool, state.program.name, state.program.target, what, second, first, missing)
    return error
