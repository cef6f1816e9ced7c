"""Where launches are done again with the inputs that count: a process of its own inside of walls, without any answer.

    python -m gpu_utils.grading.walls.replayer

It compiles C++, assembles PTX and executes machine code of others, so it has walls, too; but no Python of theirs. It
stays for many submissions, and is replaced after one that took too long.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from gpu_utils.backends import backend
from gpu_utils.chips.targets import TARGETS
from gpu_utils.errors import CompileFailed
from gpu_utils.grading.execute import Attempt, run
from gpu_utils.grading.exercise import Inputs
from gpu_utils.grading.handing_over import fields_of
from gpu_utils.grading.report import Mode
from gpu_utils.grading.tiles import Handed
from gpu_utils.grading.walls import confine, wire
from gpu_utils.grading.walls.replaying import Replay
from gpu_utils.grading.walls.spec import Spec, spec_of, with_call
from gpu_utils.virtual import active_gpu, virtual_gpu
from gpu_utils.virtual.gpu import VirtualGpu
from gpu_utils.virtual.machine.source import lend_source
from gpu_utils.virtual.models import ISAS, decode, isa_of

PTXAS_SECONDS = 60
MOST_DATA = 4 << 30
"""Bytes that doing a record again may take: a record can ask torch for any size."""


def main(walled: bool) -> None:
    if walled:
        confine.read_only_machine()
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    torch.set_num_threads(1)
    for isa in ("ptx", "amdgcn"):
        ISAS[isa]()
    gc.freeze()  # what is there now stays: no collection need look at it
    if walled:
        confine.most_data(MOST_DATA)
    wire.send(answers, {"ready": "replayer"})
    while True:
        try:
            request = wire.receive(requests)
        except wire.Gone:
            return
        spec = spec_of(request["spec"])
        attempt = (_of_source if spec.kind in ("cpp", "tile") else _of_record)(spec, request)
        wire.send(answers, {"attempt": fields_of(attempt)})


def _of_source(spec: Spec, request: dict[str, Any]) -> Attempt:
    source = request["source"]
    found = source if isinstance(source, str) else _Wrong(source)
    answer = Handed(source) if spec.kind == "tile" else lambda: found
    return run(spec, answer, request["inputs"], backend(request["backend"]), (), Mode[request["mode"]])


class _Wrong:
    """What an answer returned that is no source."""

    def __new__(cls, found: Any) -> Any:
        name = str(found.get("type", "object"))[:40] if isinstance(found, dict) else "object"
        return type(name, (), {})()


def _of_record(spec: Spec, request: dict[str, Any]) -> Attempt:
    idle = request["mode"] == Mode.IDLE.name
    record = request["record"] if isinstance(request["record"], dict) else {}
    replay = Replay(record, spec.torch_may, idle, _launch, spec.address_space)

    def call(answer: Any, inputs: Inputs) -> Any:
        return replay(inputs)

    unwatched = with_call(spec, call)
    attempt = run(unwatched, replay, request["inputs"], backend(request["backend"]), (), Mode.RUN)
    claimed = record.get("launched")
    attempt.counters["launches"] = max(len(replay.seen), claimed if type(claimed) is int else 0)
    return attempt


def _launch(what: tuple[Any, ...], values: list[Any], meta: Any, shuffled: bool, source: Any) -> None:
    """One launch on the virtual GPU of the session, or on one beside it with its programs in another order."""
    gpu = active_gpu()
    beside = virtual_gpu(gpu.target, order="shuffled", seed=1, strict=True) if shuffled else contextlib.nullcontext(gpu)
    with beside as where:
        _launch_on(where, what, values, meta, source)


def _launch_on(gpu: VirtualGpu, what: tuple[Any, ...], values: list[Any], meta: Any, source: Any) -> None:
    text, name, grid, threads, shared = what
    program = decode(text, gpu.target, name)
    if isinstance(source, list) and len(source) == 2 and all(isinstance(line, str) for line in source[0]):
        lend_source(program.ops, source[0], int(source[1]))
    registers = _registers(text, program.name, gpu.target) if isa_of(gpu.target).NAME == "ptx" else 0
    launch = gpu.launch(text, name, grid, threads, values, shared, meta)
    launch.registers = registers or program.info.compiled_registers


@lru_cache(maxsize=512)
def _registers(text: str, name: str, target: str) -> int:
    """Registers that ptxas gives a kernel. Raises CompileFailed for PTX that it refuses."""
    from gpu_utils.compiler.triton import first_error, ptxas

    limits = TARGETS[target]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(text)
        arch = f"sm_{limits.capability}{'a' if limits.capability >= 90 else ''}"
        command = [ptxas(limits), "-v", f"--gpu-name={arch}", str(source), "-o", os.devnull]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PTXAS_SECONDS)
    said = done.stdout + done.stderr
    if done.returncode:
        raise CompileFailed(f"{name} for {target}: {first_error(RuntimeError('ptxas'), said)}")
    used = re.search(rf"entry function '{re.escape(name)}'.*?Used (\d+) registers", said, re.DOTALL)
    if used is None:
        raise CompileFailed(f"{name} for {target}: ptxas names no registers for it")
    return int(used[1])


if __name__ == "__main__":
    main(walled="--no-walls" not in sys.argv)
