"""The host's side of AMD's hostcall: how `printf` and a failed assertion leave a kernel.

A kernel argument (`hidden_hostcall_buffer`) points to a buffer with two lock-free stacks of packets. A wave takes a
packet from the free ones, fills in the lanes that speak and up to seven words of each, puts it on the stack of ready
ones, rings the doorbell, and polls until the host has cleared the packet's ready bit. The bell is an HSA signal whose
interrupt is the instruction `s_sendmsg sendmsg(MSG_INTERRUPT)`: there the host answers here, so no wave ever waits.

All waves of a GPU share one buffer, and the losers of each race for a packet try again. Here every wave has a buffer
of its own, with one packet, and to point to it a copy of the kernel's arguments: waves in step would race at each call.

Layouts: ROCm's device libraries (ockl: hostcall_impl.cl, services.cl) and its runtime (clr: devhcmessages.cpp,
devhcprintf.cpp).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from gpu_utils.errors import DeviceAssert, VirtualGpuError
from gpu_utils.virtual.amdgcn.info import AmdInfo
from gpu_utils.virtual.machine import Program
from gpu_utils.virtual.printing import c_format, failed_assertion, show

LANES, WORDS = 64, 8
BUFFER = [
    ("headers", "<u8"),
    ("payloads", "<u8"),
    ("doorbell", "<u8"),
    ("free", "<u8"),
    ("ready", "<u8"),
    ("mask", "<u8"),
]
SIGNAL = [("kind", "<i8"), ("value", "<i8"), ("mailbox", "<u8"), ("event", "<u4"), ("unused", "V36")]
HEADER = [("next", "<u8"), ("lanes", "<u8"), ("service", "<u4"), ("control", "<u4")]
PRINTF = 2  # the service
READY = np.uint32(1)  # the bit of `control`
BEGIN, END, TO_STDERR = 1, 2, 1  # bits of a message's descriptor, and of its first word
_ASSERTION = re.compile(r"device assertion failed: '(?P<message>.*)', in .* at (?P<file>.*):(?P<line>\d+)\s*$", re.S)


class Assertion(NamedTuple):
    """What a kernel wrote to stderr: Triton's message of an assertion, taken apart, or another text without a line."""

    message: str
    line: tuple[str, int] | None


@lru_cache(maxsize=64)
def argument(program: Program) -> int | None:
    """The byte offset of the argument that points to the buffer; None for a kernel that never calls the host."""
    rings = any("MSG_INTERRUPT" in op.text for op in program.ops)
    hidden = cast(AmdInfo, program.info).hidden
    offsets = [offset for offset, _, kind in hidden if kind == "hidden_hostcall_buffer"]
    return offsets[0] if rings and offsets else None


def attach(state: Any, launch: Any) -> Hostcall | None:
    """The host's side for a batch of waves; None for a kernel that never calls the host."""
    offset = argument(state.program)
    return None if offset is None else Hostcall(state, launch, offset)


class Hostcall:
    """The buffers of a batch and the service behind them.

    arguments: uint64 (waves, 1), where each wave's copy of the kernel's arguments stands. region: all of it, in memory.
    Text for stdout is written at once; text for stderr is an assertion's and is kept for the trap that follows it.
    """

    def __init__(self, state: Any, launch: Any, offset: int) -> None:
        self.kernel, self.target = state.program.name, state.program.target
        layout = np.dtype(
            [
                ("buffer", BUFFER),
                ("signal", SIGNAL),
                ("mailbox", "<u8"),
                ("header", HEADER),
                ("payload", "<u8", (LANES, WORDS)),
                ("arguments", "u1", (len(launch.args),)),
            ]
        )
        self.of_wave = waves = np.zeros(state.waves, layout)
        self.region = launch.memory.add_array("the host call's buffers", waves, "args")
        start = waves.ctypes.data + np.arange(state.waves, dtype=np.uint64) * np.uint64(layout.itemsize)
        place = {name: start + np.uint64(field[1]) for name, field in layout.fields.items()}  # type: ignore[union-attr]
        buffer = waves["buffer"]
        buffer["headers"], buffer["payloads"], buffer["doorbell"] = place["header"], place["payload"], place["signal"]
        buffer["free"] = 1  # a packet is its index and, above the mask, a tag: index 0, tag 1; 0 ends a stack
        waves["signal"]["mailbox"], waves["signal"]["event"] = place["mailbox"], 1
        waves["arguments"] = launch.args
        waves["arguments"][:, offset : offset + 8] = place["buffer"][:, None].view(np.uint8)
        self.arguments = place["arguments"][:, None]
        self.messages: dict[int, list[int]] = {}
        self.begun = 0
        self.assertions: list[Assertion] = []

    def answer(self) -> None:
        """Serve the packet of every wave that rang."""
        for number in np.flatnonzero(self.of_wave["mailbox"]):
            wave = self.of_wave[number]
            wave["mailbox"] = wave["buffer"]["ready"] = 0
            header = wave["header"]
            if header["service"] != PRINTF:
                raise VirtualGpuError(
                    f"kernel {self.kernel} asks the host for service {header['service']}; the virtual {self.target} "
                    f"answers printf (service {PRINTF}) alone; take the call out of the kernel"
                )
            for lane in range(LANES):
                if int(header["lanes"]) >> lane & 1:
                    self._packet(wave["payload"][lane])
            header["control"] &= ~READY

    def _packet(self, words: np.ndarray) -> None:
        """A piece of one lane's message. The answer goes to the first word: its descriptor, or what printf returns."""
        descriptor = int(words[0])
        if descriptor & BEGIN:
            self.begun += 1
            descriptor = (descriptor & 0xFE) | self.begun << 8
            self.messages[self.begun] = []
            words[0] = descriptor
        number = descriptor >> 8
        self.messages[number] += words[1 : 1 + (descriptor >> 5 & 7)].tolist()
        if descriptor & END:
            words[0] = self._print(self.messages.pop(number))

    def _print(self, message: list[int]) -> int:
        """Words: where to, the format padded to whole words, then a word for each argument; a string is in line."""
        raw, at = np.array(message[1:], np.uint64).tobytes(), 0

        def string() -> str:
            nonlocal at
            text = raw[at:].split(b"\0", 1)[0]
            at += (len(text) // 8 + 1) * 8
            return text.decode(errors="replace")

        def take(kind: str) -> Any:
            nonlocal at
            if kind == "string":
                return string()
            word, at = raw[at : at + 8].ljust(8, b"\0"), at + 8
            return np.frombuffer(word, np.float64 if kind == "double" else np.uint64)[0].item()

        layout = string()
        if message[0] & TO_STDERR:
            found = _ASSERTION.fullmatch(layout)
            line = (found["file"], int(found["line"])) if found else None
            self.assertions.append(Assertion(found["message"] if found else layout.strip(), line))
            return len(layout)
        text, _ = c_format(layout, take)
        show(text)
        return len(text)

    def trapped(self, line: tuple[str, int] | None, where: str) -> DeviceAssert | None:
        """The error of a trap at a source line, when an assertion was reported before it; else None."""
        if not self.assertions:
            return None
        here = [each for each in self.assertions if each.line and line and each.line[1] == line[1]]
        said = (here or self.assertions)[-1]
        return failed_assertion(self.kernel, said.message, said.line or line, where)
