"""Backends: the table, the interpreter on CPU tensors, and the count of launches."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter as engine
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from gpu_utils.backends import BACKENDS, backend, interpreter, record_launches
from gpu_utils.errors import BackendUnavailable, OutOfBounds, UnknownName

SCALE = tl.constexpr(3)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@triton.jit
def unmasked_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))


@triton.jit
def twice(x, times):
    return x * times, times


@triton.jit
def reducing_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    HALF = BLOCK // 2
    x = tl.load(x_ptr + tl.arange(0, HALF * 2))
    doubled, _ = twice(x, 2)
    top = tl.max(x, axis=0)
    index = tl.argmax(x, axis=0)
    tl.store(out_ptr, doubled.sum(0))
    tl.store(out_ptr + 1, top)
    tl.store(out_ptr + 2, index.to(tl.float32) * SCALE)


@triton.jit
def dot_kernel(a_ptr, b_ptr, c_ptr, K, stride, N: tl.constexpr):
    i = tl.arange(0, N)
    acc = tl.zeros((N, N), dtype=tl.float32)
    for k in range(0, K, N):
        a = tl.load(a_ptr + i[:, None] * stride + (k + i)[None, :])
        b = tl.load(b_ptr + (k + i)[:, None] * N + i[None, :])
        acc += tl.dot(a, b)
    tl.store(c_ptr + i[:, None] * N + i[None, :], acc)


def run_add(n=98, block=32, kernel=add_kernel, **options):
    x, y = torch.randn(n), torch.randn(n)
    out = torch.full((n,), float("nan"))
    kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block, **options)
    return out, x + y


def patched():
    """Everything that the block changes, to be compared before and after.

    Triton's own restoring leaves an inherited __repr__ in the class the first time; Python may add __annotations__.
    """
    owners = (JITFunction, engine.InterpretedFunction, Autotuner, engine.InterpreterBuilder, tl, tl.core, tl.tensor)
    return [
        {
            name: value
            for name, value in vars(owner).items()
            if name != "__annotations__" and value is not object.__repr__
        }
        for owner in (*owners, tl.math, tl.dtype)
    ]


# --- the table


def test_the_backends_are_gpu_cpu_and_interpreter():
    assert set(BACKENDS) == {"gpu", "cpu", "interpreter"}


def test_an_unknown_backend_offers_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'interpreter'"):
        backend("interpretor")


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_a_virtual_gpu_runs_a_kernel_and_counts(target):
    x = torch.arange(700.0)
    out = torch.empty_like(x)
    with backend(f"virtual:{target}").session() as session:
        for _ in range(2):
            add_kernel[(3,)](x, x, out, 700, BLOCK=256)
    assert torch.equal(out, 2 * x)
    assert session.counters["launches"] == 2
    assert session.counters["blocks"] == 6
    assert session.counters["global_load_bytes"] == 2 * 2 * x.nbytes


@pytest.mark.parametrize(("target", "slots"), [("sm_80", 64), ("gfx942", 32)])
def test_a_session_counts_threads_and_the_units_that_the_blocks_fill(target, slots):
    x = torch.arange(6 * 1024.0)
    with backend(f"virtual:{target}").session() as session:
        add_kernel[(6,)](x, x, torch.empty_like(x), len(x), BLOCK=1024, num_warps=4)
    counted = session.counters
    assert counted["threads"] == 6 * 4 * (2048 // slots)
    assert counted["waves_of_a_block"] == 4
    assert counted["global_moved_bytes"] == 3 * x.nbytes
    assert counted["units_filled"] == 6 / (slots // 4)  # so light a kernel fills every slot


@triton.jit
def uneven_kernel(x_ptr, out_ptr, more, BLOCK: tl.constexpr):
    """Program 0 sums `more` blocks of x, each other one a single block."""
    program, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for block in range(0, tl.where(program == 0, more, 1)):
        total += tl.load(x_ptr + (program + block) * BLOCK + offsets)
    tl.store(out_ptr + program * BLOCK + offsets, total)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize(("more", "uneven"), [(1, 1.0), (5, 2.5)])
def test_uneven_loads_are_those_of_the_busiest_block_over_the_mean_and_counted_when_asked_for(target, more, uneven):
    x, out = torch.arange(8 * 1024.0), torch.empty(4 * 1024)
    where = backend(f"virtual:{target}")
    for asked in (where, where.counting({"uneven_loads"})):
        with asked.session() as session:
            uneven_kernel[(4,)](x, out, more, BLOCK=1024)
            add_kernel[(1,)](x, x, torch.empty_like(x), 700, BLOCK=256)  # a smaller launch does not count
        assert session.counters.get("uneven_loads") == (None if asked is where else uneven)


def test_a_session_that_loads_nothing_is_not_uneven():
    with backend("virtual:sm_80").counting({"uneven_loads"}).session() as session:
        pass
    assert session.counters["uneven_loads"] == 0


@pytest.mark.parametrize("name", ["virtual:gfx940", "virtual:", "virtual:sm_75"])
def test_a_virtual_gpu_that_does_not_exist_says_which_do(name):
    assert "virtual GPUs are sm_80" in backend(name).unavailable()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_the_gpu_backend_says_why_it_cannot_run():
    reason = backend("gpu").unavailable()
    assert reason
    assert reason.count("\n") == 0
    with pytest.raises(BackendUnavailable, match="the backend gpu cannot run here"):
        with backend("gpu").session():
            pass


def test_a_driver_that_breaks_is_one_sentence(monkeypatch):
    def broken():
        raise RuntimeError("CUDA driver initialization failed")

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", broken)
    assert "CUDA driver initialization failed" in backend("gpu").unavailable()


def test_the_cpu_backend_counts_no_launches():
    with backend("cpu").session() as session:
        assert session.device == "cpu"
    assert session.counters == {}


# --- the interpreter


def test_a_plain_kernel_runs_on_cpu_tensors():
    with interpreter():
        out, expected = run_add()
    assert torch.equal(out, expected)


def test_reductions_device_functions_constants_and_methods_work():
    x = torch.arange(16.0)
    out = torch.zeros(3)
    with interpreter():
        reducing_kernel[(1,)](x, out, BLOCK=16)
    assert out.tolist() == [240.0, 15.0, 45.0]


def test_while_loops_follow_the_data():
    @triton.jit
    def halve(x_ptr):
        x = tl.load(x_ptr)
        while x > 10.0:
            x = x / 2
        tl.store(x_ptr, x)

    x = torch.tensor([100.0])
    with interpreter():
        halve[(1,)](x)
    assert x.item() == 6.25


@pytest.mark.parametrize("flag", [True, False])
def test_truth_values_and_absent_pointers_are_arguments_too(flag):
    @triton.jit
    def choose(out_ptr, absent_ptr, flag):
        if absent_ptr is not None:
            tl.store(absent_ptr, 1.0)
        if flag:
            tl.store(out_ptr, 1.0)

    out = torch.zeros(1)
    with interpreter():
        choose[(1,)](out, None, flag)
    assert out.item() == flag


def test_scans_sorts_and_custom_combinations_match_torch():
    @triton.jit
    def linear(a1, b1, a2, b2):
        return a1 * a2, b1 * a2 + b2

    @triton.jit
    def many(x_ptr, out_ptr, B: tl.constexpr):
        i = tl.arange(0, B)
        x = tl.load(x_ptr + i)
        tl.store(out_ptr + i, tl.cumsum(x, 0))
        tl.store(out_ptr + B + i, tl.sort(x))
        tl.store(out_ptr + 2 * B + i, tl.softmax(x))
        _, b = tl.associative_scan((x, x), 0, linear)
        tl.store(out_ptr + 3 * B + i, b)

    x, out = torch.randn(16), torch.empty(4, 16)
    with interpreter():
        many[(1,)](x, out, B=16)
    state, scanned = 0.0, []
    for value in x.tolist():
        state = state * value + value
        scanned.append(state)
    expected = torch.stack([x.cumsum(0), x.sort().values, x.softmax(0), torch.tensor(scanned)])
    torch.testing.assert_close(out, expected)


def test_tensor_descriptors_made_on_the_host_work():
    from triton.tools.tensor_descriptor import TensorDescriptor

    @triton.jit
    def tile(source, out_ptr, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(out_ptr + i[:, None] * B + i[None, :], source.load([0, B]))

    x, out = torch.arange(64.0 * 64).reshape(64, 64), torch.empty(16, 16)
    with interpreter():
        tile[(1,)](TensorDescriptor.from_tensor(x, [16, 16]), out, B=16)
    assert torch.equal(out, x[:16, 16:32])


def test_a_loop_over_tl_dot_matches_torch():
    a, b = torch.randn(16, 48), torch.randn(48, 16)
    c = torch.empty(16, 16)
    with interpreter():
        dot_kernel[(1,)](a, b, c, 48, a.stride(0), N=16)
    torch.testing.assert_close(c, a @ b)


def test_views_and_offsets_reach_the_callers_memory():
    x = torch.arange(20.0)
    out = torch.zeros(20)
    with interpreter():
        add_kernel[(1,)](x[4:12], x[10:18], out[5:13], 8, BLOCK=8)
    assert torch.equal(out[5:13], x[4:12] + x[10:18])
    assert out.count_nonzero() == 8


def test_two_arguments_may_share_memory():
    x = torch.ones(8)
    with interpreter():
        add_kernel[(1,)](x, x, x, 8, BLOCK=8)
    assert x.tolist() == [2.0] * 8


def test_a_callable_grid_is_given_numbers():
    seen = {}

    def grid(meta):
        seen.update(meta)
        return (triton.cdiv(meta["n"], meta["BLOCK"]),)

    x, out = torch.randn(50), torch.empty(50)
    with interpreter():
        add_kernel[grid](x, x, out, 50, BLOCK=16)
    assert torch.equal(out, x + x)
    assert (seen["n"], seen["BLOCK"]) == (50, 16)


def test_a_kernel_that_closes_over_local_values_works():
    offset = tl.constexpr(7)

    @triton.jit
    def local(out_ptr):
        tl.store(out_ptr, offset)

    out = torch.zeros(1)
    with interpreter():
        local[(1,)](out)
    assert out.item() == 7


def test_heuristics_choose_as_they_do_on_a_gpu():
    kernel = triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})(add_kernel)
    x, out = torch.randn(30), torch.empty(30)
    with interpreter(), record_launches() as launches:
        kernel[(1,)](x, x, out, 30)
    assert torch.equal(out, x + x)
    assert launches[0].kwargs["BLOCK"] == 32


def test_an_autotuned_kernel_takes_its_first_configuration_and_forgets_it():
    configs = [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 64})]
    kernel = triton.autotune(configs, key=["n"])(add_kernel)
    x, out = torch.randn(50), torch.empty(50)
    with interpreter(), record_launches() as launches:
        kernel[lambda meta: (triton.cdiv(50, meta["BLOCK"]),)](x, x, out, 50)
    assert torch.equal(out, x + x)
    assert [(launch.grid, launch.kwargs["BLOCK"]) for launch in launches] == [((4,), 16)]
    assert kernel.cache == {}


def test_everything_is_restored_when_the_block_ends():
    before, names = patched(), set(globals())
    with interpreter():
        run_add()
    assert patched() == before
    assert set(globals()) == names


def test_everything_is_restored_after_an_error():
    before = patched()
    with pytest.raises(OutOfBounds), interpreter():
        unmasked_kernel[(2,)](torch.zeros(10), torch.zeros(10), BLOCK=8)
    with pytest.raises(ZeroDivisionError), interpreter():
        raise ZeroDivisionError
    assert patched() == before


def test_blocks_may_be_nested():
    with interpreter():
        with interpreter():
            run_add()
        out, expected = run_add()
        assert torch.equal(out, expected)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_outside_a_block_a_launch_fails_as_triton_says():
    with interpreter():
        run_add()
    with pytest.raises(RuntimeError, match="active drivers"):
        run_add()


def test_calling_a_kernel_without_a_grid_is_refused_as_on_a_gpu():
    with interpreter(), pytest.raises(RuntimeError, match="outside of the scope of a kernel"):
        add_kernel(1, 2)


def test_options_of_both_vendors_are_accepted_and_misspelt_arguments_are_not():
    with interpreter():
        out, expected = run_add(num_warps=8, waves_per_eu=2)
        assert torch.equal(out, expected)
        with pytest.raises(KeyError, match="BLCK was specified but unrecognised"):
            run_add(BLCK=3)


def test_an_error_in_a_kernel_keeps_its_type_and_shows_the_line():
    @triton.jit
    def wrong(x_ptr):
        tl.store(x_ptr, tl.no_such_thing(1))

    with interpreter(), pytest.raises(AttributeError, match="no_such_thing") as caught:
        wrong[(1,)](torch.zeros(1))
    assert caught.traceback[-1].path == caught.traceback[0].path
    assert "no_such_thing" in str(caught.traceback[-1].statement)


@pytest.mark.parametrize("which", ["load", "store"])
def test_an_access_outside_names_the_tensor_the_element_and_the_program(which):
    x, out = torch.zeros(16 if which == "store" else 10), torch.zeros(10 if which == "store" else 16)
    with interpreter(), pytest.raises(OutOfBounds) as caught:
        unmasked_kernel[(2,)](x, out, BLOCK=8)
    name = "x_ptr" if which == "load" else "out_ptr"
    assert f"program (1, 0, 0): a {which} reaches element 10 of {name}, which holds 10 elements" in str(caught.value)
    assert "6 accesses are outside" in str(caught.value)


def test_after_an_error_the_tensors_are_as_before():
    out = torch.full((10,), -1.0)
    with interpreter(), pytest.raises(OutOfBounds):
        unmasked_kernel[(2,)](torch.zeros(16), out, BLOCK=8)
    assert out.tolist() == [-1.0] * 10


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_tensors_that_the_interpreter_gets_wrong_are_refused(dtype):
    x = torch.zeros(8).to(dtype)
    with interpreter(), pytest.raises(BackendUnavailable, match=r"x_ptr.*raw bits as integers"):
        add_kernel[(1,)](x, torch.zeros(8), torch.zeros(8), 8, BLOCK=8)


@pytest.mark.parametrize("dtype", [tl.bfloat16, tl.float8e5, tl.float8e4nv])
def test_narrow_values_inside_a_kernel_are_refused(dtype):
    @triton.jit
    def rounding(x_ptr, KIND: tl.constexpr):
        x = tl.load(x_ptr + tl.arange(0, 4))
        tl.store(x_ptr + tl.arange(0, 4), x.to(KIND).to(tl.float32))

    with interpreter(), pytest.raises(BackendUnavailable, match="raw bits as integers"):
        rounding[(1,)](torch.zeros(4), KIND=dtype)


def test_atomics_work_in_float32_and_are_refused_in_float16():
    @triton.jit
    def total(x_ptr, out_ptr):
        tl.atomic_add(out_ptr, tl.load(x_ptr + tl.program_id(0)))

    out = torch.zeros(1)
    with interpreter():
        total[(10,)](torch.arange(10.0), out)
        assert out.item() == 45
        with pytest.raises(BackendUnavailable, match="float16 atomics"):
            total[(10,)](torch.arange(10.0).half(), out.half())


def test_inline_assembly_is_refused():
    @triton.jit
    def inline(x_ptr):
        x = tl.load(x_ptr)
        y = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], tl.float32, True, 1)
        tl.store(x_ptr, y)

    with interpreter(), pytest.raises(BackendUnavailable, match="inline assembly"):
        inline[(1,)](torch.zeros(1))


def test_libdevice_is_refused():
    from triton.language.extra import libdevice

    @triton.jit
    def sine(x_ptr):
        tl.store(x_ptr, libdevice.sinh(tl.load(x_ptr)))

    with interpreter(), pytest.raises(BackendUnavailable, match=r"libdevice\.sinh"):
        sine[(1,)](torch.zeros(1))


def test_it_works_when_the_user_set_triton_interpret():
    script = """
    import torch, triton, triton.language as tl
    from gpu_utils.backends import backend
    from gpu_utils.errors import OutOfBounds
    from tests.unit.test_backends import add_kernel, reducing_kernel, unmasked_kernel
    x, out = torch.randn(50), torch.empty(50)
    with backend("interpreter").session() as session:
        add_kernel[(4,)](x, x, out, 50, BLOCK=16)
        reducing_kernel[(1,)](x, torch.empty(3), BLOCK=16)
        try:
            unmasked_kernel[(4,)](x, out, BLOCK=16)
        except OutOfBounds:
            print("guarded")
    assert torch.equal(out, x + x) and session.counters == {"launches": 3}
    add_kernel[(4,)](x, x, out, 50, BLOCK=16)  # Triton's own interpreter, as before
    assert torch.equal(out, x + x)
    print(backend("gpu").unavailable())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "guarded"
    assert "TRITON_INTERPRET=1 is set" in done.stdout


