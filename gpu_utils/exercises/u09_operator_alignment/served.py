"""One request, served alone and in a batch: does it get the same tokens, and the same bits?

The model is `served_model`'s, decoded on a virtual GPU by the operators of `served_kernels`, each as libraries do or
batch-invariant, or by a learner's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_utils.errors import BadArgument
from gpu_utils.exercises.u09_operator_alignment import served_kernels as kernels
from gpu_utils.exercises.u09_operator_alignment import served_plans as plans
from gpu_utils.exercises.u09_operator_alignment.served_model import (
    POSITIONS,
    VOCABULARY,
    Operators,
    prompted,
    step,
    weights,
)
from gpu_utils.virtual import virtual_gpu

LIBRARY, INVARIANT = "as libraries do", "batch-invariant"
PLANS: dict[str, tuple[plans.ProductChoice, plans.NormChoice, plans.AttentionChoice]] = {
    LIBRARY: (plans.product_plan, plans.norm_plan, plans.attention_plan),
    INVARIANT: (plans.fixed_product, plans.fixed_norm, plans.fixed_attention),
}
"""Version -> the plans of product, norm and attention."""

SEED = 7
"""Of weights and prompts; chosen so that the two texts part within 12 tokens on the targets of both vendors."""

PROMPT = 40
MOST_OTHERS = 15

OwnProduct = Callable[[Tensor, Tensor], Tensor]
OwnSums = Callable[[Tensor, int, int], Tensor]


@dataclass(frozen=True)
class Served:
    """What came of the request alone, and of the same request with others.

    alone, together  its tokens
    logits_alone, logits_together  float32 (tokens, VOCABULARY), before each of them
    counts           "alone", "with 7 others" -> launches, instructions and bytes moved, of all tokens together
    """

    alone: list[int]
    together: list[int]
    logits_alone: Tensor
    logits_together: Tensor
    counts: dict[str, dict[str, int]]

    @property
    def parts_at(self) -> int | None:
        """Number of the first token that differs, from 1; None where none does."""
        pairs = zip(self.alone, self.together, strict=True)
        return next((number for number, (one, other) in enumerate(pairs, 1) if one != other), None)

    @property
    def first_bits(self) -> int | None:
        """Number of the first token whose logits have other bits; None where none has."""
        pairs = zip(self.logits_alone, self.logits_together, strict=True)
        return next((number for number, (one, other) in enumerate(pairs, 1) if not torch.equal(one, other)), None)

    @property
    def same_bits(self) -> bool:
        """Whether all logits are the same, bit by bit."""
        return self.first_bits is None

    @property
    def rows(self) -> dict[int, dict[str, Any]]:
        """A row for each token; behind the one at which the texts part, there is nothing to compare."""
        last = self.parts_at or len(self.alone)
        found: dict[int, dict[str, Any]] = {}
        for number, (one, other) in enumerate(zip(self.alone, self.together, strict=True), 1):
            row: dict[str, Any] = {"token alone": one, "token with others": other, "logits": "another text"}
            if number <= last:
                a, b = self.logits_alone[number - 1], self.logits_together[number - 1]
                row["logits"] = "same bits" if torch.equal(a, b) else "other bits"
                row |= {"largest difference": float((a - b).abs().max()), "ULP": _ulp(a, b)}
            found[number] = row
        return found


def _ulp(a: Tensor, b: Tensor) -> int:
    """The largest difference of the largest logits in steps of float32 at their size."""
    step_of = 2.0 ** (math.floor(math.log2(float(a.abs().max()))) - 23)
    return round(float((a - b).abs().max()) / step_of)


def served(
    product: str | OwnProduct = LIBRARY,
    norm: str | OwnSums = LIBRARY,
    attention: str = LIBRARY,
    others: int = 7,
    tokens: int = 12,
    target: str = "sm_80",
) -> Served:
    """Serve one request alone, and once more with `others`; greedy decoding on the virtual GPU of `target`.

    product    "as libraries do", "batch-invariant", or a function (x, w) -> float32 (M, N), x and w float16
    norm       the same words, or a function (x, block, warps) -> float32 (rows,), the sums of the rows of x; it is
               given the squares, and the block and the warps that the library has for so many rows
    attention  one of the two words
    tokens     of the answer, at most 24

    Errors: BadArgument for another word or number; UnknownName for a target; those of the operators.
    """
    if not 1 <= others <= MOST_OTHERS or not 1 <= tokens <= 24:
        raise BadArgument(f"{others} others and {tokens} tokens; expected 1 to {MOST_OTHERS} others, 1 to 24 tokens")
    operators = _operators(product, norm, attention)
    prompts = _prompts(others)
    alone, of_alone, counts = _decoded(operators, prompts[:1], tokens, target)
    together, of_together, of_all = _decoded(operators, prompts, tokens, target)
    return Served(alone, together, of_alone, of_together, {"alone": counts, f"with {others} others": of_all})


def library_product(x: Tensor, w: Tensor) -> Tensor:
    """float32 (M, N): x @ w, both float16 or bfloat16 and contiguous, with the plan that a library has for M rows."""
    return kernels.product(x, w, plans.product_plan)


def _operators(product: str | OwnProduct, norm: str | OwnSums, attention: str) -> Operators:
    def version(name: str, given: Any) -> tuple[Any, Any, Any]:
        if given not in PLANS:
            raise BadArgument(f"{name} is {given!r}; expected {LIBRARY!r} or {INVARIANT!r}")
        return PLANS[given]

    own_sums: OwnSums = kernels.row_sums
    choose_norm = plans.norm_plan
    if callable(norm):
        own_sums = norm
    else:
        choose_norm = version("norm", norm)[1]
    return Operators(
        product if callable(product) else partial(kernels.product, choose=version("product", product)[0]),
        lambda x: own_sums(x, *choose_norm(len(x))),
        partial(kernels.attention, choose=version("attention", attention)[2]),
    )


def _prompts(others: int) -> list[list[int]]:
    """The request of PROMPT tokens, and others of 20 to 99."""
    generator = torch.Generator().manual_seed(SEED)
    lengths = [PROMPT, *torch.randint(20, 100, (MOST_OTHERS,), generator=generator).tolist()]
    drawn = [torch.randint(VOCABULARY, (length,), generator=generator).tolist() for length in lengths]
    return drawn[: 1 + others]


def _decoded(
    operators: Operators, prompts: Sequence[Sequence[int]], tokens: int, target: str
) -> tuple[list[int], Tensor, dict[str, int]]:
    """Of the first request its tokens and logits; what all launches counted."""
    model = weights(SEED)
    caches = prompted(model, prompts)
    assert max(caches.lengths) + tokens <= POSITIONS
    last = [prompt[-1] for prompt in prompts]
    found: list[Tensor] = []
    with virtual_gpu(target) as gpu, torch.no_grad():
        for _ in range(tokens):
            logits = step(model, last, caches, operators)
            last = logits.argmax(1).tolist()
            found.append(logits[0])
        totals = [launch.counters.totals() for launch in gpu.launches]
    moved = ("global_load_sectors", "global_store_sectors", "global_atomic_sectors")
    counts = {
        "launches": len(totals),
        "instructions": int(sum(total["instructions"] for total in totals)),
        "bytes moved": int(sum(total[name] * total["sector_bytes"] for total in totals for name in moved)),
    }
    logits = torch.stack(found)
    return logits.argmax(1).tolist(), logits, counts
