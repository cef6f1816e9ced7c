"""Formulas, layouts and their conflicts, and the proofs of unit 14 beside brute force."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from gpu_utils import explore
from gpu_utils.analytic.access import bank_conflicts
from gpu_utils.analytic.formulas import formula, names, steps
from gpu_utils.analytic.layouts import PATTERNS, by_operand, by_rows, fault_of, lane_offsets, offsets, whole_pieces
from gpu_utils.chips.targets import TARGETS
from gpu_utils.errors import BadArgument, CompilerMissing
from gpu_utils.exercises.u14_tilelang import prove_bijective, prove_bounds, swizzle
from gpu_utils.exercises.u14_tilelang import prove_bijective_slips as bijections
from gpu_utils.exercises.u14_tilelang import prove_bounds_slips as bounds
from gpu_utils.exercises.u14_tilelang.proofs import broken, with_z3
from gpu_utils.grading.check import check
from gpu_utils.ui.explore.layout import EXAMPLES, draw

z3 = pytest.importorskip("z3", reason="the extra tilelang brings Z3")

TEXTS = ("a * 8 + (b ^ a % 8)", "min(a, b) - max(a, 3)", "(a << 2) // 3 % 5 & b", "a >> 1 <= b", "a // 4 * 4 == a")


@pytest.mark.parametrize("text", TEXTS)
def test_a_formula_is_the_same_over_numbers_arrays_and_bit_vectors(text):
    a, b = np.meshgrid(np.arange(16), np.arange(16), indexing="ij")
    arrays = formula(text, {"a": a, "b": b})
    for left, right in product(range(16), range(0, 16, 3)):
        number = formula(text, {"a": left, "b": right})
        assert number == arrays[left, right]
        term = z3.simplify(formula(text, {"a": z3.BitVecVal(left, 16), "b": z3.BitVecVal(right, 16)}))
        assert (z3.is_true(term) if isinstance(number, bool) else term.as_signed_long()) == number


@pytest.mark.parametrize("text", ["a // 4 - b % 3 * a", "(0 - a) // 4", "(0 - a) % 5", "min(a - b, 2)", "a - 1 < b"])
def test_whole_numbers_of_z3_divide_as_pythons_do(text):
    for left, right in product(range(6), range(6)):
        number = formula(text, {"a": left, "b": right})
        term = z3.simplify(formula(text, {"a": z3.IntVal(left), "b": z3.IntVal(right)}))
        assert (z3.is_true(term) if isinstance(number, bool) else term.as_long()) == number


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "no formula"), ("a +", "no formula"), ("a / 2", "use //"), ("c", "no value"), ("f(a)", "not known"),
     ("a < 1 < 2", "not known"), ("a // (b - b)", "by zero"), ("a << 99", "shifts by 99"), ("1" * 500, "characters")],
)  # fmt: skip
def test_what_is_no_formula_is_refused_in_a_sentence(text, words):
    with pytest.raises(BadArgument, match=words):
        formula(text, {"a": 1, "b": 2})


def test_bits_of_a_whole_number_of_z3_are_refused():
    with pytest.raises(BadArgument, match=r"z3\.BitVec"):
        formula("a ^ 1", {"a": z3.Int("a")})


def test_the_steps_of_a_formula_end_with_itself():
    assert steps("min(a + 1, b) * 2") == ["a + 1", "min(a + 1, b)", "min(a + 1, b) * 2"]
    assert steps("a") == []
    assert names("min(a + 1, b) * 2") == {"a", "b"}


# --- layouts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.parametrize("way", PATTERNS)
def test_every_piece_of_a_tile_is_taken_once(way, lanes):
    taken = PATTERNS[way](32, 12, lanes).reshape(-1, 2)
    there = taken[taken[:, 0] >= 0]
    assert sorted(map(tuple, there.tolist())) == list(product(range(32), range(12)))


@pytest.mark.parametrize("target", swizzle.JUDGES)
@pytest.mark.parametrize("layout", ["row * cols + col", "row * cols + (col ^ row % 4 * 8)", "(row ^ 1) * cols + col"])
def test_the_virtual_gpu_counts_the_conflicts_of_the_rule(clang, target, layout):
    places = offsets(layout, 32, 64)
    lanes = TARGETS[target].lanes
    by_rule = []
    for taken, access in ((by_rows(32, 8, lanes), "write"), (by_operand(32, 8, lanes), "read")):
        found = lane_offsets(places, taken, 2, 16).tolist()
        by_rule.append(
            sum(bank_conflicts(one, access_bytes=16, target=target, access=access).conflicts for one in found)
        )
    assert swizzle._on(target, places.shape, 2, places.tobytes()) == (*by_rule, True)


def test_a_layout_that_is_no_bijection_names_elements():
    assert fault_of(offsets("row * (cols + 1) + col", 3, 4)).sentence == (
        "(2, 2) goes to place 12, which the tile does not have"
    )
    assert fault_of(offsets("row + col", 3, 4)).elements == ((0, 1), (1, 0))
    assert fault_of(offsets("row * cols + (col ^ row % 2)", 3, 4)) is None
    assert whole_pieces(offsets("row * cols + col + 1", 1, 8), 4).startswith("the piece of row 0")


# --- proofs beside brute force --------------------------------------------------------------------------------------


def small(ranges, most):
    return {name: (low, min(high, low + most)) for name, (low, high) in ranges.items()}


@pytest.mark.parametrize("name", prove_bounds.ACCESSES)
def test_the_proof_of_bounds_agrees_with_every_small_number(name):
    access = prove_bounds.ACCESSES[name]
    ranges = small(access.names, 4)
    verdict, shown = with_z3(bounds.answer(), {**access.inputs, "names": ranges, "bits": 6})
    faulty = []
    for numbers in product(*(range(low, high + 1) for low, high in ranges.values())):
        values = dict(zip(ranges, numbers, strict=True))
        if not broken(access.given, values) and bounds.fault(values, access.index, access.length, 6):
            faulty.append(values)
    assert (verdict == "refuted") == bool(faulty)
    assert shown is None or shown in faulty


@pytest.mark.parametrize("name", sorted(set(prove_bijective.FAMILIES) - {"steps of a divisor", "groups of programs"}))
def test_the_proof_of_a_bijection_agrees_with_every_index_of_small_sizes(name):
    family = prove_bijective.FAMILIES[name]
    ranges = small(family.sizes, 9 if len(family.sizes) == 1 else 4)
    verdict, _ = with_z3(bijections.answer(), {**family.inputs, "sizes": ranges})
    verdicts = set()
    for numbers in product(*(range(low, high + 1) for low, high in ranges.values())):
        sizes = dict(zip(ranges, numbers, strict=True))
        if not broken(family.given, sizes):
            verdicts.add(bijections.every_index(sizes, family.indices, family.place, family.places)[0])
    assert (verdict == "bijective") == (verdicts == {"bijective"})


def test_every_stated_fault_is_one_and_what_has_none_is_proved():
    rng = random.Random(5)
    for exercise, of in ((prove_bounds, prove_bounds.access_of), (prove_bijective, prove_bijective.family_of)):
        for case in [*exercise.EXERCISE.cases, *(exercise._fresh(rng) for _ in range(6))]:
            one = of(case)
            if one.fault is not None:
                value = one.fault if isinstance(one.fault, tuple) else ("refuted", one.fault)
                assert exercise._judge(case, one.inputs, value) is None
            elif not one.hard:
                slips = bounds if exercise is prove_bounds else bijections
                assert with_z3(slips.answer(), one.inputs)[0] in ("proved", "bijective")


@pytest.mark.parametrize("exercise", [prove_bounds.EXERCISE, prove_bijective.EXERCISE], ids=lambda one: one.id)
@pytest.mark.parametrize(
    "value",
    [None, 3, "proved", ("proved",), ("refuted", None), ("refuted", {}), ("refuted", {"i": 1.5, "n": True}), ("gap", 7),
     ("collision", None), ("collision", ({}, {})), ("outside", {"n": "1", "i": 0}), (None, None), ["sat", {}]],
    ids=repr,
)  # fmt: skip
def test_a_value_of_another_form_is_told_in_a_sentence(exercise, value):
    report = check(replace(exercise, misconceptions=()), lambda **inputs: value, seed=1)
    assert report.status == "failed"
    assert "Traceback" not in str(report)
    assert "cannot be compared" not in str(report)


def test_without_z3_a_proof_is_not_graded(monkeypatch):
    def missing():
        raise CompilerMissing("no Z3 here")

    monkeypatch.setattr("gpu_utils.exercises.u14_tilelang.proofs.needs_z3", missing)
    report = check(prove_bounds.EXERCISE, lambda names, given, index, length, bits, rlimit: ("proved", None), seed=1)
    assert report.status not in ("passed", "failed")
    assert "no Z3 here" in str(report)


# --- the explorer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", EXAMPLES)
def test_the_explorer_says_bijection_and_conflicts(layout):
    words = explore("layout", layout).words
    assert ("No bijection" in words) == (fault_of(offsets(layout, 32, 64)) is not None)
    whole = not whole_pieces(offsets(layout, 32, 64), 8)
    assert ("passes" in words) == whole


def test_a_refuted_layout_shows_its_counterexample():
    picture = draw("row * cols + (col ^ row // 16 * 64)", 16, 64, 2, 16, "operand", "read", 0, "gfx942")
    assert "a bijection, every element tried" in picture.words
    assert "refuted by Z3" in picture.words
    framed = draw("row * cols // 2 + col", 16, 64, 2, 16, "operand", "read", 0, "gfx942")
    assert "No bijection" in framed.words
    assert "framed" in framed.html


@pytest.mark.parametrize(
    ("start", "words"),
    [({"rows": 65}, "rows is 65"), ({"cols": 8, "element_bytes": 1}, "multiple of 16"), 
     ({"layout": "lane"}, "names lane")],
)  # fmt: skip
def test_a_start_that_cannot_be_drawn_is_refused(start, words):
    with pytest.raises(BadArgument, match=words):
        explore("layout", **start)
