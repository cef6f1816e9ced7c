"""CUDA-style C++ to PTX and AMDGCN with our header and the clang of the wheel ziglang."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

from gpu_utils.chips import TARGETS
from gpu_utils.compiler import clang
from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.compiler.cpp_module import source_name
from gpu_utils.errors import BackendUnavailable, CompileFailed, UnknownName

SOURCES = sorted((Path(__file__).parent / "cpp").glob("*.cu"))
NVIDIA = [name for name, row in TARGETS.items() if row.vendor == "nvidia"]
AMD = [name for name, row in TARGETS.items() if row.vendor == "amd"]
ADD = """
__global__ void add(const float *x, float *out, float a, int n) {
  if (threadIdx.x < n) out[threadIdx.x] = a + x[0];
}
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("W2W_CACHE", str(tmp_path / "cache"))


pytestmark = pytest.mark.usefixtures("clang")


def refusal(source: str, target: str) -> str:
    with pytest.raises(CompileFailed) as caught:
        compile_cpp(source, target)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("target", NVIDIA + AMD)
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_every_source_compiles_for_every_target(source, target):
    module = compile_cpp(source.read_text(), target)
    assert f".target {target}" in module.asm or f'amdhsa--{target}"' in module.asm
    assert {k.name for k in module.kernels.values()} >= {"vector_add"} or source.stem != "elementwise"
    assert all(k.registers > 0 for k in module.kernels.values())


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_a_kernel_is_described_by_its_arguments(target):
    source = """
    struct Pair { int a; double b; };
    __global__ void k(
        const float *x, Pair p, float s, __half h, unsigned char c, double d, __nv_bfloat16 b, long long l) {
      *(double *)x = p.a + p.b + s + (float)h + c + d + (float)b + l;
    }
    """
    arguments = compile_cpp(source, target).kernel("k").arguments
    assert [a.kind for a in arguments] == ["pointer", "struct", "float", "float", "int", "float", "bfloat", "int"]
    assert [a.offset for a in arguments] == [0, 8, 24, 28, 30, 32, 40, 48]
    assert [a.size for a in arguments] == [8, 16, 4, 2, 1, 8, 2, 8]
    assert [a.name for a in arguments][2:] == ["s", "h", "c", "d", "b", "l"]


@pytest.mark.parametrize("target", ["sm_90", "gfx942", "gfx1100"])
def test_resources_follow_what_the_source_asks_for(target):
    source = """
    __global__ void small(float *x) { x[threadIdx.x] += 1.0f; }
    __global__ void __launch_bounds__(1024) big(const float *x, float *out) {
      __shared__ float tile[1000];
      float v[200];
    #pragma unroll
      for (int i = 0; i < 200; ++i) v[i] = x[threadIdx.x * 200 + i];
      tile[threadIdx.x % 1000] = v[0];
      __syncthreads();
      float sum = 0.0f;
    #pragma unroll
      for (int i = 0; i < 200; ++i) sum = sum * v[i] + v[(i * 37) % 200];
      out[threadIdx.x] = sum + tile[(threadIdx.x + 1) % 1000];
    }
    """
    module = compile_cpp(source, target)
    small, big = module.kernel("small"), module.kernel("big")
    assert small.shared == small.spills == small.scratch == 0
    assert big.shared == 4000
    assert big.registers > 3 * small.registers
    assert big.spills > 0 or target == "gfx1100", "elsewhere 1024 threads leave too few registers for 200 values"
    assert module.occupancy("big", 1024).blocks <= 2 < module.occupancy("small", 256).blocks
    assert module.occupancy("small", 256, dynamic_shared=60000).blocks <= 3


def test_both_vendors_are_compiled_from_one_source_into_their_own_instructions():
    source = """
    __global__ void k(int *x) { x[threadIdx.x] = __shfl_xor(x[threadIdx.x], 1) + __popcll(__ballot(x[0])) + warpSize; }
    """
    nvidia, amd = compile_cpp(source, "sm_80").asm, compile_cpp(source, "gfx942").asm
    assert "shfl.sync.bfly" in nvidia
    assert "vote.sync.ballot" in nvidia
    assert "ds_bpermute_b32" in amd
    assert ", 64" in amd, "warpSize of a wave-64 target"
    assert "WARP_SZ" in nvidia or ", 32" in nvidia


