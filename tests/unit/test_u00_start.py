"""The exercises of unit 00: answers that differ from the solution and are right, and wrong ones that are explained."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gpu_utils import virtual_gpu
from gpu_utils.backends import BACKENDS, backend
from gpu_utils.course import sources
from gpu_utils.exercises import find
from gpu_utils.exercises.u00_start import find_mask, mask_kernels, platform, predict_counters, saxpy, vector_add
from gpu_utils.grading.check import check
from gpu_utils.grading.execute import run
from gpu_utils.grading.jobs import FRESH_CASES, choose_backends, make_jobs
from gpu_utils.grading.report import Mode
from gpu_utils.grading.verdicts import judge
from gpu_utils.ui.launch_figure import LaunchFigure

VECTOR_ADD, SAXPY, PLATFORM = (find(f"00.{name}") for name in ("vector_add", "saxpy", "platform"))
FIND_MASK, PREDICT, COLUMN_SUMS = (find(f"00.{name}") for name in ("find_mask", "predict_counters", "column_sums"))


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + tl.load(y_ptr + offsets % m, mask), mask)


@triton.jit
def add_with_a_loop_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < n
        y = tl.load(y_ptr + (offsets - offsets // m * m), mask)
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + y, mask)


@triton.jit
def add_without_mask_kernel(x_ptr, y_ptr, out_ptr, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) + tl.load(y_ptr + offsets % m))


@triton.jit
def saxpy_strided_kernel(a, x_ptr, y_ptr, out_ptr, n, cols, sxm, sxn, sym, syn, som, son, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = start + tl.arange(0, BLOCK)
        r = i // cols
        c = i - r * cols
        x, y = tl.load(x_ptr + r * sxm + c * sxn, mask=i < n), tl.load(y_ptr + r * sym + c * syn, mask=i < n)
        tl.store(out_ptr + r * som + c * son, tl.fma(a, x, y), mask=i < n)


@triton.jit
def saxpy_with_strides_in_memory_kernel(a, x_ptr, y_ptr, out_ptr, n, cols, strides_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    r, c = i // cols, i % cols
    x = tl.load(x_ptr + r * tl.load(strides_ptr) + c * tl.load(strides_ptr + 1), mask=i < n)
    y = tl.load(y_ptr + r * tl.load(strides_ptr + 2) + c * tl.load(strides_ptr + 3), mask=i < n)
    tl.store(out_ptr + i, a * x + y, mask=i < n)


def vector_add_with(block, kernel=add_kernel, programs=None):
    def answer(x, y):
        out = torch.empty_like(x)
        kernel[(programs or triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), y.numel(), BLOCK=block)
        return out

    return answer


def saxpy_into(make_result, programs=None):
    def answer(a, x, y):
        out = make_result(x)
        grid = (programs or triton.cdiv(x.numel(), 64),)
        n, cols = x.numel(), x.shape[1]
        saxpy_strided_kernel[grid](a, x, y, out, n, cols, *x.stride(), *y.stride(), *out.stride(), BLOCK=64)
        return out

    return answer


def saxpy_with_strides_in_memory(a, x, y):
    out = x.new_empty(x.shape)
    strides = torch.tensor([*x.stride(), *y.stride()], dtype=torch.int32, device=x.device)
    grid = (triton.cdiv(x.numel(), 256),)
    saxpy_with_strides_in_memory_kernel[grid](a, x, y, out, x.numel(), x.shape[1], strides, BLOCK=256)
    return out


@pytest.mark.parametrize("block", [64, 256, 4096])
def test_another_block_size_is_a_right_answer(block):
    assert check(VECTOR_ADD, vector_add_with(block)).passed


def test_a_loop_over_blocks_is_a_right_answer():
    assert check(VECTOR_ADD, vector_add_with(128, add_with_a_loop_kernel, programs=3)).passed


@pytest.mark.parametrize(
    "answer",
    [
        saxpy_into(torch.empty_like),
        saxpy_into(lambda x: torch.empty(x.shape, device=x.device), programs=5),
        lambda a, x, y: saxpy_into(lambda x: x.new_empty(x.shape[0], x.shape[1] + 5)[:, :-5])(a, x, y).contiguous(),
        saxpy_with_strides_in_memory,
    ],
    ids=["laid out like x", "a loop over the grid", "in wider memory", "strides in memory"],
)
def test_other_ways_to_a_strided_result_are_right_answers(answer):
    report = check(SAXPY, answer)
    assert report.passed, report.headline


def test_a_right_kernel_runs_on_the_machine_code_of_both_vendors_where_there_is_no_gpu(monkeypatch):
    monkeypatch.delenv("W2W_BACKENDS", raising=False)
    report = check(VECTOR_ADD, vector_add_with(1024))
    assert report.passed
    assert {"virtual:sm_80", "virtual:gfx942"} <= {outcome.backend for outcome in report.outcomes}


def test_beside_a_real_gpu_the_virtual_ones_count_what_it_cannot(monkeypatch):
    monkeypatch.delenv("W2W_BACKENDS", raising=False)
    monkeypatch.setattr(type(BACKENDS["gpu"]), "unavailable", lambda self: None)
    assert [where.name for where in choose_backends(VECTOR_ADD)] == ["gpu", "virtual:sm_80", "virtual:gfx942"]
    launches_only = replace(VECTOR_ADD, limits=VECTOR_ADD.limits[:1])
    assert [where.name for where in choose_backends(launches_only)] == ["gpu"]


def test_a_right_kernel_that_ran_in_the_interpreter_also_compiles_for_both_vendors():
    report = check(VECTOR_ADD, vector_add_with(1024), backends=["interpreter"])
    assert report.headline.startswith(f"{len(VECTOR_ADD.cases)} public and {FRESH_CASES} fresh cases passed on")
    compiled = {o.backend: o.status for o in report.outcomes if o.mode is Mode.COMPILED}
    assert compiled == {"sm_80": "passed", "gfx942": "passed"}


def test_a_missing_mask_names_the_tensor_and_the_element():
    def answer(x, y):
        out = torch.empty_like(x)
        add_without_mask_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, y.numel(), BLOCK=1024)
        return out

    report = check(VECTOR_ADD, answer, backends=["interpreter"])
    assert report.misconception == "no_mask"
    assert "element 1000 of x_ptr, which holds 1000 elements" in report.headline


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_a_missing_mask_names_the_line_the_lane_and_the_tensor_on_a_virtual_gpu(target):
    no_mask = next(wrong for wrong in VECTOR_ADD.misconceptions if wrong.name == "no_mask")
    report = check(VECTOR_ADD, no_mask.answer, backends=[f"virtual:{target}"])
    assert report.misconception == "no_mask"
    for part in ("tl.store(out_ptr + offsets", "lane ", "of x_ptr, which has 4000 bytes"):
        assert part in report.headline


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize(
    ("exercise", "name"),
    [(VECTOR_ADD, "interleaves_programs"), (SAXPY, "neighbours_down_the_rows")],
    ids=lambda value: getattr(value, "id", value),
)
def test_right_numbers_by_scattered_accesses_are_seen_by_the_counters_of_either_vendor_alone(exercise, name, target):
    wrong = next(wrong for wrong in exercise.misconceptions if wrong.name == name)
    report = check(exercise, wrong.answer, backends=[f"virtual:{target}"])
    assert report.misconception == name
    assert {outcome.kind for outcome in report.outcomes} == {"", "limit:global_sectors_per_ideal"}
    assert check(exercise, wrong.answer, backends=["interpreter"]).passed


SAXPY_OUT = "torch.empty(rows, cols, dtype=x.dtype, device=x.device)"


@pytest.mark.parametrize(
    ("exercise", "right", "wrong", "misconception"),
    [
        (VECTOR_ADD, "triton.cdiv(n, BLOCK)", "n // BLOCK", "grid_rounds_down"),
        (VECTOR_ADD, "triton.cdiv(n, BLOCK)", "max(1, n // BLOCK)", "grid_rounds_down_to_one"),
        (VECTOR_ADD, "triton.cdiv(n, BLOCK)", "n", "one_program_for_each_element"),
        (VECTOR_ADD, "offsets < n", "offsets <= n", "mask_one_long"),
        (VECTOR_ADD, "torch.empty_like(x)", "y", "writes_into_y"),
        (VECTOR_ADD, "y_ptr + offsets % m", "y_ptr + offsets", "y_at_the_place_of_x"),
        (VECTOR_ADD, "x, y, out, n, m", "x, y, out, n, n", "y_at_the_place_of_x"),
        (VECTOR_ADD, "offsets % m", "tl.arange(0, BLOCK) % m", "y_by_the_lane"),
        (VECTOR_ADD, "torch.empty_like(x)", "torch.empty(n, device=x.device)", "allocates_a_default_tensor"),
        (SAXPY, "triton.cdiv(n, BLOCK)", "n // BLOCK", "grid_rounds_down"),
        (SAXPY, "offsets < n", "offsets <= n", "mask_one_long"),
        (
            SAXPY,
            "offsets // n_cols, offsets % n_cols",
            "offsets % n_cols, offsets // n_cols",
            "row_and_column_exchanged",
        ),
        (SAXPY, SAXPY_OUT, "torch.empty_like(x)", "result_laid_out_like_x"),
        (SAXPY, SAXPY_OUT, "torch.zeros_like(x)", "result_laid_out_like_x"),
        (SAXPY, SAXPY_OUT, "y", "writes_into_y"),
        (SAXPY, "+ col * stride_yn", "+ col", "column_stride_of_x_only"),
        (SAXPY, "a * x + y, mask=mask", "a * x + y", "unmasked_store"),
        (SAXPY, "*y.stride()", "y.stride(0) or cols, y.stride(1)", "no_repeated_row"),
        (COLUMN_SUMS, "range(n_rows)", "range(0, n_rows, BLOCK)", "steps_of_a_block_of_rows"),
        (COLUMN_SUMS, "cols < n_cols", "cols <= n_cols", "mask_one_long"),
        (
            COLUMN_SUMS,
            "out_ptr + cols, total,",
            "out_ptr + cols, tl.sum(total, axis=0),",
            "sums_across_lanes",
        ),
        (PREDICT, "(lanes - 1) * 4", "lanes * 4", "one_lane_too_many"),
        (PREDICT, "piece + 1", "piece", "forgets_the_first_piece"),
        (PREDICT, "4 * stride", "stride", "stride_in_bytes"),
        (COLUMN_SUMS, "row * n_cols + cols", "row + cols * n_rows", "row_after_column"),
        (COLUMN_SUMS, "triton.cdiv(n_cols, BLOCK)", "n_cols", "a_program_for_each_column"),
        (FIND_MASK, ' and ".global" in text', "", "every_guard"),
        (FIND_MASK, 'instructions[at].startswith("v_cndmask")', "True", "any_offset"),
    ],
    ids=lambda value: getattr(value, "id", value),
)
def test_a_slip_in_the_solution_gets_the_hint_for_that_slip(exercise, right, wrong, misconception):
    text = sources.solution(exercise.id)
    assert right in text
    answer = sources.load(exercise.id, text.replace(right, wrong))
    backends = ["cpu"] if exercise.kind == "host" else ["virtual:sm_80"]
    assert check(exercise, answer, backends=backends, seed=5).misconception == misconception


def test_zeros_in_place_of_new_memory_get_the_hint_for_what_was_not_written():
    text = sources.solution("00.vector_add").replace("triton.cdiv(n, BLOCK)", "n // BLOCK")
    answer = sources.load("00.vector_add", text.replace("empty_like", "zeros_like"))
    report = check(VECTOR_ADD, answer, backends=["virtual:sm_80"], seed=5)
    assert report.misconception == "grid_rounds_down"


@pytest.mark.parametrize(
    ("copied", "kind"),
    [
        ("x, y = torch.empty(x.shape).copy_(x), torch.empty(y.shape).copy_(y)", "torch:copy"),
        ("x, y = torch.cat([x]), torch.stack(list(y))", "torch:copy"),
        ("x, y = x + 0, y * 1", "torch:work"),
        ("a, x = 1.0, torch.mul(x, a, out=torch.empty(x.shape))", "torch:work"),
    ],
)
def test_a_kernel_that_reads_what_torch_made_of_the_views_fails(copied, kind):
    text = sources.solution("00.saxpy").replace("    out = torch", f"    {copied}\n    out = torch")
    report = check(SAXPY, sources.load("00.saxpy", text), backends=["virtual:sm_80"], seed=5)
    assert report.first_failure.kind == kind
    assert report.misconception == {"torch:copy": "copies_by_hand", "torch:work": "torch_multiplies"}[kind]


def test_a_program_for_each_row_is_too_many_threads_where_rows_are_short():
    wrong = next(wrong for wrong in SAXPY.misconceptions if wrong.name == "a_row_to_a_program")
    report = check(SAXPY, wrong.answer, backends=["virtual:gfx942"], seed=5)
    assert {(o.case, o.kind) for o in report.outcomes if o.status == "failed"} == {
        ("rows=500, cols=3", "limit:threads")
    }


@pytest.mark.parametrize(
    ("exercise", "name"),
    [(VECTOR_ADD, "torch_adds_the_kernel_copies"), (SAXPY, "torch_multiplies")],
    ids=lambda value: getattr(value, "id", value),
)
def test_a_part_of_the_work_done_by_torch_fails_although_the_numbers_are_right(exercise, name):
    wrong = next(wrong for wrong in exercise.misconceptions if wrong.name == name)
    report = check(exercise, wrong.answer, backends=["virtual:sm_80"], seed=5)
    assert report.misconception == name
    assert {outcome.kind for outcome in report.outcomes if outcome.status == "failed"} == {"torch:work"}


def test_the_answer_is_given_views_with_the_strides_of_the_case():
    strides = {(job.inputs["x"].stride(), job.inputs["y"].stride()) for job in make_jobs(SAXPY, seed=1)}
    assert ((107, 1), (100, 1)) in strides
    assert ((270, 3), (90, 1)) in strides
    assert ((1, 6), (140, 1)) in strides
    assert any(y[0] == 0 for _, y in strides)


def test_references_are_in_float64():
    x = torch.full((2, 3), 0.1)
    assert vector_add.vector_add_reference(x.flatten(), x[0]).dtype == torch.float64
    assert saxpy.saxpy_reference(0.5, x, x).dtype == torch.float64


@pytest.mark.parametrize(
    ("cuda", "hip", "gpus", "expected"),
    [("12.8", None, 1, "nvidia"), (None, "6.4", 8, "amd"), ("12.8", None, 0, "cpu"), (None, None, 0, "cpu")],
)
def test_the_platform_of_a_build_and_its_gpus(cuda, hip, gpus, expected):
    assert platform.platform_reference(cuda, hip, gpus, "2.13.0", "a GPU") == expected


@pytest.mark.parametrize(
    "guess",
    [
        lambda: str(torch.version.hip).startswith("6"),
        lambda: (torch.version.hip or "") >= "6",  # as text, "10" comes before "6"
        lambda: "rocm" in torch.__version__,
        lambda: not torch.__version__.partition("+")[2].startswith("cu"),
        lambda: torch.version.cuda not in ("12.6", "12.8"),
        lambda: torch.version.hip is not None and float(torch.version.hip[:3]) >= 6,
        lambda: float(torch.version.cuda or 0) < 12,
        lambda: "AMD" in torch.cuda.get_device_name(0),
        lambda: not torch.cuda.get_device_name().startswith("NVIDIA"),
    ],
)
def test_a_platform_read_off_a_version_fails(guess):
    report = check(PLATFORM, lambda: ("amd" if guess() else "nvidia") if torch.cuda.is_available() else "cpu")
    assert report.status == "failed"


def test_a_platform_may_count_devices_or_ask_the_accelerator():
    def counts():
        if torch.cuda.device_count() == 0:
            return "cpu"
        return "amd" if torch.version.hip else "nvidia"

    def asks_accelerator():
        if not torch.accelerator.is_available():
            return "cpu"
        return "nvidia" if torch.version.hip is None else "amd"

    def asks_for_the_current_one():
        if torch.accelerator.current_accelerator(check_available=True) is None:
            return "cpu"
        return "amd" if torch.version.hip else "nvidia"

    for answer in (counts, asks_accelerator, asks_for_the_current_one):
        assert check(PLATFORM, answer).passed


def test_the_accelerator_of_the_build_is_no_gpu_that_is_there():
    def answer():
        if torch.accelerator.current_accelerator() is None:
            return "cpu"
        return "amd" if torch.version.hip else "nvidia"

    assert check(PLATFORM, answer).misconception == "asks_only_the_build"


def test_a_report_on_the_mask_quotes_the_lines_that_were_named_beside_the_right_ones():
    wrong = next(wrong for wrong in FIND_MASK.misconceptions if wrong.name == "compares")
    assert "You named 0 `v_cmp_gt_i32_e32 vcc, s6, v0`; right is 1 `s_and_saveexec_b64 s[0:1], vcc`" in str(
        check(FIND_MASK, wrong.answer)
    )
    report = check(FIND_MASK, lambda instructions: {"way": "EXEC", "at": [99, "x"]})
    assert "You named 99, which is no line, 'x', which is no line" in report.headline


def test_torch_is_itself_again_after_the_check():
    before = torch.version.cuda, torch.version.hip, torch.cuda.is_available(), torch.cuda.device_count()
    check(PLATFORM, lambda: 1 / 0)
    assert before == (torch.version.cuda, torch.version.hip, torch.cuda.is_available(), torch.cuda.device_count())


def test_the_figure_counts_what_a_lane_holds_on_both_vendors():
    figure = LaunchFigure(n=3000, block=1024, num_warps=4)
    assert figure.programs == 3
    assert (figure.elements_per_lane(32), figure.elements_per_lane(64)) == (8, 4)
    assert "the last 72 positions of the last program are masked" in repr(figure)
    assert "on sm_80 4 warps of 32 lanes, 8 elements a lane: lane 0 of warp 0 holds 0-3 and 512-515" in repr(figure)


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize(("block", "warps", "wave", "n"), [(1024, 4, 0, 3000), (1024, 4, 3, 3001), (256, 4, 1, 256)])
def test_the_figure_gives_each_lane_the_elements_that_it_loads(target, block, warps, wave, n):
    x = torch.arange(float(n))
    with virtual_gpu(target) as gpu, gpu.trace(wave=wave) as trace:
        copy_kernel[(triton.cdiv(n, block),)](x, torch.zeros(n), n, BLOCK=block, num_warps=warps)
    lanes = gpu.model.lanes
    loaded = [set() for _ in range(lanes)]
    for step in trace.steps:
        if re.search(r"ld\.global|(buffer|global)_load", step.text):
            for values in step.changed.values():
                for lane, value in enumerate(values.view(np.float32).tolist()):
                    loaded[lane].add(int(value))
    figure = LaunchFigure(n, block, warps)
    assert [sorted(found) for found in loaded] == [
        sorted({*figure.elements(lanes, lane, wave)}) for lane in range(lanes)
    ]


def test_the_figure_is_well_formed_and_carries_its_text():
    import xml.etree.ElementTree as ElementTree

    for figure in (LaunchFigure(1, 16, 1), LaunchFigure(3000, 1024, 4), LaunchFigure(10**6, 4096, 16)):
        drawing = re.search(r"<svg.*</svg>", figure._repr_html_(), re.DOTALL)
        svg = ElementTree.fromstring(drawing[0])
        assert svg.attrib["role"] == "img"
        assert svg.attrib["aria-label"] == repr(figure)


@pytest.mark.gpu
@pytest.mark.parametrize("exercise", [VECTOR_ADD, SAXPY], ids=lambda exercise: exercise.id)
def test_a_missing_mask_is_found_where_there_is_a_real_gpu(exercise):
    no_mask = next(wrong for wrong in exercise.misconceptions if wrong.name == "no_mask")
    report = check(exercise, no_mask.answer)
    assert "gpu" in {outcome.backend for outcome in report.outcomes}
    assert report.misconception == "no_mask"


@triton.jit
def _does_nothing_kernel(x_ptr):
    pass


def test_a_kernel_that_is_launched_for_show_does_not_pass():
    def vector_add(x, y):
        _does_nothing_kernel[(1,)](x)
        return x + y.repeat(triton.cdiv(len(x), len(y)))[: len(x)]

    report = check(VECTOR_ADD, vector_add)
    assert {o.kind for o in report.outcomes if o.status == "failed"} == {"torch:work"}
    unwatched = check(replace(VECTOR_ADD, torch_may=None, limits=()), vector_add)
    (idle,) = (outcome for outcome in unwatched.outcomes if outcome.status == "failed")
    assert idle.kind == "idle"
    assert "let the kernel compute" in idle.detail


@triton.jit
def column_tiles_kernel(x_ptr, out_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)[None, :]
    total = tl.zeros([ROWS, COLS], tl.float32)
    for first in range(0, n_rows, ROWS):
        rows = first + tl.arange(0, ROWS)[:, None]
        total += tl.load(x_ptr + rows * n_cols + cols, mask=(rows < n_rows) & (cols < n_cols), other=0.0)
    sums = tl.sum(total, axis=0)[None, :]
    tl.store(out_ptr + cols, sums, mask=cols < n_cols)


@triton.jit
def rows_shared_out_kernel(x_ptr, out_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    row = tl.program_id(1)
    while row < n_rows:
        total += tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols)
        row += tl.num_programs(1)
    tl.atomic_add(out_ptr + cols, total, mask=cols < n_cols)


@triton.jit
def walking_pointers_kernel(x_ptr, out_ptr, stride, n_rows, n_cols, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = x_ptr + cols
    total = tl.load(at, mask=cols < n_cols)
    for _ in range(1, n_rows):
        at += stride
        total += tl.load(at, mask=cols < n_cols)
    tl.store(out_ptr + cols, total, mask=cols < n_cols)


def sums_of_tiles(rows, cols):
    def answer(x):
        out = x.new_empty(x.shape[1])
        column_tiles_kernel[(triton.cdiv(x.shape[1], cols),)](x, out, *x.shape, ROWS=rows, COLS=cols)
        return out

    return answer


def sums_of_shared_rows(x):
    out = torch.zeros(x.shape[1], device=x.device)
    rows_shared_out_kernel[triton.cdiv(x.shape[1], 128), 3](x, out, *x.shape, BLOCK=128)
    return out


def sums_of_walking_pointers(x):
    out = torch.empty_like(x[0])
    grid = lambda meta: (triton.cdiv(x.shape[1], meta["BLOCK"]),)  # noqa: E731
    walking_pointers_kernel[grid](x, out, x.stride(0), *x.shape, BLOCK=256, num_warps=2)
    return out


@pytest.mark.parametrize(
    "answer",
    [sums_of_tiles(16, 64), sums_of_tiles(4, 128), sums_of_shared_rows, sums_of_walking_pointers],
    ids=["tiles", "wide tiles", "programs that share rows", "pointers that walk"],
)
def test_other_ways_of_dealing_out_columns_are_right_answers(answer):
    report = check(COLUMN_SUMS, answer)
    assert report.passed, report.headline


@triton.jit
def rows_by_atomics_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    for first in range(tl.program_id(1) * BLOCK, n_cols, tl.num_programs(1) * BLOCK):
        cols = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + tl.program_id(0) * n_cols + cols, mask=cols < n_cols)
        tl.atomic_add(out_ptr + cols, x, mask=cols < n_cols)


@pytest.mark.parametrize("programs", [1, 4])
def test_columns_summed_by_an_atomic_for_each_element_are_found_by_the_counter_of_atomics(programs):
    def answer(x):
        out = torch.zeros(x.shape[1])
        rows_by_atomics_kernel[len(x), programs](x, out, x.shape[1], BLOCK=128)
        return out

    report = check(COLUMN_SUMS, answer, backends=["virtual:gfx942"], seed=5)
    assert report.first_failure.kind == "limit:global_atomics"
    assert report.misconception == "adds_every_element_to_memory"


def test_a_prediction_from_the_pieces_of_one_full_wave_is_a_right_answer():
    def answer(n, stride):
        found = {}
        for target, lanes, piece in (("sm_80", 32, 32), ("gfx942", 64, 128)):
            touched = [len({4 * stride * lane // piece for lane in range(count)}) for count in range(lanes + 1)]
            transactions = n // lanes * touched[lanes] + touched[n % lanes]
            waves = (n + 255) // 256 * (256 // lanes)
            found[target] = {"waves": waves, "transactions": transactions, "moved_bytes": transactions * piece}
        return found

    assert check(PREDICT, answer).passed


# --- machine code and counters ------------------------------------------------------------------------------------


@triton.jit
def gather_kernel(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets * stride, mask=mask), mask=mask)


def test_two_roundings_are_thousands_of_units_in_the_last_place_off_where_the_lesson_says():
    x = torch.linspace(-1, 1, 5000)
    true = torch.tensor(1.1).double() * x.double() + 1
    nearest = true.float()
    unit = (torch.nextafter(nearest.abs(), torch.tensor(torch.inf)) - nearest.abs()).double()
    off = ((1.1 * x + 1).double() - true).abs() / unit
    assert 2000 < off.max() < 9999
    assert x[off.argmax()].item() == pytest.approx(-0.909, abs=0.001)


@pytest.mark.parametrize(("target", "even", "odd"), [("sm_80", 8192, 32769), ("gfx942", 2048, 8193)])
def test_one_element_more_costs_four_times_the_transactions_as_the_lesson_says(target, even, odd):
    for n, expected in ((65_536, even), (65_537, odd)):
        with virtual_gpu(target) as gpu:
            gather_kernel[(triton.cdiv(n, 1024),)](torch.randn(n), torch.empty(n), n, 1, BLOCK=1024)
        assert gpu.counters.totals()["global_load_sectors"] == expected


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize(("n", "stride"), [(1, 100), (65, 3), (300, 2), (1000, 7), (2048, 12), (513, 31), (600, 33)])
def test_the_rule_of_predict_counters_is_what_the_virtual_gpus_count(n, stride, target):
    x, out = torch.randn((n - 1) * stride + 1), torch.empty(n)
    with virtual_gpu(target) as gpu:
        gather_kernel[(triton.cdiv(n, 256),)](x, out, n, stride, BLOCK=256, num_warps=256 // gpu.model.lanes)
    counted = gpu.counters.totals()
    assert predict_counters.counters_reference(n, stride)[target] == {
        "waves": counted["waves"],
        "transactions": counted["global_load_sectors"],
        "moved_bytes": counted["global_load_sectors"] * counted["sector_bytes"],
    }


@pytest.mark.parametrize(
    ("kernel", "target", "small", "way", "words"),
    [
        ("scale", "sm_90", True, "predicate", [" ld.global", " st.global"]),
        ("stride", "sm_80", True, "predicate", [" ld.global", " st.global"]),
        ("wrapped", "sm_80", False, "predicate", [" st.global"]),
        ("leaky", "gfx90a", False, "EXEC", ["s_and_saveexec_b64"]),
        ("scale", "gfx1100", False, "EXEC", ["s_and_saveexec_b32"]),
        ("leaky", "gfx942", True, "offset", ["v_cndmask_b32"]),
        ("head", "gfx942", True, "none", []),
        ("head", "gfx90a", False, "none", []),
    ],
)
def test_the_mask_is_found_in_what_the_compiler_makes_today(kernel, target, small, way, words):
    listed = list(mask_kernels.instructions(kernel, target, 1_000_000, 256, small))
    found = find_mask.mask_reference(listed)
    assert found["way"] == way
    assert len(found["at"]) == len(words)
    for at, word in zip(found["at"], words, strict=True):
        assert word in listed[at]


@pytest.mark.parametrize(("target", "times"), [("sm_80", 8), ("gfx942", 32)])
def test_the_broken_kernel_of_the_statement_has_right_sums_and_its_loads_bring_as_much_as_it_says(target, times):
    down = next(wrong for wrong in COLUMN_SUMS.misconceptions if wrong.name == "down_the_columns")
    report = check(COLUMN_SUMS, down.answer, backends=[f"virtual:{target}"], seed=1)
    assert {outcome.kind for outcome in report.outcomes if outcome.mode is Mode.RUN} == {
        "",
        "limit:global_sectors_per_ideal",
    }
    with virtual_gpu(target) as gpu:
        down.answer(torch.randn(256, 512))
    counted = gpu.counters.totals()
    assert counted["global_load_sectors"] * counted["sector_bytes"] == times * counted["global_load_bytes"]


@pytest.mark.parametrize("said", ['print("x")', 'tl.device_print("x")'])
def test_a_print_left_in_a_kernel_is_named_where_it_costs_transactions(said):
    text = sources.solution("00.vector_add").replace("    tl.store(", f"    {said}\n    tl.store(")
    job = make_jobs(VECTOR_ADD, seed=5, names=["virtual:gfx942"])[0]
    attempt = run(VECTOR_ADD, sources.load("00.vector_add", text), job.inputs, backend(job.backend))
    assert "A print in your kernel is compiled, too" in judge(VECTOR_ADD, job, attempt).detail