# --- recording


def test_a_session_counts_launches_and_keeps_their_arguments():
    with backend("interpreter").session() as session:
        run_add()
        run_add(n=10)
    assert session.counters == {"launches": 2}
    first = session.launches[0]
    assert (first.name, first.grid, first.args[3], first.kwargs["BLOCK"]) == ("add_kernel", (4,), 98, 32)


def test_what_an_autotuner_tries_is_in_no_counter_of_a_session():
    configs = [triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 1024})]
    tuned = triton.autotune(configs, key=["n"])(add_kernel)
    x, out = torch.randn(8192), torch.empty(8192)
    counted = {}
    for name in ("virtual:sm_80", "virtual:gfx942"):
        for kernel in (tuned, add_kernel):
            tuned.cache.clear()
            with backend(name).session() as session:
                given = {} if kernel is tuned else {"BLOCK": tuned.best_config.kwargs["BLOCK"]}
                kernel[lambda meta: (triton.cdiv(8192, meta["BLOCK"]),)](x, x, out, 8192, **given)
            counted[name, kernel] = session.counters
        assert counted[name, tuned] == counted[name, add_kernel]
        assert counted[name, tuned]["global_store_bytes"] == 4 * 8192


def test_recording_ends_with_its_block():
    with interpreter():
        with record_launches() as launches:
            run_add()
        run_add()
    assert len(launches) == 1


def test_a_kernel_compiles_after_another_was_interpreted_first_of_all():
    script = """
        import torch, triton, triton.language as tl
        from gpu_utils.backends import backend, interpreter

        @triton.jit
        def first_rows(x_ptr, n, BLOCK: tl.constexpr):
            for row in range(tl.program_id(0) * BLOCK, min(tl.program_id(0) * BLOCK + BLOCK, n)):
                tl.store(x_ptr + row, tl.load(x_ptr + row) + 1)

        x = torch.zeros(10)
        with interpreter():
            first_rows[(3,)](x, 10, BLOCK=4)
        with backend("virtual:gfx942").session():
            first_rows[(3,)](x, 10, BLOCK=4)
        print(x.tolist() == [2.0] * 10)
        """
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_CACHE_DIR"}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel.py")
        with open(path, "w") as file:
            file.write(textwrap.dedent(script))
        environment["TRITON_CACHE_DIR"] = os.path.join(folder, "cache")
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "True", done.stderr
