"""Routing: its measures, its exercises beside transformers' DeepseekV3, and the trainings that the lesson shows."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.exercises.u10_mla_moe.gate import gate_reference
from gpu_utils.exercises.u10_mla_moe.group_limited import EXERCISE as GROUPS
from gpu_utils.exercises.u10_mla_moe.group_limited import group_limited_reference
from gpu_utils.exercises.u10_mla_moe.group_limited_slips import answer as slip
from gpu_utils.model.routed_training import RoutedConfig, RoutedModel, routed_run, zipf_stream
from gpu_utils.model.routing import auxiliary_loss, capacity, fits, imbalance, loads, sequence_loss


def router(E, groups, keep, k, D=48, scale=2.5):
    """transformers' router with random weights, and some of its biases far below zero."""
    from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter

    config = DeepseekV3Config(
        hidden_size=D,
        n_routed_experts=E,
        num_experts_per_tok=k,
        n_group=groups,
        topk_group=keep,
        routed_scaling_factor=scale,
    )
    theirs = DeepseekV3TopkRouter(config)
    generator = torch.Generator().manual_seed(E)
    with torch.no_grad():
        theirs.weight.copy_(torch.randn((E, D), generator=generator) / D**0.5)
        theirs.e_score_correction_bias.copy_(2 * torch.rand(E, generator=generator) - 1.9)
    return theirs, torch.randn((200, D), generator=generator)


@pytest.mark.parametrize(("E", "groups", "keep", "k"), [(256, 8, 4, 8), (24, 4, 1, 3), (18, 6, 3, 5)])
def test_groups_are_those_of_transformers(E, groups, keep, k):
    theirs, x = router(E, groups, keep, k)
    with torch.no_grad():
        logits, _, experts = theirs(x)
    scores, bias = logits.sigmoid(), theirs.e_score_correction_bias
    assert torch.equal(group_limited_reference(scores, bias, groups, keep, k), experts.sort(1).values)


def test_the_gate_is_that_of_transformers_with_one_group():
    theirs, x = router(E=40, groups=1, keep=1, k=6)
    with torch.no_grad():
        _, weights, experts = theirs(x)
    order = experts.argsort(1)
    found = gate_reference(x, theirs.weight.detach(), theirs.e_score_correction_bias, 6, 2.5)
    assert torch.equal(found[1], experts.gather(1, order))
    torch.testing.assert_close(found[0].float(), weights.gather(1, order))


def test_a_mask_of_zeros_chooses_others_where_choice_values_are_negative():
    (case,) = (case for case in GROUPS.cases if "below zero" in case.why)
    given = GROUPS.inputs(case, torch.Generator().manual_seed(3))
    wrong = slip(forbidden=0.0)(**given).sort(1).values
    right = group_limited_reference(**given)
    assert (given["scores"] + given["bias"]).max() < 0
    assert (wrong != right).any(1).all()
    positive = {**given, "bias": given["bias"] + 1 - (given["scores"] + given["bias"]).min()}
    assert torch.equal(slip(forbidden=0.0)(**positive).sort(1).values, group_limited_reference(**positive))


def test_a_choice_finds_a_place_as_long_as_there_are_any():
    generator = torch.Generator().manual_seed(0)
    experts = torch.rand((100, 12), generator=generator).topk(3).indices
    kept = fits(experts, 12, places := capacity(100, 3, 12, 0.8))
    assert places == 20
    for expert in range(12):
        at = (experts == expert).any(1).nonzero().flatten()
        mine = kept[experts == expert]
        assert mine.tolist() == [True] * min(20, len(at)) + [False] * max(0, len(at) - 20)
    assert fits(experts, 12, 100).all()


