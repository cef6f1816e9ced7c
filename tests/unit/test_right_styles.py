"""A right answer passes in whatever style; where it cannot, a sentence says what was found and what to do."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from gpu_utils import exercises
from gpu_utils.grading.check import check
from tests.fixtures.right_styles import MAPPINGS, STYLES, Counts, Pair, _collected, _counted, _heads
from tests.unit.sample_exercises import AFFINE, COUNTS, SAMPLES


@pytest.mark.parametrize(("exercise", "style", "answer"), STYLES, ids=[f"{id}-{style}" for id, style, _ in STYLES])
def test_a_right_answer_passes(exercise, style, answer):
    report = check(SAMPLES.get(exercise) or exercises.find(exercise), answer)
    assert report.passed, report.headline


def test_an_array_where_a_tensor_is_asked_passes():
    assert check(AFFINE, lambda x: (2 * x + 1).numpy() if x.dtype == torch.float32 else 2 * x + 1).passed


REFUSED = {
    "a generator": (lambda found: (key for key in found), "is a generator (list(...) makes a list of it)"),
    "a dataclass": (lambda found: Counts(**found), "a dataclass (dataclasses.asdict makes a dict of it)"),
    "a named tuple": (lambda found: Pair(**found), "is a list or tuple of 2 values, expected a dict"),
    "a set": (lambda found: set(found), "a set has no order; sorted(...) makes a list"),
    "a function": (lambda found: found.items, "was it meant to be called?"),
    "another key": (lambda found: {**found, 7: 1}, "has a key 7 that was not asked for"),
}


@pytest.mark.parametrize("style", REFUSED)
def test_a_collection_of_another_kind_is_named_with_what_to_do(style):
    dress, sentence = REFUSED[style]
    failure = check(COUNTS, _collected(dress)).first_failure
    assert failure.kind == "type"
    assert sentence in failure.detail


def test_a_list_of_one_number_is_not_the_number():
    failure = check(COUNTS, _counted(lambda number: torch.tensor([number]))).first_failure
    assert "is a tensor of shape (1,), expected a number" in failure.detail


def test_attention_of_the_library_is_refused_in_one_sentence_where_it_is_to_be_written():
    def attention(x, w_qkv, b_qkv, w_proj, b_proj, n_head):
        q, k, v = _heads(x, w_qkv, b_qkv, n_head)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    failure = check(exercises.find("01.attention"), attention).first_failure
    assert "was called; write the scores, the mask and the softmax yourself" in failure.detail


def test_a_wrong_number_in_another_style_is_as_wrong():
    assert not check(COUNTS, _counted(lambda number: torch.tensor(number + 1))).passed
    wrong = _collected(lambda found: MAPPINGS["OrderedDict"]({key: value + 1 for key, value in found.items()}))
    assert not check(COUNTS, wrong).passed


def test_all_parts_in_one_graph_of_torch_func_keep_too_much():
    def grad_accumulation(weight, x, targets, micro_batch):
        def loss(w):
            parts = zip(x.split(micro_batch), targets.split(micro_batch), strict=True)
            sums = [F.cross_entropy((p @ w.T).flatten(0, 1), t.flatten(), reduction="sum") for p, t in parts]
            return sum(sums) / (targets != -100).sum()

        grad, value = torch.func.grad_and_value(loss)(weight)
        return {"loss": value, "grad": grad}

    failure = check(exercises.find("01.grad_accumulation"), grad_accumulation).first_failure
    assert "'several parts at once', expected 'one part at a time'" in failure.detail
