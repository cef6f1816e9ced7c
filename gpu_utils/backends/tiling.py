"""Tile programs run: lowered for a target, compiled by its vendor's compiler, executed on a virtual GPU or AI core."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpu_utils.compiler.tile_cuda import compile_cuda
from gpu_utils.compiler.tile_hip import compile_hip
from gpu_utils.compiler.tilelang import Lowered, TileMap, lower
from gpu_utils.errors import BadArgument
from gpu_utils.npu import NpuRun, run_ascendc
from gpu_utils.virtual import VirtualGpu, virtual_gpu
from gpu_utils.virtual.arguments import TensorMap
from gpu_utils.virtual.isa import Launch


def launch_tile(
    program: Callable[..., Any], targets: Sequence[str], tensors: Sequence[Any], *, sanitize: bool = False, **sizes: Any
) -> dict[str, VirtualGpu | NpuRun]:
    """Lower a tile program for each target and run it there: target -> the virtual GPU, or the run on an AI core.

    program  `program(T, vendor, **sizes)`
    targets  of TARGETS, and "ascend950"
    tensors  on the CPU, in the order of the program's parameters; each target writes the same ones, one after the other
    sanitize whether the virtual GPUs look for races and late data; a virtual AI core always does
    sizes    what the program is lowered with

    Both kinds of result have `counters`. Errors: those of `lower`, of the vendors' compilers and of the launch.
    """
    runs: dict[str, VirtualGpu | NpuRun] = {}
    for target in targets:
        lowered = lower(program, target, **sizes)
        if lowered.vendor == "ascend":
            runs[target] = run_ascendc(lowered.source, lowered.kernel, lowered.grid[0], _ordered(lowered, tensors))
            continue
        with virtual_gpu(target, sanitize=sanitize) as gpu:
            launch_lowered(lowered, gpu, tensors)
        runs[target] = gpu
    return runs


def launch_lowered(lowered: Lowered, gpu: VirtualGpu, tensors: Sequence[Any]) -> Launch:
    """Compile a lowered source for a virtual GPU and launch it there.

    tensors  in the order of the program's parameters

    Errors: BadArgument for another number of tensors; those of the compilers and of the launch.
    """
    module = gpu.load((compile_cuda if lowered.vendor == "nvidia" else compile_hip)(lowered))
    return module.launch(lowered.kernel, lowered.grid, lowered.block, _ordered(lowered, tensors), lowered.shared)


def tile_counts(run: VirtualGpu | NpuRun) -> dict[str, float]:
    """What a run of `launch_tile` counted, by names that all three vendors share.

    "bytes read" and "bytes written" of global memory, "matrix FLOPs", and on a GPU "bank conflicts": passes of shared
    memory (LDS) beyond the fewest.
    """
    if isinstance(run, NpuRun):
        moved = run.counters.items()
        return {
            "bytes read": sum(value for path, value in moved if path.startswith("GM->")),
            "bytes written": sum(value for path, value in moved if path.endswith("->GM")),
            "matrix FLOPs": run.counters["cube_flops"],
        }
    totals = run.counters.totals()
    return {
        "bytes read": totals["global_load_bytes"],
        "bytes written": totals["global_store_bytes"],
        "matrix FLOPs": totals["matrix_flops"],
        "bank conflicts": totals["bank_conflicts"],
    }


def tile_resources(lowered: Lowered) -> dict[str, float]:
    """What a lowered program takes of a GPU's unit: registers of a lane, spills, shared KiB, resident blocks, waves.

    Compiled, not run. Errors: those of the vendor's compiler; BadArgument for an Ascend core, which has no registers
    to give.
    """
    if lowered.vendor == "ascend":
        raise BadArgument("an AI core has buffers, not registers of lanes; read its source, or plan it")
    module = (compile_cuda if lowered.vendor == "nvidia" else compile_hip)(lowered)
    kernel = module.kernel(lowered.kernel)
    threads = lowered.block[0] * lowered.block[1] * lowered.block[2]
    held = module.occupancy(lowered.kernel, threads, lowered.shared)
    return {
        "threads": threads,
        "registers": kernel.registers,
        "spills": kernel.spills,
        "shared KiB": (kernel.shared + lowered.shared) / 1024,
        "blocks on a unit": held.blocks,
    }


def _ordered(lowered: Lowered, tensors: Sequence[Any]) -> list[Any]:
    """Arguments in the order of the kernel's parameters; tensor maps are made."""
    if len(tensors) != len(lowered.tensors):
        raise BadArgument(
            f"the tile program has {len(lowered.tensors)} tensors ({', '.join(lowered.tensors)}) and {len(tensors)} "
            "were given; give one for each, in this order"
        )
    named: Mapping[str, Any] = dict(zip(lowered.tensors, tensors, strict=True))
    return [_map(lowered.maps[name], named) if name in lowered.maps else named[name] for name in lowered.parameters]


_ELEMENTS = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7, 8: 9, 9: 10, 10: 8, 11: 11, 12: 12}
"""CUDA's CUtensorMapDataType -> the code of the same type in PTX's tensormap.replace."""


def _map(one: TileMap, named: Mapping[str, Any]) -> TensorMap:
    tensor = named[one.tensor]
    element = _ELEMENTS[one.element]
    return TensorMap.of(tensor, list(one.sizes), list(one.strides), list(one.box), element, one.swizzle)
