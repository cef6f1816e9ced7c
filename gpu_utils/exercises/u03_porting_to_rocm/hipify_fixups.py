"""03.hipify_fixups: what hipify missed in a small real project, found and fixed.

An answer takes the files that hipify wrote and returns them fixed. Many fixes are right, so nothing is compared with a
reference text: all files are read (`hipify_text`), the host code is executed against a recording runtime
(`hipify_host`), and the device code is executed on virtual GPUs (`hipify_device`).
"""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.compiler.clang import installed
from gpu_utils.compiler.leftovers import leftovers
from gpu_utils.exercises.u03_porting_to_rocm import hipify_ports as ports
from gpu_utils.exercises.u03_porting_to_rocm.hipify_device import device_problem
from gpu_utils.exercises.u03_porting_to_rocm.hipify_host import host_problem
from gpu_utils.exercises.u03_porting_to_rocm.hipify_project import draw, hipified_project, variant_of
from gpu_utils.exercises.u03_porting_to_rocm.hipify_text import text_problem
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

TEXT_ONLY = "text"


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return {"files": hipified_project(variant_of(case))}


def _reference(files: dict[str, str]) -> dict[str, str]:
    """A port that is right; `_judge` accepts others too."""
    return ports.port()(files)


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    """The first mistake: in the text of all files, then in what the host code calls, or in the device code."""
    if isinstance(case, Example):
        return _example_problem(inputs["files"], value)
    variant = variant_of(case)
    if found := text_problem(inputs["files"], variant, value):
        return found
    if case["target"] != TEXT_ONLY:
        return device_problem(value, variant, case["target"], case["tokens"])
    return host_problem(value, _reference(inputs["files"]), variant) if installed() else None


def _example_problem(given: dict[str, str], value: Any) -> Difference | None:
    """One file with one include; any of roctx's headers will do."""
    if not isinstance(value, dict) or set(value) != set(given) or not all(isinstance(t, str) for t in value.values()):
        return Difference(
            "example", f"the result for {given} is {value!r:.80}, expected the same path and its new text"
        )
    if sum(one.certain for one in leftovers(value)) or "roctx" not in "".join(map(str, value.values())):
        return Difference("example", f"the example became {value!r:.80}; its header should be roctracer/roctx.h")
    return None


def _fresh(rng: random.Random) -> Case:
    return Case("another team's project: other names and sizes", **draw(rng))


