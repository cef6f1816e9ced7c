"""A program with calls of sanitizers around its ops and before its segments; what it computes stays the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from gpu_utils.virtual.machine import Op, Program
from gpu_utils.virtual.machine.program import Segment

Call = Callable[[Any], None]


class Hooks(Protocol):
    """What a tool puts into a program. Each method returns None where it has nothing to do; a call gets the State."""

    def before(self, op: Op) -> Call | None:
        """Called before the op runs, for the running units."""

    def after(self, op: Op) -> Call | None:
        """Called after it."""

    def entering(self, segment: Segment) -> Call | None:
        """Called when the running units begin a segment of straight code, before its first op."""


class NoHooks:
    """A base for tools that need only some of the calls."""

    def before(self, op: Op) -> Call | None:
        return None

    def after(self, op: Op) -> Call | None:
        return None

    def entering(self, segment: Segment) -> Call | None:
        return None


def instrumented(program: Program, tools: Sequence[Hooks]) -> Program:
    """The program with the calls of these tools. Its ops keep their numbers, its segments theirs."""

    def entering(segment: Segment) -> list[Call]:
        return [call for tool in tools if (call := tool.entering(segment))]

    ops = [_around(op, tools) for op in program.ops]
    return replace(program.with_ops(ops, entering), separable=False)


def _around(op: Op, tools: Sequence[Hooks]) -> Op:
    before = [call for tool in tools if (call := tool.before(op))]
    after = [call for tool in tools if (call := tool.after(op))]
    if not before and not after:
        return op
    inner = op.run

    def run(state: Any) -> Any:
        for call in before:
            call(state)
        result = inner(state)
        for call in after:
            call(state)
        return result

    return replace(op, run=run)
