"""What lesson 03 hides from its cells says what it found, and never hides an error."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.errors import BadArgument, OutOfBounds
from gpu_utils.exercises.u03_porting_to_rocm.lesson_answers import after_sm_80, fp8_fate, which_of
from gpu_utils.exercises.u03_porting_to_rocm.lesson_hipify import between, included, narrow_votes, span
from gpu_utils.exercises.u03_porting_to_rocm.lesson_runs import endings, first_of_wave, kept_error, launched

STORE = "__global__ void store(float *out, int n) { if (threadIdx.x < n) out[threadIdx.x] = warpSize; }"


def test_each_target_writes_its_own_copy():
    out = torch.zeros(4)
    ends = launched(("sm_80", "gfx942"), STORE, "store", 1, 64, (out, 4))
    assert {target: end.out.tolist() for target, end in ends.items()} == {"sm_80": [32] * 4, "gfx942": [64] * 4}
    assert not out.any()


def test_an_error_of_a_launch_is_raised_where_its_result_is_read_and_where_no_word_is_given():
    ends = launched(("gfx942",), STORE, "store", 1, 64, (torch.zeros(4), 8))
    assert ends["gfx942"].said == "OutOfBounds"
    assert endings(ends, torch.zeros(4), {"OutOfBounds": "past the end"}) == {"gfx942": "past the end"}
    for read in (lambda: ends["gfx942"].out, lambda: endings(ends, torch.zeros(4), {})):
        with pytest.raises(OutOfBounds):
            read()


def test_a_result_that_differs_from_the_right_one_is_wrong():
    ends = launched(("sm_80", "gfx942"), STORE, "store", 1, 64, (torch.zeros(4), 4))
    assert endings(ends, torch.full((4,), 64.0), {}) == {"sm_80": "wrong", "gfx942": "right"}


def test_a_broadcast_gives_the_first_element_of_each_wave_and_nothing_past_the_threads():
    firsts = first_of_wave(torch.arange(64.0) + 1, 40, ("sm_80", "gfx942"))
    assert firsts["sm_80"].tolist() == [1] * 32 + [33] * 8 + [0] * 24
    assert firsts["gfx942"].tolist() == [1] * 40 + [0] * 24


def test_an_error_of_another_kind_is_not_kept():
    with kept_error(KeyError) as kept:
        raise KeyError("x")
    assert isinstance(kept.error, KeyError)
    with pytest.raises(ValueError, match="y"), kept_error(KeyError):
        raise ValueError("y")


def test_parts_of_a_text_are_cut_at_words_and_lines_keep_their_numbers():
    text = "a\nbegin\n  unsigned vote = 1;\n  __popc(vote);\nend\nunsigned vote"
    assert between(text, "begin", "end").splitlines()[0] == "begin"
    assert narrow_votes(text, "begin", "end") == {3: "unsigned vote = 1;", 4: "__popc(vote);"}
    assert span(text, "vote =") == "  unsigned vote = 1;\n  __popc(vote);"
    assert included('#include "a.h"\n#include <x/roctx.h>', "roctx") == "x/roctx.h"


@pytest.mark.parametrize(
    "call", [lambda: between("a b", "b", "c"), lambda: between("a", "z", "a"), lambda: span("a", "z")]
)
def test_words_that_are_not_there_are_named(call):
    with pytest.raises(BadArgument, match=r"'[cz]'"):
        call()


def test_a_header_that_nobody_includes_is_named():
    with pytest.raises(BadArgument, match="'roctx'"):
        included("// roctx", "roctx")


def test_words_for_what_came_out():
    assert [which_of({"a": a, "b": b}) for a, b in ((1, 1), (0, 0), (0, 1))] == ["both", "neither", "only b"]
    assert [fp8_fate(name) for name in ("error", "v_mfma_f32_16x16x32_fp8_fp8", "v_mfma_f32_32x32x8_f16", "none")] == [
        "refused",
        "FP8 instructions",
        "converted",
        "converted",
    ]
    assert [after_sm_80(f"80 compiled\n{rest}") for rest in ("gfx942 raised x\nthe end of the script", "")] == [
        "raised, the end",
        "nothing",
    ]
