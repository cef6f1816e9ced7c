"""Integer and bit instructions of PTX, as a table: opcode -> Form. All of them are exact.

Shifts past the width give 0 (or the sign); a division by zero gives all ones and its remainder the dividend,
which is what NVIDIA's compiled division sequences give (the PTX manual leaves it open).
"""

from __future__ import annotations

import numpy as np

from gpu_utils.virtual.ptx.forms import Form, Table, store

U8, U16, U32, U64, S32, S64 = np.uint8, np.uint16, np.uint32, np.uint64, np.int32, np.int64
TABLE: Table = {}
WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
_NP = {"u16": U16, "s16": np.int16, "u32": U32, "s32": S32, "u64": U64, "s64": S64}


def _add(name: str, types: str, arity: int, fn, out: str | None = None) -> None:
    for kind in types.split():
        TABLE[f"{name}.{kind}"] = Form((out or kind,), (kind,) * arity, fn)


def mul_hi(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The upper half of the product."""
    kind, bits = a.dtype.kind, a.dtype.itemsize * 8
    if bits < 64:
        wide = {("u", 16): U32, ("i", 16): S32, ("u", 32): U64, ("i", 32): S64}[kind, bits]
        return (a.astype(wide) * b.astype(wide)) >> wide(bits)
    ua, ub = np.asarray(a).astype(U64), np.asarray(b).astype(U64)
    low, half = U64(0xFFFFFFFF), U64(32)
    a0, a1, b0, b1 = ua & low, ua >> half, ub & low, ub >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    other = a0 * b1 + (middle & low)
    high = a1 * b1 + (middle >> half) + (other >> half)
    if kind == "i":
        high = high - np.where(a < 0, ub, U64(0)) - np.where(b < 0, ua, U64(0))
    return high.astype(a.dtype)


def _mul_wide(kind: str):
    wide = _NP[WIDE[kind]]
    return lambda a, b, out: np.multiply(a, b, out, dtype=wide)


def _mad_wide(kind: str):
    wide = _NP[WIDE[kind]]
    return lambda a, b, c, out: np.add(np.multiply(a, b, dtype=wide), c, out)


def _mad_lo(a, b, c, out) -> None:
    np.add(a * b, c, out)


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The quotient, rounded towards zero."""
    kind = np.result_type(a)
    zero = b == 0
    safe = np.where(zero, kind.type(1), b)
    if kind.kind == "u":
        quotient = a // safe
        return np.where(zero, kind.type(np.iinfo(kind).max), quotient)
    quotient = a // safe
    quotient = quotient + ((quotient * safe != a) & ((a < 0) != (safe < 0)))
    return np.where(zero, kind.type(-1), quotient).astype(kind)


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The remainder with the sign of the dividend."""
    return np.where(b == 0, a, a - divide(a, b) * b)


def shift_left(a: np.ndarray, n: np.ndarray) -> np.ndarray:
    bits = a.dtype.itemsize * 8
    if n.ndim == 0:
        return a << a.dtype.type(int(n)) if n < bits else np.zeros_like(a)
    return np.where(n < bits, a << (n & U32(bits - 1)).astype(a.dtype), a.dtype.type(0))


def shift_right(a: np.ndarray, n: np.ndarray) -> np.ndarray:
    bits = a.dtype.itemsize * 8
    if a.dtype.kind == "i":
        return a >> np.minimum(n, U32(bits - 1)).astype(a.dtype)
    if n.ndim == 0:
        return a >> a.dtype.type(int(n)) if n < bits else np.zeros_like(a)
    return np.where(n < bits, a >> (n & U32(bits - 1)).astype(a.dtype), a.dtype.type(0))


def funnel(a: np.ndarray, b: np.ndarray, n: np.ndarray, left: bool, clamp: bool) -> np.ndarray:
    """32 bits of the pair b:a shifted; the amount is clamped to 32 or taken modulo 32."""
    pair = (b.astype(U64) << U64(32)) | a
    n = (np.minimum(n, U32(32)) if clamp else n & U32(31)).astype(U64)
    return (((pair << n) >> U64(32)) if left else pair >> n).astype(U32)


def clz(a: np.ndarray) -> np.ndarray:
    """Leading zeros, the width for 0."""
    bits = a.dtype.itemsize * 8
    for step in (1, 2, 4, 8, 16, 32)[: 6 if bits == 64 else 5]:
        a = a | (a >> a.dtype.type(step))
    return (U32(bits) - np.bitwise_count(a)).astype(U32)


def bfind(a: np.ndarray, shift: bool) -> np.ndarray:
    """The most significant bit that is not a copy of the sign, 0xFFFFFFFF when there is none."""
    bits = a.dtype.itemsize * 8
    plain = np.asarray(np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a)
    zeros = clz(plain.astype(f"u{bits // 8}"))
    return np.where(zeros == bits, U32(0xFFFFFFFF), zeros if shift else U32(bits - 1) - zeros)


def reverse(a: np.ndarray) -> np.ndarray:
    """The bits in the opposite order."""
    kind, bits = a.dtype.type, a.dtype.itemsize * 8
    for step, mask in (
        (1, 0x5555555555555555),
        (2, 0x3333333333333333),
        (4, 0x0F0F0F0F0F0F0F0F),
        (8, 0x00FF00FF00FF00FF),
        (16, 0x0000FFFF0000FFFF),
        (32, 0x00000000FFFFFFFF),
    )[: 6 if bits == 64 else 5]:
        mask &= (1 << bits) - 1
        a = ((a >> kind(step)) & kind(mask)) | ((a & kind(mask)) << kind(step))
    return a


def extract(a: np.ndarray, position: np.ndarray, length: np.ndarray) -> np.ndarray:
    """bfe: `length` bits from `position`, the sign repeated for signed types."""
    bits = a.dtype.itemsize * 8
    position, length = position & U32(255), length & U32(255)
    raw = a.astype(f"u{bits // 8}")
    kind = raw.dtype.type
    field = np.where(position < bits, raw >> np.minimum(position, U32(bits - 1)).astype(raw.dtype), kind(0))
    there = np.minimum(length, U32(bits) - np.minimum(position, U32(bits)))
    mask = np.where(there < bits, (kind(1) << np.minimum(there, U32(bits - 1)).astype(raw.dtype)) - kind(1), ~kind(0))
    field = field & mask
    if a.dtype.kind == "u":
        return field
    top = np.minimum(position + length - U32(1), U32(bits - 1)).astype(raw.dtype)
    negative = ((raw >> top) & kind(1)).astype(bool) & (length > 0)
    return np.where(negative, field | ~mask, field).astype(a.dtype)


def insert(a: np.ndarray, b: np.ndarray, position: np.ndarray, length: np.ndarray) -> np.ndarray:
    """bfi: the low `length` bits of a put into b at `position`."""
    bits, kind = a.dtype.itemsize * 8, a.dtype.type
    position, length = position & U32(255), length & U32(255)
    shift = np.minimum(position, U32(bits - 1)).astype(a.dtype)
    mask = np.where(length < bits, (kind(1) << np.minimum(length, U32(bits - 1)).astype(a.dtype)) - kind(1), ~kind(0))
    mask = np.where(position < bits, mask << shift, kind(0))
    return (b & ~mask) | ((a << shift) & mask)


def bit_mask(position: np.ndarray, width: np.ndarray, clamp: bool) -> np.ndarray:
    """bmsk: `width` ones from bit `position` on, both modulo 32 or clamped to it."""
    p, w = (np.minimum(x, U32(32)) if clamp else x & U32(31) for x in (position, width))
    ones = (U64(1) << w.astype(U64)) - U64(1)
    return (ones << p.astype(U64)).astype(U32)


def permute(a: np.ndarray, b: np.ndarray, selector: np.ndarray) -> np.ndarray:
    """prmt: four bytes picked out of the eight of b:a; bit 3 of a selector repeats the byte's sign."""
    pair = (b.astype(U64) << U64(32)) | a
    out = np.zeros(np.broadcast_shapes(pair.shape, np.shape(selector)), U32)
    for i in range(4):
        pick = (selector >> U32(4 * i)) & U32(15)
        byte = ((pair >> ((pick & U32(7)).astype(U64) * U64(8))) & U64(255)).astype(U32)
        sign = pick & U32(8)
        if np.any(sign):
            byte = np.where(sign != 0, (byte >> U32(7)) * U32(255), byte)
        out |= byte << U32(8 * i)
    return out


_MODES = {
    "f4e": ((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)),
    "b4e": ((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)),
    "rc16": ((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)),
}


def _mode_permute(mode: str):
    words = np.array([sum(byte << 4 * i for i, byte in enumerate(row)) for row in _MODES[mode]], U32)
    return store(lambda a, b, c: permute(a, b, words[c & U32(3)]))


def logic3(a: np.ndarray, b: np.ndarray, c: np.ndarray, table: np.ndarray) -> np.ndarray:
    """lop3: any function of three bits, bit (4a + 2b + c) of `table`."""
    out = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), U32)
    number = int(table)
    for minterm in range(8):
        if number >> minterm & 1:
            out |= (a if minterm & 4 else ~a) & (b if minterm & 2 else ~b) & (c if minterm & 1 else ~c)
    return out


