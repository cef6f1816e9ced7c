"""The array machine: it runs a decoded kernel for all lanes of many waves at once.

A kernel is a list of `Op`; each op is a Python function that acts on every wave of the batch by
NumPy. The machine knows nothing of an instruction set: it schedules. Words: a *wave* is an AMD
wavefront or an NVIDIA warp; a *unit* is what has a program counter of its own: a wave for AMDGCN
(lanes are switched by EXEC), a lane for PTX (lanes of one warp may part). `State.act` says which
units run now; None stands for all of them, the fast path.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from gpu_utils.errors import BarrierDeadlock

# A group that jumped back this often while others wait lets them run: a spin lock must not starve its holder.
# A round of a loop that communicates (an atomic, a wait) counts for SPIN rounds of another.
PATIENCE = 256
SPIN = 128
_COMMUNICATES = re.compile(r"atom|try_wait|test_wait|volatile|acquire|relaxed")
# A loop that waits for another block is short. After so many of its rounds the blocks of other batches have a turn;
# a batch that has waited before passes its turn on after few.
WAIT_OPS = 64
ROUNDS = 32
ROUNDS_AGAIN = 2
_POLLS = re.compile(r"atom|\bld\..*(?:volatile|acquire|relaxed)|_load_.*(?:\bsc1\b|\bglc\b|SCOPE_DEV|SCOPE_SYS)")
_TAKES = re.compile(r"(?:cmpswap|\bcas\b|_swap|\bexch\b)")
_STORES = re.compile(r"^st\.|_store_|^ds_write")
_REGISTER = re.compile(r"%\w+|\b[va]\d+|\b[va]\[\d+:\d+\]")

# What an op does to the flow of control; "" for a plain op.
ENDS = ("", "branch", "jump", "barrier", "end", "mask", "sync")


@dataclass(slots=True, eq=False)
class Op:
    """One decoded instruction.

    run(state) executes it for the units in `state.act` and the lanes in `state.mask`. What it
    returns matters only when `ends` is set:
      ""        nothing.
      "branch"  which units go to `target`: True, False or a bool array of the shape of the units
                (only the entries of running units are looked at); the others go on with the next op.
      "jump"    the op index to go to: an int, or an int array of the shape of the units.
      "barrier" None (the whole block, barrier 0), or (number, threads or None).
      "end"     the running units end: nothing, or a bool array of the units that end (the rest goes on).
      "sync"    None, or a bool array of the units that must stand here before any unit of their wave goes on.
      "mask"    nothing; a plain op that changed EXEC: the machine recounts the active lanes after it.
    kind is the class for the counters, see counters.KINDS. `line` is a source line (file, number).
    """

    run: Callable[[Any], Any]
    mnemonic: str
    kind: str
    text: str = ""
    line: tuple[str, int] | None = None
    ends: str = ""
    target: int | None = None
    index: int = -1
    flops: int = 0  # of one wave, for matrix instructions


@dataclass(slots=True, eq=False)
class Segment:
    """Ops that run without a scheduling decision between them."""

    index: int
    start: int
    runs: tuple[Callable[[Any], Any], ...]
    ops: tuple[Op, ...]
    stop: Op | None  # the last op of the segment when it decides the flow; it is not among `ops`
    next: int  # index of the op after the segment


@dataclass(slots=True, eq=False)
class Together:
    """Segments in a row up to a real branch: what runs while all units of a batch are together."""

    parts: tuple[int, ...]  # indices of the segments
    runs: tuple[Callable[[Any], Any], ...]
    stop: Op | None
    next: int


@dataclass(eq=False)
class Program:
    """A decoded kernel: immutable, shared by all launches of the same text.

    leaders: indices that a jump can reach (branch targets are added by `finish`).
    entry: index of the first op. unit: "wave" or "lane". lanes: 32 or 64.
    name: as in the source. info: what the decoder wants to keep (register counts, kernel arguments, ...).
    spinning: jumps back of loops that communicate; waiting: of short ones that may wait for another block.
    locks: ops of loops that take a lock: always the same value is swapped in, until the old one pleases.
    """

    name: str
    target: str
    lanes: int
    unit: str
    ops: list[Op]
    entry: int = 0
    leaders: set[int] = field(default_factory=set)
    info: dict[str, Any] = field(default_factory=dict)
    segments: dict[int, Segment] = field(default_factory=dict)
    joined: dict[int, Together] = field(default_factory=dict)
    spinning: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    locks: set[int] = field(default_factory=set)

    def finish(self) -> Program:
        """Number the ops and cut them into segments; call once, after decoding."""
        leaders = {self.entry, *self.leaders}
        for index, op in enumerate(self.ops):
            op.index = index
            if op.target is not None:
                leaders.add(op.target)
            if op.ends:
                leaders.add(index + 1)
        bounds = [*sorted(index for index in leaders if index < len(self.ops)), len(self.ops)]
        for number, (start, after) in enumerate(pairwise(bounds)):
            ops = self.ops[start:after]
            stop = ops.pop() if ops and ops[-1].ends else None
            self.segments[start] = Segment(number, start, tuple(op.run for op in ops), tuple(ops), stop, after)
        for op in self.ops:
            if op.target is not None and op.target <= op.index:
                loop = self.ops[op.target : op.index]
                if any(_COMMUNICATES.search(each.mnemonic) for each in loop):
                    self.spinning.add(op.index)
                if len(loop) <= WAIT_OPS and any(_POLLS.search(each.text) for each in loop):
                    self.waiting.add(op.index)
                    self.spinning.add(op.index)
                    if any(_TAKES.search(each.mnemonic) and not _feeds_itself(each, loop) for each in loop):
                        self.locks |= {each.index for each in loop}
        return self

    def together(self, start: int) -> Together:
        """From `start` on: neither a label nor a wait of lanes for each other matters while no unit is elsewhere.

        It ends before a loop that takes a lock.
        """
        parts: list[int] = []
        runs: list[Callable[[Any], Any]] = []
        segment = self.segments[start]
        ahead = set() if start in self.locks else self.locks
        while True:
            parts.append(segment.index)
            runs += segment.runs
            passes = segment.stop is None or segment.stop.ends == "sync"
            if not passes or segment.next not in self.segments or segment.next in ahead:
                break
            segment = self.segments[segment.next]
        found = self.joined[start] = Together(tuple(parts), tuple(runs), None if passes else segment.stop, segment.next)
        return found


def _registers(text: str) -> list[set[str]]:
    """The registers of each operand in order, the destination first; a guard `@%p` is no operand."""
    found = []
    for name in _REGISTER.findall(text.split(" ", 1)[1] if text.startswith("@") else text):
        first, _, last = name[2:-1].partition(":")
        found.append({f"{name[0]}{i}" for i in range(int(first), int(last) + 1)} if last else {name})
    return found


def _feeds_itself(atomic: Op, loop: list[Op]) -> bool:
    """Whether what an atomic returned decides what it swaps in next time: then it works on a value and is no lock."""
    made_of: dict[str, set[str]] = {}
    for op in loop:
        if op is not atomic and not _STORES.search(op.mnemonic) and (operands := _registers(op.text)):
            for register in operands[0]:
                made_of.setdefault(register, set()).update(*operands[1:])
    operands = _registers(atomic.text)
    reached, new = set[str](), set[str]().union(*operands[1:])
    while new:
        reached |= new
        new = set[str]().union(*(made_of.get(register, ()) for register in new)) - reached
    return bool(operands and operands[0] & reached)


class State:
    """The architectural state of one batch of waves; instruction sets subclass it with their registers.

    waves: number of waves in the batch; lanes: lanes of each. Rows of per-lane data have the shape (waves, lanes).
    block_of_wave (waves,): which block of the batch a wave belongs to; wave_in_block (waves,).
    block_ids (blocks, 3): grid coordinates; program_number (waves,): linear number of the block in the grid, x fastest.
    act: None, or a bool array of the units that run now, of shape (waves,) or (waves, lanes).
    mask: None (every lane runs) or a bool array (waves, lanes): the lanes that an op may write.
    active_waves, active_lanes: counts for the running group.
    first_block: how many blocks of the launch come before this batch; turn: accesses that were recorded for the L2.
    whole: the batch that this block was a part of, or None; parts: blocks of this batch that go on alone.
    memory, shared, counters: see memory.py and counters.py. launch: the Launch this batch is part of.
    """

    def __init__(self, program: Program, launch: Any, block_ids: np.ndarray, waves_per_block: int) -> None:
        blocks = len(block_ids)
        self.program, self.launch, self.memory, self.counters = program, launch, launch.memory, launch.counters
        self.lanes, self.waves, self.blocks = program.lanes, blocks * waves_per_block, blocks
        self.waves_per_block, self.block_ids = waves_per_block, block_ids
        self.block_of_wave = np.repeat(np.arange(blocks), waves_per_block)
        self.wave_in_block = np.tile(np.arange(waves_per_block), blocks)
        grid = launch.grid
        linear = block_ids[:, 0] + grid[0] * (block_ids[:, 1] + grid[1] * block_ids[:, 2])
        self.program_number = linear[self.block_of_wave]
        self.unit_shape = (self.waves,) if program.unit == "wave" else (self.waves, self.lanes)
        self.act: np.ndarray | None = None
        self.mask: np.ndarray | None = None
        self.active_waves, self.active_lanes = self.waves, self.waves * self.lanes
        self.shared: Any = None
        self.absent: np.ndarray | None = None
        self.first_block = self.turn = 0
        self.whole: State | None = None
        self.parts = 0

    def enter(self, act: np.ndarray | None) -> None:
        """Make `act` the running units: set act, mask and the counts. AMDGCN overrides it to add EXEC."""
        self.act = act
        if act is None:
            self.mask, self.active_waves, self.active_lanes = None, self.waves, self.waves * self.lanes
        elif act.ndim == 2:
            self.mask = act
            self.active_waves, self.active_lanes = int(np.count_nonzero(act.any(axis=1))), int(np.count_nonzero(act))
        else:
            self.mask = np.repeat(act[:, None], self.lanes, axis=1)
            self.active_waves = int(np.count_nonzero(act))
            self.active_lanes = self.active_waves * self.lanes

    def disable(self, lanes: np.ndarray) -> None:
        """Lanes (waves, lanes) past the end of a block: they never run. AMDGCN overrides it to clear EXEC."""
        self.absent = lanes

    def snapshot(self, wave: int) -> dict[str, np.ndarray]:
        """A copy of one wave's registers by name, for a trace."""
        raise NotImplementedError

    def part(self, block: int) -> State:
        """One block of this batch, to go on alone: its registers and its shared memory are views of those here.

        Only while all units are together. Subclasses add their rows. This batch is closed after its last part.
        """
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__)  # copy.copy takes ten times as long
        part.waves, part.blocks = self.waves_per_block, 1
        waves = self.waves_of(block)
        part.block_ids = self.block_ids[block : block + 1]
        part.block_of_wave, part.wave_in_block = np.zeros(part.waves, np.int64), self.wave_in_block[waves]
        part.program_number = self.program_number[waves]
        part.unit_shape = (part.waves, *self.unit_shape[1:])
        part.first_block = self.first_block + block
        part.shared = self.shared.part(block)
        part.whole = self
        return part

    def waves_of(self, block: int) -> slice:
        return slice(block * self.waves_per_block, (block + 1) * self.waves_per_block)

    def close(self) -> None:
        """Called after the batch; a subclass takes back the regions that it registered."""

    def where(self, wave: int, lane: int) -> str:
        """Words for an error message: which program and lane."""
        x, y, z = (int(v) for v in self.block_ids[self.block_of_wave[wave]])
        thread = int(self.wave_in_block[wave]) * self.lanes + lane
        return f"program ({x}, {y}, {z}), wave {int(self.wave_in_block[wave])}, lane {lane} (thread {thread})"


