"""The matrices that a training step multiplies: inputs of linear layers, their weights, gradients at their outputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gpu_utils.formats import BLOCK_FORMATS
from gpu_utils.model.corpus import load_corpus
from gpu_utils.model.fp8_linear import CONVERTED, converted
from gpu_utils.model.fp8_recipes import RECIPES
from gpu_utils.model.fp8_training import WIDE
from gpu_utils.model.gpt2 import GPT2
from gpu_utils.model.training import Batches, TrainConfig, batch_loss, training_steps


def trained_gpt2(config: TrainConfig = WIDE) -> tuple[GPT2, Batches]:
    """A small GPT-2 after the steps of `config`, on the CPU, and batches that it has not seen.

    Seconds on one core. The same versions of torch give the same weights.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = GPT2(config.model)
    corpus = load_corpus(config.corpus)
    for _ in training_steps(model, Batches(corpus.train, config, model.device, config.seed), config):
        pass
    return model, Batches(corpus.val, config, model.device, 0)


def layer_operands(model: GPT2, inputs: Tensor, targets: Tensor) -> dict[str, dict[str, Tensor]]:
    """The operands of each linear layer of the blocks in one training step: "h.0.mlp.c_fc" -> {"x", "w", "dy"}.

    inputs, targets  int64 (batch, positions), as `Batches.draw` gives them
    x   (tokens, in), w (out, in), dy (tokens, out), float32. Products are those of the recipe "bf16"
    """
    twin, _ = converted(model, RECIPES["bf16"])
    found: dict[str, dict[str, Tensor]] = {}

    def note(name: str, layer: nn.Linear) -> None:
        def forward(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            found[name] = {"x": given[0].detach().flatten(0, -2), "w": layer.weight.detach()}

        def backward(_: nn.Module, __: object, grads: tuple[Tensor, ...]) -> None:
            found[name]["dy"] = grads[0].detach().flatten(0, -2)

        layer.register_forward_pre_hook(forward)
        layer.register_full_backward_hook(backward)

    for number, block in enumerate(twin.h):
        for part in CONVERTED:
            layer = block.get_submodule(part)
            assert isinstance(layer, nn.Linear)
            note(f"h.{number}.{part}", layer)
    batch_loss(twin, inputs, targets).backward()
    return found


def mx_codes(x: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix (rows, K), K a multiple of 32, in MXFP8: (codes, scales), uint8 (rows, K) and (rows, K / 32).

    The codes are E4M3, the scales E8M0: what `tl.dot_scaled` takes.
    """
    found = BLOCK_FORMATS["MXFP8"].encode(x.numpy())
    return torch.from_numpy(found.codes), torch.from_numpy(found.scales)
