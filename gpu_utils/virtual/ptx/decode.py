"""PTX instructions into ops: operands become slots, opcodes become functions from the tables.

Everything is decided here, once: which rows an op reads and writes, as what type, under which guard. What an op does
when it runs is one call of a table's function on NumPy rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from gpu_utils.errors import UnsupportedInstruction
from gpu_utils.virtual.machine import Op
from gpu_utils.virtual.ptx import cvt, floating, integer
from gpu_utils.virtual.ptx.elementwise import elementwise, inverting
from gpu_utils.virtual.ptx.floating import THREE
from gpu_utils.virtual.ptx.forms import BYTES, TYPES, Form
from gpu_utils.virtual.ptx.literals import with_literals
from gpu_utils.virtual.ptx.parse import Module
from gpu_utils.virtual.ptx.state import COLUMNS, SPECIALS, Slot
from gpu_utils.virtual.ptx.syntax import (
    SINK,
    Address,
    Function,
    Imm,
    Instruction,
    Not,
    Pair,
    Reg,
    Special,
    Symbol,
)

ALU: dict[str, Form] = {**integer.TABLE, **floating.TABLE, **cvt.TABLE, **cvt.COMPARE}
TRANSCENDENTAL = {"ex2", "lg2", "sin", "cos", "tanh", "rcp", "rsqrt", "sqrt"}
# opcode stem -> function(decoder, op, instruction) that sets op.run (and op.ends, ...); filled by the family modules
FAMILIES: dict[str, Callable[[Decoder, PtxOp, Instruction], None]] = {}
Place = tuple[str, int]  # of a register: its column and the index there
CARRY: Place = ("pred", 0)


def family(*stems: str):
    """Register the decorated function for every opcode that starts with one of `stems`."""

    def register(fn: Callable[[Decoder, PtxOp, Instruction], None]) -> Callable[[Decoder, PtxOp, Instruction], None]:
        for stem in stems:
            FAMILIES[stem] = fn
        return fn

    return register


@dataclass(slots=True, eq=False)
class PtxOp(Op):
    """An Op with what the assembler still has to do for it.

    label: where a branch goes; members: the slot of a `.sync` instruction's member mask; results: of a call.
    first: an op that the machine runs before it.
    sources, targets, guard: places of the registers that it reads and writes, and of its guard.
    """

    label: str | None = None
    members: int | None = None
    results: list | None = None
    first: PtxOp | None = None
    sources: frozenset[Place] = frozenset()
    targets: frozenset[Place] = frozenset()
    guard: Place | None = None


def _undecided(state: Any) -> None:
    """The run of an op until a table gives it one."""


class Decoder:
    """Decodes one kernel with the functions it calls; collects slots, symbols and memory sizes."""

    def __init__(self, module: Module, kernel: Function, target: str) -> None:
        self.module, self.kernel, self.target = module, kernel, target
        self.slots: list[Slot] = []
        self.slot_of: dict[Any, int] = {}
        self.registers = {"pred": 1, "16": 0, "32": 0, "64": 0}  # predicate 0 is the carry flag
        self.base: dict[str, int] = {}
        self.function = kernel
        self.addresses: dict[str, tuple[str, int]] = {}  # symbol -> (space, address)
        self.local_bytes = 0
        self.static_shared = 0
        self.generic = False
        self.versions: dict[Place, int] = {}  # register -> how often the block has written it so far
        self.fragments: set[tuple] = set()
        self.names: dict[tuple[str, int], str] = {}
        self.pending: list[tuple[list[int], list[str]]] = []
        self.after: list[tuple[list[int], PtxOp]] = []
        self.data = np.zeros(0, np.uint8)
        self.sources: set[Place] = set()
        self.targets: set[Place] = set()
        self.guarding: Place | None = None

    def hand_over(self, op: PtxOp) -> PtxOp:
        """Tell an op which registers were asked for since the last one: it reads and writes them."""
        for place in self.targets:
            self.versions[place] = self.versions.get(place, 0) + 1
        op.sources, op.targets, op.guard = frozenset(self.sources), frozenset(self.targets), self.guarding
        self.sources, self.targets, self.guarding = set(), set(), None
        return op

    # errors -----------------------------------------------------------------------------------------------------
    def refuse(self, instruction: Instruction, why: str = "") -> NoReturn:
        raise UnsupportedInstruction(self.target, self.kernel.name, instruction.text, why)

    # places in the code, known when all is laid out -------------------------------------------------------------
    def label(self, name: str) -> str:
        """A label of the function being decoded, among those of all functions."""
        return f"{self.function.name}:{name}"

    def later(self, places: list[int], labels: list[str]) -> None:
        """Fill `places` with the op indices of `labels` when they are known."""
        self.pending.append((places, labels))

    def following(self, op: PtxOp) -> list[int]:
        """A list that will hold the index of the op after `op`."""
        place: list[int] = []
        self.after.append((place, op))
        return place

    # slots ------------------------------------------------------------------------------------------------------
    def _slot(self, key: Any, slot: Slot) -> int:
        found = self.slot_of.get(key)
        if found is None:
            found = self.slot_of[key] = len(self.slots)
            self.slots.append(slot)
        return found

    def enter_function(self, function: Function) -> None:
        """Give the registers of a function their places in the columns."""
        self.function = function
        self.base = dict(self.registers)
        for column, count in function.registers.items():
            self.registers[column] += count

    def _index(self, reg: Reg) -> int:
        """The place of a register in its column."""
        index = self.base[reg.kind] + reg.index
        self.names[reg.kind, index] = reg.name if self.function.entry else f"{self.function.name}.{reg.name}"
        return index

    def register(self, reg: Reg, kind: str, write: bool = False) -> int:
        """The slot of a register seen as operand type `kind`. A wider register is cut (read) or extended (written)."""
        column, dtype = TYPES[kind]
        index = self._index(reg)
        (self.targets if write else self.sources).add((reg.kind, index))
        if reg.kind == "pred" or column == "pred":
            if reg.kind != column:
                raise ValueError(f"{reg.name} is no operand of type {kind}")
            return self._slot(("pred", index, "?"), Slot("pred", index, dtype))
        size, width = BYTES[kind], COLUMNS[reg.kind].itemsize
        if size > width:
            raise ValueError(f"register {reg.name} is too narrow for type {kind}")
        step = 1
        if size < width:
            if write:
                dtype = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{width}")
            else:
                dtype = np.dtype(f"{'i' if kind[0] == 's' else 'f' if dtype.kind == 'f' else 'u'}{size}")
                step = width // size
        return self._slot((reg.kind, index, dtype.str, step), Slot(reg.kind, index, dtype, step))

    def raw(self, reg: Reg) -> int:
        """The slot of a register that is read, as its column's own unsigned (or bool) type."""
        self.sources.add((reg.kind, self._index(reg)))
        return self._raw(reg)

    def result(self, reg: Reg) -> int:
        """The slot of a register that is written, as its column's own unsigned (or bool) type."""
        self.targets.add((reg.kind, self._index(reg)))
        return self._raw(reg)

    def carry(self, write: bool = False) -> int:
        """The slot of the carry flag."""
        self.names[CARRY] = "cc"
        (self.targets if write else self.sources).add(CARRY)
        return self._slot((*CARRY, "?"), Slot(*CARRY, COLUMNS["pred"]))

    def _raw(self, reg: Reg) -> int:
        index = self._index(reg)
        dtype = COLUMNS[reg.kind]
        key = ("pred", index, "?") if reg.kind == "pred" else (reg.kind, index, dtype.str, 1)
        return self._slot(key, Slot(reg.kind, index, dtype))

    def constant(self, value: Any, kind: str) -> int:
        """A slot with a literal of operand type `kind`; ints are bit patterns except for f32 and f64."""
        column, dtype = TYPES[kind]
        if column == "pred":
            array = np.array(bool(value))
        elif isinstance(value, float) or (kind in ("f32", "f64") and not isinstance(value, np.generic)):
            if kind == "f16":
                array = np.array(value, np.float16)
            else:
                array = np.array(value, dtype if dtype.kind == "f" else f"f{BYTES[kind]}")
                array = array if dtype.kind == "f" else array.view(dtype)
        else:
            size = BYTES[kind]
            word = np.array([int(value) & ((1 << 8 * size) - 1)], f"u{size}")
            if dtype.itemsize < size:
                array = np.tile(word.view(dtype), 32)
            elif dtype.itemsize > size:
                array = word.view(f"{'i' if kind[0] == 's' else 'u'}{size}").astype(dtype).reshape(())
            else:
                array = word.view(dtype).reshape(())
        array.flags.writeable = False
        return self._slot(("const", dtype.str, array.tobytes(), array.ndim), Slot("const", array, dtype))

    def literal_of(self, slot: int) -> int | None:
        """The number in a slot of integers that is a literal."""
        column, value = self.slots[slot][:2]
        return int(value) if column == "const" and value.ndim == 0 and value.dtype.kind in "ui" else None

    def literal(self, imm: Imm, kind: str) -> int:
        if imm.width is None:
            return self.constant(imm.value, kind)
        code = "f" if imm.width == 32 else "d"
        layout = "<I" if imm.width == 32 else "<Q"
        sign = -1.0 if imm.value < 0 else 1.0
        value = struct.unpack("<" + code, struct.pack(layout, abs(imm.value)))[0] * sign
        if kind in ("f32", "f64"):
            bits = {("f32", 32): np.uint32, ("f64", 64): np.uint64}.get((kind, imm.width))
            if bits is not None and sign > 0:  # keep the payload of a NaN
                array = np.array(imm.value, bits).view(TYPES[kind][1])
                array.flags.writeable = False
                return self._slot(("const", array.dtype.str, array.tobytes(), 0), Slot("const", array, array.dtype))
            return self.constant(float(value), kind)
        if sign < 0:
            return self.constant(float(value), kind)
        return self.constant(imm.value, kind)

    def read(self, operand: Any, kind: str) -> int:
        """The slot that an input operand of type `kind` is read from."""
        if isinstance(operand, Reg):
            return self.register(operand, kind)
        if isinstance(operand, Imm):
            return self.literal(operand, kind)
        if isinstance(operand, Special):
            if operand.name not in SPECIALS:
                raise ValueError(f"no special register {operand.name}")
            dtype = TYPES[kind][1]
            return self._slot(("special", operand.name, dtype.str), Slot("special", operand.name, dtype))
        if isinstance(operand, Symbol):
            return self.constant(self.address_of(operand), kind)
        raise ValueError("an operand that is no register, number or name")

    def address_of(self, symbol: Symbol) -> int:
        """The address of a variable in its own state space."""
        if symbol.name not in self.addresses:
            raise ValueError(f"{symbol.name} is not declared")
        return self.addresses[symbol.name][1] + symbol.offset

    def write(self, operand: Any, kind: str) -> tuple[int, int] | None:
        """(slot of type `kind`, raw slot) of an output operand; None for the sink `_`."""
        if operand == SINK:
            return None
        if not isinstance(operand, Reg):
            raise ValueError("a result that is no register")
        return self.register(operand, kind, write=True), self.result(operand)

    def guard(self, instruction: Instruction) -> tuple[int | None, bool]:
        if instruction.pred is None:
            return None, False
        self.guarding = (instruction.pred.kind, self._index(instruction.pred))
        return self.raw(instruction.pred), instruction.negated

    # blocks -----------------------------------------------------------------------------------------------------
    def begin_block(self) -> None:
        self.versions, self.fragments = {}, set()

    def fragment(self, items: tuple, kind: str) -> tuple[tuple, bool]:
        """(key of a fragment's present contents, whether this is the block's first use of them)."""
        places = [(item.kind, self._index(item)) for item in items]
        key = (kind, *((place, self.versions.get(place, 0)) for place in places))
        first = key not in self.fragments
        self.fragments.add(key)
        return key, first

    # arithmetic -------------------------------------------------------------------------------------------------
    def decode(self, instruction: Instruction) -> PtxOp:
        """The op of one instruction. Raises UnsupportedInstruction when no table knows it."""
        op = PtxOp(_undecided, instruction.opcode, "vector", instruction.text, instruction.line)
        try:
            key = instruction.opcode
            if instruction.operands and isinstance(instruction.operands[0], Pair) and key.startswith("setp"):
                key += "|"
            if key.startswith(("min.", "max.")) and len(instruction.operands) == 4:
                key += THREE
            form = ALU.get(key)
            if form is not None:
                self.arithmetic(op, instruction, form)
            else:
                handler = FAMILIES.get(instruction.parts[0].split("::")[0])
                if handler is None:
                    self.refuse(instruction)
                handler(self, op, instruction)
        except (ValueError, KeyError, IndexError) as error:
            self.refuse(instruction, str(error))
        if op.run is _undecided:
            self.refuse(instruction)
        return self.hand_over(op)

    def arithmetic(self, op: Op, instruction: Instruction, form: Form) -> None:
        """op.run for a table entry."""
        operands = list(instruction.operands)
        if isinstance(operands[0], Pair):
            operands[:1] = [operands[0].first, operands[0].second]
        outs: list[tuple[int, int]] = []
        for kind in form.outs:
            if kind == "cc":
                outs.append((self.carry(write=True),) * 2)
            else:
                outs.append(self.write(operands.pop(0), kind) or (self.scratch(kind),) * 2)
        ins: list[int] = []
        inverted: list[int] = []
        for kind in form.ins:
            if kind == "cc":
                ins.append(self.carry())
                continue
            operand = operands.pop(0)
            if isinstance(operand, Not):
                inverted.append(len(ins))
                operand = operand.reg
            ins.append(self.read(operand, kind))
        if operands:
            raise ValueError(f"{len(operands)} operands too many")
        fn = with_literals(instruction.opcode, [self.literal_of(slot) for slot in ins]) or form.fn
        if inverted:
            fn = inverting(fn, inverted)
        if op.mnemonic.split(".")[0] in TRANSCENDENTAL:
            op.kind = "transcendental"
        op.run = elementwise(fn, ins, outs, *self.guard(instruction))

    def scratch(self, kind: str) -> int:
        """A row that nobody reads, for results that go to `_`."""
        column, dtype = TYPES[kind]
        key = ("scratch", column)
        if key not in self.slot_of:
            self.slot_of[key] = self.registers[column]
            self.registers[column] += 1
        index = self.slot_of[key]
        return self._slot((column, index, dtype.str, 1, "scratch"), Slot(column, index, dtype))


def parse_address(decoder: Decoder, address: Address) -> tuple[int, int]:
    """(slot of the base as an unsigned 64- or 32-bit row or constant, byte offset)."""
    base = address.base
    if isinstance(base, Reg):
        return decoder.raw(base), address.offset
    if isinstance(base, Symbol):
        return decoder.constant(decoder.address_of(base), "b64"), address.offset
    return decoder.constant(int(base.value), "b64"), address.offset
