"""How much the operations of torch write while an answer decodes: whether it expands the cache to every head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from gpu_utils.grading.watch import Watch

LONG = 512
"""Only behind so many cached tokens is counted: there the cache is most of what there is."""

LITTLE = "nothing of every head for the whole cache"
BOTH = "keys and values of every head for the whole cache"
HALF = "keys or values of every head for the whole cache"
COPIES = "a copy of the cache for every head"
MUCH = "more numbers than 3 a number of the cache, 12 a score and 2 a weight"


class Written(Watch):
    """Numbers that operations of torch write; views and memory that is only reserved are none.

    total    of all operations together
    tensors  how many of each result, the large ones alone, from `large` numbers on
    """

    def __init__(self, large: int) -> None:
        super().__init__()
        self.large, self.total, self.tensors = large, 0, list[int]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if "empty" in function.overloadpacket.__name__:
            return result
        writes = any(one.alias_info is not None and one.alias_info.is_write for one in function._schema.returns)
        read = set() if writes else {_memory(tensor) for tensor in _tensors((args, kwargs))}
        for tensor in _tensors(result):
            if _memory(tensor) not in read:
                self.total += tensor.numel()
                if tensor.numel() >= self.large:
                    self.tensors.append(tensor.numel())
        return result


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def _memory(tensor: Tensor) -> Any:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else id(tensor)


def most_written(tokens: int, new: int, sizes: Mapping[str, int], weights: int) -> int:
    """The most numbers that decoding one sequence may write.

    tokens   of the cache with the new ones; new: queries; sizes: heads, rank, rope; weights: numbers of all weights
    The cache itself is written anew, and may be copied twice; a score is made in parts, added up, scaled, masked and
    exponentiated; weights may be laid out anew, or multiplied with each other once (as large as they).

    >>> most_written(1000, 1, {"heads": 8, "rank": 32, "rope": 8}, weights=50_000)
    316000
    """
    cache = tokens * (sizes["rank"] + sizes["rope"])
    return 3 * cache + 12 * tokens * new * sizes["heads"] + 2 * weights


def what_was_written(seen: Written, batch: int, tokens: int, new: int, sizes: Mapping[str, int], weights: int) -> str:
    """In words, by the size of the tensors that an answer made: one of the constants above."""
    allowed = batch * most_written(tokens, new, sizes, 0) + 2 * weights
    if seen.total <= allowed:
        return LITTLE
    heads, nope, value, rank, rope = (sizes[name] for name in ("heads", "nope", "value", "rank", "rope"))
    each = {round(n / (batch * tokens * heads)) for n in seen.tensors}  # numbers for a head and token of the cache
    keys, values = bool(each & {nope, nope + rope}), value in each
    if nope + value in each or (keys and values):
        return BOTH
    if keys or values:
        return HALF
    return COPIES if each & {rank, rank + rope} else MUCH
