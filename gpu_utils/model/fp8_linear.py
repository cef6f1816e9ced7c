"""Linear layers whose three products take FP8 operands: y = x wT, dx = dy w, dw = dyT x.

As in the DeepSeek-V3 report (arXiv 2412.19437, section 3.3): master weights stay in float32, each operand gets its
codes and scales just before its product, sums are float32. Embeddings, tied head, norms and attention stay as they are.
Simulated: operands are dequantised and multiplied in float32, so that what differs from another run is rounding alone.
"""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpu_utils.errors import BadArgument
from gpu_utils.model.fp8_log import OPERANDS, AmaxLog, Operand
from gpu_utils.model.fp8_scaling import Scaled, granularity, quantised, scales_for, tile_amax
from gpu_utils.model.gpt2 import GPT2

CONVERTED = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
"""The linear layers of a block, all of which are converted."""

E4M3, E4M3_FNUZ, E5M2 = torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2


@dataclass(frozen=True)
class Recipe:
    """How operands become FP8.

    x, w, dy    types of activations, weights and gradients; bfloat16 rounds to it and needs no scale
    tiles       granularity of x and dy, along the dimension that the product sums over: a name in GRANULARITIES
    blocks      granularity of w
    scaling     "online": from the matrix itself. "delayed": from the largest amax of the last `history` passes before
                this one, which NVIDIA's Transformer Engine calls delayed scaling. "static": from the first pass, for
                good. The last two have one scale for a matrix; where there is no history yet, the matrix itself gives
                it. "none": a plain cast, all scales are 1
    history     passes that delayed scaling remembers
    margin      factor between the amax that gave the scale and the largest number that it can hold
    saturate    what lies beyond becomes the largest number; without, what torch's cast makes of it
    """

    x: torch.dtype = E4M3
    w: torch.dtype = E4M3
    dy: torch.dtype = E4M3
    tiles: str = "1x128"
    blocks: str = "128x128"
    scaling: Literal["online", "delayed", "static", "none"] = "online"
    history: int = 16
    margin: float = 1.0
    saturate: bool = True

    def __post_init__(self) -> None:
        names = {granularity(name) for name in (self.tiles, self.blocks)}
        if self.scaling in ("delayed", "static") and names != {granularity("tensor")}:
            raise BadArgument(
                f"{self.scaling} scaling remembers one amax for a matrix, but the granularities are {self.tiles!r} and "
                f"{self.blocks!r}; make both 'tensor', or scale 'online'"
            )


class OperandScaler:
    """One operand of one layer: gives its matrices codes and scales, remembers their amax and notes them in the log."""

    def __init__(self, recipe: Recipe, operand: Operand, layer: str, log: AmaxLog) -> None:
        self.recipe, self.operand, self.layer, self.log = recipe, operand, layer, log
        self.dtype: torch.dtype = getattr(recipe, operand)
        self.tile = granularity(recipe.blocks if operand == "w" else recipe.tiles)
        # Static scaling remembers the first pass alone: what comes later is not appended.
        self.amaxes: deque[Tensor] = deque(maxlen=recipe.history)

    def __call__(self, x: Tensor, *, training: bool) -> tuple[Scaled, Tensor]:
        """x (R, C), summed over its columns -> its codes and scales, and the matrix that they stand for, float32.

        training: whether this pass counts for the history and the log.
        """
        tiles = tile_amax(x, self.tile)
        q = quantised(x, self.tile, self.dtype, self._scales(tiles), saturate=self.recipe.saturate)
        values = q.values()
        if training:
            amax = tiles.amax()
            if self.recipe.scaling != "static" or not self.amaxes:
                self.amaxes.append(amax)
            fits = self.recipe.scaling == "online" and not self.tile.power_of_two
            self.log.add(self.layer, self.operand, x, amax, q, values, fits=fits)
        return q, values

    def turned(self, x: Tensor, values: Tensor) -> Tensor:
        """What x (R, C) becomes for a product that sums over its rows: float32 (R, C).

        Square tiles serve both ways, and `values` are those of the first. Others are made again, along the rows.
        """
        if self.tile.square:
            return values
        tile = self.tile.turned
        scales = self._scales(tile_amax(x, tile))
        return quantised(x, tile, self.dtype, scales, saturate=self.recipe.saturate).values()

    def _scales(self, tiles: Tensor) -> Tensor:
        """float32, the shape of `tiles`: the largest numbers of the tiles of this pass."""
        if self.recipe.scaling == "none":
            return torch.ones_like(tiles)
        if self.recipe.scaling in ("delayed", "static") and self.amaxes:
            tiles = torch.stack(list(self.amaxes)).amax().view(1, 1)
        return scales_for(tiles * self.recipe.margin, self.dtype, power_of_two=self.tile.power_of_two)


