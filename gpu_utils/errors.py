"""The tree of errors that a learner can meet: one clear sentence each.

Every message says what was found, what was expected and what to try. In a notebook only that
sentence is shown, without a traceback through the library (IPython asks for `_render_traceback_`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class W2WError(Exception):
    """Base of every error that the course raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class UnknownName(W2WError):
    """A name that is not in a table: an exercise id, a unit, a chip, a target or a backend.

    >>> print(UnknownName("exercise", "00.vectoradd", ["00.vector_add", "00.saxpy"]))
    there is no exercise '00.vectoradd'; did you mean '00.vector_add'?
    """

    def __init__(self, what: str, found: str, known: Iterable[str]) -> None:
        known = list(known)
        near = difflib.get_close_matches(str(found), known, n=3, cutoff=0.5)
        if near:
            advice = "did you mean " + " or ".join(repr(name) for name in near) + "?"
        else:
            advice = "there are " + ", ".join(known)
        super().__init__(f"there is no {what} {str(found)!r}; {advice}")
        self.what, self.found, self.near = what, found, near


class UnknownFigure(W2WError):
    """A figure of a chip that no source confirms, so that nothing can be computed from it."""


class NotWritten(W2WError):
    """A unit of the plan that has no content yet."""


class CompileFailed(W2WError):
    """A compiler refused a kernel; the message carries its first error."""


class AsmSyntaxError(W2WError):
    """Assembly text that cannot be read; the message names the line and what was expected."""


class BackendUnavailable(W2WError):
    """A backend cannot run here; the message says why and what would."""


class CompilerMissing(BackendUnavailable):
    """A compiler is not installed or switched off: what needs it is not graded, and never passed."""


class OutOfBounds(W2WError):
    """A kernel reached memory outside every tensor that it was given, or outside its block's shared memory."""


class ContentError(W2WError):
    """A mistake in content/: the message starts with file:line."""


class NotebookUnreadable(W2WError):
    """A notebook file that cannot be read as one."""


class ProfileUnreadable(W2WError):
    """A file that no reader of profiles can use: its name, what it is or seems to be, and what to do next.

    >>> print(ProfileUnreadable("run.ncu-rep", "is a report of ncu; export it: ncu --import run.ncu-rep --csv"))
    run.ncu-rep is a report of ncu; export it: ncu --import run.ncu-rep --csv
    """

    def __init__(self, path: object, what: str) -> None:
        super().__init__(f"{path} {what}")
        self.path = str(path)


class WorkConflict(W2WError):
    """A command would have overwritten something that the learner wrote."""


class CannotWrite(W2WError):
    """A file that could not be written; what was there before is untouched."""


class ForbiddenCall(W2WError):
    """An answer called the library function that its exercise asks to write."""


class GradientLost(W2WError):
    """backward() through an answer fails, or does not reach one of its inputs.

    value  what the answer returned all the same, or the parts of it that are known: a wrong one is said first
    """

    def __init__(self, message: str, value: object = None) -> None:
        super().__init__(message)
        self.value = value


class CheckTimeout(BaseException):
    """An answer ran past its time limit.

    A BaseException, so that `except Exception` inside an answer cannot swallow it.
    """


class VirtualGpuError(W2WError):
    """Base of what a virtual GPU reports about the kernel that it executes.

    report: of what a sanitizer found, both sides and what is missing (`gpu_utils.virtual.sanitize.report.Report`).
    """

    report: Any = None


class UnsupportedInstruction(VirtualGpuError):
    """The machine code holds an instruction that the virtual GPU does not execute: it stops before running anything."""

    def __init__(self, target: str, kernel: str, text: str, why: str = "") -> None:
        reason = f" ({why})" if why else ""
        super().__init__(
            f"the virtual {target} cannot execute `{text.strip()}` in kernel {kernel}{reason}; "
            "nothing was run; docs/virtual-gpu.md shows how to add an instruction"
        )
        self.target, self.kernel, self.mnemonic = target, kernel, (text.split() or [""])[0]


class MisalignedAccess(VirtualGpuError):
    """A lane accessed memory at an address that is not a multiple of the access width."""


class Race(VirtualGpuError):
    """Two programs, or two waves in shared memory, write one address in one launch with nothing that orders them."""


class LateData(VirtualGpuError):
    """A register or a word of shared memory was used before the data of an asynchronous access was waited for."""


class AbsentLane(VirtualGpuError):
    """A lane took a value from a lane of its wave that is off, or that its member mask does not name."""


class UninitialisedGlobal(VirtualGpuError):
    """A lane read global memory that nobody has written since it was allocated."""


class MissedBarrier(VirtualGpuError):
    """A thread ended without having come to a barrier that others of its block have passed."""


class UninitialisedShared(VirtualGpuError):
    """A lane read shared memory (LDS) that nobody in its block had written."""


class TensorMemoryFault(VirtualGpuError):
    """A kernel allocates, reaches, gives back or keeps tensor memory (sm_100) in a way that the PTX manual forbids."""


class UnwrittenOutput(VirtualGpuError):
    """A launch left elements of an output unwritten."""


class BarrierDeadlock(VirtualGpuError):
    """Some waves of a block wait at a barrier that the others can never reach."""


class StepLimit(VirtualGpuError):
    """A loop went round more often than the virtual GPU was told to wait for."""


class ResourceLimit(VirtualGpuError):
    """A launch asks for more than the chip has, for example LDS per block."""


class DeviceAssert(VirtualGpuError):
    """A kernel stopped itself: a device assertion failed, or it ran into a trap."""


class RankFailed(W2WError):
    """A rank raised or died; the others were ended.

    rank   its number
    trace  its traceback as text, "" where it left none
    """

    def __init__(self, message: str, rank: int, trace: str = "") -> None:
        super().__init__(message)
        self.rank, self.trace = rank, trace

    def _render_traceback_(self) -> list[str]:
        return [*super()._render_traceback_(), *([f"\nrank {self.rank} said:\n{self.trace}"] if self.trace else [])]


class RankNotWritten(RankFailed, NotImplementedError):
    """A rank met an answer of the lab that is still to be written."""


class RanksHung(RankFailed):
    """Ranks did not come back in time, most often because each waits for a message of another."""


class ProgressUnavailable(W2WError):
    """Progress cannot be read or stored; the answer itself is not touched."""


class ClassroomError(W2WError):
    """Something that a teacher gave, a release, a folder of submissions, a gradebook, cannot be used."""


class WallsMissing(W2WError):
    """Answers of others would run without a sandbox: bubblewrap is not installed, or may not be used here."""


class CheckFailed(W2WError):
    """A check that must pass (W2W_STRICT=1, as in validation) did not."""


class BadArgument(W2WError, ValueError):
    """An argument of a public function that cannot be used."""
