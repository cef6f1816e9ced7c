"""Runs all batches of a launch: one after the other, in turns where they wait for each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from gpu_utils.virtual.machine.op import Op
from gpu_utils.virtual.machine.scheduler import Scheduler
from gpu_utils.virtual.machine.state import State


def run_batches(
    states: Iterator[State],
    tracer: Callable[[State, Op], None] | None = None,
    most: int = 1,
    limit: int | None = None,
) -> None:
    """Execute batches one after the other, each from the program's entry until every unit has ended.

    A batch that waits lets the next one start, as long as `most` are alive, and then those that wait have their turns:
    so a block may wait for one of a later batch. limit: rounds of a loop after which StepLimit is raised.
    """
    waiting: deque[tuple[Scheduler, Iterator[None]]] = deque()
    parts: deque[Scheduler] = deque()

    def fresh() -> Scheduler | None:
        if parts:
            return parts.popleft()
        state = next(states, None)
        return None if state is None else Scheduler(state, tracer, state.program.entry, limit)

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
                    state, lock, apart = turn[0].state, turn[0].lock, turn[0].apart
                    if apart:
                        state.parts = len(apart)
                        parts.extendleft(reversed(apart))
                    elif lock is None:
                        _close(state)
                        state.ended()
                    else:
                        state.parts = state.blocks
                        blocks = (slice(i, i + 1) for i in range(state.blocks))
                        parts += [Scheduler(state.part(block), None, lock, limit) for block in blocks]
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
            _close(state.whole)
