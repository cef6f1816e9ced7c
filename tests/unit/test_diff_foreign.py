"""`w2w diff` on ports that are not ours: models of transformers, six faults planted by a seed, and honest pairs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from gpu_utils.errors import BadArgument
from gpu_utils.model.activations import recording_of
from gpu_utils.model.gpt2 import load_transformers
from gpu_utils.model.port_diff import port_diff, recordings_diff
from gpu_utils.model.port_faults import FAULTS, plant_fault

SEEDS = range(3)
TOKENS = torch.randint(97, (2, 12), generator=torch.Generator().manual_seed(5))
INPUTS = {"input_ids": TOKENS}

OPERATORS = {
    "rope base": ("mul",),  # positions times the frequencies
    "eps": ("add", "native_layer_norm"),
    "gelu": ("gelu", "mul"),  # erf is one operator, the tanh of transformers ends in a product
    "mask": ("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math_for_mps", "add"),
    "scale": ("_scaled_dot_product_flash_attention_for_cpu", "mul"),
    "transposed weight": ("mm", "addmm"),
}


def llama(**more):
    torch.manual_seed(1)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=97,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            hidden_act="gelu",
            **more,
        )
    ).eval()


def gpt2(**more):
    torch.manual_seed(2)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=97,
            n_positions=64,
            n_embd=32,
            n_layer=3,
            n_head=4,
            bos_token_id=None,
            eos_token_id=None,
            **more,
        )
    ).eval()


MODELS = {"llama": llama, "gpt2": gpt2}
CASES = [(name, fault) for name in MODELS for fault in FAULTS if (name, fault) != ("gpt2", "rope base")]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are tiny
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def recordings():
    return {name: recording_of(make(), INPUTS) for name, make in MODELS.items()}


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_each_fault_is_named_with_its_module_and_operator(name, fault, recordings):
    for seed in SEEDS:
        port = MODELS[name]()
        attention = ("sdpa", "eager")[seed % 2]
        port.set_attn_implementation(attention)
        planted = plant_fault(port, fault, seed)
        found = port_diff(recordings[name], port, INPUTS)
        assert [one.module for one in found.faults] == [planted.module], planted
        assert attention == "eager" or found.faults[0].operator in OPERATORS[fault], found.faults
        assert ".py:" in found.faults[0].line
        (first,) = recordings_diff(recordings[name], recording_of(port, INPUTS)).faults
        assert first.module == planted.module, (planted, first)


def test_two_faults_are_both_named_and_the_first_one_stands_first(recordings):
    port = llama()
    late = plant_fault(port, "transposed weight", 4)
    early = plant_fault(port, "rope base", 0)
    faults = port_diff(recordings["llama"], port, INPUTS).faults
    assert [one.module for one in faults] == [early.module, late.module]


@pytest.mark.parametrize("name", MODELS)
def test_honest_pairs_raise_no_alarm(name, recordings):
    model = MODELS[name]()
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    pairs = {
        "the same": model,
        "eager": eager,
        "bfloat16": copy.deepcopy(model).bfloat16(),
        "float16": copy.deepcopy(model).half(),
        "float64": copy.deepcopy(model).double(),
    }
    for kind, port in pairs.items():
        found = port_diff(recordings[name], port, INPUTS)
        assert found.same, (kind, found.faults)
        assert len(found.rows) > 30
        found = recordings_diff(recordings[name], recording_of(port, INPUTS))
        assert found.same, (kind, found.faults)


def test_a_port_with_other_names_another_layout_of_weights_and_other_attention_agrees(recordings):
    theirs = gpt2()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    ours = load_transformers(theirs).eval()
    found = port_diff(recording_of(theirs, INPUTS), ours, TOKENS)
    assert found.same, found.faults
    assert {row.in_a for row in found.rows} >= {"transformer.h.2.attn.c_attn", "transformer.ln_f"}
    ours.h[1].ln_2.eps = 1e-2
    (fault,) = port_diff(recording_of(theirs, INPUTS), ours, TOKENS).faults
    assert (fault.module, fault.in_a, fault.operator) == ("h.1.ln_2", "transformer.h.1.ln_2", "native_layer_norm")
    theirs.transformer.h[2].mlp.act = nn.GELU()
    fault = port_diff(recording_of(theirs, INPUTS), ours, TOKENS).faults[1]
    assert (fault.module, fault.operator) == ("h.2.mlp", "gelu")  # ours calls no modules within
    assert "F.gelu(" in fault.line


class Fused(nn.Module):
    """q, k and v by one product."""

    def __init__(self, q, k, v):
        super().__init__()
        self.qkv = nn.Linear(q.in_features, q.out_features + k.out_features + v.out_features, bias=False)
        self.qkv.weight = nn.Parameter(torch.cat([q.weight, k.weight, v.weight]))


def fused(model):
    """Llama whose three projections are views of one product."""

    class Part(nn.Module):
        def __init__(self, whole, begin, end):
            super().__init__()
            self.whole, self.begin, self.end = [whole], begin, end

        def forward(self, x):
            return self.whole[0].qkv(x)[..., self.begin : self.end]

    for layer in model.model.layers:
        attention = layer.self_attn
        attention.fused = Fused(attention.q_proj, attention.k_proj, attention.v_proj)
        widths = [one.out_features for one in (attention.q_proj, attention.k_proj, attention.v_proj)]
        ends = torch.tensor(widths).cumsum(0).tolist()
        for name, width, end in zip(("q_proj", "k_proj", "v_proj"), widths, ends, strict=True):
            setattr(attention, name, Part(attention.fused, end - width, end))
    return model


def test_a_fused_projection_is_judged_as_part_of_the_code_around_it(recordings):
    assert port_diff(recordings["llama"], fused(llama()), INPUTS).same
    port = fused(llama())
    with torch.no_grad():
        port.model.layers[2].self_attn.fused.qkv.weight[5] *= 1.01
    (fault,) = port_diff(recordings["llama"], port, INPUTS).faults
    assert fault.module.startswith("model.layers.2.self_attn")


def test_a_model_without_a_place_for_a_fault_says_which_it_has():
    with pytest.raises(BadArgument, match="no place for the fault 'rope base'; try eps, gelu, mask, scale"):
        plant_fault(gpt2(), "rope base", 0)
    with pytest.raises(BadArgument, match="no fault is named 'bias'"):
        plant_fault(gpt2(), "bias", 0)
