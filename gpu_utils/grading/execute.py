"""Running an answer once: its value, or how it failed, with time, output and memory under control.

Nothing here judges. An Attempt is plain data, so that it can come from this process (a notebook) or from another one
(the command line).
"""

from __future__ import annotations

import contextlib
import copy
import errno
import inspect
import linecache
import os
import re
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from gpu_utils.backends import Backend, idle_kernels
from gpu_utils.chips import probe
from gpu_utils.errors import CheckTimeout, CompileFailed, GradientLost, W2WError
from gpu_utils.grading.devices import foreign_tensor
from gpu_utils.grading.exercise import Inputs, Kind
from gpu_utils.grading.fp8 import as_on
from gpu_utils.grading.plain import copy_of, plain
from gpu_utils.grading.report import Mode
from gpu_utils.grading.surroundings import BoundedOutput, TimeLimit, poisoned_memory, usual_settings
from gpu_utils.grading.watch import let_causal_biases_be_made
from gpu_utils.own_line import own_line
from gpu_utils.virtual import MODELS

EXPLAIN_SECONDS = 1.0
"""For reading what an exception of the learner's own says."""

NO_COMPILER = "CompilerMissing"
NO_SPACE = "NoSpace"
NO_VERDICT = (NO_COMPILER, NO_SPACE)
"""Errors of an attempt that cannot be judged: what compiles the answer is not installed, or has no room to write."""

HUNG = "RanksHung"
"""Error of an attempt whose ranks wait for each other: it has cost all of its time."""

_FULL = "the disk is full, so the answer could not be run ({}); free some space, or set {}"
_OF_THE_SYSTEM = {
    errno.ENOSPC: (NO_SPACE, _FULL),
    errno.EDQUOT: (NO_SPACE, _FULL),
    errno.ENAMETOOLONG: ("OSError", "a name is too long for a file ({}); give the kernel or the file a shorter one"),
}
"""Number of an OSError -> the attempt's error, and the sentence that is said in its place."""

_NO_CACHE = "what was compiled cannot be kept, so the answer could not be run ({}); set {}"
_ELSEWHERE = "TRITON_CACHE_DIR and W2W_CACHE to folders that you can write and that have space"

_LOST = re.compile(r"illegal memory access|misaligned address|unspecified launch failure|device-side assert")
_OF_A_LOST_DEVICE = (
    "a kernel reached outside of its tensors, or stopped in an assertion ({}), and the GPU does nothing more for this "
    "process, also for a right answer: restart the notebook's kernel and run its cells again. Which access it was is "
    'said by a virtual GPU: check("{}", backends=["virtual:{}"])'
)

_PLACE = re.compile(r"\(([^():]+):(\d+)(: |\))")


class Contract(Protocol):
    """What running an answer needs to know of an exercise: not its cases, nor what is right."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> tuple[str, ...]: ...
    @property
    def signature(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def call(self) -> Callable[[Callable[..., Any], Inputs], Any]: ...
    @property
    def limits(self) -> Sequence[Counted]: ...
    @property
    def torch_may(self) -> tuple[str, ...] | None: ...
    @property
    def seconds(self) -> float: ...


class Counted(Protocol):
    """A limit's counter."""

    @property
    def counter(self) -> str: ...


@dataclass
class Attempt:
    """What one run of an answer gave.

    value     what it returned, as plain data (`gpu_utils.grading.plain`), tensors on the CPU; None when it raised
    error     name of the exception, "" for none; "timeout", "died", and "missing", "signature" and "cell" for an answer
              that could not be called, are set by the runner
    message   the sentence of the exception and the learner's line
    device    where the first tensor of the value was, when that is not the backend's device; else ""
    foreign   in Mode.DEVICE: what a GPU would refuse; else ""
    by_torch  what torch did of the kernel's work, where the exercise leaves it none: "copy", "work" or ""
    torch_did the same in a sentence
    unwritten the stub was still there: NotImplementedError("<id> is yours to write")
    compiled  target -> "" when the recorded kernels compiled for it, else the error
    """

    value: Any = None
    error: str = ""
    message: str = ""
    unwritten: bool = False
    mutated: tuple[str, ...] = ()
    device: str = ""
    foreign: str = ""
    by_torch: str = ""
    torch_did: str = ""
    counters: dict[str, float] = field(default_factory=dict)
    compiled: dict[str, str] = field(default_factory=dict)
    printed: str = ""
    printed_total: int = 0
    seconds: float = 0.0

    @property
    def final(self) -> bool:
        """Whether no further case would tell more: nothing is written, the time is over, no function, no compiler."""
        return self.unwritten or self.error in (HUNG, "timeout", "missing", "signature", "cell", *NO_VERDICT)


