"""NVIDIA occupancy against NVIDIA's own calculator: cuda_occupancy.h, which comes with Triton, compiled for the CPU.

The properties that it asks for are those of TARGETS; what it does with them (granules, partitions, carve-outs, blocks
an SM, barriers) is its own.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import triton
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_utils.analytic.occupancy import occupancy
from gpu_utils.chips import TARGETS

HEADER = Path(triton.__file__).parent / "backends" / "nvidia" / "include" / "cuda_occupancy.h"
SOURCE = """
#include "cuda_occupancy.h"
/* found: blocks, by warps, by registers, by shared memory, by blocks */
int calculate(int major, int minor, int threads_sm, size_t shared_sm, size_t shared_block, size_t reserved,
              int registers, size_t dynamic, int threads, int *found) {
  cudaOccDeviceProp chip = {.computeMajor = major, .computeMinor = minor, .maxThreadsPerBlock = 1024,
    .maxThreadsPerMultiprocessor = threads_sm, .regsPerBlock = 65536, .regsPerMultiprocessor = 65536, .warpSize = 32,
    .sharedMemPerBlock = 49152, .sharedMemPerMultiprocessor = shared_sm, .numSms = 1,
    .sharedMemPerBlockOptin = shared_block, .reservedSharedMemPerBlock = reserved};
  cudaOccFuncAttributes kernel = {.maxThreadsPerBlock = 1024, .numRegs = registers, .sharedSizeBytes = 0,
    .partitionedGCConfig = PARTITIONED_GC_OFF, .shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN,
    .maxDynamicSharedSizeBytes = dynamic, .numBlockBarriers = 1, .virtualResourceCount = 0};
  cudaOccDeviceState state = {.cacheConfig = CACHE_PREFER_NONE, .carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED};
  cudaOccResult result;
  int status = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &chip, &kernel, &state, threads, dynamic);
  found[0] = result.activeBlocksPerMultiprocessor;
  found[1] = result.blockLimitWarps;
  found[2] = result.blockLimitRegs;
  found[3] = result.blockLimitSharedMem;
  found[4] = result.blockLimitBlocks;
  return status;
}
"""
NVIDIA = [name for name, target in TARGETS.items() if target.vendor == "nvidia"]


@pytest.fixture(scope="module")
def theirs(clang, tmp_path_factory):
    """target, registers, shared bytes, warps -> blocks by their calculator, and by each resource alone."""
    import ziglang

    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "calculate.c").write_text(SOURCE)
    (folder / "string.h").write_text("void *memcpy(void *, const void *, __SIZE_TYPE__);\n")
    zig = Path(ziglang.__file__).parent
    includes = ["-nostdinc", "-isystem", str(zig / "lib" / "include"), "-I.", f"-I{HEADER.parent}"]
    for command in (  # clang and lld themselves: `zig cc` would first build a C library
        ["clang", "-w", "-O1", "-fPIC", "-ffreestanding", *includes, "-c", "calculate.c", "-o", "calculate.o"],
        ["ld.lld", "-shared", "calculate.o", "-o", "calculate.so"],
    ):
        subprocess.run([str(zig / "zig"), *command], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "calculate.so"))
    size, whole = ctypes.c_size_t, ctypes.c_int
    library.calculate.argtypes = [whole, whole, whole, size, size, size, whole, size, whole, ctypes.POINTER(whole)]

    def ask(target: str, registers: int, shared: int, warps: int) -> dict[str, int]:
        limits, number = TARGETS[target], int(target.removeprefix("sm_"))
        found = (ctypes.c_int * 5)()
        status = library.calculate(
            number // 10,
            number % 10,
            32 * limits.waves_per_unit,
            limits.shared_per_unit,
            limits.shared_per_block,
            limits.shared_reserved,
            registers,
            shared,
            32 * warps,
            found,
        )
        assert status == 0
        return dict(zip(("all", "waves", "registers", "shared memory", "blocks"), found, strict=True))

    return ask


@given(st.sampled_from(NVIDIA), st.integers(1, 255), st.one_of(st.integers(0, 240_000), st.just(0)), st.integers(1, 32))
@settings(max_examples=400, deadline=None)
def test_every_limit_is_the_one_of_nvidias_own_calculator(theirs, target, registers, shared, warps):
    ours = occupancy(TARGETS[target], registers, shared, warps)
    assert {"all": ours.blocks, **ours.limits} == theirs(target, registers, shared, warps)


@pytest.mark.parametrize("target", NVIDIA)
def test_the_edges_of_shared_memory_are_theirs(theirs, target):
    limits = TARGETS[target]
    for blocks in range(1, 30):
        share = limits.shared_per_unit // blocks // 128 * 128 - 1024
        for shared in (share - 1, share, share + 1, limits.shared_per_block, limits.shared_per_block + 1):
            if shared >= 0:
                assert occupancy(limits, 32, shared, 2).blocks == theirs(target, 32, shared, 2)["all"], (blocks, shared)
