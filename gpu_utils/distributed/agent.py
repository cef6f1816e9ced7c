"""The process that starts the ranks: the elastic agent of torchrun, for one machine.

It is forked from its caller, so that a function of a notebook cell runs as it is. Where the caller uses a GPU, which
does not survive a fork, it is started anew (`python -m gpu_utils.distributed.agent <folder> <caller>`) and the function
is written to a file first, by value where it is a notebook's. Ranks on GPUs start anew too: torch's launcher asks for
GPUs, and a process that has asked cannot be forked into one that uses them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import multiprocessing
import os
import signal
import sys
import uuid
import warnings
from datetime import timedelta
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from gpu_utils.distributed import meeting, rank
from gpu_utils.distributed.rank import START_SECONDS, Task

DEATHS = "deaths.json"
"""The file that says which ranks failed, and with which exit code."""

_PR_SET_PDEATHSIG = 1


def main(task: Task) -> int:
    """Start the ranks and wait for them; the exit code. Ends the others when one fails."""
    _ask_no_server_for_names()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.update(OMP_NUM_THREADS="1", TORCH_CPP_LOG_LEVEL="ERROR")
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the caller's, who ends this process
    meeting.register(timedelta(seconds=START_SECONDS))
    anew = task.device == "cuda"
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=len(task.each),
        run_id=uuid.uuid4().hex,
        rdzv_backend=meeting.NAME,
        local_addr=meeting.HERE,
        max_restarts=0,
        monitor_interval=0.02,
        start_method="spawn" if anew else "fork",
        logs_specs=DefaultLogsSpecs(log_dir=task.folder),
    )
    try:
        if anew:
            elastic_launch(config, rank.of_file)(task.folder)
        else:
            elastic_launch(config, rank.main)(task)
    except ChildFailedError as problem:
        codes = {number: failure.exitcode for number, failure in problem.failures.items()}
        (Path(task.folder) / DEATHS).write_text(json.dumps(codes))
        return 1
    return 0


def _ask_no_server_for_names() -> None:
    """torch asks for the name of 127.0.0.1 at each connection; where no server answers, each time for seconds."""
    os.environ["RES_OPTIONS"] = "attempts:0"
    with contextlib.suppress(OSError, AttributeError):  # read anew; not glibc: nothing changes
        ctypes.CDLL(None).__res_init()


def _end_with(parent: int) -> None:
    """From now on this process is ended when its parent ends; the ranks, by torch, when this one does."""
    with contextlib.suppress(OSError, AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def in_a_fork(task: Task) -> int:
    """Fork the agent; its pid."""
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12: threads are there, and none of them is used
        pid = os.fork()
    if pid:
        return pid
    code = 1
    with contextlib.suppress(BaseException):
        os.setsid()
        _end_with(parent)
        with open(os.devnull, "r+") as nowhere, open(Path(task.folder) / "agent.out", "w") as out:
            os.dup2(nowhere.fileno(), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        multiprocessing.current_process().daemon = False  # a daemon, as a check's process is, may start none
        code = main(task)
    os._exit(code)


if __name__ == "__main__":
    os.setsid()
    _end_with(int(sys.argv[2]))
    raise SystemExit(main(rank.task_of(sys.argv[1])))