def run(
    exercise: Contract,
    answer: Callable[..., Any],
    inputs: Inputs,
    backend: Backend,
    compile_targets: tuple[str, ...] = (),
    mode: Mode = Mode.RUN,
) -> Attempt:
    """Call the answer on copies of the inputs, on one backend.

    The call is stopped after `exercise.seconds` (main thread only: the alarm is a signal). Output is captured. New
    memory from torch.empty is filled with NaN, so that elements which are never written are seen. Every call starts
    from torch's own settings, and a process that the answer forked ends here. KeyboardInterrupt is passed on.
    In Mode.IDLE every kernel that the answer launches does nothing; in Mode.DEVICE only `foreign` is found.
    """
    attempt = Attempt()
    output = BoundedOutput()
    process = os.getpid()
    start = time.perf_counter()
    strays: list[str] = []

    def brought_home(tensor: torch.Tensor) -> torch.Tensor | None:
        if tensor.device.type == session.device:
            return copy_of(tensor, "cpu")
        strays.append(str(tensor.device))
        return None

    try:
        counted = backend.counting({limit.counter for limit in exercise.limits})
        with usual_settings(), counted.session() as session:
            given = plain(inputs, lambda tensor: copy_of(tensor, session.device))
            kept = copy.deepcopy(given)
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                without = idle_kernels() if mode is Mode.IDLE else contextlib.nullcontext()
                with TimeLimit(exercise.seconds):  # what the answer returned may hold code of its own: read within
                    with poisoned_memory(), without:
                        if mode is Mode.DEVICE:
                            attempt.foreign = foreign_tensor(exercise, answer, given)
                            return attempt
                        watched = mode is Mode.RUN and exercise.torch_may is not None
                        value = (_called_and_watched if watched else _called)(exercise, answer, given, attempt)
                        if session.device == "cuda":
                            torch.cuda.synchronize()
                    value = plain(value, brought_home)
                    attempt.mutated = tuple(name for name in given if not same(kept[name], given[name]))
            attempt.device = strays[0] if strays else ""
            attempt.value = None if strays else value
        attempt.counters = dict(session.counters)
        if session.launches:
            attempt.compiled = _compile(session.launches, compile_targets)
    except CheckTimeout:
        attempt.error = "timeout"
        attempt.message = f"stopped after its limit of {exercise.seconds:g} s; is there a loop that never ends?"
    except KeyboardInterrupt:
        raise
    except SystemExit as problem:
        attempt.error, attempt.message = "SystemExit", f"the answer called exit({problem.code}); return a value instead"
    except BaseException as problem:
        try:
            with TimeLimit(EXPLAIN_SECONDS):  # an exception of the learner's own may never say what it is
                _explain(attempt, problem, exercise.id)
                if isinstance(problem, GradientLost):
                    with contextlib.suppress(RuntimeError, MemoryError):  # 10 GB by expand: there is no copy of it
                        attempt.value = plain(problem.value, brought_home)
                unwritten = f"{exercise.id} is yours to write"
                attempt.unwritten = isinstance(problem, NotImplementedError) and unwritten in _text(problem)
        except CheckTimeout:
            attempt.message = f"{attempt.error}: no message, because reading it never ended"
    finally:
        if os.getpid() != process:
            os._exit(0)
    attempt.seconds = time.perf_counter() - start
    attempt.printed, attempt.printed_total = output.getvalue(), output.total
    return attempt


def _called_and_watched(exercise: Contract, answer: Callable[..., Any], given: Inputs, attempt: Attempt) -> Any:
    from gpu_utils.grading.beside_kernels import watching

    with watching(given, exercise.torch_may or ()) as work:
        value = exercise.call(answer, given)
    attempt.by_torch, attempt.torch_did = work.kind, work.found
    return value


def _called(exercise: Contract, answer: Callable[..., Any], given: Inputs, _attempt: Attempt) -> Any:
    try:
        return exercise.call(answer, given)
    except RuntimeError as problem:
        if not let_causal_biases_be_made(str(problem)):
            raise
    return exercise.call(answer, given)