EXERCISE = Exercise(
    id="03.hipify_fixups",
    title="What hipify missed",
    parameters=("files",),
    kind="host",
    inputs=_inputs,
    reference=_reference,
    judge=_judge,
    dtype=lambda inputs: None,
    seconds=60.0,
    cases=(
        Case(
            "every file: nothing of CUDA is left, nothing is lost, and the host code calls what it called",
            target=TEXT_ONLY,
            team="normq",
            hidden=768,
            tile=32,
            threads=256,
            tokens=0,
        ),
        Case(
            "wavefronts of 64, FP8 in FNUZ, and more tokens than a tile",
            target="gfx942",
            team="normq",
            hidden=768,
            tile=32,
            threads=256,
            tokens=25,
        ),
        Case(
            "waves of 32 on AMD, a width of which 64 KiB is a multiple, and a tile of 160 KB",
            target="gfx1100",
            team="normq",
            hidden=1024,
            tile=40,
            threads=128,
            tokens=3,
        ),
        Case(
            "wavefronts of 64 and FP8 in OCP",
            target="gfx950",
            team="normq",
            hidden=768,
            tile=32,
            threads=512,
            tokens=2,
        ),
        Example("the example of the docstring", files={"csrc/a.cpp": "#include <nvtx3/roctracer/roctx.h>"}),
        Case(
            "the same under other names: launchers, streams and libraries",
            target=TEXT_ONLY,
            team="quantkit7",
            hidden=640,
            tile=40,
            threads=128,
            tokens=0,
        ),
    ),
    fresh=_fresh,
    trivial={
        "nothing": lambda files: {},
        "the input": lambda files: dict(files),
        "empty files": lambda files: dict.fromkeys(files, ""),
        "one text": lambda files: "\n".join(files.values()),
        "a number": lambda files: 0.0,
    },
    misconceptions=(
        Misconception(
            "unchanged",
            ports.unchanged,
            "Start with the list: `leftovers(files)` names every place that the text gives away, with its kind.",
        ),
        Misconception(
            "fp8_header_kept",
            ports.fp8_header_kept,
            "hipify translates the names in its tables, and cuda_fp8.h is in none. HIP's header of the same kind is "
            "hip/hip_fp8.h.",
        ),
        Misconception(
            "hopper_kept",
            ports.hopper_kept,
            "One header describes what only Hopper has. There is nothing to translate it to: keep it out of the ROCm "
            "build with a condition on a macro that only a ROCm build defines.",
        ),
        Misconception(
            "nvtx_path_kept",
            ports.nvtx_path_kept,
            "Look at the folder in the include of the range header: hipify translated the file and left NVTX's folder "
            "in front of it.",
        ),
        Misconception(
            "ranges_deleted",
            ports.ranges_deleted,
            "The ranges are gone, and with them the names in the profiler's timeline. The calls were already right; "
            "only the header's path was not.",
        ),
        Misconception(
            "launch_half_done",
            ports.launch_half_done,
            "Renaming the call is not enough: its attributes and its configuration are CUDA's types. The overlap is a "
            "feature of Hopper, and HIP has no attribute for it; a plain launch does the same work.",
        ),
        Misconception(
            "launch_deleted",
            ports.launch_deleted,
            "The file has no CUDA in it any more, and nothing launches the kernel either.",
        ),
        Misconception(
            "stream_dropped",
            ports.stream_dropped,
            "The kernel is launched, on the default stream. What was queued on the stream of the caller before does "
            "not come before it any more: the fifth argument of hipLaunchKernelGGL is the stream.",
        ),
        Misconception(
            "launch_error_lost",
            ports.launch_error_lost,
            "cudaLaunchKernelEx returned an error and its macro looked at it. hipLaunchKernelGGL returns nothing: who "
            "asks now?",
        ),
        Misconception(
            "grid_of_tokens",
            ports.grid_of_tokens,
            "One block stages kTileTokens tokens. A block for each token writes past the last one, or does the work "
            "again: divide, and round up.",
        ),
        Misconception(
            "waits_deleted",
            ports.waits_deleted,
            "The calls of events are gone, so nothing makes one stream wait for the other. hipify had translated them: "
            "they are right as they stand.",
        ),
        Misconception(
            "pretends_to_be_cuda",
            ports.pretends_to_be_cuda,
            "With __CUDA_ARCH__ defined by hand, every header that asks for it takes the NVIDIA branch. Change the "
            "condition of the one guard instead.",
        ),
        Misconception(
            "ptx_fenced_by_nothing",
            ports.ptx_fenced_by_nothing,
            "A ROCm build still sees the PTX: no condition stands around it, or one that is true on AMD as well. Which "
            "macro does a ROCm build define, and what computes 2^x there?",
        ),
        Misconception(
            "mask_kept",
            ports.mask_kept,
            "FULL_MASK names 32 lanes. On AMD the _sync functions want 64 bits, also where a wave has 32 lanes.",
        ),
        Misconception(
            "mask_of_an_int",
            ports.mask_of_an_int,
            "The digits are right and the type is not: a cast to int leaves 32 bits of the mask.",
        ),
        Misconception(
            "vote_in_32_bits",
            ports.vote_in_32_bits,
            "The ballot returns a bit for each of 64 lanes and is stored in 32. Then the population count sees half of "
            "the wavefront.",
        ),
        Misconception(
            "shift_in_32_bits",
            ports.shift_in_32_bits,
            "The count is right and the places are not: 1u << lane has no bit for lane 40.",
        ),
        Misconception(
            "width_kept",
            ports.width_kept,
            "warpSize is 64 on CDNA and WARP_SIZE is still 32: the loop adds half a wavefront, and one half is never "
            "stored.",
        ),
        Misconception(
            "width_64_everywhere",
            ports.width_64_everywhere,
            "64 is right on CDNA and wrong on RDNA, where a wave has 32 lanes. Let the target decide: __GFX9__ is "
            "defined for CDNA only.",
        ),
        Misconception(
            "width_of_one_chip",
            ports.width_of_one_chip,
            "Right on gfx942 and lost on gfx950: the width belongs to the family. __GFX9__ is defined for all of CDNA.",
        ),
        Misconception(
            "width_at_run_time",
            ports.width_at_run_time,
            "An array in shared memory needs its size when the code is compiled; warpSize is known when it runs. "
            "Choose a number by the target's macro.",
        ),
        Misconception(
            "tile_kept",
            ports.tile_kept,
            "The block asks for more than 64 KiB of LDS: it compiles, and the launch fails. Stage fewer tokens.",
        ),
        Misconception(
            "tile_halved",
            ports.tile_halved,
            "Half of a tile is as much too large as the tile was. Other teams stage more: compute how many tokens fit.",
        ),
        Misconception(
            "request_only",
            ports.request_only,
            "The request got smaller and the tile did not: the kernel still writes kTileTokens x kHidden floats.",
        ),
        Misconception(
            "no_room_for_partials",
            ports.no_room_for_partials,
            "The tile alone may fill 64 KiB, but block_reduce has an array in shared memory too. Both count.",
        ),
        Misconception(
            "no_room_for_partials_in_whole_tokens",
            ports.no_room_for_partials_in_whole_tokens,
            "Where kHidden is a power of two, the tokens alone fill 64 KiB to the last byte, and block_reduce has an "
            "array in shared memory too. Take the room for it away before you divide.",
        ),
        Misconception(
            "fixed_tile",
            ports.fixed_tile,
            "Right for the tile of this project only. Other teams have another kTileTokens and another kHidden: how "
            "many tokens of kHidden floats go into 64 KiB, with the static array beside them?",
        ),
        Misconception(
            "maximum_kept",
            ports.maximum_kept,
            "The type is right for gfx942 and its largest number is not: E4M3 in FNUZ ends at 240, so a scale made for "
            "448 clips the largest values.",
        ),
        Misconception(
            "fnuz_everywhere",
            ports.fnuz_everywhere,
            "FNUZ is right on gfx942. gfx950 reads OCP: the type and its maximum depend on the target. hip_fp8.h "
            "defines HIP_FP8_TYPE_FNUZ and HIP_FP8_TYPE_OCP.",
        ),
        Misconception(
            "ocp_everywhere",
            ports.ocp_everywhere,
            "OCP is what NVIDIA and gfx950 have; gfx942 has FNUZ: another type, and another maximum.",
        ),
        Misconception(
            "guard_kept",
            ports.guard_kept,
            "__CUDA_ARCH__ does not exist on AMD and counts as 0 in #if. What is left of the kernel then?",
        ),
        Misconception(
            "build_file_kept",
            ports.build_file_kept,
            "hipify does not read setup.py. Its flags are nvcc's and its libraries are NVIDIA's; torch.version.hip "
            "tells which build this is.",
        ),
        Misconception(
            "forgot_return",
            ports.forgot_return,
            "The function changes texts and gives nothing back: return a dict with every path and its new text.",
        ),
    ),
    hints=(
        "Run leftovers(files) on what you were given and on what you return: it lists file, line and kind. It does not "
        "see everything: when it is silent, the device code must still compute the right numbers.",
        "Ask of every place: is there the same under another name (roctx, hip_fp8.h, hipLaunchKernelGGL), does it "
        "depend on the target (lanes, masks, FP8, 64 KiB), or has it no counterpart (TMA, PTX)? Macros that help: "
        "USE_ROCM, __GFX9__, HIP_FP8_TYPE_FNUZ.",
        "WARP_SIZE by __GFX9__; mask, vote, count and shift in 64 bits (ull, __popcll); kTileTokens * kHidden * 4 "
        "below 64 KiB with room for `partial`; FNUZ with 240 where HIP_FP8_TYPE_FNUZ is 1, else OCP with 448; exp2f "
        "for the PTX; `defined(USE_ROCM) ||` in the guard; #ifndef USE_ROCM around the Hopper header; a plain "
        "hipLaunchKernelGGL, with hipGetLastError in the macro after it; "
        "and in setup.py hipblas, rccl, roctx64 under torch.version.hip.",
    ),
    explanation=(
        "hipify replaces names that are in its tables. It does not know what a number means (32, 0xffffffff, 448, "
        "96 KB), which branch of an #if is taken, or what an instruction in a string does; and it reports none of "
        "it: its count of unsupported calls stays 0. So the danger is not what fails to compile. It is the guard that "
        "compiles a kernel away, the vote that loses half of a wavefront and the FP8 maximum that clips, all in "
        "silence. Two of the fixes must differ between AMD's own chips: the width (gfx942 and gfx1100) and FP8 (gfx942 "
        "and gfx950). Host code deserves one more look: __GFX9__ is not defined there, so WARP_SIZE means nothing on "
        "the host. This project never asks for it there."
    ),
)
