"""Doing again what a record says, on the inputs that count.

A record comes from where an answer has run, so nothing in it is believed: what it names must be there, views must lie
in their storages, and torch does only what stands in the table below. What else torch did is left out, and whatever it
would have written may not be used: an answer may look at its result. Everything else raises BadRecord.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree

from gpu_utils.errors import W2WError
from gpu_utils.grading.apart import bytes_apart, rows_apart
from gpu_utils.grading.exercise import Inputs
from gpu_utils.grading.walls.recording import MOST_LINES, TENSOR, tensors_of
from gpu_utils.grading.walls.wire import BadMessage, view_of

_FREE = {
    "clone", "_to_copy", "copy_", "cat", "stack", "constant_pad_nd", "repeat", "index", "index_select", "gather",
    "fill_", "zero_", "detach", "set_", "empty_like", "zeros_like", "ones_like", "full_like", "new_empty",
    "new_empty_strided", "new_zeros", "new_ones", "new_full", "_unsafe_view", "_reshape_copy", "arange", "lift_fresh",
}  # fmt: skip
"""What torch may always do to memory that kernels use: make new, move and fill. Exercises that leave it more say so."""

_USUAL = {
    "add", "sub", "mul", "div", "neg", "sum", "mean", "max", "min", "amax", "amin", "exp", "log", "sqrt", "rsqrt",
    "where", "add_", "sub_", "mul_", "div_", "eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or", "mm",
    "bmm", "maximum", "minimum", "abs", "flip", "roll", "cumsum", "masked_fill", "_local_scalar_dense",
}  # fmt: skip
"""And what it may do where an exercise does not watch it at all."""


class BadRecord(W2WError):
    """A record that cannot be done again."""


class Refused(BadRecord):
    """Something that torch may not do for a kernel, or a tensor that it would have come from."""


@contextlib.contextmanager
def _as_bad_record() -> Iterator[None]:
    """Whatever a record brings about while it is read, and while torch does what it says."""
    try:
        yield
    except W2WError:
        raise
    except Exception as problem:
        raise BadRecord(f"the answer's record cannot be done again ({type(problem).__name__})") from None


@dataclass
class Replay:
    """One run of a record.

    refused        number of a storage -> why nothing may come of it
    seen           the launches that count, those on the first virtual GPU, and the numbers of their storages: others
                   must repeat them
    used           the storages of all of these; given: how many are the inputs'
    address_space  bytes that rows which lie far apart may take
    """

    record: dict[str, Any]
    allowed: tuple[str, ...] | None
    idle: bool
    launch: Callable[..., Any]
    address_space: int = 0
    storages: dict[int, torch.Tensor] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    seen: list[tuple[Any, list[Any]]] = field(default_factory=list)
    used: set[Any] = field(default_factory=set)
    given: int = 0

    def __call__(self, inputs: Inputs) -> Any:
        """The value of the answer, from the inputs."""
        try:
            return self._replayed(inputs)
        except Refused as problem:
            raise BadRecord(str(problem)) from None

    def _replayed(self, inputs: Inputs) -> Any:
        self.storages = dict(enumerate(map(_bytes_of, tensors_of(inputs))))
        self.given = len(self.storages)
        lines = _list(self.record.get("lines"))
        if len(lines) > MOST_LINES:
            raise BadRecord("the answer's record is too long")
        steps = {"memory": self._memory, "apart": self._apart, "launch": self._launch, "torch": self._torch}
        for line in lines:
            with _as_bad_record():
                launch = steps[_one_of(steps, _dict(line).get("do"))](line)
            if launch:
                launch()
        with _as_bad_record():
            return self._tree(self.record.get("value"))

    def _memory(self, line: dict[str, Any]) -> None:
        raw, number = line.get("bytes"), line.get("storage")
        if not isinstance(raw, torch.Tensor) or not isinstance(number, int) or number in self.storages:
            raise BadRecord("memory that cannot be")
        self.storages[number] = _bytes_of(raw.clone())

    def _apart(self, line: dict[str, Any]) -> None:
        rows, number, stride = self._tensor(_dict(line.get("of"))), line.get("storage"), line.get("stride")
        if type(number) is not int or number in self.storages or type(stride) is not int or stride < 0:
            raise BadRecord("rows that cannot be")
        if bytes_apart(rows, stride) > self.address_space:
            raise BadRecord("rows that are too far apart")
        self.storages[number] = _bytes_of(rows_apart(rows, stride))

    def _launch(self, line: dict[str, Any]) -> Callable[[], Any] | None:
        texts = _list(self.record.get("texts"))
        number = line.get("text")
        if not isinstance(number, int) or not 0 <= number < len(texts) or not isinstance(texts[number], str):
            raise BadRecord("a launch without machine code")
        grid, threads = (tuple(_counts(line.get(name))) for name in ("grid", "threads"))
        shared = _counts([line.get("shared")])[0]
        values = [self._value(value) for value in _list(line.get("values"))]
        meta = SimpleNamespace(**{str(k): _counts([v])[0] for k, v in _dict(line.get("meta")).items()})
        counts = line.get("gpu") == 0
        what = (texts[number], line.get("name"), grid, threads, shared)
        whole = (*what, [_without_storage(value) for value in _list(line.get("values"))])
        touched = [value.get(TENSOR) for _, _, value in _list(line.get("values")) if isinstance(value, dict)]
        if counts:
            self.seen.append((whole, touched))
            self.used.update(touched)
        elif not any(whole == before and self._repeats(of, touched) for before, of in self.seen):
            raise BadRecord("a kernel was launched on a virtual GPU of the answer's own; launch it without one")
        order = _list(line.get("order"))
        shuffled = order[1:] == ["shuffled"] and not counts
        return None if self.idle else partial(self.launch, what, values, meta, shuffled, line.get("source"))

    def _repeats(self, before: list[Any], now: list[Any]) -> bool:
        """Whether a launch reads the same inputs as one that counts, and has nothing else that those have worked on."""
        return all(
            new == old or (old >= self.given and new not in self.used) for old, new in zip(before, now, strict=True)
        )

    def _value(self, found: Any) -> tuple[str, str, Any]:
        label, kind, value = _list(found)
        if not isinstance(label, str) or not isinstance(kind, str):
            raise BadRecord("an argument without a name")
        if not isinstance(value, dict):
            return label[:80], kind, value
        tensor = self._tensor(value)
        if "map" in value:
            raw = np.frombuffer(value["map"], np.uint8).copy()
            raw[0:8].view(np.uint64)[:] = tensor.data_ptr()
            return label[:80], kind, (raw, tensor)
        return label[:80], kind, _Shifted.of(tensor, value.get("at", 0))

    def _torch(self, line: dict[str, Any]) -> None:
        operation, is_allowed = _operation(line.get("op"), self.allowed)
        try:
            if not is_allowed:
                raise Refused(_not_for_torch(operation))
            args, kwargs = self._tree(line.get("args")), self._tree(line.get("kwargs"))
        except Refused as problem:
            for ref in [*_refs(line.get("out")), *_written(operation, line)]:
                self.refused[ref[TENSOR]] = str(problem)
            return
        result = operation(*args, **kwargs)
        claimed = _refs(line.get("out"))
        made = [leaf for leaf in _pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if len(claimed) != len(made):
            raise BadRecord("torch returned something else here")
        for ref, tensor in zip(claimed, made, strict=True):
            number = ref.get(TENSOR)
            if not isinstance(number, int):
                raise BadRecord("a tensor without a number")
            if tensor.numel():
                self.storages.setdefault(number, _bytes_of(tensor))

    def _tree(self, tree: Any) -> Any:
        if isinstance(tree, dict):
            if TENSOR in tree:
                return self._tensor(tree)
            if "stray" in tree:
                return torch.empty(0, device="meta")
            if "other" in tree and len(tree) == 1:
                return _OTHER.get(str(tree["other"]), torch.device("cpu"))
            return {key: self._tree(value) for key, value in tree.items()}
        return [self._tree(value) for value in tree] if isinstance(tree, list) else tree

    def _tensor(self, ref: dict[str, Any]) -> torch.Tensor:
        number, view = ref.get(TENSOR), _list(ref.get("view"))
        if number in self.refused:
            raise Refused(self.refused[number])
        if len(view) != 4 or not isinstance(view[0], torch.dtype):
            raise BadRecord("a view that cannot be")
        try:
            return view_of(self.storages.get(number) if isinstance(number, int) else None, *view)
        except BadMessage as problem:
            raise BadRecord(f"the answer's record has {problem}") from None


_OTHER: dict[str, Any] = {
    "torch.strided": torch.strided,
    "torch.contiguous_format": torch.contiguous_format,
    "torch.preserve_format": torch.preserve_format,
    "torch.channels_last": torch.channels_last,
}


class _Shifted:
    """A pointer beside the first element of a tensor."""

    def __init__(self, base: torch.Tensor, at: int) -> None:
        self.base, self._at = base, at

    def data_ptr(self) -> int:
        return self.base.data_ptr() + self._at

    @classmethod
    def of(cls, tensor: torch.Tensor, at: Any) -> Any:
        if not isinstance(at, int) or abs(at) > 1 << 40:
            raise BadRecord("a pointer that cannot be")
        return cls(tensor, at) if at else tensor


def _without_storage(value: Any) -> Any:
    """An argument of a launch, whichever memory it lies in: what repeats a launch has the same sizes and numbers."""
    label, kind, given = _list(value)
    return [label, kind, [given.get("view"), given.get("at")] if isinstance(given, dict) else given]


def _operation(name: Any, allowed: tuple[str, ...] | None) -> tuple[torch._ops.OpOverload, bool]:
    """An operation of torch, and whether it may be done."""
    parts = str(name).split(".")
    plain_name = parts[1] if len(parts) == 3 and parts[0] == "aten" else ""
    found = getattr(getattr(torch.ops.aten, plain_name, None), parts[-1], None)
    if not plain_name or not isinstance(found, torch._ops.OpOverload):
        raise BadRecord(_not_for_torch(None))
    return found, plain_name in _FREE | (_USUAL if allowed is None else set(allowed))


def _not_for_torch(operation: torch._ops.OpOverload | None) -> str:
    name = str(operation).split(".")[1] if operation else "own"
    return f"torch's {name} worked on an input, or on what a kernel wrote: that is the kernel's part"


def _written(operation: torch._ops.OpOverload, line: dict[str, Any]) -> list[dict[str, Any]]:
    """The references among the arguments of an operation that it writes to."""
    given, named = _list(line.get("args")), _dict(line.get("kwargs"))
    known = operation._schema.arguments
    values = [*zip(known, given, strict=False), *((one, named[one.name]) for one in known if one.name in named)]
    return [ref for one, value in values if one.alias_info and one.alias_info.is_write for ref in _refs(value)]


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def _refs(tree: Any) -> list[dict[str, Any]]:
    if isinstance(tree, dict):
        return [tree] if TENSOR in tree else []
    return [ref for item in tree for ref in _refs(item)] if isinstance(tree, list) else []


def _list(found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise BadRecord("a list is missing in the answer's record")
    return found


def _dict(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise BadRecord("a line of the answer's record is none")
    return found


def _counts(found: Any) -> list[int]:
    if not isinstance(found, list) or any(type(n) is not int or not 0 <= n < 2**31 for n in found):
        raise BadRecord("a launch of sizes that cannot be")
    return found


def _one_of(known: Sequence[str] | dict[str, Any], found: Any) -> str:
    if found not in known:
        raise BadRecord("a line of the answer's record is none")
    return found
