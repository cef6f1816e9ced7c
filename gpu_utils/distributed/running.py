"""Start ranks, wait for them, and say what came of each."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gpu_utils.distributed import agent
from gpu_utils.distributed.rank import PAYLOAD, START_SECONDS, Left, Task, has_ended
from gpu_utils.distributed.wires import Wires
from gpu_utils.errors import BadArgument, RankFailed, RankNotWritten, RanksHung
from gpu_utils.own_line import own_line

MOST_OUTPUT = 64 << 10
OTHERS_SECONDS = 0.3
"""After a rank has failed, for those that fail next to it: which was the first is seen by their clock."""

AGENT_SECONDS = 2.0
"""For the agent to say which process has died, once others have lost their connection to it."""

_MAY_DIFFER = ("all_to_all_single", "all_to_all", "scatter", "gather")
"""Collectives in which ranks may give different amounts."""

_LOST = re.compile(r"\[\S*gloo\S*\] .*(?:[Cc]onnection|Read error|Write error|Socket closed).*", re.DOTALL)
"""What gloo says when the other side is gone."""

_FRAME = re.compile(r'^\s+File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


@dataclass(frozen=True)
class Ranks:
    """What came of a function that ran on several ranks.

    values  by rank, what it returned
    output  by rank, what it printed
    sent    [source][destination] -> bytes sent by send and all-to-all; of other collectives gloo knows, and `calls`
    calls   by rank, collective -> times
    events  by rank, each call in order: {"name", "bytes", "issued", "done", "waited", "returned"}, seconds of one clock
    seconds from the start of the processes to the last value
    """

    values: list[Any]
    output: list[str]
    sent: list[list[int]]
    calls: list[dict[str, int]]
    events: list[list[dict[str, Any]]]
    seconds: float


def run_ranks(
    function: Callable[..., Any],
    world: int,
    each: Sequence[Mapping[str, Any]] | None = None,
    shared: Mapping[str, Any] | None = None,
    seconds: float = 30.0,
    wires: Wires | None = None,
    device: str = "cpu",
) -> Ranks:
    """Call function(**each[rank], **shared) on `world` ranks, each a process in which torch.distributed is initialised.

    each     keyword arguments of each rank; nothing for None
    shared   keyword arguments of all
    seconds  for the call, once all ranks have found each other; one that is not back then is named with its line
    wires    how slow messages are; None for as fast as this machine is
    device   "cpu" (gloo, on any machine) or "cuda" (NCCL or RCCL: one rank for each GPU)

    A rank has one thread. Raises RankFailed, which names the rank and its line, RanksHung, and BadArgument.

    >>> import torch.distributed as dist
    >>> def ask(x):
    ...     left = torch.empty(1)
    ...     ring = dist.get_world_size()
    ...     work = dist.isend(torch.tensor([x]), (dist.get_rank() + 1) % ring)
    ...     dist.recv(left, (dist.get_rank() - 1) % ring)
    ...     work.wait()
    ...     return float(left)
    >>> found = run_ranks(ask, 2, each=[{"x": 1.0}, {"x": 2.0}])
    >>> found.values, found.sent
    ([2.0, 1.0], [[0, 4], [4, 0]])
    """
    given = [{} for _ in range(world)] if each is None else list(each)
    if world < 1 or len(given) != world:
        raise BadArgument(
            f"arguments for {len(given)} ranks, expected one set for each of {world}; world is at least 1"
        )
    if device == "cuda" and world > torch.cuda.device_count():
        raise BadArgument(
            f"{world} ranks on {torch.cuda.device_count()} GPUs, expected one GPU for each; try device='cpu', or fewer"
        )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="w2w-ranks-", ignore_cleanup_errors=True) as name:
        task = Task(function, given, dict(shared or {}), wires, device, seconds, name)
        pid = _start(task)
        try:
            left = _collect(task, pid)
        finally:
            _end(pid)
        output = [_output(Path(name) / f"{rank}.out") for rank in range(world)]
    traffic = [one.traffic for one in left]
    return Ranks(
        values=[one.value for one in left],
        output=output,
        sent=[[one.sent[other] if one else 0 for other in range(world)] for one in traffic],
        calls=[dict(one.calls) if one else {} for one in traffic],
        events=[one.events if one else [] for one in traffic],
        seconds=max(one.at for one in left) - began,
    )


def _start(task: Task) -> int:
    """Start the agent; its pid."""
    if task.device == "cpu" and not torch.cuda.is_initialized():
        return agent.in_a_fork(task)
    import cloudpickle

    folder = Path(task.folder)
    with open(folder / PAYLOAD, "wb") as file:
        cloudpickle.dump(task, file)
    with open(folder / "agent.out", "w") as out:
        command = [sys.executable, "-m", "gpu_utils.distributed.agent", str(folder), str(os.getpid())]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out).pid


def _end(pid: int) -> None:
    """End the agent, and with it its ranks, which are in its group; nothing is left behind."""
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _collect(task: Task, pid: int) -> list[Left]:
    folder, world = Path(task.folder), len(task.each)
    found: dict[int, Left] = {}
    pause, ended, joined = 0.002, False, False
    deadline = time.monotonic() + START_SECONDS
    while True:
        if not joined and all((folder / f"{rank}.joined").exists() for rank in range(world)):
            joined, deadline = True, time.monotonic() + task.seconds
        _read(folder, world, found)
        if any(one.error for one in found.values()):
            time.sleep(OTHERS_SECONDS)
            raise _failed(folder, world, found)
        if len(found) == world:
            return [found[rank] for rank in range(world)]
        missing = sorted(set(range(world)) - found.keys())
        gone = missing if ended else [rank for rank in missing if has_ended(folder, rank)]
        _read(folder, world, found)  # again: a rank leaves its value before it ends
        silent = [rank for rank in gone if rank not in found]
        if silent and not any(one.error for one in found.values()):
            raise _died(folder, world, silent)
        if time.monotonic() > deadline:
            raise _hung(folder, world, found, task.seconds if joined else START_SECONDS)
        time.sleep(pause)
        pause = min(0.02, 1.2 * pause)
        with contextlib.suppress(ChildProcessError):
            ended = os.waitpid(pid, os.WNOHANG)[0] == pid


def _read(folder: Path, world: int, found: dict[int, Left]) -> None:
    """Add what more ranks have left behind by now."""
    for rank in set(range(world)) - found.keys():
        if (path := folder / f"{rank}.left").exists():
            found[rank] = torch.load(path, weights_only=False)


def _failed(folder: Path, world: int, found: dict[int, Left]) -> RankFailed:
    _read(folder, world, found)
    rank, first = min(((r, one) for r, one in found.items() if one.error), key=lambda pair: pair[1].at)
    stub = first.error.removeprefix("NotImplementedError: ")
    if stub != first.error:
        return RankNotWritten(stub, rank)
    lost = _LOST.search(first.error) is not None
    if lost and (gone := Counter(rank for one in found.values() for rank in one.gone)):
        return _died(folder, world, sorted(gone, key=lambda rank: -gone[rank]))
    line = own_line((file, number, name, "") for file, number, name in first.frames)
    error = _LOST.sub("a rank that it talks to has closed the connection", first.error)
    message = f"rank {rank} of {world} failed: {error}{f' ({line})' if line else ''}"
    if lost:
        back = sorted(r for r, one in found.items() if not one.error and one.at < first.at)
        returned = f"{_ranks(back)} had returned already; " if back else ""
        message += f". {returned}{_unequal(found) or 'do all ranks make the same calls, and send what others receive?'}"
    return RankFailed(message, rank, first.trace)


def _unequal(found: dict[int, Left]) -> str:
    """Where ranks called different collectives on one group, or with other sizes: the first such call, in words."""
    calls: dict[tuple[int, ...], dict[int, list[tuple[str, int]]]] = {}
    for rank, one in sorted(found.items()):
        for event in one.traffic.events if one.traffic else ():
            if "ranks" in event:
                size = 0 if event["name"] in _MAY_DIFFER else event["bytes"]
                group = calls.setdefault(
                    tuple(event["ranks"]), {r: [] for r in event["ranks"] if r in found and found[r].traffic}
                )
                group[rank].append((event["name"], size))
    for by_rank in calls.values():
        for step in itertools.zip_longest(*by_rank.values()):
            if len(set(step)) > 1:
                said = {
                    rank: "nothing" if call is None else call[0] + (f" of {call[1]} bytes" if call[1] else "")
                    for rank, call in zip(by_rank, step, strict=True)
                }
                return "; ".join(f"rank {rank} called {what}" for rank, what in said.items())
    return ""


def _died(folder: Path, world: int, candidates: Sequence[int]) -> RankFailed:
    """For a rank that ended without a word: the one of which the agent knows how, or the likeliest."""
    codes: dict[int, int] = {}
    until = time.monotonic() + AGENT_SECONDS
    while not codes and time.monotonic() < until:
        with contextlib.suppress(OSError, ValueError):
            codes = {int(rank): code for rank, code in json.loads((folder / agent.DEATHS).read_text()).items()}
        time.sleep(0.02)
    silent = [r for r in codes if codes[r] != -signal.SIGTERM and not (folder / f"{r}.left").exists()]
    rank = (silent or candidates)[0]
    code = codes.get(rank, 0)
    how = f" (signal {-code})" if code < 0 else f" (exit code {code})" if code else ""
    said = _output(folder / f"{rank}.out") or _output(folder / "agent.out")
    message = f"rank {rank} of {world} died{how} before it returned; does it exit, or crash in compiled code?"
    return RankFailed(message, rank, said.strip()[-2000:])


def _hung(folder: Path, world: int, found: dict[int, Left], seconds: float) -> RanksHung:
    missing = sorted(set(range(world)) - found.keys())
    stacks = {rank: _stack(folder / f"{rank}.stack") for rank in missing}
    lines = {rank: own_line((file, number, name, "") for file, number, name in stack) for rank, stack in stacks.items()}
    where: dict[str, list[int]] = {}
    for rank, line in lines.items():
        where.setdefault(line, []).append(rank)
    places = "; ".join(f"{_ranks(ranks)} at {line}" for line, ranks in where.items() if line)
    ended = "were ended" if missing[1:] else "was ended"
    message = f"{_ranks(missing)} of {world} did not come back within {seconds:g} s and {ended}"
    trace = "\n".join(f'  File "{file}", line {number}, in {name}' for file, number, name in stacks[missing[0]])
    message += f" ({places})" if places else ""
    if any("is_completed" in line for line in lines.values()):
        message += ". Here is_completed() of a collective stays False until somebody waits for it: call wait()"
    return RanksHung(message, missing[0], trace)


def _stack(path: Path) -> list[tuple[str, int, str]]:
    """Frames of the main thread, which faulthandler writes last, from the outermost to the innermost."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []
    last = re.split(r"^(?:Current thread|Thread) .*$", text, flags=re.MULTILINE)[-1]
    return [(file, int(number), name) for file, number, name in reversed(_FRAME.findall(last))]


def _ranks(numbers: Sequence[int]) -> str:
    """As words: "rank 2", "ranks 0, 1 and 3"."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    return f"ranks {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _output(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(MOST_OUTPUT).decode(errors="replace")
    except OSError:
        return ""
