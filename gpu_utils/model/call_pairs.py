"""Which call of a module in one recording is which in another: ports name modules anew, wrap them, and fuse some.

Calls are paired from the outside in and in order, by their weights, the last part of their path, their class and the
shape of what they give. A call without a partner is opened: its inner calls are looked at in its place, so a wrapper
around a model or a fused projection does no harm. What stays without a partner belongs to the code around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_utils.model.activations import Recording, RecordingError, same_sketch

_NEEDED = 2
"""The shape alone (1) makes no pair."""


def call_pairs(a: Recording, b: Recording, names: Mapping[str, str] | None = None) -> dict[int, int]:
    """Call of `b` -> its partner in `a`. names: path in a -> path in b, where the pairing is to be told.

    Raises RecordingError where a path of `names` is not there.
    """
    told = dict(names or {})
    for which, found, given in (("A", a, told.keys()), ("B", b, told.values())):
        paths = {call.path for call in found.calls}
        for path in given:
            if path not in paths:
                raise RecordingError(f"{which} calls no module {path!r}; it has {', '.join(sorted(paths)[1:9])}, ...")
    pairs = {0: 0}
    _inside(a, b, [0], [0], told, pairs)
    return pairs


def _inside(
    a: Recording, b: Recording, of_a: list[int], of_b: list[int], told: dict[str, str], pairs: dict[int, int]
) -> None:
    ours = [child for call in of_a for child in a.children(call)]
    theirs = [child for call in of_b for child in b.children(call)]
    while True:
        found = _in_order(_scores(a, b, ours, theirs, told))
        alone_a = {ours[i] for i in range(len(ours))} - {ours[i] for i, _ in found}
        alone_b = {theirs[j] for j in range(len(theirs))} - {theirs[j] for _, j in found}
        opened = _opened(a, ours, alone_a), _opened(b, theirs, alone_b)
        if opened == (ours, theirs):
            break
        ours, theirs = opened
    for i, j in found:
        pairs[theirs[j]] = ours[i]
        _inside(a, b, [ours[i]], [theirs[j]], told, pairs)


def _opened(found: Recording, calls: list[int], alone: set[int]) -> list[int]:
    """Calls without a partner make room for those inside; ones that hold none stay."""
    return [inner for call in calls for inner in ((found.children(call) or [call]) if call in alone else [call])]


def _scores(
    a: Recording, b: Recording, ours: Sequence[int], theirs: Sequence[int], told: dict[str, str]
) -> list[list[float]]:
    """How much speaks for each pair; 0 where nothing does or the shapes do not fit."""
    kinds = [[one.calls[call].kind for call in calls] for one, calls in ((a, ours), (b, theirs))]

    def score(one: int, two: int) -> float:
        x, y = a.calls[one], b.calls[two]
        if x.path in told or y.path in told.values():
            return 100.0 if told.get(x.path) == y.path else 0.0
        if _shape(a, x.outputs) != _shape(b, y.outputs):
            return 0.0
        points = 1.0
        if x.path.rsplit(".")[-1] == y.path.rsplit(".")[-1]:
            points += 4
        if x.kind == y.kind:
            points += 2 if kinds[0].count(x.kind) == kinds[1].count(y.kind) else 0.5
        if x.weights and _same_weights(a, b, x.weights, y.weights):
            points += 8
        return points if points >= _NEEDED else 0.0

    return [[score(one, two) for two in theirs] for one in ours]


def _shape(found: Recording, values: Sequence[int]) -> tuple[int, ...] | None:
    return tuple(found.values[values[0]].shape) if values else None


def _same_weights(a: Recording, b: Recording, ours: Sequence[int], theirs: Sequence[int]) -> bool:
    if len(ours) != len(theirs):
        return False
    return all(same_sketch(a.values[x], b.values[y]) for x, y in zip(ours, theirs, strict=True))


def _in_order(scores: list[list[float]]) -> list[tuple[int, int]]:
    """The pairs (i, j), rising in both, with the largest sum of scores."""
    n, m = len(scores), len(scores[0]) if scores else 0
    best = [[0.0] * (m + 1) for _ in range(n + 1)]
    for i in range(n - 1, -1, -1):
        for j in range(m - 1, -1, -1):
            together = best[i + 1][j + 1] + scores[i][j] if scores[i][j] else 0.0
            best[i][j] = max(best[i + 1][j], best[i][j + 1], together)
    found, i, j = [], 0, 0
    while i < n and j < m:
        if scores[i][j] and best[i][j] == best[i + 1][j + 1] + scores[i][j]:
            found.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return found
