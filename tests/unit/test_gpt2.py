import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config as TransformersConfig
from transformers import GPT2LMHeadModel

from gpu_utils.model import gpt2
from gpu_utils.model.costs import (
    activation_bytes,
    flops_per_token,
    kv_cache_bytes,
    param_count,
    saved_bytes,
    state_bytes,
)
from gpu_utils.model.gpt2 import (
    GPT2,
    GPT2Config,
    ModelError,
    causal_attention,
    generate,
    load_transformers,
    to_transformers,
)

# Odd sizes, so that a mixed-up dimension cannot go unseen: 3 heads of 8, 2 layers, a prime vocabulary.
SMALL = GPT2Config(vocab_size=101, n_positions=24, n_embd=24, n_layer=2, n_head=3)


def theirs_like(config, seed=0):
    torch.manual_seed(seed)
    theirs = GPT2LMHeadModel(
        TransformersConfig(
            vocab_size=config.vocab_size,
            n_positions=config.n_positions,
            n_embd=config.n_embd,
            n_layer=config.n_layer,
            n_head=config.n_head,
        )
    ).double()
    for parameter in theirs.parameters():  # their biases start at 0 and norms at 1: a wrong order would not show
        torch.nn.init.normal_(parameter, std=0.3)
    return theirs.eval()