class _Products(torch.autograd.Function):
    """y = x wT with quantised operands, and its gradients with quantised operands: x (T, K), w (N, K) -> y (T, N)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, scalers: dict[Operand, OperandScaler], training: bool) -> Tensor:
        ctx.scalers, ctx.w = scalers, w
        ctx.xq, x_values = scalers["x"](x, training=training)  # kept in 8 bits, as the report does
        ctx.wq, w_values = scalers["w"](w, training=training)
        return _product(x_values, w_values.T)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (dy,) = grads
        dy = dy.float()
        of_x, of_w, of_dy = (ctx.scalers[operand] for operand in OPERANDS)
        _, dy_values = of_dy(dy, training=True)
        dx = _product(dy_values, of_w.turned(ctx.w, ctx.wq.values()))
        # x was stored in 8 bits, and is dequantised, turned and quantised again from these (section 3.5.2).
        x_values = ctx.xq.values()
        dw = _product(of_dy.turned(dy, dy_values).T, of_x.turned(x_values, x_values))
        return dx, dw, None, None


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in float32, also where autocast would round its operands to 16 bits."""
    with torch.autocast(a.device.type, enabled=False):
        return a @ b


class Fp8Linear(nn.Linear):
    """A linear layer with the parameters of another one, which multiplies in the types of a recipe."""

    def __init__(self, linear: nn.Linear, recipe: Recipe, layer: str, log: AmaxLog) -> None:
        with torch.device("meta"):  # the parameters are the other layer's
            super().__init__(linear.in_features, linear.out_features, bias=linear.bias is not None)
        self.weight, self.bias = linear.weight, linear.bias
        self.scalers = {operand: OperandScaler(recipe, operand, layer, log) for operand in OPERANDS}

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in) of any float type -> (..., out) in the type that torch's layer would give."""
        y = _Products.apply(x.flatten(0, -2).float(), self.weight, self.scalers, torch.is_grad_enabled())
        y = (y if self.bias is None else y + self.bias).unflatten(0, x.shape[:-1])
        device = x.device.type
        return y.to(torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype)


class _CallingMLP(nn.Module):
    """A gpt2.MLP that calls its layers: the original hands their weights to `mlp`, past a converted layer."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.c_fc, self.c_proj = original.get_submodule("c_fc"), original.get_submodule("c_proj")

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


def converted(model: GPT2, recipe: Recipe) -> tuple[GPT2, AmaxLog]:
    """A copy of the model whose blocks' linear layers are Fp8Linear, and the log of what they will quantise.

    >>> from gpu_utils.model.gpt2 import GPT2Config
    >>> model, log = converted(GPT2(GPT2Config(32, 8, 16, 1, 2)), Recipe())
    >>> model.loss(torch.tensor([[1, 2]]), torch.tensor([[2, 3]])).backward()
    >>> log.layers
    ['h.0.attn.c_attn', 'h.0.attn.c_proj', 'h.0.mlp.c_fc', 'h.0.mlp.c_proj']
    """
    model, log = copy.deepcopy(model), AmaxLog()
    for number, block in enumerate(model.h):
        block.set_submodule("mlp", _CallingMLP(block.get_submodule("mlp")))
        for name in CONVERTED:
            linear = block.get_submodule(name)
            assert isinstance(linear, nn.Linear)
            block.set_submodule(name, Fp8Linear(linear, recipe, f"h.{number}.{name}", log))
    return model, log