def same(one: Any, other: Any) -> bool:
    """Whether two trees of plain data are equal, tensors bit by bit."""
    if isinstance(one, torch.Tensor):
        if not isinstance(other, torch.Tensor) or one.shape != other.shape or one.dtype != other.dtype:
            return False
        return torch.equal(_bits(one), _bits(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or one is other


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as bytes, so that NaN equals itself."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8) if tensor.numel() else tensor


def _compile(launches: list[Any], targets: tuple[str, ...]) -> dict[str, str]:
    from gpu_utils.compiler import compile_for

    results = {}
    for target in targets:
        results[target] = ""
        for launch in {id(launch.kernel): launch for launch in launches}.values():
            try:
                args = tuple(as_on(target, value) for value in launch.args)
                compile_for(launch.kernel, target, args=args, **{k: as_on(target, v) for k, v in launch.kwargs.items()})
            except CompileFailed as problem:
                results[target] = str(problem)
                break
    return results


def _explain(attempt: Attempt, problem: BaseException, exercise: str) -> None:
    attempt.error = type(problem).__name__[:80]
    if isinstance(problem, OSError) and _explain_system(attempt, problem):
        return
    text = _text(problem)
    if isinstance(problem, torch.AcceleratorError) and _LOST.search(text):
        attempt.error = "DeviceLost"
        attempt.message = f"DeviceLost: {_OF_A_LOST_DEVICE.format(text.splitlines()[0][:200], exercise, _twin())}"
        return
    sentence = text.splitlines()[-1] if text and not isinstance(problem, W2WError) else text
    sentence, quoted = quote_kernel_line(sentence)
    if any(
        kind.__name__ == "CompilationError" for kind in type(problem).__mro__
    ):  # Triton's: the kernel's line, no launch
        from gpu_utils.compiler.triton import first_error

        sentence, quoted = first_error(problem, ""), True
    line = "" if quoted else learner_line(problem)
    attempt.message = f"{attempt.error}: {sentence or 'no message'}{f' ({line})' if line else ''}"[:800]


def _twin() -> str:
    """The virtual GPU of this machine's device, or one of its vendor."""
    found = probe()
    if found.target in MODELS:
        return found.target
    return "gfx942" if found.vendor == "amd" else "sm_80"


def _explain_system(attempt: Attempt, problem: OSError) -> bool:
    """Whether an error of the system was the machine's and not the answer's: then it is explained."""
    said = f"{problem.strerror}: {problem.filename}"[:300] if problem.filename else str(problem.strerror)
    if problem.errno in _OF_THE_SYSTEM:
        attempt.error, sentence = _OF_THE_SYSTEM[problem.errno]
    elif _in_a_cache(problem.filename):
        attempt.error, sentence = NO_SPACE, _NO_CACHE
    else:
        return False
    attempt.message = sentence.format(said, _ELSEWHERE)
    return True


def _in_a_cache(path: Any) -> bool:
    """Whether a path lies in a folder where compiled kernels are kept, or on the way to one."""
    given = (os.environ.get("TRITON_CACHE_DIR"), os.environ.get("W2W_CACHE"), Path("~/.triton").expanduser())
    if not isinstance(path, str):
        return False
    found = Path(path).absolute()
    return any(found.is_relative_to(cache) or Path(cache).is_relative_to(found) for cache in given if cache)


def quote_kernel_line(sentence: str) -> tuple[str, bool]:
    """The sentence with the first place "(file:line)" or "(file:line: text)" replaced by the line, and whether it was.

    A virtual GPU names places so. The line is quoted when Python has the file's text, as it has for notebook cells.
    """
    for place in _PLACE.finditer(sentence):
        if place[3] == ": ":  # the virtual GPU knew the text
            return sentence.replace(place[0], f"(line {place[2]}: ", 1), True
        file = next((name for name in linecache.cache if name.rsplit("/", 1)[-1] == place[1]), "")
        source = linecache.getline(file, int(place[2])).strip() if file else ""
        if source:
            return sentence.replace(place[0], f"(line {place[2]}: {source})", 1), True
    return sentence, False


def _text(problem: BaseException) -> str:
    """What an exception says, also when it is the learner's own class and its __str__ fails."""
    try:
        return str(problem).strip()
    except (CheckTimeout, KeyboardInterrupt):
        raise
    except BaseException:
        return ""


def learner_line(problem: BaseException) -> str:
    """The last line of the traceback that is the learner's own: "line 3: y = x[n]"; "" when none is."""
    frames = traceback.extract_tb(problem.__traceback__)
    return own_line((frame.filename, frame.lineno or 0, frame.name, frame.line or "") for frame in frames)


def signature_problem(exercise: Contract, answer: Any) -> str:
    """A sentence when `answer` cannot be called as the exercise asks; "" when it can."""
    if not callable(answer):
        return (
            f"{exercise.name} is of type {type(answer).__name__}, expected a function {exercise.signature}; "
            "was the name used for something else in a later cell?"
        )
    if inspect.iscoroutinefunction(answer) or inspect.isgeneratorfunction(answer):
        found = "an async function" if inspect.iscoroutinefunction(answer) else "a generator, because it holds a yield"
        return f"{exercise.name} is {found}; expected a plain function {exercise.signature} that returns its result"
    try:
        parameters = list(inspect.signature(answer).parameters.values())
    except (TypeError, ValueError):
        return ""
    by_name = [p for p in parameters if p.kind not in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)]
    names = tuple(parameter.name for parameter in by_name)
    required = tuple(
        p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    )
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    extra = [name for name in required if name not in exercise.parameters]
    missing = [name for name in exercise.parameters if name not in names and not takes_any]
    if extra or missing:
        taken = inspect.Signature([p.replace(annotation=p.empty, default=p.empty) for p in parameters])
        return f"{exercise.name} takes {taken}, expected ({', '.join(exercise.parameters)}), each given by its name"
    return ""