class Scheduler:
    """Runs one batch to its end: groups of units by program counter, the lowest first."""

    def __init__(self, state: State, tracer: Callable[[State, Op], None] | None, start: int) -> None:
        self.state, self.program, self.tracer, self.start = state, state.program, tracer, start
        self.lock: int | None = None  # where the batch stopped, for its blocks to go on alone
        self.groups: dict[int, np.ndarray] = {}  # op index -> units that are there and may run
        self.live: np.ndarray | None = None  # None: all
        self.parked: dict[int, np.ndarray] = {}  # op index -> lanes that wait there for others of their warp
        self.waiting: dict[int, np.ndarray] = {}  # barrier number -> units that wait
        self.need: dict[int, int | None] = {}
        self.resume = np.zeros(state.unit_shape, np.int64)
        self.spins = 0
        self.rounds = 0  # of loops that may wait for another block, since this batch had its turn
        self.favoured = False  # the running group was let in after others had spun: it goes on until it jumps back
        self.last_run: dict[int, int] = {}
        self.tick = 0

    def turns(self) -> Iterator[None]:
        """Run to the end; a batch that waits, perhaps for a block of another batch, yields in between.

        Before a lock a batch of several blocks stops: in step, all would spin as long as one holds it.
        """
        state, segments = self.state, self.program.segments
        waves, lanes = state.counters.segment_waves, state.counters.segment_lanes
        pc: int | None = self.start
        locks = self.program.locks if state.blocks > 1 and self.tracer is None else ()
        patience = ROUNDS
        state.enter(None)
        if state.absent is not None:
            self.live = ~state.absent
            self.add(self.start, self.live)
            pc = self.pick()
        sums: dict[int, list[int]] = {}
        joined = self.program.joined
        try:
            while pc is not None:
                if pc in locks and state.act is None and self.live is None:
                    self.lock = pc
                    return
                segment: Segment | Together
                if state.act is None and self.tracer is None:
                    segment = joined.get(pc) or self.program.together(pc)
                    total = sums.get(pc)
                    if total is None:
                        total = sums[pc] = [0, 0]
                    total[0] += state.active_waves
                    total[1] += state.active_lanes
                else:
                    segment = single = segments[pc]
                    waves[single.index] += state.active_waves
                    lanes[single.index] += state.active_lanes
                if self.tracer is None:
                    for run in segment.runs:
                        run(state)
                else:
                    for op in single.ops:
                        op.run(state)
                        self.tracer(state, op)
                pc = self.leave(segment)
                if self.rounds >= patience:
                    yield
                    self.rounds, patience = 0, ROUNDS_AGAIN
        finally:
            for start, (total_waves, total_lanes) in sums.items():
                for part in joined[start].parts:
                    waves[part] += total_waves
                    lanes[part] += total_lanes

    def leave(self, segment: Segment | Together) -> int | None:
        """Execute the op that ends a segment; returns where to go on."""
        state, stop = self.state, segment.stop
        if stop is None:
            return self.go(segment.next - 1, segment.next)
        result = stop.run(state)
        if self.tracer is not None:
            self.tracer(state, stop)
        ends, at = stop.ends, stop.index
        if ends == "mask":
            return segment.next if not self.groups else self.go(at, segment.next)
        if ends == "branch":
            assert stop.target is not None
            return self.branch(at, result, stop.target, segment.next)
        if ends == "jump":
            return self.jump(at, result)
        if ends == "barrier":
            return self.barrier(result, segment.next)
        if ends == "sync":
            return self.sync(at, result, segment.next)
        return self.end(at, result, segment.next)

    # The running group is state.act; self.groups holds the others. Each method below returns the op
    # index at which the group chosen to run next stands (state.act is then that group), or None at the end.

    def running(self) -> np.ndarray:
        act = self.state.act
        return np.ones(self.state.unit_shape, bool) if act is None else act

    def go(self, source: int, pc: int) -> int | None:
        """The whole running group moves to pc."""
        groups = self.groups
        back = pc <= source
        if back:
            self.count_spin(source)
        if self.parked and pc in self.parked:
            self.add(pc, self.running())
            return self.pick()
        if not groups:
            return pc
        if pc in groups or self.spins > PATIENCE or (min(groups) < pc and (back or not self.favoured)):
            self.add(pc, self.running())
            return self.pick()
        return pc

    def count_spin(self, source: int) -> None:
        self.spins += SPIN if source in self.program.spinning else 1
        self.rounds += source in self.program.waiting

    def add(self, pc: int, units: np.ndarray) -> None:
        there = self.groups.get(pc)
        if pc in self.parked:
            units = units | self.parked.pop(pc)
        self.groups[pc] = units if there is None else there | units

    def pick(self) -> int | None:
        """Choose the group to run: the lowest, or the one that has waited longest after much spinning."""
        groups = self.groups
        if not groups:
            if self.parked or any(units.any() for units in self.waiting.values()):
                self.deadlock()
            return None
        self.tick += 1
        self.favoured = self.spins > PATIENCE
        if self.favoured:
            pc = min(groups, key=lambda at: (self.last_run.get(at, -1), at))
            self.spins = 0
        else:
            pc = min(groups)
        self.last_run[pc] = self.tick
        act = groups.pop(pc)
        self.state.enter(None if not groups and np.count_nonzero(act) == act.size else act)
        return pc

    def branch(self, source: int, taken: Any, target: int, after: int) -> int | None:
        act = self.state.act
        if not isinstance(taken, bool):
            here = taken if act is None else taken[act]
            going = np.count_nonzero(here)
            if going == here.size:
                taken = True
            elif not going:
                taken = False
            else:
                units = self.running()
                if (
                    self.favoured
                    and min(target, after) > source
                    and not (target in self.groups or after in self.groups)
                ):
                    self.add(max(target, after), units & (taken if target > after else ~taken))
                    self.state.enter(units & (taken if target < after else ~taken))
                    return min(target, after)
                self.add(target, units & taken)
                self.add(after, units & ~taken)
                if target <= source:
                    self.count_spin(source)
                return self.pick()
        return self.go(source, target if taken else after)

    def jump(self, source: int, to: Any) -> int | None:
        if isinstance(to, int):
            return self.go(source, to)
        units = self.running()
        places = np.unique(to[units])
        if len(places) == 1:
            return self.go(source, int(places[0]))
        for place in places:
            self.add(int(place), units & (to == place))
        return self.pick()

    def end(self, source: int, ending: Any, after: int) -> int | None:
        units = self.running()
        ended = units if ending is None else units & ending
        if not np.count_nonzero(ended):
            return self.go(source, after)
        self.live = ~ended if self.live is None else self.live & ~ended
        rest = units & ~ended
        if np.count_nonzero(rest):
            self.add(after, rest)
        for number in list(self.waiting):
            self.release(number)
        for pc in list(self.parked):
            self.add(pc, self.parked.pop(pc))
        return self.pick()

    def sync(self, source: int, members: np.ndarray | None, after: int) -> int | None:
        """Lanes whose warp lacks a member here wait at `source`; the others go on."""
        act = self.state.act
        if act is None or members is None:
            return self.go(source, after)
        absent = members & ~act if self.live is None else members & ~act & self.live
        stuck = act & absent.any(axis=1)[:, None]
        if not np.count_nonzero(stuck):
            return self.go(source, after)
        self.parked[source] = stuck
        rest = act & ~stuck
        if np.count_nonzero(rest):
            self.add(after, rest)
        return self.pick()

    def barrier(self, request: Any, after: int) -> int | None:
        number, need = (0, None) if request is None else request
        if self.state.act is None and need is None and not self.waiting:
            return after
        units = self.running()
        self.resume[units] = after
        before = self.waiting.get(number)
        self.waiting[number] = units.copy() if before is None else before | units
        self.need[number] = need
        self.release(number)
        return self.pick()

    def release(self, number: int) -> None:
        """Let the blocks go on whose units are all at barrier `number`."""
        waiting, need = self.waiting[number], self.need[number]
        live = np.ones(self.state.unit_shape, bool) if self.live is None else self.live
        if need is None and np.count_nonzero(waiting) == np.count_nonzero(live):
            free = waiting
        elif need is None and self.state.blocks == 1:
            return
        else:
            shape = (self.state.blocks, -1)
            arrived = waiting.reshape(shape).sum(axis=1)
            if need is None:
                full = arrived == live.reshape(shape).sum(axis=1)
            else:
                full = arrived * (self.state.lanes if waiting.ndim == 1 else 1) >= need
            full &= arrived > 0
            if not np.count_nonzero(full):
                return
            per_wave = full[self.state.block_of_wave]
            free = waiting & (per_wave if waiting.ndim == 1 else per_wave[:, None])
        places = self.resume[free]
        for pc in set(places.tolist()):
            self.add(pc, free & (self.resume == pc))
        left = waiting & ~free
        if np.count_nonzero(left):
            self.waiting[number] = left
        else:
            del self.waiting[number]

    def deadlock(self) -> None:
        state = self.state
        if self.parked:
            pc, units = next(iter(self.parked.items()))
            wave, lane = (int(v) for v in np.argwhere(units)[0])
            op = self.program.ops[pc]
            raise BarrierDeadlock(
                f"in kernel {self.program.name}{source_of(op)}, {state.where(wave, lane)} waits at `{op.text}` "
                f"for lanes of its "
                "warp that its member mask names and that never come; every lane in the mask must reach the instruction"
            )
        number, units = next((number, units) for number, units in self.waiting.items() if units.any())
        wave = int(np.argwhere(units)[0][0])
        op = self.program.ops[int(self.resume[units][0]) - 1]
        raise BarrierDeadlock(
            f"in kernel {self.program.name}{source_of(op)}, {state.where(wave, 0)} waits at barrier {number} "
            f"(`{op.text}`) that other waves of its block never reach; every wave of a block must reach the "
            f"same barriers"
        )


