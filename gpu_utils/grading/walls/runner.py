"""The grader's side of the walls: a Runner that has an answer run inside, and its launches done again."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import torch

from gpu_utils.compiler.tilelang import installed
from gpu_utils.grading.answering import START_SECONDS
from gpu_utils.grading.check import Runner
from gpu_utils.grading.compare import of_part
from gpu_utils.grading.execute import NO_VERDICT, Attempt
from gpu_utils.grading.exercise import Exercise, Inputs
from gpu_utils.grading.handing_over import attempt_of
from gpu_utils.grading.jobs import Job
from gpu_utils.grading.program import Program
from gpu_utils.grading.report import Mode
from gpu_utils.grading.surroundings import PRINT_LIMIT
from gpu_utils.grading.verdicts import judge
from gpu_utils.grading.walls import bwrap, wire
from gpu_utils.grading.walls.confine import Limits
from gpu_utils.grading.walls.spec import fields_of, hidden
from gpu_utils.grading.walls.talking import Broken, Child, Process

GRACE_SECONDS = 5.0
"""On top of an exercise's own limit, before a process is ended from outside."""

TIMES = 6
"""All cases of an answer together may take so many times its limit of seconds, and START_SECONDS."""

MOST_WORDS = 16 << 20
"""Bytes of what an answer's process says that are not the memory of tensors."""

END_SECONDS = 10.0
_MODULES = "gpu_utils.grading.walls"


class Walls:
    """The processes of one grader: a nursery for each kind of answer, and a replayer. Each starts when it is needed.

    walled   False runs them with the grader's own rights
    devices  whether a real GPU's device nodes are inside
    """

    def __init__(self, walled: bool = True, devices: bool = False) -> None:
        if walled:
            bwrap.require()
        self.walled, self._devices = walled, devices
        self._running: dict[str, Process] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Walls:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for process in self._running.values():
            process.close()
        self._running.clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def start(self, *names: str) -> None:
        """Start these, so that they get ready while something else is done."""
        for name in names:
            if name not in self._running:
                self._running[name] = self._new(name)

    def _new(self, name: str) -> Process:
        module, *arguments = ("replayer",) if name == "replayer" else ("nursery", name)
        if self.walled:
            return Process(bwrap.inside(f"{_MODULES}.{module}", *arguments, devices=self._devices))
        environment = {**os.environ, **bwrap.environment(str(bwrap.LIBRARY.parent), self._scratch())}
        return Process(bwrap.outside(f"{_MODULES}.{module}", *arguments), environment)

    def _scratch(self) -> str:
        """A temporary folder for what runs without walls; it goes with them."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="w2w-answers-", ignore_cleanup_errors=True)
        return self._folder.name

    def process(self, name: str) -> Process:
        self.start(name)
        found = self._running[name]
        found.wait_until_ready()
        return found

    def replace(self, name: str) -> None:
        """End one; the next that needs it gets a new one."""
        self._running.pop(name).close()

    @contextlib.contextmanager
    def child(self, kind: str, request: dict[str, Any], payload: bytes) -> Iterator[Child]:
        """A clean process for one answer, by the nursery, which reads `request`; `payload` is for the child alone."""
        child = self._asked(kind, wire.pack({"do": "run", **request}), payload)
        try:
            yield child
        finally:
            try:
                child.stop(wire.pack({"do": "stop"}), END_SECONDS)
            except (Broken, wire.TooLate):
                self.replace(kind)

    def _asked(self, kind: str, *messages: bytes) -> Child:
        """The child of a nursery that has the messages; of another one where the first is gone."""
        try:
            return self._sent(kind, *messages)
        except Broken:
            self.replace(kind)
            return self._sent(kind, *messages)

    def _sent(self, kind: str, *messages: bytes) -> Child:
        nursery = self.process(kind)
        for message in messages:
            nursery.send(message)
        return Child(nursery)


def run_walled(program: Program, walls: Walls) -> Runner:
    """A Runner for `check`: the answer's cells run inside of walls, with decoys where a kernel does the work."""

    def runner(exercise: Exercise, jobs: Sequence[Job]) -> Generator[Attempt, None, None]:
        kind = "kernel" if exercise.kind == "kernel" else "tile" if exercise.kind == "tile" and installed() else "plain"
        assembles = exercise.machine_code or any(job.compile_targets for job in jobs)  # ptxas is a program of its own
        asked = [job for job in jobs if not _is_replayed_only(exercise, job)]
        memory = Limits.memory + exercise.address_space
        request = {
            "limits": dataclasses.asdict(Limits(memory, processes=assembles or exercise.ranks)),
            "hidden": [f"{bwrap.COURSE}/gpu_utils/{name}" for name in hidden(exercise)],
        }
        if exercise.kind in ("kernel", "cpp", "tile"):
            walls.start("replayer")
        with walls.child(kind, request, wire.pack(_request(exercise, program, asked))) as child:
            yield from _attempts(exercise, jobs, child, walls)

    return runner


