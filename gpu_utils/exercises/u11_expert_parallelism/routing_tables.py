"""Routing tables for 11.node_limited: experts of tokens, with at most so many nodes for each."""

from __future__ import annotations

import torch
from torch import Tensor


def limited_tables(scores: Tensor, k: int, nodes: int) -> list[Tensor]:
    """int64 (T, k) for each limit 1, 2, ... nodes that leaves room for k experts: the k best on the chosen nodes.

    A node's score is the sum of its best k / limit experts (rounded up), as the DeepSeek-V3 report chooses nodes.

    >>> scores = torch.tensor([[0.9, 0.1, 0.8, 0.7]])
    >>> [table.tolist() for table in limited_tables(scores, k=2, nodes=2)]
    [[[2, 3]], [[0, 2]]]
    """
    tokens, experts = scores.shape
    by_node = scores.view(tokens, nodes, experts // nodes)
    found = []
    for limit in range(1, nodes + 1):
        best = by_node.topk(min(-(-k // limit), experts // nodes), dim=2).values.sum(2)
        allowed = torch.zeros(tokens, nodes, dtype=torch.bool).scatter_(1, best.topk(limit, dim=1).indices, True)
        masked = by_node.masked_fill(~allowed[:, :, None], -torch.inf).flatten(1)
        found.append(masked.topk(k, dim=1).indices)
    return found
