"""The small DeepSeek: its config.json, its weights both ways with transformers, its costs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gpu_utils.analytic.tolerance import tolerance
from gpu_utils.model.deepseek import ConfigError, DeepSeek, DeepSeekConfig, from_config, to_config
from gpu_utils.model.deepseek_costs import dense_of_equal_activity, forward_flops, parameters
from gpu_utils.model.deepseek_weights import as_transformers, load, load_transformers, mtp_of_transformers, save

SHAPE = replace(DeepSeekConfig.preset("cpu"), dense_layers=1, groups=4, keep=2, k=3, route_scale=2.5)
BOUND = tolerance(torch.float32, k=SHAPE.dense_width, roundings=12 * SHAPE.layers)


@pytest.fixture
def model():
    torch.manual_seed(0)
    found = DeepSeek(SHAPE)
    for weight in found.parameters():
        torch.nn.init.normal_(weight, std=0.15) if weight.dim() > 1 else torch.nn.init.uniform_(weight, 0.5, 1.5)
    for _, moe in found.moes():
        moe.gate.e_score_correction_bias.uniform_(-0.1, 0.1)
    return found


def near(one, other):
    return float((one - other).norm() / other.norm()) < BOUND.rtol + BOUND.atol


@torch.no_grad()
def test_logits_and_layers_agree_with_transformers_both_ways(model):
    tokens = torch.randint(SHAPE.vocab_size, (2, 50))
    theirs = as_transformers(model)
    assert near(model(tokens), theirs(tokens).logits)
    assert load_transformers(theirs, SHAPE)(tokens).equal(model(tokens))
    x = torch.randn(2, 50, SHAPE.width)
    block, other = model.layers[2], theirs.model.layers[2]
    assert near(block.mlp(x), other.mlp(x))
    places = torch.arange(50).unsqueeze(0)
    mask = torch.full((50, 50), -torch.inf).triu(1)[None, None]
    found = other.self_attn(x, position_embeddings=theirs.model.rotary_emb(x, places), attention_mask=mask)[0]
    assert near(block.self_attn(x, model.cos[:50], model.sin[:50]), found)


@torch.no_grad()
def test_the_module_of_mtp_agrees_with_transformers(model):
    pytest.importorskip("transformers.modeling_layers").MtpModel  # noqa: B018
    tokens = torch.randint(SHAPE.vocab_size, (2, 50))
    theirs = as_transformers(model)
    hidden, places = model.hidden(tokens)[:, :-1], torch.arange(49).unsqueeze(0)
    given = theirs.model.embed_tokens(tokens[:, 1:])
    found = mtp_of_transformers(model, theirs).layers[0](
        given,
        hidden,
        position_embeddings=theirs.model.rotary_emb(given, places),
        attention_mask=torch.full((49, 49), -torch.inf).triu(1)[None, None],
        position_ids=places,
        past_key_values=None,
    )
    assert near(model.second_logits(hidden, tokens[:, 1:]), theirs.lm_head(found))


@torch.no_grad()
def test_a_folder_is_read_by_us_and_by_transformers(model, tmp_path):
    from transformers import DeepseekV3ForCausalLM

    tokens = torch.randint(SHAPE.vocab_size, (1, 20))
    assert load(save(model, tmp_path))(tokens).equal(model(tokens))
    assert from_config(tmp_path) == SHAPE
    theirs = DeepseekV3ForCausalLM.from_pretrained(tmp_path)
    assert near(model(tokens), theirs(tokens).logits)
    theirs.save_pretrained(tmp_path / "theirs")
    assert from_config(tmp_path / "theirs") == SHAPE


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sliding_window": 4}, "keys that this model does not know: sliding_window"),
        ({"kv_lora_rank": None}, "kv_lora is None"),
        ({"rope_scaling": {"type": "yarn"}}, "has rope_scaling"),
        ({"model_type": "llama"}, "model_type 'llama'"),
        ({"num_key_value_heads": 1}, "num_key_value_heads 1"),
        ({"n_group": 3}, "8 experts in 3 groups"),
    ],
)
def test_a_config_of_another_model_is_refused(change, said, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(to_config(SHAPE) | change))
    with pytest.raises(ConfigError, match=said):
        from_config(tmp_path)


def test_a_key_that_is_missing_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "deepseek_v3", "hidden_size": 8}))
    with pytest.raises(ConfigError, match="lacks vocab_size"):
        from_config(tmp_path)


@pytest.mark.parametrize("config", [SHAPE, dense_of_equal_activity(SHAPE), replace(SHAPE, mtp_depth=0, q_lora=None)])
def test_flops_and_parameters_by_formula_are_those_counted(config):
    model, tokens = DeepSeek(config), torch.zeros((2, 16), dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model.losses(tokens, tokens).total().backward()
    assert counter.get_total_flops() == 3 * forward_flops(config, 2, 16)
    assert sum(part.total for part in parameters(config).values()) == sum(p.numel() for p in model.parameters())