def tokens_for(config, batch=2, length=None, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(config.vocab_size, (batch, length or config.n_positions), generator=generator)


@pytest.mark.parametrize("how", ["explicit", "sdpa"])
def test_logits_and_every_gradient_agree_with_transformers(how):
    theirs = theirs_like(SMALL)
    ours = load_transformers(theirs, attention=how)
    tokens = tokens_for(SMALL)
    want = theirs(tokens).logits
    torch.testing.assert_close(ours(tokens), want, rtol=1e-12, atol=1e-12)

    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    want_loss = F.cross_entropy(theirs(inputs).logits.flatten(0, 1), targets.flatten())  # theirs would round to float32
    want_loss.backward()
    loss = ours.loss(inputs, targets)
    loss.backward()
    torch.testing.assert_close(loss, want_loss, rtol=1e-12, atol=1e-12)
    gradients = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        reference = gradients[f"transformer.{name}"].grad
        if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            reference = reference.T
        torch.testing.assert_close(parameter.grad, reference, rtol=1e-9, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")


def test_weights_survive_the_way_to_transformers_and_back_bit_for_bit():
    torch.manual_seed(3)
    ours = GPT2(SMALL)
    back = load_transformers(to_transformers(ours))
    for name, weight in ours.state_dict().items():
        assert torch.equal(weight, back.state_dict()[name]), name
    tokens = tokens_for(SMALL)
    torch.testing.assert_close(to_transformers(ours)(tokens).logits, ours(tokens), rtol=1e-5, atol=1e-5)


def test_a_state_dict_loads_with_or_without_the_transformer_prefix():
    theirs = theirs_like(SMALL)
    tokens = tokens_for(SMALL)
    state = theirs.state_dict()
    bare = {name.removeprefix("transformer."): w for name, w in state.items()}
    bare["h.0.attn.bias"] = torch.ones(1, 1, 24, 24).tril()  # old checkpoints carry their masks
    for each in (state, bare):
        assert torch.equal(load_transformers(each, n_head=3)(tokens), load_transformers(theirs)(tokens))


def test_weights_that_are_not_a_gpt2_are_refused_in_one_sentence():
    state = theirs_like(SMALL).state_dict()
    with pytest.raises(ModelError, match="number of heads"):
        load_transformers(state)
    with pytest.raises(ModelError, match=r"no wte.weight and wpe.weight"):
        load_transformers({"a": torch.zeros(2)}, n_head=3)
    del state["transformer.h.1.mlp.c_fc.bias"]
    with pytest.raises(ModelError, match=r"h.1.mlp.c_fc.bias"):
        load_transformers(state, n_head=3)


def test_without_a_hub_from_pretrained_says_so(monkeypatch, tmp_path):
    def refuse(*args, **kwargs):
        raise OSError("We couldn't connect to the hub")

    monkeypatch.setattr(GPT2LMHeadModel, "from_pretrained", refuse)
    with pytest.raises(ModelError, match="no hub gave them"):
        gpt2.from_pretrained("gpt2")


def test_from_pretrained_reads_a_folder_that_transformers_wrote(tmp_path):
    torch.manual_seed(0)
    ours = GPT2(SMALL)
    to_transformers(ours).save_pretrained(tmp_path)
    tokens = tokens_for(SMALL)
    torch.testing.assert_close(gpt2.from_pretrained(str(tmp_path))(tokens), ours(tokens), rtol=1e-5, atol=1e-5)


def test_the_functions_on_raw_weights_are_the_block():
    torch.manual_seed(0)
    block = GPT2(SMALL).double().h[1]
    w = dict(block.named_parameters())
    x = torch.randn(2, 7, 24, dtype=torch.float64)

    def at(name, x):
        return gpt2.layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"])

    names = ("attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias")
    y = x + gpt2.attention(at("ln_1", x), *(w[n] for n in names), n_head=3)
    names = ("mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias")
    y = y + gpt2.mlp(at("ln_2", y), *(w[n] for n in names))
    torch.testing.assert_close(y, block(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("T", "S"), [(1, 9), (4, 9), (9, 9)])
def test_both_ways_to_attend_agree_for_queries_at_the_end_of_a_longer_context(T, S):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, 8, dtype=torch.float64) for n in (T, S, S))
    explicit = causal_attention(q, k, v, "explicit")
    torch.testing.assert_close(explicit, causal_attention(q, k, v, "sdpa"), rtol=1e-12, atol=1e-12)
    weights = (q[0, 0, 0] @ k[0, 0, : S - T + 1].T / math.sqrt(8)).softmax(-1)  # first query, by hand
    torch.testing.assert_close(explicit[0, 0, 0], weights @ v[0, 0, : S - T + 1], rtol=1e-12, atol=1e-12)


def test_a_later_token_never_changes_an_earlier_logit():
    torch.manual_seed(0)
    model = GPT2(SMALL).double()
    tokens = tokens_for(SMALL)
    changed = tokens.clone()
    changed[:, 10:] = (changed[:, 10:] + 1) % SMALL.vocab_size
    a, b = model(tokens), model(changed)
    assert torch.equal(a[:, :10], b[:, :10])
    assert not torch.equal(a[:, 10:], b[:, 10:])


def test_decoding_with_the_cache_gives_the_logits_of_a_full_pass():
    torch.manual_seed(0)
    model = GPT2(SMALL).double()
    tokens = tokens_for(SMALL)
    cache = model.new_cache(batch=2)
    pieces = [model(part, cache) for part in tokens.split([5, 1, 3, 1, 14], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), model(tokens), rtol=1e-12, atol=1e-12)
    assert cache.length == 24


def test_generation_is_the_same_with_and_without_the_cache():
    torch.manual_seed(0)
    model = GPT2(SMALL).double()
    tokens = tokens_for(SMALL, length=4)
    greedy = generate(model, tokens, 20, temperature=0)
    assert torch.equal(greedy, generate(model, tokens, 20, temperature=0, use_cache=False))
    assert torch.equal(greedy[:, :4], tokens)
    drawn = [
        generate(model, tokens, 20, top_k=5, generator=torch.Generator().manual_seed(7), use_cache=use)
        for use in (True, False)
    ]
    assert torch.equal(*drawn)


def test_top_k_1_is_greedy():
    torch.manual_seed(0)
    model = GPT2(SMALL).double()
    tokens = tokens_for(SMALL, length=4)
    assert torch.equal(generate(model, tokens, 9, top_k=1), generate(model, tokens, 9, temperature=0))


def test_more_tokens_than_positions_are_refused():
    model = GPT2(SMALL)
    with pytest.raises(ModelError, match="25 tokens are more than the model's 24 learned positions"):
        model(tokens_for(SMALL, length=25))
    with pytest.raises(ModelError, match="25 tokens"):
        generate(model, tokens_for(SMALL, length=20), 6)


def test_a_width_that_does_not_divide_into_heads_is_refused():
    with pytest.raises(ModelError, match="25 does not divide into 3 heads"):
        GPT2Config(vocab_size=101, n_positions=24, n_embd=25, n_layer=2, n_head=3)


def test_the_branches_into_the_residual_stream_start_smaller():
    torch.manual_seed(0)
    model = GPT2(GPT2Config(vocab_size=500, n_positions=64, n_embd=256, n_layer=8, n_head=4))
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            assert not p.any(), name
        elif "ln_" in name:
            assert (p == 1).all(), name
        else:
            std = 0.02 / 4 if name.endswith("c_proj.weight") else 0.02  # sqrt(2 * 8 layers) = 4
            assert p.std().item() == pytest.approx(std, rel=0.03), name


def test_the_output_is_tied_to_the_embedding():
    model = GPT2(SMALL)
    assert sum(p.numel() for p in model.parameters()) == param_count(SMALL)
    assert "lm_head.weight" not in model.state_dict()
    assert to_transformers(model).num_parameters() == param_count(SMALL)


def test_the_124m_preset_has_the_published_number_of_parameters():
    with torch.device("meta"):
        model = GPT2(GPT2Config.preset("gpt2"))
    assert sum(p.numel() for p in model.parameters()) == param_count(model.config) == 124_439_808


def test_the_flop_formula_is_what_pytorch_counts():
    model = GPT2(SMALL, attention="explicit")
    tokens = tokens_for(SMALL, batch=3, length=20)
    with FlopCounterMode(display=False) as counter:
        model.loss(tokens, tokens).backward()
    assert counter.get_total_flops() == flops_per_token(SMALL, 20) * tokens.numel()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("how", ["explicit", "sdpa"])
def test_the_activation_formula_is_within_two_percent_of_what_autograd_keeps(how, dtype):
    config = GPT2Config.preset("cpu")
    model = GPT2(config, attention=how).to(dtype)
    tokens = tokens_for(config, batch=4)
    kept = saved_bytes(model, lambda: model.loss(tokens, tokens))
    counted = activation_bytes(config, 4, config.n_positions, bytes_per_value=dtype.itemsize, scores=how == "explicit")
    assert kept == pytest.approx(counted, rel=0.02)


def test_the_cache_takes_the_bytes_that_are_counted():
    cache = GPT2(SMALL).new_cache(batch=3)
    assert cache.keys.nbytes + cache.values.nbytes == kv_cache_bytes(SMALL, 3, SMALL.n_positions)


def test_weights_gradients_and_moments_take_the_bytes_that_are_counted():
    model = GPT2(SMALL)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = tokens_for(SMALL)
    model.loss(tokens, tokens).backward()
    optimizer.step()
    moments = sum(s["exp_avg"].nbytes + s["exp_avg_sq"].nbytes for s in optimizer.state.values())
    assert state_bytes(SMALL) == {
        "weights": sum(p.nbytes for p in model.parameters()),
        "gradients": sum(p.grad.nbytes for p in model.parameters()),
        "AdamW moments": moments,
    }
