"""CUDA C++ by NVIDIA's own compiler and headers from wheels."""

from __future__ import annotations

import pytest
import torch

from gpu_utils import virtual_gpu
from gpu_utils.compiler import nvrtc as module
from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.compiler.cpp_module import parameters_of_ptx
from gpu_utils.errors import BadArgument, CompileFailed, CompilerMissing, UnknownName


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("W2W_CACHE", str(tmp_path / "cache"))


def refusal(source: str, **arguments) -> str:
    with pytest.raises(CompileFailed) as caught:
        compile_cpp(source, "sm_90", "nvrtc", **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Without the extra


def test_a_missing_wheel_is_named_with_how_to_install_it(monkeypatch):
    monkeypatch.setattr(module, "_folders", list)
    with pytest.raises(CompilerMissing, match=r"nvidia-cuda-nvrtc, .* are not installed; .*warp-to-wavefront\[nvrtc\]"):
        compile_cpp("__global__ void k() {}", "sm_80", "nvrtc")


def test_amd_other_compilers_and_others_arguments_are_refused():
    with pytest.raises(BadArgument, match="gfx942 is AMD's"):
        compile_cpp("__global__ void k() {}", "gfx942", "nvrtc")
    with pytest.raises(UnknownName, match="nvcc"):
        compile_cpp("__global__ void k() {}", "sm_80", "nvcc")
    with pytest.raises(BadArgument, match="are for compiler="):
        compile_cpp("__global__ void k() {}", "sm_80", defines=["N=1"])


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ('/w2w/kernel.cu(2): error: expected a ";"\n  }\n', 'line 2, `b`: expected a ";"'),
        ('/w2w/kernel.cu(1): catastrophic error: cannot open source file "a.h"\n', "what include= names"),
        (
            "/x/a.hpp(9): error: no\n  detected during:\n  instantiation at line 3 of /w2w/kernel.cu\n",
            "line 3, `c`: /x/a",
        ),
        ("ptxas error   : Entry function 'k' uses too much shared data\n", "ptxas refused the PTX: Entry function 'k'"),
        ("nvrtc: error: invalid value for --gpu-architecture (-arch)\n", "nvrtc: error: invalid value"),
        ("", "NVRTC failed without a message"),
    ],
)
def test_the_first_error_and_the_line_that_led_to_it(log, says):
    assert says in module.first_error(log, "a\nb\nc")


def test_parameters_from_ptx_and_source():
    ptx = (
        ".entry k(\n .param .u64 k_0,\n .param .u64 k_1,\n .param .f32 k_2,\n .param .align 2 .b8 k_3[2],\n"
        " .param .align 4 .b8 k_4[8],\n .param .u32 k_5\n)"
    )
    written = "const float *x, size_t n, float s, /* , */ half h, Pair<a, b> p, int i"
    source = f"__global__ void __launch_bounds__(64) k({written})"
    names = ["x", "n", "s", "h", "p", "i"]
    kinds = ["pointer", "word", "float", "float", "struct", "int"]
    assert parameters_of_ptx(ptx, source)["k"] == list(zip(names, kinds, strict=True))
    assert [kind for _, kind in parameters_of_ptx(ptx, "")["k"]][:2] == ["word", "word"]


# With it

