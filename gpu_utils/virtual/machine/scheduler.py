"""Runs a program for one batch of waves: together while they agree, in groups by program counter when they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpu_utils.errors import BarrierDeadlock, StepLimit
from gpu_utils.virtual.machine.barriers import Arrive, Await, Signal, SplitBarrier
from gpu_utils.virtual.machine.loops import inner_loops
from gpu_utils.virtual.machine.op import Op
from gpu_utils.virtual.machine.program import Segment
from gpu_utils.virtual.machine.source import line_of_loop, quoted, source_of
from gpu_utils.virtual.machine.state import State
from gpu_utils.virtual.machine.together import JOINED, Together, together

# A group that jumped back this often while others wait lets them run: a spin lock must not starve its holder.
# A round of a loop that communicates (an atomic, a wait) counts for SPIN rounds of another.
PATIENCE = 256
SPIN = 128
# After so many rounds of a loop that waits for another block, the blocks of other batches have a turn;
# a batch that has waited before passes its turn on after few.
ROUNDS = 32
ROUNDS_AGAIN = 2
# Blocks go on in a batch of their own when at most this share of the batch makes so many rounds of a loop without the
# rest: taking a batch apart costs about as much as one round of a short loop.
MOST_GOING = 0.8
RAGGED_ROUNDS = 2


class Scheduler:
    """Runs one batch to its end: groups of units by program counter, the lowest first."""

    def __init__(
        self, state: State, tracer: Callable[[State, Op], None] | None, start: int, limit: int | None = None
    ) -> None:
        """limit: most rounds of a loop, counted since the loop around it went round; None: no limit."""
        self.state, self.program, self.tracer, self.start = state, state.program, tracer, start
        self.lock: int | None = None  # where the batch stopped, for its blocks to go on alone
        self.groups: dict[int, np.ndarray] = {}  # op index -> units that are there and may run
        self.live: np.ndarray | None = None  # None: all
        self.parked: dict[int, np.ndarray] = {}  # op index -> lanes that wait there for others of their warp
        self.waiting: dict[int | Await, np.ndarray] = {}  # barrier -> units that wait
        self.need: dict[int | Await, int | None] = {}
        self.arrivals: dict[int, np.ndarray] = {}  # barrier -> threads of each block that were counted and went on
        self.split: dict[int, SplitBarrier] = {}
        self.resume = np.zeros(state.unit_shape, np.int64)
        self.spins = 0
        self.rounds = 0  # of loops that may wait for another block, since this batch had its turn
        self.favoured = False  # the running group was let in after others had spun: it goes on until it jumps back
        self.limit = limit
        self.went_round: dict[int, int] = {}  # jump back of a loop -> its rounds; kept when there is a limit
        self.inner = inner_loops(self.program.ops) if limit is not None else {}
        self.last_run: dict[int, int] = {}
        self.tick = 0
        self.separable = tracer is None and state.separable
        self.ragged = 0  # jumps back that some units made while others were elsewhere
        self.apart: list[Scheduler] = []  # what goes on in place of this batch

    def turns(self) -> Iterator[None]:
        """Run to the end; a batch that waits, perhaps for a block of another batch, yields in between.

        Before a lock a batch of several blocks stops: in step, all would spin as long as one holds it. It also stops
        where blocks have parted for good, see `part_ways`.
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
        elif self.groups:
            pc = self.pick()
        sums: dict[int, list[int]] = {}
        joined = JOINED.setdefault(self.program, {})
        try:
            while pc is not None:
                if pc in locks and state.act is None and self.live is None and not self.between_barriers():
                    self.lock = pc
                    return
                segment: Segment | Together
                if state.act is None and self.tracer is None:
                    segment = joined.get(pc) or together(self.program, joined, pc)
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
                before, pc = pc, self.leave(segment)
                if self.separable and state.act is not None and pc is not None and self.part_ways(before, pc):
                    return
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

    def part_ways(self, before: int, pc: int) -> bool:
        """Take the batch apart when few of its blocks go on with a loop: those, and the ones that wait for them.

        Masks cost time, and so do the lanes that they switch off. Only whole blocks part, from the second round on,
        where a round begins or their waves have met at a barrier.
        """
        self.ragged += pc <= before
        met = pc <= before or self.program.ops[pc - 1].ends == "barrier"
        if not met or self.ragged < RAGGED_ROUNDS or self.parked or self.waiting or self.between_barriers():
            return False
        state = self.state
        units = self.running().reshape(state.blocks, -1)
        going = units.any(axis=1)
        if np.count_nonzero(going) > MOST_GOING * state.blocks or np.count_nonzero(going != units.all(axis=1)):
            return False
        live = ~going if self.live is None else ~going & self.live.reshape(state.blocks, -1).any(axis=1)
        self.apart = [self.off(np.flatnonzero(going), {pc: self.running()})]
        if np.count_nonzero(live):
            self.apart.append(self.off(np.flatnonzero(live), self.groups))
        return True

    def off(self, blocks: np.ndarray, groups: dict[int, np.ndarray]) -> Scheduler:
        """A scheduler of some blocks with their share of the groups."""
        part = Scheduler(self.state.part(blocks), None, self.start, self.limit)
        waves = self.state.waves_of(blocks)
        part.groups = {pc: units[waves] for pc, units in groups.items() if np.count_nonzero(units[waves])}
        if self.live is not None and not self.live[waves].all():
            part.live = self.live[waves]
        return part

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
        if self.limit is not None:
            self.count_round(source, self.limit)

    def count_round(self, source: int, limit: int) -> None:
        """The loop that jumps back at `source` goes round. Raises StepLimit."""
        rounds = self.went_round[source] = self.went_round.get(source, 0) + 1
        for inner in self.inner.get(source, ()):
            self.went_round[inner] = 0
        if rounds <= limit:
            return
        back = self.program.ops[source]
        ops = self.program.ops[source if back.target is None else back.target : source + 1]
        line = line_of_loop(ops, bool(self.inner.get(source)))
        where = f" ({quoted(*line)})" if line else f" that ends at `{back.text}`"
        wave = int(np.argwhere(self.running())[0][0])
        raise StepLimit(
            f"kernel {self.program.name}: the loop{where} went round {limit} times in {self.state.where(wave, 0)} and "
            "has not ended; does what its condition reads ever change? (a longer loop needs a larger step_limit)"
        )

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
        if self.program.exits.issuperset(groups) and not (self.waiting or self.parked or self.tracer):
            self.state.alone()
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
                there, here = units & taken, units & ~taken
                if target <= source:
                    self.count_spin(source)
                # a target that lies before what it skips: to go there first would part the units for longer
                skips = target <= source and self.program.ops[source].skips
                on = skips or (self.favoured and min(target, after) > source)
                if on and target not in self.groups and after not in self.groups:
                    self.favoured = True
                    if skips or after < target:
                        self.add(target, there)
                        self.state.enter(here)
                        return after
                    self.add(after, here)
                    self.state.enter(there)
                    return target
                self.add(target, there)
                self.add(after, here)
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
        for number in self.split:
            self.settle(number)
        for barrier in list(self.waiting):
            self.release(barrier)
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
        if isinstance(request, Arrive | Signal):
            return self.arrive(request, after)
        number, need = (request, None) if isinstance(request, Await) else request or (0, None)
        if request is None and self.state.act is None and not self.waiting:
            if self.state.watch is not None:
                self.state.watch.released(None)
            return after
        if isinstance(number, Await) and self.state.act is None and self.passes_whole(number):
            return after
        units = self.running()
        self.resume[units] = after
        before = self.waiting.get(number)
        self.waiting[number] = units.copy() if before is None else before | units
        self.need[number] = need
        self.release(number)
        return self.pick()

    def arrive(self, request: Arrive | Signal, after: int) -> int | None:
        """The running group is counted at a barrier and goes on."""
        state, number, units = self.state, request.number, self.running()
        if state.watch is not None and not (isinstance(request, Signal) and request.relaxed):
            state.watch.arrived(request, units)
        if isinstance(request, Signal):
            split = self.split.get(number)
            if split is None:
                split = self.split[number] = SplitBarrier(state.unit_shape, state.blocks)
            if state.act is None and self.live is None and not split.open:
                split.whole = True
                if state.watch is not None:
                    state.watch.completed(number, np.ones(state.blocks, bool))
                return after
            split.signal(units)
            self.settle(number)
            if Await(number) in self.waiting:
                self.release(Await(number))
        else:
            threads = units.reshape(state.blocks, -1).sum(axis=1) * (state.lanes if units.ndim == 1 else 1)
            self.arrivals[number] = self.arrivals.get(number, 0) + threads
            if number in self.waiting:
                self.release(number)
        return self.go(after - 1, after)

    def between_barriers(self) -> bool:
        """Whether some unit was counted at a barrier that is not over."""
        return any(each.open for each in self.split.values()) or any(each.any() for each in self.arrivals.values())

    def passes_whole(self, barrier: Await) -> bool:
        """Whether all units pass a split barrier: all have signalled and no other group is about."""
        split = self.split.get(barrier.number)
        if split is None or not split.whole:
            return False
        split.whole = False
        if self.state.watch is not None:
            self.state.watch.awaited(barrier.number, np.ones(self.state.unit_shape, bool))
        return True

    def settle(self, number: int) -> None:
        """See which blocks have all signalled at a split barrier."""
        full = self.split[number].settle(self.live)
        if full is not None and self.state.watch is not None:
            self.state.watch.completed(number, full)

    def release(self, number: int | Await) -> None:
        """Let the blocks go on whose units are all at a barrier; of a split one, the units of blocks that were."""
        free = self.passing(number)
        if free is None:
            return
        if self.state.watch is not None:
            if isinstance(number, Await):
                self.state.watch.awaited(number.number, free)
            else:
                self.state.watch.released(free, number)
        waiting = self.waiting[number]
        places = self.resume[free]
        first = int(places[0])
        if np.count_nonzero(places == first) == len(places):
            self.add(first, free)
        else:
            for pc in np.unique(places).tolist():
                self.add(pc, free & (self.resume == pc))
        left = waiting & ~free
        if np.count_nonzero(left):
            self.waiting[number] = left
        else:
            del self.waiting[number]

    def passing(self, number: int | Await) -> np.ndarray | None:
        """The units that a barrier lets go on now, or None."""
        waiting = self.waiting[number]
        if isinstance(number, Await):
            split = self.split.get(number.number)
            free = waiting if split is None else split.take(waiting)
            return free if split is not None and np.count_nonzero(free) else None
        need = self.need[number]
        live = np.ones(self.state.unit_shape, bool) if self.live is None else self.live
        if need is None and np.count_nonzero(waiting) == np.count_nonzero(live):
            return waiting
        if need is None and self.state.blocks == 1:
            return None
        shape = (self.state.blocks, -1)
        arrived = waiting.reshape(shape).sum(axis=1)
        if need is None:
            full = arrived == live.reshape(shape).sum(axis=1)
        else:
            threads = arrived * (self.state.lanes if waiting.ndim == 1 else 1)
            full = threads + self.arrivals.get(number, 0) >= need
        full &= arrived > 0
        if not np.count_nonzero(full):
            return None
        if number in self.arrivals:
            self.arrivals[number][full] = 0
        per_wave = full[self.state.block_of_wave]
        return waiting & (per_wave if waiting.ndim == 1 else per_wave[:, None])

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
        if isinstance(number, Await):
            raise BarrierDeadlock(
                f"in kernel {self.program.name}{source_of(op)}, {state.where(wave, 0)} waits at a split barrier "
                f"(`{op.text}`) for waves of its block that never signal; every wave must signal before each wait"
            )
        raise BarrierDeadlock(
            f"in kernel {self.program.name}{source_of(op)}, {state.where(wave, 0)} waits at barrier {number} "
            f"(`{op.text}`) that other waves of its block never reach; every wave of a block must reach the "
            f"same barriers"
        )
