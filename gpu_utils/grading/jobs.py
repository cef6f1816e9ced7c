"""What a check runs: every case, public and fresh, on every backend that applies, with what is expected of it."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from gpu_utils.backends import Backend, backend
from gpu_utils.chips.npus import NPUS
from gpu_utils.compiler.triton import INTERPRETED
from gpu_utils.errors import CompilerMissing
from gpu_utils.grading.execute import same
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs
from gpu_utils.grading.fp8 import e4m3_of, without_fp8
from gpu_utils.grading.report import Mode

FRESH_CASES = 3
"""Cases that are drawn anew at every check. The last has the sizes of the one before, where its values differ."""

AGAIN = "the sizes of the case before with other values: nothing may be kept from one call to the next"
LAUNCHES = "launches"
"""The counter that every backend with kernels has."""

_NARROW = {"bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"}


@dataclass(frozen=True)
class Job:
    """One case on one backend, with its inputs and the expected value (which never leaves the grader).

    compile_targets  what the kernels of this run are also compiled for
    skipped          why it cannot run; "" when it can
    unjudged         whether that is because the reference has no compiler: nothing else will judge the case
    mode             Mode.RUN; Mode.IDLE: every kernel does nothing, and the result must then be wrong; Mode.DEVICE: on
                     the CPU, as if it were a GPU
    """

    case: Case
    fresh: bool
    backend: str
    inputs: Inputs
    expected: Any
    compile_targets: tuple[str, ...] = ()
    skipped: str = ""
    unjudged: bool = False
    mode: Mode = Mode.RUN


def choose_backends(exercise: Exercise, names: Sequence[str] | None = None) -> list[Backend]:
    """The backends of a check: those asked for, else W2W_BACKENDS where it applies, else the machine's default.

    The default is a real GPU when there is one; otherwise the CPU, where kernels run on the exercise's virtual GPUs.
    An exercise with limits on what only a virtual GPU counts runs there as well as on the real one, and a C++ kernel
    runs there only: the vendors' compilers and launchers, which a real GPU would need, are not required of a learner.
    So does a tile program, each case on the chip that it names.
    """
    if names is None:
        wanted = [name.strip() for name in os.environ.get("W2W_BACKENDS", "").split(",") if name.strip()]
        names = [name for name in (backend(name).name for name in wanted) if _applies(exercise, name)]
    if names:
        return [backend(name) for name in names]
    found = [where for where in map(backend, _defaults(exercise)) if where.unavailable() is None]
    if exercise.fp8:
        found = [where for where in found if not without_fp8(where.name)]
    enough = all(limit.counter == LAUNCHES for limit in exercise.limits)
    return found[:1] if found[0].name == "gpu" and enough else found


def _defaults(exercise: Exercise) -> tuple[str, ...]:
    on_virtual = tuple(f"virtual:{target}" for target in exercise.targets)
    kinds = {"kernel": ("gpu", *on_virtual), "torch": ("gpu", "cpu"), "host": ("cpu",)}
    return kinds.get(exercise.kind, on_virtual)


def _applies(exercise: Exercise, name: str) -> bool:
    if exercise.kind == "kernel":
        return name in ("gpu", "interpreter") or name.startswith("virtual:")
    family, _, target = name.partition(":")
    if exercise.kind == "cpp":
        return family == "virtual" and (target in NPUS) == (exercise.targets[0] in NPUS)
    return name in _defaults(exercise)


def make_jobs(exercise: Exercise, seed: int, names: Sequence[str] | None = None) -> list[Job]:
    """Every case on the first backend, then on the next. The same seed gives the same jobs; nobody may change them."""
    chosen = choose_backends(exercise, names)
    executed = {where.name.removeprefix("virtual:") for where in chosen}
    to_compile = tuple(target for target in exercise.targets if target not in executed)
    jobs = []
    for number, where in enumerate(chosen):
        drawn = draw(exercise, seed, e4m3_of(exercise, where.name))
        for index, (case, fresh, inputs, expected, uncompiled) in enumerate(drawn):
            if exercise.kind == "tile" and where.name != f"virtual:{case['target']}":
                continue
            compiles = index == number == 0 and exercise.kind == "kernel" and not exercise.machine_code
            reason = where.unavailable() or _cannot_run(exercise, where.name, inputs) or uncompiled
            if not _applies(exercise, where.name):
                reason = f"{exercise.id} does not run on {where.name}"
            compiled = to_compile if compiles else ()
            jobs.append(Job(case, fresh, where.name, inputs, expected, compiled, reason or "", bool(uncompiled)))
    if exercise.kind == "tile":  # each case has a chip of its own, and the first failures tell more on several
        places = {case.case.label: place for place, case in enumerate(draw(exercise, seed))}
        jobs.sort(key=lambda job: (job.fresh, places[job.case.label]))
    first = next((job for job in jobs if not job.skipped), None)
    if exercise.kind in ("kernel", "cpp", "tile") and first:
        jobs.append(replace(first, compile_targets=(), mode=Mode.IDLE))
    on_cpu = [job for job in jobs if not (job.skipped or job.fresh) and job.backend == "cpu"]
    if exercise.kind == "torch" and on_cpu:
        jobs.append(replace(on_cpu[-1], mode=Mode.DEVICE))
    return jobs


class Drawn(NamedTuple):
    """A case with its inputs, what the reference makes of them, and why it could not ("" when it could)."""

    case: Case
    fresh: bool
    inputs: Inputs
    expected: Any
    uncompiled: str


@lru_cache(maxsize=4)
def draw(exercise: Exercise, seed: int, fp8: str = "") -> tuple[Drawn, ...]:
    """The cases of a check, public and fresh: kept, because a class is graded with one seed.

    fp8  the format that the cases of an exercise in FP8 name; backends that have the same one share the values
    """
    rng = random.Random(_subseed(seed, exercise.id, "fresh"))
    cases = [(case, False) for case in exercise.cases] + [(exercise.fresh(rng), True) for _ in range(FRESH_CASES)]
    drawn: list[Drawn] = []
    for index, (case, fresh) in enumerate(cases):
        case = case.having(fp8=fp8) if fp8 else case
        generator = torch.Generator().manual_seed(_subseed(seed, exercise.id, str(index)) % 2**63)
        if fresh and index + 1 == len(cases):
            case = _once_more(exercise, drawn[-1], case, generator.clone_state())
        inputs = case.inputs if isinstance(case, Example) else exercise.inputs(case, generator)
        drawn.append(Drawn(case, fresh, inputs, *_expected(exercise, inputs)))
    return tuple(drawn)


def _once_more(exercise: Exercise, before: Drawn, case: Case, generator: torch.Generator) -> Case:
    """The case before, where it draws other values this time; else `case`. An answer that keeps results is found so."""
    other = exercise.inputs(before.case, generator)
    return case if same(other, before.inputs) else Case(AGAIN, **before.case.params)


def _expected(exercise: Exercise, inputs: Inputs) -> tuple[Any, str]:
    """What the reference returns, or why it has no compiler to ask."""
    try:
        return exercise.reference(**inputs), ""
    except CompilerMissing as problem:
        return None, str(problem)


def _cannot_run(exercise: Exercise, name: str, inputs: Inputs) -> str | None:
    if name.startswith("virtual:") and exercise.kind == "kernel" and os.environ.get("TRITON_INTERPRET") == "1":
        return INTERPRETED
    if exercise.fp8 and (problem := without_fp8(name)):
        return problem
    if name != "interpreter":
        return None
    if exercise.machine_code:
        return "Triton's interpreter has no target and no inline assembly"
    for value in inputs.values():
        if isinstance(value, torch.Tensor) and str(value.dtype).removeprefix("torch.") in _NARROW:
            return f"Triton's interpreter computes {value.dtype} wrongly"
    return None


def _subseed(seed: int, *parts: str) -> int:
    digest = hashlib.sha256("/".join([str(seed), *parts]).encode()).digest()
    return int.from_bytes(digest[:8], "little")
