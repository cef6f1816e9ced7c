"""What every arithmetic PTX instruction gives, element by element, in Python ints and fractions.

`reference(opcode)` returns a function from input bit patterns to a tuple of expected outputs: an int (exact bits),
NaN(...) (any NaN), or Near(value, bound, kind). It is written from the PTX manual, apart from the code under test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import ptx_softfloat as sf

BITS = {
    **{f"{k}{n}": n for k in "bus" for n in (8, 16, 32, 64)},
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "pred": 1,
}
FLOATS = ("f16", "bf16", "f32", "f64")


@dataclass
class Nan:
    kind: str


@dataclass
class Near:
    """A float result that may differ from the real number `value` by a relative (or absolute) bound."""

    value: float
    bound: float
    kind: str
    absolute: bool = False


def signed(x: int, bits: int) -> int:
    return x - (1 << bits) if x >> (bits - 1) & 1 else x


def value(x: int, kind: str) -> int:
    return signed(x, BITS[kind]) if kind[0] == "s" else x


def wrap(x: int, kind: str) -> int:
    return x % (1 << BITS[kind])


def clamp(x: int, kind: str) -> int:
    bits = BITS[kind]
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return min(max(x, low), high) % (1 << bits)


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


# integers ----------------------------------------------------------------------------------------------------------


def _integer(stem: str, mods: list[str], kind: str):
    bits, hi = BITS.get(kind, 32), "hi" in mods
    v = lambda x: value(x, kind)  # noqa: E731
    w = lambda x: wrap(x, kind)  # noqa: E731
    mask = (1 << bits) - 1

    def product(a: int, b: int) -> int:
        full = v(a) * v(b)
        return full >> bits if hi else full

    def divide(a: int, b: int, quotient: bool) -> int:
        if b == 0:
            return mask if quotient else a
        q = _truncated(v(a), v(b))
        return w(q if quotient else v(a) - q * v(b))

    def shift(a: int, n: int) -> int:
        return v(a) >> min(n, bits) & mask if kind[0] == "s" else a >> n if n < bits else 0

    def find(a: int) -> int:
        plain = ~v(a) & mask if v(a) < 0 else a
        if plain == 0:
            return 0xFFFFFFFF
        top = plain.bit_length() - 1
        return bits - 1 - top if "shiftamt" in mods else top

    def extract(a: int, position: int, length: int) -> int:
        position, length = position & 255, length & 255
        sign = 0
        if kind[0] == "s" and length:
            sign = a >> min(position + length - 1, bits - 1) & 1
        out = 0
        for i in range(bits):
            bit = a >> (position + i) & 1 if i < length and position + i < bits else sign if kind[0] == "s" else 0
            if i < length and position + i >= bits:
                bit = sign
            out |= bit << i
        return out

    def insert(a: int, b: int, position: int, length: int) -> int:
        position, length = position & 255, length & 255
        for i in range(length):
            if position + i < bits:
                b = b & ~(1 << (position + i)) | (a >> i & 1) << (position + i)
        return b

    def carry(x: int) -> tuple[int, int]:
        return x & mask, int(not 0 <= x <= mask)

    def funnel(a: int, b: int, n: int) -> int:
        n = min(n, 32) if "clamp" in mods else n & 31
        pair = b << 32 | a
        return (pair << n >> 32 if mods[0] == "l" else pair >> n) & 0xFFFFFFFF

    if stem in ("min", "max") and "relu" in mods:
        return lambda a, b: (max(0, (min if stem == "min" else max)(v(a), v(b))),)
    if stem in ("add", "sub") and "sat" in mods:
        return lambda a, b: (clamp(v(a) + (v(b) if stem == "add" else -v(b)), kind),)
    if stem in ("add", "addc", "sub", "subc", "mad", "madc") and ("cc" in mods or stem in ("addc", "subc", "madc")):
        sign = -1 if stem in ("sub", "subc") else 1

        def chained(*x: int) -> tuple[int, ...]:
            first = product(x[0], x[1]) % (1 << bits) if stem in ("mad", "madc") else x[0]
            rest = x[2:] if stem in ("mad", "madc") else x[1:]
            total = first + sign * rest[0] + (sign * rest[1] if len(rest) > 1 else 0)
            return carry(total) if "cc" in mods else (total & mask,)

        return chained
    table = {
        "add": lambda a, b: w(v(a) + v(b)), "sub": lambda a, b: w(v(a) - v(b)),
        "div": lambda a, b: divide(a, b, True), "rem": lambda a, b: divide(a, b, False),
        "min": lambda a, b: min(a, b, key=v), "max": lambda a, b: max(a, b, key=v),
        "abs": lambda a: w(abs(v(a))), "neg": lambda a: w(-v(a)), "sad": lambda a, b, c: (c + abs(v(a) - v(b))) & mask,
        "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
        "not": lambda a: ~a & mask, "cnot": lambda a: int(a == 0),
        "shl": lambda a, n: a << n & mask if n < bits else 0, "shr": shift, "shf": funnel,
        "popc": lambda a: a.bit_count(), "clz": lambda a: bits - a.bit_length(),
        "brev": lambda a: int(f"{a:0{bits}b}"[::-1], 2), "bfind": find, "bfe": extract, "bfi": insert,
        "lop3": lambda a, b, c, t: sum(
            (t >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32)
        ),
        "fns": _find_nth,
        "bmsk": lambda a, b: _bit_mask(a, b, "clamp" in mods),
        "mul24": lambda a, b: w(_low24(a, kind) * _low24(b, kind)),
    }  # fmt: skip
    if stem == "mul":
        if "wide" in mods:
            return lambda a, b: (v(a) * v(b) % (1 << 2 * bits),)
        return lambda a, b: (product(a, b) & mask,)
    if stem == "mad":
        if "wide" in mods:
            return lambda a, b, c: ((v(a) * v(b) + c) % (1 << 2 * bits),)
        if "sat" in mods:
            return lambda a, b, c: (clamp(product(a, b) + v(c), kind),)
        return lambda a, b, c: (product(a, b) + c & mask,)
    fn = table.get(stem)
    return None if fn is None else lambda *x: (fn(*x),)


def _low24(a: int, kind: str) -> int:
    return signed(a & 0xFFFFFF, 24) if kind[0] == "s" else a & 0xFFFFFF


def _bit_mask(a: int, b: int, clamp: bool) -> int:
    a, b = (min(a, 32), min(b, 32)) if clamp else (a % 32, b % 32)
    return ((1 << b) - 1) << a & 0xFFFFFFFF


def _find_nth(mask: int, base: int, offset: int) -> int:
    offset = signed(offset, 32)
    if offset == 0:
        return base if base < 32 and mask >> base & 1 else 0xFFFFFFFF
    seen, at = 0, base
    while 0 <= at < 32:
        seen += mask >> at & 1
        if seen == abs(offset):
            return at
        at += 1 if offset > 0 else -1
    return 0xFFFFFFFF


def _permute(mode: str | None):
    def byte(pair: int, pick: int) -> int:
        x = pair >> 8 * (pick & 7) & 255
        return (255 if x & 128 else 0) if pick & 8 else x

    def run(a: int, b: int, c: int) -> tuple[int]:
        pair, s = b << 32 | a, c & 3
        if mode is None:
            picks = [c >> 4 * i & 15 for i in range(4)]
        else:
            picks = {
                "f4e": [s + i for i in range(4)], "b4e": [(s - i) % 8 for i in range(4)], "rc8": [s] * 4,
                "ecl": [max(i, s) for i in range(4)], "ecr": [min(i, s) for i in range(4)],
                "rc16": [2 * (s & 1), 2 * (s & 1) + 1] * 2,
            }[mode]  # fmt: skip
        return (sum(byte(pair, pick) << 8 * i for i, pick in enumerate(picks)),)

    return run


def _dot(stem: str, mods: list[str]):
    high = "hi" in mods
    first, second = [m for m in mods if m in ("u32", "s32")]

    def run(a: int, b: int, c: int) -> tuple[int]:
        total = c
        for i in range(4 if stem == "dp4a" else 2):
            width = 8 if stem == "dp4a" else 16
            x = a >> width * i & ((1 << width) - 1)
            y = b >> 8 * (i + 2 * high) & 255
            total += (signed(x, width) if first[0] == "s" else x) * (signed(y, 8) if second[0] == "s" else y)
        return (total & 0xFFFFFFFF,)

    return run


# floats ------------------------------------------------------------------------------------------------------------


def _mode(mods: list[str]) -> str:
    return next((m for m in mods if m in ("rn", "rz", "rm", "rp")), "rn")


def _bits(result: int | Nan) -> int:
    return sf.pack(sf.NAN, result.kind) if isinstance(result, Nan) else result


def _widened(bits: int, kind: str) -> int:
    """A 16-bit float as float32, exactly."""
    sign, x = sf.unpack(bits, kind)
    return sf.pack(x, "f32", sign=sign)


def _result(bits: int, kind: str):
    return Nan(kind) if sf.is_nan(bits, kind) else bits


def _saturated(bits: int, kind: str) -> int:
    sign, x = sf.unpack(bits, kind)
    if x == sf.NAN or sign:
        return 0
    return sf.pack(Fraction(1), kind) if x == sf.INF or x > 1 else bits


def _relu(bits: int, kind: str) -> int:
    return 0 if not sf.is_nan(bits, kind) and bits >> (sf.bits_of(kind) - 1) else bits


def _extreme(a: int, b: int, kind: str, smaller: bool, nan_wins: bool, xorsign: bool = False):
    if xorsign:
        top = 1 << (BITS[kind] - 1)
        size = _extreme(a & ~top, b & ~top, kind, smaller, nan_wins)
        return size | ((a ^ b) & top)
    na, nb = sf.is_nan(a, kind), sf.is_nan(b, kind)
    if (na and nb) or (nan_wins and (na or nb)):
        return sf.pack(sf.NAN, kind)
    if na or nb:
        return b if na else a
    order = sf.compare(a, b, kind)
    if order == 0:
        return max(a, b) if smaller else min(a, b)  # only the two zeros differ, and -0 has the larger pattern
    return a if (order < 0) == smaller else b


def _float(stem: str, mods: list[str], kind: str):
    mode, ftz, sat = _mode(mods), "ftz" in mods, "sat" in mods
    top = 1 << (BITS[kind] - 1)
    core = {
        "add": lambda a, b: sf.add(a, b, kind, mode), "sub": lambda a, b: sf.add(a, b, kind, mode, True),
        "mul": lambda a, b: sf.mul(a, b, kind, mode), "fma": lambda a, b, c: sf.fma(a, b, c, kind, mode),
        "div": lambda a, b: sf.div(a, b, kind, mode), "rcp": lambda a: sf.div(sf.pack(Fraction(1), kind), a, kind,
        mode),
        "sqrt": lambda a: sf.sqrt(a, kind, mode), "min": lambda a, b: _extreme(a, b, kind, True, "NaN" in mods,
        "xorsign" in mods),
        "max": lambda a, b: _extreme(a, b, kind, False, "NaN" in mods, "xorsign" in mods), "abs": lambda a: a & ~top,
        "neg": lambda a: a ^ top, "copysign": lambda a, b: b & ~top | a & top,
    }.get(stem)  # fmt: skip
    if core is None:
        return None

    def run(*x: int):
        x = tuple(sf.flush(v, kind) for v in x) if ftz else x
        bits = core(*x)
        bits = sf.flush(bits, kind) if ftz else bits
        bits = _saturated(bits, kind) if sat else _relu(bits, kind) if "relu" in mods else bits
        return (_result(bits, kind),)

    return run


def _testp(mods: list[str], kind: str):
    exponent_bits, mantissa_bits = sf.FORMATS[kind]
    full = (1 << exponent_bits) - 1

    def run(a: int) -> tuple[bool]:
        exponent, mantissa = a >> mantissa_bits & full, a & ((1 << mantissa_bits) - 1)
        return ({
            "finite": exponent != full, "infinite": exponent == full and not mantissa,
            "number": exponent != full or not mantissa, "notanumber": exponent == full and mantissa != 0,
            "normal": 0 < exponent < full, "subnormal": exponent == 0 and mantissa != 0,
        }[mods[0]],)  # fmt: skip

    return run


_REAL = {
    "ex2": lambda x: math.inf if x > 1100 else 2.0**x,
    "lg2": lambda x: math.log2(x) if x > 0 else -math.inf if x == 0 else math.nan,
    "rcp": lambda x: 1 / x if x else math.copysign(math.inf, x), "sin": math.sin, "cos": math.cos, "tanh": math.tanh,
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "rsqrt": lambda x: 1 / math.sqrt(x) if x > 0 else math.copysign(math.inf, x) if x == 0 else math.nan,
    "div": lambda x, y: x / y if y else math.nan if x == 0 or x != x else math.copysign(math.inf,
    x) * math.copysign(1, y),
}  # fmt: skip


def as_float(bits: int, kind: str) -> float:
    sign, x = sf.unpack(bits, kind)
    if x == sf.NAN:
        return math.nan
    return (-math.inf if sign else math.inf) if x == sf.INF else -0.0 if sign and x == 0 else float(x)


def _approximate(stem: str, mods: list[str], kind: str, bound: float):
    """Results near the real function; where it is infinite or NaN, or an argument is, the same of that."""
    tiny = float(Fraction(2) ** {"f32": -126, "f64": -1022, "f16": -14, "bf16": -126}[kind])

    def run(*x: int):
        x = tuple(sf.flush(v, kind) for v in x) if "ftz" in mods else x
        arguments = [as_float(v, kind) for v in x]
        if stem in ("sin", "cos") and abs(arguments[0]) > 100:
            return (None,)  # the manual bounds the error only in a small range
        try:
            exact = _REAL[stem](*arguments)
        except (OverflowError, ValueError):
            exact = math.nan
        if exact != exact:
            return (Nan(kind),)
        if stem == "lg2" and 0.5 < arguments[0] < 2:
            return (Near(exact, 2**-22, kind, absolute=True),)
        if stem in ("sin", "cos"):
            return (Near(exact, bound, kind, absolute=True),)
        if 0 < abs(exact) < tiny:
            return (Near(exact, tiny, kind, absolute=True),)
        return (Near(exact, bound, kind),)

    return run


# comparisons and conversions -----------------------------------------------------------------------------------------


def _compared(operator: str, kind: str):
    unordered = operator in ("equ", "neu", "ltu", "leu", "gtu", "geu", "nan")
    name = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(operator, operator)
    if kind in FLOATS and name.endswith("u"):
        name = name[:-1]
    test = {
        "eq": lambda o: o == 0, "ne": lambda o: o != 0, "lt": lambda o: o < 0, "le": lambda o: o <= 0,
        "gt": lambda o: o > 0, "ge": lambda o: o >= 0, "num": lambda o: True, "nan": lambda o: False,
    }[name]  # fmt: skip

    def run(a: int, b: int) -> bool:
        if kind in FLOATS:
            order = sf.compare(a, b, kind)
            return unordered if order is None else test(order)
        x, y = value(a, kind), value(b, kind)
        return test((x > y) - (x < y))

    return run


def _setp(opcode: str, mods: list[str], kind: str):
    operator, combine = mods[0], next((m for m in mods if m in ("and", "or", "xor")), None)
    test = _compared(operator, kind)
    join = {"and": lambda x, c: x and c, "or": lambda x, c: x or c, "xor": lambda x, c: x != c}.get(combine)
    both = opcode.endswith("|")

    def run(a: int, b: int, *c: int) -> tuple[bool, ...]:
        if "ftz" in mods:
            a, b = sf.flush(a, kind), sf.flush(b, kind)
        hit = test(a, b)
        p, q = (hit, not hit) if join is None else (join(hit, bool(c[0])), join(not hit, bool(c[0])))
        return (bool(p), bool(q)) if both else (bool(p),)

    return run


def _cvt(mods: list[str], target: str, source: str):
    mode = next((m for m in mods if m in ("rn", "rz", "rm", "rp", "rna")), "rn")
    whole = next((m[:2] for m in mods if m in ("rni", "rzi", "rmi", "rpi")), None)
    ftz, sat = "ftz" in mods, "sat" in mods
    if target not in FLOATS and source not in FLOATS:

        def integers(a: int):
            x = value(a & ((1 << BITS[source]) - 1), source)
            return (clamp(x, target) if sat else wrap(x, target),)

        return integers
    if target not in FLOATS:

        def to_integer(a: int):
            a = sf.flush(a, source) if ftz else a
            sign, x = sf.unpack(a, source)
            bits = BITS[target]
            if x == sf.NAN:
                return ((1 << (bits - 1)) if source == "f64" or bits == 64 else 0,)
            if x == sf.INF:
                return (clamp(-(1 << 70) if sign else 1 << 70, target),)
            return (clamp(sf.round_integer(x, whole), target),)

        return to_integer
    if source not in FLOATS:
        return lambda a: (sf.pack(Fraction(value(a & ((1 << BITS[source]) - 1), source)), target, mode),)

    def floats(a: int):
        a = sf.flush(a, source) if ftz and source == "f32" else a
        sign, x = sf.unpack(a, source)
        if whole and not isinstance(x, str):
            x = Fraction(sf.round_integer(x, whole))
        if sat:
            x = Fraction(0) if x == sf.NAN or sign else Fraction(1) if x == sf.INF else min(x, Fraction(1))
            sign = 0
        bits = sf.pack(x, target, mode, sign)
        bits = sf.flush(bits, target) if ftz and target == "f32" else bits
        return (_result(bits, target),)

    return floats


_FP8 = {"e4m3": (4, 3, 448), "e5m2": (5, 2, 57344)}


def _from_fp8(code: int, kind: str):
    exponent_bits, mantissa_bits, _ = _FP8[kind]
    bias = (1 << (exponent_bits - 1)) - 1
    exponent, mantissa = code >> mantissa_bits & ((1 << exponent_bits) - 1), code & ((1 << mantissa_bits) - 1)
    sign = code >> 7
    if kind == "e4m3" and code & 127 == 127:
        return sign, sf.NAN
    if kind == "e5m2" and exponent == 31:
        return sign, sf.NAN if mantissa else sf.INF
    scale = Fraction(2) ** (max(exponent, 1) - bias - mantissa_bits)
    x = (mantissa + ((1 << mantissa_bits) if exponent else 0)) * scale
    return sign, -x if sign else x


def _to_fp8(sign: int, x, kind: str, relu: bool) -> int:
    exponent_bits, mantissa_bits, top = _FP8[kind]
    bias = (1 << (exponent_bits - 1)) - 1
    if x == sf.NAN:
        return 127
    if relu and sign:
        return 0
    if x == sf.INF or abs(x) >= top:
        limit = 126 if kind == "e4m3" else 123
        return sign << 7 | limit
    size = abs(x)
    exponent = 1 - bias
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    units = sf.round_integer(size / Fraction(2) ** (exponent - mantissa_bits), "rn")
    if units >= 1 << (mantissa_bits + 1):
        units, exponent = units >> 1, exponent + 1
    code = units if units < 1 << mantissa_bits else (exponent + bias) << mantissa_bits | units - (1 << mantissa_bits)
    return sign << 7 | min(code, 126 if kind == "e4m3" else 123)


def _cvt_packed(opcode: str, mods: list[str], target: str, source: str):
    mode = "rz" if "rz" in mods else "rn"
    relu, satfinite = "relu" in mods, "satfinite" in mods
    if target == "ue8m0x2":

        def power(a: int) -> int:
            x = sf.unpack(a, "f32")[1]
            if isinstance(x, str):
                return 254 if satfinite and x == sf.INF else 255
            code = 0
            if "rp" in mods:
                while Fraction(2) ** (code - 127) < abs(x):
                    code += 1
            else:
                while Fraction(2) ** (code - 126) <= abs(x):
                    code += 1
            return min(code, 254) if satfinite else code

        return lambda a, b: (power(a) << 8 | power(b),)
    if target == "tf32":

        def tf32(a: int):
            sign, x = sf.unpack(a, "f32")
            if isinstance(x, str):
                return (_result(a, "f32"),)
            how = "rna" if "rna" in mods else mode
            return (sf.pack(x, "tf32", how, sign) << 13,)

        return tf32
    if target in ("f16x2", "bf16x2") and source == "f32":
        kind = target[:-2]

        def one(a: int) -> int:
            sign, x = sf.unpack(a, "f32")
            bits = sf.pack(x, kind, mode, sign)
            if relu:
                bits = _relu(bits, kind)
            if satfinite and sf.unpack(bits, kind)[1] == sf.INF:
                bits -= 1
            return bits

        return lambda a, b: (("pair", _result(one(b), kind), _result(one(a), kind)),)
    if target.endswith("x2") and target[:-2] in _FP8:
        kind = target[:-2]
        if source == "f32":
            return lambda a, b: (
                _to_fp8(*sf.unpack(a, "f32"), kind, relu) << 8 | _to_fp8(*sf.unpack(b, "f32"), kind, relu),
            )
        return lambda a: (
            _to_fp8(*sf.unpack(a >> 16, "f16"), kind, relu) << 8 | _to_fp8(*sf.unpack(a & 0xFFFF, "f16"), kind, relu),
        )
    kind = source[:-2]

    def unpacked(code: int):
        sign, x = _from_fp8(code, kind)
        bits = sf.pack(x, "f16", "rn", sign)
        return _result(_relu(bits, "f16") if relu else bits, "f16")

    return lambda a: (("pair", unpacked(a & 255), unpacked(a >> 8)),)


def _selection(stem: str, kind: str, third: str | None):
    if stem == "selp":
        return lambda a, b, p: (a if p else b,)
    if third == "f32":
        return lambda a, b, c: (a if (lambda o: o is not None and o >= 0)(sf.compare(c, 0, "f32")) else b,)
    return lambda a, b, c: (a if signed(c, 32) >= 0 else b,)


def reference(opcode: str, bounds: dict[str, float]):
    """The expected behaviour of one opcode, or None when this module has none. Packed types act on each half."""
    words = opcode.rstrip("|*").split(".")
    stem, mods, kind = words[0], words[1:-1], words[-1]
    if kind.endswith("x2") and stem not in ("cvt",):
        if stem == "setp":
            test = _compared(mods[0], kind[:-2])
            return lambda a, b: (test(a & 0xFFFF, b & 0xFFFF), test(a >> 16, b >> 16))
        single = ".".join([*words[:-1], kind[:-2]])
        each = reference(single, {**bounds, **({single: bounds[opcode]} if opcode in bounds else {})})
        if each is None:
            return None
        half = BITS[kind[:-2]]
        return lambda *x: (("pair", each(*(v & (1 << half) - 1 for v in x))[0], each(*(v >> half for v in x))[0]),)
    if opcode.endswith("*"):  # the least or largest of three
        two = _float(stem, [m for m in mods if m != "abs"], kind)
        size = (1 << BITS[kind] - 1) - 1 if "abs" in mods else -1
        return lambda a, b, c: two(_bits(two(a & size, b & size)[0]), c & size)
    if stem in ("add", "sub", "fma") and kind in ("f16", "bf16") and mods[-1:] == ["f32"]:
        single = _float(stem, mods[:-1], "f32")
        return lambda *x: single(*(_widened(v, kind) for v in x[:-1]), x[-1])
    if opcode in bounds:
        return _approximate(stem, mods, kind, bounds[opcode])
    if stem == "cvt":
        if any(w.endswith("x2") or w == "tf32" for w in words):
            return _cvt_packed(opcode, mods, words[-2], kind)
        return _cvt(mods[:-1], words[-2], kind)
    if stem == "setp":
        return _setp(opcode, mods, kind)
    if stem == "set":
        test = _setp("setp", mods[:-1], kind)
        one = {"f32": 0x3F800000, "f16x2": 0x3C00}.get(words[-2], 0xFFFFFFFF)
        return lambda a, b: (one if test(a, b)[0] else 0,)
    if stem == "selp":
        return _selection(stem, kind, None)
    if stem == "slct":
        return _selection(stem, words[1], kind)
    if stem == "prmt":
        return _permute(None if kind == "b32" else kind)
    if stem in ("dp4a", "dp2a"):
        return _dot(stem, [*mods, kind])
    if stem == "testp":
        return _testp(mods, kind)
    if kind == "pred":
        fn = {
            "and": lambda a, b: a and b,
            "or": lambda a, b: a or b,
            "xor": lambda a, b: a != b,
            "not": lambda a: not a,
        }
        return lambda *x: (bool(fn[stem](*map(bool, x))),)
    if kind in FLOATS:
        return _float(stem, mods, kind)
    return _integer(stem, mods, kind)
