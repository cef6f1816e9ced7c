"""FLOP and bytes of GPT-2's operators against what PyTorch counts and moves."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from gpu_utils.analytic.operators import gpt2_operators
from gpu_utils.analytic.roofline import roofline
from gpu_utils.errors import BadArgument
from gpu_utils.model.costs import flops_per_token, kv_cache_bytes, param_count
from gpu_utils.model.gpt2 import GPT2, GPT2Config

SMALL = GPT2Config(vocab_size=320, n_positions=64, n_embd=64, n_layer=2, n_head=4)


def matrix_flops(operators) -> int:
    return sum(op.count * op.flops for op in operators if op.matrix)


@pytest.mark.parametrize("fused", [True, False])
def test_matrix_products_are_the_flop_that_pytorch_counts(fused):
    """PyTorch does not count its fused attention on a CPU; the products are the same."""
    model, x = GPT2(SMALL, attention="explicit"), torch.zeros(3, 40, dtype=torch.int64)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(x)
    assert matrix_flops(gpt2_operators(SMALL, 3, 40, fused=fused)) == counter.get_total_flops()


def test_decoding_one_token_is_the_flop_that_pytorch_counts():
    model = GPT2(SMALL, attention="explicit")
    with torch.no_grad():
        cache = model.new_cache(5)
        model(torch.zeros(5, 29, dtype=torch.int64), cache)
        with FlopCounterMode(display=False) as counter:
            model(torch.zeros(5, 1, dtype=torch.int64), cache)
    assert matrix_flops(gpt2_operators(SMALL, 5, 1, context=30)) == counter.get_total_flops()


@pytest.mark.parametrize("fused", [True, False])
def test_the_sum_is_a_third_of_what_training_on_a_token_costs(fused):
    config = GPT2Config.preset("gpt2")
    assert 3 * matrix_flops(gpt2_operators(config, 1, 1024, fused=fused)) == 1024 * flops_per_token(config, 1024)


class Moved(TorchDispatchMode):
    """Bytes of the tensors that each kind of operator reads and writes; of several results only the first."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function._schema.name.removeprefix("aten::")
        first = result[0] if isinstance(result, tuple) else result
        tensors = [t for t in (*args, first) if torch.is_tensor(t)]
        if tensors:
            self.bytes[name] += sum(t.numel() * t.element_size() for t in tensors)
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes_are_those_of_the_tensors_that_pytorch_reads_and_writes(dtype):
    model, x = GPT2(SMALL, attention="explicit").to(dtype), torch.zeros(3, 40, dtype=torch.int64)
    with torch.no_grad(), Moved() as moved:
        model(x)
    ours = {
        op.name: op.count * op.bytes for op in gpt2_operators(SMALL, 3, 40, bytes_per_value=dtype.itemsize, fused=False)
    }
    assert moved.bytes["addmm"] == sum(ours[name] for name in ("qkv", "projection", "MLP up", "MLP down"))
    assert moved.bytes["mm"] == ours["logits"]
    assert moved.bytes["bmm"] == ours["scores"] + ours["values"]
    assert moved.bytes["_softmax"] == ours["softmax"]
    assert moved.bytes["gelu"] == ours["GELU"]
    assert moved.bytes["native_layer_norm"] == ours["norm"]


def test_decoding_is_memory_bound_on_every_chip_and_a_long_prompt_is_not():
    config = GPT2Config.preset("gpt2")
    for chip in ("A100", "H100", "MI300X", "RX 7900 XTX"):
        roof = roofline(chip, "bf16")
        decoding = gpt2_operators(config, batch=1, tokens=1, context=1024)
        prompt = {op.name: op for op in gpt2_operators(config, batch=16, tokens=1024)}
        assert {roof.bound(op.intensity) for op in decoding} == {"memory"}
        assert roof.bound(prompt["MLP up"].intensity) == "compute"
        assert {roof.bound(prompt[name].intensity) for name in ("norm", "GELU", "residual")} == {"memory"}


def test_decoding_reads_about_the_weights_and_the_cache():
    config = GPT2Config.preset("gpt2")
    moved = sum(op.count * op.bytes for op in gpt2_operators(config, 1, 1, context=1024, bytes_per_value=2))
    assert moved == pytest.approx(
        2 * param_count(config) + kv_cache_bytes(config, 1, 1024, bytes_per_value=2), rel=0.02
    )


def test_what_cannot_be_is_one_sentence():
    with pytest.raises(BadArgument, match="tokens is 0; expected 1 or more"):
        gpt2_operators(SMALL, 1, 0)
    with pytest.raises(BadArgument, match="the context of 3 tokens is shorter than the 4 new ones"):
        gpt2_operators(SMALL, 1, 4, context=3)
