"""From AMDGCN text to a Program: which code a kernel reaches, where data lies, what its descriptor says."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from gpu_utils.chips.targets import TARGETS
from gpu_utils.compiler.cpp_module import source_name
from gpu_utils.errors import UnknownName, UnsupportedInstruction
from gpu_utils.virtual.amdgcn import salu
from gpu_utils.virtual.amdgcn.decode import decode_instruction
from gpu_utils.virtual.amdgcn.high_registers import flow, named_in_full, set_by
from gpu_utils.virtual.amdgcn.info import AmdInfo
from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.amdgcn.ordering import order_programs
from gpu_utils.virtual.amdgcn.parse import Instruction, Kernel, Module, parse
from gpu_utils.virtual.kernel_info import MOST_THREADS
from gpu_utils.virtual.machine import Op, Program


def decode(text: str, target: str, name: str | None = None) -> Program:
    """Decode one kernel of an assembly file; raises UnsupportedInstruction before anything runs."""
    module = parse(text)
    if name is None:
        name = next(iter(module.kernels), None) or next(iter(module.labels))
    if name not in module.labels:
        raise UnknownName("kernel", name, list(module.kernels) or list(module.labels))
    kernel = module.kernels.get(name, Kernel(name))
    lanes = int(kernel.notes.get("wavefront_size", TARGETS[target].lanes))
    _check_modes(kernel, target)
    reach = _reach(module, name)
    code = _code(text, target, lanes, kernel.descriptor.get("fp16_overflow", 0), reach)
    entry = module.labels[name] - reach.start
    if kernel.descriptor.get("user_sgpr_kernarg_preload_length", 0):
        entry = _after_preload_prologue(code.ops, entry)
    leaders = {at - reach.start for at in module.labels.values() if reach.start <= at < reach.stop}
    code.data[...] = code.first_data  # another kernel of the file may have written to its variables
    info = _info(kernel, code.decoder, code.data)
    return Program.of(source_name(name), target, lanes, "wave", code.ops, info, entry, leaders)


@dataclass(frozen=True)
class _Reach:
    """The instructions of the file, by number, that a kernel may come to. kernel: its name, for errors."""

    start: int
    stop: int
    kernel: str = field(compare=False)


class _Code(NamedTuple):
    """The ops of a reach, the data of its file, what that was at first, and the decoder, which knows the registers."""

    ops: list[Op]
    data: np.ndarray
    first_data: np.ndarray
    decoder: Decoder


def _reach(module: Module, name: str) -> _Reach:
    """Code of the kernel, and of every function in the file when the kernel calls one."""
    calls = any(ins.mnemonic in ("s_swappc_b64", "s_setpc_b64", "s_swap_pc_i64", "s_set_pc_i64") for ins in module.code)
    if calls or len(module.kernels) < 2:
        return _Reach(0, len(module.code), name)
    start = module.labels[name]
    starts = sorted(module.labels[other] for other in module.kernels if other in module.labels)
    return _Reach(start, next((at for at in starts if at > start), len(module.code)), name)


@lru_cache(maxsize=16)
def _code(text: str, target: str, lanes: int, fp16_overflow: int, reach: _Reach) -> _Code:
    """Decode a part of a file; kernels that reach the whole of it share its ops and its data."""
    module = parse(text)
    data, symbols = _place_data(module)
    decoder = Decoder(target, reach.kernel, lanes, symbols)
    decoder.code, decoder.fp16_overflow = module.code, fp16_overflow
    part = range(reach.start, reach.stop)
    instructions = _named_in_full(decoder, module, part)
    ops = [decode_instruction(decoder, instructions[index - reach.start], index) for index in part]
    for op, index in zip(ops, part, strict=True):
        instruction = module.code[index]
        if instruction.mnemonic in salu.BRANCHES:
            at = module.labels.get(instruction.operands[0], -1)
            if at not in part:
                raise UnsupportedInstruction(target, reach.kernel, instruction.text, "branch to an unknown label")
            op.target = at - reach.start
            op.skips = instruction.mnemonic == "s_cbranch_execz"
    _fix_jumps(ops, reach.start)
    order_programs(ops, target)
    return _Code(ops, data, data.copy(), decoder)


def _named_in_full(decoder: Decoder, module: Module, part: range) -> list[Instruction]:
    """The instructions of a part of a file; on gfx1250 with the whole numbers of their vector registers."""
    code = [module.code[index] for index in part]
    if not decoder.gfx125 or not any(set_by(ins) for ins in code):
        return code
    targets = {
        index: module.labels.get(module.code[index].operands[0], -1)
        for index in part
        if module.code[index].mnemonic in salu.BRANCHES
    }
    entries = [at for name, at in module.labels.items() if at in part and not name.startswith(".L")]
    named = []
    try:
        found = flow(module.code, part, sorted({*entries, part.start}), targets)
        for index, ins in zip(part, code, strict=True):
            decoder.begin(ins, index)
            named.append(named_in_full(ins, found.get(index, 0)))
    except ValueError as error:
        raise decoder.unsupported(str(error)) from error
    return named


def _fix_jumps(ops: list[Op], shift: int) -> None:
    """Code addresses count instructions of the file; ops count from the first reachable one."""
    if not shift:
        return
    for op in ops:
        if op.ends == "jump":
            op.run = _shifted(op.run, shift)


def _shifted(inner: Any, shift: int) -> Any:
    return lambda s: inner(s) - shift


def _after_preload_prologue(ops: list[Op], entry: int) -> int:
    """Hardware that preloads arguments starts 256 bytes in, past the loads made for older firmware."""
    for at in range(entry, min(entry + 12, len(ops))):
        target = ops[at].target
        if ops[at].mnemonic == "s_branch" and target is not None:
            return target
        if not ops[at].mnemonic.startswith(("s_load", "s_waitcnt", "s_wait", "s_nop")):
            break
    return entry


def _check_modes(kernel: Kernel, target: str) -> None:
    for key, wanted in (("float_round_mode_32", 0), ("float_round_mode_16_64", 0), ("float_denorm_mode_16_64", 3)):
        if kernel.descriptor.get(key, wanted) != wanted:
            raise UnsupportedInstruction(
                target, kernel.name, f".amdhsa_{key} {kernel.descriptor[key]}", "rounding mode"
            )


def _place_data(module: Module) -> tuple[np.ndarray, dict[str, int]]:
    """The constant data of the file in memory, with a table of addresses (GOT), and the address of every symbol.

    Nothing for a file that has no data and asks for no address.
    """
    needed = bool(module.blob) or any("@got" in instruction.text for instruction in module.code)
    names = sorted({*module.data, *module.labels}) if needed else []
    blob = np.zeros(-(-len(module.blob) // 16) * 16 + 8 * len(names) + 16 if needed else 0, np.uint8)
    blob[: len(module.blob)] = np.frombuffer(bytes(module.blob), np.uint8)
    base = blob.ctypes.data
    symbols = {name: base + at for name, at in module.data.items()}
    for name, at in module.labels.items():
        symbols[name] = salu.CODE_BASE + 4 * at
    table = -(-len(module.blob) // 16) * 16
    words = blob[table : table + 8 * len(names)].view(np.uint64)
    got = {}
    for i, name in enumerate(names):
        words[i] = symbols[name]
        got[f"{name}@got"] = base + table + 8 * i
    for at, name in module.relocations.items():
        if name in symbols:
            blob[at : at + 8].view(np.uint64)[0] = symbols[name]
    return blob, {**symbols, **got}


def _info(kernel: Kernel, decoder: Decoder, blob: np.ndarray) -> AmdInfo:
    d = kernel.descriptor
    user: list[tuple[str, int]] = []
    for key, name, count in (
        ("user_sgpr_private_segment_buffer", "scratch", 4),
        ("user_sgpr_dispatch_ptr", "dispatch", 2),
        ("user_sgpr_queue_ptr", "", 2),
        ("user_sgpr_kernarg_segment_ptr", "kernarg", 2),
        ("user_sgpr_dispatch_id", "", 2),
        ("user_sgpr_flat_scratch_init", "", 2),
        ("user_sgpr_private_segment_size", "", 1),
    ):
        if d.get(key):
            user.append((name, count))
    if d.get("user_sgpr_kernarg_preload_length"):
        user.append(("preload", d["user_sgpr_kernarg_preload_length"]))
    used = sum(count for _, count in user)
    if d.get("user_sgpr_count", 0) > used:
        user.append(("", d["user_sgpr_count"] - used))
    if not d:
        user = [("kernarg", 2)]
    return AmdInfo(
        parameters=tuple((at, size) for at, size, kind in kernel.params if not kind.startswith("hidden")),
        hidden=tuple(parameter for parameter in kernel.params if parameter[2].startswith("hidden")),
        parameter_bytes=int(kernel.notes.get("kernarg_segment_size", 0)) or sum(size for _, size, _ in kernel.params),
        registers=decoder.vgprs + decoder.agprs,
        static_shared=int(d.get("group_segment_fixed_size", 0)),
        data=blob,
        most_threads=min(MOST_THREADS, kernel.notes.get("max_flat_workgroup_size", MOST_THREADS)),
        compiled_registers=int(kernel.notes.get("vgpr_count", 0)),
        spills=int(kernel.notes.get("vgpr_spill_count", 0)),
        vgprs=decoder.vgprs,
        agprs=decoder.agprs,
        sgprs=min(106, max(decoder.sgprs + 2, d.get("user_sgpr_count", 0) + 4)),
        constants=tuple(decoder.constants),
        user_sgprs=tuple(user),
        preload_offset=d.get("user_sgpr_kernarg_preload_offset", 0),
        group_ids=tuple(
            axis for axis, name in enumerate("xyz") if d.get(f"system_sgpr_workgroup_id_{name}", axis == 0)
        ),
        ids_in_ttmp=decoder.gfx12,
        scratch=int(kernel.notes.get("private_segment_fixed_size", d.get("private_segment_fixed_size", 0))),
        notes=kernel.notes,
    )
