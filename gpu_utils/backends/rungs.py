"""A ladder of kernels: the same result by one idea after the other, counted, compiled and timed beside each other.

A rung is a launcher, a function of tensors; a ladder is a dict of rungs by the names of their ideas:
{"row_in_one_program": ..., "two_passes": ...}. Every function here takes a ladder and the arguments that all of its
rungs are called with, and returns rows for `lesson.table`: what the launches of a rung counted on virtual GPUs
(`climbed`), what its kernels need of each target (`needs`), and how long it takes on a real GPU (`raced`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpu_utils.analytic.roofline import Point, share_of_roofline
from gpu_utils.backends.recording import Launch, chosen_launches, record_launches
from gpu_utils.chips import probe
from gpu_utils.chips.targets import TARGETS, Target
from gpu_utils.compiler import compile_for, resources
from gpu_utils.compiler.resources import Resources
from gpu_utils.errors import BadArgument
from gpu_utils.timing import Ratio, bench
from gpu_utils.virtual import virtual_gpu
from gpu_utils.virtual.predict import predicted_cycles

Rungs = Mapping[str, Callable[..., Any]]
Rows = dict[str, dict[str, Any]]

COMPILED_FOR = ("sm_80", "sm_90", "sm_100", "gfx942", "gfx950", "gfx1100")
"""The targets that `needs` compiles for: both vendors' data centre chips of three generations, and a wave of 32."""

SPILLS = "spills (NVIDIA: bytes, AMD: registers)"
"""The column of `needs` with `Resources.spills`, whose unit is the vendor's."""


def climbed(rungs: Rungs, targets: Sequence[str], *args: Any, least: float | None = None) -> Rows:
    """What each rung counts on the virtual GPU of each target: "name, target" -> {column: number}.

    args   of every rung: tensors on the CPU and numbers, the same for all. A rung must not change them
    least  the fewest bytes that the work can move; the bytes of a rung are then shown over it

    Sums over all launches of one call: launches; bytes moved (those of the transactions of loads, stores and
    atomics in global memory, whatever a cache would save); wave instructions; cycles lost to bank conflicts; barriers
    that waves met; bytes that lanes read and wrote in shared memory (LDS); FLOPs of matrix instructions; and predicted
    cycles if one SM or CU ran everything, a prediction of a simple model. An autotuner's trials are not counted.
    Errors: those of the launches; UnknownName for a target; BadArgument for a ladder without rungs, or for `least` of
    0 or below.
    """
    _check(rungs)
    if least is not None and least <= 0:
        raise BadArgument(f"least is {least:g} bytes; expected more than 0, or None where nothing is to be compared")
    rows = {}
    for target in targets:
        for name, rung in rungs.items():
            with virtual_gpu(target) as gpu, chosen_launches(gpu) as chosen:
                rung(*args)
            rows[f"{name}, {target}"] = _counted(chosen(), least)
    return rows


def _counted(launches: Sequence[Any], least: float | None) -> dict[str, Any]:
    """The columns of `climbed` for the launches of a virtual GPU."""
    totals = [launch.counters.totals() for launch in launches]

    def total(*names: str) -> int:
        return int(sum(each.get(name, 0) for each in totals for name in names))

    sectors = ("global_load_sectors", "global_store_sectors", "global_atomic_sectors")
    moved = int(sum(each[name] * each["sector_bytes"] for each in totals for name in sectors))
    return {
        "launches": len(launches),
        "bytes moved": moved,
        **({} if least is None else {"over the least": round(moved / least, 2)}),
        "instructions": total("instructions"),
        "bank conflicts": total("bank_conflicts"),
        "barriers": total("instructions_barrier"),
        "shared bytes": total("shared_bytes"),
        "matrix FLOPs": total("matrix_flops"),
        "predicted cycles": round(sum(predicted_cycles(launch) for launch in launches)),
    }


def launches_of(rung: Callable[..., Any], *args: Any, target: str = "sm_80") -> list[Launch]:
    """The launches of one call, in order, each with its kernel, grid and arguments; an autotuner's trials left out.

    The call runs on the virtual GPU of `target`, so that a launcher that asks for its target gets an answer. Kernels do
    nothing there, but for an autotuner's trials: what is launched must not depend on what a kernel found before.
    Errors: UnknownName for a target that no virtual GPU executes.
    """
    with virtual_gpu(target), record_launches(idle=True) as launches:
        rung(*args)
    return launches


def needs(rungs: Rungs, *args: Any, targets: Sequence[str] = COMPILED_FOR) -> Rows:
    """What each rung's kernels need of each target: "name, target" -> {column: value}. Compiled, not executed there.

    args     as for `climbed`; the rung is called once for a virtual GPU of the target's vendor and width of a wave, as
             in `launches_of`, and what it launches there is compiled for the target
    targets  names of TARGETS

    Columns: registers of a lane; spills, in bytes of a thread on NVIDIA and in registers on AMD; bytes of shared memory
    (LDS) of a block; occupancy in percent of the waves that an SM, CU or WGP can hold; bits of a lane's widest load
    and widest store in global memory. A rung with several kernels has a row for each, "name: kernel, target"; a kernel
    that is launched in several forms has a row of the largest need.
    Errors: CompileFailed, UnknownName for a target, those of the launches.
    """
    _check(rungs)
    rows: Rows = {}
    for name, rung in rungs.items():
        recorded: dict[str, list[Launch]] = {}
        for target in targets:
            stand_in = stand_in_of(target)
            if stand_in not in recorded:
                recorded[stand_in] = launches_of(rung, *args, target=stand_in)
            found = needs_of(recorded[stand_in], target)
            for kernel, need in found.items():
                label = f"{name}, {target}" if len(found) == 1 else f"{name}: {kernel}, {target}"
                rows[label] = need
    return rows


