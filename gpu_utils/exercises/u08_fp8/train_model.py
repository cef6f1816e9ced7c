"""What 08.train is given: a small GPT-2, batches to learn from, and a product in FP8 that asks for its scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpu_utils.model.device import one_thread
from gpu_utils.model.gpt2 import GPT2, GPT2Config

OPERANDS = ("x", "w", "dy")
LAYERS = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
"""The linear layers of a block."""

FP8 = torch.float8_e4m3fn
LARGEST = 448.0

Seen = Callable[[str, float], None]
Noted = Callable[[str, Tensor, Tensor], None]
Scales = Mapping[str, float]
Passes = dict[str, dict[str, dict[str, list[float]]]]
"""Layer -> operand -> figure -> a number for each pass."""


class CallingMLP(nn.Module):
    """The MLP of a block, which calls its two layers: one that was given another forward is heard."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.c_fc, self.c_proj = original.get_submodule("c_fc"), original.get_submodule("c_proj")

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


def calling(model: GPT2) -> GPT2:
    """The model, with blocks that call all of their layers."""
    for block in model.h:
        block.set_submodule("mlp", CallingMLP(block.get_submodule("mlp")))
    return model


def build(shape: Mapping[str, int], weights: Mapping[str, Tensor]) -> GPT2:
    """The model on the device of its weights, which are copied."""
    config = GPT2Config(shape["vocab"], shape["length"], shape["width"], shape["layers"], 2)
    with torch.random.fork_rng(devices=[]):  # the weights it draws are replaced
        model = calling(GPT2(config))
    model.load_state_dict(dict(weights))
    return model.to(next(iter(weights.values())).device)


def first_weights(shape: Mapping[str, int], generator: torch.Generator) -> dict[str, Tensor]:
    """As GPT-2 begins, drawn from the generator: norms are 1, biases 0, matrices of size 0.02."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        config = GPT2Config(shape["vocab"], shape["length"], shape["width"], shape["layers"], 2)
        return {name: tensor.detach().clone() for name, tensor in GPT2(config).state_dict().items()}


def chains(shape: Mapping[str, int], count: int, generator: torch.Generator) -> Tensor:
    """Tokens int64 (count, batch, length + 1): after each token one of three follows, the first seven times of ten."""
    after = torch.randint(shape["vocab"], (shape["vocab"], 3), generator=generator)
    rows = count, shape["batch"]
    tokens = [torch.randint(shape["vocab"], rows, generator=generator)]
    for _ in range(shape["length"]):
        which = torch.randint(3, rows, generator=generator)
        which[torch.rand(rows, generator=generator) < 0.55] = 0
        tokens.append(after[tokens[-1], which])
    return torch.stack(tokens, 2)


def pairs(tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Tokens (count, batch, length + 1) as inputs and the targets that follow them."""
    return [(batch[:, :-1], batch[:, 1:]) for batch in tokens]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, scales: Scales, seen: Seen, noted: Noted) -> Tensor:
        def rounded(operand: str, given: Tensor) -> Tensor:
            """What is left in FP8 with the given scale; what lies beyond becomes the largest number."""
            seen(operand, float(given.abs().amax()))
            scale = scales[operand]
            left = (given / scale).clamp(-LARGEST, LARGEST).to(FP8).float() * scale
            noted(operand, given, left)
            return left

        ctx.rounded, ctx.shape = rounded, x.shape
        narrow_x, narrow_w = rounded("x", x.detach().flatten(0, -2)), rounded("w", w.detach())
        ctx.save_for_backward(narrow_x, narrow_w)
        return (narrow_x @ narrow_w.T).unflatten(0, x.shape[:-1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, w = ctx.saved_tensors
        dy = ctx.rounded("dy", grads[0].flatten(0, -2))
        return (dy @ w).view(ctx.shape), dy.T @ x, None, None, None


def unnoted(operand: str, given: Tensor, left: Tensor) -> None:
    """Nobody asks what became of a matrix."""


def fp8_linear(x: Tensor, w: Tensor, scales: Scales, seen: Seen, noted: Noted = unnoted) -> Tensor:
    """x (..., K) times w (N, K) transposed, with all operands in E4M3, forward and backward: float32 (..., N).

    scales  operand ("x", "w", "dy") -> scale of the whole matrix: a finite number above 0
    seen    called as seen(operand, amax) for each matrix that is quantised; for dy that is in the backward pass
    noted   called as noted(operand, matrix, what is left of it) after that
    Raises ValueError for a scale that is none.
    """
    for operand in OPERANDS:
        if operand not in scales:
            raise ValueError(f"scales has no {operand!r}; give one for each of {', '.join(OPERANDS)}")
        scale = float(scales[operand])
        if not 0 < scale < math.inf:
            raise ValueError(f"the scale of {operand} is {scale}; expected a finite number above 0")
    return _Product.apply(x, w, {operand: float(scales[operand]) for operand in OPERANDS}, seen, noted)


def noting(model: GPT2, found: Passes) -> Callable[[Tensor, Tensor, Scales, Seen], Tensor]:
    """`fp8_linear` for the layers of the model, which notes what each of their passes had.

    found   gets, for layer, operand and figure, a number for each pass: "amax", "scale", the shares of elements that
            were cut off ("saturated") and that became 0 ("underflowed"). Of w also "sum", which tells whether the
            weights have changed. What is no parameter of the model is noted as the layer "?".
    """
    names = {id(parameter): name.removesuffix(".weight") for name, parameter in model.named_parameters()}

    def linear(x: Tensor, w: Tensor, scales: Scales, seen: Seen) -> Tensor:
        layer = found.setdefault(names.get(id(w), "?"), {operand: {} for operand in OPERANDS})
        taken = {operand: float(scales[operand]) for operand in OPERANDS if operand in scales}

        def noted(operand: str, given: Tensor, left: Tensor) -> None:
            size = given.detach().abs()
            figures = {
                "amax": float(size.amax()),
                "scale": taken[operand],
                "saturated": float((size > taken[operand] * LARGEST).float().mean()),
                "underflowed": float(((left == 0) & (size > 0)).float().mean()),
            }
            if operand == "w":
                figures["sum"] = float(given.double().sum())
            for name, figure in figures.items():
                layer[operand].setdefault(name, []).append(figure)

        return fp8_linear(x, w, taken, seen, noted)

    return linear


def stepped(model: GPT2, batches: Sequence[tuple[Tensor, Tensor]], rate: float) -> list[float]:
    """The plain loop: a step of AdamW for each batch. The losses before each."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    losses = []
    with one_thread():
        for pair in batches:
            loss = model.loss(*pair)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses


def train_in_bfloat16(model: GPT2, batches: Sequence[tuple[Tensor, Tensor]], rate: float) -> list[float]:
    """The yardstick: the losses of the same training with operands in bfloat16, sums and weights in float32."""
    for block in model.h:
        for name in LAYERS:
            layer = block.get_submodule(name)
            layer.forward = partial(_layer_in_bfloat16, layer)
    return stepped(model, batches, rate)


def _layer_in_bfloat16(layer: Any, x: Tensor) -> Tensor:
    return _InBf16.apply(x, layer.weight) + layer.bias


class _InBf16(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        narrow_x, narrow_w = x.bfloat16().float(), w.bfloat16().float()
        ctx.save_for_backward(narrow_x, narrow_w)
        return narrow_x @ narrow_w.T

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, w = ctx.saved_tensors
        dy = grads[0].bfloat16().float()
        return dy @ w, dy.flatten(0, -2).T @ x.flatten(0, -2)
