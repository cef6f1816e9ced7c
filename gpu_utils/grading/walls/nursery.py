"""The first process inside of the walls: it has imported what answers need, and makes a clean child for each of them.

    python -m gpu_utils.grading.walls.nursery KIND

It runs no answer itself. It gets requests by standard input, and passes what a child says on to standard output.
Neither an answer nor what it says is ever in this process's memory, of which the next child has a copy: the child reads
its own request, and what it says is spliced from pipe to pipe. A child is alone: before the next one every process but
this is ended, and its folders are gone with its mount namespace. The first process of a namespace cannot be killed from
within.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import os
import select
import signal
import sys
import termios
import traceback
from typing import Any

from gpu_utils.grading.processes import adopt_orphans, end_descendants
from gpu_utils.grading.walls import bwrap, confine, wire
from gpu_utils.grading.walls.frames import PIECE, WORD, send_bytes, splice

KINDS = {
    "plain": ("torch.nn.functional", "torch.utils.flop_counter", "torch.utils.checkpoint", "torch._dynamo",
              "torch.distributed.fsdp", "gpu_utils.distributed", "gpu_utils.lesson", "gpu_utils.virtual"),
    "tile": ("tilelang.language", "tilelang.ascend.language", "gpu_utils.lesson", "gpu_utils.grading.tiles"),
    "kernel": ("triton.language", "triton.compiler", "triton.experimental.gluon", "triton.runtime.interpreter",
               "gpu_utils.lesson", "gpu_utils.virtual.ptx", "gpu_utils.virtual.amdgcn",
               "gpu_utils.virtual.triton_driver", "gpu_utils.grading.walls.recording",
               "gpu_utils.grading.beside_kernels"),
}  # fmt: skip
"""Kind of nursery -> what it imports beforehand, beside what a worker needs: no child then has to."""

READ = b"!"
"""A child's first byte: it has read what it was sent, and nothing of an answer has run yet."""

MOST_PROCESSES = 64
"""Of an answer that may start some: it is ended with more. The system does not hold root to a limit of its own."""

LOOK_SECONDS = 0.1

FOLDERS = (bwrap.SCRATCH, "/dev/shm")
"""Where an answer can write: fresh for each."""


def main(kind: str, walled: bool) -> None:
    for name in ("gpu_utils.grading.walls.worker", *KINDS[kind]):
        importlib.import_module(name)
    if kind == "kernel":
        _ask_the_compiler()
    gc.freeze()  # a collection in a child would copy every page that it looks at
    requests, answers = os.dup(0), os.dup(1)
    with open(os.devnull, "r+") as nowhere:
        os.dup2(nowhere.fileno(), 0)
        os.dup2(2, 1)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a signal with a handler reaches the first process, too
    if walled:
        confine.read_only_machine()
        confine.unreadable()
    else:
        adopt_orphans()
    _say(answers, {"ready": kind})
    while True:
        try:
            request = wire.receive(requests)
        except wire.Gone:
            return
        if request.get("do") == "run":
            _serve(request, requests, answers, walled)


def _ask_the_compiler() -> None:
    """Triton hashes its own files and asks ptxas for its version before it compiles, and remembers both.

    The first takes a second, and no child may start a program.
    """
    from triton.backends.nvidia.compiler import get_ptxas_version
    from triton.runtime.cache import triton_key

    from gpu_utils.chips.targets import TARGETS

    triton_key()
    for target in TARGETS.values():
        if target.vendor == "nvidia":
            get_ptxas_version(target.capability)


def _say(answers: int, word: dict[str, Any]) -> None:
    send_bytes(answers, WORD + wire.pack(word))


def _serve(request: dict[str, Any], requests: int, answers: int, walled: bool) -> None:
    """One child, until it ends or the grader says stop; then the end of it is told."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_a_child(request, requests, theirs, (ours, answers), walled)
    os.close(theirs)
    said = ""
    try:
        if not os.read(ours, 1):
            sys.exit("a child ended before it had read what it was sent")
        said = _pass_on(ours, requests, answers, walled and request["limits"]["processes"])
    finally:
        os.close(ours)
        status = _end(pid, walled)
        _say(answers, {"end": status, "said": said})


def _pass_on(child: int, requests: int, answers: int, counted: bool) -> str:
    """What a child says, until it ends; why it has to end, or ""."""
    while True:
        ready, _, _ = select.select([child, requests], [], [], LOOK_SECONDS if counted else None)
        if counted and sum(name.isdigit() for name in os.listdir("/proc")) > MOST_PROCESSES:
            return f"more than {MOST_PROCESSES} processes"
        if not ready:
            continue
        if requests in ready:
            try:
                if wire.receive(requests).get("do") == "stop":
                    return "stopped"
            except wire.Gone:
                sys.exit(0)
            continue
        waiting = _waiting(child)
        if not waiting:
            return ""
        splice(child, answers, waiting, PIECE)


def _waiting(pipe: int) -> int:
    """How many bytes a pipe holds."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def _end(pid: int, walled: bool) -> int:
    """End the child and whatever else runs here; its status."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1 if walled else pid, signal.SIGKILL)
    if not walled:
        end_descendants()
    status = 0
    with contextlib.suppress(ChildProcessError):
        while True:
            ended, how = os.waitpid(-1, 0)
            status = how if ended == pid else status
    return status


def _be_a_child(request: dict[str, Any], requests: int, out: int, others: tuple[int, ...], walled: bool) -> None:
    try:
        payload = wire.receive_bytes(requests)
        os.write(out, READ)
        for other in (requests, *others):
            os.close(other)
        limits = confine.Limits(**request["limits"])
        if walled:
            confine.apart(limits, FOLDERS, request["hidden"])
            os.chdir(bwrap.SCRATCH)
            confine.give_up(limits)
        from gpu_utils.grading.walls.worker import main as work

        work(payload, out)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], walled="--no-walls" not in sys.argv)
