"""Answers to 03.hipify_fixups, right and wrong: the right port, and the same with one step done as learners do it.

A step takes the text of one file and its path. `port(name=step)` is the right answer with the step `name` replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Step = Callable[[str, str], str]
Files = dict[str, str]


def _width(has_64: str) -> Step:
    by_target = f"#if {has_64}\n#define WARP_SIZE 64\n#else\n#define WARP_SIZE 32\n#endif"
    return lambda text, path: text.replace("#define WARP_SIZE 32", by_target)


def _fp8(both: bool = True, fnuz: float = 240.0) -> Step:
    ocp = "using fp8_t = __hip_fp8_e4m3;\nconstexpr float kFp8Max = 448.0f;"
    other = f"using fp8_t = __hip_fp8_e4m3_fnuz;\nconstexpr float kFp8Max = {fnuz}f;"
    new = f"#if HIP_FP8_TYPE_FNUZ\n{other}\n#else\n{ocp}\n#endif" if both else other

    def step(text: str, path: str) -> str:
        return re.sub(r"using fp8_t = .*?448\.0f;", new, text, flags=re.DOTALL)

    return step


def _vote(popc: str = "__popcll", one: str = "1ull", kind: str = "unsigned long long") -> Step:
    def step(text: str, path: str) -> str:
        text = text.replace("const unsigned vote", f"const {kind} vote").replace("__popc(", f"{popc}(")
        return text.replace("(1u << lane) - 1u", f"({one} << lane) - {one}")

    return step


def _tile(tokens: str, stage: str = "") -> Step:
    def step(text: str, path: str) -> str:
        text = re.sub(r"kTileTokens = \d+;", f"kTileTokens = {tokens};", text)
        return re.sub(r"kStageBytes = [^;]+;", f"kStageBytes = {stage};", text) if stage else text

    return step


def _exponential(text: str, path: str) -> str:
    return re.sub(r'asm\("ex2[^;]*;[^;]*;', "y = __builtin_amdgcn_exp2f(x);", text)


def _launched(launch: str) -> Step:
    pattern = r"  cudaLaunchAttribute overlap.*?(\w+_CHECK)\(cudaLaunchKernelEx\(&config, (\w+), (.*?)\)\);"
    return lambda text, path: re.sub(pattern, launch, text, flags=re.DOTALL)


_GRID = "dim3((tokens + kTileTokens - 1) / kTileTokens), dim3(kThreads), kStageBytes, stream"
_ASKED = r"\n  \1(hipGetLastError());"
_HIPCC = 'LIBRARIES = ["hipblas", "rccl", "roctx64"]\nDEVICE_FLAGS = ["-O3", "-ffast-math"]'


def _replace(old: str, new: str) -> Step:
    return lambda text, path: text.replace(old, new)


_RIGHT: dict[str, Step] = {
    "roctx": _replace("nvtx3/roctracer/roctx.h", "roctracer/roctx.h"),
    "fp8_header": _replace("<cuda_fp8.h>", "<hip/hip_fp8.h>"),
    "hopper": lambda text, path: f"#ifndef USE_ROCM\n{text}\n#endif\n" if "hopper" in path else text,
    "width": _width("defined(__GFX9__)"),
    "mask": _replace("0xffffffffu", "0xffffffffffffffffull"),
    "vote": _vote(),
    "tile": _tile("(64 * 1024 - 1024) / (kHidden * 4)"),
    "fp8": _fp8(),
    "exponential": _exponential,
    "guard": _replace("#if __CUDA_ARCH__ >= 800", "#if defined(USE_ROCM) || __CUDA_ARCH__ >= 800"),
    "launch": _launched(rf"  hipLaunchKernelGGL(\2, {_GRID}, \3);{_ASKED}"),
    "build": lambda text, path: re.sub(r"LIBRARIES = .*\nDEVICE_FLAGS = .*", _HIPCC, text),
}


def port(**changed: Step) -> Callable[[Files], Files]:
    """The right answer, with these steps replaced."""
    steps = {**_RIGHT, **changed}

    def hipify_fixups(files: Files) -> Files:
        fixed = {}
        for path, text in files.items():
            for step in steps.values():
                text = step(text, path)
            fixed[path] = text
        return fixed

    return hipify_fixups


def _skip(text: str, path: str) -> str:
    return text


def _without_ranges(text: str, path: str) -> str:
    text = re.sub(r"#include <nvtx3/roctracer/roctx.h>\n", "", text)
    return re.sub(r"roctxRange(PushA\([^)]*\)|Pop\(\));", "", text)


def _without_waits(text: str, path: str) -> str:
    return re.sub(r"\w+_CHECK\(hip(EventRecord|StreamWaitEvent)\([^;]*;", "", text)


def _fenced_always(text: str, path: str) -> str:
    return re.sub(r'( *asm\("ex2[^;]*;[^;]*;)', r"#ifndef __HIP_PLATFORM_NVIDIA__\n\1\n#endif", text)


def _pretends(text: str, path: str) -> str:
    return text.replace("#pragma once\n", "#pragma once\n#define __CUDA_ARCH__ 800\n", 1) if "config" in path else text


def _only_the_launch(text: str, path: str) -> str:
    return text.replace("cudaLaunchKernelEx", "hipLaunchKernelEx")


fp8_header_kept = port(fp8_header=_skip)
hopper_kept = port(hopper=_skip)
nvtx_path_kept = port(roctx=_skip)
ranges_deleted = port(roctx=_without_ranges)
launch_half_done = port(launch=_only_the_launch)
launch_deleted = port(launch=_launched("  (void)stream;"))
stream_dropped = port(launch=_launched(rf"  hipLaunchKernelGGL(\2, {_GRID.replace('stream', '0')}, \3);{_ASKED}"))
grid_of_tokens = port(
    launch=_launched(rf"  hipLaunchKernelGGL(\2, tokens, kThreads, kStageBytes, stream, \3);{_ASKED}")
)
launch_error_lost = port(launch=_launched(rf"  hipLaunchKernelGGL(\2, {_GRID}, \3);"))
waits_deleted = port(waits=_without_waits)
pretends_to_be_cuda = port(guard=_pretends)
ptx_fenced_by_nothing = port(exponential=_fenced_always)
mask_kept = port(mask=_skip)
mask_of_an_int = port(mask=_replace("0xffffffffu", "(int)0xffffffffffffffffull"))
vote_in_32_bits = port(vote=_vote("__popc", "1u", "unsigned"))
shift_in_32_bits = port(vote=_vote(one="1u"))
width_kept = port(width=_skip)
width_64_everywhere = port(width=_replace("#define WARP_SIZE 32", "#define WARP_SIZE 64"))
width_of_one_chip = port(width=_width("defined(__gfx942__)"))
width_at_run_time = port(width=_replace("#define WARP_SIZE 32", "#define WARP_SIZE warpSize"))
tile_kept = port(tile=_skip)
tile_halved = port(
    tile=lambda text, path: re.sub(r"kTileTokens = (\d+);", lambda tile: f"kTileTokens = {int(tile[1]) // 2};", text)
)
request_only = port(tile=lambda text, path: re.sub(r"kStageBytes = [^;]+;", "kStageBytes = 64 * 1024;", text))
no_room_for_partials = port(tile=_tile("64 * 1024 / (kHidden * 4)", "64 * 1024"))
no_room_for_partials_in_whole_tokens = port(tile=_tile("64 * 1024 / (kHidden * 4)"))
fixed_tile = port(tile=_replace("kTileTokens = 32;", "kTileTokens = 16;"))
maximum_kept = port(fp8=_fp8(fnuz=448.0))
fnuz_everywhere = port(fp8=_fp8(both=False))
ocp_everywhere = port(fp8=_replace("__nv_fp8_e4m3", "__hip_fp8_e4m3"))
guard_kept = port(guard=_skip)
build_file_kept = port(build=_skip)


def unchanged(files: Files) -> Files:
    return dict(files)


def forgot_return(files: Files) -> None:
    port()(files)
