"""Asynchronous copies and products of PTX in shared memory: which op closes a group, and which waits for one.

Each queue's epochs are its groups: a commit ends one, and a wait for all but the newest N completes the others. A wave
stands for its lanes: where those commit at different places, its groups are more than a lane's, and a wait here
completes what it must and perhaps a little more. The groups of wgmma are a warpgroup's: the queue of its first warp has
them. Copies that an mbarrier counts are in `mbarriers`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from gpu_utils.virtual.machine import Op, State
from gpu_utils.virtual.sanitize.guards import running
from gpu_utils.virtual.sanitize.instrument import Call, NoHooks
from gpu_utils.virtual.sanitize.mbarriers import Mbarriers
from gpu_utils.virtual.sanitize.order import Order

WARPGROUP = 4


@dataclass(frozen=True)
class Groups:
    """The ops that close and await the groups of a queue. all: the wait that needs no commit before it."""

    queue: str
    commit: str
    wait: str
    all: str | None = None


GROUPS = (
    Groups("cp.async", "cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all"),
    Groups("bulk store", "cp.async.bulk.commit_group", "cp.async.bulk.wait_group"),
    Groups("wgmma", "wgmma.commit_group", "wgmma.wait_group"),
)
TENSOR_WAITS = {"tcgen05.wait::ld": "tensor load", "tcgen05.wait::st": "tensor store"}
ON_MBARRIERS = ("mbarrier.", "cp.async.mbarrier.", "cp.async.bulk.", "tcgen05.commit")
FENCE = "fence.proxy.async"


class PtxAsync(NoHooks):
    """Keeps the clocks of the queues of PTX: what is complete and what is visible."""

    def before(self, op: Op) -> Call | None:
        return _with_ledger if op.mnemonic.startswith(ON_MBARRIERS) else None

    def after(self, op: Op) -> Call | None:
        return _after(op)


def _after(op: Op) -> Call | None:
    name = op.mnemonic
    if name.startswith(tuple(TENSOR_WAITS)):
        queue = next(queue for wait, queue in TENSOR_WAITS.items() if name.startswith(wait))
        return lambda state: _await_all(state, queue, running(state, op))
    if name.startswith(FENCE) and not name.endswith(".global"):
        return lambda state: fence(state.watch.order, running(state, op))
    for groups in GROUPS:
        if name.startswith(groups.commit):
            return lambda state: state.watch.order.advance(groups.queue, running(state, op))
        if name.startswith(groups.wait):
            pending = number_of(op)
            return lambda state: await_groups(state, groups.queue, running(state, op), pending)
        if groups.all and name.startswith(groups.all):
            return lambda state: _await_all(state, groups.queue, running(state, op))
    return None


def number_of(op: Op) -> int:
    """The N of a wait_group."""
    found = re.search(r"(\d+)\s*;?\s*$", op.text)
    assert found is not None, op.text
    return int(found[1])


def fence(order: Order, waves: np.ndarray) -> None:
    """What these waves know of what waves have done is visible to the async proxy, and what they did themselves."""
    start = order.queues["fenced"] * order.per_block
    known = order.known[waves]
    known[np.arange(len(waves)), order.wave[waves]] = order.epoch[waves, 0]
    part = slice(start, start + order.per_block)
    order.known[waves, part] = np.maximum(order.known[waves, part], known[:, : order.per_block])
    order.epoch[waves, 0] += 1


def await_groups(state: State, queue: str, waves: np.ndarray, pending: int) -> None:
    """These waves wait until no more than `pending` groups of a queue of theirs are in flight."""
    order = state.watch.order
    epochs = order.now(queue)[waves] - 1 - pending
    if queue != "wgmma":
        order.complete(queue, waves, epochs)
        return
    columns = order.queues[queue] * order.per_block + order.wave[waves] // WARPGROUP * WARPGROUP
    order.known[waves, columns] = np.maximum(order.known[waves, columns], epochs)


def _await_all(state: State, queue: str, waves: np.ndarray) -> None:
    order = state.watch.order
    order.advance(queue, waves)
    await_groups(state, queue, waves, 0)


def _with_ledger(state: State) -> None:
    if "mbarriers" not in state.watch.kept:
        state.watch.kept["mbarriers"] = Mbarriers(state.watch.order)
