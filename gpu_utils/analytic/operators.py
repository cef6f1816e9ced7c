"""FLOP and bytes of every operator of a GPT-2's forward pass, and so its arithmetic intensity.

One multiply-add of a matrix product is two FLOP; other operators count the arithmetic of their formula for each
element, a transcendental function as one. Bytes are what an operator reads and writes when each of its tensors crosses
the memory bus once. Training has the same shapes forward; its backward pass does two products for each one here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gpu_utils.analytic.roofline import Point
from gpu_utils.errors import BadArgument

NORM, GELU, SOFTMAX = 8, 9, 5
"""FLOP for each element: layer norm (mean 1, variance 3, normalise 2, scale and shift 2); tanh GELU (9 of its formula);
softmax (maximum, difference, exponential, sum, division)."""


class Shape(Protocol):
    """What is needed of a configuration: gpu_utils.model.gpt2.GPT2Config has it."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def n_embd(self) -> int: ...
    @property
    def n_layer(self) -> int: ...
    @property
    def n_head(self) -> int: ...


@dataclass(frozen=True)
class Operator:
    """One operator as it runs once.

    flops, bytes  of one run; matrix: whether it is a matrix product, which a matrix unit can do
    count         how often it runs in a forward pass
    """

    name: str
    flops: int
    bytes: int
    count: int
    matrix: bool

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes

    def point(self) -> Point:
        """The same as a point of a roofline."""
        return Point(self.name, self.flops, self.bytes)


def gpt2_operators(
    shape: Shape,
    batch: int,
    tokens: int,
    context: int | None = None,
    *,
    bytes_per_value: int = 2,
    fused: bool = True,
) -> tuple[Operator, ...]:
    """The operators of one forward pass in order, each once with its count.

    batch    sequences; tokens: new tokens of each: the whole prompt (prefill, training), or 1 (decoding)
    context  tokens that each new one attends to, with itself: as many as `tokens` unless given
    fused    attention as one operator that never writes its scores; its softmax is then not counted

    Scores count in full, also where the causal mask hides them (as in costs.flops_per_token).
    Errors: BadArgument for a size below 1, or a context shorter than the new tokens.

    >>> from types import SimpleNamespace
    >>> gpt2 = SimpleNamespace(vocab_size=50257, n_embd=768, n_layer=12, n_head=12)
    >>> for op in gpt2_operators(gpt2, batch=1, tokens=1, context=1024)[:4]:
    ...     print(f"{op.name:<10} {op.count:>2} x {op.flops:>9,} FLOP, {op.bytes:>9,} bytes: {op.intensity:.2f}")
    embedding   1 x       768 FLOP,     4,608 bytes: 0.17
    norm       25 x     6,144 FLOP,     6,144 bytes: 1.00
    qkv        12 x 3,538,944 FLOP, 3,549,696 bytes: 1.00
    attention  12 x 3,145,728 FLOP, 3,148,800 bytes: 1.00
    """
    S = tokens if context is None else context
    for name, value in (("batch", batch), ("tokens", tokens), ("bytes_per_value", bytes_per_value)):
        if value < 1:
            raise BadArgument(f"{name} is {value}; expected 1 or more")
    if tokens > S:
        raise BadArgument(f"the context of {S} tokens is shorter than the {tokens} new ones; it includes them")
    d, layers, b = shape.n_embd, shape.n_layer, bytes_per_value
    n = batch * tokens  # rows of every matrix product outside of attention
    scores = batch * shape.n_head * tokens * S
    q, kv = n * d, batch * S * d

    def linear(name: str, wide: int, narrow: int, count: int, bias: bool = True) -> Operator:
        weights = wide * narrow + (narrow if bias else 0)
        return Operator(name, 2 * n * wide * narrow, b * (n * wide + weights + n * narrow), count, True)

    if fused:
        inner = [Operator("attention", 4 * q * S, b * (2 * q + 2 * kv), layers, True)]
    else:
        inner = [
            Operator("scores", 2 * q * S, b * (q + kv + scores), layers, True),
            Operator("softmax", SOFTMAX * scores, b * 2 * scores, layers, False),
            Operator("values", 2 * q * S, b * (scores + kv + q), layers, True),
        ]
    return (
        Operator("embedding", n * d, b * 3 * n * d, 1, False),
        Operator("norm", NORM * n * d, b * (2 * n * d + 2 * d), 2 * layers + 1, False),
        linear("qkv", d, 3 * d, layers),
        *inner,
        linear("projection", d, d, layers),
        linear("MLP up", d, 4 * d, layers),
        Operator("GELU", GELU * n * 4 * d, b * 2 * n * 4 * d, layers, False),
        linear("MLP down", 4 * d, d, layers),
        Operator("residual", n * d, b * 3 * n * d, 2 * layers, False),
        linear("logits", d, shape.vocab_size, 1, bias=False),
    )
