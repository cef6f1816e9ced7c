"""A learner's own FP8 recipe on unit 01's text: its losses beside bfloat16's, and what its scales made of matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gpu_utils.exercises.u08_fp8.train_model import LARGEST, OPERANDS, Passes, calling, noting, train_in_bfloat16
from gpu_utils.model.corpus import load_corpus
from gpu_utils.model.device import default_device, one_thread
from gpu_utils.model.fp8_training import WIDE
from gpu_utils.model.gpt2 import GPT2
from gpu_utils.model.training import Batches, validation_loss

RATE, STEPS, STEADY = 1e-3, 60, 8


@dataclass
class OwnTraining:
    """What came of it.

    rows     name of the run -> its losses in nats per token: of the first and the last batch, and of validation text
    history  layer -> operand -> figure -> a number for each pass: amax, scale, and the shares of elements that were cut
             off at the largest number ("saturated") and that became 0 ("underflowed")
    """

    model: GPT2
    batch: Tensor
    rows: dict[str, dict[str, float]]
    history: Passes = field(default_factory=dict)

    @property
    def nearest(self) -> dict[str, dict[str, list[float]]]:
        """The layer's operand that came nearest to the largest number of its scale after the first steps."""

        def reach(key: tuple[str, str]) -> float:
            found = self.history[key[0]][key[1]]
            pairs = zip(found["amax"][STEADY:], found["scale"][STEADY:], strict=True)
            return max((amax / (scale * LARGEST) for amax, scale in pairs), default=0.0)

        layer, operand = max(((layer, operand) for layer in self.history for operand in OPERANDS), key=reach)
        return {f"{operand} of {layer}": self.history[layer][operand]}

    def operands(self, layer: str) -> tuple[Tensor, Tensor]:
        """x (tokens, K) that enters a layer of the trained model, of one sequence, and its weight (N, K).

        bfloat16, on the CPU: for virtual GPUs, also where a real one has trained.
        """
        found: list[Tensor] = []
        module = self.model.get_submodule(layer)
        with torch.no_grad(), module.register_forward_pre_hook(lambda _, given: found.append(given[0])):
            self.model(self.batch[:1])
        weight = module.get_parameter("weight").detach()
        return found[0][0].to("cpu", torch.bfloat16), weight.to("cpu", torch.bfloat16)


def own_fp8_training(train: Callable[..., Any]) -> OwnTraining:
    """Train a GPT-2 of two layers and width 128 by an answer to 08.train, and once more in bfloat16.

    Both start from the same weights and see the same 60 batches. About ten seconds on one CPU core.
    """
    with one_thread():
        return _both(train)


def _both(train: Callable[..., Any]) -> OwnTraining:
    device, corpus = default_device(), load_corpus(WIDE.corpus)
    drawn = Batches(corpus.train, WIDE, device, seed=0)
    batches = [drawn.draw() for _ in range(STEPS)]
    history: Passes = {}

    def fresh() -> GPT2:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return calling(GPT2(WIDE.model).to(device))

    def losses_of(model: GPT2, losses: list[float]) -> dict[str, float]:
        return {"first loss": losses[0], "last loss": losses[-1], "validation": validation_loss(model, corpus, WIDE)}

    model, in_bfloat16, trained = fresh(), fresh(), fresh()
    parameters = dict(model.named_parameters())
    losses, _ = train(model=model, batches=batches, rate=RATE, linear=noting(model, history))
    trained.load_state_dict(parameters)  # measured in float32, whatever stands in place of the model's layers
    yardstick = train_in_bfloat16(in_bfloat16, batches, RATE)
    rows = {"your recipe": losses_of(trained, losses), "bfloat16": losses_of(in_bfloat16, yardstick)}
    ratio = rows["your recipe"]["validation"] / rows["bfloat16"]["validation"]
    rows["your recipe"]["gap in %"] = 100 * (ratio - 1)
    rows["bfloat16"]["gap in %"] = 0.0
    return OwnTraining(trained, batches[0][0], rows, history)
