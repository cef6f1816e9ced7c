"""A check runs kernels under sanitizers: what is right by luck fails in one sentence, and counters stay as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.backends import backend
from gpu_utils.backends.virtual import SANITIZERS, VirtualBackend
from gpu_utils.grading.check import check
from gpu_utils.grading.cpp import Framed, launching
from gpu_utils.grading.exercise import Case, Exercise

# C++: each thread of a block of 64 gives back what the thread that faces it has brought

MIRROR = Framed(
    """
__global__ void mirrored(const int *x, int *out) {
  __shared__ int kept[64];
  int t = threadIdx.x;
  x += 64 * blockIdx.x;
  out += 64 * blockIdx.x;
@@@
}
""",
    "  kept[t] = x[t];\n  __syncthreads();\n  out[t] = kept[63 - t];",
)


def _mirrored(module, inputs):
    out = torch.empty_like(inputs["x"])
    module.launch("mirrored", len(out), 64, [inputs["x"], out])
    return out


IN_CPP = Exercise(
    id="99.mirrored",
    title="Each block backwards",
    parameters=(),
    kind="cpp",
    inputs=lambda case, generator: {"x": torch.randint(1, 99, (case["rows"], 64), generator=generator).int()},
    reference=lambda x: x.flip(1),
    cases=(Case("one block", rows=1), Case("some", rows=3)),
    fresh=lambda rng: Case("a size nobody chose", rows=rng.randrange(2, 9)),
    misconceptions=(),
    hints=("", "", ""),
    explanation="",
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    call=launching(_mirrored),
)

ASYNC = """  int place = (int)(long long)(__attribute__((address_space(3))) int *)&kept[t];
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(place), "l"(x + t) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  WAIT
  __syncthreads();
  out[t] = kept[63 - t];"""
NO_BARRIER = MIRROR.solution.replace("  __syncthreads();\n", "")
WAIT = 'asm volatile("cp.async.wait_group 0;" ::: "memory");'


RETURNS = """  if (t >= 32) return;
  kept[t] = x[t];
  kept[t + 32] = x[t + 32];
  __syncthreads();
  out[t] = kept[63 - t];
  out[t + 32] = kept[31 - t];"""


def cpp(part, *targets, all_meet=False):
    exercise = replace(IN_CPP, call=launching(_mirrored, all_meet))
    return check(replace(exercise, targets=targets or ("sm_80", "gfx942", "gfx1100")), MIRROR.filled(part), seed=1)


@pytest.mark.parametrize(
    ("part", "targets"),
    [
        (MIRROR.solution, ()),
        (MIRROR.solution.replace("  out", "  if (t >= 64) return;\n  out"), ()),
        (RETURNS, ()),
        (ASYNC.replace("WAIT", WAIT), ("sm_80",)),
    ],
    ids=["a barrier", "a return behind it", "a return before it", "a wait and a barrier"],
)
def test_a_right_cpp_answer_passes(clang, part, targets):
    report = cpp(part, *targets)
    assert report.passed, report.headline


@pytest.mark.parametrize(
    ("part", "targets", "kind", "line", "missing"),
    [
        (NO_BARRIER, ("sm_80", "gfx1100"), "Race", 8, "is a __syncthreads() missing"),
        (MIRROR.solution + "\n  if (t < 32) __syncthreads();", (), "MissedBarrier", 10, "every __syncthreads()"),
        (ASYNC.replace("WAIT", ""), ("sm_80",), "Race|LateData", 12, "cp.async.wait_group"),
    ],
    ids=["no barrier", "a barrier for half of them", "no wait"],
)
def test_a_cpp_answer_without_a_barrier_or_wait_fails_with_its_line_and_what_is_missing(
    clang, part, targets, kind, line, missing
):
    report = cpp(part, *targets, all_meet=kind == "MissedBarrier")
    assert report.status == "failed"
    for target in targets or ("sm_80", "gfx1100"):
        failure = next(one for one in report.outcomes if one.backend == f"virtual:{target}" and one.status == "failed")
        assert failure.kind.removeprefix("error:") in kind.split("|"), failure.detail
        assert missing in failure.detail
        assert f"(line {line}: " in failure.detail
        assert "Traceback" not in failure.detail


# Triton: waits are the compiler's, except in inline assembly


@triton.jit
def copied(x, out, n, BLOCK: tl.constexpr, LINE: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.inline_asm_elementwise(LINE, "=&v,v", [x + places % n], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(out + places, value, mask=places < n)


@triton.jit
def counted(x, out, n, BLOCK: tl.constexpr, ATOMIC: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    own = tl.sum(tl.load(x + places, mask=places < n, other=0))
    if ATOMIC:
        tl.atomic_add(out, own)
    else:
        tl.store(out, tl.load(out) + own)


def copying(line):
    def copy(x):
        out = torch.empty_like(x)
        copied[triton.cdiv(x.numel(), 128),](x, out, x.numel(), BLOCK=128, LINE=line)
        return out

    return copy


def summing(atomic):
    def sum(x):
        out = torch.zeros(1, dtype=torch.int32)
        counted[triton.cdiv(x.numel(), 128),](x, out, x.numel(), BLOCK=128, ATOMIC=atomic)
        return out

    return sum


IN_TRITON = replace(
    IN_CPP,
    id="99.copy",
    parameters=("x",),
    kind="kernel",
    inputs=lambda case, generator: {"x": torch.randint(1, 99, (64 * case["rows"],), generator=generator).int()},
    reference=lambda x: x,
    call=lambda answer, inputs: answer(**inputs),
)
LOAD = "global_load_dword $0, $1, off"


def test_a_wait_that_is_missing_in_a_line_of_assembly_fails_the_answer():
    exercise = replace(IN_TRITON, targets=("gfx942",), machine_code=True)
    assert check(exercise, copying(f"{LOAD}\ns_waitcnt vmcnt(0)"), seed=1).passed
    report = check(exercise, copying(LOAD), seed=1)
    failure = report.first_failure
    assert (report.status, failure.kind) == ("failed", "error:LateData")
    assert "s_waitcnt vmcnt(0)" in failure.detail
    assert "(line " in failure.detail


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_programs_that_race_fail_the_answer(target):
    exercise = replace(IN_TRITON, targets=(target,), reference=lambda x: x.sum().int()[None])
    assert check(exercise, summing(atomic=True), seed=1).passed
    report = check(exercise, summing(atomic=False), seed=1)
    assert report.status == "failed"
    assert any(one.kind == "error:Race" and "program" in one.detail for one in report.outcomes)


# What is counted


@triton.jit
def rows(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tile = at[:, None] * N + at[None, :]
    product = tl.dot(tl.load(x + tile), tl.load(y + tile))
    tl.store(out + at, tl.sum(product, axis=1) + tl.max(product, axis=1))


@pytest.mark.parametrize("target", ["sm_80", "gfx942", "gfx1100"])
def test_counters_and_predicted_cycles_are_those_of_a_run_without_sanitizers(target):
    x, y = (torch.randn(32, 32, generator=torch.Generator().manual_seed(seed)).half() for seed in (1, 2))

    def counters(tools):
        place = VirtualBackend(f"virtual:{target}", target, cycles=True, uneven=True, ptxas=False, sanitize=tools)
        with place.session() as session:
            rows[1,](x, y, torch.empty(32), N=32)
        return session.counters

    plain = counters(frozenset())
    assert plain["shared_accesses"] > 0
    assert plain["predicted_cycles"] > 0
    assert counters(SANITIZERS) == plain


def test_a_backend_of_a_check_has_the_sanitizers():
    assert backend("virtual:gfx942").counting(["uneven_loads"]).sanitize == SANITIZERS
    assert not backend("virtual:gfx942").hurried([]).sanitize
