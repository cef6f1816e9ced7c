"""What lesson 08 computes with: narrow sums, errors of shared scales, operands of a step, the table of formats."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from gpu_utils.analytic.narrow_sums import HOPPER, narrow_sums, worst_sum_errors
from gpu_utils.course.sources import load_solution
from gpu_utils.errors import UnknownName
from gpu_utils.formats import BLOCK_FORMATS, FORMATS
from gpu_utils.model.corpus import CorpusConfig
from gpu_utils.model.fp8_errors import WAYS, bits_per_value, relative_errors
from gpu_utils.model.fp8_operands import layer_operands, mx_codes
from gpu_utils.model.fp8_scaling import GRANULARITIES, quantised
from gpu_utils.model.gpt2 import GPT2, GPT2Config
from gpu_utils.model.training import TrainConfig, batch_loss
from gpu_utils.ui.format_table import format_numbers, format_table


def drawn(rows: int, columns: int) -> torch.Tensor:
    """Normal numbers whose rows and columns differ in size."""
    generator = torch.Generator().manual_seed(3)
    sizes = torch.logspace(-2, 2, columns) * torch.logspace(0, 1, rows)[:, None]
    return torch.randn(rows, columns, generator=generator) * sizes


def cut(value: Fraction, unit: Fraction) -> Fraction:
    return unit * math.trunc(value / unit)


def exponent(value: Fraction) -> int:
    return math.frexp(float(value))[1] - 1 if value else -126


def in_fractions(length: int, digits: int, promoted_every: int | None) -> float:
    """The model of the module's docstring once more, in exact numbers."""
    a, b = FORMATS["e4m3fn"].rounded(np.random.default_rng(0).random((2, 512, length)))
    off, squares = Fraction(0), Fraction(0)
    for row_a, row_b in zip(a, b, strict=True):
        exact = sum((Fraction(x) * Fraction(y) for x, y in zip(row_a, row_b, strict=True)), Fraction(0))
        total = running = Fraction(0)
        for start in range(0, length, 32):
            pairs = [(Fraction(row_a[k]), Fraction(row_b[k])) for k in range(start, start + 32)]
            top = max(*(exponent(x) + exponent(y) for x, y in pairs), exponent(running))
            unit = Fraction(2) ** (top - digits)
            running = sum((cut(x * y, unit) for x, y in pairs), cut(running, unit))
            running = cut(running, Fraction(2) ** (exponent(running) - digits))
            if promoted_every and (start + 32) % promoted_every == 0:
                total, running = Fraction(float(np.float32(float(total + running)))), Fraction(0)
        off = max(off, abs(total + running - exact))
        squares += exact * exact
    return float(off) / math.sqrt(squares / 512)


@pytest.mark.parametrize("promoted_every", [None, 64])
def test_the_largest_error_of_narrow_sums_is_that_of_the_model_in_fractions(promoted_every):
    found = worst_sum_errors([96], digits=13, promoted_every=promoted_every)
    assert found[96] == pytest.approx(in_fractions(96, 13, promoted_every), rel=1e-6)


@pytest.mark.parametrize(("drawn_by", "least", "most"), [(torch.rand, 1.0, 1.0), (torch.randn, 0.85, 0.95)])
def test_the_rule_of_the_accumulator_exercise_is_the_models_but_for_products_that_carry(drawn_by, least, most):
    """As lab 08 says: the same for positive products; with signs one sum in ten ends otherwise."""
    generator = torch.Generator().manual_seed(0)
    a, b = drawn_by(2, 2048, 2048, generator=generator).to(torch.float8_e4m3fn).float()
    *_, (_, sums) = narrow_sums(a.double().numpy(), b.double().numpy(), digits=HOPPER)
    of_exercise, _ = load_solution("08.accumulator")(a, b, HOPPER, 0.1)
    assert least <= (of_exercise.numpy() == sums).mean() <= most


def test_errors_grow_with_the_length_unless_sums_are_promoted_or_wide():
    plain = worst_sum_errors([128, 1024])
    assert plain[1024] > 4 * plain[128]
    promoted = worst_sum_errors([128, 1024], promoted_every=128)
    assert promoted[128] == plain[128]
    assert promoted[1024] < 1.5 * plain[128]
    assert worst_sum_errors([1024], digits=25)[1024] < plain[1024] / 1000


GROUPS = {"per tensor": (None, None), "per row": (1, None), "1 x 128": (1, 128), "128 x 128": (128, 128)}