GRID = """
#include <cooperative_groups.h>
#include <cuda/atomic>
namespace cg = cooperative_groups;
__constant__ float scale[2] = {2.0f, 3.0f};
template <class T, int N> __global__ void fill(T *out) { out[threadIdx.x] = T(N); }
__global__ void __launch_bounds__(64) total(const float *x, float *parts, float *out, size_t n) {
  extern __shared__ float kept[];
  auto grid = cg::this_grid();
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  float sum = 0;
  for (size_t i = grid.thread_rank(); i < n; i += grid.size()) sum += x[i];
  for (int o = 16; o > 0; o /= 2) sum += warp.shfl_down(sum, o);
  if (warp.thread_rank() == 0) kept[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) parts[blockIdx.x] = kept[0] + kept[1];
  grid.sync();
  if (grid.thread_rank() == 0) {
    float all = 0;
    for (int i = 0; i < gridDim.x; ++i) all += parts[i];
    *out = all * scale[1];
  }
}
"""


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_a_kernel_with_cooperative_groups_runs_and_is_kept(nvrtc, target, monkeypatch):
    compiled = compile_cpp(GRID, target, "nvrtc", names=["fill<float, 7>"])
    x, parts, out, filled = torch.arange(1000.0), torch.zeros(5), torch.zeros(1), torch.zeros(32)
    with virtual_gpu(target) as gpu:
        loaded = gpu.load(compiled)
        launch = loaded.launch("total", 5, 64, [x, parts, out, 1000], shared=8)
        loaded.launch("fill<float, 7>", 1, 32, [filled])
    assert out.item() == 3 * x.sum()
    assert filled.eq(7).all()
    assert {number for _, number in launch.counters.per_line()} >= {12, 13, 20}
    assert compiled.kernel("total").registers > 0
    monkeypatch.setattr(module, "_build", lambda *_: pytest.fail("compiled again"))
    assert compile_cpp(GRID, target, "nvrtc", names=["fill<float, 7>"]).asm == compiled.asm


def test_headers_macros_and_options(nvrtc, tmp_path):
    (tmp_path / "mine.h").write_text("int twice(int x) { return 2 * x; }")
    source = '#include "mine.h"\n#include <stdint.h>\n__global__ void k(int32_t *x) { x[0] = twice(N); }'
    for n in (3, 4):
        kernel = compile_cpp(
            source, "sm_80", "nvrtc", include=[tmp_path], defines=[f"N={n}"], options=["-default-device"]
        )
        x = torch.zeros(1, dtype=torch.int32)
        with virtual_gpu("sm_80") as gpu:
            gpu.load(kernel).launch("k", 1, 1, [x])
        assert x.item() == 2 * n
    with pytest.raises(BadArgument, match="nowhere"):
        compile_cpp(source, "sm_80", "nvrtc", include=[tmp_path / "nowhere"])


@pytest.mark.parametrize("header", ["", "#include <math.h>\n"])
def test_the_numbers_of_math_h_are_there_without_it_and_with_it(nvrtc, header):
    kernel = compile_cpp(header + "__global__ void k(float *x) { x[0] = NAN, x[1] = -INFINITY; }", "sm_80", "nvrtc")
    x = torch.zeros(2)
    with virtual_gpu("sm_80") as gpu:
        gpu.load(kernel).launch("k", 1, 1, [x])
    assert x[0].isnan()
    assert x[1].item() == -float("inf")


def test_errors_have_the_line(nvrtc):
    assert "line 3, `}`: expected a" in refusal("__global__ void k(float *x) {\nx[0] = 1.0f\n}")
    assert "names=" in refusal("template <int N> __global__ void k(float *x) { x[0] = N; }")
    assert "'elsewhere'" in refusal("__device__ int elsewhere(); __global__ void k(int *x) { x[0] = elsewhere(); }")
    assert "too much shared data" in refusal(
        "__global__ void k(float *x) { __shared__ float a[90000]; a[threadIdx.x] = 1; __syncthreads(); x[0] = a[7]; }"
    )


ELEMENTWISE = """
#include <stdint.h>
extern "C" __global__ void mix(const float *x, const int *i, float *out, int *whole, int n) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= n) return;
  out[at] = fmaf(x[at], 1.5f, (float)(i[at] % 7)) / (1.0f + fabsf(x[at]));
  whole[at] = __popc(i[at]) + (i[at] >> 3) * __clz(i[at]) + atomicAdd(&whole[n], 1) * 0;
}
"""


def test_arithmetic_gives_equal_bits_by_both_compilers(nvrtc, clang):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(1000, generator=generator)
    i = torch.randint(-(2**31), 2**31, (1000,), dtype=torch.int32, generator=generator)
    results = []
    for compiler in ("clang", "nvrtc"):
        out, whole = torch.zeros(1000), torch.zeros(1001, dtype=torch.int32)
        with virtual_gpu("sm_80") as gpu:
            gpu.load(compile_cpp(ELEMENTWISE, "sm_80", compiler)).launch("mix", 8, 128, [x, i, out, whole, 1000])
        results.append((out, whole))
    (out, whole), (other, others) = results
    assert torch.equal(whole, others)
    assert torch.equal(out, other)
