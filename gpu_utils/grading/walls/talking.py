"""A process at the other end of two pipes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from gpu_utils.grading.walls.frames import PIECE, BadMessage, Gone, TooLate, first_of, receive_bytes, send_bytes

READY_SECONDS = 120.0
MOST_BYTES = 256 << 20
"""Of a child's message: none of ours comes near."""


class Broken(RuntimeError):
    """A process inside of walls is gone, or says something that it never does."""


class Process:
    """A process that answers on its two pipes; by its first message it says that it is ready.

    environment  all of its variables; None for those that we have
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.log = open(os.memfd_create("w2w-log"), "w+b")  # noqa: SIM115  (closed with the process)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, env=environment,
            start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        self.ready = False

    def wait_until_ready(self) -> None:
        """Raises Broken, and TooLate."""
        if not self.ready:
            self.receive(READY_SECONDS)
            self.ready = True

    def send(self, message: bytes) -> None:
        """Raises Broken."""
        try:
            send_bytes(self._to, message)
        except OSError as problem:
            raise Broken(f"{problem.strerror}; it said: {self.said()}") from None

    def receive(self, seconds: float) -> bytes:
        """The next message. Raises Broken, and TooLate."""
        try:
            return receive_bytes(self._from, time.monotonic() + seconds)
        except (Gone, BadMessage) as problem:
            raise Broken(f"{problem or 'it has ended'}; it said: {self.said()}") from None

    def said(self) -> str:
        """The end of what it wrote to standard error."""
        self.log.flush()
        self.log.seek(0, os.SEEK_END)
        size = self.log.tell()
        self.log.seek(max(0, size - 2000))
        return self.log.read().decode("utf-8", "replace").strip()

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self.log):
            with contextlib.suppress(OSError):
                assert file is not None
                file.close()


class Child:
    """The child that a nursery has made last: what it says is put together from the pieces that the nursery passes on.

    end  the nursery's last word about it; None while it runs
    """

    def __init__(self, nursery: Process) -> None:
        self._nursery = nursery
        self._said = bytearray()
        self.end: bytes | None = None

    def receive(self, seconds: float) -> bytes | None:
        """Its next message; None where it has come to its end. Raises Broken, TooLate, and BadMessage."""
        deadline = time.monotonic() + seconds
        while self.end is None:
            if (found := first_of(self._said, MOST_BYTES)) is not None:
                return found
            if (left := deadline - time.monotonic()) <= 0:
                raise TooLate
            self._listen(left)
        return None

    def stop(self, word: bytes, seconds: float) -> None:
        """End it with this word to the nursery, and read away what it still says. Raises Broken, and TooLate."""
        if self.end is None:
            self._nursery.send(word)
        while self.end is None:
            self._said.clear()
            self._listen(seconds)

    def _listen(self, seconds: float) -> None:
        heard = self._nursery.receive(seconds)
        if heard.startswith(PIECE):
            self._said += memoryview(heard)[1:]
        else:
            self.end = heard[1:]
