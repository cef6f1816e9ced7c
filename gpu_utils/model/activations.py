"""What each module and each operator of a model gave, in order: a recording that two machines can compare.

`recording_of` runs a model once. Hooks see the calls of modules, with what goes in and comes out; a `TorchDispatchMode`
sees each operator of torch below them, with the innermost module and the line of Python that asked for it. Weights are
not copied: three numbers of each stand for it. A recording holds every intermediate value, so give it a short input.
Not seen: what a kernel of one's own does within itself, and what torch.compile has made one kernel.
"""

from __future__ import annotations

import linecache
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_utils.errors import W2WError

_TORCH = str(Path(torch.__file__).parent)

_MOVES = ("aten._unsafe_view", "aten.clone", "aten._to_copy", "aten.copy", "aten.contiguous")
"""Operators that, like views, hand the numbers on, in another place, shape or type."""


class RecordingError(W2WError):
    """A model cannot be recorded, or a recording cannot be read or compared."""


@dataclass(frozen=True)
class Operator:
    """One operator of torch: values are numbers into `Recording.values`.

    name      "aten.mm"
    call      the innermost call of a module, a number into `Recording.calls`
    line      "model.py:12: y = x @ w"
    settings  its arguments that are no tensors, as text
    view      whether it hands its input's numbers on: a view, a copy, another type
    """

    name: str
    call: int
    line: str
    settings: tuple[str, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    view: bool


@dataclass
class Call:
    """One call of a module: its path in the model ("" for the model itself), its class, and the call around it (-1)."""

    path: str
    kind: str
    parent: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...] = ()
    weights: tuple[int, ...] = ()


@dataclass
class Recording:
    """Calls in the order in which they began, operators in the order in which they ended.

    values   copies on the CPU; of a weight, or a view of one, its `sketch`
    weights  number of a value -> name of the parameter or buffer
    about    device, dtype and versions
    """

    values: list[Tensor] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    weights: dict[int, str] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)

    def children(self, call: int) -> list[int]:
        return [i for i, one in enumerate(self.calls) if one.parent == call]


def sketch(weight: Tensor) -> Tensor:
    """Mean, root mean square, and a weighted sum of all over sqrt(n), in float64: a transpose differs in the last.

    >>> sketch(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))[:2]
    tensor([2.5000, 2.7386], dtype=torch.float64)
    """
    flat = weight.detach().double().flatten().cpu()
    if not flat.numel():
        return flat.new_zeros(3)
    waves = torch.cos(torch.arange(flat.numel(), dtype=torch.float64))
    return torch.stack([flat.mean(), flat.square().mean().sqrt(), flat @ waves / math.sqrt(flat.numel())])


def same_sketch(one: Tensor, other: Tensor) -> bool:
    """Whether two sketches are of one weight: 1% is far above what a narrow type rounds, and far below how two layers
    of a model differ."""
    return bool((one - other).abs().max() <= 0.01 * one.abs().max())


def tensors(tree: Any) -> list[Tensor]:
    """The tensors of nested tuples, lists, dicts and outputs of transformers, in order."""
    return [leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


Exchange = Callable[[int, list[Tensor]], Sequence[Tensor]]
"""(number of a call, its tensors) -> those that take their place."""


def recording_of(
    model: nn.Module,
    inputs: Any,
    enter: Exchange | None = None,
    leave: Exchange | None = None,
) -> Recording:
    """One forward pass of `model`, in evaluation mode and without gradients.

    inputs        a tensor, a tuple of arguments, or a dict of keyword arguments
    enter, leave  take the place of what goes into a call of a module, or comes out of it; what is recorded is what the
                  model itself gave

    >>> found = recording_of(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.ones(1, 2))
    >>> [call.path for call in found.calls], [one.name for one in found.operators if not one.view]
    (['', '0', '1'], ['aten.addmm', 'aten.relu'])
    """
    watch = _Watch(model, enter, leave)
    args, kwargs = arguments(inputs)
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), _hooked(model, watch), watch:
            model(*args, **kwargs)
    finally:
        model.train(training)
    if not watch.found.calls:
        raise RecordingError(
            "the model's forward was not called through the module: call model(x), not model.forward(x)"
        )
    return watch.found


def arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a model is called with, from a tensor, a tuple or list of arguments, or a dict of keyword arguments."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)), {}


class _Watch(TorchDispatchMode):
    def __init__(self, model: nn.Module, enter: Exchange | None, leave: Exchange | None) -> None:
        super().__init__()
        self.found = Recording(about=_about(model))
        self.enter, self.leave = enter, leave
        self._open: list[int] = []  # calls that have begun and not ended
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._alive: list[Tensor] = []  # so that no address is given out twice
        self._quiet = False
        self._stored: dict[int, str] = {}  # address of a storage -> the weight that lies there
        for name, weight in [*model.named_parameters(), *model.named_buffers()]:
            self._stored.setdefault(weight.untyped_storage().data_ptr(), name)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._quiet or not self._open:
            return func(*args, **kwargs)
        before = [self.number(one) for one in tensors((args, kwargs))]
        result = func(*args, **kwargs)
        settings = tuple(
            _text(leaf) for leaf in _pytree.tree_leaves((args, kwargs)) if not isinstance(leaf, Tensor | None)
        )
        after = tuple(self.number(one) for one in tensors(result))
        name = str(func.overloadpacket)
        self.found.operators.append(
            Operator(name, self._open[-1], _line(), settings, tuple(before), after, func.is_view or name in _MOVES)
        )
        return result

    def number(self, tensor: Tensor) -> int:
        """The number of a value; a new one where these bytes have not been met in this shape and this version."""
        weight = self._stored.get(tensor.untyped_storage().data_ptr()) if tensor.numel() else None
        key: tuple[Any, ...] = (
            tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor._version, tensor.device
        )  # fmt: skip
        if (known := self._numbers.get(key)) is not None:
            return known
        number = self._numbers[key] = len(self.found.values)
        self._alive.append(tensor)
        if weight is not None:
            self.found.weights[number] = weight
            self.found.values.append(sketch(tensor))
        else:
            self.found.values.append(tensor.detach().to("cpu", copy=True))
        return number

    def begin(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        with self._off():
            number = len(self.found.calls)
            given = tensors((args, kwargs))
            own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
            self.found.calls.append(
                Call(
                    path,
                    type(module).__name__,
                    self._open[-1] if self._open else -1,
                    tuple(map(self.number, given)),
                    weights=tuple(map(self.number, own)),
                )
            )
            self._open.append(number)
            return _exchanged((args, kwargs), self.enter(number, given)) if self.enter else (args, kwargs)

    def end(self, output: Any) -> Any:
        with self._off():
            number = self._open.pop()
            given = tensors(output)
            self.found.calls[number].outputs = tuple(map(self.number, given))
            return _exchanged(output, self.leave(number, given)) if self.leave else output

    @contextmanager
    def _off(self) -> Iterator[None]:
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False


@contextmanager
def _hooked(model: nn.Module, watch: _Watch) -> Iterator[None]:
    handles = []
    try:
        for path, module in model.named_modules():

            def before(module: nn.Module, args: Any, kwargs: Any, path: str = path) -> Any:
                return watch.begin(path, module, args, kwargs)

            def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
                return watch.end(output)

            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(module.register_forward_hook(after, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _exchanged(tree: Any, given: Sequence[Tensor]) -> Any:
    """The tree with these tensors in the places of its own."""
    leaves, form = _pytree.tree_flatten(tree)
    rest = iter(given)
    return _pytree.tree_unflatten([next(rest) if isinstance(leaf, Tensor) else leaf for leaf in leaves], form)


def _text(setting: Any) -> str:
    return f"{setting:.9g}" if isinstance(setting, float) else str(setting)


def _line() -> str:
    """The innermost line of Python that is neither torch's nor this module's."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_TORCH, "<")) and file != __file__:
            text = linecache.getline(file, frame.f_lineno).strip()
            return f"{Path(file).name}:{frame.f_lineno}: {text}"[:200]
        frame = frame.f_back
    return ""


def _about(model: nn.Module) -> dict[str, str]:
    first = next(iter(model.parameters()), torch.empty(0))
    name = torch.cuda.get_device_name(first.device) if first.is_cuda else str(first.device)
    return {
        "model": type(model).__name__,
        "device": name,
        "dtype": str(first.dtype).removeprefix("torch."),
        "torch": torch.__version__,
    }
