"""A small evaluator of AMD's pseudo-code, the text of the ISA manuals as the wheel tinygrad ships it.

`Evaluator(text).run(inputs)` executes it for one lane. Integers are Python integers, floats are NumPy scalars of their
width, so the arithmetic is not the one under test. Anything unknown raises NotImplementedError: such an instruction
needs a hand-written reference.
"""

import contextlib
import math
import re
import struct
from fractions import Fraction
from functools import lru_cache

import numpy as np

FLOAT = {16: np.float16, 32: np.float32, 64: np.float64}
TOKEN = re.compile(
    r"\s*(?:(?P<cast>\d+'[UIFB])(?=\()|(?P<sized>\d+'(?:0x[0-9a-fA-F]+|\d+\.?\d*)(?:U|I|F)?)|(?P<hex>0x[0-9a-fA-F]+(?:U?LL|U)?)"
    r"|(?P<float>\d+\.\d+(?:F)?)|(?P<int>\d+(?:U?LL|U|F)?)|(?P<name>[A-Za-z_]\w*)|(?P<op>\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||\+=|-=|[-+*/%<>=!&|^~?:.,(){}\[\];]))"
)


def bits_of(value, width):
    if isinstance(value, np.floating):
        return int(np.asarray(value, FLOAT[width]).view(f"u{width // 8}"))
    return int(value) & ((1 << width) - 1)


def view(value, kind):
    """A value seen as type `kind` such as f32, u16, i64, b32; an integer seen as a float is its bits."""
    if kind == "bf16":
        return np.float32(struct.unpack("<f", struct.pack("<I", (bits_of(value, 16)) << 16))[0])
    letter, width = kind[0], int(kind[1:])
    if letter == "f":
        if isinstance(value, np.floating):
            return value if value.dtype.itemsize * 8 == width else FLOAT[width](value)
        return np.array(value & ((1 << width) - 1), f"u{width // 8}").view(FLOAT[width])[()]
    raw = bits_of(value, value.dtype.itemsize * 8) if isinstance(value, np.floating) else int(value)
    raw &= (1 << width) - 1
    if letter == "i" and raw >> (width - 1):
        raw -= 1 << width
    return raw


def round_to(fraction, width):
    """A Fraction to the nearest float of a width, ties to even."""
    if fraction == 0:
        return FLOAT[width](0)
    digits, low, high = {16: (11, -24, 15), 32: (24, -149, 127), 64: (53, -1074, 1023)}[width]
    size = abs(fraction)
    exponent = max(_log2(size), low + digits - 1)
    while Fraction(2) ** exponent > size and exponent > low + digits - 1:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    step = Fraction(2) ** (exponent - digits + 1)
    rounded = Fraction(round(size / step)) * step
    if rounded.numerator >= rounded.denominator << (high + 1):
        return FLOAT[width](math.inf if fraction > 0 else -math.inf)
    return FLOAT[width](float(rounded) if fraction > 0 else -float(rounded))


def _log2(size):
    return size.numerator.bit_length() - size.denominator.bit_length()


def fma(a, b, c):
    width = a.dtype.itemsize * 8
    if not all(np.isfinite(x) for x in (a, b)) or a == 0 or b == 0:
        return a * b + c
    if not np.isfinite(c):  # the product is finite before rounding, however large
        return c
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        return FLOAT[width](a * b + c) if c == 0 else FLOAT[width](0)
    return round_to(exact, width)


def _to_int(value, width, signed):
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    if np.isnan(value):
        return 0
    return int(min(max(np.trunc(np.float64(value)), low), high)) if np.isfinite(value) else (high if value > 0 else low)


def _exponent(value):
    width = value.dtype.itemsize * 8
    return bits_of(value, width) >> {16: 10, 32: 23, 64: 52}[width] & {16: 31, 32: 255, 64: 2047}[width]


