"""Control flow: the order in which a function's blocks are laid out, and the instructions that leave a block.

The machine runs the group of lanes with the lowest op index first, so that lanes which parted meet again. That works
when a block stands after everything that may run before it, and a loop stands as one piece before its exits. So
blocks are laid out in a weak topological order ("Efficient chaotic iteration strategies with
widenings", 1993), whatever order the text has.
"""

from __future__ import annotations

import numpy as np

from gpu_utils.errors import DeviceAssert
from gpu_utils.virtual.machine import source_of
from gpu_utils.virtual.ptx import system
from gpu_utils.virtual.ptx.decode import Decoder, PtxOp, family
from gpu_utils.virtual.ptx.state import PtxState
from gpu_utils.virtual.ptx.syntax import Function, Imm, Instruction, Reg, Symbol, Vector

LEAVES = ("ret", "exit", "trap")


class Block:
    """Instructions body[start:end]; `after` lists where it can go, the fall-through last."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.after: list[int] = []
        self.falls: int | None = None


def blocks_of(function: Function) -> list[Block]:
    """The basic blocks of a function in text order."""
    body, labels = function.body, function.labels
    leaders = {0, *labels.values()}
    for at, instruction in enumerate(body):
        if instruction.parts[0] in ("bra", "brx", *LEAVES):
            leaders.add(at + 1)
    starts = sorted(at for at in leaders if at < len(body))
    number = {start: i for i, start in enumerate(starts)}
    blocks = []
    for start, end in zip(starts, [*starts[1:], len(body)], strict=True):
        block = Block(start, end)
        last = body[end - 1]
        stem = last.parts[0]
        if stem == "bra":
            name = last.operands[0].name
            if name not in labels:
                raise ValueError(f"label {name} is not in the function")
            target = labels[name]
            if target in number:
                block.after.append(number[target])
        elif stem == "brx":
            block.after += [number[labels[name]] for name in branch_targets(function, last)]
        if stem not in ("brx", *LEAVES, "bra") or (stem in ("bra", *LEAVES) and last.pred is not None):
            block.falls = number.get(end)
            if block.falls is not None:
                block.after.append(block.falls)
        blocks.append(block)
    return blocks


def branch_targets(function: Function, instruction: Instruction) -> list[str]:
    """The labels that a `brx.idx` lists by the name of its `.branchtargets`."""
    name = instruction.operands[1].name
    if name not in function.targets:
        raise ValueError(f"no .branchtargets called {name}")
    return function.targets[name]


def layout(blocks: list[Block]) -> list[int]:
    """The reachable blocks in a weak topological order."""
    reachable, todo = {0}, [0]
    while todo:
        for after in blocks[todo.pop()].after:
            if after not in reachable:
                reachable.add(after)
                todo.append(after)
    return _ordered(blocks, reachable)


def _ordered(blocks: list[Block], nodes: set[int]) -> list[int]:
    order: list[int] = []
    for component in _components(blocks, nodes):
        if len(component) == 1:
            order += component
        else:
            inside = set(component)
            entered = [n for n in component if any(n in blocks[b].after for b in range(len(blocks)) if b not in inside)]
            head = min(entered) if entered else min(component)
            order.append(head)
            order += _ordered(blocks, inside - {head})
    return order


def _components(blocks: list[Block], nodes: set[int]) -> list[list[int]]:
    """Strongly connected components of the subgraph, in topological order (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in sorted(nodes, reverse=True):
        if root in index:
            continue
        work = [(root, iter([n for n in blocks[root].after if n in nodes]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, successors = work[-1]
            step = next(successors, None)
            if step is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    found.append(sorted(component))
            elif step not in index:
                index[step] = low[step] = len(index)
                stack.append(step)
                on_stack.add(step)
                work.append((step, iter([n for n in blocks[step].after if n in nodes])))
            elif step in on_stack:
                low[node] = min(low[node], index[step])
    return found[::-1]


# instructions ------------------------------------------------------------------------------------------------------


def jump_op(label: str) -> PtxOp:
    """A jump that the layout needs and the text does not have; no counter sees it."""
    op = PtxOp(lambda state: True, "layout", "layout", ends="branch")
    op.label = label
    return op


def skip_op(decoder: Decoder, instruction: Instruction, label: str) -> PtxOp:
    """Lets the lanes that a guard switches off step over an instruction that has no guarded form."""
    pred, negated = decoder.guard(instruction)
    assert pred is not None

    def run(state: PtxState) -> np.ndarray:
        row = state.r[pred]
        return row if negated else ~row

    op = PtxOp(run, "layout", "layout", ends="branch")
    op.label = label
    return decoder.hand_over(op)


@family("bra")
def _branch(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    op.kind, op.ends = "branch", "branch"
    op.label = decoder.label(instruction.operands[0].name)
    pred, negated = decoder.guard(instruction)
    if pred is None:
        op.run = lambda state: True
    elif negated:
        op.run = lambda state: ~state.r[pred]
    else:
        op.run = lambda state: state.r[pred]


@family("brx")
def _indexed_branch(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    op.kind, op.ends = "branch", "jump"
    slot = decoder.read(instruction.operands[0], "u32")
    places: list[int] = []
    decoder.later(places, [decoder.label(name) for name in branch_targets(decoder.function, instruction)])

    def run(state: PtxState) -> np.ndarray:
        index = np.broadcast_to(state.r[slot], (state.waves, 32))
        return np.array(places)[np.minimum(index, len(places) - 1)]

    op.run = run


@family("ret", "exit")
def _leave(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    op.kind = "branch"
    pred, negated = decoder.guard(instruction)
    if decoder.function.entry or instruction.parts[0] == "exit":
        op.ends = "end"
        op.run = (lambda state: None) if pred is None else lambda state: ~state.r[pred] if negated else state.r[pred]
        return
    op.ends, name = "jump", decoder.function.name
    after = decoder.following(op)

    def run(state: PtxState) -> np.ndarray:
        back = state.returns[name]
        if pred is None:
            return back
        guard = ~state.r[pred] if negated else state.r[pred]
        return np.where(guard, back, after[0])

    op.run = run


@family("trap", "brkpt")
def _trap(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    op.kind = "branch"
    pred, negated = decoder.guard(instruction)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if some:
            wave, lane = first_lane(state, mask)
            raise DeviceAssert(
                f"kernel {state.program.name}{source_of(op)}: {state.where(wave, lane)} ran into `{op.text}`"
            )

    if instruction.parts[0] == "trap" and pred is None:
        op.ends = "end"
    op.run = run


def first_lane(state: PtxState, mask: np.ndarray | None) -> tuple[int, int]:
    if mask is None:
        return 0, 0
    wave, lane = (int(v) for v in np.argwhere(mask)[0])
    return wave, lane


@family("bar", "barrier")
def _barrier(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """bar.sync / barrier.sync{.aligned} a{, b}; bar.warp.sync; bar.arrive is not executed."""
    parts = instruction.parts
    operands = instruction.operands
    if parts[1] == "warp":
        op.kind = "barrier"
        op.run = lambda state: None
        op.members = decoder.read(operands[0], "u32")
        return
    if parts[0] == "barrier" and parts[1].startswith("cluster"):  # a cluster of one block
        op.kind, op.ends, op.run = "barrier", "barrier", lambda state: None
        return
    if ("sync" not in parts and "cta" not in parts) or "red" in parts or "arrive" in parts:
        raise ValueError("only the .sync form is executed")
    op.kind, op.ends = "barrier", "barrier"
    if all(isinstance(o, Imm) for o in operands):
        number = int(operands[0].value) if operands else 0
        count = int(operands[1].value) if len(operands) > 1 else None
        request = None if number == 0 and count is None else (number, count)
        op.run = lambda state: request
        return
    slots = [decoder.read(o, "u32") for o in operands]

    def run(state: PtxState) -> tuple[int, int | None]:
        wave, lane = first_lane(state, state.mask)
        values = [int(np.broadcast_to(state.r[slot], (state.waves, 32))[wave, lane]) for slot in slots]
        return values[0], values[1] if len(values) > 1 else None

    op.run = run


@family("call")
def _call(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """call{.uni} (results), function, (arguments): copies the arguments into the callee's parameters and jumps."""
    operands = list(instruction.operands)
    results = operands.pop(0).items if isinstance(operands[0], Vector) else ()
    name = operands.pop(0).name
    arguments = operands.pop(0).items if operands else ()
    function = decoder.module.functions.get(name)
    if function is None:
        raise ValueError(f"{name} is not declared")
    op.kind = "branch"
    if not function.defined:
        system.call(decoder, op, name, arguments, results)
        return
    op.ends = "jump"
    places: list[int] = []
    decoder.later(places, [f"{name}:"])
    after = decoder.following(op)
    copies: list[tuple[int, int | None, int, int]] = []  # (where from, or the slot, where to, bytes)
    for argument, parameter in zip(arguments, function.params, strict=True):
        kind = f"b{8 * parameter.size}"
        place = decoder.addresses[parameter.name][1]
        if isinstance(argument, Symbol):
            copies.append((decoder.addresses[argument.name][1], None, place, parameter.size))
        else:
            copies.append((0, decoder.read(argument, kind), place, parameter.size))
    op.results = [
        (result, decoder.addresses[parameter.name][1], parameter.size)
        for result, parameter in zip(results, function.returns, strict=True)
    ]

    def run(state: PtxState) -> int:
        mask = state.mask
        rows = slice(None) if mask is None else state.thread[mask]
        for source, slot, place, size in copies:
            if slot is None:
                state.local[rows, place : place + size] = state.local[rows, source : source + size]
            else:
                value = np.ascontiguousarray(np.broadcast_to(state.r[slot], (state.waves, 32)))
                state.write_local(np.full((state.waves, 32), place), [value], size, mask)
        back = state.returns.setdefault(name, np.zeros((state.waves, 32), np.int64))
        if mask is None:
            back[...] = after[0]
        else:
            back[mask] = after[0]
        return places[0]

    op.run = run


def result_op(decoder: Decoder, results: list) -> PtxOp:
    """What follows a call: the callee's results, moved to the caller's variables or registers."""
    moves: list[tuple[int, int | None, int, int]] = []  # (where from, the slot or where to, bytes)
    for result, place, size in results:
        if isinstance(result, Reg):
            moves.append((place, decoder.result(result), 0, size))
        else:
            moves.append((place, None, decoder.addresses[result.name][1], size))

    def run(state: PtxState) -> None:
        mask = state.mask
        rows = slice(None) if mask is None else state.thread[mask]
        for place, raw, target, size in moves:
            if raw is None:
                state.local[rows, target : target + size] = state.local[rows, place : place + size]
            else:
                state.put(raw, state.read_local(np.full((state.waves, 32), place), size, 1)[0], mask)

    return decoder.hand_over(PtxOp(run, "layout", "layout"))
