"""Scalar instructions: arithmetic on SGPRs, SCC, EXEC, branches, calls, waits.

Addresses of code: a function or label stands at CODE_BASE + 4 * its index. s_getpc_b64 gives 0 and every symbol is its
absolute address, so that the usual `getpc + (symbol - here)` comes out right.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn import state as st
from gpu_utils.virtual.amdgcn.compare import COMPARE
from gpu_utils.virtual.amdgcn.operands import BITS, DTYPES, Decoder
from gpu_utils.virtual.amdgcn.parse import Instruction
from gpu_utils.virtual.amdgcn.scalar import TABLE, Scalar
from gpu_utils.virtual.machine import Await, Signal, nothing

CODE_BASE = 1 << 44
Run = Callable[[Any], Any]
_u, _q = np.uint32, np.uint64


_COMPARE = {
    "eq": np.equal,
    "lg": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
}
_SAVE = {
    "and": lambda s, e: s & e,
    "or": lambda s, e: s | e,
    "xor": lambda s, e: s ^ e,
    "nand": lambda s, e: ~(s & e),
    "nor": lambda s, e: ~(s | e),
    "xnor": lambda s, e: ~(s ^ e),
    "andn2": lambda s, e: s & ~e,
    "orn2": lambda s, e: s | ~e,
    "andn1": lambda s, e: ~s & e,
    "orn1": lambda s, e: ~s | e,
    "and_not0": lambda s, e: ~s & e,
    "and_not1": lambda s, e: s & ~e,
    "or_not0": lambda s, e: ~s | e,
    "or_not1": lambda s, e: s | ~e,
}
_WAITS = re.compile(
    r"s_(waitcnt|wait|nop|sleep|setprio|delay_alu|clause|sethalt|icache|dcache|inst_prefetch|set_inst_prefetch|ttrace|sendmsg|"
    r"code_end|gl1|wait_|version|decperflevel|incperflevel|set_gpr_idx_off|set_vgpr_msb|round_mode|denorm_mode|singleuse)"
)
# (which waves go, the row that it looks at)
BRANCHES: dict[str, tuple[Run, int]] = {
    "s_branch": (lambda s: True, st.NULL),
    "s_cbranch_scc0": (lambda s: ~s.scc[:, 0], st.SCC),
    "s_cbranch_scc1": (lambda s: s.scc[:, 0], st.SCC),
    "s_cbranch_vccz": (lambda s: _vcc(s) == 0, st.VCC),
    "s_cbranch_vccnz": (lambda s: _vcc(s) != 0, st.VCC),
    "s_cbranch_execz": (lambda s: False if s.exec_mask is None else s.Q[st.EXEC][:, 0] == 0, st.EXEC),
    "s_cbranch_execnz": (lambda s: True if s.exec_mask is None else s.Q[st.EXEC][:, 0] != 0, st.EXEC),
}


_BLOCK, _CLUSTER = "-1", "-3"
"""The barrier of a block, and that of a cluster of blocks, in s_barrier_signal and s_barrier_wait."""
_RENAMED = {"s_set_pc_i64": "s_setpc_b64", "s_swap_pc_i64": "s_swappc_b64", "s_get_pc_i64": "s_getpc_b64"}  # gfx1250
WRONG_MASK = "5"
"""The number of the trap that w2w_gpu.h takes where a mask is wrong; compilers take 2 and 3."""
MOST_RUNS = 4


def _vcc(s: Any) -> np.ndarray:
    return s.Q[st.VCC][:, 0] if s.lanes == 64 else s.U[st.VCC][:, 0]


def _check_counters(decoder: Decoder, ins: Instruction) -> None:
    """Refuse a wait for a counter of another family: vmcnt on gfx12, loadcnt before it."""
    for counter in re.findall(r"[a-z]+cnt", ins.text.removeprefix("s_wait")):
        if counter not in decoder.limits.waits:
            raise decoder.unsupported(f"{decoder.target} waits for {', '.join(decoder.limits.waits)}")


def decode(decoder: Decoder, ins: Instruction) -> tuple[Run, str, str]:
    """(run, kind, ends) of a scalar instruction that touches no memory."""
    name, ops = ins.mnemonic, ins.operands
    if name in BRANCHES:
        goes, row = BRANCHES[name]
        decoder.reads_row(row, 1 if row == st.SCC else decoder.mask_words)
        return goes, "branch", "branch"
    if name in ("s_endpgm", "s_endpgm_saved"):
        return nothing, "branch", "end"
    if name in ("s_barrier_signal", "s_barrier_wait") and ops[0] not in (_BLOCK, _CLUSTER):
        raise decoder.unsupported("named barriers")
    if name == "s_barrier_leave" or (name.startswith("s_barrier_") and ops[0] == _CLUSTER):
        return nothing, "wait", ""  # a cluster is one block here
    if name == "s_barrier":
        return nothing, "barrier", "barrier"
    if name in ("s_barrier_signal", "s_barrier_wait"):
        request, kind = (Signal, "wait") if name == "s_barrier_signal" else (Await, "barrier")
        at = request(int(ops[0], 0))
        return (lambda s: at), kind, "barrier"
    if name == "s_trap" and ops == [WRONG_MASK]:
        decoder.reads_row(st.VCC, 2)
        return _wrong_mask(decoder), "branch", "end"
    if name == "s_trap":
        return _trap(decoder), "branch", "end"
    name = _RENAMED.get(name, name)
    if name in ("s_setpc_b64", "s_swappc_b64", "s_call_b64"):
        return _jump(decoder, name, ops), "branch", "jump"
    if name in ("s_setreg_imm32_b32", "s_setreg_b32", "s_getreg_b32"):
        return _mode_register(decoder, name, ops), "scalar", ""
    if name == "s_sendmsg" and "MSG_INTERRUPT" in ins.text:
        return _interrupt, "wait", ""
    if _WAITS.match(name):
        _check_counters(decoder, ins)
        return nothing, "wait", ""
    if name == "s_getpc_b64":
        out = decoder.result(ops[0], 2)
        return (lambda s: s.put_scalar64(out, np.zeros((1, 1), _q))), "scalar", ""
    match = re.match(r"s_(\w+)_(saveexec|wrexec)_b(32|64)$", name)
    if match:
        return _save_exec(decoder, match[1], match[2] == "saveexec", f"u{match[3]}", ops), "scalar", "mask"
    match = re.match(r"s_cmpk?_(\w\w)_([iu](?:32|64))$", name)
    if match:
        kind = match[2]
        decoder.writes_row(st.SCC)
        a = decoder.getter(ops[0], kind)
        b = decoder.getter(_extended(ops[1], kind) if "cmpk" in name else ops[1], kind)
        compare = _COMPARE[match[1]]
        return (lambda s: s.put_scc(compare(a(s), b(s)))), "scalar", ""
    match = re.match(r"s_bitcmp([01])_b(32|64)$", name)
    if match:
        a, b, want = decoder.getter(ops[0], f"u{match[2]}"), decoder.getter(ops[1], "u32"), int(match[1])
        decoder.writes_row(st.SCC)
        top = _u(int(match[2]) - 1)
        return (
            (lambda s: s.put_scc((a(s) >> (b(s) & top).astype(a(s).dtype)) & a(s).dtype.type(1) == want)),
            "scalar",
            "",
        )
    match = re.match(r"s_(mov|add|mul|cmov)k_i32$", name)
    if match or re.match(r"s_(addk_co_i32)$", name):
        return _with_constant(decoder, name, ops), "scalar", ""
    match = re.match(r"s_cmov_b(32|64)$", name)
    if match:
        return _conditional_move(decoder, ops[0], ops[1], f"u{match[1]}")
    match = re.match(r"s_cmp_(\w+)_(f16|f32)$", name)
    if match:
        decoder.writes_row(st.SCC)
        a, b, order = decoder.getter(ops[0], match[2]), decoder.getter(ops[1], match[2]), COMPARE[match[1]]
        return (lambda s: s.put_scc(order(a(s), b(s)))), "scalar", ""
    entry = TABLE.get(name)
    if entry is None:
        raise decoder.unsupported()
    return _arithmetic(decoder, entry, ops)


def _extended(text: str, kind: str) -> str:
    """A 16-bit constant of s_*k, extended with its sign for i32."""
    value = int(text, 0) & 0xFFFF
    if kind == "i32" and value & 0x8000:
        value -= 0x10000
    return str(value)


def _arithmetic(decoder: Decoder, entry: Scalar, ops: list[str]) -> tuple[Run, str, str]:
    out = decoder.result(ops[0], BITS[entry.out] // 32 or 1)
    if entry.scc:
        decoder.writes_row(st.SCC)
    texts = list(ops[1:])
    if len([kind for kind in entry.sources if kind != "scc"]) > len(texts):
        texts.append(ops[0])  # s_bitset reads its destination
    sources = []
    for kind in entry.sources:
        sources.append(_scc(decoder) if kind == "scc" else _scalar_getter(decoder, texts.pop(0), kind))
    function, scc = entry.function, entry.scc
    if BITS[entry.out] == 16:  # the high half of the register becomes zero
        function = lambda *values: entry.function(*values).view(np.uint16).astype(np.uint32)  # noqa: E731
    word = np.uint64 if BITS[entry.out] == 64 else np.uint32
    put = _put64 if BITS[entry.out] == 64 else _put32
    to_exec = out in (st.EXEC, st.EXEC + 1)

    def run(s: Any) -> None:
        value = function(*[get(s) for get in sources])
        if scc == "own":
            value, flag = value
            s.put_scc(flag)
        value = value.view(word)
        put(s, out, value)
        if scc == "nonzero":
            s.put_scc(value != 0)
        if to_exec:
            s.exec_changed()

    if to_exec:
        return run, "scalar", "mask"
    if len(sources) > 2:
        return run, "scalar", ""
    if scc == "own":
        return _with_flag(function, sources[0], sources[1], out, word, put), "scalar", ""
    return _plain(function, sources, out, word, put, bool(scc)), "scalar", ""


def _plain(function: Any, sources: list[Any], out: int, word: Any, put: Any, nonzero: bool) -> Run:
    """An instruction of one or two operands that leaves EXEC alone; SCC says whether the result is not zero."""
    first, last = sources[0], sources[-1]
    if nonzero and isinstance(function, np.ufunc) and len(sources) == 2 and out != st.NULL:

        def run(s: Any) -> None:
            if s.act is None:
                value = (s.Q if word is _q else s.U)[out]
                function(first(s), last(s), out=value)
                s.forget_mask(out, word)
                np.not_equal(value, 0, out=s.scc)
            else:
                value = function(first(s), last(s))
                put(s, out, value)
                s.put_scc(value != 0)

        return run
    one = len(sources) == 1

    def run_any(s: Any) -> None:
        value = (function(first(s)) if one else function(first(s), last(s))).view(word)
        put(s, out, value)
        if nonzero:
            s.put_scc(value != 0)

    return run_any


def _with_flag(function: Any, first: Any, last: Any, out: int, word: Any, put: Any) -> Run:
    """An instruction of two operands that works out SCC itself and leaves EXEC alone."""

    def run(s: Any) -> None:
        value, flag = function(first(s), last(s))
        put(s, out, value.view(word))
        s.put_scc(flag)

    return run


def _scc(decoder: Decoder) -> Run:
    decoder.reads_row(st.SCC)
    return lambda s: s.scc


def _put32(s: Any, row: int, value: np.ndarray) -> None:
    s.put_scalar(row, value)


def _put64(s: Any, row: int, value: np.ndarray) -> None:
    s.put_scalar64(row, value)


def _scalar_getter(decoder: Decoder, text: str, kind: str) -> Any:
    match = re.match(r"^\(?\(?([.\w$]+)-([.\w$]+)\)?(&4294967295|>>32)\)?$", text)
    if match:
        address = decoder.symbols[match[1]]
        value = address & 0xFFFFFFFF if match[3][0] == "&" else address >> 32
        return decoder.getter(str(value), kind)
    if text in ("src_shared_base", "src_private_base"):
        # a flat address into LDS or scratch has this high half
        half = 0x10000 if text == "src_shared_base" else 0x20000
        constant = np.array([[half << 32 if BITS[kind] == 64 else half]], DTYPES[kind])
        return lambda s: constant
    if text in ("src_execz", "execz"):
        decoder.reads_row(st.EXEC, decoder.mask_words)
        return lambda s: (s.Q[st.EXEC] == 0).astype(DTYPES[kind])
    if text in ("src_vccz", "vccz"):
        decoder.reads_row(st.VCC, decoder.mask_words)
        return lambda s: (_vcc(s)[:, None] == 0).astype(DTYPES[kind])
    return decoder.getter(text, kind)


def _save_exec(decoder: Decoder, operation: str, saves: bool, kind: str, ops: list[str]) -> Run:
    words = BITS[kind] // 32
    out, source = decoder.result(ops[0], words), decoder.getter(ops[1], kind)
    decoder.writes_row(decoder.reads_row(st.EXEC, words), words)
    decoder.writes_row(st.SCC)
    function = _SAVE[operation]
    put = _put64 if kind == "u64" else _put32

    def run(s: Any) -> None:
        before = (s.Q[st.EXEC] if kind == "u64" else s.U[st.EXEC]).copy()
        after = function(source(s), before)
        put(s, st.EXEC, after)
        put(s, out, before if saves else after)
        s.put_scc(after != 0)
        s.exec_changed()

    return run


def _with_constant(decoder: Decoder, name: str, ops: list[str]) -> Run:
    out = decoder.result(ops[0], keeps=not name.startswith("s_movk"))
    value = np.array([[int(_extended(ops[1], "i32"))]], np.int32)
    if name.startswith("s_movk"):
        return lambda s: s.put_scalar(out, value.view(_u))
    if name.startswith("s_cmovk"):
        decoder.reads_row(st.SCC)
        return lambda s: s.put_scalar(out, np.where(s.scc, value.view(_u), s.U[out]))
    if name.startswith("s_mulk"):
        return lambda s: s.put_scalar(out, s.U[out] * value.view(_u))
    decoder.writes_row(st.SCC)
    function = TABLE["s_add_i32"].function

    def add(s: Any) -> None:
        total, flag = function(s.I[out], value)
        s.put_scalar(out, total.view(_u))
        s.put_scc(flag)

    return add


def _conditional_move(decoder: Decoder, out: str, source: str, kind: str) -> tuple[Run, str, str]:
    row, get, old = decoder.result(out, BITS[kind] // 32), decoder.getter(source, kind), decoder.getter(out, kind)
    decoder.reads_row(st.SCC)
    put = _put64 if kind == "u64" else _put32
    return (lambda s: put(s, row, np.where(s.scc, get(s), old(s)))), "scalar", ""


def _jump(decoder: Decoder, name: str, ops: list[str]) -> Run:
    if name == "s_call_b64":
        raise decoder.unsupported("direct call")
    source = decoder.source(ops[-1], 2)
    out = decoder.result(ops[0], 2) if name == "s_swappc_b64" else None
    back = np.array([[CODE_BASE + 4 * (decoder.index + 1)]], _q)

    def run(s: Any) -> np.ndarray:
        to = (s.pair(source)[:, 0].astype(np.int64) - CODE_BASE) >> 2
        if out is not None:
            s.put_scalar64(out, back)
        return to

    return run


def _mode_register(decoder: Decoder, name: str, ops: list[str]) -> Run:
    """MODE decides rounding, denormals and fp8 overflow; only values that change nothing here are accepted."""
    register = ops[0] if name != "s_getreg_b32" else ops[1]
    if name == "s_getreg_b32":
        out = decoder.result(ops[0])
        if "HW_REG_MODE" in register:
            return lambda s: s.put_scalar(out, np.array([[0x2F0]], _u))
        # IB_STS2 says how many blocks a cluster has on gfx1250: 0, the launch is not one of clusters
        if any(name in register for name in ("XCC_ID", "HW_ID", "IB_STS2")):
            return lambda s: s.put_scalar(out, np.zeros((1, 1), _u))
        raise decoder.unsupported("this hardware register")
    match = re.match(r"hwreg\((?:HW_REG_MODE|HW_REG_WAVE_MODE|1)(?:,\s*(\d+),\s*(\d+))?\)", register)
    if match is None:
        raise decoder.unsupported("this hardware register")
    at, size = int(match[1] or 0), int(match[2] or 32)
    value = int(ops[1], 0) if name == "s_setreg_imm32_b32" else None
    if value is not None and at <= 23 < at + size:
        decoder.fp16_overflow = value >> (23 - at) & 1
        return nothing
    if value in (0, 3) and at == 2 and size == 2:  # rounding of float16 and float64: nearest, or toward zero
        decoder.toward_zero16 = value == 3
        return nothing
    if at == 25 and size == 1 and decoder.gfx125:  # SCHED_MODE or WAVE_MODE's replay switch: no result depends on it
        return nothing
    if value is not None and at == 4 and size == 2:  # float32 denormals: 3 on, 0 flushed around a division's steps
        return nothing
    raise decoder.unsupported("this part of the MODE register")


def _place(decoder: Decoder) -> str:
    assert decoder.instruction is not None
    line = decoder.instruction.line
    return f" ({line[0].rsplit('/', 1)[-1]}:{line[1]})" if line else ""


def _first_active(s: Any) -> tuple[int, int]:
    """(wave, lane) of the first lane that runs."""
    if s.mask is None or not s.mask.any():
        return 0, 0
    wave, lane = (int(i) for i in np.argwhere(s.mask)[0])
    return wave, lane


def _wrong_mask(decoder: Decoder) -> Run:
    """The trap of w2w_gpu.h where the mask of a *_sync function, in VCC, does not name the lanes that are active."""
    from gpu_utils.errors import DeviceAssert

    place = _place(decoder)

    def run(s: Any) -> None:
        wave, lane = _first_active(s)
        named = st.unpack_mask(s.Q[st.VCC][wave : wave + 1], 64)[0][: s.lanes]
        active = np.ones(s.lanes, bool) if s.mask is None else s.mask[wave]
        raise DeviceAssert(
            f"kernel {s.program.name}{place}: {s.where(wave, lane)}: the mask names {said_lanes(named)}, but "
            f"{said_lanes(active)} call with it; on AMD a *_sync function traps unless both are the same (ROCm leaves "
            "the check out under NDEBUG). Call it where all lanes of the mask come, or pass __activemask() taken there"
        )

    return run


def said_lanes(on: np.ndarray) -> str:
    """The lanes of a mask in words.

    >>> said_lanes(np.array([True, True, False, True])), said_lanes(np.zeros(4, bool))
    ('lanes 0-1 and 3', 'no lanes')
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], on, [False]]).astype(np.int8)))
    runs = [f"{first}" if last == first + 1 else f"{first}-{last - 1}" for first, last in edges.reshape(-1, 2)]
    if len(runs) > MOST_RUNS:
        runs = [*runs[:MOST_RUNS], "others"]
    words = " and ".join([", ".join(runs[:-1]), runs[-1]] if len(runs) > 1 else runs)
    return f"{'lane' if np.count_nonzero(on) == 1 else 'lanes'} {words}" if runs else "no lanes"


def _trap(decoder: Decoder) -> Run:
    from gpu_utils.errors import DeviceAssert

    assert decoder.instruction is not None
    text, line, place = decoder.instruction.text, decoder.instruction.line, _place(decoder)

    def run(s: Any) -> None:
        where = s.where(*_first_active(s))
        if s.host is not None and (error := s.host.trapped(line, where)):
            raise error
        raise DeviceAssert(f"kernel {s.program.name}{place}: {where} ran into `{text}`: an assertion failed")

    return run


def _interrupt(s: Any) -> None:
    """The interrupt that goes with a signal: the host looks what the kernel has for it."""
    if s.host is not None:
        s.host.answer()
