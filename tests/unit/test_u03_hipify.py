"""hipify over a small CUDA project: what it leaves, how that is found, and how a port of it is judged."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.compiler.hipify import BREADCRUMB, hipify
from gpu_utils.compiler.leftovers import KINDS, leftovers, strings_on_rocm
from gpu_utils.compiler.source_text import evaluate, read, tokens_of, without_comments
from gpu_utils.errors import CompilerMissing
from gpu_utils.exercises.u03_porting_to_rocm import hipify_device, hipify_fixups, hipify_ports
from gpu_utils.exercises.u03_porting_to_rocm.hipify_device import device_problem
from gpu_utils.exercises.u03_porting_to_rocm.hipify_host import host_problem
from gpu_utils.exercises.u03_porting_to_rocm.hipify_ports import port
from gpu_utils.exercises.u03_porting_to_rocm.hipify_project import (
    KERNELS,
    ORIGINAL,
    PROJECT,
    Variant,
    cuda_project,
    hipified_project,
)
from gpu_utils.exercises.u03_porting_to_rocm.hipify_text import text_problem
from gpu_utils.grading.check import check
from gpu_utils.virtual import virtual_gpu

EXERCISE = hipify_fixups.EXERCISE


pytestmark = pytest.mark.usefixtures("clang")


@pytest.fixture(scope="module")
def given():
    return hipified_project()


@pytest.fixture(scope="module")
def fixed(given):
    return port()(given)


def found_in(text, path="a.hip", **files):
    return [(one.kind, one.line, one.what) for one in leftovers({path: text, **files})]


# --- reading C++ ------------------------------------------------------------------------------------------------


def test_comments_go_and_strings_and_line_numbers_stay():
    text = 'a /* "x"\n// */ b\nc "// no comment" // d'
    assert without_comments(text).split("\n") == ["a       ", "      b", 'c "// no comment"     ']
    assert without_comments("a /* never closed\nb").split() == ["a"]


def test_tokens_know_their_line():
    assert [(t.line, t.kind) for t in tokens_of('f(\n1.5e-3f, "s")')][:4] == [
        (1, "name"),
        (1, "sign"),
        (2, "number"),
        (2, "sign"),
    ]


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("__CUDA_ARCH__ >= 800", 0),
        ("!defined(USE_ROCM)", 0),
        ("defined USE_ROCM && (SIZE + 1) * 2 == 6", 1),
        ("SIZE == 2UL || UNKNOWN", 1),
        ("!SIZE != 1", 1),
        ("true", 1),
        ("__has_include(<hip/hip_runtime.h>) && !__has_include(<cuda_fp8.h>)", 1),
    ],
)
def test_conditions_are_evaluated_as_the_preprocessor_does(condition, holds):
    assert evaluate(condition, {"USE_ROCM": "1", "SIZE": "2"}) == holds


def test_a_macro_that_doubles_itself_is_given_up():
    with pytest.raises(ValueError, match="grows"):
        evaluate("A", {"A": "A + A " * 40})


def test_only_branches_that_are_taken_are_read():
    text = "#if A == 1\none\n#elif defined(B)\ntwo\n#else\nthree\n#endif\n#ifndef B\nfour\n#if 1\nfive\n#endif\n#endif"

    def names(**macros):
        return [token.text for token in read({"f": text}, "f", macros).tokens]

    assert names(A="1", B="") == ["one"]
    assert names(B="") == ["two"]
    assert names() == ["three", "four", "five"]


def test_a_macro_of_an_included_file_decides_a_condition_and_a_file_is_read_once():
    files = {
        "csrc/a.cpp": '#include "b.h"\n#include "b.h"\n#if MINE\nyes\n#endif',
        "csrc/b.h": "#pragma once\n#define MINE 1\nfrom_b",
    }
    assert [token.text for token in read(files, "csrc/a.cpp", {}).tokens] == ["1", "from_b", "yes"]


def test_files_that_include_each_other_are_read_once():
    files = {"a.h": '#include "b.h"\none', "b.h": '#include "a.h"\ntwo'}
    assert [token.text for token in read(files, "a.h", {}).tokens] == ["two", "one"]


# --- what hipify does -------------------------------------------------------------------------------------------


def test_the_original_variant_is_the_project_as_it_stands():
    for path, text in cuda_project().items():
        assert text == (PROJECT / path).read_text()


def test_another_variant_differs_in_names_and_sizes_alone():
    other = cuda_project(Variant("wavekit7", 1024, 24, 128))
    assert not any(re.search("normq", text, re.IGNORECASE) for text in other.values())
    assert "kHidden = 1024;" in other["csrc/config.h"]
    assert "// 96 KB" in other["csrc/config.h"]
    back = {path: re.sub("wavekit7", "normq", text) for path, text in other.items()}
    assert {path for path, text in cuda_project().items() if back[path] != text.replace("NORMQ", "WAVEKIT7")} == {
        "csrc/config.h"
    }


def test_hipify_runs_without_a_gpu_in_silence_and_leaves_the_project_alone(capfd):
    files = cuda_project()
    result = hipify(files)
    assert capfd.readouterr() == ("", "")
    assert files == cuda_project()
    assert result.origin["csrc/launch.hip"] == "csrc/launch.cu"
    assert result.files["setup.py"] == files["setup.py"]
    assert result.files["csrc/warp_hip.cuh"].startswith(BREADCRUMB)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("csrc/launch.hip", "hipLaunchKernelGGL(( normq_clip_kernel), dim3(blocks), dim3(kThreads), 0, stream"),
        ("csrc/launch.hip", "hipFuncAttributeMaxDynamicSharedMemorySize"),
        ("csrc/streams_hip.h", "hipStreamWaitEvent"),
        ("csrc/comm_hip.h", "#include <rccl/rccl.h>"),
        ("csrc/comm_hip.cpp", "ncclAllReduce"),
        ("csrc/comm_hip.cpp", "hipblasSgemm"),
        ("csrc/comm_hip.cpp", "roctxRangePushA"),
        ("csrc/binding_hip.cpp", "#include <ATen/hip/HIPContext.h>"),
        ("csrc/kernels_hip.cuh", "__hip_bfloat16"),
    ],
)
def test_hipify_translates_what_is_in_its_tables(given, path, text):
    assert text in given[path]


@pytest.mark.parametrize(
    ("kind", "path", "what"),
    [
        ("cuda-header", "csrc/fp8.cuh", "cuda_fp8.h"),
        ("cuda-name", "csrc/fp8.cuh", "__nv_fp8_e4m3"),
        ("fp8-max", "csrc/fp8.cuh", "448.0f"),
        ("no-counterpart", "csrc/hopper_hip.cuh", "mma.h"),
        ("no-counterpart", "csrc/hopper_hip.cuh", "cuda/pipeline"),
        ("no-counterpart", "csrc/hopper_hip.cuh", "cuTensorMapEncodeTiled"),
        ("broken-header", "csrc/comm_hip.cpp", "nvtx3/roctracer/roctx.h"),
        ("cuda-name", "csrc/launch.hip", "cudaLaunchKernelEx"),
        ("cuda-guard", "csrc/kernels_hip.cuh", "__CUDA_ARCH__"),
        ("ptx", "csrc/kernels_hip.cuh", '"ex2.approx.ftz.f32 %0, %1;"'),
        ("mask-32", "csrc/warp_hip.cuh", "0xffffffffu"),
        ("lanes-32", "csrc/warp_hip.cuh", "WARP_SIZE"),
        ("lds", "csrc/config.h", "kStageBytes = 98304 bytes"),
        ("build-file", "setup.py", "nvToolsExt"),
        ("build-file", "setup.py", "--use_fast_math"),
    ],
)
def test_hipify_misses_or_breaks_these_and_they_are_found_where_they_stand(given, kind, path, what):
    found = [one for one in leftovers(given) if (one.kind, one.file, one.what) == (kind, path, what)]
    assert found
    assert what.split(" = ")[0] in found[0].text
    assert found[0].text == given[path].split("\n")[found[0].line - 1].strip()


def test_hipify_counts_none_of_them_as_unsupported():
    result = hipify(cuda_project())
    assert (result.unsupported, result.replaced) == (0, 2)
    assert sum(one.certain for one in leftovers(result.files)) > 20


def test_every_kind_of_leftover_is_in_the_project_or_is_made_by_a_wrong_fix(given):
    assert set(KINDS) - {one.kind for one in leftovers(given)} == {"fake-arch"}


# --- what counts as left ----------------------------------------------------------------------------------------


def test_comments_strings_and_branches_for_cuda_do_not_count():
    assert found_in('// cudaMalloc\nconst char *s = "cudaMalloc";\n#ifndef USE_ROCM\ncudaFree(0);\n#endif') == []
    assert found_in("int a;\ncudaFree(0);") == [("cuda-name", 2, "cudaFree")]


def test_names_that_torch_keeps_on_rocm_do_not_count():
    assert found_in("at::cuda::getCurrentCUDAStream(); const c10::cuda::CUDAGuard g(d);") == []
    assert found_in("cuda::getCurrentCUDAStream(); CUDAGuard g(d);") == [("cuda-name", 1, "CUDAGuard")]


def test_a_name_of_cuda_that_the_project_itself_defines_does_not_count():
    assert found_in("using __nv_fp8_e4m3 = __hip_fp8_e4m3;\n__nv_fp8_e4m3 x;") == []
    assert found_in("#define cudaFree hipFree\ncudaFree(0);") == []


def test_names_that_only_begin_like_cudas_do_not_count():
    assert found_in("constexpr int CUBE_SIZE = cube(current, CURRENT_TILE), cu = curve;") == []
    assert found_in("CUdevice d; CU_CTX x; CUBLAS_OP_T;") == [
        ("cuda-name", 1, name) for name in ("CUBLAS_OP_T", "CU_CTX", "CUdevice")
    ]


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("#define ALL_LANES_MASK 0xffffffff", 1),
        ("constexpr unsigned kFullMask = 0xFFFFFFFFu;", 1),
        ("__shfl_down_sync(0xffffffff, x, 1);", 1),
        ("__popc((unsigned)(vote & 0xffffffffu)) + __popc((unsigned)(vote >> 32));", 0),
        ("#define FULL_MASK 0xffffffffffffffffull", 0),
        ("#define HASH_SEED 0xffffffff", 0),
    ],
)
def test_32_bits_count_where_they_name_lanes(code, count):
    assert [kind for kind, _, _ in found_in(code)] == ["mask-32"] * count


def test_assembly_counts_when_it_is_ptx():
    assert found_in('asm volatile("mov.u32 %0, %laneid;" : "=r"(x));') == [("ptx", 1, '"mov.u32 %0, %laneid;"')]
    assert found_in('asm("v_exp_f32 %0, %1" : "=v"(y) : "v"(x));') == []
    assert found_in('print("mov.u32 %0, %laneid;");') == []


def test_a_header_for_cuda_alone_counts_in_the_pass_that_sees_it():
    header = {"b.h": "#pragma once\n#include <cuda_fp8.h>\n"}
    assert found_in('#include "b.h"', **header) == [("cuda-header", 2, "cuda_fp8.h")]
    assert found_in('#if !USE_ROCM\n#include "b.h"\n#endif', **header) == []


def test_code_for_the_host_and_for_the_device_are_both_read():
    assert found_in("#ifndef __HIP_DEVICE_COMPILE__\ncudaFree(0);\n#else\ncudaGetDevice(0);\n#endif") == [
        ("cuda-name", 2, "cudaFree"),
        ("cuda-name", 4, "cudaGetDevice"),
    ]


def test_shared_memory_is_computed_from_constants():
    text = "constexpr int kRows = {};\nconstexpr int kBytes = kRows * 1024 * static_cast<int>(sizeof(float));\n"
    use = "hipFuncSetAttribute(f, hipFuncAttributeMaxDynamicSharedMemorySize, kBytes);"
    assert found_in(text.format(16) + use) == []
    assert found_in(text.format(17) + use) == [("lds", 2, "kBytes = 69632 bytes")]
    assert found_in(use.replace("kBytes", "98304")) == [("lds", 1, "98304 bytes")]


def test_a_build_file_may_keep_cudas_flags_under_a_condition():
    setup = 'import torch\nLIBS = ["hipblas"] if torch.version.hip else ["cublas"]\nFLAGS = ["-gencode=arch=x"]\n'
    assert found_in("", **{"setup.py": setup}) == [("build-file", 3, "-gencode=arch=x")]
    assert found_in("", **{"setup.py": "x = ("})[0][0] == "build-file"


@pytest.mark.parametrize(
    "question",
    [
        "torch.version.hip",
        "torch.version.hip is not None",
        "not torch.version.cuda",
        "torch.version.cuda is None",
        "bool(torch.version.hip)",
        'getattr(torch.version, "hip", None) is not None',
        "IS_HIP_EXTENSION",
        "torch.version.hip and not torch.version.cuda",
    ],
)
def test_a_condition_of_a_build_file_is_read_for_the_side_that_rocm_takes(question):
    named = f"amd = {question}\nlibs = ['hipblas'] if amd else ['cublas']"
    assert [text for _, text in strings_on_rocm(named)][-1] == "hipblas"
    written_out = f"if {question}:\n    libs = 'cublas'\nelse:\n    libs = 'hipblas'"
    assert [text for _, text in strings_on_rocm(written_out)][-1] == "cublas"
    assert found_in("", **{"setup.py": named}) == []
    assert found_in("", **{"setup.py": written_out}) == [("build-file", 2, "cublas")]


def test_a_condition_of_a_build_file_about_something_else_leaves_both_sides():
    setup = "libs = ['cublas'] if os.environ.get('FAST') == '1' else ['nccl']"
    assert [one[2] for one in found_in("", **{"setup.py": setup})] == ["cublas", "nccl"]


# --- judging a port ---------------------------------------------------------------------------------------------


def test_the_cuda_project_itself_is_right_on_an_nvidia_gpu():
    files = {**cuda_project(), "csrc/hopper.cuh": "// needs CUDA's own headers"}
    files[KERNELS] = files.pop("csrc/kernels.cuh")
    assert device_problem(files, ORIGINAL, "sm_80", tokens=5) is None


@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx950"])
@pytest.mark.parametrize("variant", [ORIGINAL, Variant("other", 640, 40, 128)], ids=lambda variant: variant.team)
def test_a_right_port_is_right_under_every_name_and_size(variant, target):
    files = hipified_project(variant)
    ported = port()(files)
    assert text_problem(files, variant, ported) is None
    assert device_problem(ported, variant, target, tokens=3) is None


def edit(path, old, new):
    def step(text, where):
        assert where != path or re.search(old, text, re.DOTALL), f"{old} is not in {path}"
        return re.sub(old, new, text, flags=re.DOTALL) if where == path else text

    return step


OTHER_RIGHT_WAYS = {
    "assembly of AMD": {
        "exponential": edit(KERNELS, r'asm\("ex2.*?\);', 'asm("v_exp_f32 %0, %1" : "=v"(y) : "v"(x));')
    },
    "a branch of its own": {
        "exponential": edit(
            KERNELS,
            r'( *asm\("ex2.*?\);)',
            "#ifdef __HIP_PLATFORM_AMD__\n  y = exp2f(x);\n#else\n\\1\n#endif",
        )
    },
    "no guard": {"guard": edit(KERNELS, r"#if __CUDA_ARCH__ >= 800[^\n]*(.*?)#endif", r"\1")},
    "an else for AMD": {"guard": edit(KERNELS, r"(#if __CUDA_ARCH__ >= 800[^\n]*)(.*?)(#endif)", r"\1\2#else\2#endif")},
    "CUDA's name as an alias": {
        "fp8": edit(
            "csrc/fp8.cuh",
            r"using fp8_t = .*?448\.0f;",
            "#if HIP_FP8_TYPE_OCP\nusing __nv_fp8_e4m3 = __hip_fp8_e4m3;\n#define LARGEST 448.0f\n#else\n"
            "using __nv_fp8_e4m3 = __hip_fp8_e4m3_fnuz;\n#define LARGEST 240.0f\n#endif\n"
            "using fp8_t = __nv_fp8_e4m3;\nconstexpr float kFp8Max = LARGEST;",
        )
    },
    "a launch with chevrons": {
        "launch": edit(
            "csrc/launch.hip",
            r"cudaLaunchAttribute overlap.*?(\w+_CHECK)\(cudaLaunchKernelEx\(&config, (\w+), (.*?)\)\);",
            r"\2<<<(tokens + kTileTokens - 1) / kTileTokens, kThreads, kStageBytes, stream>>>(\3);"
            r"\n  \1(hipGetLastError());",
        )
    },
    "a launch with HIP's own configuration": {
        "launch": edit(
            "csrc/launch.hip",
            r"cudaLaunchAttribute overlap.*?cudaLaunchConfig_t (.*?)\n  config.attrs = overlap;\n  config.numAttrs = 1;"
            r"(.*?)cudaLaunchKernelEx",
            r"hipLaunchConfig_t \1\2hipLaunchKernelEx",
        )
    },
    "an error of the launch that is looked at by hand": {
        "launch": edit(
            "csrc/launch.hip",
            r"cudaLaunchAttribute overlap.*?cudaLaunchKernelEx\(&config, (\w+), (.*?)\)\);",
            r"\1<<<(tokens + kTileTokens - 1) / kTileTokens, kThreads, kStageBytes, stream>>>(\2);"
            r'\n  if (hipPeekAtLastError() != hipSuccess) throw std::runtime_error("launch");',
        )
    },
    "the newer roctx": {
        "roctx": lambda text, path: text.replace("nvtx3/roctracer/roctx.h", "rocprofiler-sdk-roctx/roctx.h")
    },
    "an empty file for Hopper": {"hopper": lambda text, path: "" if "hopper" in path else text},
    "integer types of the standard library": {
        "vote": lambda text, path: (
            hipify_ports.port()({path: text})[path]
            .replace("unsigned long long vote", "std::uint64_t vote")
            .replace("#include <cuda_bf16.h>", "#include <cstdint>")
            .replace("#include <hip/hip_bf16.h>", "#include <cstdint>\n#include <hip/hip_bf16.h>")
        ),
    },
    "a name for the question in the build file": {
        "build": lambda text, path: re.sub(
            r"LIBRARIES = (.*)\nDEVICE_FLAGS = (.*)",
            r'import torch\namd = bool(torch.version.hip)\nLIBRARIES = ["hipblas", "rccl", "roctx64"] if amd else \1'
            r'\nDEVICE_FLAGS = ["-O3"] if amd else \2',
            text,
        )
    },
    "warps of 32 lanes on every chip": {
        "width": edit("csrc/warp_hip.cuh", r"% warpSize(.*?)/ warpSize", r"% WARP_SIZE\1/ WARP_SIZE"),
    },
    "two halves of a vote": {
        "vote": lambda text, path: (
            text.replace("const unsigned vote", "const unsigned long long vote")
            .replace("__popc(vote)", "(__popc((unsigned)(vote & 0xffffffffu)) + __popc((unsigned)(vote >> 32)))")
            .replace("__popc(vote & ((1u << lane) - 1u))", "__popcll(vote & ((1ull << lane) - 1))")
        ),
    },
    "a lane mask of every type": {
        "mask": lambda text, path: text.replace("0xffffffffu", "(~0ull)"),
        "vote": lambda text, path: (
            text.replace("const unsigned vote", "const auto vote")
            .replace("__popc(vote)", "__popcll(vote)")
            .replace("__popc(vote & ((1u << lane) - 1u))", "__builtin_popcountll(vote & ~(~0ull << lane))")
        ),
    },
}


@pytest.mark.parametrize("way", OTHER_RIGHT_WAYS)
def test_other_right_ways_are_right(given, way):
    ported = port(**OTHER_RIGHT_WAYS[way])(given)
    assert ported != port()(given)
    assert text_problem(given, ORIGINAL, ported) is None
    for target in ("gfx942", "gfx1100"):
        assert device_problem(ported, ORIGINAL, target, tokens=2) is None
    assert host_problem(ported, port()(given), ORIGINAL) is None


HOST_MISTAKES = {
    "another pointer": (
        "csrc/launch.hip",
        r"limit, where, count\);",
        "limit, count, where);",
        "launch of kernel 1",
    ),
    "half of the values": ("csrc/launch.hip", r"\(out\), n\);", "(out), n / 2);", "launch of kernel 2"),
    "fewer threads": (
        "csrc/launch.hip",
        r"normq_clip_kernel\), dim3\(blocks\), dim3\(kThreads\)",
        "normq_clip_kernel), dim3(blocks), dim3(64)",
        "launch of kernel 1",
    ),
    "one block": (
        "csrc/launch.hip",
        r"normq_gelu_kernel\), dim3\(blocks\)",
        "normq_gelu_kernel), dim3(1)",
        "launch of",
    ),
    "no shared memory": (
        "csrc/launch.hip",
        "dim3.kThreads., kStageBytes, stream",
        "dim3(kThreads), 0, stream",
        "kernel 0",
    ),
    "a counter that is not cleared": ("csrc/launch.hip", r"\w+_CHECK\(hipMemsetAsync[^;]*;", "", "hipMemsetAsync"),
    "an error that nobody sees": (
        "csrc/launch.hip",
        r"(normq_clip_kernel\)[^;]*;\s*)NORMQ_CHECK\(hipGetLastError\(\)\);",
        r"\1",
        "hipGetLastError",
    ),
    "a launch that returned its error, and does not any more": (
        "csrc/launch.hip",
        r"NORMQ_CHECK\(hipGetLastError\(\)\);",
        "",
        "when the launch fails",
    ),
    "an error that is asked for before the launch": (
        "csrc/launch.hip",
        r"( *hipLaunchKernelGGL\(normq_norm_kernel[^;]*;\s*)(NORMQ_CHECK\(hipGetLastError\(\)\);)",
        r"\2\n\1",
        "when the launch fails",
    ),
    "a status that nobody reads": ("csrc/streams_hip.h", "status != hipSuccess", "false", "when every call fails"),
    "no event": (
        "csrc/streams_hip.h",
        r"NORMQ_CHECK\(hipEventRecord\(done_\[at_\], producer\)\);",
        "",
        "hipEventRecord",
    ),
    "the event of another stream": (
        "csrc/streams_hip.h",
        r"done_\[at_\], producer",
        "done_[at_], streams_[at_]",
        "all_reduce",
    ),
    "one stream": ("csrc/streams_hip.h", r"\(at_ \+ 1\) % kStreams", "0", "all_reduce"),
    "an event too many left": ("csrc/streams_hip.h", r"hipEventDestroy\(done_\[i\]\);", "", "hipEventDestroy"),
    "a product transposed": (
        "csrc/comm_hip.cpp",
        "HIPBLAS_OP_T, HIPBLAS_OP_N",
        "HIPBLAS_OP_N, HIPBLAS_OP_T",
        "hipblasSgemm",
    ),
    "a handle on the default stream": (
        "csrc/comm_hip.cpp",
        r"hipblasSetStream\(handle, stream\);",
        "",
        "hipblasSetStream",
    ),
    "a range that stays open where RCCL fails": (
        "csrc/comm_hip.cpp",
        r"roctxRangePop\(\);\n(\s*if \(status != ncclSuccess\) \{.*?\n  \})",
        r"\1\n  roctxRangePop();",
        "when RCCL fails",
    ),
    "a failure of RCCL that nobody sees": ("csrc/comm_hip.cpp", "status != ncclSuccess", "false", "when RCCL fails"),
    "a block too many for whole tiles": (
        "csrc/launch.hip",
        r"dim3\(\(tokens \+ kTileTokens - 1\) / kTileTokens\)",
        "dim3(tokens / kTileTokens + 1)",
        "whole tiles",
    ),
    "a sum for a mean": ("csrc/comm_hip.cpp", "ncclAvg", "ncclSum", "ncclAllReduce"),
    "a range that stays open": ("csrc/comm_hip.cpp", r"roctxRangePop\(\);", "", "roctxRangePop"),
}


@pytest.mark.parametrize("what", HOST_MISTAKES)
def test_host_code_that_calls_something_else_is_found_by_running_it(given, fixed, what):
    path, old, new, says = HOST_MISTAKES[what]
    changed = {**fixed, path: re.sub(old, new, fixed[path], count=1, flags=re.DOTALL)}
    assert changed != fixed
    assert text_problem(given, ORIGINAL, changed) is None
    difference = host_problem(changed, fixed, ORIGINAL)
    assert difference.kind.startswith("host:")
    assert says in difference.detail


DEVICE_MISTAKES = {
    "a barrier before the tile is read": (KERNELS, r"  __syncthreads\(\);\n(  const int rows)", r"\1", "barrier"),
    "the addend below the root": (KERNELS, r" / kHidden \+ eps", " / kHidden", "lanes"),
}


@pytest.mark.parametrize("what", DEVICE_MISTAKES)
def test_what_the_device_code_lost_is_found_by_running_it(fixed, what):
    path, old, new, kind = DEVICE_MISTAKES[what]
    changed = {**fixed, path: re.sub(old, new, fixed[path], count=1)}
    assert changed != fixed
    assert device_problem(changed, ORIGINAL, "gfx942", tokens=2).kind == kind


def test_host_code_that_does_not_compile_or_ends_badly_is_told_at_its_line(fixed):
    unknown = {**fixed, "csrc/comm_hip.cpp": fixed["csrc/comm_hip.cpp"].replace("roctxRangePop()", "popRange()", 1)}
    assert "csrc/comm_hip.cpp:" in host_problem(unknown, fixed, ORIGINAL).detail
    endless = {**fixed, "csrc/streams_hip.h": fixed["csrc/streams_hip.h"].replace("++i", "i += w2w_fails * 0")}
    assert host_problem(endless, fixed, ORIGINAL).kind == "host-run"


@pytest.mark.parametrize(
    ("path", "old", "new", "kind"),
    [
        ("csrc/binding_hip.cpp", "at::cuda::getCurrentCUDAStream().stream());", "nullptr);", "binding-gone"),
        ("csrc/binding_hip.cpp", "const c10::cuda::CUDAGuard guard(x.device());", "", "binding-gone"),
        ("setup.py", '"csrc/comm.cpp", ', "", "source-gone"),
    ],
)
def test_a_binding_or_a_source_that_lost_something_is_told(given, fixed, path, old, new, kind):
    changed = {**fixed, path: fixed[path].replace(old, new, 1)}
    assert changed != fixed
    assert text_problem(given, ORIGINAL, changed).kind == kind


def test_what_the_text_check_shows_names_every_place_and_the_other_kinds(given):
    ported = port(hopper=lambda text, path: text, build=lambda text, path: text)(given)
    difference = text_problem(given, ORIGINAL, ported)
    assert difference.kind == "no-counterpart in csrc/hopper_hip.cuh"
    assert "csrc/hopper_hip.cuh:6: cuda/pipeline; csrc/hopper_hip.cuh:7: mma.h" in difference.detail
    assert "Other kinds that are left: build-file (6)" in difference.detail


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda files: {path: text.encode() for path, text in files.items()}, "holds a bytes"),
        (port(fp8=lambda text, path: text.replace("448.0f", "240.0f")), "__nv_fp8_e4m3"),
    ],
)
def test_a_mistake_that_nobody_foresaw_gets_nobodys_hint(wrong, says):
    report = check(hipify_fixups.EXERCISE, wrong, seed=5)
    assert says in report.headline
    assert report.hint == ""


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "is a return missing"),
        ([], "of type list, expected a dict"),
        ({}, "has no file csrc/binding_hip.cpp and 11 more"),
    ],
)
def test_a_result_of_another_kind_is_named(given, value, says):
    assert says in text_problem(given, ORIGINAL, value).detail


def test_a_file_that_was_emptied_is_no_fix(given, fixed):
    assert "csrc/comm_hip.cpp" in text_problem(given, ORIGINAL, {**fixed, "csrc/comm_hip.cpp": "\n"}).detail
    assert "of type int" in text_problem(given, ORIGINAL, {**fixed, "setup.py": 3}).detail


@pytest.mark.parametrize(
    ("path", "old", "new", "kind"),
    [
        ("csrc/comm_hip.h", r"#include <rccl/rccl.h>\n", "", "header-gone"),
        ("setup.py", '"rccl", ', "", "library-gone"),
        ("csrc/launch.hip", r"hipLaunchKernelGGL\(\( normq_gelu_kernel\)", "unused((normq_gelu_kernel)", "launch-gone"),
        ("csrc/config.h", r"kHidden = 768", "kHidden = 256", "sizes"),
        ("csrc/kernels_hip.cuh", r"0\.5f \* z", "0.6f * z", "gelu"),
        ("csrc/kernels_hip.cuh", r"namespace normq \{", "namespace mine {", "compile"),
        ("csrc/kernels_hip.cuh", r"exp2f|__builtin_amdgcn_exp2f", "no_such_function", "compile"),
    ],
)
def test_a_port_that_lost_something_is_told_so(given, fixed, path, old, new, kind):
    changed = {**fixed, path: re.sub(old, new, fixed[path])}
    assert changed != fixed
    difference = text_problem(given, ORIGINAL, changed) or device_problem(changed, ORIGINAL, "gfx942", tokens=2)
    assert difference.kind == kind


def test_a_compile_error_stands_at_the_learners_file_and_line(fixed):
    text = fixed["csrc/warp_hip.cuh"]
    line = next(number for number, row in enumerate(text.split("\n"), 1) if "namespace normq {" in row)
    changed = {**fixed, "csrc/warp_hip.cuh": text.replace("namespace normq {", "namespace normq { broken", 1)}
    assert f"csrc/warp_hip.cuh:{line}, " in device_problem(changed, ORIGINAL, "gfx942", tokens=2).detail


def test_a_fault_on_the_virtual_gpu_stands_at_the_learners_file_and_line(given):
    kept = hipify_ports.width_kept(given)
    detail = device_problem(kept, ORIGINAL, "gfx942", tokens=2).detail
    assert "on the virtual gfx942: kernel normq_norm_kernel (csrc/warp_hip.cuh:" in detail


def test_headers_that_include_each_other_without_end_are_refused_by_the_compiler_not_by_us(fixed):
    changed = {**fixed, "csrc/config.h": '#include "warp_hip.cuh"\n' + fixed["csrc/config.h"]}
    assert hipify_device.unit(changed, KERNELS, ORIGINAL)[0].count("#define FULL_MASK") < 20


@pytest.mark.parametrize(
    "line",
    [
        "#include </etc/hostname>",
        '#include "../../secret.h"',
        '#in\\\nclude "/etc/hostname"',
        "%:include </etc/hostname>",
        "#/* */embed </etc/hostname>",
        "#define WHERE </etc/hostname>\n#include WHERE",
        'asm(".incbin \\"/etc/hostname\\"");',
        'int ends_with;\r#include "/etc/hostname"',
        "constexpr int q = 1'0; static const char *s = \"'/*\";\n"
        '#include "/etc/hostname"\nstatic const char *t = "*/";',
    ],
)
def test_a_source_cannot_read_the_files_of_the_machine_that_grades_it(fixed, line):
    changed = {**fixed, "csrc/fp8.cuh": f"{line}\n{fixed['csrc/fp8.cuh']}"}
    difference = device_problem(changed, ORIGINAL, "gfx942", tokens=2)
    assert difference.kind == "outside"


@pytest.mark.parametrize(
    "text",
    [
        '".inc" "bin \\"/etc/hostname\\""',
        '"\\x2eINCLUDE \\"/etc/hostname\\""',
        '".macro m a b\\n.\\\\a\\\\b \\"/etc/hostname\\"\\n.endm\\nm incl ude"',
    ],
)
def test_nor_can_its_assembly(fixed, text):
    asm = f"int start = 0; asm volatile({text});"
    changed = {**fixed, KERNELS: fixed[KERNELS].replace("int start = 0;", asm)}
    assert device_problem(changed, ORIGINAL, "gfx942", tokens=2).kind == "outside"


# --- the check --------------------------------------------------------------------------------------------------


def test_without_a_compiler_the_text_is_judged_and_the_device_part_says_how_to_install(monkeypatch):
    def missing(source, target):
        raise CompilerMissing("run pip install .[hip]")

    hipify_device._problem.cache_clear()
    monkeypatch.setattr(hipify_device, "compile_cpp", missing)
    monkeypatch.setattr(hipify_fixups, "installed", lambda: False)
    right = check(EXERCISE, port(), seed=1)
    assert right.status == "not graded"
    assert right.headline == "3 checks passed, 6 could not run: run pip install .[hip]"
    assert [outcome.status for outcome in right.outcomes].count("skipped") == 6
    assert check(EXERCISE, hipify_ports.mask_kept, seed=1).misconception == "mask_kept"


def test_a_kernel_that_never_ends_is_stopped():
    def endless(files):
        ported = port()(files)
        ported[KERNELS] = ported[KERNELS].replace(
            "int start = 0;", "int start = 0; while (atomicAdd(count, 0) >= 0) {}"
        )
        return ported

    report = check(replace(EXERCISE, seconds=1.0, cases=EXERCISE.cases[1:3]), endless, seed=3)
    assert report.status == "failed"
    assert "never ends" in report.headline


def test_the_judge_works_under_torchs_own_settings():
    torch.set_default_dtype(torch.float64)
    try:
        assert check(replace(EXERCISE, cases=EXERCISE.cases[:2]), port(), seed=1).passed
    finally:
        torch.set_default_dtype(torch.float32)


# --- FP8 in the headers -----------------------------------------------------------------------------------------

CONVERT = """
#include <{header}>
__global__ void convert(const float *x, unsigned char *bits, float *back, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  {name} value = {name}(x[i]);
  bits[i] = value.__x;
  back[i] = (float)value;
}}
"""


@pytest.mark.parametrize(
    ("target", "header", "name", "dtype"),
    [
        ("sm_80", "cuda_fp8.h", "__nv_fp8_e4m3", torch.float8_e4m3fn),
        ("gfx942", "hip/hip_fp8.h", "__hip_fp8_e4m3_fnuz", torch.float8_e4m3fnuz),
        ("gfx950", "hip/hip_fp8.h", "__hip_fp8_e4m3", torch.float8_e4m3fn),
        ("gfx1100", "hip/hip_fp8.h", "__hip_fp8_e4m3_fnuz", torch.float8_e4m3fnuz),
    ],
)
def test_fp8_conversions_agree_with_torch(target, header, name, dtype):
    largest = torch.finfo(dtype).max
    every = torch.arange(256, dtype=torch.uint8).view(dtype).float().nan_to_num()
    between = (every.sort().values[1:] + every.sort().values[:-1]) / 2  # ties go to even
    x = torch.cat([every, between, torch.randn(700), torch.randn(300) * 2.0**-9, torch.tensor([0.0, -0.0, 1e-30])])
    wanted = x.clamp(-largest, largest).to(dtype)
    outside = torch.tensor([1e9, -1e9, torch.inf, largest * 1.2])
    x, n = torch.cat([x, outside]), len(x)
    bits, back = torch.zeros(len(x), dtype=torch.uint8), torch.zeros(len(x))
    with virtual_gpu(target) as gpu:
        module = gpu.load(compile_cpp(CONVERT.format(header=header, name=name), target))
        module.launch("convert", -(-len(x) // 256), 256, [x, bits, back, len(x)])
    assert torch.equal(bits[:n], wanted.view(torch.uint8))
    assert torch.equal(back[:n], wanted.float())
    assert back[n:].tolist() == [largest, -largest, largest, largest]
