"""One launch on several virtual GPUs, as lessons and labs compare them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpu_utils.chips.targets import TARGETS
from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.errors import UnknownName
from gpu_utils.virtual import VirtualGpu, virtual_gpu

_AS_LISTED = {"scalar_memory": "argument load"}
"""Classes of the counters -> the name that a listing has for them."""


def launch_on(
    targets: Sequence[str],
    kernel: Any,
    grid: Any,
    *args: Any,
    threads: int | None = None,
    l2: bool = False,
    **options: Any,
) -> dict[str, VirtualGpu]:
    """Launch a Triton kernel on the virtual GPU of each target: target -> the GPU, with its counters and listing.

    grid     as in `kernel[grid]`; args, options: of the launch, such as BLOCK=1024; tensors lie on the CPU
    threads  threads of a program; the number of warps or wavefronts follows from it. Without it, `num_warps` decides
    l2       record every access for the model of the L2, whose traffic is then among the counters; slower

    The tensors are the same for every target, so an output holds what the last one wrote.
    Errors: those of the launch; UnknownName for a target.
    """
    gpus = {}
    for target in targets:
        more = {} if threads is None else {"num_warps": max(1, threads // TARGETS[target].lanes)}
        with virtual_gpu(target, l2=l2) as gpus[target]:
            kernel[grid](*args, **more, **options)
    return gpus


def launch_cpp(
    targets: Sequence[str], source: str, kernel: str, grid: Any, block: Any, args: Sequence[Any]
) -> dict[str, VirtualGpu]:
    """Compile CUDA-style C++ for each target and launch one of its kernels there: target -> the virtual GPU.

    source  the text; kernel: the name of a `__global__` function in it
    grid, block  a number or a tuple of up to three; block counts threads
    args    tensors on the CPU, the same for every target, and numbers

    Errors: those of `compile_cpp` and of the launch.
    """
    gpus = {}
    for target in targets:
        with virtual_gpu(target) as gpus[target]:
            gpus[target].load(compile_cpp(source, target)).launch(kernel, grid, block, list(args))
    return gpus


def counts_by_line(gpus: Mapping[str, VirtualGpu], kernel: Any) -> dict[str, dict[str, str]]:
    """Instructions of one wave by class for each source line: "7 x = tl.load(...)" -> {target: "8 move, 2 global"}.

    gpus    target -> virtual GPU, as `launch_on` returns them
    kernel  the @triton.jit function that they ran last; its lines are numbered from 1

    The last row is their sum. Waves that went different ways are averaged. "argument load" stands for scalar loads on
    AMD and ld.param in PTX, as in a listing. Lines of which nothing is left are not shown.
    """
    found: dict[str, dict[str, str]] = {}
    total: dict[str, Counter[str]] = {target: Counter() for target in gpus}
    for number, text in enumerate(kernel.raw_src, 1):
        row = {target: _of_line(gpu, kernel.starting_line_number + number - 1) for target, gpu in gpus.items()}
        for target, kinds in row.items():
            total[target].update(kinds)
        if any(row.values()):
            found[f"{number}  {text.rstrip()}"] = _per_wave(gpus, row)
    return found | {"in all": _per_wave(gpus, total)}


def _of_line(gpu: VirtualGpu, number: int) -> dict[str, int]:
    return next((kinds for line, kinds in gpu.counters.per_line().items() if line and line[1] == number), {})


def _per_wave(gpus: Mapping[str, VirtualGpu], row: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    def words(target: str) -> str:
        waves = gpus[target].counters.totals()["waves"]
        return ", ".join(f"{times / waves:.4g} {_AS_LISTED.get(kind, kind)}" for kind, times in row[target].items())

    return {target: words(target) for target in gpus}


def counts(gpus: Mapping[str, VirtualGpu], *names: str) -> dict[str, dict[str, float]]:
    """What the last launch on each virtual GPU counted: target -> {name: number}, all names or only these.

    The names are those of `Counters.totals`; the beginning of several stands for them all ("instructions" for the sum
    and each class, "global_load" for bytes and sectors). Raises UnknownName for another one. A class of instructions
    that no target executed is left out; one that only some executed is 0 on the others.
    """
    found = {target: gpu.counters.totals() for target, gpu in gpus.items()}
    known = list(dict.fromkeys(name for totals in found.values() for name in totals))
    wanted = {name: [one for one in known if one == name or one.startswith(f"{name}_")] for name in names}
    for name, chosen in wanted.items():
        if not chosen:
            raise UnknownName("counter", name, known)
    shown = [one for chosen in wanted.values() for one in chosen] or known
    return {target: {name: totals.get(name, 0) for name in shown} for target, totals in found.items()}


def counted(gpus: Mapping[str, VirtualGpu], name: str) -> dict[str, float]:
    """One counter of the last launch on each virtual GPU: target -> number. Names and errors as for `counts`."""
    return {target: row[name] for target, row in counts(gpus, name).items()}


def issued(gpus: Mapping[str, VirtualGpu], mnemonic: str) -> dict[str, dict[str, int]]:
    """Instructions whose mnemonic holds a text: target -> how many the waves issued, and the percent of lanes on.

    gpus      as `launch_on` and `launch_cpp` return them; mnemonic: "fma" for fma.rn.f32 and v_fma_f32

    The percentage is of the lanes of the waves that issued them, rounded down; 0 where none was issued.
    """
    found = {}
    for target, gpu in gpus.items():
        executed = gpu.counters.per_op()  # number of an instruction -> (waves, lanes)
        some = [executed[op.index] for op in gpu.last.program.ops if mnemonic in op.mnemonic]
        waves, lanes = (sum(each) for each in zip(*some, strict=True)) if some else (0, 0)
        found[target] = {"issued": waves, "% of lanes on": 100 * lanes // max(1, waves * gpu.model.lanes)}
    return found


def sectors_of_line(gpus: Mapping[str, VirtualGpu], kernel: Any, text: str) -> dict[str, int]:
    """Sectors that the loads and stores of one source line cost in the last launch on each virtual GPU.

    gpus    as `launch_on` returns them; kernel: the @triton.jit function that they ran last
    text    a part of the line, "part = tl.load"

    Errors: UnknownName where no line of the kernel holds it.
    """
    lines = [n for n, line in enumerate(kernel.raw_src) if text in line]
    if not lines:
        raise UnknownName("line", text, [line.strip() for line in kernel.raw_src])
    number = kernel.starting_line_number + lines[0]
    found = {}
    for target, gpu in gpus.items():
        of_line = {op.index for op in gpu.last.program.ops if op.line and op.line[1] == number}
        found[target] = sum(one.transactions for at, one in gpu.counters.globals.items() if at in of_line)
    return found
