"""The run of an arithmetic op: a table's function on whole rows, under the mask of the lanes that take part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.virtual.ptx.state import PtxState


def inverting(fn: Callable[..., Any], places: list[int]) -> Callable[..., Any]:
    def run(*arrays: np.ndarray) -> None:
        fn(*(np.logical_not(a) if i in places else a for i, a in enumerate(arrays)))

    return run


def elementwise(
    fn: Callable[..., Any], ins: list[int], outs: list[tuple[int, int]], pred: int | None, negated: bool
) -> Callable[[PtxState], None]:
    """The run of an op that calls fn(*inputs, *outputs) on whole rows and keeps what the mask allows."""

    def masked(state: PtxState, mask: np.ndarray) -> None:
        r = state.r
        fresh = [np.empty(r[slot].shape, r[slot].dtype) for slot, _ in outs]
        fn(*[r[slot] for slot in ins], *fresh)
        for (_, raw), array in zip(outs, fresh, strict=True):
            row = r[raw]
            state.merge(row, array.view(row.dtype), mask)

    def guarded(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if mask is not None:
            if some:
                masked(state, mask)
            return
        r = state.r
        fn(*[r[slot] for slot in ins], *[r[slot] for slot, _ in outs])

    if pred is not None or len(outs) != 1 or not 1 <= len(ins) <= 3:
        return guarded
    out = outs[0][0]
    if len(ins) == 1:
        (a,) = ins

        def one(state: PtxState) -> None:
            if state.keep is None:
                r = state.r
                fn(r[a], r[out])
            else:
                masked(state, state.keep)

        return one
    if len(ins) == 2:
        a, b = ins

        def two(state: PtxState) -> None:
            if state.keep is None:
                r = state.r
                fn(r[a], r[b], r[out])
            else:
                masked(state, state.keep)

        return two
    a, b, c = ins

    def three(state: PtxState) -> None:
        if state.keep is None:
            r = state.r
            fn(r[a], r[b], r[c], r[out])
        else:
            masked(state, state.keep)

    return three
