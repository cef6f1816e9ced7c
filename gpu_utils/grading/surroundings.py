"""What surrounds one run of an answer: a time limit, torch's own settings, poisoned memory, bounded output."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from gpu_utils.errors import CheckTimeout

PRINT_LIMIT = 20_000
"""Characters of an answer's output that are kept; the rest is counted."""


class BoundedOutput(io.TextIOBase):
    """Keeps the first PRINT_LIMIT characters and counts the rest."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.total = 0

    def write(self, text: str) -> int:
        room = PRINT_LIMIT - self.total
        if room > 0:
            self._parts.append(text[:room])
        self.total += len(text)
        return len(text)

    def getvalue(self) -> str:
        return "".join(self._parts)


SECOND_CHANCE = 1.0
"""Seconds after which a thread stops what has switched the alarm off."""

_SECOND = signal.SIGRTMIN + 5
"""A signal that nobody else uses, unlike Ctrl-C's, which a program in the background does not get."""


class TimeLimit:
    """Raise CheckTimeout in the block after `seconds`, again every half second while something swallows it.

    An answer may switch the alarm off, by mistake or not: then a thread sends another signal a second later. Works in
    the main thread, where signals arrive; elsewhere the block runs without a limit. A single call into compiled code is
    stopped only when it comes back: the command line check, which ends the process, has no such gap.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._before: dict[int, Any] = {}
        self._left = False
        self._over = threading.Event()
        self._insisting = threading.Thread(target=_insist, args=(self._over, seconds + SECOND_CHANCE), daemon=True)

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._before = {number: signal.signal(number, self._stop) for number in (signal.SIGALRM, _SECOND)}
        self._insisting.start()
        signal.setitimer(signal.ITIMER_REAL, self._seconds, 0.5)

    def _stop(self, _signal: int, frame: FrameType | None) -> None:
        # an alarm on the way in or out would leave the handlers behind, and raise wherever the program is then
        on_the_way = frame is not None and frame.f_code in _ENTER_AND_EXIT
        if not self._left and not on_the_way:
            raise CheckTimeout

    def __exit__(self, *_: object) -> None:
        self._left = True
        if not self._before:
            return
        self._over.set()
        signal.signal(_SECOND, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._insisting.join()
        for number, handler in self._before.items():
            signal.signal(number, handler)


_ENTER_AND_EXIT = (TimeLimit.__enter__.__code__, TimeLimit.__exit__.__code__)


def _insist(over: threading.Event, seconds: float) -> None:
    """Signal the main thread after `seconds`, and every half second from then on, until it is `over`."""
    main = threading.main_thread().ident
    while main is not None and not over.wait(seconds):
        signal.pthread_kill(main, _SECOND)
        seconds = 0.5


@contextlib.contextmanager
def usual_settings() -> Iterator[None]:
    """torch as it is when it was just imported, inside the block; the learner's settings come back afterwards.

    These are the default dtype and device, the grad mode, and the CPU's random numbers. So a right answer passes
    whatever the notebook has set, and no answer can change what the next one meets. Neither can it move the notebook
    to another working folder.
    """
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    folder = _working_folder()
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        _set_defaults(torch.float32, torch.device("cpu"))
        try:
            yield
        finally:
            _set_defaults(dtype, device)
            if folder and folder != _working_folder():
                with contextlib.suppress(OSError):  # it is gone: nothing here needs it
                    os.chdir(folder)


def _working_folder() -> str:
    """The working folder; "" when it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _set_defaults(dtype: torch.dtype, device: torch.device) -> None:
    torch.set_default_dtype(dtype)
    if torch.get_default_device() != device:  # setting one slows down every call that makes a tensor
        torch.set_default_device(None if device.type == "cpu" else device)


@contextlib.contextmanager
def garbage_left() -> Iterator[None]:
    """Python does not look for cycles of garbage in the block.

    Compiling and decoding make objects by the hundred thousand, and each look goes through the million that torch's
    and Triton's imports made as well: a twelfth of a check's time. For blocks of seconds.
    """
    looked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looked:
            gc.enable()


@contextlib.contextmanager
def poisoned_memory() -> Iterator[None]:
    """torch.empty gives NaN (integers: the largest value) inside the block; the settings come back afterwards."""
    # torch.use_deterministic_algorithms does the same, and imports the compiler of torch first: a second lost
    mode = torch.get_deterministic_debug_mode()
    deterministic: Any = torch.utils.deterministic
    fill = deterministic.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("warn")
    deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        deterministic.fill_uninitialized_memory = fill
        torch.set_deterministic_debug_mode(mode)
