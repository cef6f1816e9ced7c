"""Near-identical answers are pairs to look at: copies are found, what everybody writes is not."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from gpu_utils.classroom.similar import MIN_TOKENS, _form, _given, pairs

STUB = '''@triton.jit
def saxpy_kernel(a, x_ptr, y_ptr, out_ptr, n, n_cols, stride, BLOCK: tl.constexpr):
    # YOUR CODE (about 8 lines)
    pass


def saxpy(a: float, x: Tensor, y: Tensor) -> Tensor:
    """Return a * x + y."""
    raise NotImplementedError("00.saxpy is yours to write")
'''

LINES = (
    ("    {p} = tl.program_id(0)\n", "    {p} = tl.program_id(axis=0)\n", "    {p} = tl.program_id(0).to(tl.int64)\n"),
    (
        "    {o} = {p} * BLOCK + tl.arange(0, BLOCK)\n",
        "    {s} = {p} * BLOCK\n    {o} = {s} + tl.arange(0, BLOCK)\n",
        "    {r} = tl.arange(0, BLOCK)\n    {o} = BLOCK * {p} + {r}\n",
    ),
    ("    {m} = {o} < n\n", "    {m} = {o} <= n - 1\n", "    {m} = tl.where({o} < n, 1, 0) != 0\n", ""),
    (
        "    {x} = tl.load(x_ptr + {o} * stride, mask={m})\n    {y} = tl.load(y_ptr + {o} * stride, mask={m})\n",
        "    {x} = tl.load(x_ptr + {o} * stride, {m}, 0.0)\n    {y} = tl.load(y_ptr + {o} * stride, {m}, 0.0)\n",
        "    {x} = tl.load(x_ptr + stride * {o}, mask={o} < n, other=0)\n"
        "    {y} = tl.load(y_ptr + stride * {o}, mask={o} < n, other=0)\n",
        "    at = {o} * stride\n    {x}, {y} = tl.load(x_ptr + at, mask={m}), tl.load(y_ptr + at, mask={m})\n",
    ),
    (
        "    tl.store(out_ptr + {o}, a * {x} + {y}, mask={m})\n\n\n",
        "    {z} = a * {x}\n    {z} += {y}\n    tl.store(out_ptr + {o}, {z}, mask={m})\n\n\n",
        "    tl.store(out_ptr + {o}, tl.fma(a, {x}, {y}), mask={o} < n)\n\n\n",
    ),
    (
        "    out = torch.empty_like(x)\n",
        "    out = torch.empty(x.shape, device=x.device)\n",
        "    out = torch.zeros(x.shape, dtype=x.dtype, device=x.device)\n    assert x.shape == y.shape\n",
    ),
    (
        "    n = x.numel()\n    grid = (triton.cdiv(n, 1024),)\n",
        "    n = x.shape[0] * x.shape[1]\n    grid = lambda meta: (triton.cdiv(n, meta['BLOCK']),)\n",
        "    n = out.numel()\n    grid = ((n + 1023) // 1024,)\n",
    ),
    (
        "    saxpy_kernel[grid](a, x, y, out, n, x.shape[1], 1, BLOCK=1024)\n    return out\n",
        "    saxpy_kernel[grid](a, x, y, out, n, n_cols=x.size(1), stride=x.stride(1), BLOCK=1024)\n    return out\n",
        "    BLOCK = 1024\n    saxpy_kernel[grid](a, x, y, out, n, x.shape[1], x.stride(-1), BLOCK)\n    return out\n",
    ),
)
NAMES = ["p", "o", "s", "r", "m", "x", "y", "z"]
HEADS = STUB.split("    # YOUR CODE (about 8 lines)\n    pass\n\n\n")
HEAD, HOST = HEADS[0], HEADS[1].split("    raise")[0]


def answer(choices: tuple[int, ...], names: str = "v{}") -> str:
    """One way to write it: a choice for each line, and the names of the student's own."""
    used = {name: names.format(name) for name in NAMES}
    lines = [options[choice % len(options)] for options, choice in zip(LINES, choices, strict=True)]
    return (HEAD + "".join(lines[:5]) + HOST + "".join(lines[5:])).format(**used)


def a_class(size: int, seed: int = 1) -> dict[str, str]:
    """Students who choose on their own, most of them the most usual way of each line."""
    rng = random.Random(seed)
    ways = [tuple(rng.choices(range(4), (6, 3, 2, 1), k=len(LINES))) for _ in range(size)]
    return {f"student-{number:03}": answer(way, f"{{}}{number}") for number, way in enumerate(ways)}