def find_nth(mask: np.ndarray, base: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """fns: the position of the n-th set bit from `base`, upwards for n > 0, downwards for n < 0; 0xFFFFFFFF if none."""
    mask, base, offset = np.broadcast_arrays(mask, base, offset)
    out = np.full(mask.shape, 0xFFFFFFFF, U32)
    for at, bits in np.ndenumerate(mask):
        start, n = int(base[at]), int(offset[at])
        step, left = (1 if n >= 0 else -1), max(abs(n), 1)
        while 0 <= start < 32:
            if int(bits) >> start & 1:
                left -= 1
                if n == 0 or left == 0:
                    out[at] = start
                    break
            if n == 0:
                break
            start += step
    return out


def _carry_add(a, b, carry, out, carry_out) -> None:
    wide = a.astype(U64) + b + carry if a.dtype.itemsize == 4 else None
    if wide is not None:
        np.copyto(out, wide, casting="unsafe")
        np.not_equal(wide >> U64(32), U64(0), carry_out)
        return
    total = a + b
    over = total < a
    full = total + carry
    np.logical_or(over, full < total, carry_out)
    np.copyto(out, full)


def _carry_sub(a, b, borrow, out, borrow_out) -> None:
    first = a - b
    under = a < b
    full = first - np.asarray(borrow, first.dtype)
    np.logical_or(under, full > first, borrow_out)
    np.copyto(out, full)


_NO = np.array(False)


def _multiply_add(part: str):
    def product(a, b):
        return a * b if part == "lo" else mul_hi(a, b)

    return product


def _dot4(a: np.ndarray, b: np.ndarray, c: np.ndarray, signs: str) -> np.ndarray:
    total = c.astype(S64)
    for i in range(4):
        x = ((a >> U32(8 * i)) & U32(255)).astype(U8)
        y = ((b >> U32(8 * i)) & U32(255)).astype(U8)
        x = x.view(np.int8) if signs[0] == "s" else x
        y = y.view(np.int8) if signs[1] == "s" else y
        total = total + x.astype(S64) * y.astype(S64)
    return total


def _dot2(a: np.ndarray, b: np.ndarray, c: np.ndarray, signs: str, high: bool) -> np.ndarray:
    total = c.astype(S64)
    for i in range(2):
        x = ((a >> U32(16 * i)) & U32(0xFFFF)).astype(U16)
        y = ((b >> U32(8 * (i + 2 * high))) & U32(255)).astype(U8)
        x = x.view(np.int16) if signs[0] == "s" else x
        y = y.view(np.int8) if signs[1] == "s" else y
        total = total + x.astype(S64) * y.astype(S64)
    return total


def _build() -> None:
    whole = "u16 s16 u32 s32 u64 s64"
    _add("add", whole + " u16x2 s16x2", 2, np.add)
    _add("sub", whole, 2, np.subtract)
    TABLE["add.sat.s32"] = Form(
        ("s32",), ("s32",) * 2, store(lambda a, b: np.clip(a.astype(S64) + b, -(2**31), 2**31 - 1))
    )
    TABLE["sub.sat.s32"] = Form(
        ("s32",), ("s32",) * 2, store(lambda a, b: np.clip(a.astype(S64) - b, -(2**31), 2**31 - 1))
    )
    _add("mul.lo", whole, 2, np.multiply)
    _add("mul.hi", whole, 2, store(mul_hi))
    _add("mad.lo", whole, 3, _mad_lo)
    _add("mad.hi", whole, 3, store(lambda a, b, c: mul_hi(a, b) + c))
    TABLE["mad.hi.sat.s32"] = Form(
        ("s32",), ("s32",) * 3, store(lambda a, b, c: np.clip(mul_hi(a, b).astype(S64) + c, -(2**31), 2**31 - 1))
    )
    for kind, wide in WIDE.items():
        TABLE[f"mul.wide.{kind}"] = Form((wide,), (kind, kind), _mul_wide(kind))
        TABLE[f"mad.wide.{kind}"] = Form((wide,), (kind, kind, wide), _mad_wide(kind))
    for kind in ("u32", "s32"):
        low = store(
            lambda a, b: ((a << a.dtype.type(8)) >> a.dtype.type(8)) * ((b << b.dtype.type(8)) >> b.dtype.type(8))
        )
        TABLE[f"mul24.lo.{kind}"] = Form((kind,), (kind,) * 2, low)
    _add("div", whole, 2, store(divide))
    _add("rem", whole, 2, store(remainder))
    _add("min", whole + " u16x2 s16x2", 2, lambda a, b, out: np.minimum(a, b, out=out))
    _add("max", whole + " u16x2 s16x2", 2, lambda a, b, out: np.maximum(a, b, out=out))
    for name, order in (("min", np.minimum), ("max", np.maximum)):  # .relu: what is below 0 becomes 0
        _add(f"{name}.relu", "s32 s16x2", 2, store(lambda a, b, order=order: np.maximum(order(a, b), a.dtype.type(0))))
    _add("abs", "s16 s32 s64", 1, store(lambda a: np.where(a < 0, -a, a)))
    _add("neg", "s16 s32 s64", 1, np.negative)
    for kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
        unsigned = "u" + kind[1:]
        sad = store(lambda a, b, c: c + np.where(a < b, b - a, a - b).astype(c.dtype))
        TABLE[f"sad.{kind}"] = Form((unsigned,), (kind, kind, unsigned), sad)
    for name, bitwise in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        _add(name, "b16 b32 b64 pred", 2, bitwise)
    _add("not", "b16 b32 b64 pred", 1, np.invert)
    _add("cnot", "b16 b32 b64", 1, store(lambda a: a == 0))
    for kind in ("b16", "b32", "b64"):
        TABLE[f"shl.{kind}"] = Form((kind,), (kind, "u32"), store(shift_left))
    for kind in ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"):
        TABLE[f"shr.{kind}"] = Form((kind,), (kind, "u32"), store(shift_right))
    for side in "lr":
        for mode in ("wrap", "clamp"):
            fn = store(lambda a, b, n, left=side == "l", clamp=mode == "clamp": funnel(a, b, n, left, clamp))
            TABLE[f"shf.{side}.{mode}.b32"] = Form(("b32",), ("b32", "b32", "u32"), fn)
    for kind in ("b32", "b64"):
        TABLE[f"popc.{kind}"] = Form(("u32",), (kind,), store(np.bitwise_count))
        TABLE[f"clz.{kind}"] = Form(("u32",), (kind,), store(clz))
        TABLE[f"brev.{kind}"] = Form((kind,), (kind,), store(reverse))
        TABLE[f"bfi.{kind}"] = Form((kind,), (kind, kind, "u32", "u32"), store(insert))
    for kind in ("u32", "s32", "u64", "s64"):
        TABLE[f"bfind.{kind}"] = Form(("u32",), (kind,), store(lambda a: bfind(a, False)))
        TABLE[f"bfind.shiftamt.{kind}"] = Form(("u32",), (kind,), store(lambda a: bfind(a, True)))
        TABLE[f"bfe.{kind}"] = Form((kind,), (kind, "u32", "u32"), store(extract))
    for mode in ("clamp", "wrap"):
        fn = store(lambda a, b, clamp=mode == "clamp": bit_mask(a, b, clamp))
        TABLE[f"bmsk.{mode}.b32"] = Form(("b32",), ("u32", "u32"), fn)
    TABLE["prmt.b32"] = Form(("b32",), ("b32",) * 3, store(permute))
    for mode in _MODES:
        TABLE[f"prmt.b32.{mode}"] = Form(("b32",), ("b32",) * 3, _mode_permute(mode))
    TABLE["lop3.b32"] = Form(("b32",), ("b32", "b32", "b32", "u32"), store(logic3))
    TABLE["fns.b32"] = Form(("b32",), ("b32", "b32", "s32"), store(find_nth))
    for kind in ("u32", "s32", "u64", "s64"):
        u = "u" + kind[1:]
        TABLE[f"add.cc.{kind}"] = Form((u, "cc"), (u, u), lambda a, b, o, k: _carry_add(a, b, _NO, o, k))
        TABLE[f"addc.{kind}"] = Form((u,), (u, u, "cc"), lambda a, b, k, o: np.add(a + b, k, o, casting="unsafe"))
        TABLE[f"addc.cc.{kind}"] = Form((u, "cc"), (u, u, "cc"), _carry_add)
        TABLE[f"sub.cc.{kind}"] = Form((u, "cc"), (u, u), lambda a, b, o, k: _carry_sub(a, b, _NO, o, k))
        TABLE[f"subc.{kind}"] = Form((u,), (u, u, "cc"), lambda a, b, k, o: np.subtract(a - b, k, o, casting="unsafe"))
        TABLE[f"subc.cc.{kind}"] = Form((u, "cc"), (u, u, "cc"), _carry_sub)
        for part in ("lo", "hi"):
            product = _multiply_add(part)

            def wrap(a, b, kind=kind, product=product):
                signed = "i" if kind[0] == "s" else "u"
                bits = a.dtype.itemsize
                return product(a.astype(f"{signed}{bits}"), b.astype(f"{signed}{bits}")).astype(f"u{bits}")

            TABLE[f"mad.{part}.cc.{kind}"] = Form(
                (u, "cc"), (u, u, u), lambda a, b, c, o, k, p=wrap: _carry_add(p(a, b), c, _NO, o, k)
            )
            TABLE[f"madc.{part}.{kind}"] = Form(
                (u,), (u, u, u, "cc"), lambda a, b, c, k, o, p=wrap: np.add(p(a, b) + c, k, o, casting="unsafe")
            )
            TABLE[f"madc.{part}.cc.{kind}"] = Form(
                (u, "cc"), (u, u, u, "cc"), lambda a, b, c, k, o, x, p=wrap: _carry_add(p(a, b), c, k, o, x)
            )
    for first in ("u32", "s32"):
        for second in ("u32", "s32"):
            signs = first[0] + second[0]
            out = "u32" if signs == "uu" else "s32"
            TABLE[f"dp4a.{first}.{second}"] = Form(
                (out,), ("b32", "b32", out), store(lambda a, b, c, s=signs: _dot4(a, b, c, s))
            )
            for part in ("lo", "hi"):
                fn = store(lambda a, b, c, s=signs, h=part == "hi": _dot2(a, b, c, s, h))
                TABLE[f"dp2a.{part}.{first}.{second}"] = Form((out,), ("b32", "b32", out), fn)


_build()
