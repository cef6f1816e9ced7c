"""FP8 training: scales and codes, the three products of a linear layer, its log, and whole runs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.model import fp8_linear, fp8_training
from gpu_utils.model.corpus import CorpusConfig
from gpu_utils.model.fp8_linear import CONVERTED, E4M3, E4M3_FNUZ, E5M2, Fp8Linear, OperandScaler, Recipe, converted
from gpu_utils.model.fp8_log import AmaxLog
from gpu_utils.model.fp8_recipes import RECIPES
from gpu_utils.model.fp8_scaling import GRANULARITIES, Granularity, beyond, largest, quantised, scales_for, tile_amax
from gpu_utils.model.fp8_training import Fp8Run, fp8_run, fp8_trial, loss_gap
from gpu_utils.model.gpt2 import GPT2, GPT2Config
from gpu_utils.model.training import TrainConfig

TYPES = (E4M3, E4M3_FNUZ, E5M2)
TINY = TrainConfig(
    model=GPT2Config(vocab_size=300, n_positions=16, n_embd=32, n_layer=1, n_head=2),
    corpus=CorpusConfig(vocab_size=300, max_bytes=200_000),
    batch=2,
    seq_len=16,
    steps=4,
    warmup=1,
    max_lr=1e-3,
    min_lr=1e-4,
    eval_batches=1,
)


@pytest.fixture(autouse=True, scope="module")
def folders(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("W2W_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def drawn(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    """Normal numbers whose rows and columns differ in size, so that tiles do."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.logspace(-3, 3, columns) * torch.logspace(0, 1, rows)[:, None]
    return torch.randn(rows, columns, generator=generator) * sizes


def numbers(dtype: torch.dtype) -> np.ndarray:
    """Every finite number of the type, ascending, float64."""
    table = torch.arange(256, dtype=torch.uint8).view(dtype).float().double().numpy()
    return np.unique(table[np.isfinite(table)])


