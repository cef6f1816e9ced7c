"""The host code of a ported project, executed against a recording stand-in of HIP's host runtime.

The launchers, the ring of streams and the calls of libraries are compiled as device code with `hipify_host.h` and run
on a virtual GPU, one thread of one block: a learner's host code runs, and can reach nothing of the machine. What it
called, with which values and in which order, is compared with what a right port calls.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.errors import BackendUnavailable, CompileFailed, W2WError
from gpu_utils.exercises.u03_porting_to_rocm.hipify_device import outside, placed
from gpu_utils.exercises.u03_porting_to_rocm.hipify_project import KERNELS, Variant
from gpu_utils.grading.compare import Difference
from gpu_utils.virtual import virtual_gpu

RUNTIME = Path(__file__).with_suffix(".h")
ROOTS = ("csrc/launch.hip", "csrc/comm_hip.cpp")
TARGET = "gfx942"
_WORDS, _LDS = 8192, 64 * 1024

_NAMES: Mapping[int, str] = {
    1: "hipStreamCreateWithFlags",
    2: "hipEventCreateWithFlags",
    3: "hipStreamDestroy",
    4: "hipEventDestroy",
    5: "hipEventRecord",
    6: "hipStreamWaitEvent",
    7: "hipMemsetAsync",
    8: "hipGetLastError",
    9: "launch",
    10: "hipblasSetStream",
    11: "hipblasSgemm",
    12: "ncclAllReduce",
    13: "roctxRangePush",
    14: "roctxRangePop",
    99: "throw",
}
_SIZES, _SECTION = 100, 101
_LAUNCH = ("grid.x", "grid.y", "grid.z", "block.x", "block.y", "block.z", "bytes of shared memory", "stream")
_FITTING = -1
"""Stands for a grid or for bytes that fit the tile, which a port chooses."""
_FLOATS = {11: (6, 11)}
"""Call -> its arguments that are floats; those of launches are told by the kernel."""
_KERNEL_FLOATS = {0: (15,), 1: (11,), 2: ()}

SECTIONS = (
    ("rmsnorm_quant", "rmsnorm_quant(F(1), F(2), F(3), P(4), F(5), 70, 1e-5f, S)"),
    ("rmsnorm_quant, whole tiles", "rmsnorm_quant(F(1), F(2), F(3), P(4), F(5), 232792560, 1e-6f, S)"),
    ("clip_count", "clip_count(F(1), 3001, 1.5f, I(2), I(3), S)"),
    ("clip_count, many values", "clip_count(F(1), 9000001, 2.5f, I(2), I(3), S)"),
    ("gelu", "gelu(P(1), P(2), 5003, S)"),
    ("gelu, many values", "gelu(P(1), P(2), 9000001, S)"),
    ("StreamRing and all_reduce", "w2w_ring(S)"),
    ("project", "project(reinterpret_cast<hipblasHandle_t>(0x70000), F(1), F(2), F(3), 5, 6, 7, S)"),
)
"""What is called, and how; S is a stream, F(i), P(i) and I(i) are pointers. 232,792,560 is a multiple of 1 to 22."""
_NORM = (0, 1)
"""Their launch returned an error before hipify. A port may notice it in more than one way, so only the throw counts."""
_RING = 6
_RUNS = (
    *((0, number) for number in range(len(SECTIONS))),
    *((1, number) for number in range(len(SECTIONS)) if number not in _NORM),
    (2, _RING),  # where every call fails, the ring throws before RCCL is asked
    (3, _NORM[0]),
)
_WHEN = ("", ", when every call fails", ", when RCCL fails", ", when the launch fails")

_PRELUDE = """
#undef __global__
#undef __launch_bounds__
#define __global__ __attribute__((device))
#define __launch_bounds__(...)
"""

_KERNELS = """
namespace {team} {{
void {norm}(const float *, float *, const float *, fp8_t *, float *, int, float);
void {clip}(const float *, int, float, int *, int *);
void {gelu}(const __hip_bfloat16 *, __hip_bfloat16 *, int);
}}
"""

_PROBE = """
int w2w_kernel(const void *kernel) {{
  using namespace {team};
  return kernel == reinterpret_cast<const void *>({norm})   ? 0
         : kernel == reinterpret_cast<const void *>({clip}) ? 1
         : kernel == reinterpret_cast<const void *>({gelu}) ? 2
                                                            : -1;
}}
inline void w2w_ring(hipStream_t producer) {{
  {team}::StreamRing ring;
  for (int i = 0; i < 5; ++i) {{
    {team}::all_reduce(reinterpret_cast<ncclComm_t>(0x80000), ring, reinterpret_cast<float *>(0x10000 + i), 1000 + i,
                       producer);
  }}
  ring.join(producer);
}}
__attribute__((global)) void w2w_host(long long *tape, long long *length, int fails, int section) {{
  using namespace {team};
  w2w_tape = tape, w2w_handles = 0, w2w_fails = fails, w2w_failed = 0;
  w2w::call(100, kTileTokens, kStageBytes, kThreads, kHidden);
  const hipStream_t S = reinterpret_cast<hipStream_t>(0x60000);
  const auto F = [](int i) {{ return reinterpret_cast<float *>(0x10000ll * i); }};
  const auto I = [](int i) {{ return reinterpret_cast<int *>(0x10000ll * i); }};
  const auto P = [](int i) {{ return reinterpret_cast<void *>(0x10000ll * i); }};
{sections}
  *length = w2w_tape - tape;
}}
#pragma clang force_cuda_host_device end
"""


@dataclass(frozen=True)
class Call:
    """One call of the runtime or of a library: what, and with which values."""

    what: str
    values: tuple[float | int, ...]

    def __str__(self) -> str:
        return f"{self.what}({', '.join(map(_shown, self.values))})"


def host_problem(fixed: dict[str, str], right: dict[str, str], variant: Variant) -> Difference | None:
    """The first call that differs from what a right port does, or None. Raises BackendUnavailable with no compiler.

    fixed  path -> text of the answer; right: of a port that is right
    """
    found = _record(tuple(sorted(fixed.items())), variant)
    if isinstance(found, Difference):
        return found
    wanted = _record(tuple(sorted(right.items())), variant)
    assert not isinstance(wanted, Difference), wanted.detail
    for section, calls in wanted.items():
        if (difference := _compare(section, calls, found[section])) is not None:
            return difference
    return None


def _compare(section: str, wanted: tuple[Call, ...], found: tuple[Call, ...]) -> Difference | None:
    for place in range(max(len(wanted), len(found))):
        one = wanted[place] if place < len(wanted) else None
        other = found[place] if place < len(found) else None
        if one == other:
            continue
        where = f"{section}: call {place + 1} of the host code"
        if one and other and one.what == other.what and len(one.values) == len(other.values):
            at = next(i for i, pair in enumerate(zip(one.values, other.values, strict=True)) if pair[0] != pair[1])
            name = _part(one.what, at)
            return Difference(
                f"host:{one.what}:{name}",
                f"{where}, {one.what}, has {name} {_shown(other.values[at])}, expected {_shown(one.values[at])}",
            )
        kind = f"host:{(one or other).what}"  # type: ignore[union-attr]
        return Difference(kind, f"{where} is {other or 'missing'}, expected {one or 'no further call'}")
    return None


def _part(what: str, at: int) -> str:
    """The name of a value of a call."""
    if what.startswith("launch"):
        return _LAUNCH[at] if at < len(_LAUNCH) else f"argument {at - len(_LAUNCH) + 1}"
    return f"argument {at + 1}"


@lru_cache(maxsize=64)
def _record(files: tuple[tuple[str, str], ...], variant: Variant) -> Difference | dict[str, tuple[Call, ...]]:
    """Section -> its calls, first as all goes well, then as calls fail."""
    source, origin = _unit(dict(files), variant)
    if place := outside(source):
        return Difference("outside", f"{origin[place[0] - 1]}: `{place[1]}` reads a file outside the project")
    try:
        module = compile_cpp(source, TARGET)
    except CompileFailed as problem:
        text = re.sub(r"\bline (\d+)\b", lambda found: origin[int(found[1]) - 1], str(problem), count=1)
        return Difference(
            "host-compile",
            f"host code: {text.removeprefix(f'C++ for {TARGET}: ')}; the check's stand-in for HIP's host runtime knows "
            "the calls that hipify wrote, hipLaunchKernelGGL and hipLaunchKernelEx",
        )
    calls: dict[str, tuple[Call, ...]] = {}
    with virtual_gpu(TARGET, step_limit=1000) as gpu:
        loaded = gpu.load(module)
        for fails, number in _RUNS:
            name = SECTIONS[number][0]
            tape, length = torch.zeros(_WORDS, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
            try:
                loaded.launch("w2w_host", 1, 1, [tape, length, fails, number])
            except BackendUnavailable:
                raise
            except W2WError as problem:
                return Difference("host-run", f"{name}: the host code stopped: {problem}")
            done = tuple(_read(tape[: int(length)].tolist(), bool(fails)))
            if number in _NORM:
                done = tuple(call for call in done if call.what != _NAMES[8])
            calls[name + _WHEN[fails]] = done
    return calls


def _unit(files: dict[str, str], variant: Variant) -> tuple[str, list[str]]:
    """(source, "file:line" of each of its lines): runtime, host code, and what calls it."""
    names = dict(zip(("norm", "clip", "gelu"), variant.kernels, strict=True), team=variant.team)
    quoted = [line for line in files[KERNELS].split("\n") if re.match(r'\s*#\s*include\s*"', line)]
    files = {**files, KERNELS: "\n".join([*quoted, *_KERNELS.format(**names).split("\n")])}
    sections = "\n".join(f"  if (section == {i}) {call};" for i, (_, call) in enumerate(SECTIONS))
    before = [(line, "the grader's runtime") for line in (_PRELUDE + RUNTIME.read_text()).split("\n")]
    after = [(line, "the grader's calls") for line in _PROBE.format(**names, sections=sections).split("\n")]
    lines = [(_line(line), where) for line, where in placed(files, ROOTS)]
    everything = [*before, *lines, *after]
    return "\n".join(line for line, _ in everything), [where for _, where in everything]


_OURS = re.compile(r"\s*#\s*include\s*<hip/hip_(runtime|bf16|fp16|fp8)\.h>")
_TRIPLE = re.compile(r"([\w:]+)\s*<<<(.*?)>>>\s*\(")


def _line(line: str) -> str:
    """A line without a header that the stand-in replaces; a launch by <<<...>>> becomes a call."""
    if re.match(r"\s*#\s*include\s*<", line) and not _OURS.match(line):
        return ""
    return _TRIPLE.sub(r"w2w_configured(\1, \2)(", line)


def _read(tape: list[int], fails: bool) -> Iterator[Call]:
    """The calls on a tape; with `fails` up to the first error that was thrown."""
    at, sizes = 0, (1, 0, 1, 0)
    while at < len(tape):
        number, count = tape[at], tape[at + 1]
        values = tape[at + 2 : at + 2 + count]
        at += 2 + count
        if number == _SIZES:
            sizes = tuple(values)  # type: ignore[assignment]
            continue
        yield _call(number, values, sizes)
        if fails and number == 99:
            return


def _call(number: int, values: list[int], sizes: tuple[int, int, int, int]) -> Call:
    what = _NAMES[number]
    if number == 13:
        text = struct.pack("<2q", *values).rstrip(b"\0").decode("ascii", "replace")
        return Call(f'{what}("{text}")', ())
    floats = _FLOATS.get(number, ()) if number != 9 else _KERNEL_FLOATS.get(values[0], ())
    read: list[float | int] = [_float(value) if i in floats else value for i, value in enumerate(values)]
    if number != 9:
        return Call(what, tuple(read))
    tile, _, _, hidden = sizes
    if values[0] == 0:  # tile and bytes are the learner's to choose
        tokens = values[14]
        read[1] = _FITTING if values[1] == -(-tokens // tile) else values[1]
        read[7] = _FITTING if tile * hidden * 4 <= values[7] <= _LDS else values[7]
    return Call(f"{what} of kernel {values[0]}", tuple(read[1:]))


def _float(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0])


def _shown(value: float | int) -> str:
    if value == _FITTING:
        return "what the tile asks for"
    pointer = isinstance(value, int) and value >= 1 << 16 and value % (1 << 16) < 16
    return hex(int(value)) if pointer else f"{value:.8g}"
