"""Answers that run on several ranks: how they are called, and what the grader gets to judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.distributed as dist

from gpu_utils.distributed import Wires, run_ranks
from gpu_utils.errors import BadArgument, RankFailed
from gpu_utils.grading.execute import same
from gpu_utils.grading.exercise import Inputs
from gpu_utils.grading.plain import copy_of, plain

PASSED_ON = {"NameError": NameError}
"""Errors of a rank that the check has words for: a name that no cell gives."""


def on_ranks(seconds: float = 20.0) -> Callable[[Callable[..., Any], Inputs], Any]:
    """What calls an answer on ranks, for `Exercise(call=...)`; `ranks=True` and a larger `seconds` belong beside it.

    Its inputs are {"each": one dict of arguments for each rank, "shared": arguments of all, "groups": ranks of each
    group, "wires": fields of `Wires`}; all but the first may be missing. With groups, which divide the ranks, the
    answer gets its own as `group`. The value to judge is {"ranks": what each returned, "sent": bytes
    [source][destination], "calls": collective -> times, by rank, "events": by rank}. Raises RankFailed, RanksHung, and
    BadArgument where a rank has changed what it was given.
    """

    def call(answer: Callable[..., Any], inputs: Inputs) -> Any:
        each: Sequence[Mapping[str, Any]] = inputs["each"]
        shared = dict(inputs.get("shared", {}))
        groups: Sequence[Sequence[int]] = inputs.get("groups", ())
        wires = Wires(**inputs["wires"]) if inputs.get("wires") else None

        def of_rank(number: int) -> Any:
            more = {"group": own_group(groups)} if groups else {}
            given = {**each[number], **shared}
            kept = plain(given, lambda tensor: copy_of(tensor, "cpu"))
            value = plain(answer(**given, **more), lambda tensor: copy_of(tensor, "cpu"))
            return value, [name for name in kept if not same(kept[name], plain(given[name]))]

        try:
            found = run_ranks(of_rank, len(each), [{"number": n} for n in range(len(each))], None, seconds, wires)
        except RankFailed as problem:
            kind = next((kind for kind in PASSED_ON if f"failed: {kind}:" in str(problem)), None)
            if kind is None:
                raise
            raise PASSED_ON[kind](str(problem)) from None
        for rank, (_, changed) in enumerate(found.values):
            if changed:
                raise BadArgument(
                    f"rank {rank} has changed its argument {changed[0]}: work on a copy, {changed[0]}.clone()"
                )
        values = [value for value, _ in found.values]
        return {"ranks": values, "sent": found.sent, "calls": found.calls, "events": found.events}

    return call


def own_group(groups: Sequence[Sequence[int]]) -> Any:
    """The group of torch.distributed that this rank is in; every rank makes all of them, in one order."""
    made = [(ranks, dist.new_group(list(ranks))) for ranks in groups]
    return next(group for ranks, group in made if dist.get_rank() in ranks)
