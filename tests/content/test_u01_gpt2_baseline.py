"""Unit 01: the graders agree with the course's GPT-2, and with honest answers that are written another way."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right
from torch.utils.flop_counter import FlopCounterMode

from gpu_utils import exercises
from gpu_utils.exercises.u01_gpt2_baseline import activation_memory
from gpu_utils.grading.check import check
from gpu_utils.model import costs, gpt2
from gpu_utils.model.training import learning_rate

CONFIGS = [gpt2.GPT2Config(61, 40, 48, 3, 4), gpt2.GPT2Config(301, 24, 32, 1, 2)]
each_config = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"L{config.n_layer}")


def reference(name):
    return exercises.find(f"01.{name}").reference


def judged(name, answer):
    return check(exercises.find(f"01.{name}"), answer, seed=7)


# --- the references against the library -------------------------------------------------------------------------


@each_config
def test_a_block_is_the_block_of_the_library(config):
    model = gpt2.GPT2(config).double()
    block = model.h[0]
    params = {name: value.detach() for name, value in block.state_dict().items()}
    x = torch.randn(2, 7, config.n_embd, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(reference("block")(x, params, config.n_head, False)["y"], block(x).detach())


@each_config
def test_init_asks_for_the_tensors_of_the_library(config):
    def init(shapes, n_layer, seed):
        torch.manual_seed(seed)
        vocab, width = shapes["wte.weight"]
        sizes = gpt2.GPT2Config(vocab, shapes["wpe.weight"][0], width, n_layer, 1)
        state = gpt2.GPT2(sizes).state_dict()
        return {**state, "lm_head.weight": state["wte.weight"]}

    report = judged("init", init)
    assert report.passed, report


@each_config
def test_unchanged_parameters_are_those_of_the_library(config):
    ends = (config.vocab_size, config.n_positions, config.n_embd, config.n_layer, config.n_head)
    counted = sum(p.numel() for p in gpt2.GPT2(config).parameters())
    unchanged = reference("param_count")(*ends, n_kv_head=config.n_head, gated=False, multiple=4)
    assert unchanged == {"hidden": 4 * config.n_embd, "parameters": counted}
    assert counted == costs.param_count(config)


@pytest.mark.parametrize("gated", [False, True])
def test_a_changed_block_has_the_parameters_of_its_layers(gated):
    d, heads, kv_heads, multiple = 48, 6, 2, 5
    answer = reference("param_count")(101, 20, d, 3, heads, n_kv_head=kv_heads, gated=gated, multiple=multiple)

    def block(hidden, kv_heads, gated):
        kv, linear = kv_heads * d // heads, torch.nn.Linear
        attention = [linear(d, d), linear(d, kv), linear(d, kv), linear(d, d)]
        mlp = [linear(d, hidden) for _ in range(1 + gated)] + [linear(hidden, d)]
        layers = torch.nn.ModuleList([*attention, *mlp, torch.nn.LayerNorm(d), torch.nn.LayerNorm(d)])
        return sum(p.numel() for p in layers.parameters())

    most, hidden = block(4 * d, heads, False), answer["hidden"]
    assert hidden % multiple == 0
    assert block(hidden, kv_heads, gated) <= most < block(hidden + multiple, kv_heads, gated)
    assert answer["parameters"] == (101 + 20 + 2) * d + 3 * block(hidden, kv_heads, gated)


@each_config
def test_flops_are_those_that_torch_counts(config):
    T = 16
    model = gpt2.GPT2(config, attention="explicit")
    tokens = torch.zeros(2, T, dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        model.loss(tokens, tokens).backward()
    answer = reference("flops_per_token")(
        config.n_layer, config.n_embd, config.vocab_size, T, tokens_per_second=2.0, peak_flops=1e6
    )
    assert answer["flops"] * tokens.numel() == counter.get_total_flops()
    assert answer["flops"] == costs.flops_per_token(config, T)
    assert answer["mfu"] == pytest.approx(2e-6 * answer["flops"])


@each_config
def test_from_the_crossing_on_attention_s_own_products_are_most_of_what_torch_counts(config):
    answer = reference("flops_per_token")(
        config.n_layer, config.n_embd, config.vocab_size, 1, tokens_per_second=1.0, peak_flops=1.0
    )

    def share_of_attention(T):
        sizes = gpt2.GPT2Config(config.vocab_size, T, config.n_embd, config.n_layer, config.n_head)
        with torch.device("meta"), FlopCounterMode(display=False) as counter:
            gpt2.GPT2(sizes, attention="explicit")(torch.zeros(1, T, dtype=torch.int64))
        counted = counter.get_flop_counts()["Global"]
        return counted[torch.ops.aten.bmm] / sum(counted.values())

    crossing = answer["attention_from"]
    assert share_of_attention(crossing) > 0.5 >= share_of_attention(crossing - 1)


@each_config
def test_logits_are_those_of_the_library_with_and_without_a_past(config):
    model = gpt2.GPT2(config).double()
    weights = {**model.state_dict(), "lm_head.weight": model.wte.weight.detach()}
    tokens = torch.randint(config.vocab_size, (2, 9), generator=torch.Generator().manual_seed(2))
    sizes = {"weights": weights, "n_layer": config.n_layer, "n_head": config.n_head, "start": 0}
    whole = reference("logits")(**sizes, tokens=tokens, at=None)["logits"]
    torch.testing.assert_close(whole, model(tokens).detach())


def test_positions_of_logits_start_where_they_are_told():
    weights = {"wte.weight": torch.eye(3), "wpe.weight": torch.randn(8, 3)}
    weights |= {"ln_f.weight": torch.ones(3), "ln_f.bias": torch.zeros(3)}
    tokens = torch.tensor([[0, 1, 2, 0]])

    def found(tokens, start):
        sizes = {"n_layer": 0, "n_head": 1, "at": None}
        return reference("logits")(tokens=tokens, weights=weights, start=start, **sizes)["logits"]

    assert torch.equal(found(tokens[:, 2:], 2), found(tokens, 0)[:, 2:])


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("bytes_per_value", [4, 2])
def test_what_is_counted_is_what_autograd_keeps_to_the_byte(fused, bytes_per_value):
    shape = {"seq_len": 24, "n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 67}
    shape |= {"fused": fused, "bytes_per_value": bytes_per_value}
    for batch in (1, 3):
        assert activation_memory.counted(shape, batch) == activation_memory.measured(shape, batch)


@pytest.mark.parametrize(("warmup", "total"), [(10, 50), (0, 20), (7, 7)])
def test_the_schedule_is_the_one_that_trains_the_baseline(warmup, total):
    steps = list(range(total + 3))
    expected = reference("lr_schedule")(steps, warmup_steps=warmup, total_steps=total, max_lr=1e-3, min_lr=1e-4)
    for step, rate in zip(steps, expected, strict=True):
        assert learning_rate(step, warmup=warmup, total=total, max_lr=1e-3, min_lr=1e-4) == pytest.approx(rate)


# --- honest answers that are written another way ----------------------------------------------------------------


def test_attention_by_einsum_with_an_additive_mask_passes():
    def attention(x, w_qkv, b_qkv, w_proj, b_proj, n_head):
        B, T, C = x.shape
        qkv = torch.einsum("btc,dc->btd", x, w_qkv) + b_qkv
        q, k, v = qkv.reshape(B, T, 3, n_head, C // n_head).unbind(2)
        bias = torch.full((T, T), -torch.inf, dtype=x.dtype, device=x.device).triu(1)
        weights = torch.softmax(torch.einsum("bihd,bjhd->bhij", q, k) * (C // n_head) ** -0.5 + bias, dim=-1)
        return torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2) @ w_proj.T + b_proj

    report = judged("attention", attention)
    assert report.passed, report


def test_attention_with_a_softmax_by_hand_passes():
    def attention(x, w_qkv, b_qkv, w_proj, b_proj, n_head):
        B, T, C = x.shape
        q, k, v = (h.view(B, T, n_head, -1).transpose(1, 2) for h in (x @ w_qkv.T + b_qkv).chunk(3, dim=-1))
        scores = (q / math.sqrt(q.shape[-1])) @ k.mT
        scores = scores - scores.amax(-1, keepdim=True)
        weights = scores.exp().tril()
        weights = weights / weights.sum(-1, keepdim=True)
        return (weights @ v).transpose(1, 2).reshape(B, T, C) @ w_proj.T + b_proj

    report = judged("attention", attention)
    assert report.passed, report


def test_an_mlp_with_the_formula_written_out_passes_in_both_dtypes():
    def mlp(x, w_fc, b_fc, w_proj, b_proj):
        z = x @ w_fc.T + b_fc
        hidden = 0.5 * z * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (z + 0.044715 * torch.pow(z, 3))))
        return hidden @ w_proj.T + b_proj

    report = judged("mlp", mlp)
    assert report.passed, report


def test_a_gradient_by_formula_in_parts_passes():
    def grad_accumulation(weight, x, targets, micro_batch):
        count, grad, loss = (targets >= 0).sum(), torch.zeros_like(weight), 0.0
        for start in range(0, len(x), micro_batch):
            rows, wanted = x[start : start + micro_batch].flatten(0, 1), targets[start : start + micro_batch].flatten()
            rows, wanted = rows[wanted >= 0], wanted[wanted >= 0]
            logs = F.log_softmax(rows @ weight.T, dim=-1)
            loss -= logs.gather(1, wanted[:, None]).sum() / count
            grad += (logs.exp() - F.one_hot(wanted, len(weight))).T @ rows / count
        return {"loss": loss, "grad": grad}

    report = judged("grad_accumulation", grad_accumulation)
    assert report.passed, report


def test_a_cache_with_the_library_s_fused_attention_passes():
    def kv_cache(x, k_cache, v_cache, w_qkv, b_qkv, w_proj, b_proj, n_head):
        q, k, v = gpt2.split_heads(F.linear(x, w_qkv, b_qkv), n_head)
        k, v = torch.cat([k_cache, k], dim=2), torch.cat([v_cache, v], dim=2)
        return F.linear(gpt2.merge_heads(gpt2.causal_attention(q, k, v)), w_proj, b_proj), k, v

    report = judged("kv_cache", kv_cache)
    assert report.passed, report


def test_the_library_s_own_estimate_of_activations_passes():
    def answer(seq_len, n_layer, n_embd, n_head, vocab_size, bytes_per_value, fused, parameters, capacity):
        config = gpt2.GPT2Config(vocab_size, seq_len, n_embd, n_layer, n_head)
        kept = costs.activation_bytes(config, 1, seq_len, bytes_per_value=bytes_per_value, scores=not fused)
        return {"per_sequence": kept, "largest_batch": max(0, (capacity - 16 * parameters) // kept)}

    report = judged("activation_memory", answer)
    assert report.passed, report


def test_a_training_step_that_clips_by_hand_passes():
    def train_step(weights, optimizer, loss, parts, lr, clip):
        own = {id(w): w for w in weights.values()}.values()
        real = [int((targets >= 0).sum()) for _, targets in parts]
        mean = sum(loss(*part) * count for part, count in zip(parts, real, strict=True)) / sum(real)
        grads = torch.autograd.grad(mean, list(own))
        norm = math.sqrt(sum(g.square().sum().item() for g in grads))
        for w, g in zip(own, grads, strict=True):
            w.grad = g * min(1.0, clip / norm)
        for group in optimizer.param_groups:
            group["lr"] = lr
        if math.isfinite(norm):
            optimizer.step()
        return {"loss": mean.item(), "norm": norm}

    report = judged("train_step", train_step)
    assert report.passed, report


# --- mistakes in words of their own -----------------------------------------------------------------------------


def test_is_causal_on_a_filled_cache_is_recognised():
    def kv_cache(x, k_cache, v_cache, w_qkv, b_qkv, w_proj, b_proj, n_head):
        q, k, v = gpt2.split_heads(F.linear(x, w_qkv, b_qkv), n_head)
        k, v = torch.cat([k_cache, k], dim=2), torch.cat([v_cache, v], dim=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.linear(gpt2.merge_heads(y), w_proj, b_proj), k, v

    assert judged("kv_cache", kv_cache).misconception == "mask_from_the_top_left"


def test_a_mask_multiplied_onto_the_scores_is_recognised():
    def attention(x, w_qkv, b_qkv, w_proj, b_proj, n_head):
        q, k, v = gpt2.split_heads(F.linear(x, w_qkv, b_qkv), n_head)
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).tril()
        return F.linear(gpt2.merge_heads(scores.softmax(-1) @ v), w_proj, b_proj)

    assert judged("attention", attention).misconception == "mask_with_zero"


def test_the_mean_loss_divided_by_the_number_of_parts_is_recognised():
    def grad_accumulation(weight, x, targets, micro_batch):
        w = weight.clone().requires_grad_()
        parts = math.ceil(len(x) / micro_batch)
        losses = []
        for part, wanted in zip(x.split(micro_batch), targets.split(micro_batch), strict=True):
            losses.append(F.cross_entropy((part @ w.T).transpose(1, 2), wanted) / parts)
            losses[-1].backward()
        return {"loss": sum(losses).item(), "grad": w.grad}

    assert judged("grad_accumulation", grad_accumulation).misconception == "mean_of_means"


# --- answers of the wrong kind get one clear sentence -----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "returned", "sentence"),
    [
        ("attention", None, "None (is a return missing?)"),
        ("kv_cache", (torch.zeros(1), torch.zeros(1)), "returned Tensor, Tensor; expected three tensors: y, k, v"),
        ("grad_accumulation", torch.zeros(1), "returned Tensor; expected a dict with loss and grad"),
        ("grad_accumulation", {"loss": 0.0}, "no key 'grad'"),
        ("init", [1], "init returned list, expected a dict from name to tensor"),
        ("flops_per_token", 854438400, "expected a dict with keys flops, mfu, attention_from"),
        ("lr_schedule", None, "expected a number"),
    ],
)
def test_a_result_of_the_wrong_kind_is_named(name, returned, sentence):
    exercise = exercises.find(f"01.{name}")
    report = judged(name, eval(f"lambda {', '.join(exercise.parameters)}: returned", {"returned": returned}))
    assert report.status == "failed"
    assert sentence in report.headline


# --- holes that were closed ------------------------------------------------------------------------------------


def test_the_fused_attention_is_refused_by_its_other_name_too():
    def attention(x, w_qkv, b_qkv, w_proj, b_proj, n_head):
        B, T, d = x.shape
        q, k, v = (p.view(B, T, n_head, -1).transpose(1, 2) for p in F.linear(x, w_qkv, b_qkv).split(d, -1))
        y = torch.ops.aten.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.linear(y.transpose(1, 2).reshape(B, T, d), w_proj, b_proj)

    assert judged("attention", attention).misconception == "calls_the_library"


def test_the_lower_right_mask_does_not_get_around_the_refusal():
    def attention(x, w_qkv, b_qkv, w_proj, b_proj, n_head):
        q, k, v = gpt2.split_heads(F.linear(x, w_qkv, b_qkv), n_head)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(x.shape[1], x.shape[1]))
        return F.linear(gpt2.merge_heads(y), w_proj, b_proj)

    report = judged("attention", attention)
    assert report.misconception == "calls_the_library"
    assert "write the scores, the mask and the softmax yourself" in report.headline


def test_a_mask_on_the_cpu_is_found_where_there_is_no_gpu():
    def attention(x, w_qkv, b_qkv, w_proj, b_proj, n_head):
        q, k, v = gpt2.split_heads(F.linear(x, w_qkv, b_qkv), n_head)
        bias = torch.full((x.shape[1], x.shape[1]), -math.inf).triu(1).to(x.dtype)
        weights = (q @ k.mT / math.sqrt(q.shape[-1]) + bias).softmax(-1)
        return F.linear(gpt2.merge_heads(weights @ v), w_proj, b_proj)

    report = judged("attention", attention)
    assert report.misconception == "mask_on_the_cpu"


@pytest.mark.parametrize("cut", [3.0, 4.0])
def test_first_weights_that_are_cut_off_are_found(cut):
    def init(shapes, n_layer, seed):
        one = torch.Generator().manual_seed(seed)
        out = _drawn(shapes, n_layer, seed, lambda name: one)
        out |= {name: w.clamp(-0.02 * cut, 0.02 * cut) for name, w in out.items() if "ln_" not in name}
        return out | {"lm_head.weight": out["wte.weight"]}

    assert f"cut off at {cut} standard deviations" in judged("init", init).first_failure.detail


@pytest.mark.parametrize("factor", [0.97, 1.03])
def test_first_weights_of_a_size_that_is_slightly_off_are_found(factor):
    def init(shapes, n_layer, seed):
        one = torch.Generator().manual_seed(seed)
        out = _drawn(shapes, n_layer, seed, lambda name: one)
        return out | {name: w * factor for name, w in out.items() if name.endswith("c_proj.weight")}

    report = judged("init", init)
    assert "times what was asked" in report.first_failure.detail


def _drawn(shapes, n_layer, seed, generator_of):
    out = {}
    for name, shape in shapes.items():
        if name.endswith("bias") or "ln_" in name:
            out[name] = torch.full(shape, float(not name.endswith("bias")))
        else:
            std = 0.02 / math.sqrt(2 * n_layer) if name.endswith("c_proj.weight") else 0.02
            out[name] = torch.randn(shape, generator=generator_of(name)) * std
    return out | {"lm_head.weight": out["wte.weight"]}


def test_layers_in_the_middle_may_not_hold_the_same_numbers_either():
    def init(shapes, n_layer, seed):
        one = torch.Generator().manual_seed(seed)
        out = _drawn(shapes, n_layer, seed, lambda name: one)
        copies = {name: out[f"h.1.{name[4:]}"] for name in out if name.startswith("h.2.")} if n_layer > 3 else {}
        return out | copies

    report = judged("init", init)
    assert report.status == "failed"
    assert "'layers'" in report.first_failure.detail


def test_tensors_of_one_layer_may_not_be_drawn_from_the_same_state():
    def init(shapes, n_layer, seed):
        def generator_of(name):
            layer = int(name.split(".")[1]) if name.startswith("h.") else n_layer
            return torch.Generator().manual_seed(seed * 100 + layer)

        return _drawn(shapes, n_layer, seed, generator_of)

    assert "'layers'" in judged("init", init).first_failure.detail


def test_a_loss_that_is_written_out_keeps_one_part_at_a_time():
    def grad_accumulation(weight, x, targets, micro_batch):
        w = weight.detach().clone().requires_grad_()
        count, total = (targets != -100).sum(), 0.0
        for part, wanted in zip(x.split(micro_batch), targets.split(micro_batch), strict=True):
            z, real = part @ w.T, wanted != -100
            own = z.gather(-1, wanted.clamp(min=0)[..., None])[..., 0]
            loss = ((z.exp().sum(-1).log() - own) * real).sum() / count
            loss.backward()
            total += loss.item()
        return {"loss": total, "grad": w.grad}

    assert judged("grad_accumulation", grad_accumulation).passed


# --- gradients: the lab trains what is checked -------------------------------------------------------------------


def _divided_in_place(x, w_qkv, b_qkv, w_proj, b_proj, n_head):
    q, k, v = gpt2.split_heads(F.linear(x, w_qkv, b_qkv), n_head)
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    weights /= weights.sum(-1, keepdim=True)
    return F.linear(gpt2.merge_heads(weights @ v), w_proj, b_proj)


def _added_in_place(x, params, n_head, attention, mlp, recompute):
    def pair(name):
        return params[f"{name}.weight"], params[f"{name}.bias"]

    x = x + attention(gpt2.layer_norm(x, *pair("ln_1")), *pair("attn.c_attn"), *pair("attn.c_proj"), n_head)
    x += mlp(gpt2.layer_norm(x, *pair("ln_2")), *pair("mlp.c_fc"), *pair("mlp.c_proj"))
    return x


def _without_gradients(x, w_fc, b_fc, w_proj, b_proj):
    with torch.no_grad():
        return F.linear(F.gelu(F.linear(x, w_fc, b_fc), approximate="tanh"), w_proj, b_proj)


def _gates_without_gradient(x, w_fc, b_fc, w_proj, b_proj):
    z = F.linear(x, w_fc, b_fc)
    gate = 0.5 * (1 + torch.tanh((2 / math.pi) ** 0.5 * (z + 0.044715 * z**3)))
    return F.linear(z * gate.detach(), w_proj, b_proj)


def _cut_between_blocks(tokens, weights, n_layer, n_head, start, at, block):
    x = weights["wte.weight"][tokens] + weights["wpe.weight"][start : start + tokens.shape[1]]
    for layer in range(n_layer):
        prefix = f"h.{layer}."
        x = block(x.detach(), {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}, n_head)
    return gpt2.layer_norm(x, weights["ln_f.weight"], weights["ln_f.bias"]) @ weights["wte.weight"].T


@pytest.mark.parametrize(
    ("name", "answer", "sentence"),
    [
        ("attention", _divided_in_place, "a tensor that it needs was changed in place"),
        ("block", _added_in_place, "a tensor that it needs was changed in place"),
        ("mlp", _without_gradients, "no gradient reaches x"),
        ("logits", _cut_between_blocks, "no gradient reaches wpe.weight"),
        ("mlp", _gates_without_gradient, "backward() through it gives another slope than the function has"),
    ],
)
def test_an_answer_that_cannot_be_trained_fails_and_says_why(name, answer, sentence):
    report = judged(name, answer)
    assert report.first_failure.kind == "error:GradientLost"
    assert sentence in report.headline


def test_the_output_layer_may_be_taken_by_its_own_name():
    def logits(tokens, weights, n_layer, n_head, start, at, block):
        x = F.embedding(tokens, weights["wte.weight"]) + weights["wpe.weight"][start:][: tokens.shape[1]]
        for layer in range(n_layer):
            x = block(x, {n.partition(f"h.{layer}.")[2]: w for n, w in weights.items()}, n_head)
        if at is not None:
            x = torch.stack([one[places] for one, places in zip(x, at, strict=True)])
        return gpt2.layer_norm(x, weights["ln_f.weight"], weights["ln_f.bias"]) @ weights["lm_head.weight"].T

    report = judged("logits", logits)
    assert report.passed, report


def test_queries_keys_and_values_may_each_be_cut_out_of_a_projection_of_its_own():
    def kv_cache(x, k_cache, v_cache, w_qkv, b_qkv, w_proj, b_proj, n_head):
        d = x.shape[-1]
        q, k, v = (F.linear(x, w_qkv, b_qkv)[..., i * d : (i + 1) * d] for i in range(3))
        q, k, v = (part.unflatten(-1, (n_head, -1)).transpose(1, 2) for part in (q, k, v))
        k, v = torch.cat([k_cache, k], dim=2), torch.cat([v_cache, v], dim=2)
        return F.linear(gpt2.merge_heads(gpt2.causal_attention(q, k, v)), w_proj, b_proj), k, v

    report = judged("kv_cache", kv_cache)
    assert report.passed, report


@pytest.mark.parametrize("name", ["the crossing is rounded", "calls are counted", "rounded towards zero"])
def test_a_slip_that_few_sizes_show_is_found(name):
    steps = iter(range(10**6))

    def counting(step, warmup_steps, total_steps, max_lr, min_lr):
        return learning_rate(
            next(steps) % (total_steps + 6), warmup=warmup_steps, total=total_steps, max_lr=max_lr, min_lr=min_lr
        )

    def rounding(n_layer, n_embd, vocab_size, seq_len, tokens_per_second, peak_flops):
        right = reference("flops_per_token")(n_layer, n_embd, vocab_size, seq_len, tokens_per_second, peak_flops)
        return {**right, "attention_from": round((12 * n_layer * n_embd + vocab_size) / (2 * n_layer)) + 1}

    def truncating(parameters, capacity, **shape):
        config = activation_memory._config(**shape)
        sizes = {"bytes_per_value": shape["bytes_per_value"], "scores": not shape["fused"]}
        kept = costs.activation_bytes(config, 1, shape["seq_len"], **sizes)
        return {"per_sequence": kept, "largest_batch": int((capacity - 16 * parameters) / kept)}

    answers = {
        "the crossing is rounded": ("flops_per_token", rounding),
        "calls are counted": ("lr_schedule", counting),
        "rounded towards zero": ("activation_memory", truncating),
    }
    assert judged(*answers[name]).status == "failed"


def test_first_weights_whose_numbers_repeat_are_found():
    def init(shapes, n_layer, seed):
        one = torch.Generator().manual_seed(seed)
        out = _drawn(shapes, n_layer, seed, lambda name: one)
        for name in [name for name in out if "c_attn.weight" in name]:  # queries and keys alike
            d = out[name].shape[1]
            out[name][d : 2 * d] = out[name][:d]
        return out

    assert "its numbers repeat" in judged("init", init).first_failure.detail
