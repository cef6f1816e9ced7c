"""GPT-2 with own kernels in place of torch's operators: what is replaced, that it is right, and what it touches."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from gpu_utils.backends import swapped_step
from gpu_utils.backends.swapped_step import SMALL, own_kernels_in_gpt2, speed_in_gpt2, step_on
from gpu_utils.backends.traffic import Traffic, traffic_of_kernels, traffic_of_torch
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.model.gpt2 import GPT2
from gpu_utils.model.swapped_operators import OPERATORS
from gpu_utils.model.swapping import calls_of, swapped, with_dropout, with_own
from gpu_utils.timing import Ratio, Timing
from gpu_utils.virtual import virtual_gpu
from tests.unit.own_kernels import OWN, gelu


@pytest.fixture(scope="module")
def model():
    return GPT2(SMALL, attention="explicit")


@pytest.fixture(scope="module")
def fused():
    return GPT2(SMALL)


@pytest.fixture(scope="module")
def tokens():
    return torch.randint(SMALL.vocab_size, (4, SMALL.n_positions), generator=torch.Generator().manual_seed(0))


def torchs_layernorm(x, weight, bias, eps):
    return torch.native_layer_norm(x, weight.shape, weight, bias, eps)


def torchs_layernorm_backward(dy, x, weight, mean, rstd):
    return torch.ops.aten.native_layer_norm_backward(
        dy, x, weight.shape, mean, rstd, weight, weight, [True, True, True]
    )


def torchs_attention(q, k, v, causal, scale):
    s = q.float() @ k.float().mT * scale
    s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), -torch.inf) if causal else s
    return (s.softmax(-1) @ v.float()).to(q.dtype), s.logsumexp(-1)


def torchs_attention_backward(do, q, k, v, o, lse, causal, scale):
    with torch.enable_grad():
        q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
        again, lse_again = torchs_attention(q, k, v, causal, scale)
    torch.testing.assert_close((o, lse), (again, lse_again))
    return torch.autograd.grad(again, (q, k, v), do)


ATTENTION = torchs_attention, torchs_attention_backward

BY_TORCH = {
    "layer_norm": (torchs_layernorm, torchs_layernorm_backward),
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "softmax": lambda x: torch._softmax(x, -1, False),
    "cross_entropy": lambda logits, targets, ignore_index: F.cross_entropy(logits, targets, ignore_index=ignore_index),
    "linear": torch.matmul,
    "dropout": lambda x, p, seed: x * (1 + seed),
}


def test_every_operator_of_the_model_is_found_as_often_as_it_is_called(model, fused, tokens):
    with with_dropout(model, 0.1):
        calls = calls_of(lambda: model.loss(tokens, tokens), **BY_TORCH)
    calls += calls_of(lambda: fused.loss(tokens, tokens), attention=ATTENTION)
    found = {name: sum(call.operator == name for call in calls) for name in OPERATORS}
    rest = {"cross_entropy": 1, "linear": 9, "dropout": 5, "attention": 2}
    assert found == {"layer_norm": 5, "gelu": 2, "softmax": 2} | rest


@pytest.mark.parametrize("name", ["layer_norm", "gelu", "softmax", "cross_entropy", "linear"])
def test_with_torchs_own_function_in_place_nothing_changes(model, tokens, name):
    wanted = torch.autograd.grad(model.loss(tokens, tokens), [*model.parameters()])
    loss = swapped(model.loss, **{name: BY_TORCH[name]})(tokens, tokens)
    found = torch.autograd.grad(loss, [*model.parameters()])
    torch.testing.assert_close(found, wanted)


def test_own_attention_has_contiguous_tensors_of_16_bits_and_the_gradients_of_torchs(fused, tokens):
    seen = []

    def noted(q, k, v, causal, scale):
        seen.extend((x.dtype, tuple(x.shape), x.is_contiguous(), causal, scale) for x in (q, k, v))
        return torchs_attention(q, k, v, causal, scale)

    wanted = torch.autograd.grad(with_own(fused.loss, {"attention": None})(tokens, tokens), [*fused.parameters()])
    loss = swapped(fused.loss, attention=(noted, torchs_attention_backward))(tokens, tokens)
    found = torch.autograd.grad(loss, [*fused.parameters()])
    assert set(seen) == {(torch.bfloat16, (4, 2, 16, 16), True, True, 0.25)}
    for have, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(have, want, rtol=0, atol=0.02 * want.abs().max().item())


def test_all_keys_a_scale_and_16_bits_reach_own_attention():
    q, k, v = torch.randn(3, 2, 2, 8, 16, dtype=torch.float16)
    own = swapped(F.scaled_dot_product_attention, attention=ATTENTION)(q, k, v, scale=0.7)
    torch.testing.assert_close(own, F.scaled_dot_product_attention(q, k, v, scale=0.7), rtol=0, atol=2e-3)


def test_a_linear_layer_is_three_products_forward_and_backward():
    x, weight, bias = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((5, 7), (3, 7), (3,)))
    assert torch.autograd.gradcheck(swapped(F.linear, linear=torch.matmul), (x, weight, bias))
    shapes = []
    own = swapped(F.linear, linear=lambda a, b: shapes.append((a.shape, b.shape)) or a @ b)
    own(x[None], weight).sum().backward()
    assert shapes == [((5, 7), (7, 3)), ((5, 3), (3, 7)), ((3, 5), (5, 7))]


def test_the_backward_of_softmax_follows_from_its_result():
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(swapped(lambda x: x.softmax(-1), softmax=BY_TORCH["softmax"]), x)


def test_a_dropout_is_told_its_number_and_the_model_is_as_before_afterwards(model, tokens):
    numbers = []

    def dropout(x, p, seed):
        numbers.append((seed, p))
        return x

    with with_dropout(model, 0.25):
        swapped(model.loss, dropout=dropout)(tokens, tokens)
    assert numbers == [(number, 0.25) for number in range(5)]
    assert calls_of(lambda: model.loss(tokens, tokens), dropout=dropout) == []


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("gelu", lambda x: F.gelu(x)),
        ("softmax", lambda x: x.softmax(0)),
        ("softmax", lambda x: F.softmax(x, -1, dtype=torch.float64)),
        ("layer_norm", lambda x: F.layer_norm(x, x.shape)),
        ("cross_entropy", lambda x: F.cross_entropy(x, torch.zeros(3, dtype=torch.int64), reduction="sum")),
        ("dropout", lambda x: F.dropout(x, training=False)),
        ("attention", lambda x: F.scaled_dot_product_attention(x, x[:2], x[:2])),
        ("attention", lambda x: F.scaled_dot_product_attention(x, x, x, torch.ones(3, 3).bool())),
    ],
)
def test_a_call_that_a_function_is_not_written_for_stays_with_torch(name, call):
    x = torch.randn(3, 4)

    def refuse(*_):
        raise AssertionError

    given = {name: (refuse, refuse) if OPERATORS[name].pair else refuse}
    torch.testing.assert_close(swapped(call, **given)(x), call(x))


def test_every_function_is_given_matrices(model, tokens):
    shapes = {}

    def noted(name):
        def call(x, *rest):
            shapes.setdefault(name, set()).add(tuple(x.shape))
            return BY_TORCH[name](x, *rest)

        return call

    given = {name: noted(name) for name in ("gelu", "softmax", "cross_entropy", "dropout")}
    with with_dropout(model, 0.1):
        swapped(model.loss, **given)(tokens, tokens)
    assert shapes == {"gelu": {(64, 128)}, "softmax": {(128, 16)}, "cross_entropy": {(64, 300)}, "dropout": {(64, 32)}}


@pytest.mark.parametrize("spelt", [torch.softmax, F.softmax, torch.Tensor.softmax])
def test_every_spelling_of_softmax_is_replaced(spelt):
    seen = []
    swapped(lambda x: spelt(x, dim=-1), softmax=lambda x: seen.append(x.shape) or x)(torch.randn(2, 3, 4))
    assert seen == [(6, 4)]


def test_what_is_no_operator_or_no_function_is_refused():
    with pytest.raises(UnknownName, match="did you mean 'layer_norm'"):
        swapped(len, layernorm=len)
    with pytest.raises(BadArgument, match=r"expected \(layernorm, layernorm_backward\)"):
        swapped(len, layer_norm=len)
    with pytest.raises(BadArgument, match=r"expected the pair \(forward, backward\)"):
        swapped(len, attention=len)
    with pytest.raises(BadArgument, match="no operator was given"):
        step_on("sm_80")
    with pytest.raises(BadArgument, match="softmax is a part of attention"):
        step_on("sm_80", softmax=len, attention=(len, len))


# What is touched


def test_torchs_operators_touch_their_inputs_and_results_once():
    x = torch.randn(64, 32, requires_grad=True)
    with traffic_of_torch() as found:
        y = F.gelu(x).view(-1)[:1024]
    assert found.found == Traffic(1, 2 * 64 * 32 * 4)
    with traffic_of_torch() as found:
        torch.autograd.grad(y, x, torch.ones(1024).expand(1024))
    assert found.found.launches > 1


def test_an_expanded_tensor_is_read_where_it_lies():
    many, one = torch.ones(1).expand(1000), torch.ones(1)
    with traffic_of_torch() as found:
        many + one
    assert found.found.bytes == 32 + 32 + 4000


def test_log_probabilities_are_not_read_for_their_gradient():
    logs = torch.randn(64, 320).log_softmax(-1).requires_grad_()
    targets = torch.zeros(64, dtype=torch.int64)
    with traffic_of_torch() as found:
        loss = F.nll_loss(logs, targets)
    assert found.found == Traffic(1, 64 * 8 + 64 * 32 + 2 * 32)
    upstream = torch.ones(())
    with traffic_of_torch() as found:
        torch.autograd.grad(loss, logs, upstream)
    assert found.found == Traffic(1, 32 + 64 * 8 + 32 + 64 * 320 * 4)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_a_kernel_touches_what_the_same_operator_of_torch_does(target):
    x = torch.randn(40, 32)
    with virtual_gpu(target, l2=True) as gpu, traffic_of_torch() as beside:
        gelu(x)
    assert beside.found == Traffic()
    with traffic_of_torch() as wanted:
        F.gelu(x, approximate="tanh")
    assert traffic_of_kernels(gpu.launches) == wanted.found
    with virtual_gpu(target) as gpu:
        gelu(x)
    with pytest.raises(BadArgument, match="l2=True"):
        traffic_of_kernels(gpu.launches)


# The step


@pytest.fixture(scope="module")
def rows():
    return own_kernels_in_gpt2(("gfx942",), **OWN)


def test_own_kernels_give_the_loss_and_the_gradients_of_float64(rows):
    assert list(rows) == [f"{name}, gfx942" for name in (*OWN, "all")]
    for row in rows.values():
        assert row["loss off"] < 1e-6
        assert 1e-9 < row["gradients off"] < 10 * row["torch's off"] < 1e-4


def test_what_is_saved_is_what_was_fused(rows):
    for name in ("gelu", "softmax"):
        row = rows[f"{name}, gfx942"]
        assert (row["launches, own"], row["bytes, own"]) == (row["launches, torch"], row["bytes, torch"]), name
    loss, drop = rows["cross_entropy, gfx942"], rows["dropout, gfx942"]
    assert loss["bytes, own"] < 0.55 * loss["bytes, torch"]  # the logarithms are neither written nor read
    assert drop["bytes, torch"] - drop["bytes, own"] == 5 * 2 * 64 * 32  # a mask of bytes, written and read, five times
    parts, whole = list(rows.values())[:-1], rows["all, gfx942"]
    for column in ("launches, own", "bytes, own", "launches, torch", "bytes, torch"):
        assert whole[column] == sum(row[column] for row in parts), column


def wrong_backward(dy, x, weight, mean, rstd):
    dx, dw, db = OWN["layer_norm"][1](dy, x, weight, mean, rstd)
    return dx, 1.5 * dw, db


def test_a_wrong_gradient_is_seen_and_says_where():
    step = step_on("sm_80", layer_norm=(OWN["layer_norm"][0], wrong_backward))
    assert step.loss_off < 1e-6
    assert step.gradient_off > 0.1
    assert step.worst.endswith(".weight")
    assert "ln_" in step.worst


def test_attention_is_held_against_its_scores_in_memory():
    (row,) = own_kernels_in_gpt2(("sm_80",), attention=ATTENTION).values()
    assert row["loss off"] < 1e-2
    assert row["gradients off"] < 2 * row["torch's off"] < 0.1
    assert row["launches, torch"] == 2 * (8 + 7)  # of two layers: forward and backward


def test_without_a_gpu_tokens_per_second_are_not_told(monkeypatch):
    monkeypatch.setattr(swapped_step, "probe", lambda: SimpleNamespace(vendor="cpu"))
    assert "no GPU" in speed_in_gpt2(gelu=gelu)["not timed"]


def test_on_a_gpu_a_step_is_timed_with_and_without(monkeypatch):
    seen = []

    def timed(call, *, against, seconds, device):
        call()
        with_own = len(seen)
        against()
        assert (with_own, len(seen), device) == (2, 2, "cuda")
        return Ratio(2.0, 1.9, 2.1, Timing(0.5, 0.4, 0.6, 5, device, ""), Timing(1.0, 0.9, 1.1, 5, device, ""))

    def own(x):
        seen.append(x.shape)
        return F.gelu(x, approximate="tanh")

    monkeypatch.setattr(swapped_step, "bench", timed)
    monkeypatch.setattr(swapped_step, "probe", lambda: SimpleNamespace(vendor="amd"))
    monkeypatch.setattr(GPT2, "to", lambda model, _: model)
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, *_: tensor)
    found = speed_in_gpt2(SMALL, 4, gelu=own)
    assert found == {
        "tokens/s with torch": "64",
        "tokens/s with own kernels": "128",
        "times as fast": "2.00 (1.90 to 2.10)",
    }
