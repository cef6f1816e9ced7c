"""Would an answer run on a GPU, asked where there is none: it runs once more on a device of our making.

Tensors of that device are handles on torch's device "meta", which has shapes and no numbers; the numbers are computed
on the CPU, beside them. So an answer may read what it computes, and whatever it makes without saying where is on the
CPU, a foreign tensor: an operation on both is what a GPU refuses.

What this cannot see: an answer that needs the real thing (`.tolist()`, `.numpy()`, a device called "cuda") ends it
without a verdict, and so does an operation that changes a tensor's shape in place. It accuses only by naming an
operation or a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch.utils import _pytree

from gpu_utils.grading.exercise import Inputs
from gpu_utils.grading.watch import Watch

_META, _CPU = torch.device("meta"), torch.device("cpu")
_MAY_MIX = ("copy_", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_")
"""Operations that take tensors of two devices on purpose: copies, and indices that stay on the CPU."""


class ForeignTensor(Exception):
    """An operation got tensors of two devices."""


class ImaginaryDevice(Watch):
    """Inside the block, device "meta" computes, and refuses tensors of the CPU as a GPU does.

    >>> with ImaginaryDevice() as device:
    ...     x = device.move(torch.tensor([1.0, 2.0]))
    ...     x.device.type, (x * x).sum().item()
    ('meta', 5.0)
    """

    def __init__(self) -> None:
        super().__init__()
        self._memory: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def move(self, tree: Any) -> Any:
        """The tree with a copy of each tensor on the imaginary device."""
        with torch.utils._python_dispatch._disable_current_modes():
            return _pytree.tree_map_only(torch.Tensor, lambda tensor: self._handle(tensor.detach().clone()), tree)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        tensors = list(_tensors((args, kwargs)))
        here = any(tensor.device == _META for tensor in tensors)
        if here and name not in _MAY_MIX:
            foreign = next((tensor for tensor in tensors if tensor.device == _CPU and tensor.ndim), None)
            if foreign is not None:
                raise ForeignTensor(f"{name} meets a tensor of shape {tuple(foreign.shape)} that is on the CPU")
        aliases = [returned.alias_info for returned in function._schema.returns]
        if any(alias is not None and not alias.is_write for alias in aliases):
            return function(*args, **kwargs)  # a view of a handle is a handle on the same memory
        wanted = kwargs.get("device")
        result = function(*_pytree.tree_map(self._computed, args), **_pytree.tree_map(self._computed, kwargs))
        if any(alias is not None for alias in aliases):
            return args[0] if name.endswith("_") else kwargs["out"]
        if (here if wanted is None else torch.device(wanted) == _META) and name != "_local_scalar_dense":
            return _pytree.tree_map_only(torch.Tensor, self._handle, result)
        return result

    def _handle(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor without numbers, whose numbers are `tensor`."""
        storage = tensor.untyped_storage()
        handle = torch.empty(0, dtype=tensor.dtype, device=_META)
        memory = torch.empty(storage.nbytes(), dtype=torch.uint8, device=_META).untyped_storage()
        handle.set_(memory, tensor.storage_offset(), tensor.size(), tensor.stride())
        self._memory[memory._cdata] = memory, storage
        return handle

    def _computed(self, value: Any) -> Any:
        """What stands for an argument on the CPU."""
        if isinstance(value, torch.device) and value == _META:
            return _CPU
        if not isinstance(value, torch.Tensor) or value.device != _META:
            return value
        _, storage = self._memory[value.untyped_storage()._cdata]
        numbers = torch.empty(0, dtype=value.dtype)
        return numbers.set_(storage, value.storage_offset(), value.size(), value.stride())


class Called(Protocol):
    """What is called like an exercise's answer."""

    @property
    def call(self) -> Callable[[Callable[..., Any], Inputs], Any]: ...


def foreign_tensor(exercise: Called, answer: Any, inputs: Inputs) -> str:
    """What a GPU would refuse, in one sentence; "" when nothing was seen, or when no input is a tensor.

    inputs  as the answer got them, on the CPU; they stay as they are
    """
    if next(_tensors(inputs), None) is None:
        return ""
    try:
        with ImaginaryDevice() as device:
            value = exercise.call(answer, device.move(inputs))
    except ForeignTensor as problem:
        found = str(problem)
    except Exception:  # it needs
        return ""
    else:
        left = next((tensor for tensor in _tensors(value) if tensor.ndim and tensor.device == _CPU), None)
        if left is None:
            return ""
        found = f"a result of shape {tuple(left.shape)} stays on the CPU"
    return f"it fails on a GPU: {found}; make new tensors where the inputs are, as in torch.ones(n, device=x.device)"


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor))