def test_the_first_error_comes_with_its_line():
    source = "__global__ void k(float *x) {\n  x[0] = 1.0f\n}\n__global__ void l() { oops; }\n"
    for target in ("sm_80", "gfx942"):
        message = refusal(source, target)
        assert message == f"C++ for {target}: line 2, `x[0] = 1.0f`: expected ';' after expression"


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("malloc(4);", "'malloc' is unavailable: kernels here have no heap"),
        ("x[0] = sinf(x[0]);", "'sinf' is unavailable: it lives in libdevice (NVIDIA) and ocml (AMD)"),
        ("__shared__ float a[warpSize]; x[0] = a[0];", "array size is not a constant expression"),
        ("x[0] = elsewhere(x[0]);", "elsewhere"),
        ('asm volatile("no_such_instruction");', "the"),
    ],
)
def test_what_the_header_lacks_is_refused_with_a_reason(target, statement, expected):
    message = refusal(
        f"__device__ float elsewhere(float);\n__global__ void k(float *x) {{\n  {statement}\n}}\n", target
    )
    assert expected in message


def test_host_code_that_launches_is_refused():
    for target in ("sm_80", "gfx942"):
        message = refusal(ADD + "int main() { add<<<1, 1>>>(0, 0, 1.0f, 2); }", target)
        assert "a source holds kernels and device functions only" in message


def test_a_missing_header_says_which_exist():
    assert "'stdio.h' file not found; the headers here are" in refusal("#include <stdio.h>\n" + ADD, "sm_80")


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('#include "/etc/hostname"', "the source includes /etc/hostname"),
        ('int a;\r#include "/etc/hostname"', "the source includes /etc/hostname"),
        ('#include "../../etc/hostname"', "etc/hostname"),
        ("static const char b[] = {\n#embed </etc/hostname>\n};", "#embed"),
    ],
)
def test_a_source_reads_no_file_of_this_machine(line, says, target):
    assert says in refusal(f"{line}\n__global__ void k(float *x) {{ x[0] = 1.0f; }}", target)


@pytest.mark.parametrize("directive", [".include", ".INCLUDE", r"\x2einclude", ".incbin", r".macro m\n.endm\n#"])
def test_nor_does_its_inline_assembly(directive):
    line = rf'asm volatile("{directive} \"/etc/hostname\"");'
    assert "the directive ." in refusal(f"__global__ void k(float *x) {{ {line} x[0] = 1.0f; }}", "gfx942")


def test_integer_types_have_their_names_without_an_include_and_in_std():
    compile_cpp("__global__ void k(uint64_t *x) { x[0] = uint8_t(7); }", "gfx942")
    compile_cpp("#include <cstdint>\n__global__ void k(std::uint32_t *x) { x[0] = 1; }", "sm_80")


def test_a_source_without_a_kernel_is_refused():
    assert "mark a function with __global__" in refusal("__device__ int f() { return 1; }", "gfx942")


@pytest.mark.parametrize("call", ["__shfl_down_sync(0xffffffff, x[0], 16)", "__ballot_sync(0xffffffff, x[0])"])
def test_a_mask_of_32_bits_is_fine_on_nvidia_and_refused_on_every_amd_target(call):
    source = f"__global__ void k(int *x) {{\n  x[0] = {call};\n}}\n"
    assert compile_cpp(source, "sm_80").kernels
    for target in ("gfx942", "gfx1100"):
        message = refusal(source, target)
        assert "line 2" in message
        assert "The mask must be a 64-bit integer" in message
    assert compile_cpp(source.replace("0xffffffff", "0xffffffffull"), "gfx942").kernels