def _is_replayed_only(exercise: Exercise, job: Job) -> bool:
    return _is_recorded(exercise, job) and job.mode is Mode.IDLE


def _is_recorded(exercise: Exercise, job: Job) -> bool:
    """Whether its launches are done again elsewhere: a real GPU and Triton's interpreter run them where they are."""
    return exercise.kind == "kernel" and job.backend.startswith("virtual:")


def _request(exercise: Exercise, program: Program, jobs: Sequence[Job]) -> dict[str, Any]:
    if exercise.kind == "cpp":
        jobs = jobs[:1]  # it is asked for its source once
    return {
        "spec": dict(fields_of(exercise)),
        "program": {
            "parts": [(part.name, part.source) for part in program.parts],
            "futures": sorted(program.futures),
            "not_taken": dict(program.not_taken),
        },
        "jobs": [
            {
                "backend": job.backend,
                "inputs": _given(exercise, job),
                "targets": job.compile_targets,
                "mode": job.mode.name,
                "assemble": exercise.machine_code,
                "record": _is_recorded(exercise, job),
            }
            for job in jobs
        ],
    }


def _attempts(exercise: Exercise, jobs: Sequence[Job], child: Child, walls: Walls) -> Generator[Attempt, None, None]:
    said: dict[str, tuple[Attempt, Any]] = {}  # of each backend, the first: an idle run replays it
    source: tuple[Attempt, Any] | None = None
    end = time.monotonic() + START_SECONDS + TIMES * exercise.seconds
    for number, job in enumerate(jobs):
        start = START_SECONDS if number == 0 else 0.0
        if time.monotonic() > end:
            yield Attempt(error="timeout", message=f"its cases together took more than {TIMES} times its limit")
            return
        if _is_replayed_only(exercise, job):
            found = said.get(job.backend)
            if found is None:
                return
        elif exercise.kind == "cpp" and source is not None:
            found = source
        else:
            found = _next(child, job, start + exercise.seconds + GRACE_SECONDS, exercise.seconds)
            said.setdefault(job.backend, found)
            source = found
        attempt = _judged_again(exercise, job, *found, walls)
        yield attempt
        if attempt.final or attempt.error == "died":
            return


def _judged_again(exercise: Exercise, job: Job, attempt: Attempt, record: Any, walls: Walls) -> Attempt:
    """What the run inside gave; where a kernel does the work, what doing it again gives."""
    in_source = exercise.kind in ("cpp", "tile")
    if attempt.error or not (in_source or _is_recorded(exercise, job)):
        return attempt
    more = {"source": attempt.value} if in_source else {"record": record}
    again = _replayed(exercise, job, more, walls)
    again.printed, again.printed_total = attempt.printed, attempt.printed_total
    again.compiled = attempt.compiled
    if attempt.by_torch and again.error in ("", "BadRecord"):
        return _by_torch(exercise, job, attempt, again)
    return again


def _by_torch(exercise: Exercise, job: Job, attempt: Attempt, again: Attempt) -> Attempt:
    """Torch did a kernel's work, and says so itself: that is the verdict, unless there is a harder one."""
    if again.error and exercise.judge is None:  # it holds what no kernel did, and so nothing could be done again
        value = _in_dtype(job.expected, exercise.dtype(job.inputs))
        again = Attempt(value=value, counters={"launches": again.counters.get("launches", 0)})
    said = dataclasses.replace(again, by_torch=attempt.by_torch, torch_did=attempt.torch_did)
    if judge(exercise, job, said).status == "failed":
        return said
    return Attempt(error="BadRecord", message=attempt.torch_did)


def _in_dtype(expected: Any, dtypes: Any) -> Any:
    """An expected value as an answer would give it."""
    if isinstance(expected, dict):
        return {name: _in_dtype(part, of_part(dtypes, name)) for name, part in expected.items()}
    if isinstance(expected, (list, tuple)):
        return [_in_dtype(part, of_part(dtypes, number)) for number, part in enumerate(expected)]
    floating = isinstance(expected, torch.Tensor) and expected.is_floating_point() and dtypes is not None
    return expected.to(dtypes) if floating else expected


