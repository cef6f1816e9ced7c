"""The solutions of unit 06 in a GPT-2: its training step on both vendors, and text, as torch has them."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.backends.own_generation import generated
from gpu_utils.backends.swapped_step import own_kernels_in_gpt2, step_on
from gpu_utils.course.sources import load_solution
from gpu_utils.errors import BadArgument
from gpu_utils.model.gpt2 import GPT2, GPT2Config, generate
from tests.content.test_u05_gpt2 import own


@pytest.fixture(scope="module")
def forward():
    return load_solution("06.forward")


@pytest.mark.parametrize(("target", "positions", "times_the_bytes"), [("sm_80", 16, 1.8), ("gfx942", 64, 4.5)])
def test_attention_of_the_solutions_trains_a_gpt2_as_torch_does_in_the_same_type(
    target, positions, times_the_bytes, forward
):
    given = {"attention": (forward, load_solution("06.backward"))}
    (row,) = own_kernels_in_gpt2((target,), positions, **given).values()
    assert row["loss off"] < 1e-3
    assert row["gradients off"] < 2 * row["torch's off"] < 0.1
    assert row["launches, own"] < row["launches, torch"] == 2 * (8 + 7)  # of two layers, forward and backward
    assert row["bytes, torch"] > times_the_bytes * row["bytes, own"]


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_the_solutions_of_units_04_to_06_together_train_a_gpt2_as_torch_does(target, forward):
    given = own() | {"attention": (forward, load_solution("06.backward"))}
    del given["softmax"]  # of the attention that this one replaces
    step = step_on(target, **given)
    assert step.loss_off < 1e-3
    assert step.gradient_off < 2 * step.torch_off < 0.1  # in bfloat16
    assert step.own.launches < step.torch.launches


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    model = GPT2(GPT2Config(vocab_size=300, n_positions=64, n_embd=64, n_layer=2, n_head=2))
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn(weight.shape)
    return model


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_text_by_own_kernels_is_the_text_of_torch(target, model, forward):
    prompt = list(range(35))
    found = generated(model, prompt, 20, forward=forward, decode=load_solution("06.decode"), target=target)
    assert found.tokens == generate(model, torch.tensor([prompt]), 20, temperature=0)[0].tolist()
    assert found.different == 0
    assert 0 < found.logits_off < 0.01
    assert found.launches["forward_kernel"] == 2
    assert sum(found.launches.values()) == 2 + 19 * 2 * 2


def attention(q, k, v, causal, scale):
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    return o, None


def decoding(q, k, v, lengths, splits):
    assert (q.dtype, lengths.dtype, k.shape) == (torch.float16, torch.int32, (1, 64, 2, 32))
    q, k, v = q[:, :, None], k[:, : int(lengths[0])].transpose(1, 2), v[:, : int(lengths[0])].transpose(1, 2)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)[:, :, 0]


def test_drawn_text_is_the_one_of_torch_with_the_same_luck_and_another_with_another(model):
    own = {"forward": attention, "decode": decoding, "temperature": 20.0}
    found = [generated(model, [1, 2, 3], 20, seed=seed, **own) for seed in (0, 0, 1)]
    assert [text.different for text in found] == [0, 0, 0]
    assert found[0] == found[1]
    assert found[0].tokens != found[2].tokens
    assert found[0].launches == {}


def test_a_wrong_decoding_is_seen(model):
    found = generated(model, [1, 2, 3], 20, forward=attention, decode=lambda q, *_: q)
    assert found.different > 5
    assert found.logits_off > 0.1


def test_heads_that_the_exercise_is_not_written_for_are_refused():
    model = GPT2(GPT2Config(vocab_size=16, n_positions=8, n_embd=32, n_layer=1, n_head=2))
    with pytest.raises(BadArgument, match="have 16 elements"):
        generated(model, [1], 2, forward=attention, decode=decoding)