def test_static_shared_memory_past_the_limit_does_not_compile():
    source = """
    __global__ void k(float *x) {
      __shared__ float a[18432];
      a[threadIdx.x] = x[0];
      __syncthreads();
      x[1] = a[x[2] > 0];
    }
    """
    assert "73728" in refusal(source, "gfx942")
    assert "too much shared data" in refusal(source, "sm_80")
    assert compile_cpp(source, "gfx950").kernel("k").shared == 73728


def test_headers_of_cuda_and_hip_may_be_included():
    source = "#include <cuda_runtime.h>\n#include <hip/hip_runtime.h>\n#include <cuda_fp16.h>\n#include <stdint.h>\n"
    for target in ("sm_80", "gfx942"):
        assert compile_cpp(source + "__global__ void k(int32_t *x) { x[0] = INT32_MAX; }", target).kernels


def test_kernels_are_found_by_their_name_in_the_source():
    source = """
    namespace a { __global__ void k(int *x) { x[0] = 1; } }
    template <int N> __global__ void t(int *x) { x[0] = N; }
    template __global__ void t<1>(int *);
    template __global__ void t<2>(int *);
    """
    module = compile_cpp(source, "gfx942")
    assert module.kernel("k").symbol == "_ZN1a1kEPi"
    assert set(module.kernels) == {"k", "t", "_Z1tILi2EEvPi"}
    with pytest.raises(UnknownName):
        module.kernel("kk")
    assert source_name("plain") == "plain"


def test_an_unknown_target_names_the_nearest():
    with pytest.raises(UnknownName, match="gfx942"):
        compile_cpp(ADD, "gfx941")


def test_without_the_wheel_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendUnavailable, match=r"pip install warp-to-wavefront\[hip\]"):
        compile_cpp(ADD, "sm_80")


def test_the_text_holds_no_path_of_this_machine():
    for target in ("sm_80", "gfx942"):
        text = compile_cpp(ADD, target).asm
        assert "kernel.cu" in text
        for path in ("/tmp", str(Path.home()), str(clang.INCLUDE), "ziglang"):
            assert path not in text


# The cache


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_the_second_time_nothing_is_compiled(target, monkeypatch):
    first = compile_cpp(ADD, target)
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("a compiler was started"))
    again = compile_cpp(ADD, target)
    assert (again.asm, dict(again.kernels)) == (first.asm, dict(first.kernels))


def test_the_same_source_gives_the_same_text(tmp_path, monkeypatch):
    first = compile_cpp(ADD, "gfx942")
    monkeypatch.setenv("W2W_CACHE", str(tmp_path / "other"))
    assert compile_cpp(ADD, "gfx942").asm == first.asm


def test_another_source_or_target_is_another_entry(tmp_path):
    compile_cpp(ADD, "sm_80")
    compile_cpp(ADD, "sm_90")
    compile_cpp(ADD.replace("a + x", "a * x"), "sm_80")
    assert len(list((tmp_path / "cache" / "clang").glob("*.json"))) == 3


@pytest.mark.parametrize(
    "broken", ["", "{}", '{"target": "sm_80"', json.dumps({"target": "sm_80", "asm": "", "kernels": {"k": {}}})]
)
def test_a_broken_entry_is_compiled_again(tmp_path, broken):
    first = compile_cpp(ADD, "sm_80")
    (entry,) = (tmp_path / "cache" / "clang").glob("*.json")
    entry.write_text(broken)
    assert compile_cpp(ADD, "sm_80").asm == first.asm
    assert json.loads(entry.read_text())["asm"] == first.asm


def test_without_a_cache_folder_it_still_compiles(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("W2W_CACHE", str(tmp_path / "file"))
    assert compile_cpp(ADD, "sm_80").kernel("add").arguments[2].name == "a"


def test_a_compiler_that_hangs_is_stopped(monkeypatch):
    def hang(*args, **kwargs):
        raise subprocess.TimeoutExpired("clang", kwargs["timeout"])

    monkeypatch.setattr(subprocess, "run", hang)
    assert "took longer than" in refusal(ADD, "sm_80")
