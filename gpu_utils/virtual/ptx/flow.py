"""Control flow: the order in which a function's blocks are laid out, and the instructions that leave a block.

The machine runs the group of lanes with the lowest op index first, so that lanes which parted meet again. That works
when a block stands after everything that may run before it, and a loop stands as one piece before its exits. So
blocks are laid out in a weak topological order ("Efficient chaotic iteration strategies with
widenings", 1993), whatever order the text has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.errors import DeviceAssert
from gpu_utils.virtual.machine import Arrive, Await, Signal, source_of
from gpu_utils.virtual.ptx import system
from gpu_utils.virtual.ptx.decode import Decoder, PtxOp, family
from gpu_utils.virtual.ptx.state import PtxState
from gpu_utils.virtual.ptx.syntax import Function, Imm, Instruction, Not, Reg, Symbol, Vector

LEAVES = ("ret", "exit", "trap")
CLUSTER = -1
"""The number of the split barrier of a cluster; those of a block are 0 to 15."""
# of (came, votes), bool (blocks, threads of a block) each: (blocks,)
REDUCTIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "popcu32": lambda came, votes: (came & votes).sum(axis=1, dtype=np.uint32),
    "andpred": lambda came, votes: (~came | votes).all(axis=1),
    "orpred": lambda came, votes: (came & votes).any(axis=1),
}


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
    """{bar,barrier}{.cta}.{sync,arrive,red}{.aligned} a{, b}; barrier.cluster.{arrive,wait}; bar.warp.sync."""
    parts = [part for part in instruction.parts if part not in ("cta", "aligned")]
    operands = list(instruction.operands)
    if parts[1] == "warp":
        op.kind = "barrier"
        op.run = lambda state: None
        op.members = decoder.read(operands[0], "u32")
        return
    op.kind, op.ends = "barrier", "barrier"
    if parts[1] == "cluster":  # a cluster of one block
        at = Signal(CLUSTER, "relaxed" in parts) if parts[2] == "arrive" else Await(CLUSTER)
        op.run = lambda state: at
    elif parts[1] in ("sync", "arrive"):
        request = _request(decoder, operands)
        arrives = parts[1] == "arrive"
        if arrives and len(operands) < 2:
            raise ValueError("an arrival needs the number of threads")
        op.run = (lambda state: Arrive((request(state) or (0,))[0])) if arrives else request
    elif parts[1] == "red" and "".join(parts[2:]) in REDUCTIONS:
        _reduce(decoder, op, operands, "".join(parts[2:]))
    else:
        raise ValueError("not a known form of bar")


def _request(decoder: Decoder, operands: list[Any]) -> Callable[[PtxState], Any]:
    """What `number{, threads}` asks of the machine."""
    if all(isinstance(o, Imm) for o in operands):
        number = int(operands[0].value) if operands else 0
        count = int(operands[1].value) if len(operands) > 1 else None
        request = None if number == 0 and count is None else (number, count)
        return lambda state: request
    slots = [decoder.read(o, "u32") for o in operands]

    def run(state: PtxState) -> tuple[int, int | None]:
        wave, lane = first_lane(state, state.mask)
        values = [int(np.broadcast_to(state.r[slot], (state.waves, 32))[wave, lane]) for slot in slots]
        return values[0], values[1] if len(values) > 1 else None

    return run


def _reduce(decoder: Decoder, op: PtxOp, operands: list[Any], form: str) -> None:
    """bar.red d, a{, b}, {!}c: a barrier, and then of all threads that met there the count, the and or the or of c.

    `op` takes the result; the barrier is `op.first`, where each thread leaves its c.
    """
    out = decoder.result(operands[0])
    *place, last = operands[1:]
    inverted = isinstance(last, Not)
    vote = decoder.read(last.reg if inverted else last, "pred")
    request = _request(decoder, place)
    fn = REDUCTIONS[form]

    def arrive(state: PtxState) -> Any:
        asked = request(state)
        here = np.ones((state.waves, 32), bool) if state.mask is None else state.mask
        met = state.votes.setdefault(
            (asked or (0,))[0], np.zeros((3, state.waves, 32), bool)
        )  # came, has its result, c
        blocks = met.reshape(3, state.blocks, -1)
        over = ~(blocks[0] & ~blocks[1]).any(axis=1)
        blocks[:2, over] = False
        met[0] |= here
        row = np.broadcast_to(state.r[vote], here.shape)
        met[2] = np.where(here, ~row if inverted else row, met[2])
        return asked

    def run(state: PtxState) -> None:
        met = state.votes[(request(state) or (0,))[0]]
        came, _, votes = met.reshape(3, state.blocks, -1)
        met[1] |= True if state.mask is None else state.mask
        state.put(out, np.repeat(fn(came, votes), state.waves_per_block)[:, None], state.mask)

    op.first = PtxOp(arrive, op.mnemonic, "barrier", op.text, op.line, ends="barrier")
    op.kind, op.ends, op.run = "layout", "", run


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
