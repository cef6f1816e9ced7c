"""What torch does beside the kernels of an answer is seen, named, and told from making tensors and views."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.analytic.tolerance import tolerance
from gpu_utils.backends import interpreter
from gpu_utils.grading.beside_kernels import watching
from gpu_utils.grading.check import check
from gpu_utils.grading.exercise import Case, Exercise, Limit, Misconception


@triton.jit
def double_kernel(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, 2 * tl.load(x_ptr + i * stride, i < n), i < n)


def kernel_doubles(x, out=None):
    out = torch.empty(x.numel(), device=x.device) if out is None else out
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), x.stride(0), BLOCK=64)
    return out


def halves_first(x):
    return kernel_doubles(kernel_doubles(x / 2))


def copies_first(x):
    return kernel_doubles(x.contiguous())


DOUBLE = Exercise(
    id="99.double",
    title="Twice a view",
    parameters=("x",),
    kind="kernel",
    inputs=lambda case, generator: {"x": torch.randn(3 * case["n"], generator=generator)[::3]},
    reference=lambda x: 2 * x.double(),
    cases=(Case("a block and a tail", n=70), Case("less than a block", n=9)),
    fresh=lambda rng: Case("a length nobody chose", n=rng.randrange(2, 200)),
    misconceptions=(
        Misconception("copies_first", copies_first, "Read it in place."),
        Misconception("halves_first", halves_first, "Let the kernel do it."),
    ),
    hints=("Load.", "Double.", "Store."),
    explanation="One load, one store.",
    tolerance=lambda case, inputs: tolerance(torch.float32, magnitude=2.0),
    limits=(Limit("launches", "Launch it.", at_least=lambda case: 1),),
    torch_may=(),
)


def verdict(answer, exercise=DOUBLE):
    return check(exercise, answer, backends=["interpreter"], seed=1)


def seen(answer, allowed=()):
    """What torch did while the answer doubled a view, on the interpreter; its result is right."""
    x = torch.randn(210)[::3]
    with interpreter(), watching({"x": x}, allowed) as work:
        result = answer(x)
    assert torch.equal(result, 2 * x)
    return work


def prints(x):
    print(x, f"{x[0]}", x.shape, x.stride())
    return kernel_doubles(x)


def reads_strides_from_a_tensor(x):
    strides = torch.tensor([x.stride(0), 5], dtype=torch.int32) + torch.arange(2)
    assert strides.numel() == 2
    return kernel_doubles(x)


@pytest.mark.parametrize(
    "answer",
    [
        kernel_doubles,
        prints,
        reads_strides_from_a_tensor,
        lambda x: kernel_doubles(x.unsqueeze(0).transpose(0, 1)[:, 0].detach()),
        lambda x: kernel_doubles(x, torch.zeros(x.shape)),
        lambda x: kernel_doubles(x, torch.zeros(256).fill_(3))[: x.numel()],
        lambda x: kernel_doubles(x, torch.empty(256))[: x.numel()].contiguous(),
        lambda x: kernel_doubles(x, x.new_full((x.numel(),), 7.0)).clone(),
        lambda x: torch.cat([kernel_doubles(x[:5]), kernel_doubles(x[5:])]),
    ],
)
def test_making_tensors_and_views_and_copying_results_is_torchs_part(answer):
    assert seen(answer).found == ""


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (copies_first, "copy", "torch copied x (clone, contiguous or reshape)"),
        (lambda x: kernel_doubles(torch.empty(len(x)).copy_(x)), "copy", "torch copied x (copy_)"),
        (lambda x: kernel_doubles(torch.stack(list(x))), "copy", "torch copied x (stack)"),
        (lambda x: kernel_doubles(torch.nn.functional.pad(x, (0, 9)))[:-9], "copy", "torch copied x (pad)"),
        (lambda x: kernel_doubles(x.double().float()), "copy", "torch copied x (to)"),
        (halves_first, "work", "torch's div works on x"),
        (lambda x: torch.mul(x, 2, out=kernel_doubles(x)), "work", "torch's mul works on x"),
        (lambda x: kernel_doubles(x).add_(0), "work", "torch's add_ works on what a kernel wrote"),
        (lambda x: kernel_doubles(x).clone() + 0, "work", "torch's add works on what a kernel wrote"),
        (lambda x: kernel_doubles(torch.tensor(x.tolist())), "work", "torch's tolist works on x"),
        (lambda x: torch.from_numpy(2 * x.numpy() + 0 * kernel_doubles(x).numpy()), "work", "torch's numpy"),
        (lambda x: torch.from_numpy(2 * np.asarray(x)) if len(kernel_doubles(x)) else x, "work", "__array__"),
        (lambda x: [kernel_doubles(x), 2 * x][1], "work", "torch's mul works on x"),
    ],
)
def test_what_torch_does_of_the_kernels_work_is_named(answer, kind, said):
    work = seen(answer)
    assert work.kind == kind
    assert said in work.found


def test_the_hint_is_of_the_misconception_that_leaves_torch_the_same_part():
    report = verdict(lambda x: kernel_doubles(x.clone()))
    assert (report.first_failure.kind, report.misconception) == ("torch:copy", "copies_first")
    report = verdict(lambda x: kernel_doubles(kernel_doubles(x * 0.5)))
    assert (report.first_failure.kind, report.misconception) == ("torch:work", "halves_first")


def test_a_copy_of_another_input_gets_no_hint_on_this_one():
    two = replace(
        DOUBLE,
        parameters=("x", "y"),
        inputs=lambda case, generator: {**DOUBLE.inputs(case, generator), "y": torch.ones(4)},
        reference=lambda x, y: 2 * x.double(),
        misconceptions=(Misconception("copies_y", lambda x, y: [y.clone(), kernel_doubles(x)][1], "Read y in place."),),
    )
    assert verdict(lambda x, y: [torch.cat([y]), kernel_doubles(x)][1], two).misconception == "copies_y"
    assert verdict(lambda x, y: kernel_doubles(x.clone()), two).misconception == ""


def test_work_counts_for_more_than_a_copy():
    assert seen(lambda x: kernel_doubles(kernel_doubles(x.contiguous() / 2))).kind == "work"


def test_where_no_kernel_was_launched_the_launches_are_what_is_missing():
    assert verdict(lambda x: 2 * x).first_failure.kind == "limit:launches"


def test_an_exercise_may_leave_torch_a_part_or_not_ask_at_all():
    assert seen(lambda x: kernel_doubles(x) * 1, allowed=("mul",)).kind == ""
    assert seen(lambda x: kernel_doubles(x) + 0, allowed=("mul",)).kind == "work"
    assert verdict(halves_first, replace(DOUBLE, torch_may=None)).passed


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_what_a_launch_itself_does_with_tensors_is_not_torchs_work(target):
    assert check(DOUBLE, kernel_doubles, backends=[f"virtual:{target}"], seed=1).passed


def test_an_autotuner_that_keeps_and_restores_tensors_is_not_accused():
    tuned = triton.autotune([triton.Config({"BLOCK": 64})], key=["n"], restore_value=["out_ptr"])(double_kernel)

    def answer(x):
        out = torch.zeros(x.numel())
        tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), x.stride(0))
        return out

    assert seen(answer).found == ""


def test_triton_is_itself_again_after_the_block():
    before = triton.runtime.jit.JITFunction.run, triton.runtime.autotuner.Autotuner.run
    with pytest.raises(ZeroDivisionError), watching({"x": torch.ones(3)}, ()):
        1 / 0  # noqa: B018
    assert before == (triton.runtime.jit.JITFunction.run, triton.runtime.autotuner.Autotuner.run)