def test_loads_count_places_and_refuse_an_expert_that_there_is_not():
    experts = torch.tensor([[0, 3], [3, 1]])
    assert loads(experts, 5).tolist() == [1, 1, 0, 2, 0]
    assert imbalance(loads(experts, 5)) == 2.5
    assert imbalance(torch.zeros(3, dtype=torch.int64)) == 1.0
    with pytest.raises(BadArgument, match="expert 3 was chosen of 3"):
        loads(experts, 3)


def test_the_balance_loss_is_alpha_where_all_is_even_and_grows_to_e_over_k():
    E, k = 12, 3
    even = torch.full((4, E), 0.3)
    experts = torch.arange(E).view(4, k)
    assert sequence_loss(even, experts, k, 0.5).item() == pytest.approx(0.5)
    favoured = torch.zeros(4, E)
    favoured[:, :k] = 1.0
    assert sequence_loss(favoured, torch.arange(k).expand(4, k), k, 1.0).item() == pytest.approx(E / k)


def test_its_gradient_lowers_the_scores_of_the_busiest():
    scores = torch.full((8, 4), 0.5, requires_grad=True)
    experts = torch.tensor([[0, 1]] * 6 + [[2, 3]] * 2)
    auxiliary_loss(scores[None], experts[None], 2, 1.0).backward()
    slope = scores.grad.sum(0)
    assert slope[0] > 0 > slope[2]
    assert slope.sum().item() == pytest.approx(0, abs=1e-6)


def test_a_batch_of_sequences_has_the_mean_of_their_losses():
    generator = torch.Generator().manual_seed(1)
    scores = torch.rand((3, 10, 6), generator=generator)
    experts = scores.topk(2).indices
    each = [sequence_loss(s, e, 2, 1.0) for s, e in zip(scores, experts, strict=True)]
    assert sequence_loss(scores, experts, 2, 1.0).item() == pytest.approx(sum(each).item() / 3)


# --- the tiny model ---------------------------------------------------------------------------------------------


SMALL = {"vocab_size": 32, "width": 16, "hidden": 16, "steps": 60}


def test_the_layer_is_the_sum_over_its_experts():
    torch.manual_seed(0)
    model = RoutedModel(RoutedConfig(**SMALL, experts=6, k=2))
    ids = torch.randint(32, (2, 7))
    logits, experts, _ = model(ids)
    x = model.tokens(ids)
    weights, chosen, _ = model.route(x)
    assert torch.equal(chosen, experts)
    out = torch.zeros_like(x)
    for b in range(2):
        for t in range(7):
            for weight, e in zip(weights[b, t], chosen[b, t], strict=True):
                inside = torch.nn.functional.silu(x[b, t] @ model.up[e])
                out[b, t] += weight * (inside @ model.down[e])
    torch.testing.assert_close(logits, model.head(x + out))


def test_a_bias_and_a_loss_even_out_what_is_uneven_without():
    stream = zipf_stream(32, 5000)
    run = {name: routed_run(RoutedConfig(**SMALL, balance=name, alpha=0.3), stream) for name in ("none", "bias")}
    run["loss"] = routed_run(RoutedConfig(**SMALL, balance="auxiliary loss", alpha=0.3), stream)
    ends = {name: of.imbalance(20)[-1] for name, of in run.items()}
    assert ends["bias"] < 1.4 < ends["none"]
    assert ends["loss"] < ends["none"] - 0.2
    assert run["none"].model.bias.eq(0).all()
    assert run["bias"].model.bias.ne(0).any()


def test_a_run_depends_on_its_seed_alone():
    stream, config = zipf_stream(32, 5000), RoutedConfig(**{**SMALL, "steps": 5})
    before = torch.get_rng_state()
    one, again, other = (routed_run(config, stream, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert one.losses == again.losses != other.losses
    assert torch.equal(one.experts, again.experts)


@pytest.mark.parametrize(("wrong", "error"), [({"balance": "luck"}, UnknownName), ({"k": 17}, BadArgument)])
def test_a_layer_that_there_is_not_is_refused(wrong, error):
    with pytest.raises(error):
        RoutedConfig(**wrong)
