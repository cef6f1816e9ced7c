"""AMDGCN instructions into ops: the beginning of a mnemonic names the family whose module decodes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_utils.virtual.amdgcn import ds, matrix, mem, salu, tensor, vector
from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.amdgcn.parse import Instruction
from gpu_utils.virtual.amdgcn.state import register_name
from gpu_utils.virtual.machine import Op

Found = tuple[Callable[[Any], Any], str, str]  # run, kind, ends of an Op


def _matrix(decoder: Decoder, instruction: Instruction, op: Op) -> Found:
    run, op.flops = matrix.decode(decoder, instruction)
    return run, "matrix", ""


def _dual(decoder: Decoder, instruction: Instruction, op: Op) -> Found:
    return _two(decoder, instruction), "vector", ""


# beginning of the mnemonic -> what decodes it; the first that fits
FAMILIES: dict[tuple[str, ...], Callable[[Decoder, Instruction, Op], Found]] = {
    ("global_", "flat_", "cluster_", "buffer_", "scratch_", "s_load_", "s_buffer_load_", "s_prefetch"): mem.decode,
    ("ds_",): ds.decode,
    ("tensor_",): tensor.decode,
    ("s_",): lambda decoder, instruction, op: salu.decode(decoder, instruction),
    ("v_mfma", "v_smfmac", "v_wmma", "v_swmmac"): _matrix,
    ("v_dual",): _dual,
    ("v_",): lambda decoder, instruction, op: vector.decode(decoder, instruction),
}


def decode_instruction(decoder: Decoder, instruction: Instruction, index: int) -> Op:
    """The op of the `index`th instruction of the file. Raises UnsupportedInstruction when no family knows it."""
    decoder.begin(instruction, index)
    mnemonic = instruction.mnemonic
    op = Op(lambda s: None, mnemonic, "vector", instruction.text, instruction.line)
    family = next((decode for start, decode in FAMILIES.items() if mnemonic.startswith(start)), None)
    if family is None:
        raise decoder.unsupported()
    try:
        op.run, op.kind, op.ends = family(decoder, instruction, op)
    except (IndexError, ValueError, TypeError, KeyError) as error:
        raise decoder.unsupported(f"operands not understood: {error}") from error
    _hand_over(decoder, op)
    return op


def _hand_over(decoder: Decoder, op: Op) -> None:
    """Tell the op which registers it reads and writes."""
    op.guards = frozenset(map(register_name, decoder.guards))
    op.reads = frozenset(map(register_name, decoder.reads)) | op.guards
    op.writes = frozenset(map(register_name, decoder.writes))


def _two(decoder: Decoder, pair: Instruction) -> Any:
    """Two instructions issued as one (RDNA3): both read their sources before either writes."""
    runs, reads, writes = [], [], []
    for part in pair.modifiers["parts"]:
        single = Instruction(
            part.mnemonic.replace("v_dual_", "v_"), part.operands, part.modifiers, pair.text, pair.line
        )
        decoder.begin(pair, decoder.index)
        runs.append(vector.decode(decoder, single)[0])
        reads.append(decoder.reads)
        writes.append(decoder.writes)
    decoder.reads, decoder.writes = set.union(*reads), set.union(*writes)
    first, second = runs
    if not writes[0] & reads[1]:
        order = (first, second)
    elif not writes[1] & reads[0]:
        order = (second, first)
    else:
        return _exchange(first, second, min(writes[0]))

    def run(s: Any) -> None:
        order[0](s)
        order[1](s)

    return run


def _exchange(first: Any, second: Any, out: int) -> Any:
    def run(s: Any) -> None:
        before = s.U[out].copy()
        first(s)
        after = s.U[out].copy()
        s.U[out][...] = before
        second(s)
        s.U[out][...] = after

    return run
