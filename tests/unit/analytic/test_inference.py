"""KV caches, weights and activations against tensors that transformers and our GPT-2 really make."""

from __future__ import annotations

import weakref

import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpu_utils.analytic.inference import (
    GB,
    MODELS,
    activation_bytes,
    gqa,
    largest_batch,
    largest_context,
    mha,
    mla,
    mqa,
    plan,
)
from gpu_utils.chips import CHIPS
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.model.gpt2 import GPT2, GPT2Config

CONFIGS = {
    "GPT-2": transformers.GPT2Config,
    "Llama-7B": transformers.LlamaConfig,
    "Falcon-7B": transformers.FalconConfig,
    "Mistral-7B": transformers.MistralConfig,
    "DeepSeek-V3": transformers.DeepseekV3Config,
}


def bytes_of(cache: transformers.Cache) -> int:
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        (transformers.GPT2Config(n_layer=2, n_embd=96, n_head=6, vocab_size=50), mha(2, 6, 16)),
        (
            transformers.LlamaConfig(
                num_hidden_layers=3,
                hidden_size=64,
                intermediate_size=96,
                num_attention_heads=8,
                num_key_value_heads=2,
                vocab_size=50,
            ),
            gqa(3, 2, 8),
        ),
        (
            transformers.FalconConfig(num_hidden_layers=2, hidden_size=64, num_attention_heads=4, vocab_size=50),
            mqa(2, 16),
        ),
    ],
    ids=["MHA", "GQA", "MQA"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_cache_of_a_transformers_model_has_the_counted_bytes(config, shape, dtype):
    model = transformers.AutoModelForCausalLM.from_config(config).to(dtype).eval()
    with torch.no_grad():
        cache = model(torch.zeros(3, 7, dtype=torch.int64), use_cache=True).past_key_values
    assert bytes_of(cache) == shape.total(batch=3, context=7, bytes_per_value=dtype.itemsize)


def test_what_mla_compresses_to_is_what_its_projection_makes_for_a_token():
    """transformers keeps the expanded keys and values; what has to be kept is the output of kv_a_proj_with_mqa."""
    config = transformers.DeepseekV3Config()
    with torch.device("meta"):
        attention = transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3Attention(config, layer_idx=0)
    kept = attention.kv_a_proj_with_mqa.out_features
    assert mla(61, config.kv_lora_rank, config.qk_rope_head_dim).values == kept == MODELS["DeepSeek-V3"].cache.values


def test_kilobytes_of_a_token_are_those_of_the_paper_on_deepseek_v3():
    """ "Insights into DeepSeek-V3", arXiv 2505.09343: 70, 327 (Qwen2.5-72B) and 516 KB (Llama-405B), in bf16."""
    assert mla(61, 512, 64).per_token() == 70_272
    assert gqa(80, 8, 128).per_token() == 327_680
    assert gqa(126, 8, 128).per_token() == 516_096


@pytest.mark.parametrize("name", list(MODELS))
def test_shapes_and_parameters_of_the_models_are_those_of_transformers(name):
    config, model = CONFIGS[name](), MODELS[name]
    with torch.device("meta"):
        made = transformers.AutoModelForCausalLM.from_config(config)
    assert sum({id(p): p.numel() for p in made.parameters()}.values()) == model.parameters
    assert (model.width, model.vocab) == (config.hidden_size, config.vocab_size)
    assert model.cache.layers == config.num_hidden_layers
    hidden = {
        "GPT-2": 4 * config.hidden_size,
        "Falcon-7B": getattr(config, "ffn_hidden_size", None),
    }.get(name, getattr(config, "intermediate_size", None))
    assert model.hidden == hidden


class Peak(TorchDispatchMode):
    """The most bytes of tensors that are alive at once, of those that were made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, int] = {}
        self.most = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        given_before = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if torch.is_tensor(leaf)}
        for tensor in tree_leaves(result):
            if torch.is_tensor(tensor) and (storage := tensor.untyped_storage())._cdata not in {
                *self.alive,
                *given_before,
            }:
                self.alive[storage._cdata] = storage.nbytes()
                weakref.finalize(storage, self.alive.pop, storage._cdata, None)
        self.most = max(self.most, sum(self.alive.values()))
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("batch", "tokens", "vocab"), [(2, 64, 100), (1, 128, 3000), (5, 16, 64)])
def test_activations_are_what_is_alive_at_the_widest_point_of_our_gpt2(dtype, batch, tokens, vocab):
    config = GPT2Config(vocab_size=vocab, n_positions=128, n_embd=96, n_layer=3, n_head=4)
    model = GPT2(config).to(dtype)
    x = torch.zeros(batch, tokens, dtype=torch.int64)
    with torch.inference_mode(), Peak() as peak:
        model(x)
    ours = activation_bytes(batch * tokens, 96, 384, dtype.itemsize, logits=batch * tokens * vocab)
    assert peak.most == pytest.approx(ours, rel=0.02)


@pytest.mark.parametrize("kind", [transformers.LlamaConfig, transformers.MistralConfig])
def test_a_gated_mlp_keeps_one_more_vector_alive(kind):
    """transformers also keeps the rotations of the positions and one more copy of the stream: at most a tenth more."""
    config = kind(
        num_hidden_layers=3,
        hidden_size=64,
        intermediate_size=400,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=50,
    )
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.inference_mode(), Peak() as peak:
        model(torch.zeros(2, 100, dtype=torch.int64), use_cache=False)
    ours = activation_bytes(200, 64, 400, 4, gated=True)
    assert ours <= peak.most <= 1.1 * ours


def test_what_fits_ends_where_one_more_does_not():
    for chip in ("RX 7900 XTX", "H100", "H200", "MI300X"):
        for name in ("GPT-2", "Llama-7B", "Falcon-7B", "Mistral-7B"):
            batch = largest_batch(chip, MODELS[name], 4096)
            assert plan(chip, MODELS[name], batch, 4096).fits
            assert not plan(chip, MODELS[name], batch + 1, 4096).fits
            context = largest_context(chip, MODELS[name], 8)
            assert plan(chip, MODELS[name], 8, context).fits
            assert not plan(chip, MODELS[name], 8, context + 1).fits


def test_a_plan_adds_up_and_takes_the_memory_of_the_registry():
    found = plan("MI300X", MODELS["Llama-7B"], 16, 2048, weight_bytes=1, cache_bytes=1)
    assert found.weights == MODELS["Llama-7B"].parameters
    assert found.cache == 16 * 2048 * 32 * 2 * 4096
    assert found.capacity == CHIPS["MI300X"].memory_gb.value * GB
    assert found.free == found.capacity - found.weights - found.cache - found.activations
    assert plan("MI300X", MODELS["Llama-7B"], 16, 2048, chips=8).capacity == 8 * found.capacity


def test_weights_alone_can_be_too_much():
    assert largest_batch("H200", MODELS["DeepSeek-V3"], 4096, weight_bytes=1) == 0
    assert largest_batch("H100", MODELS["DeepSeek-V3"], 4096, weight_bytes=1, chips=8) == 0, "671 GB into 640"
    assert largest_batch("MI300X", MODELS["DeepSeek-V3"], 4096, weight_bytes=1, chips=8) > 0


def test_one_compressed_vector_leaves_room_for_more_sequences_than_all_heads():
    with_all_heads = mha(61, 128, 128)
    assert with_all_heads.per_token() / MODELS["DeepSeek-V3"].cache.per_token() == pytest.approx(56.9, abs=0.1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: mha(12, 0, 64), BadArgument, "heads is 0; expected more than 0"),
        (lambda: mla(61, 512, -1), BadArgument, "rope is -1"),
        (lambda: mqa(1, 64).total(-1, 5), BadArgument, "batch is -1; expected 0 or more"),
        (lambda: plan("H100", MODELS["GPT-2"], 1, 1, chips=0), BadArgument, "chips is 0"),
        (lambda: plan("H1000", MODELS["GPT-2"], 1, 1), UnknownName, "did you mean 'H100'"),
    ],
)
def test_what_cannot_be_is_one_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call()
