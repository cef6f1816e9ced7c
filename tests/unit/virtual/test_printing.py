"""What kernels say: device_print and device_assert on both vendors, printf from C++, and C's formats."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gpu_utils import virtual_gpu
from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.errors import DeviceAssert, VirtualGpuError
from gpu_utils.virtual.amdgcn.hostcall import Hostcall
from gpu_utils.virtual.global_memory import Memory
from gpu_utils.virtual.printing import c_format

TARGETS = ["sm_90", "gfx90a", "gfx942", "gfx1100", "gfx1201", "gfx1250"]
needs_clang = pytest.mark.usefixtures("clang")


@triton.jit
def print_kernel(x_ptr, n, N: tl.constexpr):
    program = tl.program_id(0)
    x = tl.load(x_ptr + program * N + tl.arange(0, N))
    if program % n == 0:
        tl.device_print("a rather long label, so that the text needs several packets", x)


@triton.jit
def print_two_kernel(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.device_print("pair", tl.load(x_ptr + i), tl.load(y_ptr + i), hex=True)


@triton.jit
def assert_kernel(x_ptr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.device_assert(x < 100, "x stays below 100%")
    tl.store(x_ptr + i, x + 1)


@triton.jit
def assert_two_kernel(x_ptr, N: tl.constexpr):
    program = tl.program_id(0)
    x = tl.load(x_ptr + tl.arange(0, N))
    if program == 0:
        tl.device_assert(x >= 0, "not negative")
    else:
        tl.device_assert(x < 100, "small")


def printed(capsys) -> set[str]:
    return set(capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        *((target, dtype) for target in TARGETS for dtype in (torch.float32, torch.int64)),
        *((target, dtype) for target in ("sm_90", "gfx942") for dtype in (torch.float16, torch.int8, torch.int32)),
    ],
    ids=str,
)
def test_every_lane_prints_its_own_value_of_every_width(target, dtype, capsys):
    x = (torch.arange(8) * 3 - 4).to(dtype)
    with virtual_gpu(target):
        print_kernel[(1,)](x, 1, N=8, num_warps=1)
    label = "a rather long label, so that the text needs several packets"
    value = (lambda v: f"{v:f}") if dtype.is_floating_point else str
    assert printed(capsys) == {f"pid (0, 0, 0) idx ({i}) {label}: {value(v)}" for i, v in enumerate(x.tolist())}


@pytest.mark.parametrize(("target", "lanes"), [("sm_90", 32), ("gfx942", 64)])
def test_programs_that_print_do_so_in_order_and_the_others_stay_silent(target, lanes, capsys):
    with virtual_gpu(target):
        print_kernel[(40,)](torch.arange(40 * lanes), 13, N=lanes, num_warps=1)
    lines = capsys.readouterr().out.splitlines()
    speaking = [(p, i) for p in (0, 13, 26, 39) for i in range(lanes)]
    assert [line.split("(")[1].split(",")[0] for line in lines] == [str(p) for p, _ in speaking]
    assert [int(line.rsplit(" ", 1)[1]) for line in lines] == [lanes * p + i for p, i in speaking]


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_operands_of_unlike_width_keep_apart_in_hexadecimal(target, capsys):
    with virtual_gpu(target):
        print_two_kernel[(1,)](torch.tensor([10, -1], dtype=torch.int32), torch.tensor([2**40, -2]), N=2, num_warps=1)
    assert printed(capsys) == {
        "pid (0, 0, 0) idx (0) pair: (operand 0) 0x0000000a",
        "pid (0, 0, 0) idx (1) pair: (operand 0) 0xffffffff",
        "pid (0, 0, 0) idx (0) pair: (operand 1) 0x0000010000000000",
        "pid (0, 0, 0) idx (1) pair: (operand 1) 0xfffffffffffffffe",
    }


@pytest.mark.parametrize("target", TARGETS)
def test_a_failed_assertion_names_program_lane_message_and_the_learners_line(target, capsys):
    x = torch.zeros(6 * 64, dtype=torch.int32)
    x[3 * 64 + 5] = 100
    line = assert_kernel.fn.__code__.co_firstlineno + 4
    with virtual_gpu(target), pytest.raises(DeviceAssert) as caught:
        assert_kernel[(6,)](x, N=64, num_warps=64 // (64 if target.startswith("gfx9") else 32), debug=True)
    assert str(caught.value) == (
        f"kernel assert_kernel: device assertion 'x stays below 100%' failed at test_printing.py:{line} in "
        "program (3, 0, 0), wave 0, lane 5 (thread 5)"
    )
    assert printed(capsys) == set()


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_of_two_assertions_the_one_that_failed_is_named(target):
    for values, message in (([-1, 0], "not negative"), ([0, 100], "small")):
        with virtual_gpu(target), pytest.raises(DeviceAssert, match=message):
            assert_two_kernel[(2,)](torch.tensor(values), N=2, num_warps=1, debug=True)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_assertions_are_compiled_only_for_debugging(target, monkeypatch):
    x = torch.full((64,), 100, dtype=torch.int32)
    with virtual_gpu(target):
        assert_kernel[(1,)](x, N=64, num_warps=1)
        assert x.eq(101).all()
        monkeypatch.setattr(triton.knobs.runtime, "debug", True)  # what TRITON_DEBUG=1 sets
        with pytest.raises(DeviceAssert):
            assert_kernel[(1,)](x, N=64, num_warps=1)


PRINTF = r"""
__global__ void say(const float *x, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = printf("%d of %s: %.3f %c %5d|%-4u| %lld %%\n", i, "x", x[i], 'a' + i, -i, i, (long long)i << 40);
  if (i == 1) printf("plain\n");
}
"""


@needs_clang
@pytest.mark.parametrize("target", ["sm_80", "gfx90a", "gfx942", "gfx1201"])
def test_printf_from_cpp_prints_and_returns_what_the_vendor_s_does(target, capsys):
    x, out = torch.arange(4).float(), torch.zeros(4, dtype=torch.int32)
    with virtual_gpu(target) as gpu:
        gpu.load(compile_cpp(PRINTF, target)).launch("say", 1, 64, [x, out, 2])
    lines = ["0 of x: 0.000 a     0|0   | 0 %\n", "1 of x: 1.000 b    -1|1   | 1099511627776 %\n"]
    assert capsys.readouterr().out == "".join(lines) + "plain\n"
    # CUDA's returns the number of arguments, ROCm's that of characters, as C does
    assert out.tolist() == [*([7, 7] if target == "sm_80" else map(len, lines)), 0, 0]


UNEVEN = r"""
__global__ void say(int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  const char *text =
    i % 2 ? "an odd thread, whose text is so long that it takes more packets than that of others" : "even";
  if (i < n) printf("%s %d %c%c\n", text, i, i % 3 ? 'x' : 'y', '!');
}
"""


@needs_clang
@pytest.mark.parametrize("target", ["sm_90", "gfx942", "gfx1100"])
def test_lanes_with_texts_of_unlike_length_keep_their_messages_apart(target, capsys):
    with virtual_gpu(target) as gpu:
        gpu.load(compile_cpp(UNEVEN, target)).launch("say", 3, 128, [300])
    odd = "an odd thread, whose text is so long that it takes more packets than that of others"
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(
        f"{odd if i % 2 else 'even'} {i} {'x' if i % 3 else 'y'}!" for i in range(300)
    )


@pytest.mark.parametrize(
    ("layout", "arguments", "expected"),
    [
        ("%i|%u|%lld|%llu", [-1, -1, -1, -1], "-1|4294967295|-1|18446744073709551615"),
        ("%hhd %hd %hhu", [255, 65535, 257], "-1 -1 1"),
        ("%x %X %#x %08x %#o %o", [255, 255, 255, 255, 8, 8], "ff FF 0xff 000000ff 010 10"),
        ("%lx", [-1], "ffffffffffffffff"),
        ("%e %G %a", [1.5, 1e-10, 0.5], "1.500000e+00 1E-10 0x1p-1"),
        ("%f %F", [math.inf, -math.inf], "inf -INF"),
        ("%*d|%-*d|%.*f", [5, 42, 4, 7, 2, math.pi], "   42|7   |3.14"),
        ("%c%5c|%s|%.2s", [72, 105, "text", "text"], "H    i|text|te"),
        ("%p %%", [4096], "0x1000 %"),
        ("%+d % d %05d", [3, 3, -3], "+3  3 -0003"),
    ],
)
def test_formats_print_as_in_c(layout, arguments, expected):
    rest = iter(arguments)
    assert c_format(layout, lambda kind: next(rest)) == (expected, len(arguments))


def test_another_service_of_the_host_is_refused_by_its_number():
    state = SimpleNamespace(waves=1, program=SimpleNamespace(name="k", target="gfx942"))
    host = Hostcall(state, SimpleNamespace(args=np.zeros(64, np.uint8), memory=Memory()), 8)
    host.of_wave["mailbox"], host.of_wave["header"]["service"] = 1, 3
    with pytest.raises(VirtualGpuError, match=r"kernel k asks the host for service 3; .* answers printf"):
        host.answer()
