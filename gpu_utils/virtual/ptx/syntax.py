"""What a PTX text consists of, as plain data: operands, instructions, variables, functions, the module."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Reg:
    """One virtual register: its `kind` is the column width ("pred", "16", "32", "64"), `index` its place there."""

    kind: str
    index: int
    name: str


@dataclass(frozen=True, slots=True)
class Imm:
    """A literal: an int, or a float with the width that its spelling fixed (0f... 32, 0d... 64, else None)."""

    value: int | float
    width: int | None = None


@dataclass(frozen=True, slots=True)
class Special:
    """A read-only machine register such as `%tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name that is no register: a variable, label, function or parameter, with a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Vector:
    """Operands in braces."""

    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`, with the coordinates that a tensor copy adds."""

    base: Any  # Reg, Symbol or Imm
    offset: int = 0
    coords: Vector | None = None


@dataclass(frozen=True, slots=True)
class Not:
    """A predicate operand read inverted."""

    reg: Reg


@dataclass(frozen=True, slots=True)
class Pair:
    """`a|b`: two destinations."""

    first: Any
    second: Any


SINK = Symbol("_")


@dataclass(slots=True)
class Instruction:
    """One instruction: `opcode` is the whole dotted word, `line` the (file, line) of its source or None."""

    opcode: str
    operands: tuple[Any, ...]
    pred: Reg | None = None
    negated: bool = False
    line: tuple[str, int] | None = None
    text: str = ""
    scope: int = 0

    @property
    def parts(self) -> list[str]:
        return self.opcode.split(".")


@dataclass(slots=True)
class Variable:
    """A variable of a state space: `size` bytes (0 for an extern array), `init` bytes or symbols, or None."""

    name: str
    space: str
    size: int
    align: int
    init: list | None = None
    element: int = 1
    offset: int = 0


@dataclass(slots=True)
class Function:
    name: str
    entry: bool
    params: list[Variable] = field(default_factory=list)
    returns: list[Variable] = field(default_factory=list)
    body: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    directives: dict[str, list[int]] = field(default_factory=dict)
    registers: dict[str, int] = field(default_factory=lambda: {"pred": 0, "16": 0, "32": 0, "64": 0})
    targets: dict[str, list[str]] = field(default_factory=dict)
    defined: bool = False

    def param_bytes(self) -> int:
        """Bytes of the packed parameter buffer of a kernel."""
        return max((p.offset + p.size for p in self.params), default=0)
