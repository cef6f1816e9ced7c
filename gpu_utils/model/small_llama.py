"""A Llama of `transformers`, small enough to train while one watches: what a port is compared with.

It has what ports go wrong in: rotary positions, RMSNorm, a tanh GELU, a causal mask, scaled scores, and an output
projection of attention that is square. All heads have keys of their own.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpu_utils.model.corpus import load_corpus
from gpu_utils.model.device import one_thread
from gpu_utils.model.fp8_training import SHORT
from gpu_utils.model.port_faults import FAULTS, Planted, plant_fault
from gpu_utils.model.training import Batches, learning_rate

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

_SHAPE: dict[str, Any] = {
    "vocab_size": 1024, "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "attn_implementation": "eager",
}  # fmt: skip

_BATCHES = replace(SHORT, batch=8, seq_len=64)


def trained_llama(steps: int = 150, seed: int = 0) -> tuple[LlamaForCausalLM, tuple[Tensor, Tensor]]:
    """The model after so many steps on the CPU, and a batch that it has not seen: tokens, targets, int64 (32, 64).

    Three seconds on one core. The same versions of torch and transformers give the same weights.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**_SHAPE))
    corpus = load_corpus(_BATCHES.corpus)
    batches = Batches(corpus.train, _BATCHES, torch.device("cpu"), seed)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), fused=True)
    with one_thread():
        for step in range(steps):
            rate = learning_rate(step, warmup=20, total=steps, max_lr=3e-3, min_lr=3e-4)
            for group in optimizer.param_groups:
                group["lr"] = rate
            tokens, targets = batches.draw()
            F.cross_entropy(model(tokens).logits.flatten(0, 1), targets.flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return model.eval(), Batches(corpus.val, replace(_BATCHES, batch=32), torch.device("cpu"), 0).draw()


@torch.no_grad()
def logits_of(model: nn.Module, tokens: Tensor) -> Tensor:
    """The logits of a model of `transformers`: tokens (batch, T) int64 -> (batch, T, vocabulary)."""
    with one_thread():
        return model(tokens).logits


def broken_ports(model: nn.Module, seed: int) -> dict[str, tuple[nn.Module, Planted]]:
    """Copies of a model with one fault each, for all of `FAULTS`: fault -> (the copy, what was done where)."""
    ports = {}
    for fault in FAULTS:
        port = copy.deepcopy(model)
        ports[fault] = (port, plant_fault(port, fault, seed))
    return ports