def _signal(value):
    width = value.dtype.itemsize * 8
    return bool(np.isnan(value)) and not bits_of(value, width) >> {16: 9, 32: 22, 64: 51}[width] & 1


def _signext_from_bit(value, width):
    return value - (1 << width) if width and value >> (width - 1) & 1 else value


FUNCTIONS = {
    "isNAN": lambda x: bool(np.isnan(x)), "isQuietNAN": lambda x: bool(np.isnan(x)) and not _signal(x),
    "isSignalNAN": _signal,
    "cvtToQuietNAN": lambda x: x, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "fract": lambda x: x - np.floor(x),
    "isEven": lambda x: bool(x % 2 == 0), "exponent": _exponent, "sign": lambda x: int(np.signbit(x)), "fma": fma,
    "abs": lambda x: np.abs(x) if isinstance(x, np.floating) else abs(x),
    "signext_from_bit": _signext_from_bit, "signext": lambda x: x,
    "mantissa": lambda x: type(x)(np.frexp(x)[0]),
    "i32_to_f32": np.float32, "u32_to_f32": np.float32, "i32_to_f64": np.float64, "u32_to_f64": np.float64,
    "f32_to_f64": np.float64, "f64_to_f32": np.float32, "f32_to_f16": np.float16, "f16_to_f32": np.float32,
    "i16_to_f16": np.float16, "u16_to_f16": np.float16,
    "f32_to_i32": lambda x: _to_int(x, 32, True), "f32_to_u32": lambda x: _to_int(x, 32, False),
    "f64_to_i32": lambda x: _to_int(x, 32, True), "f64_to_u32": lambda x: _to_int(x, 32, False),
    "f16_to_i16": lambda x: _to_int(x, 16, True), "f16_to_u16": lambda x: _to_int(x, 16, False),
    "u8_to_u32": int, "u16_to_u32": int, "i16_to_i32": int, "u4_to_u32": int, "i8_to_i32": int,
    "u32_to_u16": lambda x: min(x, 0xFFFF),
    "i32_to_i16": lambda x: min(max(x, -0x8000), 0x7FFF),
    "f32_to_u8": lambda x: 0 if np.isnan(x) else int(min(max(np.rint(np.float64(x)), 0), 255)),
    "bf16_to_f32": lambda x: x, "ABSDIFF": lambda a, b: abs(a - b),
    "ldexp": lambda x, n: type(x)(np.ldexp(x, n)), "countbits": lambda x: int(x).bit_count(),
    "v_max_f32": lambda a, b: _pick(a, b, max), "v_min_f32": lambda a, b: _pick(a, b, min),
    "v_max_f16": lambda a, b: _pick(a, b, max), "v_min_f16": lambda a, b: _pick(a, b, min),
    "v_max3_f32": lambda a, b, c: _pick(_pick(a, b, max), c, max), "v_min3_f32": lambda a, b, c: _pick(_pick(a, b,
    min), c, min),
    "v_max3_f16": lambda a, b, c: _pick(_pick(a, b, max), c, max), "v_min3_f16": lambda a, b, c: _pick(_pick(a, b,
    min), c, min),
    "v_max_i32": max, "v_min_i32": min, "v_max_u32": max, "v_min_u32": min, "v_max_i16": max, "v_min_i16": min,
    "v_max_u16": max,
    "v_min_u16": min, "v_max3_i32": max, "v_min3_i32": min, "v_max3_u32": max, "v_min3_u32": min, "v_max3_i16": max,
    "v_min3_i16": min, "v_max3_u16": max, "v_min3_u16": min,
}  # fmt: skip


def _pick(a, b, order):
    if np.isnan(a):
        return b
    if np.isnan(b):
        return a
    if a == 0 and b == 0:
        signs = [x for x in (a, b) if not np.signbit(x)] if order is max else [x for x in (a, b) if np.signbit(x)]
        return signs[0] if signs else a
    return order(a, b)


