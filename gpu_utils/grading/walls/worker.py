"""In the process of one exercise, inside of the walls: the answer runs here, and nothing that could judge it does."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_utils.grading.answering import about_missing, answer_of
from gpu_utils.grading.execute import Attempt, run
from gpu_utils.grading.handing_over import fields_of
from gpu_utils.grading.plain import plain
from gpu_utils.grading.program import Part, Program
from gpu_utils.grading.report import Mode
from gpu_utils.grading.walls import wire
from gpu_utils.grading.walls.refusing import refuse
from gpu_utils.grading.walls.spec import Spec, spec_of, with_call

NOT_HERE = ("check", "hint", "solution", "progress", "challenge", "explore", "predict", "listing")
"""Names of the course that do nothing while an answer is graded."""


def main(payload: bytes, out: int) -> None:
    """Run every job of a request and send what each gave to `out`; after a final one, no more."""
    os.setsid()
    with open(os.devnull, "r+") as nowhere:
        for stream in (0, 1, 2):
            os.dup2(nowhere.fileno(), stream)
    request = wire.unpack(payload)
    spec = spec_of(request["spec"])
    program = _program(request["program"])
    _leave_out_the_course()
    refuse(spec.forbids)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        answer, problem = answer_of(spec, program, Path(name))
        for job in request["jobs"]:
            attempt, record = (problem, None) if problem else _one(spec, answer, job)
            if attempt.error == "NameError" and problem is None:
                attempt.message += about_missing(program, attempt.message)
            wire.send(out, {"attempt": fields_of(attempt), "record": record})
            if attempt.final:
                return


def _one(spec: Spec, answer: Any, job: dict[str, Any]) -> tuple[Attempt, dict[str, Any] | None]:
    from gpu_utils.backends import backend

    where, targets, mode = backend(job["backend"]), tuple(job["targets"]), Mode[job["mode"]]
    if spec.kind == "cpp":  # its kernel is compiled and launched elsewhere
        return run(with_call(spec, _source), answer, {}, backend("cpu"), (), mode), None
    if spec.kind == "tile":  # lowering runs the answer's Python; what it gives is compiled and launched elsewhere
        return run(with_call(spec, _lowering(spec)), answer, job["inputs"], backend("cpu"), (), mode), None
    if not job["record"]:
        return run(spec, answer, job["inputs"], where, targets, mode), None
    from gpu_utils.grading.walls.recording import Record, recorded_call

    where = where if job["assemble"] else where.hurried(())  # ptxas runs where the launch is done again

    def recorded(record: Record) -> Attempt:
        return run(with_call(spec, recorded_call(spec.call, record)), answer, job["inputs"], where, targets, mode)

    record = Record()
    attempt = recorded(record)
    if record.launched and (attempt.error not in ("", "timeout") or record.looked):
        record = Record(runs=True)  # it looks at what its kernels have written: now they do write
        attempt = recorded(record)
    attempt.counters = {}
    return attempt, record.as_data()


def _source(answer: Callable[[], Any], inputs: Any) -> Any:
    found = plain(answer())
    return found if isinstance(found, str) else {"type": type(found).__name__}


def _lowering(spec: Spec) -> Callable[[Any, Any], Any]:
    tiled: Any = spec.call
    return lambda answer, inputs: tiled.lowered(answer, inputs).as_data()


def _program(found: dict[str, Any]) -> Program:
    parts = tuple(Part(name, source) for name, source in found["parts"])
    return Program(parts, frozenset(found["futures"]), dict(found["not_taken"]))


def _leave_out_the_course() -> None:
    """Setup cells import names of the course: those that would judge or show do nothing here."""
    import gpu_utils
    from gpu_utils import lazy

    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    for name in NOT_HERE:
        setattr(gpu_utils, name, nothing)
    lazy.absent = _Absent


class _Absent:
    """Stands for a name of the course that is not there while an answer is graded."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _say(self) -> str:
        return f"{self._name} of the course is not there while an answer is graded; compute it in the answer's cell"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NameError(self._say())

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(self._say())
