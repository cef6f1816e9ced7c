"""The stored listings: what the compiler makes today, complete, small, and used where there is no compiler."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from gpu_utils import exercises, virtual_gpu
from gpu_utils.chips.npus import NPUS
from gpu_utils.chips.targets import TARGETS
from gpu_utils.compiler import stored
from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.course.sources import load_solution
from gpu_utils.errors import CompileFailed, CompilerMissing

ROOT = Path(__file__).parents[2]
KERNELS = sorted((ROOT / "gpu_utils" / "exercises").glob("*/kernels/*.cu"))
STORED_FOR = ("sm_80", "gfx942", "gfx950", "gfx1100")
IN_CPP = [one for one in exercises.every() if one.kind == "cpp" and not set(one.targets) <= set(NPUS)]
AGAIN = "run `python tools/store_listings.py`"


@pytest.fixture
def no_clang(monkeypatch):
    really = importlib.util.find_spec
    hidden = lambda name, *rest: None if name == "ziglang" else really(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", hidden)


@pytest.mark.parametrize("target", sorted({entry["target"] for entry in stored.entries()}))
def test_the_compiler_makes_the_same_listings_today(clang, target):
    entries = [entry for entry in stored.entries() if entry["target"] == target]
    assert entries
    for entry in entries:
        assert stored.entry(entry["source"], target, compile_cpp) == entry, AGAIN


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_every_kernel_file_of_a_lesson_is_stored_as_it_is(path):
    sources = {(entry["source"], entry["target"]) for entry in stored.entries()}
    assert all((path.read_text("utf-8"), target) in sources for target in STORED_FOR), AGAIN


@pytest.mark.parametrize("exercise", IN_CPP, ids=lambda exercise: exercise.id)
def test_the_solution_and_every_misconception_are_stored(exercise):
    sources = {stored.key(entry["source"], entry["target"]) for entry in stored.entries()}
    first = exercise.targets[0]
    for answer in (load_solution(exercise.id), *(wrong.answer for wrong in exercise.misconceptions)):
        assert stored.key(answer(), first) in sources, AGAIN


def test_they_are_small():
    assert stored.PLACE.stat().st_size < 200_000


def test_they_hold_no_path_of_a_machine():
    for entry in stored.entries():
        text = entry.get("asm", "") + entry.get("refused", "")
        assert not any(path in text for path in ("/tmp", "/home", "/root", str(ROOT), "ziglang"))


@pytest.mark.parametrize("target", STORED_FOR)
def test_without_the_compiler_a_lessons_cell_runs_the_same_and_says_where_the_listing_is_from(no_clang, target):
    source = (ROOT / "gpu_utils/exercises/u03_porting_to_rocm/kernels/row_sum_32.cu").read_text()
    module = compile_cpp(source, target)
    assert "a stored listing: clang is not installed" in repr(module)
    x, out = torch.rand(3, 256) + 0.5, torch.zeros(3)
    with virtual_gpu(target) as gpu:
        launch = gpu.load(module).launch("row_sum", 3, 256, [x, out])
    assert torch.allclose(out, x.sum(dim=1)) == (TARGETS[target].lanes == 32)
    lines = {line for line in launch.counters.per_line() if line}
    assert lines
    assert {name.rsplit("/", 1)[-1] for name, _ in lines} == {"kernel.cu"}
    assert all(1 <= number <= source.count("\n") + 1 for _, number in lines)


def test_without_the_compiler_a_source_that_it_refused_is_refused_in_the_same_words(no_clang):
    source = (ROOT / "gpu_utils/exercises/u03_porting_to_rocm/kernels/mask_32.cu").read_text()
    assert compile_cpp(source, "sm_80").kernels
    with pytest.raises(CompileFailed, match="The mask must be a 64-bit integer"):
        compile_cpp(source, "gfx942")


def test_without_the_compiler_other_sources_name_the_extra(no_clang):
    with pytest.raises(CompilerMissing, match=r"W2W_EXTRAS=hip ./w2w study"):
        compile_cpp("__global__ void k(int *x) { x[0] = 4711; }", "sm_80")


def test_with_the_compiler_nothing_comes_from_storage(clang, monkeypatch):
    monkeypatch.setattr(stored, "find", lambda *_: pytest.fail("the storage was asked"))
    assert not compile_cpp(KERNELS[0].read_text("utf-8"), "gfx942").stored


# Which sources are the same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int a=1;", "  int  a = 1 ;  // one"),
        ("f(/* first */ x);\n", "f( x )\t;"),
        ('print("a // b");', 'print( "a // b" );'),
    ],
)
def test_comments_and_spaces_do_not_matter(one, other):
    assert stored.key(one, "sm_80") == stored.key(other, "sm_80")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a - -b", "a--b"),
        ("a + +b", "a++b"),
        ("int ab;", "int a b;"),
        ("x = 1;", "x = 1.;"),
        ("a < b", "a << b"),
        ("#define F(x)", "#define F (x)"),
        ('"a b"', '"a  b"'),
        ("a;\nb;", "a; b;"),
        ("/* one\ntwo */ a;", "a;"),
    ],
)
def test_tokens_and_lines_do(one, other):
    assert stored.key(one, "sm_80") != stored.key(other, "sm_80")


def test_another_target_is_another_listing():
    assert stored.key("a;", "sm_80") != stored.key("a;", "gfx942")