@lru_cache(maxsize=4096)
def tokenize(text):
    at, out = 0, []
    text = text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise NotImplementedError(text[at : at + 20])
        out.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return out


LEVELS = [
    ["||"],
    ["&&"],
    ["|"],
    ["^"],
    ["&"],
    ["==", "!=", "<>"],
    ["<", ">", "<=", ">="],
    ["<<", ">>"],
    ["+", "-"],
    ["*", "/", "%"],
]
LEVEL = {op: level for level, ops in enumerate(LEVELS) for op in ops}


class Break(Exception):
    """`break` of a for loop."""


class SignedZero(np.float64):
    """A zero written with its sign: `==` with it looks at the sign too."""


class Evaluator:
    """Executes the statements of one instruction."""

    def __init__(self, text):
        text = re.sub(r"//.*", "", text)
        self.lines = [line.strip().rstrip(";").strip() for line in text.replace(";\n", "\n").splitlines()]
        self.lines = [line for line in self.lines if line]
        for at in range(len(self.lines) - 1, 0, -1):
            if self.lines[at - 1].endswith(("&&", "||")):
                self.lines[at - 1 : at + 1] = [f"{self.lines[at - 1]} {self.lines[at]}"]

    def run(self, env):
        self.env = dict(env)
        with np.errstate(all="ignore"):
            self._block(0, len(self.lines), True)
        return self.env

    def _block(self, start, end, live):
        at = start
        while at < end:
            line = self.lines[at]
            if line.startswith("if "):
                at = self._if(at, live)
                continue
            if line.startswith("for "):
                at = self._for(at, live)
                continue
            if live and line == "break":
                raise Break
            if live and not line.startswith(("declare", "TRAPSTS", "ROUND_MODE", "prev_mode")):
                self._statement(line)
            at += 1

    def _matching(self, at, opens, closes):
        depth = 0
        for i in range(at, len(self.lines)):
            depth += self.lines[i].startswith(opens + " ")
            depth -= self.lines[i].startswith(closes)
            if depth == 0:
                return i
        raise NotImplementedError("unclosed block")

    def _if(self, at, live):
        end = self._matching(at, "if", "endif")
        done, i = not live, at
        while i < end:
            head = self.lines[i]
            nxt, depth = i + 1, 0
            while nxt < end and not (depth == 0 and re.match(r"(elsif |else$)", self.lines[nxt])):
                depth += self.lines[nxt].startswith("if ")
                depth -= self.lines[nxt].startswith("endif")
                nxt += 1
            condition = re.sub(r"^(if|elsif) | then$", "", head)
            take = not done and (head == "else" or bool(self._expression(condition)))
            self._block(i + 1, nxt, take)
            done |= take
            i = nxt
        return end + 1

    def _for(self, at, live):
        end = self._matching(at, "for", "endfor")
        match = re.match(r"for (\w+) in (.+?) : (.+?) do$", self.lines[at])
        if not match:
            raise NotImplementedError(self.lines[at])
        if live:
            with contextlib.suppress(Break):
                for i in range(int(self._expression(match[2])), int(self._expression(match[3])) + 1):
                    self.env[match[1]] = i
                    self._block(at + 1, end, True)
        return end + 1

    def _statement(self, line):
        if re.match(r"\{", line):
            self._pair(line)
            return
        match = re.match(r"^([\w.\[\]: ]+?)\s*(\+=|-=|=)\s*(.+)$", line)
        if not match:
            raise NotImplementedError(line)
        value = self._expression(match[3])
        if match[2] != "=":
            old = self._expression(match[1])
            value = old + value if match[2] == "+=" else old - value
        self._assign(match[1].strip(), value)

    def _pair(self, line):
        match = re.match(r"\{ (\w+)\.(\w)(\d+), (\w+)\.(\w)(\d+) \} = (.+)$", line)
        if not match:
            raise NotImplementedError(line)
        value = int(self._expression(match[7]))
        self.env[match[4]] = value & ((1 << int(match[6])) - 1)
        self.env[match[1]] = value >> int(match[6]) & ((1 << int(match[3])) - 1)

    def _assign(self, target, value):
        match = re.match(r"^(\w+)((?:\.\w+|\[[^\]]*\])*)$", target.replace(" : ", ":"))
        if not match:
            raise NotImplementedError(target)
        name, rest = match[1], re.findall(r"\.(\w+)|\[([^\]]*)\]", match[2])
        kind = next((k for k, _ in rest if k), None)
        index = next((i for _, i in rest if i), None)
        if name == "SCC":
            value = int(bool(value))
        if kind and index is None:
            width = int(re.sub(r"\D", "", kind))
            if kind[0] == "f":
                value = (
                    view(value, kind)
                    if isinstance(value, np.floating)
                    else FLOAT[width](value)
                    if not isinstance(value, int)
                    else (view(value, kind) if value > 1 else FLOAT[width](value))
                )
            old = self.env.get(name, 0)
            self.env[name] = (
                int(old) >> width << width if isinstance(old, int) and name[0] == "D" and width < 32 else 0
            ) | bits_of(value, width)
        elif index is not None:
            if ":" in index:
                high, low = (int(self._expression(part)) for part in index.split(":"))
            else:
                low = high = int(self._expression(index))
            width = high - low + 1
            old = self.env.get(name, 0)
            old = bits_of(old, 64) if isinstance(old, np.floating) else int(old)
            if kind and kind[0] == "f" and isinstance(value, np.floating):
                value = view(value, kind)
            self.env[name] = old & ~(((1 << width) - 1) << low) | bits_of(value, width) << low
        else:
            self.env[name] = value

    def _expression(self, text):
        self.tokens, self.at = tokenize(text), 0
        value = self._ternary()
        if self.at != len(self.tokens):
            raise NotImplementedError(text)
        return value

    def _peek(self):
        return self.tokens[self.at][1] if self.at < len(self.tokens) else None

    def _take(self, wanted=None):
        token = self.tokens[self.at]
        if wanted is not None and token[1] != wanted:
            raise NotImplementedError(f"expected {wanted}, found {token[1]}")
        self.at += 1
        return token

    def _ternary(self):
        condition = self._binary(0)
        if self._peek() != "?":
            return condition
        self._take()
        first = self._ternary()
        self._take(":")
        second = self._ternary()
        return first if condition else second

    def _binary(self, level):
        left = self._power()
        while self.at < len(self.tokens):
            group, op = self.tokens[self.at]
            found = LEVEL.get(op, -1) if group == "op" else -1
            if found < level:
                break
            self.at += 1
            left = self._apply(op, left, self._binary(found + 1))
        return left

    def _apply(self, op, a, b):
        if op == "==" and isinstance(b, SignedZero):
            return bool(a == 0 and np.signbit(a) == np.signbit(b))
        if op in ("||", "&&"):
            return bool(a) or bool(b) if op == "||" else bool(a) and bool(b)
        if isinstance(a, np.floating) != isinstance(b, np.floating) and op in "+-*/":
            kind = type(a) if isinstance(a, np.floating) else type(b)
            a, b = kind(a), kind(b)
        if isinstance(a, bool) or isinstance(b, bool):
            a, b = (int(x) if isinstance(x, bool) else x for x in (a, b))
        if op == "/" and not isinstance(a, np.floating):
            return int(a / b) if abs(a) < 1 << 50 else a // b
        table = {
            "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b, "%": lambda: a % b,
            "<<": lambda: a << b,
            ">>": lambda: a >> b, "&": lambda: a & b, "|": lambda: a | b, "^": lambda: a ^ b, "==": lambda: a == b,
            "!=": lambda: a != b, "<>": lambda: (a < b) or (a > b), "<": lambda: a < b, ">": lambda: a > b,
            "<=": lambda: a <= b,
            ">=": lambda: a >= b,
        }  # fmt: skip
        result = table[op]()
        return bool(result) if isinstance(result, np.bool_) else result

    def _power(self):
        base = self._unary()
        if self._peek() == "**":
            self._take()
            power = self._unary()
            return type(base)(np.ldexp(type(base)(1), int(power)))
        return base

    def _unary(self):
        op = self._peek()
        if self.tokens[self.at][0] == "op" and op in ("-", "!", "~", "+"):
            self._take()
            value = self._unary()
            if isinstance(value, np.floating) and value == 0:
                return SignedZero(-value if op == "-" else value)
            return {"-": lambda: -value, "!": lambda: not value, "~": lambda: ~int(value), "+": lambda: value}[op]()
        return self._postfix(self._primary())

    def _primary(self):
        group, text = self._take()
        if group == "cast":
            width, letter = int(text.split("'")[0]), text[-1]
            self._take("(")
            value = self._ternary()
            self._take(")")
            if letter == "F":
                if self.tokens[self.at - 2][0] == "hex":
                    return view(value, f"f{width}")
                return FLOAT[width](value)
            if letter == "B":
                return bits_of(value, width) if not isinstance(value, np.floating) else value
            return view(
                int(value) if not isinstance(value, np.floating) else int(np.trunc(value)), f"{letter.lower()}{width}"
            )
        if group == "sized":
            width, rest = text.split("'")
            if "." in rest or rest.endswith("F"):
                return FLOAT[int(width)](float(rest.rstrip("F")))
            return int(rest.rstrip("UI"), 0)
        if group == "hex":
            return int(re.sub(r"(U?LL|U)$", "", text), 16)
        if group == "float":
            return np.float32(text[:-1]) if text.endswith("F") else np.float64(text)
        if group == "int":
            return np.float32(text[:-1]) if text.endswith("F") else int(re.sub(r"(U?LL|U)$", "", text))
        if text == "(":
            value = self._ternary()
            self._take(")")
            return value
        if text == "{":
            return self._concatenation()
        if group != "name":
            raise NotImplementedError(text)
        if self._peek() == "(":
            self._take()
            arguments = []
            while self._peek() != ")":
                arguments.append(self._ternary())
                if self._peek() == ",":
                    self._take()
            self._take(")")
            if text not in FUNCTIONS:
                raise NotImplementedError(text)
            return FUNCTIONS[text](*arguments)
        if text == "INF":
            return np.float64(np.inf)
        if text == "NAN":
            return np.float32(np.nan)
        if text in ("WAVE_MODE",):
            self._take(".")
            self._take()
            return False
        if text not in self.env:
            raise NotImplementedError(text)
        return self.env[text]

    def _concatenation(self):
        parts = []
        while True:
            start = self.at
            value = self._ternary()
            word = "".join(t for _, t in self.tokens[start : self.at])
            match = re.search(r"\.[a-z](\d+)\)?$", word)
            if not match:
                raise NotImplementedError(word)
            parts.append((value, int(match[1])))
            if self._take()[1] == "}":
                break
        total = 0
        for value, width in parts:
            total = total << width | bits_of(value, width)
        return total

    def _postfix(self, value):
        while self._peek() in (".", "["):
            if self._take()[1] == ".":
                kind = self._take()[1]
                value = np.float32(value) if kind == "f32" and isinstance(value, np.floating) else view(value, kind)
                continue
            high = int(self._ternary())
            low = high
            if self._peek() == ":":
                self._take()
                low = int(self._ternary())
            self._take("]")
            if isinstance(value, np.floating):
                value = bits_of(value, value.dtype.itemsize * 8)
            if low > high:  # written the wrong way round: the bits in reverse
                value = int(f"{int(value):0{low + 1}b}"[::-1][: low + 1], 2)
                continue
            value = int(value) >> low & ((1 << (high - low + 1)) - 1)
        return value
