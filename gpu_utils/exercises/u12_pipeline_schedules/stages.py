"""GPT-2 in stages: a rank's part of it, with forwards, and backwards whole or in two halves.

The halves are PyTorch's own: `stage_backward_input` and `stage_backward_weight` of torch.distributed.pipelining, which
cut the graph of autograd where the gradient of a weight leaves the path to the input.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch.nn import Parameter

from gpu_utils.errors import BadArgument
from gpu_utils.model.gpt2 import GPT2, GPT2Config

CONFIG = GPT2Config(vocab_size=1024, n_positions=32, n_embd=32, n_layer=8, n_head=2)


def new_model() -> GPT2:
    """The same weights in every process, float32."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return GPT2(CONFIG)


def prefixes(stage: int, stages: int) -> tuple[str, ...]:
    """How the names of a stage's weights begin: its layers, and what the first and the last stage have besides.

    Errors: BadArgument where the layers cannot be shared out evenly.

    >>> prefixes(0, 4), prefixes(3, 4)
    (('wte.', 'wpe.', 'h.0.', 'h.1.'), ('h.6.', 'h.7.', 'ln_f.', 'wte.'))
    """
    each, left = divmod(CONFIG.n_layer, stages)
    if left:
        raise BadArgument(f"{CONFIG.n_layer} layers in {stages} stages; expected 1, 2, 4 or 8 stages")
    layers = tuple(f"h.{layer}." for layer in range(stage * each, (stage + 1) * each))
    first = ("wte.", "wpe.") if stage == 0 else ()
    return first + layers + (("ln_f.", "wte.") if stage == stages - 1 else ())


class Stage:
    """Stage `number` of `stages` of a model, and what it keeps for the backward of each micro-batch.

    The first stage takes tokens (batch, T) int64, the others what the stage before gives, (batch, T, n_embd). The last
    one gives its share of the mean loss over `micros` micro-batches.
    """

    def __init__(self, model: GPT2, number: int, stages: int, micros: int) -> None:
        self.model, self.micros = model, micros
        self.first, self.last = number == 0, number == stages - 1
        begins = prefixes(number, stages)
        self.weights: dict[str, Parameter] = {n: p for n, p in model.named_parameters() if n.startswith(begins)}
        self.layers = [int(name.split(".")[1]) for name in begins if name.startswith("h.")]
        self.losses: dict[int, float] = {}
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}
        self._halves: dict[int, tuple[Sequence[dict], Tensor, Tensor | None]] = {}

    def ready(self, kind: str, micro: int) -> bool:
        """Whether this stage has done what a step of its own needs: F before B and I, I before W."""
        return kind == "F" or micro in (self._halves if kind == "W" else self._kept)

    def forward(self, micro: int, x: Tensor, targets: Tensor) -> Tensor:
        """F: what goes to the next stage; of the last stage its loss."""
        if not self.first:
            x.requires_grad_()
        y = self.model.wte(x) + self.model.wpe.weight[: x.shape[1]] if self.first else x
        for layer in self.layers:
            y = self.model.h[layer](y)
        if self.last:
            logits = F.linear(self.model.ln_f(y), self.model.wte.weight)
            y = F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / self.micros
            self.losses[micro] = y.item()
        self._kept[micro] = (x, y)
        return y.detach()

    def backward(self, micro: int, grad: Tensor | None) -> Tensor | None:
        """B: adds to the gradients of the weights; the gradient of the input, of the first stage None."""
        x, y = self._kept.pop(micro)
        torch.autograd.backward([y], None if grad is None else [grad])
        return x.grad

    def input_gradient(self, micro: int, grad: Tensor | None) -> Tensor | None:
        """I: the gradient of the input alone. The first stage's input is tokens: it has all its work in W."""
        x, y = self._kept.pop(micro)
        if self.first:
            self._halves[micro] = ([], y, grad)
            return None
        found, groups = stage_backward_input([y], None if grad is None else [grad], [x], iter(self.weights.values()))
        self._halves[micro] = (groups, y, grad)
        return found[0]

    def weight_gradients(self, micro: int) -> None:
        """W: adds to the gradients of the weights."""
        groups, y, grad = self._halves.pop(micro)
        if self.first:
            torch.autograd.backward([y], None if grad is None else [grad])
        else:
            stage_backward_weight(iter(self.weights.values()), list(groups))
