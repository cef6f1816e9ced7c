"""gfx1250's 1024 vector registers: which 256 of them each operand of an instruction names.

An operand has 8 bits, so that v0 to v255 can be written; two more bits for each place come from `s_set_vgpr_msb`, whose
number has bits 1:0 for the first source, 3:2 for the second, 5:4 for the third and 7:6 for the destination (the upper
byte keeps what was set before, for debuggers). `s_setreg_imm32_b32` on the MODE register sets them too, from bits 19:12
of its number, the destination first. LLVM writes the whole number behind the name, `v4 /*v260*/`; the decoder
trusts the bits, and refuses a text in which the two differ. Source: LLVM's AMDGPULowerVGPREncoding.cpp, which says
which place an operand of each encoding has; scales of v_wmma_scale_* have none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from gpu_utils.virtual.amdgcn.parse import Instruction

SET = "s_set_vgpr_msb"
BANK = 256
FIRST, SECOND, THIRD, RESULT = range(4)
_REGISTER = re.compile(r"(?<![\w.])v(?:(\d+)|\[(\d+):(\d+)\])(?: /\*v\[?(\d+)[:\d\]]*\*/)?")
_CARRY = re.compile(r"v_(div_scale|(add|sub|subrev)_co|mad_co|mad_[ui]64)")
_MODE = re.compile(r"hwreg\((?:HW_REG_WAVE_MODE|1)\b")


def places(ins: Instruction) -> Sequence[int | None]:
    """For each operand the place whose two bits it gets; None: it has none."""
    name, count = ins.mnemonic, len(ins.operands)
    if name.startswith("v_"):
        if name.startswith("v_cmpx_") and not ins.operands[0].startswith("exec"):
            return [FIRST, SECOND][:count]
        order: list[int | None] = [RESULT, FIRST, SECOND, THIRD]
        if _CARRY.match(name):
            order.insert(1, None)
        return (order + [None] * count)[:count]
    if name.startswith("ds_"):
        stores = re.match(r"ds_(store|write)", name) or (
            "_rtn" not in name and not re.match(r"ds_(load|read|bpermute|permute|swizzle)", name)
        )
        return ([FIRST, SECOND, THIRD] if stores else [RESULT, FIRST, SECOND, THIRD])[:count]
    if name.startswith("buffer_"):
        return [RESULT, FIRST, *([None] * count)][:count]
    if name.startswith(("global_", "flat_", "scratch_")):
        plain = 2 if name.startswith("flat_") else 3
        stores = "_store_" in name or ("_atomic_" in name and count <= plain)
        return ([FIRST, SECOND, None] if stores else [RESULT, FIRST, SECOND, None])[:count]
    return [None] * count


def set_by(ins: Instruction) -> int | None:
    """The banks that an instruction sets; None when it sets none."""
    if ins.mnemonic == SET:
        return int(ins.operands[0], 0) & 0xFF
    if ins.mnemonic == "s_setreg_imm32_b32" and _MODE.match(ins.operands[0]):
        turned = int(ins.operands[1], 0) >> 12 & 0xFF
        return turned >> 2 | (turned & 3) << 6
    return None


def named_in_full(ins: Instruction, bits: int) -> Instruction:
    """The instruction with v0 to v1023 in its operands. Raises ValueError where the text says another number."""
    parts = ins.modifiers.get("parts")
    if parts:
        return replace(ins, modifiers={"parts": [named_in_full(part, bits) for part in parts]})
    operands = [_whole(text, place, bits) for text, place in zip(ins.operands, places(ins), strict=True)]
    return replace(ins, operands=operands)


def _whole(text: str, place: int | None, bits: int) -> str:
    plus = 0 if place is None else BANK * (bits >> 2 * place & 3)

    def whole(found: re.Match[str]) -> str:
        first = int(found[1] or found[2]) + plus
        if found[4] and int(found[4]) != first:
            raise ValueError(f"`{found[0]}` names v{first} under {SET} {bits:#x}")
        return f"v{first}" if found[1] else f"v[{first}:{int(found[3]) + plus}]"

    return _REGISTER.sub(whole, text)


def flow(code: Sequence[Instruction], part: range, entries: Sequence[int], targets: dict[int, int]) -> dict[int, int]:
    """The banks that are set when an instruction is reached, for those that differ from 0 or set them.

    code: the instructions of the file; part: those to look at. entries: where code begins with 0. targets: branch ->
    where it goes. Raises ValueError where two ways to an instruction have set different banks.
    """
    if not any(set_by(code[at]) for at in part):
        return {}
    found: dict[int, int] = {}
    work = [(at, 0) for at in entries]
    while work:
        at, bits = work.pop()
        while at in part:
            if at in found:
                if found[at] != bits:
                    raise ValueError(f"`{code[at].text}` is reached under {SET} {found[at]:#x} and {bits:#x}")
                break
            found[at] = bits
            name = code[at].mnemonic
            changed = set_by(code[at])
            bits = bits if changed is None else changed
            if at in targets:
                work.append((targets[at], bits))
            if name in ("s_branch", "s_endpgm", "s_set_pc_i64", "s_setpc_b64"):
                break
            at += 1
    return found
