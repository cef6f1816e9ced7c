"""Two profiles of one program: which kernels the difference comes from, and whether by more calls or by slower ones.

All times are whole ns. The parts of a difference add up to it exactly.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpu_utils.profiling.busy import Busy, busy
from gpu_utils.profiling.profile import Event, Profile

_SUFFIX = re.compile(r"\s*(\[clone [^\]]*\]|\(\.kd\)|\.kd)$")
_OPEN, _CLOSE = "<(", ">)"
_SHIELDED = (("(anonymous namespace)", "\0a"), ("operator()", "\0c"), ("operator<<", "\0l"), ("operator<", "\0s"))


@dataclass(frozen=True)
class Change:
    """One kernel in both profiles, in one of them, or all that share its short name.

    calls, ns            (before, after); 0 where it is not there
    by_calls, by_time    ns of the difference because of more or fewer calls at the old time of one, and because of the
                         time of one call; together they are the difference. A new or vanished kernel is all calls
    """

    name: str
    calls: tuple[int, int]
    ns: tuple[int, int]
    by_calls: int
    by_time: int

    @property
    def difference(self) -> int:
        return self.ns[1] - self.ns[0]

    @property
    def kind(self) -> str:
        """ "new", "vanished" or "both"."""
        return "new" if not self.calls[0] else "vanished" if not self.calls[1] else "both"

    @property
    def words(self) -> str:
        """What changed, one phrase."""
        if self.kind != "both":
            word = "new" if self.kind == "new" else "gone"
            return f"{word}: {max(self.calls)} calls, {max(self.ns):,} ns"
        each = [round(ns / calls) for ns, calls in zip(self.ns, self.calls, strict=True)]
        return f"{self.calls[0]} -> {self.calls[1]} calls, {each[0]:,} -> {each[1]:,} ns a call"


@dataclass(frozen=True)
class Compared:
    """changes: those with the largest difference first, in either direction

    window, busy  ns summed over devices (before, after), from the first work of each to its last; 0 without times
    untimed       kernels without a time (before, after): they are not in it
    """

    changes: tuple[Change, ...]
    window: tuple[int, int]
    busy: tuple[int, int]
    untimed: tuple[int, int]

    @property
    def idle(self) -> tuple[int, int]:
        return self.window[0] - self.busy[0], self.window[1] - self.busy[1]

    @property
    def kernels(self) -> tuple[int, int]:
        """ns of all kernels (before, after); more than busy where kernels run at once."""
        return sum(one.ns[0] for one in self.changes), sum(one.ns[1] for one in self.changes)


def plain(name: str) -> str:
    """The name of a kernel without what tools add to it: .kd, [clone ...], double spaces.

    >>> plain("saxpy(int,  float*) [clone .kd]"), plain("saxpy(int, float*) (.kd)"), plain("add.kd")
    ('saxpy(int, float*)', 'saxpy(int, float*)', 'add')
    """
    before = None
    while before != name:
        before, name = name, _SUFFIX.sub("", name)
    return " ".join(name.split())


def short(name: str) -> str:
    """The same without template arguments, parameters and return type: what a new version of a library keeps.

    >>> short("void at::native::(anonymous namespace)::add<float, F<2> >(int, float*) [clone .kd]")
    'at::native::(anonymous namespace)::add'
    >>> short("Cijk_Ailk_MT64x64.kd"), short("ns::functor<int>::operator()(int)"), short("<kernel 12>")
    ('Cijk_Ailk_MT64x64', 'ns::functor::operator()', '<kernel 12>')
    """
    whole = plain(name)
    text = whole
    for word, sign in _SHIELDED:
        text = text.replace(word, sign)
    kept, depth = [], 0
    for letter in text:
        if letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            depth = max(0, depth - 1)
        elif not depth:
            kept.append(letter)
    words = "".join(kept).split()  # the last is the name, what stands before it the return type
    text = words[-1] if words else whole
    for word, sign in _SHIELDED:
        text = text.replace(sign, word)
    return text


def compared(before: Profile, after: Profile) -> Compared:
    """Kernels matched by name: first by the plain one, what is left by the short one.

    >>> one = Profile([Event("kernel", "add<4>", 0, 100), Event("kernel", "mul", 100, 150)])
    >>> two = Profile([Event("kernel", "add<8>", 0, 130), Event("kernel", "add<8>", 140, 270)])
    >>> [(each.name, each.by_calls, each.by_time, each.kind) for each in compared(one, two).changes]
    [('add', 100, 60, 'both'), ('mul', -50, 0, 'vanished')]
    """
    sides = [_by_name(profile.kernels) for profile in (before, after)]
    both = sides[0].keys() & sides[1].keys()
    totals: dict[str, list[list[int]]] = defaultdict(lambda: [[0, 0], [0, 0]])
    for number, side in enumerate(sides):
        for name, times in side.items():
            total = totals[name if name in both else short(name)][number]
            total[0] += len(times)
            total[1] += sum(times)
    changes = [_change(name, *total) for name, total in totals.items()]
    untimed = [sum(event.duration is None for event in profile.kernels) for profile in (before, after)]
    whole = [busy(profile) for profile in (before, after)]
    return Compared(
        tuple(sorted(changes, key=lambda one: (-abs(one.difference), one.name))),
        (_window(whole[0]), _window(whole[1])),
        (sum(one.busy for one in whole[0].devices), sum(one.busy for one in whole[1].devices)),
        (untimed[0], untimed[1]),
    )


def _by_name(kernels: Iterable[Event]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for event in kernels:
        if event.duration is not None:
            found[plain(event.name)].append(round(event.duration))
    return found


def _change(name: str, before: Sequence[int], after: Sequence[int]) -> Change:
    (calls, ns), (calls_after, ns_after) = before, after
    difference = ns_after - ns
    by_calls = difference if not calls or not calls_after else round((calls_after - calls) * ns / calls)
    return Change(name, (calls, calls_after), (ns, ns_after), by_calls, difference - by_calls)


def _window(found: Busy) -> int:
    return sum(one.window for one in found.devices)
