"""A small decoder that is served: its weights, its cached prompts, and one decoding step of a batch of requests.

Two layers of attention and an MLP with squared ReLU, width 128. Keys, values and what enters a product are float16, its
sums and the residual stream float32; the factor of an RMSNorm multiplies behind the product, as fused kernels have it.
Beside the three operators that a step is given, torch works element by element, with additions, products, square roots
and divisions only. These are rounded correctly, so an element's bits do not depend on where in a batch it stands.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

WIDTH, HEADS, LAYERS, VOCABULARY, POSITIONS = 128, 4, 2, 256, 128
EPS = 1e-5

Product = Callable[[Tensor, Tensor], Tensor]
RowSums = Callable[[Tensor], Tensor]
Attention = Callable[[Tensor, Tensor, Tensor, Sequence[int]], Tensor]


@dataclass(frozen=True)
class Operators:
    """What a step computes its sums with; shapes as in `served_kernels`."""

    product: Product
    row_sums: RowSums
    attention: Attention


@dataclass(frozen=True)
class Weights:
    """Of the whole model, drawn and not trained. Matrices are float16 (inputs, outputs), the embeddings float32.

    tokens, places  (VOCABULARY, WIDTH) and (POSITIONS, WIDTH): embeddings of tokens and positions
    layers          for each layer "qkv", "up" and "down"
    head            columns in pairs: those of tokens 2 i and 2 i + 1 differ in their first element only, by `APART` or
                    so. The two best logits are then nearly the same in every step; in a trained model that happens once
                    in many tokens
    """

    tokens: Tensor
    places: Tensor
    layers: tuple[dict[str, Tensor], ...]
    head: Tensor


APART = 2.0**-20


@functools.cache
def weights(seed: int) -> Weights:
    """The same for the same seed."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    def matrix(inputs: int, outputs: int) -> Tensor:
        return (draw(inputs, outputs) / inputs**0.5).half()

    sizes = {"qkv": (WIDTH, 3 * WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    layers = tuple({name: matrix(*size) for name, size in sizes.items()} for _ in range(LAYERS))
    for layer in layers:
        layer["qkv"][:, 2 * WIDTH :] *= 4  # means of values: as large as the residual stream that they join
    head = matrix(WIDTH, VOCABULARY // 2).repeat_interleave(2, 1)
    head[0] = APART * draw(VOCABULARY)
    return Weights(draw(VOCABULARY, WIDTH), draw(POSITIONS, WIDTH), layers, head)


@dataclass
class Caches:
    """Keys and values of each layer, float16 (requests, POSITIONS, HEADS, D), of which `lengths` are filled."""

    keys: list[Tensor]
    values: list[Tensor]
    lengths: list[int]


def step(model: Weights, tokens: Sequence[int], caches: Caches, operators: Operators) -> Tensor:
    """float32 (requests, VOCABULARY): logits after one more token of each request, which enters the caches."""
    requests = len(tokens)
    x = model.tokens[list(tokens)] + model.places[caches.lengths]
    lengths = [length + 1 for length in caches.lengths]
    for layer, keys, values in zip(model.layers, caches.keys, caches.values, strict=True):
        qkv = _normed_product(x, layer["qkv"], operators).half()
        q, k, v = (part.reshape(requests, HEADS, -1).contiguous() for part in qkv.chunk(3, 1))
        for request, at in enumerate(caches.lengths):
            keys[request, at], values[request, at] = k[request], v[request]
        x = x + operators.attention(q, keys, values, lengths).reshape(requests, WIDTH)
        hidden = _normed_product(x, layer["up"], operators).relu().square()
        x = x + operators.product(hidden.half(), layer["down"])
    caches.lengths = lengths
    return _normed_product(x, model.head, operators)


def _normed_product(x: Tensor, w: Tensor, operators: Operators) -> Tensor:
    """float32: RMSNorm(x) @ w, with the norm's factor behind the product."""
    size = torch.sqrt(operators.row_sums(x.square()) / WIDTH + EPS)
    return operators.product(x.half(), w) / size[:, None]


def prompted(model: Weights, prompts: Sequence[Sequence[int]]) -> Caches:
    """Caches that hold all but the last token of each prompt, read by torch, each prompt alone."""
    shape = (len(prompts), POSITIONS, HEADS, WIDTH // HEADS)
    keys, values = ([torch.zeros(shape, dtype=torch.float16) for _ in range(LAYERS)] for _ in range(2))
    caches = Caches(keys=keys, values=values, lengths=[])
    for request, prompt in enumerate(prompts):
        read = len(prompt) - 1
        x = (model.tokens[list(prompt[:-1])] + model.places[:read]).double()
        future = torch.ones(read, read, dtype=torch.bool).triu(1)
        for layer, own_keys, own_values in zip(model.layers, keys, values, strict=True):
            q, k, v = (part.reshape(read, HEADS, -1) for part in _exact(x, layer["qkv"]).chunk(3, 1))
            own_keys[request, :read], own_values[request, :read] = k.half(), v.half()
            scores = torch.einsum("qhd,khd->hqk", q, k) / (WIDTH // HEADS) ** 0.5
            p = scores.masked_fill(future, -torch.inf).softmax(2)
            x = x + torch.einsum("hqk,khd->qhd", p, v).reshape(read, WIDTH)
            x = x + _exact(x, layer["up"]).relu().square() @ layer["down"].double()
        caches.lengths.append(read)
    return caches


def _exact(x: Tensor, w: Tensor) -> Tensor:
    return x / (x.square().mean(1, keepdim=True) + EPS).sqrt() @ w.double()