@pytest.mark.parametrize(
    ("way", "name", "tile"),
    [(way, "e4m3fn", tile) for way, tile in GROUPS.items()]
    + [("E2M1, 1 x 128", "e2m1", (1, 128)), ("E2M1, per row", "e2m1", (1, None))],
)
def test_errors_of_groups_are_those_of_each_group_alone(way, name, tile):
    x, of = drawn(130, 257), FORMATS[name]
    x[5] = 0
    rows, columns = tile[0] or 130, tile[1] or 257
    wanted = np.full((130, 257), np.nan)
    for i in range(0, 130, rows):
        for j in range(0, 257, columns):
            part = x[i : i + rows, j : j + columns].numpy()
            scale = np.float64(np.abs(part).max() / np.float32(of.largest)) or 1.0
            with np.errstate(invalid="ignore"):
                off = np.abs(of.rounded(part / scale) * scale - part) / np.abs(part.astype(float))
            wanted[i : i + rows, j : j + columns] = off
    np.testing.assert_allclose(relative_errors(x, way)[way].numpy(), wanted, rtol=1e-6, atol=1e-12)


def test_every_way_has_its_bits_and_an_unknown_one_is_named():
    x = drawn(4, 256)
    assert set(relative_errors(x)) == set(bits_per_value(4, 256)) == set(WAYS)
    with pytest.raises(UnknownName, match="1x64"):
        relative_errors(x, "1x64")


def test_mx_in_training_is_mxfp8_to_the_bit():
    x = drawn(64, 256)
    x[3, 32:64] = 0
    found = quantised(x, GRANULARITIES["mx32"], torch.float8_e4m3fn).values()
    assert np.array_equal(found.numpy(), BLOCK_FORMATS["MXFP8"].rounded(x.numpy()))


def test_mx_codes_are_what_a_product_reads():
    x = drawn(8, 96)
    codes, scales = mx_codes(x)
    assert (codes.shape, scales.shape) == ((8, 96), (8, 3))
    values = codes.view(torch.float8_e4m3fn).float().view(8, 3, 32) * torch.exp2(scales.float() - 127)[..., None]
    assert np.array_equal(values.view(8, 96).numpy(), BLOCK_FORMATS["MXFP8"].rounded(x.numpy()))


def test_the_operands_of_a_step_make_its_gradients(tmp_path, monkeypatch):
    monkeypatch.setenv("W2W_CACHE", str(tmp_path))
    config = TrainConfig(
        model=GPT2Config(vocab_size=300, n_positions=16, n_embd=32, n_layer=2, n_head=2),
        corpus=CorpusConfig(vocab_size=300, max_bytes=200_000),
        batch=2, seq_len=16, steps=1, warmup=1, max_lr=1e-3, min_lr=1e-4, eval_batches=1,
    )  # fmt: skip
    model = GPT2(replace(config.model))
    inputs, targets = torch.randint(300, (2, 2, 16))
    operands = layer_operands(model, inputs, targets)
    assert len(operands) == 8
    assert all(parameter.grad is None for parameter in model.parameters())
    batch_loss(model, inputs, targets).backward()
    for name, found in operands.items():
        layer = model.get_submodule(name)
        assert torch.equal(found["w"], layer.weight)
        wanted = layer.weight.grad
        assert (found["dy"].T @ found["x"] - wanted).norm() < 0.03 * wanted.norm(), name  # of products in bfloat16


TORCH = {
    "e4m3fn": torch.float8_e4m3fn,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2": torch.float8_e5m2,
    "e5m2fnuz": torch.float8_e5m2fnuz,
}


@pytest.mark.parametrize("name", TORCH)
def test_the_table_of_formats_says_what_torch_says(name):
    ((shown, bits, _, smallest, normal, largest, nan, infinity),) = format_table(name).rows
    of = torch.finfo(TORCH[name])
    values = torch.arange(256, dtype=torch.uint8).view(TORCH[name]).float()
    assert shown == name
    assert sum(int(part) for part in bits.split(" + ")) == 8
    assert smallest == f"2^{int(math.log2(values[values > 0].min()))}"
    assert normal == f"2^{int(math.log2(of.smallest_normal))}"
    assert float(largest.replace(",", "")) == of.max
    assert (int(nan), int(infinity)) == (int(values.isnan().sum()), int(values.isinf().sum()))


def test_the_numbers_of_a_format_rise_and_hold_zero_once():
    found = format_numbers("e4m3fn")
    assert found == sorted(set(found))
    assert len(found) == 256 - 2 - 1
    assert found.count(0.0) == 1
    assert format_numbers("e8m0")[0] == 2.0**-127
    with pytest.raises(UnknownName, match="e4m4"):
        format_table("e4m4")
