"""wgmma: matrix products of a warpgroup (four warps) on operands in shared memory, sm_90.

A descriptor names a matrix in shared memory: start address, leading and stride byte offsets (all in units of 16
bytes) and a swizzle. In canonical layout (PTX manual, "Matrix Descriptor Format" and "Strides"):

  K-major, swizzle of W = 32, 64 or 128 bytes: row r, byte b of a row of K:   (r / 8) * stride + (r % 8) * W + b
  K-major, no swizzle:        (r / 8) * stride + (b / 16) * lead + (r % 8) * 16 + b % 16
  MN-major, swizzled:         (x / W) * lead + (k / 8) * stride + (k % 8) * W + x % W       with x the byte along M or N
  MN-major, no swizzle:       (x / 16) * stride + (k / 8) * lead + (k % 8) * 16 + x % 16

The swizzle xors bits 4 up of the address with the bits from 7 up. Products are computed when they are issued;
accuracy as in matrix.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from gpu_utils.chips.targets import TARGETS
from gpu_utils.errors import OutOfBounds, UninitialisedShared
from gpu_utils.virtual.machine import source_of
from gpu_utils.virtual.ptx.decode import Decoder, PtxOp, family
from gpu_utils.virtual.ptx.matrix import MULTIPLICANDS, clamp_or_wrap, fragment_a, to_f32
from gpu_utils.virtual.ptx.state import PtxState
from gpu_utils.virtual.ptx.syntax import Imm, Instruction, Vector
from gpu_utils.virtual.ptx.warp import full

F16, F32, U16, U32, U64 = np.float16, np.float32, np.uint16, np.uint32, np.uint64
WIDTHS = {0: 0, 1: 128, 2: 64, 3: 32}
_PAIRS = [(d, a, a) for d in ("f32", "f16") for a in ("f16",)] + [("f32", "bf16", "bf16"), ("f32", "tf32", "tf32")]
_PAIRS += [(d, a, b) for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
_PAIRS += [("s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")]
WGMMA_TYPES = tuple(_PAIRS)
ORDER_FORMS = ("wgmma.fence.sync.aligned", "wgmma.commit_group.sync.aligned", "wgmma.wait_group.sync.aligned")


def swizzle(address: np.ndarray, width: int) -> np.ndarray:
    """Addresses with 16-byte chunks permuted within `width` bytes (0: none).

    >>> swizzle(np.array([0, 128, 144, 256]), 128).tolist()
    [0, 144, 128, 288]
    """
    return address ^ ((address >> 3) & (width - 16)) if width else address


def chunk_offsets(rows: int, k_bytes: int, transposed: bool, lead: int, stride: int, width: int) -> np.ndarray:
    """Byte offsets of the 16-byte chunks of a matrix: (rows, k_bytes / 16), or (K, rows * 2 / 16) when M/N-major."""
    if not transposed:
        r, b = np.arange(rows)[:, None], np.arange(0, k_bytes, 16)[None]
        if width:
            return (r // 8) * stride + (r % 8) * width + b
        return (r // 8) * stride + (b // 16) * lead + (r % 8) * 16
    k, x = np.arange(k_bytes // 2)[:, None], np.arange(0, 2 * rows, 16)[None]
    if width:
        return (x // width) * lead + (k // 8) * stride + (k % 8) * width + x % width
    return (x // 16) * stride + (k // 8) * lead + (k % 8) * 16


def read_matrix(
    state: PtxState, op: PtxOp, descriptors: np.ndarray, waves: np.ndarray, rows: int, kind: str, transposed: bool
) -> np.ndarray:
    """(n, rows, K) float32 from shared memory; descriptors uint64 (n,), of the warps `waves` (n,)."""
    d = descriptors.astype(np.int64)
    start, lead, stride = (d & 0x3FFF) << 4, ((d >> 16) & 0x3FFF) << 4, ((d >> 32) & 0x3FFF) << 4
    width = WIDTHS[int(d[0] >> 62) & 3]
    plain = chunk_offsets(rows, 32, transposed, int(lead[0]), int(stride[0]), width)
    address = swizzle(start[:, None, None] + plain, width)
    if int(address.max()) + 16 > state.shared.size:
        raise OutOfBounds(
            f"kernel {state.program.name}{source_of(op)}: {state.where(int(waves[0]), 0)} multiplies a matrix "
            f"that reaches "
            f"offset {int(address.max()) + 16} of shared memory, which has {state.shared.size} bytes per block "
            f"(`{op.mnemonic}`)"
        )
    flat = address + (state.block_of_wave[waves] * state.shared.stride)[:, None, None]
    if state.shared.check and not state.shared.marks[8].take(flat >> 4).all():
        raise UninitialisedShared(
            f"kernel {state.program.name}{source_of(op)}: {state.where(int(waves[0]), 0)} multiplies a matrix "
            f"in shared memory of "
            f"which a part was never written; is a store, a copy or a wait missing? (`{op.mnemonic}`)"
        )
    if state.watch is not None:
        _touch(state, op, waves, flat)
    words = np.empty((*flat.shape, 2), U64)
    words[..., 0], words[..., 1] = state.shared.words[8].take(flat >> 3), state.shared.words[8].take((flat >> 3) + 1)
    size = MULTIPLICANDS[kind]
    values = words.reshape(len(flat), flat.shape[1], -1).view(f"u{size}")
    if transposed:
        values = values.swapaxes(1, 2)
    return to_f32(np.ascontiguousarray(values), kind)


def _touch(state: PtxState, op: PtxOp, waves: np.ndarray, flat: np.ndarray) -> None:
    """Tell the sanitizers what warpgroups read: in the name of their first warps, as far as those have come."""
    here = np.ones(len(waves), bool) if state.mask is None else state.mask[waves].any(axis=1)
    if here.any():
        state.shared.touch(state, op, waves[here], flat[here].reshape(np.count_nonzero(here), -1), 16, "load", "wgmma")


@family("wgmma")
def _wgmma(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    if "wgmma" not in TARGETS[decoder.target].matrix:
        raise ValueError(f"{decoder.target} has no wgmma")
    op.kind = "wait"
    op.run = lambda state: None
    if instruction.opcode in ORDER_FORMS:
        decoder.guard(instruction)
        return
    parts = [p for p in instruction.parts if p != "satfinite"]
    shape = re.fullmatch(r"m64n(\d+)k(\d+)", parts[4]) if len(parts) == 8 and parts[1] == "mma_async" else None
    kinds = tuple(parts[5:])
    if shape is None or kinds not in WGMMA_TYPES or parts[2:4] != ["sync", "aligned"]:
        raise ValueError("not a known form of wgmma")
    n, k = int(shape[1]), int(shape[2])
    if k * MULTIPLICANDS[kinds[1]] != 32 or n % 8 or not 8 <= n <= 256:
        raise ValueError("no such shape")
    registers, a, b, *flags = instruction.operands
    outs = [decoder.result(item) for item in registers.items]
    if len(outs) != n // (4 if kinds[0] == "f16" else 2):
        raise ValueError(f"{len(outs)} accumulator registers for n = {n}")
    values = [int(flag.value) for flag in flags[1:] if isinstance(flag, Imm)]
    signs = [*values[:2], 1, 1][:2] if kinds[0] != "s32" else [1, 1]
    turns = values[2:]
    turn_b = bool(turns[-1]) if turns else False
    turn_a = bool(turns[0]) if len(turns) == 2 else False
    op.kind, op.flops = "matrix", 2 * 64 * n * k // 4
    scale = None if isinstance(flags[0], Imm) else decoder.raw(flags[0])
    keep = bool(flags[0].value) if scale is None else True
    if keep:
        for item in registers.items:
            decoder.raw(item)
    op.members = decoder.constant(0xFFFFFFFF, "b32")
    b_slot = decoder.raw(b)
    left = _left(decoder, op, a, kinds[1], turn_a)
    saturate = "satfinite" in instruction.parts

    def run(state: PtxState) -> None:
        groups = state.waves // 4 if state.waves % 4 == 0 and state.waves_per_block % 4 == 0 else 0
        whole = groups and (state.mask is None or state.mask.reshape(groups, -1).all(axis=1).all())
        mask = None if whole else state.mask
        firsts = np.arange(0, state.waves, 4) if groups else np.arange(state.waves)
        heads = _first_lanes(state, firsts)
        descriptors = full(state, b_slot)[firsts, heads]
        live = np.ones(len(firsts), bool)
        if mask is not None:
            live[:] = mask.reshape(len(firsts), -1).any(axis=1)
        right = np.zeros((len(firsts), n, k), F32)
        right[live] = read_matrix(state, op, descriptors[live], firsts[live], n, kinds[2], turn_b)
        product = np.matmul(left(state, groups, live), right.transpose(0, 2, 1))
        product = product.reshape(state.waves, 16, n)
        if signs[0] * signs[1] < 0:
            product = -product
        _accumulate(state, product, outs, kinds[0], scale, keep, saturate, mask)

    op.run = run


def _first_lanes(state: PtxState, waves: np.ndarray) -> np.ndarray:
    return np.zeros(len(waves), np.int64) if state.mask is None else np.argmax(state.mask[waves], axis=1)


def _left(decoder: Decoder, op: PtxOp, a, kind: str, turned: bool) -> Callable[[PtxState, int, np.ndarray], np.ndarray]:
    """A as (warpgroups, 64, K), or (warps, 16, K) when a warpgroup is not complete: from registers or shared memory."""
    if isinstance(a, Vector):
        slots = [decoder.raw(item) for item in a.items]

        def registers(state: PtxState, groups: int, live: np.ndarray) -> np.ndarray:
            fragment = fragment_a([state.r[slot] for slot in slots], kind)
            return fragment.reshape(len(live), -1, fragment.shape[-1])

        return registers
    slot = decoder.raw(a)

    def shared(state: PtxState, groups: int, live: np.ndarray) -> np.ndarray:
        waves = np.arange(0, state.waves, 4 if groups else 1)
        descriptors = full(state, slot)[waves, _first_lanes(state, waves)]
        matrix = np.zeros((len(waves), 64, 32 // MULTIPLICANDS[kind]), F32)
        matrix[live] = read_matrix(state, op, descriptors[live], waves[live], 64, kind, turned)
        if groups:
            return matrix
        own = (state.wave_in_block % 4)[:, None] * 16 + np.arange(16)
        return np.take_along_axis(matrix, own[:, :, None], axis=1)

    return shared


def _accumulate(state, product, outs, kind: str, scale, keep: bool, saturate: bool, mask) -> None:
    """D = product + D, or the product alone where scale-d is false.

    Element i of a lane is in row group + 8 * (i / 2 % 2), column 8 * (i / 4) + 2 * quad + i % 2.
    """
    waves, n = state.waves, product.shape[2]
    parts = product.reshape(waves, 2, 8, n // 8, 4, 2)
    added = None if scale is None else state.r[scale]
    if added is not None and added.all():
        added = None

    def with_d(value: np.ndarray, d: np.ndarray) -> np.ndarray:
        if not keep:
            return value
        return (
            value + d
            if added is None
            else np.where(added if value.shape == added.shape else np.repeat(added, 2, axis=1), value + d, value)
        )

    for i, out in enumerate(outs):
        if kind == "f16":
            value = parts[:, i % 2, :, i // 2].reshape(waves, 64)
            value = with_d(value, state.r[out].view(F16).astype(F32)).astype(F16).view(U32)
        else:
            value = parts[:, i // 2 % 2, :, i // 4, :, i % 2].reshape(waves, 32)
            if kind == "f32":
                value = with_d(value, state.r[out].view(F32)).view(U32)
            else:
                total = with_d(value.astype(np.int64), state.r[out].view(np.int32))
                value = clamp_or_wrap(total, saturate).view(U32)
        state.put(out, value, mask)
