"""Functions that the driver of a real GPU supplies to PTX: the report of an assertion, and printf."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from gpu_utils.virtual.printing import c_bytes, c_format, c_string, failed_assertion, show
from gpu_utils.virtual.ptx.decode import Decoder, PtxOp
from gpu_utils.virtual.ptx.state import PtxState


def call(decoder: Decoder, op: PtxOp, name: str, arguments: tuple, results: tuple) -> None:
    """Make `op` the call of a system function with the `.param` variables `arguments` and `results`."""
    places = [decoder.addresses[argument.name][1] for argument in arguments]
    if name == "__assertfail":
        op.run = lambda state: _assertion(state, places)
    elif name == "vprintf":
        out = [decoder.addresses[result.name][1] for result in results]
        op.run = lambda state: _vprintf(state, places, out)
    else:
        raise ValueError(f"the function {name} is declared but not defined")
    decoder.generic = True


def _assertion(state: PtxState, places: list[int]) -> None:
    """__assertfail(message, file, line, function, size of a character)."""
    wave, lane = (0, 0) if state.mask is None else (int(v) for v in np.argwhere(state.mask)[0])
    message, file, line = (_word(state, place, wave, lane, 8 if i < 2 else 4) for i, place in enumerate(places[:3]))
    raise failed_assertion(
        state.program.name,
        c_string(state.memory, message),
        (c_string(state.memory, file), line),
        state.where(wave, lane),
    )


def _vprintf(state: PtxState, places: list[int], out: list[int]) -> None:
    """vprintf(format, arguments) of every running lane; it gives back how many arguments the format took."""
    mask = np.ones((state.waves, 32), bool) if state.mask is None else state.mask
    text = []
    for wave, lane in np.argwhere(mask).tolist():
        layout = c_string(state.memory, _word(state, places[0], wave, lane, 8))
        said, taken = c_format(layout, _Arguments(state.memory, _word(state, places[1], wave, lane, 8)))
        text.append(said)
        for place in out:
            state.local[wave * 32 + lane, place : place + 4] = np.frombuffer(struct.pack("<i", taken), np.uint8)
    show("".join(text))


class _Arguments:
    """The packed buffer in a thread's own memory: each argument stands at the next multiple of its size."""

    def __init__(self, memory: Any, start: int) -> None:
        self.memory, self.start, self.used = memory, start, 0

    def __call__(self, kind: str) -> Any:
        size = 4 if kind == "int" else 8
        at = -(-self.used // size) * size
        self.used = at + size
        word = c_bytes(self.memory, self.start + at, size).ljust(size, b"\0")
        if kind == "double":
            return struct.unpack("<d", word)[0]
        value = int.from_bytes(word, "little")
        return c_string(self.memory, value) if kind == "string" else value


def _word(state: PtxState, place: int, wave: int, lane: int, size: int) -> int:
    raw = state.local[wave * 32 + lane, place : place + size]
    return int.from_bytes(raw.tobytes(), "little")
