"""A process at the other end of two pipes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from gpu_utils.grading.walls.frames import BadMessage, Gone, receive_bytes, send_bytes

READY_SECONDS = 120.0


class Broken(RuntimeError):
    """A process inside of walls is gone, or says something that it never does."""


class Process:
    """A process that answers on its two pipes; by its first message it says that it is ready.

    environment  all of its variables; None for those that we have
    ended        whether what it was asked last has come to its end
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
        self.ended = False

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
