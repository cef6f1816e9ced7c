"""From PTX text to a Program of the array machine: memory layout of variables, block order, labels."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from gpu_utils.compiler.cpp_module import source_name
from gpu_utils.errors import UnknownName
from gpu_utils.virtual.kernel_info import MOST_THREADS
from gpu_utils.virtual.machine import Program
from gpu_utils.virtual.ptx import (  # noqa: F401  (fill FAMILIES)
    asynchronous,
    block_scaled,
    flow,
    load_store,
    matrix,
    move,
    tcgen05,
    tensor,
    warp,
    wgmma,
    wmma,
)
from gpu_utils.virtual.ptx.decode import Decoder, Place, PtxOp
from gpu_utils.virtual.ptx.parse import Module, parse
from gpu_utils.virtual.ptx.state import PtxInfo
from gpu_utils.virtual.ptx.syntax import Address, Function, Symbol, Variable, Vector


class Assembler(Decoder):
    """A Decoder that also lays out memory and code."""

    def __init__(self, module: Module, kernel: Function, target: str) -> None:
        super().__init__(module, kernel, target)
        self.ops: list[PtxOp] = []
        self.places: dict[str, int] = {}
        self.functions = self._reachable(kernel)
        self.branches = any(
            i.pred is not None and i.parts[0] in ("bra", "ret", "exit") for f in self.functions for i in f.body
        )
        self._variables()

    def _reachable(self, kernel: Function) -> list[Function]:
        """The kernel and the functions it calls, callees first. Raises for recursion."""
        order: list[Function] = []
        path: list[str] = []

        def visit(function: Function) -> None:
            if function in order:
                return
            path.append(function.name)
            for instruction in function.body:
                if instruction.parts[0] != "call":
                    continue
                names = [o.name for o in instruction.operands if isinstance(o, Symbol)]
                callee = self.module.functions.get(names[0]) if names else None
                if callee is None:
                    self.refuse(instruction, "a call through a pointer")
                if callee.name in path:
                    self.refuse(instruction, "a recursive call")
                if callee.defined:
                    visit(callee)
            path.pop()
            order.append(function)

        visit(kernel)
        return order

    def _variables(self) -> None:
        """Addresses: shared from 0, local and call parameters in per-thread memory, global data in one array.

        A module's shared arrays that only other kernels name take no room here: ptxas gives a kernel what it uses.
        """
        dynamic: list[Variable] = []
        data: list[Variable] = []
        used = self._named_in(self.functions)
        of_others = self._named_in(self.module.functions.values()) - used
        for variable in [*self.module.variables.values(), *(v for f in self.functions for v in f.variables)]:
            if variable.space == "shared" and variable.name in of_others:
                continue
            if variable.space == "shared" and variable.size:
                self.addresses[variable.name] = ("shared", self._place("static_shared", variable))
            elif variable.space == "shared":
                dynamic.append(variable)
            elif variable.space in ("local", "param"):
                self.addresses[variable.name] = (variable.space, self._place("local_bytes", variable))
            else:
                data.append(variable)
        for variable in dynamic:  # they all start where the static ones end
            align = max(variable.align, 16)
            self.static_shared = -(-self.static_shared // align) * align
        for variable in dynamic:
            self.addresses[variable.name] = ("shared", self.static_shared)
        for function in self.functions:
            for variable in (*function.params, *function.returns):
                if function.entry:
                    self.addresses[variable.name] = ("kernel_param", variable.offset)
                elif variable.name not in self.addresses:
                    # functions give their return values one name: one place, as large as the largest
                    largest = max(self._namesakes(variable.name), key=lambda v: (v.size, v.align))
                    self.addresses[variable.name] = ("param", self._place("local_bytes", largest))
        self._data(data)

    def _named_in(self, functions: Iterable[Function]) -> set[str]:
        """What these functions and the module's data name."""
        waiting: list[object] = [o for f in functions for i in f.body for o in i.operands]
        waiting += [item for variable in self.module.variables.values() for item in variable.init or ()]
        found: set[str] = set()
        while waiting:
            operand = waiting.pop()
            if isinstance(operand, Symbol):
                found.add(operand.name)
            elif isinstance(operand, Address):
                waiting.append(operand.base)
            elif isinstance(operand, Vector):
                waiting += operand.items
        return found

    def _namesakes(self, name: str) -> list[Variable]:
        """Parameters and return values of every function that bear this name."""
        inner = [function for function in self.functions if not function.entry]
        return [v for function in inner for v in (*function.params, *function.returns) if v.name == name]

    def _place(self, attribute: str, variable: Variable) -> int:
        start = -(-getattr(self, attribute) // variable.align) * variable.align
        setattr(self, attribute, start + variable.size)
        return start

    def _data(self, variables: list[Variable]) -> None:
        size, offsets = 0, []
        for variable in variables:
            align = max(variable.align, 16)
            offsets.append(-(-size // align) * align)
            size = offsets[-1] + variable.size
        raw = np.zeros(size + 256, np.uint8)
        skip = -raw.ctypes.data % 256
        self.data = raw[skip : skip + size]
        for variable, at in zip(variables, offsets, strict=True):
            self.addresses[variable.name] = (variable.space, self.data.ctypes.data + at)
        for variable, at in zip(variables, offsets, strict=True):
            for item in variable.init or ():
                value = self.address_of(item) if isinstance(item, Symbol) else _bits(item, variable.element)
                self.data[at : at + variable.element] = np.frombuffer(
                    int(value % (1 << 8 * variable.element)).to_bytes(variable.element, "little"), np.uint8
                )
                at += variable.element

    # code -------------------------------------------------------------------------------------------------------
    def assemble(self) -> None:
        for function in self.functions:
            self.enter_function(function)
            self._function(function)
        for places, labels in self.pending:
            places += [self.places[label] for label in labels]
        for place, op in self.after:
            place.append(self.ops.index(op) + 1)
        for op in self.ops:
            if op.label is not None:
                op.target = self.places[op.label]

    def leaders(self) -> set[int]:
        """Ops that a call, a return or an indexed branch reaches, and those where lanes wait for each other."""
        reached = {place for places, _ in self.pending for place in places} | {place[0] for place, _ in self.after}
        return reached | {at for at, op in enumerate(self.ops) if op.ends == "sync"}

    def _emit(self, op: PtxOp) -> None:
        self.ops.append(op)

    def _function(self, function: Function) -> None:
        blocks = flow.blocks_of(function) if function.body else []
        names = {
            start: [n for n, at in function.labels.items() if at == start] for start in set(function.labels.values())
        }
        self.places[f"{function.name}:"] = len(self.ops)
        order = flow.layout(blocks) if blocks else []
        for position, number in enumerate(order):
            block = blocks[number]
            self.places[f"{function.name}:block {number}"] = len(self.ops)
            for name in names.get(block.start, ()):
                self.places[self.label(name)] = len(self.ops)
            self.begin_block()
            for instruction in function.body[block.start : block.end]:
                self._instruction(instruction)
            following = order[position + 1] if position + 1 < len(order) else None
            if block.falls is not None and block.falls != following:
                self._emit(flow.jump_op(f"{function.name}:block {block.falls}"))
            elif block.falls is None and not block.after and function.body[block.end - 1].parts[0] not in flow.LEAVES:
                self._emit(PtxOp(lambda state: None, "layout", "layout", ends="end"))
        for name, at in function.labels.items():
            if at == len(function.body):
                self.places[self.label(name)] = len(self.ops)
        if not order or any(at == len(function.body) for at in function.labels.values()):
            self._emit(PtxOp(lambda state: None, "layout", "layout", ends="end"))

    def _instruction(self, instruction) -> None:
        stem = instruction.parts[0]
        skipped = None
        if instruction.pred is not None and stem in ("call", "bar", "barrier"):
            skipped = f"skip {len(self.ops)}"
            self._emit(flow.skip_op(self, instruction, skipped))
        op = self.decode(instruction)
        if op.members is not None and self.branches:
            self._emit(warp.converge_op(op.members, op))
        if op.first is not None:
            op.first.sources = op.sources
            self._emit(op.first)
        self._emit(op)
        if op.results:
            self._emit(flow.result_op(self, op.results))
        if skipped:
            self.places[skipped] = len(self.ops)


def _bits(item, element: int) -> int:
    if isinstance(item.value, float):
        return int(np.array(item.value, f"f{element}").view(f"u{element}"))
    return item.value


def _unique(names: dict[tuple[str, int], str]) -> dict[str, tuple[str, int]]:
    """Register name -> (column, index); a name that an inner scope repeats gets a number."""
    found: dict[str, tuple[str, int]] = {}
    for place, name in sorted(names.items(), key=lambda item: item[0][1]):
        number, unique = 1, name
        while unique in found:
            number += 1
            unique = f"{name}#{number}"
        found[unique] = place
    return found


def _name_registers(ops: list[PtxOp], names: dict[str, Place]) -> None:
    """Now that every register has its name: which ones each op reads and writes."""
    name_of = {place: name for name, place in names.items()}
    for op in ops:
        op.guards = frozenset() if op.guard is None else frozenset({name_of[op.guard]})
        op.reads = frozenset(name_of[place] for place in op.sources)
        op.writes = frozenset(name_of[place] for place in op.targets)


def decode(text: str, target: str, name: str | None = None) -> Program:
    """The program of one kernel of a PTX module.

    text: the module; target: "sm_80" and the like, for messages; name: the kernel, or None for the first.
    Raises AsmSyntaxError, UnknownName, and UnsupportedInstruction for an instruction that no table knows.
    """
    module = parse(text)
    kernels = [f.name for f in module.functions.values() if f.entry and f.defined]
    if name is None and kernels:
        name = kernels[0]
    if name not in kernels:
        raise UnknownName("kernel", str(name), kernels)
    assembler = Assembler(module, module.functions[name], target)
    assembler.assemble()
    kernel = assembler.kernel
    registers = assembler.registers
    rows = registers["32"] + 2 * registers["64"] + (registers["16"] + 1) // 2 + registers["pred"] // 4
    limit = kernel.directives.get("reqntid") or kernel.directives.get("maxntid") or [MOST_THREADS]
    names = _unique(assembler.names)
    _name_registers(assembler.ops, names)
    info = PtxInfo(
        parameters=tuple((p.offset, p.size) for p in kernel.params),
        parameter_bytes=kernel.param_bytes(),
        registers=rows,
        static_shared=assembler.static_shared,
        data=assembler.data,
        most_threads=min(MOST_THREADS, math.prod(limit)),
        columns=registers,
        slots=tuple(assembler.slots),
        specials=tuple(i for i, slot in enumerate(assembler.slots) if slot.column == "special"),
        names=names,
        local_bytes=assembler.local_bytes,
        generic=assembler.generic,
    )
    entry = assembler.places[f"{name}:"]
    return Program.of(source_name(name), target, 32, "lane", assembler.ops, info, entry, assembler.leaders())
