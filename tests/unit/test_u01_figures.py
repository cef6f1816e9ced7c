import re
import xml.etree.ElementTree as ElementTree

import pytest

from gpu_utils import CHIPS
from gpu_utils.model.costs import activation_bytes, flops_per_token, matmul_params, param_count
from gpu_utils.model.gpt2 import GPT2Config
from gpu_utils.ui.block_figure import BlockFigure, block_parts
from gpu_utils.ui.explore.costs import KNOWN_CHIPS, draw, explorer, memory_parts

SHAPES = [
    GPT2Config.preset("gpt2"),
    GPT2Config.preset("cpu"),
    GPT2Config(vocab_size=300, n_positions=32, n_embd=48, n_layer=3, n_head=3),
]


@pytest.mark.parametrize("config", SHAPES)
def test_the_parts_of_a_block_add_up_to_the_formulas(config):
    T = config.n_positions
    parts = block_parts(config, T)
    d, L, V = config.n_embd, config.n_layer, config.vocab_size
    assert L * sum(part.weights for part in parts) + (V + T + 2) * d == param_count(config)
    assert 3 * (L * sum(part.flops for part in parts) + 2 * V * d) == flops_per_token(config)
    kept = L * sum(part.kept for part in parts) + 2 * d + V
    assert 4 * kept * T == activation_bytes(config, 1, T)


@pytest.mark.parametrize("config", SHAPES)
def test_the_block_figure_is_well_formed_and_says_in_words_what_it_draws(config):
    figure = BlockFigure(config, config.n_positions)
    svg = ElementTree.fromstring(figure._repr_html_())
    assert svg.get("aria-label").split() == repr(figure).split()
    words = " ".join(svg.itertext())
    for part in block_parts(config, config.n_positions):
        assert part.label in words
        for value in (part.weights, part.flops, part.kept):
            assert not value or f"{value:,}" in words


@pytest.mark.parametrize("chip", KNOWN_CHIPS)
def test_a_report_names_the_sources_of_its_figures(chip):
    html = draw(GPT2Config.preset("gpt2"), 8, 1024, chip, fused=True).html
    ElementTree.fromstring(html)
    assert str(CHIPS[chip].memory_gb).split("source: ")[1][:20] in html.replace("&#x27;", "'")
    assert "fits" in html


def test_memory_parts_add_up_and_fused_attention_keeps_no_scores():
    config = GPT2Config.preset("gpt2")
    explicit, fused = (memory_parts(config, 8, 1024, fused=fused) for fused in (False, True))
    kept = activation_bytes(config, 8, 1024, bytes_per_value=2)
    assert sum(explicit.values()) == kept + 16 * param_count(config) + 2 * 4 * 8 * 1024 * 50257
    assert fused["attention probabilities"] == 0
    assert explicit["attention probabilities"] == 2 * 12 * 8 * 12 * 1024**2


def test_a_model_too_large_for_a_chip_is_said_not_to_fit():
    config = GPT2Config(vocab_size=50257, n_positions=4096, n_embd=8192, n_layer=96, n_head=128)
    assert "does not fit" in draw(config, 64, 4096, "H100", fused=True).words
    assert matmul_params(config) > 60e9


def test_moving_a_slider_changes_the_report():
    costs = explorer()
    before = costs.report.value
    costs.controls["layers"].value = 24
    assert (
        re.search(r"[\d,]+ parameters", costs.report.value).group() != re.search(r"[\d,]+ parameters", before).group()
    )
    assert "124,439,808 parameters" in before
