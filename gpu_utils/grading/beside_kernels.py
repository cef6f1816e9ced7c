"""What torch does beside the kernels of an answer: where the work is a kernel's, torch must not do a part of it.

Torch may make new tensors and views, ask for shapes and strides, and copy what a kernel wrote. Everything else that
reads an input, or what a kernel wrote, is found here, whether its result is used or not. What happens inside a launch
is the launch's own affair, and so is what `print` reads.

What this cannot see: numbers that leave torch by a pointer (`data_ptr`), and work in the function that gives the grid.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from gpu_utils.backends.recording import replaced
from gpu_utils.grading.exercise import Inputs
from gpu_utils.grading.watch import Watch

_COPIES = {
    "clone": "clone, contiguous or reshape",
    "_to_copy": "to",
    "copy_": "copy_",
    "cat": "cat",
    "stack": "stack",
    "constant_pad_nd": "pad",
    "repeat": "repeat",
    "index": "indexing",
    "index_select": "index_select",
    "gather": "gather",
}
"""Operations that move numbers and change none -> what a learner calls them."""

_NAMES = {"_local_scalar_dense": "item"}
_READS_NOTHING = {f"{made}_like" for made in ("empty", "zeros", "ones", "full", "rand", "randn")}
_READS_NOTHING |= {"new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full", "set_"}
_ONLY_WRITES = {"copy_", "fill_", "zero_"}
"""In place, and their first tensor is not read."""

_TAKES_OUT = {"numpy", "tolist", "__array__", "__dlpack__"}
"""Methods of a tensor that hand its numbers to others, past torch's dispatcher."""

_MAY = "beside it torch may make new tensors and views, and copy what a kernel wrote"


class TorchsWork(Watch):
    """Inside `watching(...)`: the first operation that did a kernel's work, as `kind` and a sentence `found`.

    kind   "copy": an input was copied; "work": any other operation, which counts for more; "" for none
    """

    def __init__(self, inputs: Inputs, allowed: tuple[str, ...]) -> None:
        super().__init__()
        self.kind = self.found = ""
        self.away = 0
        self._allowed = allowed
        self._inputs = {name: _tensors(value) for name, value in inputs.items()}
        self._written: list[torch.Tensor] = []  # kept, so that their memory is not given to others

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if not self.away and self.kind != "work":
            self._look(function, args, kwargs, result)
        return result

    def _look(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        name = function.overloadpacket.__name__
        aliases = [returned.alias_info for returned in function._schema.returns]
        if name in _READS_NOTHING or any(alias is not None and not alias.is_write for alias in aliases):
            return
        read = _tensors((args[1:] if name in _ONLY_WRITES else args, {**kwargs, "out": None}))
        self.note(name, read)
        if name not in _COPIES:
            return
        copies = _tensors((result, args[:1]))  # of what is read, and so its like from now on
        for tensor in read:
            if whose := self._input(tensor):
                self._inputs[whose] += copies
            elif self._is_written(tensor):
                self._written += copies

    def note(self, name: str, read: list[torch.Tensor]) -> None:
        """An operation read these tensors."""
        said = _NAMES.get(name, name)
        whose = next(filter(None, map(self._input, read)), "")
        if self.kind == "work" or self.away or said in self._allowed:
            return
        if whose and name in _COPIES:
            if self.kind:
                return
            self.kind = "copy"
            self.found = f"torch copied {whose} ({_COPIES[name]}): the kernel is to read {whose} where it is; {_MAY}"
        elif whose or (name not in _COPIES and any(map(self._is_written, read))):
            self.kind = "work"
            self.found = f"torch's {said} works on {whose or 'what a kernel wrote'}: that is the kernel's part; {_MAY}"

    def launched(self, arguments: Any) -> None:
        """A kernel got these arguments: it may have written to any tensor among them."""
        bases = [getattr(value, "base", value) for value in _pytree.tree_leaves(arguments)]
        self._written += _tensors(bases)

    def _input(self, tensor: torch.Tensor) -> str:
        return next((name for name, given in self._inputs.items() if any(_share(tensor, one) for one in given)), "")

    def _is_written(self, tensor: torch.Tensor) -> bool:
        return any(_share(tensor, one) for one in self._written)


class _Methods(TorchFunctionMode):
    """Tells a TorchsWork what never reaches torch's dispatcher, and what a tensor's own text reads."""

    def __init__(self, work: TorchsWork) -> None:
        super().__init__()
        self._work = work

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name in _TAKES_OUT:
            self._work.note(name, _tensors(args))
        with _looking_away(self._work) if name in ("__format__", "__repr__") else contextlib.nullcontext():
            return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def watching(inputs: Inputs, allowed: tuple[str, ...]) -> Iterator[TorchsWork]:
    """A block in which an answer is called with `inputs`; `allowed` names operations that torch may do all the same."""
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    work = TorchsWork(inputs, allowed)

    def unseen(run: Any) -> Any:
        def run_unseen(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            with _looking_away(work):
                result = run(kernel, *args, **kwargs)
            work.launched((args, kwargs))
            return result

        return run_unseen

    with contextlib.ExitStack() as stack:
        for kernels in (JITFunction, InterpretedFunction, Autotuner):
            stack.enter_context(replaced(kernels, "run", unseen(kernels.run)))
        stack.enter_context(work)
        stack.enter_context(_Methods(work))
        yield work


@contextlib.contextmanager
def _looking_away(work: TorchsWork) -> Iterator[None]:
    work.away += 1
    try:
        yield
    finally:
        work.away -= 1


def _tensors(tree: Any) -> list[torch.Tensor]:
    """Those with elements."""
    return [leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor) and leaf.numel()]


def _share(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether one's memory lies in the other's, also where one was made of a piece of it."""
    if one.device != other.device or one.layout != torch.strided:
        return False
    start = other.untyped_storage().data_ptr()
    return start <= one.untyped_storage().data_ptr() < start + max(1, other.untyped_storage().nbytes())