def named(found) -> set[tuple[str, str]]:
    return {(pair.first, pair.second) for pair in found}


COPY = (1, 2, 1, 3, 1, 2, 1, 2)


def test_a_copy_with_new_names_comments_docstrings_and_annotations_is_the_same():
    text = answer(COPY)
    other = (
        answer(COPY, "mine_{}")
        .replace("    out = ", "    '''mine'''\n    # mine, too\n    out: Tensor = ")
        .replace("1024", "0x400")
        .replace("{p} * BLOCK", "BLOCK * {p}")
    )
    (pair,) = pairs({"a": text, "b": other, "c": answer((0,) * 8), "d": answer((2, 1, 0, 0, 2, 1, 2, 0))}, STUB)
    assert (pair.first, pair.second, pair.similarity, pair.alike, pair.of) == ("a", "b", 1.0, 2, 4)
    assert str(pair) == "to look at: a and b, the same but for names and comments; 2 of 4 wrote this"


@pytest.mark.parametrize(
    ("one", "other"),
    [("a * b + c", "c + b * a"), ("a > b", "b < a"), ("a and b", "b and a"), ("a == b", "b == a"), ("7", "0x7")],
)
def test_what_makes_no_difference_makes_none(one, other):
    def form(expression):
        return _form(f"def f(a, b, c):\n    return {expression}", _given(""))

    assert form(one) == form(other)


@pytest.mark.parametrize(("one", "other"), [("a - b", "b - a"), ("a", "b"), ("f(a, b)", "f(b, a)"), ("a.x", "a.y")])
def test_what_makes_a_difference_makes_one(one, other):
    def form(expression):
        return _form(f"def f(a, b):\n    return {expression}", _given(""))

    assert form(one).exact != form(other).exact


def test_a_copy_with_a_line_added_and_another_moved_is_nearly_the_same():
    lines = answer(COPY, "q_{}").splitlines(keepends=True)
    lines[-1:] = ["    print(out.shape)\n", lines[-1]]
    at = next(number for number, line in enumerate(lines) if "assert" in line)
    lines[at], lines[at + 1] = lines[at + 1], lines[at]
    found = pairs({**a_class(30), "a": answer(COPY), "b": "".join(lines)}, STUB)
    near = next(pair for pair in found if (pair.first, pair.second) == ("a", "b"))
    assert 0.8 <= near.similarity < 1
    assert str(near).endswith("of the code is the same but for names")


def test_what_a_quarter_of_the_class_wrote_is_no_pair():
    others = {
        f"other-{way}": answer((*choices, 0, 0)) for way, choices in enumerate(itertools.product(range(2), repeat=6))
    }
    same = {f"same-{number}": answer(COPY) for number in range(30)}
    assert not [pair for pair in named(pairs({**others, **same}, STUB)) if pair[0].startswith("same")]
    few = dict(list(same.items())[:3])
    assert len([pair for pair in named(pairs({**others, **few}, STUB)) if pair[0].startswith("same")]) == 3


def test_short_answers_are_in_no_pair():
    short = "def platform():\n    if torch.version.hip:\n        return 'amd'\n    return 'cpu'\n"
    assert len(_form(short, _given("")).exact) < MIN_TOKENS
    assert pairs({"a": short, "b": short, "c": "x = 1"}) == []


def test_the_statements_of_the_lab_do_not_count():
    long_stub = STUB.replace(
        "    raise", "".join(f"    given_{number} = x[{number}] + {number}\n" for number in range(40)) + "    raise"
    )
    assert len(_form(long_stub, _given(long_stub)).exact) < 15
    assert pairs({"a": long_stub, "b": long_stub}, long_stub) == []


def test_answers_that_are_not_python_are_in_no_pair():
    assert pairs({"a": "def f(:", "b": "\0", "c": "(" * 5000, "d": "", "e": "-" * 5000 + "1"}) == []


def test_a_class_of_300_takes_less_than_two_seconds_and_finds_the_copies():
    everybody = a_class(300)
    copies = {"copy-1": answer(COPY, "c{}"), "copy-2": answer(COPY, "d{}")}
    start = time.process_time()
    found = pairs({**everybody, **copies}, STUB)
    assert time.process_time() - start < 2
    assert ("copy-1", "copy-2") in named(found)