def source_of(op: Op) -> str:
    """Where an op comes from, for messages: ` (softmax.py:12)`, or nothing when the text has no line table."""
    return f" ({op.line[0].rsplit('/', 1)[-1]}:{op.line[1]})" if op.line else ""


def run_batches(states: Iterator[State], tracer: Callable[[State, Op], None] | None = None, most: int = 1) -> None:
    """Execute batches one after the other, each from the program's entry until every unit has ended.

    A batch that waits lets the next one start, as long as `most` are alive, and then those that wait have their turns:
    so a block may wait for one of a later batch.
    """
    waiting: deque[tuple[Scheduler, Iterator[None]]] = deque()
    parts: deque[Scheduler] = deque()

    def fresh() -> Scheduler | None:
        if parts:
            return parts.popleft()
        state = next(states, None)
        return None if state is None else Scheduler(state, tracer, state.program.entry)

    ended = True
    try:
        with np.errstate(all="ignore"):
            while True:
                scheduler = None if waiting and (ended or len(waiting) >= most) else fresh()
                if scheduler is not None:
                    turn = scheduler, scheduler.turns()
                elif waiting:
                    turn = waiting.popleft()
                else:
                    return
                waiting.append(turn)
                ended = next(turn[1], turn) is turn
                if ended:
                    waiting.pop()
                    state, lock = turn[0].state, turn[0].lock
                    if lock is None:
                        _close(state)
                    else:
                        state.parts = state.blocks
                        parts += [Scheduler(state.part(block), None, lock) for block in range(state.blocks)]
    finally:
        for scheduler, _ in waiting:
            _close(scheduler.state)


def _close(state: State) -> None:
    """Close a batch; one that was taken apart, after its last part."""
    if state.whole is None:
        state.close()
    else:
        state.whole.parts -= 1
        if not state.whole.parts:
            state.whole.close()