def nearest(values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Each value's nearest number of the type in float64, ties to the even code; what is beyond becomes the largest."""
    known = numbers(dtype)
    above = np.clip(np.searchsorted(known, values), 1, len(known) - 1)
    low, high = known[above - 1], known[above]
    codes = torch.tensor(known).to(dtype).view(torch.uint8).numpy()
    even_low = codes[above - 1] % 2 == 0
    down = (values - low < high - values) | ((values - low == high - values) & even_low)
    return np.where(down, low, high)


def reference(x: torch.Tensor, tile: Granularity, dtype: torch.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Values and scales of `quantised`, tile by tile; only the quotients are float32, as they are there."""
    given = x.numpy()
    rows, columns = tile.rows or given.shape[0], tile.columns or given.shape[1]
    out = np.zeros(given.shape)
    scales = np.zeros((-(-given.shape[0] // rows), -(-given.shape[1] // columns)))
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            part = (slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns))
            amax = float(np.abs(given[part]).max())
            if tile.power_of_two:
                scale = 2.0 ** (math.floor(math.log2(amax)) - math.floor(math.log2(largest(dtype)))) if amax else 1.0
            else:
                scale = float(np.float32(amax) / np.float32(largest(dtype))) or 1.0
            scales[i, j] = scale
            out[part] = nearest((given[part] / np.float32(scale)).astype(np.float64), dtype) * scale
    return out, scales


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", [*GRANULARITIES, "128x1"])
@pytest.mark.parametrize("shape", [(130, 257), (3, 5)], ids=str)
def test_codes_and_scales_are_those_of_a_reference_in_float64(dtype, name, shape):
    tile = GRANULARITIES["1x128"].turned if name == "128x1" else GRANULARITIES[name]
    x = drawn(*shape)
    q = quantised(x, tile, dtype)
    values, scales = reference(x, tile, dtype)
    assert q.codes.dtype == dtype
    assert q.codes.shape == shape
    assert torch.equal(q.scales.double(), torch.tensor(scales))
    assert torch.equal(q.values(), torch.tensor(values).float())


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_code_comes_back_as_its_own_value(dtype):
    codes = torch.arange(256, dtype=torch.uint8).view(dtype)[None]
    known = quantised(torch.ones(1, 256), GRANULARITIES["tensor"], dtype)
    back = replace(known, codes=codes, scales=torch.ones(1, 1)).values()
    assert torch.equal(back.nan_to_num(7.0), codes.float().nan_to_num(7.0))
    assert torch.equal(back.isnan(), codes.float().isnan())


@pytest.mark.parametrize("name", GRANULARITIES)
def test_a_tile_of_zeros_has_the_scale_one_and_stays_zero(name):
    x = torch.zeros(130, 256)
    x[129, 200] = 5.0
    q = quantised(x, GRANULARITIES[name], E4M3)
    assert q.values().isfinite().all()
    assert (q.values() != 0).sum() == 1
    assert (q.scales == 1).sum() == q.scales.numel() - 1


def test_an_amax_whose_scale_underflows_gives_no_nan():
    q = quantised(torch.tensor([[1e-44, 0.0]]), GRANULARITIES["tensor"], E4M3)
    assert q.values().tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["1x128", "mx32"])
def test_what_is_no_finite_number_makes_its_tile_nan_and_no_other(bad, name):
    x = torch.ones(2, 256)
    x[0, 3] = bad
    values = quantised(x, GRANULARITIES[name], E4M3).values()
    columns = GRANULARITIES[name].columns
    assert values[0, 3].isnan()
    assert values[0, columns:].isfinite().all()
    assert values[1].isfinite().all()


def test_an_outlier_costs_its_own_tile_alone():
    x = torch.full((1, 256), 0.01)
    x[0, 0] = 10_000.0
    whole, tiles = (quantised(x, GRANULARITIES[name], E4M3).values() for name in ("tensor", "1x128"))
    assert (whole[0, 1:] == 0).all()
    assert (tiles[0, 1:128] == 0).all()
    assert torch.allclose(tiles[0, 128:], x[0, 128:], rtol=1e-6)


def test_an_mx_scale_is_a_power_of_two_and_its_rule_saturates_near_the_next_one():
    scales = scales_for(torch.tensor([448.0, 500.0, 512.0]), E4M3, power_of_two=True)
    assert scales.tolist() == [1.0, 1.0, 2.0]
    assert quantised(torch.tensor([[500.0]]), GRANULARITIES["mx32"], E4M3).values().item() == 448.0


def test_without_saturation_a_number_beyond_becomes_what_the_cast_makes_of_it():
    x, one = torch.tensor([[1e6, 1.0]]), torch.ones(1, 1)
    fnuz, e5m2 = (
        quantised(x, GRANULARITIES["tensor"], dtype, one, saturate=False).values()[0] for dtype in (E4M3_FNUZ, E5M2)
    )
    assert fnuz[0].isnan()
    assert e5m2[0].isinf()
    assert fnuz[1] == e5m2[1] == 1
    assert quantised(x, GRANULARITIES["tensor"], E4M3_FNUZ, one).values()[0, 0] == 240


# --- the layer -----------------------------------------------------------------------------------------------------


def layer(recipe: Recipe, n_in: int = 200, n_out: int = 130, bias: bool = True) -> tuple[Fp8Linear, AmaxLog]:
    log = AmaxLog()
    torch.manual_seed(0)
    return Fp8Linear(nn.Linear(n_in, n_out, bias=bias), recipe, "one", log), log


def pieces(recipe: Recipe, tokens: int = 150) -> tuple[Fp8Linear, torch.Tensor, torch.Tensor, torch.Tensor]:
    linear, _ = layer(recipe)
    x = drawn(tokens, 200, seed=1).mul(0.01).requires_grad_()
    dy = drawn(tokens, 130, seed=2) * 1e-4
    y = linear(x)
    y.backward(dy)
    return linear, x, y, dy


def test_the_three_products_of_the_report_are_those_of_their_dequantised_operands_in_float64():
    linear, x, y, dy = pieces(RECIPES["deepseek"])
    row, block = GRANULARITIES["1x128"], GRANULARITIES["128x128"]
    column = row.turned
    xq, wq = quantised(x.detach(), row, E4M3).values(), quantised(linear.weight.detach(), block, E4M3).values()
    dy_row, dy_column = quantised(dy, row, E4M3).values(), quantised(dy, column, E4M3).values()
    x_column = quantised(xq, column, E4M3).values()  # from what was stored in FP8
    for found, wanted in (
        (y, xq.double() @ wq.double().T + linear.bias.double()),
        (x.grad, dy_row.double() @ wq.double()),
        (linear.weight.grad, dy_column.double().T @ x_column.double()),
        (linear.bias.grad, dy.double().sum(0)),
    ):
        assert found.dtype == torch.float32
        assert (found - wanted).norm() / wanted.norm() < 1e-6


@pytest.mark.parametrize("name", [name for name in RECIPES if "cast" not in name])
def test_the_gradients_of_every_scaled_recipe_are_near_those_without_rounding(name):
    recipe = RECIPES[name]
    linear, x, y, dy = pieces(recipe)
    exact_x = x.detach().clone().requires_grad_()
    weight, bias = (p.detach().clone().requires_grad_() for p in (linear.weight, linear.bias))
    exact = nn.functional.linear(exact_x, weight, bias)
    exact.backward(dy)
    pairs = ((y, exact), (x.grad, exact_x.grad), (linear.weight.grad, weight.grad), (linear.bias.grad, bias.grad))
    limit = 0.01 if name == "bf16" else 0.1  # half of 2^-3 at most for each number of E4M3, twice that for E5M2
    for found, wanted in pairs:
        error = (found - wanted).norm() / wanted.norm()
        assert error < limit
    assert (y - exact).norm() > 0


def test_bfloat16_operands_are_rounded_to_bfloat16_and_nothing_else():
    linear, x, y, _ = pieces(RECIPES["bf16"])
    wanted = x.bfloat16().double() @ linear.weight.bfloat16().double().T + linear.bias.double()
    assert (y - wanted).norm() / wanted.norm() < 1e-6


def test_a_layer_takes_any_leading_shape_and_gives_the_type_of_its_input():
    linear, _ = layer(Recipe(), bias=False)
    x = torch.randn(2, 3, 200)
    assert linear(x).shape == (2, 3, 130)
    assert torch.allclose(linear(x)[1], linear(x[1]), rtol=0, atol=1e-5)  # of as many rows in another order of sums
    assert linear(x.double()).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        y = linear(x)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, linear(x).bfloat16())


def test_delayed_scaling_uses_the_passes_before_this_one_and_forgets_old_ones():
    log = AmaxLog()
    scaler = OperandScaler(replace(RECIPES["delayed"], history=2), "x", "one", log)
    used = []
    for log.step, amax in enumerate((8.0, 2.0, 100.0, 1.0, 1.0, 1.0), 1):
        used.append(scaler(torch.tensor([[amax, 0.5]]), training=True)[0].scales.item() * largest(E4M3))
    # The first has no history; then the larger of the last two, never this pass's own.
    assert used == pytest.approx([8, 8, 8, 100, 100, 1])
    assert log.series("one", "x").reach == pytest.approx([1, 0.25, 12.5, 0.01, 0.01, 1])


def test_static_scaling_keeps_the_first_pass_and_its_margin():
    scaler = OperandScaler(RECIPES["frozen"], "x", "one", AmaxLog())
    used = [scaler(torch.tensor([[amax]]), training=True)[0].scales.item() for amax in (3.0, 100.0, 0.1)]
    assert used == pytest.approx([3 * 1.5 / 240] * 3)


def test_validation_changes_neither_history_nor_log():
    linear, log = layer(RECIPES["delayed"])
    x = torch.randn(4, 200)
    linear(x)
    with torch.no_grad():
        linear(100 * x)
    assert len(linear.scalers["x"].amaxes) == 1
    assert log.series("one", "x").steps == [1]


def test_an_unknown_granularity_and_remembered_scales_of_tiles_are_refused():
    with pytest.raises(UnknownName, match="1x129"):
        Recipe(tiles="1x129")
    with pytest.raises(BadArgument, match="delayed scaling remembers one amax"):
        Recipe(scaling="delayed")


# --- the log ---------------------------------------------------------------------------------------------------------


def test_the_log_counts_what_saturates_and_what_underflows():
    x = torch.full((2, 128), 100.0)
    x[0, :3] = 500.0  # beyond 448 at scale 1
    x[0, 3] = -449.0
    x[1, :5] = 2.0**-11  # below half of the smallest number, 2^-9
    x[1, 5:7] = 0.0  # zero before, and no loss
    scaler = OperandScaler(RECIPES["plain cast"], "x", "one", log := AmaxLog())
    scaler(x, training=True)
    found = log.series("one", "x")
    assert (found.steps, found.amax, found.scale) == ([1], [500.0], [1.0])
    assert found.saturated == [4 / 256]
    assert found.underflowed == [5 / 256]
    assert found.reach == pytest.approx([500 / 448])


@pytest.mark.parametrize("name", ["1x128", "128x128", "row", "tensor"])
def test_with_scales_of_its_own_nothing_lies_beyond_whatever_float32_makes_of_the_quotient(name):
    for seed in range(20):
        x = drawn(130, 200, seed)
        assert beyond(x, quantised(x, GRANULARITIES[name], E4M3)) == 0


def test_an_mx_block_whose_scale_is_too_small_counts_as_saturated():
    x = torch.ones(1, 64)
    x[0, 40] = 500.0
    OperandScaler(RECIPES["mx"], "x", "one", log := AmaxLog())(x, training=True)
    assert log.series("one", "x").saturated == [1 / 64]


def test_passes_of_one_step_are_one_entry_and_the_log_names_what_came_nearest_to_the_edge():
    log = AmaxLog()
    x, w = (OperandScaler(RECIPES["plain cast"], operand, "one", log) for operand in ("x", "w"))
    for step, sizes in ((1, (1.0, 500.0)), (2, (3.0, math.nan))):
        log.step = step
        for size in sizes:
            x(torch.tensor([[size, 1.0]]), training=True)
    w(torch.tensor([[2.0]]), training=True)
    found = log.series("one", "x")
    assert found.steps == [1, 2]
    assert found.amax[0] == 500.0
    assert math.isnan(found.amax[1])
    assert found.saturated[0] == 0.25
    assert log.layers == ["one"]
    assert log.nearest_edge() == ("one", "x")


def test_an_entry_that_the_log_does_not_have_is_named():
    linear, log = layer(Recipe())
    linear(torch.ones(1, 200))
    with pytest.raises(UnknownName, match="one dy"):
        log.series("one", "dy")


# --- the model -------------------------------------------------------------------------------------------------------


def test_only_the_linear_layers_of_the_blocks_are_converted_and_the_given_model_stays():
    model = GPT2(TINY.model)
    new, _ = converted(model, Recipe())
    changed = {name for name, part in new.named_modules() if isinstance(part, Fp8Linear)}
    assert changed == {f"h.0.{name}" for name in CONVERTED}
    assert not any(isinstance(part, Fp8Linear) for part in model.modules())
    tokens = torch.randint(300, (2, 16))
    assert not torch.equal(new(tokens), model(tokens))
    assert type(new.wte) is nn.Embedding
    assert type(new.ln_f) is nn.LayerNorm


def test_but_for_the_products_a_converted_model_is_the_model(monkeypatch):
    model = GPT2(TINY.model)
    new, _ = converted(model, Recipe())
    monkeypatch.setattr(Fp8Linear, "forward", nn.Linear.forward)
    tokens = torch.randint(300, (2, 16))
    assert torch.equal(new(tokens), model(tokens))


def test_state_dicts_fit_both_ways():
    model = GPT2(TINY.model)
    new, _ = converted(model, Recipe())
    assert list(new.state_dict()) == list(model.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(new.state_dict().values(), model.state_dict().values(), strict=True))
    assert all(p.dtype == torch.float32 for p in new.parameters())
    other = GPT2(TINY.model)
    new.load_state_dict(other.state_dict())
    other.load_state_dict(new.state_dict())


def test_a_run_logs_every_layer_operand_and_step_and_comes_out_the_same_again():
    one, two = (fp8_run(RECIPES["deepseek"], seed=3, config=TINY, device="cpu") for _ in range(2))
    assert one.losses == two.losses
    assert one.val_loss == two.val_loss
    assert one.died is None
    assert len(one.losses) == TINY.steps
    assert len(one.log.layers) == 4
    for layer_name in one.log.layers:
        for operand in ("x", "w", "dy"):
            assert one.log.series(layer_name, operand).steps == [1, 2, 3, 4]
    assert fp8_run(RECIPES["deepseek"], seed=4, config=TINY, device="cpu").losses != one.losses


def test_a_run_leaves_torchs_random_numbers_alone():
    torch.manual_seed(7)
    wanted = torch.rand(1)
    torch.manual_seed(7)
    fp8_run(RECIPES["bf16"], config=replace(TINY, steps=1), device="cpu")
    assert torch.equal(torch.rand(1), wanted)


def test_accumulated_batches_are_one_step_of_the_log():
    run = fp8_run(RECIPES["delayed"], config=replace(TINY, accumulate=2), device="cpu")
    assert run.log.series(run.log.layers[0], "dy").steps == [1, 2, 3, 4]


def test_a_loss_that_is_no_number_ends_the_run_at_its_step():
    recipe = replace(RECIPES["frozen"], margin=0.9)  # too small from the first step on
    run = fp8_run(recipe, config=TINY, device="cpu")
    assert run.died == 1
    assert len(run.losses) == 1
    assert math.isnan(run.val_loss)
    saturating = fp8_run(replace(recipe, saturate=True), config=TINY, device="cpu")
    assert saturating.died is None
    assert math.isfinite(saturating.val_loss)


def test_a_trial_pairs_seeds_and_its_gap_is_relative_to_bf16():
    runs = fp8_trial(["bf16", "tensor"], seeds=(0, 1), config=replace(TINY, steps=2))
    gap = loss_gap(runs["bf16"], runs["tensor"])
    assert [run.seed for run in runs["tensor"]] == [0, 1]
    assert len(gap.percent) == 2
    assert gap.interval.low <= sum(gap.percent) / 2 <= gap.interval.high
    with pytest.raises(UnknownName, match="fp4"):
        fp8_trial(["fp4"])


def test_a_gap_is_shown_only_by_an_interval_that_lies_on_one_side():
    def run(val_loss: float) -> Fp8Run:
        return Fp8Run(Recipe(), 0, [val_loss], val_loss, AmaxLog(), 0.0)

    base = [run(4.0), run(5.0)]
    assert loss_gap(base, [run(4.004), run(5.005)]).within_report  # 0.1% each
    wide = loss_gap(base, [run(4.0), run(5.01)])
    assert wide.percent == pytest.approx([0, 0.2])
    assert not wide.within_report
    with pytest.raises(BadArgument, match="do not form pairs"):
        loss_gap(base, base[:1])
    dead = loss_gap(base, [run(4.0), run(math.nan)])
    assert math.isnan(dead.interval.mean)
    assert not dead.within_report


def test_nothing_is_bound_to_the_cpu():
    # "meta" has shapes and no data: an operation that mixes in a tensor of the CPU fails on it.
    tile = GRANULARITIES["1x128"]
    x = torch.empty(130, 300, device="meta")
    assert tile_amax(x, tile).device.type == "meta"
    assert quantised(x, tile, E4M3).values().shape == (130, 300)
    assert quantised(x, GRANULARITIES["mx32"], E5M2).values().device.type == "meta"


def test_the_widths_of_the_124m_preset_go_through_the_same_code(monkeypatch):
    # Autocast does not know "meta".
    monkeypatch.setattr(fp8_linear, "_product", torch.matmul)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)
    config = replace(TrainConfig.preset("gpt2").model, n_layer=2)
    with torch.device("meta"):
        model, log = converted(GPT2(config), RECIPES["deepseek"])
        tokens = torch.zeros(1, 128, dtype=torch.int64)
        model.loss(tokens, tokens).backward()
    assert len(log.layers) == 8
    assert all(p.grad is not None and p.grad.shape == p.shape for p in model.parameters())


def test_the_reported_gap_is_the_one_of_the_facts():
    assert fp8_training.REPORTED_GAP == 0.25