def stand_in_of(target: str) -> str:
    """The virtual GPU whose launches stand for those of a target: of its vendor, with waves as wide, and its FP8."""

    def seen(target: Target) -> tuple[object, ...]:
        return target.vendor, target.lanes, target.fp8

    wanted = TARGETS[target]
    alike = (t.name for t in TARGETS.values() if t.executed and seen(t) == seen(wanted))
    return target if wanted.executed else next(alike)


def needs_of(launches: Sequence[Launch], target: str) -> Rows:
    """Name of a kernel -> what it needs of a target, the columns of `needs`; the largest over forms of one kernel."""
    found: Rows = {}
    known: dict[str, dict[str, Any]] = {}  # forms that differ in a number may be one code
    for launch in {form(each): each for each in launches}.values():
        compiled = compile_for(launch.kernel, target, launch.args, **launch.kwargs)
        if compiled.asm not in known:
            known[compiled.asm] = _need(resources(compiled))
        need = known[compiled.asm]
        before = found.setdefault(launch.name, need)
        worst = {column: max(before[column], value) for column, value in need.items()}
        found[launch.name] = worst | {"occupancy (%)": min(before["occupancy (%)"], need["occupancy (%)"])}
    return found


def form(launch: Launch) -> tuple[Any, ...]:
    """What of a launch decides how Triton compiles it: two launches of one form are one compilation."""
    values = tuple(map(_form_of, launch.args))
    return id(launch.kernel), values, tuple((name, _form_of(value)) for name, value in sorted(launch.kwargs.items()))


def _form_of(value: Any) -> Any:
    if hasattr(value, "data_ptr"):
        return "tensor", str(value.dtype), value.data_ptr() % 16 == 0
    return type(value).__name__, repr(value)


def _need(found: Resources) -> dict[str, Any]:
    def widest(kind: str) -> int:
        return max(found.widths.get(kind, {}), default=0)

    return {
        "registers": found.registers,
        SPILLS: found.spills,
        "shared bytes": found.shared,
        "occupancy (%)": round(100 * found.occupancy.fraction),
        "widest load (bits)": widest("global load"),
        "widest store (bits)": widest("global store"),
    }


def raced(
    rungs: Rungs,
    *args: Any,
    torch: Callable[..., Any],
    bytes: float,
    flops: float = 0,
    dtype: object = "fp32",
    seconds: float = 0.3,
) -> Rows:
    """Median time of each rung on this machine's GPU, in turn with torch's own: name -> {column: value}.

    args     as for `climbed`; the tensors are copied to the GPU
    torch    the same function in torch, which is timed as it is (eager) and under torch.compile
    bytes, flops  the least that the work must move and compute; dtype: whose peak counts, as for `roofline`
    seconds  about how long each of a pair is timed

    Columns: the median with its quartiles in microseconds, how many times as fast as torch eager and as torch.compile
    (each pair timed in turn), and the share of the roofline of this chip that was reached, "unknown" where the
    registry has no figure for it. Caches are cold before every run. Without a GPU there is one row that says so.
    """
    _check(rungs)
    machine = probe()
    if machine.vendor == "cpu":
        return {"not timed": {"why": "this machine has no GPU, and a virtual GPU has no clock"}}
    import torch as library

    on_gpu = [value.to("cuda") if isinstance(value, library.Tensor) else value for value in args]
    compiled = library.compile(torch)
    rows: Rows = {}
    for name, rung in rungs.items():
        call = _called(rung, on_gpu)
        eager, fused = (
            bench(call, against=_called(other, on_gpu), seconds=seconds, device="cuda") for other in (torch, compiled)
        )
        assert isinstance(eager, Ratio)
        assert isinstance(fused, Ratio)
        time = eager.fn
        share = share_of_roofline(machine.chip, dtype, Point(name, flops, bytes, time.median))
        rows[name] = {
            "median (us)": round(time.median * 1e6, 1),
            "quartiles (us)": f"{time.low * 1e6:.1f} to {time.high * 1e6:.1f}",
            "x torch eager": round(eager.ratio, 2),
            "x torch.compile": round(fused.ratio, 2),
            "of the roofline": None if share is None else f"{share:.0%}",
        }
    return rows


def _called(rung: Callable[..., Any], args: Sequence[Any]) -> Callable[[], Any]:
    return lambda: rung(*args)


def _check(rungs: Rungs) -> None:
    if not rungs:
        raise BadArgument("a ladder without rungs was given; expected a dict of names and launchers")
