"""Latent attention: the references against transformers' DeepseekV3Attention, and how the cache's expansion is seen."""

from __future__ import annotations

import pytest
import torch

from gpu_utils import exercises
from gpu_utils.course.sources import load_solution
from gpu_utils.exercises.u10_mla_moe.latents import Sizes, attention_reference, drawn_mla
from gpu_utils.exercises.u10_mla_moe.mla import mla_reference
from gpu_utils.exercises.u10_mla_moe.written import BOTH, LITTLE, Written, most_written

SIZES = Sizes(heads=4, width=40, q_rank=24, rank=20, nope=12, rope=6, value=10)
THETA, EPS = 10_000.0, 1e-6
WEIGHTS = drawn_mla(**vars(SIZES))


def published(interleaved: bool = True):
    """A layer of transformers with the same weights, in float64, and its table of rotations."""
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

    config = DeepseekV3Config(
        hidden_size=SIZES.width,
        num_attention_heads=SIZES.heads,
        num_key_value_heads=SIZES.heads,
        q_lora_rank=SIZES.q_rank,
        kv_lora_rank=SIZES.rank,
        qk_nope_head_dim=SIZES.nope,
        qk_rope_head_dim=SIZES.rope,
        v_head_dim=SIZES.value,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        rope_interleave=interleaved,
        attn_implementation="eager",
    )
    layer = DeepseekV3Attention(config, 0).double().eval()
    found = {name: tuple(tensor.shape) for name, tensor in layer.state_dict().items()}
    assert found == {f"{name}.weight": shape for name, shape in SIZES.shapes.items()}
    layer.load_state_dict({f"{name}.weight": weight.double() for name, weight in WEIGHTS.items()})
    assert {layer.q_a_layernorm.variance_epsilon, layer.kv_a_layernorm.variance_epsilon} == {EPS}
    return layer, DeepseekV3RotaryEmbedding(config)


def by_transformers(x: torch.Tensor, interleaved: bool = True):
    from transformers import DynamicCache

    layer, rotations = published(interleaved)
    T, cache = x.shape[1], DynamicCache()
    mask = torch.full((T, T), -torch.inf, dtype=torch.float64).triu(1)[None, None]
    with torch.no_grad():
        y, _ = layer(x, rotations(x, torch.arange(T)[None]), mask, past_key_values=cache)
    return y, cache.layers[0].keys.squeeze(1), cache.layers[0].values.squeeze(1)


X = torch.randn(2, 9, SIZES.width, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def test_the_reference_is_transformers_attention_with_its_cache_and_interleaved_pairs():
    y, latent, k_rope = mla_reference(X, WEIGHTS, SIZES.heads, THETA, EPS)
    theirs, their_latent, their_rope = by_transformers(X)
    torch.testing.assert_close(y, theirs, rtol=1e-5, atol=1e-5)  # they make their angles in float32
    torch.testing.assert_close(latent, their_latent, rtol=1e-5, atol=1e-6)
    apart = torch.cat([k_rope[..., 0::2], k_rope[..., 1::2]], -1)  # transformers keeps first members first
    torch.testing.assert_close(apart, their_rope, rtol=1e-5, atol=1e-5)


def test_pairs_of_halves_are_another_attention():
    y, *_ = mla_reference(X, WEIGHTS, SIZES.heads, THETA, EPS)
    assert (y - by_transformers(X, interleaved=False)[0]).abs().max() > 1e-2


def test_the_solution_is_transformers_attention_too():
    y, *_ = load_solution("10.mla")(X.float(), WEIGHTS, SIZES.heads, THETA, EPS)
    torch.testing.assert_close(y.double(), by_transformers(X)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("past", [0, 1, 6])
def test_decoding_in_two_parts_gives_the_last_rows_of_the_whole(past):
    whole = mla_reference(X, WEIGHTS, SIZES.heads, THETA, EPS)
    _, latent, k_rope = (part[:, :past] for part in whole)
    y, *cache = attention_reference(X[:, past:], latent, k_rope, WEIGHTS, SIZES.heads, THETA, EPS)
    torch.testing.assert_close(y, whole[0][:, past:])
    for found, expected in zip(cache, whole[1:], strict=True):
        torch.testing.assert_close(found, expected)
    absorbed = load_solution("10.mla_absorb")
    y, *_ = absorbed(X[:, past:].float(), latent.float(), k_rope.float(), WEIGHTS, SIZES.heads, THETA, EPS)
    torch.testing.assert_close(y.double(), whole[0][:, past:], rtol=1e-4, atol=1e-4)


def test_views_and_reserved_memory_are_not_written_and_everything_else_is():
    x = torch.ones(4, 5)
    with Written(large=20) as seen:
        x.view(20).unsqueeze(0).expand(7, 20)
        torch.empty(100)
    assert (seen.total, seen.tensors) == (0, [])
    with Written(large=20) as seen:
        x + 1
        x.new_zeros(3).add_(1)
        x @ torch.ones(5, 2)
    assert (seen.total, seen.tensors) == (20 + 3 + 3 + 10 + 8, [20])


@pytest.mark.parametrize(("name", "expected"), [("expands_the_cache", BOTH), ("no_scale", LITTLE)])
def test_what_is_written_tells_expanding_from_absorbing_by_a_wide_margin(name, expected):
    exercise = exercises.find("10.mla_absorb")
    (case,) = (case for case in exercise.cases if case.get("cached", 0) >= 512)
    inputs = exercise.inputs(case, torch.Generator().manual_seed(0))
    (wrong,) = (one for one in exercise.misconceptions if one.name == name)
    assert exercise.call(wrong.answer, inputs)["written"] == expected
    with Written(large=10**9) as seen:
        wrong.answer(**inputs)
    sizes = Sizes.of(inputs["weights"], inputs["heads"])
    weights = sum(weight.numel() for weight in inputs["weights"].values())
    share = seen.total / (2 * most_written(1025, 1, vars(sizes), weights))
    assert share > 1.4 if expected == BOTH else share < 0.7
