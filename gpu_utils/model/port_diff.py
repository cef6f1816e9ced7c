"""Where a port of a model computes something else: the module, the operator and the line, for each fault.

`port_diff` runs B with A's numbers at every border: each module of B is given what its partner in A was given, and
what it gives is compared and then exchanged for what A gave. So a module is judged on its own code alone, what follows
a fault is no victim of it, and one fault does not hide the next. Within the code of a module that differs, operators
are followed from the differing value back to the one whose inputs agree and whose result does not.

`recordings_diff` compares two recordings that no model is at hand for: only the first fault can be told then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gpu_utils.model.activations import Operator, Recording, RecordingError, recording_of
from gpu_utils.model.call_pairs import call_pairs
from gpu_utils.model.values_apart import DIFFERENT, SAME, Apart, Rounding, apart, narrowest

SEED = 9


@dataclass(frozen=True)
class Fault:
    """A module of B whose own code gives something else from the same inputs.

    module    its path in B, "" for the model's own forward; in_a its partner's path; kind its class
    operator  where the two part: its inputs agree and its result does not; "" where no operator could be named
    line      B's line of Python; line_a A's
    because   what differs there, in words
    """

    module: str
    in_a: str
    kind: str
    operator: str
    line: str
    line_a: str
    because: str
    apart: Apart


@dataclass(frozen=True)
class Row:
    """A pair of modules: how far B's own code is from A's, given the same; victim: its inputs differed already."""

    module: str
    in_a: str
    kind: str
    apart: Apart
    victim: bool = False


@dataclass(frozen=True)
class PortDiff:
    """rows in order of execution; faults in the same order; end: the models' outputs, each run by itself.

    alone: modules of A and of B that have no partner; they are judged as part of the code around them.
    """

    rows: tuple[Row, ...]
    faults: tuple[Fault, ...]
    end: Apart
    alone: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def same(self) -> bool:
        return not self.faults


def port_diff(a: Recording, model: nn.Module, inputs: Any, names: Mapping[str, str] | None = None) -> PortDiff:
    """Compare `model`, called with `inputs`, with the recording `a` of another one with the same weights and inputs.

    names  path in A -> path in B, where pairs of modules are to be told

    >>> a, b = nn.Sequential(nn.LayerNorm(4)), nn.Sequential(nn.LayerNorm(4, eps=1e-3))
    >>> found = port_diff(recording_of(a, torch.eye(4)), b, torch.eye(4))
    >>> found.faults[0].module, found.faults[0].operator, found.faults[0].because
    ('0', 'native_layer_norm', 'its settings are 4, 0.001; in A 4, 1e-05')
    """
    free = recording_of(model, inputs)
    _same_inputs(a, free)
    pairs = call_pairs(a, free, names)
    given = _Given(a, pairs, free)
    forced = recording_of(model, inputs, given.enter, given.leave)
    if [call.path for call in forced.calls] != [call.path for call in free.calls]:
        raise RecordingError("the model calls other modules each time it runs; fix its seed, or turn the draw off")
    given.nudge = narrowest(*(value.dtype for one in (a, free) for value in _data(one)))
    nudged = recording_of(model, inputs, given.enter, given.leave)
    noise = _noise(forced, nudged)
    judge = _Judge(a, forced, pairs, noise)
    rows, faults = [], []
    for call in sorted(pairs):
        row, fault = judge.call(call)
        rows.append(row)
        faults += [fault] if fault else []
    return PortDiff(tuple(rows), tuple(faults), _end(a, free), _alone(a, free, pairs))


def recordings_diff(a: Recording, b: Recording, names: Mapping[str, str] | None = None) -> PortDiff:
    """Compare two recordings: the first fault, and who is only its victim.

    From one border to the next errors add up, so bounds grow with the operators that have run: a small fault late in a
    deep model needs `port_diff`.
    """
    _same_inputs(a, b)
    pairs = call_pairs(a, b, names)
    judge = _Judge(a, b, pairs, {}, grow=True)
    first = judge.first_fault()
    rows = [judge.call(call)[0] for call in sorted(pairs)]
    if first is not None:
        rows = [replace(row, victim=not row.apart.holds and row.module != first.module) for row in rows]
    return PortDiff(tuple(rows), (first,) if first else (), _end(a, b), _alone(a, b, pairs))


def _same_inputs(a: Recording, b: Recording) -> None:
    ours, theirs = ([one.values[i] for i in one.calls[0].inputs] for one in (a, b))
    for number, (x, y) in enumerate(zip(ours, theirs, strict=False)):
        if x.shape != y.shape or not apart(x, y, Rounding(narrowest(x.dtype, y.dtype), 1, 2)).holds:
            raise RecordingError(
                f"A and B are called with different inputs: tensor {number} is {tuple(x.shape)} in A and "
                f"{tuple(y.shape)} in B{', with other numbers' if x.shape == y.shape else ''}; draw it from one seed"
            )


def _data(found: Recording) -> list[Tensor]:
    return [value for number, value in enumerate(found.values) if number not in found.weights]


def _end(a: Recording, b: Recording) -> Apart:
    ours, theirs = a.calls[0].outputs, b.calls[0].outputs
    if not ours or not theirs:
        return SAME
    compute = sum(not operator.view for operator in b.operators)
    x, y = a.values[ours[0]], b.values[theirs[0]]
    k = max((size for value in _data(b) for size in value.shape[-2:]), default=1)
    return apart(x, y, Rounding(narrowest(*(value.dtype for one in (a, b) for value in _data(one))), k, compute))


def _alone(a: Recording, b: Recording, pairs: Mapping[int, int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    taken = set(pairs.values())
    return (
        tuple(call.path for i, call in enumerate(a.calls) if i not in taken),
        tuple(call.path for i, call in enumerate(b.calls) if i not in pairs),
    )


def _matched(a: Recording, ours: Sequence[int], theirs: Sequence[Tensor]) -> list[tuple[int, int]]:
    """(number of a value of A, position in theirs): in order, each the next one of the same shape."""
    found, rest = [], list(ours)
    for position, tensor in enumerate(theirs):
        partner = next((i for i in rest if a.values[i].shape == tensor.shape and i not in a.weights), None)
        if partner is not None:
            found.append((partner, position))
            del rest[: rest.index(partner) + 1]
    return found


class _Given:
    """Gives every call of B that has a partner what A's was given, and lets it give what A's gave."""

    def __init__(self, a: Recording, pairs: Mapping[int, int], free: Recording) -> None:
        self.a, self.pairs, self.free = a, pairs, free
        self.nudge: torch.dtype | None = None
        self._generator = torch.Generator().manual_seed(SEED)

    def enter(self, call: int, given: list[Tensor]) -> list[Tensor]:
        partner = self.pairs.get(call)
        return given if partner is None else self._exchanged(self.a.calls[partner].inputs, given)

    def leave(self, call: int, given: list[Tensor]) -> list[Tensor]:
        partner = self.pairs.get(call)
        return given if partner is None else self._exchanged(self.a.calls[partner].outputs, given)

    def _exchanged(self, ours: Sequence[int], given: list[Tensor]) -> list[Tensor]:
        taken = list(given)
        for number, position in _matched(self.a, ours, given):
            value, own = self.a.values[number], given[position]
            if value.is_floating_point() and own.is_floating_point():
                if self.nudge is not None:
                    sign = torch.randint(0, 2, value.shape, generator=self._generator) * 2 - 1
                    value = value.double() * (1 + sign * torch.finfo(self.nudge).eps / 2)
                taken[position] = value.to(own.device, own.dtype)
            elif value.dtype == own.dtype:
                taken[position] = value.to(own.device)
        return taken


def _noise(one: Recording, other: Recording) -> dict[int, float]:
    """Number of a value -> how far it moved when its inputs were nudged."""
    if len(one.values) != len(other.values):
        return {}
    moved = {}
    for number, (x, y) in enumerate(zip(one.values, other.values, strict=True)):
        if x.shape == y.shape and x.is_floating_point() and number not in one.weights and x.numel():
            by = float((x.double() - y.double()).nan_to_num(0.0, 0.0, 0.0).abs().max())
            moved[number] = by if by < 1e30 else 0.0  # a masked score
    return moved


class _Judge:
    """Judges the own code of calls: from what is given to it to what it gives to its parts and to its caller."""

    def __init__(
        self, a: Recording, b: Recording, pairs: Mapping[int, int], noise: Mapping[int, float], grow: bool = False
    ) -> None:
        self.a, self.b, self.pairs, self.noise, self.grow = a, b, pairs, noise, grow
        owner_a, owner_b = _owners(a, set(pairs.values())), _owners(b, set(pairs))
        self.children: dict[int, list[int]] = {call: [] for call in pairs}
        for call in sorted(pairs):
            if call:
                self.children[owner_b[b.calls[call].parent]].append(call)
        self.own_a, self.own_b = _own(a, owner_a), _own(b, owner_b)
        self.makers_a, self.makers_b = ({call: _makers(one, ops) for call, ops in own.items()}
                                        for one, own in ((a, self.own_a), (b, self.own_b)))  # fmt: skip

    def call(self, call: int) -> tuple[Row, Fault | None]:
        partner = self.pairs[call]
        here, there = self.b.calls[call], self.a.calls[partner]
        rounding = self._rounding(call, partner)
        worst = SAME
        for x, y in self._borders(call, partner):
            found = self._apart(x, y, rounding)
            if not found.holds:
                fault = self._fault(call, partner, x, y, rounding, found)
                return Row(here.path, there.path, here.kind, found), fault
            worst = max(worst, found, key=lambda one: one.error / one.bound if one.bound else 0.0)
        return Row(here.path, there.path, here.kind, worst), None

    def first_fault(self) -> Fault | None:
        """The first border in time at which values differ: all before it agree, so the code that led to it is it."""
        for call, x, y in self._in_time(0):
            rounding = self._rounding(call, self.pairs[call])
            found = self._apart(x, y, rounding)
            if not found.holds:
                return self._fault(call, self.pairs[call], x, y, rounding, found)
        return None

    def _in_time(self, call: int) -> Iterator[tuple[int, int, int]]:
        """(call whose code led to it, value of A, value of B) at every border, in order of execution."""
        for child in self.children[call]:
            inputs = self._values(self.a.calls[self.pairs[child]].inputs, self.b.calls[child].inputs)
            yield from ((call, x, y) for x, y in inputs)
            yield from self._in_time(child)
        outputs = self._values(self.a.calls[self.pairs[call]].outputs, self.b.calls[call].outputs)
        yield from ((call, x, y) for x, y in outputs)

    def _borders(self, call: int, partner: int) -> Iterator[tuple[int, int]]:
        """Pairs of values at which the own code of a call is judged, in order."""
        for child in self.children[call]:
            yield from self._values(self.a.calls[self.pairs[child]].inputs, self.b.calls[child].inputs)
        yield from self._values(self.a.calls[partner].outputs, self.b.calls[call].outputs)

    def _values(self, ours: Sequence[int], theirs: Sequence[int]) -> list[tuple[int, int]]:
        return [(x, theirs[at]) for x, at in _matched(self.a, ours, [self.b.values[y] for y in theirs])]

    def _rounding(self, call: int, partner: int) -> Rounding:
        ops_b = [self.b.operators[i] for i in self.own_b[call]]
        ops_a = [self.a.operators[i] for i in self.own_a[partner]]
        values = [one.values[i] for one, ops in ((self.a, ops_a), (self.b, ops_b)) for op in ops
                  for i in (*op.inputs, *op.outputs) if i not in one.weights]  # fmt: skip
        ends = [self.b.values[i] for i in (*self.b.calls[call].inputs, *self.b.calls[call].outputs)]
        ends += [self.a.values[i] for i in (*self.a.calls[partner].inputs, *self.a.calls[partner].outputs)]
        k = max((size for value in values for size in value.shape[-2:]), default=1)
        before = len(self.b.operators) if self.grow else 0
        if self.grow and (last := max(self.own_b[call], default=0)):
            before = sum(not op.view for op in self.b.operators[:last])
        roundings = 2 + max(sum(not op.view for op in ops) for ops in (ops_a, ops_b)) + before
        return Rounding(narrowest(*(value.dtype for value in [*values, *ends])), max(1, k), roundings)

    def _apart(self, x: int, y: int, rounding: Rounding) -> Apart:
        if x in self.a.weights or y in self.b.weights:
            one, other = self.a.values[x], self.b.values[y]
            if not (x in self.a.weights and y in self.b.weights):
                return DIFFERENT
            return apart(one, other, Rounding(rounding.dtype, 1, 4))
        return apart(self.a.values[x], self.b.values[y], rounding, self.noise.get(y, 0.0))

    def _fault(self, call: int, partner: int, x: int, y: int, rounding: Rounding, found: Apart) -> Fault:
        operator, other, because = _Back(self, call, partner, rounding).parting(x, y)
        return Fault(
            module=self.b.calls[call].path,
            in_a=self.a.calls[partner].path,
            kind=self.b.calls[call].kind,
            operator=_short(operator.name) if operator else "",
            line=operator.line if operator else "",
            line_a=other.line if other else "",
            because=because,
            apart=found,
        )


class _Back:
    """Follows operators of one call back from a value that differs."""

    def __init__(self, judge: _Judge, call: int, partner: int, rounding: Rounding) -> None:
        self.judge, self.rounding = judge, rounding
        self.a, self.b = judge.a, judge.b
        self.makers_a, self.makers_b = judge.makers_a[partner], judge.makers_b[call]

    def parting(self, x: int, y: int) -> tuple[Operator | None, Operator | None, str]:
        """B's operator whose inputs agree and whose result does not, A's beside it, and what differs."""
        after_a = after_b = None
        while True:
            base_x, views_a = self._base(self.a, self.makers_a, x)
            base_y, views_b = self._base(self.b, self.makers_b, y)
            made_a, made_b = self.makers_a.get(base_x), self.makers_b.get(base_y)
            if (views_a or views_b) and self._agree(base_x, base_y):
                view = views_b[0] if views_b else after_b
                return view, (views_a[0] if views_a else after_a), "the same numbers are looked at in another way"
            if made_b is None:
                if base_y in self.b.weights:
                    return after_b, after_a, f"the weight {self.b.weights[base_y]} is another one"
                return after_b, after_a, "it takes something else than in A"
            if made_a is None or made_a.name != made_b.name:
                there = f"{_short(made_a.name)} makes it" if made_a else "nothing is computed there"
                return made_b, made_a, f"in A {there}"
            pairs = self._pairs(made_a, made_b)
            wrong = [pair for pair in pairs if not self._fits(*pair)]
            weights = [y for _, y in wrong if y in self.b.weights]
            if weights:
                return made_b, made_a, f"the weight {self.b.weights[weights[0]]} is another one"
            if not wrong:
                return made_b, made_a, self._told_apart(made_a, made_b)
            after_a, after_b = made_a, made_b
            x, y = wrong[0]

    def _base(self, one: Recording, makers: Mapping[int, Operator], value: int) -> tuple[int, list[Operator]]:
        """The value below views and copies, and these, the last one first. A view of a weight is that weight."""
        views = []
        while (maker := makers.get(value)) is not None and maker.view and maker.inputs and value not in one.weights:
            views.append(maker)
            value = maker.inputs[0]
        return value, views

    def _pairs(self, one: Operator, other: Operator) -> list[tuple[int, int]]:
        straight = list(zip(one.inputs, other.inputs, strict=False))
        if len(straight) == 2 and one.name in ("aten.add", "aten.mul"):
            crossed = list(zip(one.inputs, other.inputs[::-1], strict=False))
            return min(straight, crossed, key=lambda pairs: sum(not self._fits(*pair) for pair in pairs))
        return straight

    def _agree(self, x: int, y: int) -> bool:
        return self.judge._apart(x, y, self.rounding).holds

    def _fits(self, x: int, y: int) -> bool:
        """Equal, or the same numbers in another shape, as where heads are repeated on one side only."""
        if self._agree(x, y):
            return True
        if self.a.values[x].shape == self.b.values[y].shape:
            return False
        return self._agree(self._base(self.a, self.makers_a, x)[0], self._base(self.b, self.makers_b, y)[0])

    @staticmethod
    def _told_apart(one: Operator, other: Operator) -> str:
        if one.settings != other.settings:
            return f"its settings are {_listed(other.settings)}; in A {_listed(one.settings)}"
        if len(one.inputs) != len(other.inputs):
            return f"it takes {len(other.inputs)} tensors; in A {len(one.inputs)}"
        return "its inputs agree and its result does not"


def _owners(found: Recording, paired: set[int]) -> list[int]:
    """Call -> the innermost call around it, or itself, that has a partner."""
    owners: list[int] = []
    for number, call in enumerate(found.calls):
        owners.append(number if number in paired else owners[call.parent])
    return owners


def _own(found: Recording, owners: Sequence[int]) -> dict[int, list[int]]:
    """Call with a partner -> its own operators, those of inner calls without a partner included."""
    own: dict[int, list[int]] = {call: [] for call in owners}
    for number, operator in enumerate(found.operators):
        own[owners[operator.call]].append(number)
    return own


def _makers(found: Recording, operators: Sequence[int]) -> dict[int, Operator]:
    """Value -> the operator that made it."""
    return {
        value: found.operators[number]
        for number in operators
        for value in found.operators[number].outputs
        if value not in found.operators[number].inputs
    }


def _listed(settings: Sequence[str]) -> str:
    return ", ".join(settings) or "none"


def _short(name: str) -> str:
    return name.removeprefix("aten.")