def _replayed(exercise: Exercise, job: Job, more: dict[str, Any], walls: Walls) -> Attempt:
    request = {
        "spec": dict(fields_of(exercise)),
        "backend": job.backend,
        "inputs": job.inputs,
        "mode": job.mode.name,
        **more,
    }
    try:
        replayer = walls.process("replayer")
        replayer.send(wire.pack(request))
        return _attempt(wire.unpack(replayer.receive(2 * exercise.seconds + GRACE_SECONDS))["attempt"], job)
    except wire.TooLate:
        walls.replace("replayer")
        message = f"stopped after its limit of {exercise.seconds:g} s; is there a loop that never ends?"
        return Attempt(error="timeout", message=message)
    except (Broken, KeyError, TypeError):
        walls.replace("replayer")
        return Attempt(error="died", message="its kernel ended the process that executed it")


def _next(child: Child, job: Job, seconds: float, limit: float) -> tuple[Attempt, Any]:
    """What the child says next: an attempt and its record."""
    try:
        message = child.receive(seconds)
        if message is None:
            end = wire.unpack(child.end or b"")
            said = end["said"]
            return Attempt(error="died", message=f"{said}: no result" if said else _death(end["end"])), None
        found = wire.unpack(message, MOST_WORDS)
        attempt = _attempt(found["attempt"], job)
        if attempt.error in NO_VERDICT:  # its disk is its own, and no compiler is asked for where it runs
            attempt.error = f"Own{attempt.error}"
        return attempt, found["record"]
    except wire.TooLate:
        return Attempt(error="timeout", message=f"did not come back within {limit + GRACE_SECONDS:g} s"), None
    except Broken:
        return Attempt(error="died", message="the process that started the answer ended with it: no result"), None
    except (wire.BadMessage, KeyError, TypeError) as problem:
        what = f"something else than a result ({problem if str(problem) else type(problem).__name__})"
        return Attempt(error="died", message=f"the answer's process gave {what}"), None


def _death(status: int) -> str:
    how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
    return f"the process ended ({how}) before it gave a result; does the answer exit, or crash in compiled code?"


def _attempt(fields: Any, job: Job) -> Attempt:
    """An attempt that was handed over: its sentences no longer than ours are, and of this job's targets and inputs."""
    found = attempt_of({**fields, "mutated": tuple(fields["mutated"])})
    shorter = {name: getattr(found, name)[:most] for name, most in _LONGEST.items()}
    compiled = {name: found.compiled[name][:MOST_DETAIL] for name in job.compile_targets if name in found.compiled}
    mutated = tuple(name for name in job.inputs if name in found.mutated)
    counters = dict(itertools.islice(found.counters.items(), MOST_COUNTERS))
    return dataclasses.replace(found, **shorter, compiled=compiled, mutated=mutated, counters=counters)


MOST_DETAIL, MOST_COUNTERS = 2000, 100
_LONGEST = {"error": 80, "message": MOST_DETAIL, "device": 80, "foreign": 500, "torch_did": 500, "printed": PRINT_LIMIT}


def _given(exercise: Exercise, job: Job) -> Inputs:
    """What the answer is given: the inputs, or decoys of the same shapes where a kernel must do all the work.

    For a source it is asked without any, and for a tile program with the sizes and the target.
    """
    if exercise.kind == "cpp":
        return {}
    if exercise.kind == "tile":
        return {name: value for name, value in job.inputs.items() if not isinstance(value, torch.Tensor)}
    if not _is_recorded(exercise, job) or exercise.torch_may is None:
        return job.inputs
    generator = torch.Generator().manual_seed(0)
    drawn = {name: _decoy(value, generator) for name, value in job.inputs.items()}
    return drawn if exercise.decoys is None else drawn | exercise.decoys(job.inputs, generator)


_MOST = 2**63 - 1


def _decoy(value: Any, generator: torch.Generator) -> Any:
    """The same with other numbers, drawn at random: whole ones between the smallest and the largest."""
    if isinstance(value, dict):
        return {key: _decoy(item, generator) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_decoy(item, generator) for item in value]
    if not isinstance(value, torch.Tensor) or not value.numel():
        return value
    raw = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
    if value.is_floating_point():
        other = torch.randn(raw.shape, generator=generator).to(value.dtype)
    else:
        low, above = int(raw.min()), int(raw.max()) + 1
        other = torch.randint(min(low, _MOST - 1), min(above, _MOST), raw.shape, generator=generator).to(value.dtype)
    return torch.empty(0, dtype=value.dtype).set_(
        other.untyped_storage(), value.storage_offset(), value.size(), value.stride()
    )
