"""gfx950's microscaled formats: conversions against AMD's pseudo-code, matrix products against exact arithmetic."""

import re
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from tinygrad.runtime.autogen.amd.cdna.str_pcode import PCODE

from gpu_utils import virtual_gpu
from gpu_utils.errors import UnsupportedInstruction
from gpu_utils.kernelset import Run
from gpu_utils.kernelset.microscaling import product
from gpu_utils.virtual.amdgcn.small_floats import FORMATS

from .pcode import round_to, view
from .single import execute

TEXTS = {key.name: text for key, text in PCODE.items() if "SCALEF32" in key.name}
# bits, bits of the mantissa, bias, largest value, whether NaN exists, whether infinity does
SMALL = {
    "fp8": (8, 3, 7, 448, True, False), "bf8": (8, 2, 15, 57344, True, True), "fp6": (6, 3, 1, Fraction(15, 2), False,
    False), "bf6": (6, 2, 3, 28, False, False), "fp4": (4, 1, 1, 6, False, False),
}  # fmt: skip
WIDE = {"f32": (32, 23), "f16": (16, 10), "bf16": (16, 7)}


# A reference for one value, in fractions


@cache
def decoded(kind):
    """code -> Fraction, or "nan", "inf"; the sign is left to the code."""
    bits, mantissa, bias, largest, has_nan, _ = SMALL[kind]
    table = []
    for code in range(1 << (bits - 1)):
        power, digits = code >> mantissa, code & ((1 << mantissa) - 1)
        value = Fraction(digits + ((power > 0) << mantissa)) * Fraction(2) ** (max(power, 1) - bias - mantissa)
        table.append(value if value <= largest else "inf" if has_nan and kind == "bf8" and digits == 0 else "nan")
    return table


def narrow(raw, source, to, scale, seed=None):
    """The code of a float16, bfloat16 or float32 divided by a scale; None stands for any NaN."""
    bits, mantissa, bias, largest, has_nan, has_infinity = SMALL[to]
    width, digits = WIDE[source]
    value = float(view(raw, source))
    sign = raw >> (width - 1) << (bits - 1)
    top = decoded(to).index(largest)
    if np.isnan(value) or scale == 255:
        return None if has_nan else sign | top
    if np.isinf(value):
        return sign | 0x7C if has_infinity else None if has_nan else sign | top
    exact = abs(Fraction(value)) / Fraction(2) ** (scale - 127)
    exponent = 1 - bias
    while exact >= Fraction(2) ** (exponent + 1):
        exponent += 1
    steps = exact / Fraction(2) ** (exponent - mantissa)
    if seed is None:
        rounded = round(steps)
    else:
        random_bits = digits - mantissa
        rounded = int(steps)
        rest = int((steps - rounded) * 2**random_bits)
        rounded += rest + (seed >> (32 - random_bits)) >= 1 << random_bits
    result = rounded * Fraction(2) ** (exponent - mantissa)
    if result > largest:
        return sign | 0x7C if has_infinity else None if has_nan else sign | top
    return sign | decoded(to).index(result)


def widen(code, source, to, scale):
    """The bits of a small float times a scale; None stands for any NaN."""
    bits = SMALL[source][0]
    value, sign = decoded(source)[code & ((1 << (bits - 1)) - 1)], code >> (bits - 1)
    width, digits = WIDE[to]
    infinity = {"f32": 0x7F800000, "f16": 0x7C00, "bf16": 0x7F80}[to]
    if value == "nan" or scale == 255:
        return None
    if value == "inf":
        return sign << (width - 1) | infinity
    exact = value * Fraction(2) ** (scale - 127)
    if to == "bf16":  # as float32 cut to its upper half: rounded to 8 digits first
        exponent = -126
        while exact >= Fraction(2) ** (exponent + 1):
            exponent += 1
        exact = round(exact / Fraction(2) ** (exponent - digits)) * Fraction(2) ** (exponent - digits)
    float_width = 32 if to == "bf16" else width
    raw = int(np.asarray(round_to(exact, float_width)).view(f"u{float_width // 8}"))
    return sign << (width - 1) | (raw >> 16 if to == "bf16" else raw)


def random_step(seed):
    return (seed << 1 ^ (197 if seed >> 31 else 0)) & 0xFFFFFFFF


# AMD's pseudo-code of these instructions, executed on integers that hold whole operands


class Manual:
    """Executes the statements of one conversion for one lane: which bits go where, and in what order."""

    def __init__(self, text):
        text = re.sub(r"//.*", "", text).replace(",\n", ", ")
        self.lines = [line.strip().rstrip(";") for line in text.splitlines() if line.strip()]

    def run(self, sources, before, select):
        self.names = {**sources, "D0": before, "tmp": 0}
        self.unknown, self.select = set(), select
        at = 0
        while at < len(self.lines):
            line = self.lines[at]
            if line.startswith("for "):
                end = self.lines.index("endfor", at)
                for self.names["pass"] in range(int(line.split(":")[1].split()[0]) + 1):
                    for inner in self.lines[at + 1 : end]:
                        self.statement(inner)
                at = end
            elif not line.startswith(("declare", "endfor")):
                self.statement(line)
            at += 1
        return self.names["D0"], self.unknown

    def number(self, text):
        text = text.strip()
        if match := re.fullmatch(r"(.+) ([*+]) (.+)", text):
            left, right = self.number(match[1]), self.number(match[3])
            return left * right if match[2] == "*" else left + right
        if match := re.fullmatch(r"OPSEL\[(\d)(?: : (\d))?\]\.i32", text):
            return self.select >> int(match[2] or match[1]) & (3 if match[2] else 1)
        return int(text) if text.isdigit() else self.names[text]

    def read(self, text):
        text = text.replace("VGPR[laneId][SRC0.u32]", "S0")
        if match := re.fullmatch(r"(\w+)\[([^:]+) : ([^\]]+)\]\.?(\w*)", text):
            high, low = self.number(match[2]), self.number(match[3])
            return self.names[match[1]] >> low & ((1 << (high - low + 1)) - 1), match[4]
        name, _, kind = text.partition(".")
        return self.names[name], kind

    def value(self, text):
        """(bits or None for a NaN, width) of an expression."""
        if match := re.fullmatch(r"(b?f\w*?)_to_(b?f\w+?)_(sr_)?scale\((.+)\)", text):
            first, *seed, _ = match[4].split(", ")
            raw, _ = self.read(first)
            source, to, scale = match[1], match[2], self.names["scale"]
            if source in SMALL:
                return widen(raw & ((1 << SMALL[source][0]) - 1), source, to, scale), WIDE[to][0]
            raw &= (1 << WIDE[source][0]) - 1
            return narrow(raw, source, to, scale, self.read(seed[0])[0] if match[3] else None), SMALL[to][0]
        if match := re.fullmatch(r"32'U\(exponent\((S\d)\.f32\)\)", text):
            return self.names[match[1]] >> 23 & 255, 32
        if text == "32'U(v_prng_b32(randomVal.b32))":
            return random_step(self.names["randomVal"]), 32
        if match := re.fullmatch(r"\{ (\w+), (\w+) \}", text):
            (high, width), (low, _) = self.names[match[1]], self.names[match[2]]
            return (low, high), 2 * width
        raw, _ = self.read(text) if not re.search(r" \* ", text) or "[" in text else (self.number(text), 32)
        return raw, 32

    def statement(self, line):
        target, text = line.split(" = ")
        target = target.replace("VGPR[laneId][VDST.u32]", "D0")
        if "OPSEL" in text or re.fullmatch(r"pass \* \d+", text):
            self.names[target] = self.number(text)
            return
        made = self.names.get(text.partition(".")[0])
        if isinstance(made, tuple):  # a converted value
            value, width = made
            target = f"D0[{width - 1} : 0]" if target == "D0" else target
        else:
            value, width = self.value(text)
        if match := re.fullmatch(r"(\w+)\[(.+) : (.+)\]\.?\w*", target):
            self.put(match[1], self.number(match[3]), value, self.number(match[2]) - self.number(match[3]) + 1)
        else:
            self.names[target] = (value, width) if target.startswith("tmp") and "scale(" in text else value

    def put(self, name, low, value, width):
        if isinstance(value, tuple):
            self.put(name, low, value[0], width // 2)
            self.put(name, low + width // 2, value[1], width // 2)
            return
        mask = ((1 << width) - 1) << low
        if value is None:
            self.unknown |= set(range(low, low + width))
        self.names[name] = self.names[name] & ~mask | (value or 0) << low


REGISTERS = {"f32": 32, "f16": 16, "bf16": 16}


def shape(name):
    """(registers of each source but the scale, of the result, whether a seed is among the sources) of a mnemonic."""
    random, count, to, source = re.fullmatch(
        r"V_CVT_SCALEF32_(SR_)?(PK32_|2XPK16_|PK_)?([A-Z0-9]+)_([A-Z0-9]+)", name
    ).groups()
    to, source = to.lower(), source.lower()
    many = {None: 1, "PK_": 2}.get(count, 32)
    width = WIDE[source][0] if source in WIDE else SMALL[source][0]
    registers = max(1, width * many // 32)
    if source == "f32" and count in ("PK_", "2XPK16_") and not random:
        sources = [registers // 2] * 2
    else:
        sources = [registers] + [1] * bool(random)
    return sources, max(1, (WIDE[to][0] if to in WIDE else SMALL[to][0]) * many // 32), source


def selections(name):
    """The op_sel bits that each form has, as the text writes them."""
    if "PK32" in name or "2XPK16" in name:
        return [(0, "")]
    if "OPSEL[3]." in TEXTS[name]:
        zeros = "0,0,0" if "_F32" in name else "0,0"
        return [(0, ""), (8, f" op_sel:[{zeros},1]")]
    if "OPSEL[3 : 2]" in TEXTS[name]:
        return [(n << 2, f" op_sel:[0,0,{n & 1},{n >> 1}]") for n in range(4)]
    if "OPSEL[0]" in TEXTS[name]:
        return [(0, ""), (1, " op_sel:[1,0,0]")]
    return [(n, f" op_sel:[{n & 1},{n >> 1},0]") for n in range(4)]


def drawn(kind, count, random):
    """Registers (count, 64): random bits, and in half of the lanes floats of moderate size or on a tie."""
    words = random.integers(0, 1 << 32, (count, 64), dtype=np.uint32)
    if kind in WIDE:
        floats = np.concatenate([random.normal(0, 4, (count, 32)), random.integers(-40, 41, (count, 32)) / 8], axis=1)
        if kind == "f32":
            words[:, 16:] = floats[:, 16:].astype(np.float32).view(np.uint32)
        elif kind == "f16":
            pairs = np.stack([floats, floats[:, ::-1]], axis=-1).astype(np.float16)
            words[:, 16:] = pairs.view(np.uint32)[:, 16:, 0]
        else:
            words[:, 16:] = (floats.astype(np.float32).view(np.uint32) >> 16 | words & 0xFFFF0000)[:, 16:]
        words[:, 62:] = {"f32": [[0x7F800000, 0xFFC00000]], "f16": [[0x7C00FC00, 0x7E000000]]}.get(
            kind, [[0x7F80FF80, 0x7FC08000]]
        )
    return words


@pytest.mark.parametrize("name", sorted(TEXTS), ids=str.lower)
def test_a_conversion_with_a_scale_does_what_the_manual_says(name):
    sources, results, kind = shape(name)
    random = np.random.default_rng(len(name))
    values = [drawn(kind if i == 0 or count > 1 or "SR" not in name else "", count, random)
              for i, count in enumerate(sources)]  # fmt: skip
    scale = random.integers(120, 136, 64).astype(np.uint32) << 23 | random.integers(0, 1 << 23, 64, dtype=np.uint32)
    scale[:3] = 0, 0xFF << 23, 1 << 31 | 100 << 23
    registers, at, texts = {}, results + results % 2, []
    for value in (*values, scale[None]):
        texts.append(f"v[{at}:{at + len(value) - 1}]" if len(value) > 1 else f"v{at}")
        registers |= {f"v{at + i}": row for i, row in enumerate(value)}
        at += len(value) + len(value) % 2
    before = random.integers(0, 1 << 32, (results, 64), dtype=np.uint32)
    registers |= {f"v{i}": row for i, row in enumerate(before)}
    out = f"v[0:{results - 1}]" if results > 1 else "v0"
    lanes = range(64) if max(*sources, results) < 3 else [0, 1, 2, *range(12, 64, 8), 62, 63]
    manual = Manual(TEXTS[name])
    for select, text in selections(name):
        state = execute("gfx950", f"{name.lower()} {out}, {', '.join(texts)}{text}", registers)
        for lane in lanes:
            whole = {f"S{i}": joined(rows[:, lane]) for i, rows in enumerate((*values, scale[None]))}
            expected, unknown = manual.run(whole, joined(before[:, lane]), select)
            got = joined([int(state.U[i][0, lane]) for i in range(results)])
            free = sum(1 << bit for bit in unknown)
            assert got & ~free == expected & ~free, (text, lane, hex(got), hex(expected))
            for low in sorted(bit for bit in unknown if bit - 1 not in unknown):
                width = 32 if name.split("_")[-2] == "F32" else 16 if "16" in name.split("_")[-2] else 8
                assert np.isnan(number(got >> low & ((1 << width) - 1), name.split("_")[-2].lower()))


def joined(words):
    return sum(int(word) << (32 * i) for i, word in enumerate(words))


def number(raw, kind):
    return float(view(raw, kind)) if kind in WIDE else float(FORMATS[kind].values[raw])


def test_every_format_has_the_values_of_its_definition():
    for kind, form in FORMATS.items():
        size = [np.nan if value == "nan" else np.inf if value == "inf" else float(value) for value in decoded(kind)]
        assert np.array_equal(form.values, [*size, *(-value for value in size)], equal_nan=True)
        assert np.array_equal(np.signbit(form.values[: len(size)]), np.zeros(len(size), bool))
        assert np.signbit(form.values[len(size)])


def test_scaled_conversions_exist_on_gfx950_alone():
    with pytest.raises(UnsupportedInstruction, match="v_cvt_scalef32_pk_f32_fp4"):
        execute("gfx942", "v_cvt_scalef32_pk_f32_fp4 v[0:1], v2, v3", {"v2": 0, "v3": 0})


# Matrix products


def place(codes, bits):
    """Codes (rows, K) -> registers {number: (64,)}, as AMD lays them out."""
    rows = len(codes)
    words = np.zeros((bits, 64), np.uint64)
    for lane in range(64):
        row, group, groups = lane % rows, lane // rows, 64 // rows
        for i in range(32):
            at = 32 * group + i if bits == 4 else 16 * (group + i // 16 * groups) + i % 16
            position = i * bits
            code = int(codes[row, at]) << (position % 32)
            words[position // 32, lane] |= np.uint64(code & 0xFFFFFFFF)
            if code >> 32:
                words[position // 32 + 1, lane] |= np.uint64(code >> 32)
    return words.astype(np.uint32)


def multiply(rows, k, first, second, random, codes_of, scales=None, byte=(0, 0), constant=None):
    """(result float32 (rows, rows), A and B with their scales float64, C) of one instruction on one wave."""
    kinds = (first, second)
    codes = [codes_of(kind, (rows, k)) for kind in kinds]
    values = [FORMATS[kind].values[code].astype(np.float64) for kind, code in zip(kinds, codes, strict=True)]
    c = random.integers(-50, 50, (rows, rows)).astype(np.float32)
    count = rows * rows // 64
    registers, texts, at = {}, [], count
    for kind, code in zip(kinds, codes, strict=True):
        words = place(code, FORMATS[kind].bits)
        registers |= {f"v{at + i}": word for i, word in enumerate(words)}
        texts.append(f"v[{at}:{at + len(words) - 1}]")
        at += 8
    lane = np.arange(64)
    for r in range(count):
        row = 8 * (r // 4) + 4 * (lane // 32) + r % 4 if rows == 32 else 4 * (lane // 16) + r
        registers[f"v{r}"] = c[row, lane % rows].view(np.uint32)
    name, modifiers = "v_mfma_f32", [f"cbsz:{list(FORMATS).index(first)}", f"blgp:{list(FORMATS).index(second)}"]
    texts.append(f"v[0:{count - 1}]" if constant is None else constant)
    if scales is not None:
        name = "v_mfma_scale_f32"
        for i, scale in enumerate(scales):  # (rows, K / 32): the byte that is chosen, among others that are not
            others = random.integers(0, 1 << 32, 64, dtype=np.uint32) & ~np.uint32(0xFF << 8 * byte[i])
            registers[f"v{at}"] = others | scale[lane % rows, lane // rows].astype(np.uint32) << 8 * byte[i]
            texts.append(f"v{at}")
            at += 1
            with np.errstate(invalid="ignore"):
                power = np.where(scale == 255, np.nan, np.exp2(scale.astype(np.float64) - 127))
            values[i] = values[i] * power.repeat(32, axis=1)
        modifiers += [f"op_sel:[{byte[0] & 1},{byte[1] & 1},0]", f"op_sel_hi:[{byte[0] >> 1},{byte[1] >> 1},0]"]
    line = f"{name}_{rows}x{rows}x{k}_f8f6f4 v[0:{count - 1}], {', '.join(texts)} {' '.join(modifiers)}"
    state = execute("gfx950", line, registers)
    result = np.empty((rows, rows), np.float32)
    for r in range(count):
        row = 8 * (r // 4) + 4 * (lane // 32) + r % 4 if rows == 32 else 4 * (lane // 16) + r
        result[row, lane % rows] = state.F[r][0]
    return result, values[0], values[1], c if constant is None else float(constant)


SHAPES = [(16, 128), (32, 64)]
PAIRS = [(a, b) for a in FORMATS for b in FORMATS]


@pytest.mark.parametrize(("rows", "k"), SHAPES)
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_products_of_small_whole_numbers_are_exact_in_every_pair_of_formats(rows, k, first, second):
    random = np.random.default_rng(7)

    def whole(kind, size):
        values = FORMATS[kind].values
        return random.choice(np.flatnonzero((values == np.rint(values)) & (np.abs(values) <= 8)), size)

    result, a, b, c = multiply(rows, k, first, second, random, whole)
    assert np.array_equal(result, a @ b.T + c)
    scales = [random.integers(125, 130, (rows, k // 32)) for _ in range(2)]
    byte = tuple(random.integers(0, 4, 2).tolist())
    result, a, b, c = multiply(rows, k, first, second, random, whole, scales, byte)
    assert np.array_equal(result, a @ b.T + c)


@pytest.mark.parametrize(("rows", "k"), SHAPES)
@pytest.mark.parametrize(("first", "second"), [("fp8", "bf8"), ("bf6", "fp4")])
def test_products_of_any_codes_stay_within_the_stated_bound(rows, k, first, second):
    random = np.random.default_rng(8)

    def finite(kind, size):
        return random.choice(np.flatnonzero(np.isfinite(FORMATS[kind].values)), size)

    scales = [random.integers(100, 155, (rows, k // 32)) for _ in range(2)]
    result, a, b, c = multiply(rows, k, first, second, random, finite, scales, (3, 1))
    bound = np.abs(a) @ np.abs(b).T * (k + 1) * 2.0**-24 + np.abs(a @ b.T + c) * 2.0**-24
    assert (np.abs(result - (a @ b.T + c)) <= bound).all()


def test_scales_that_cancel_lose_nothing_and_a_scale_of_255_is_nan():
    random = np.random.default_rng(9)

    def ones(kind, size):
        return np.full(size, 0x38 if kind == "fp8" else 2)

    scales = [np.full((16, 4), 254), np.full((16, 4), 0)]
    scales[0][5, 2] = 255
    result, *_ = multiply(16, 128, "fp8", "fp4", random, ones, scales, constant="1.0")
    expected = np.full((16, 16), 1 + 128.0)  # 2^127 * 2^-127 * 128 + 1
    expected[5] = np.nan
    assert np.array_equal(result, expected, equal_nan=True)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3] cbsz:5", "no format has the number 5"),
        ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3] cbsz:2", "fp6 takes 6 registers"),
        ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3] blgp:4", "fp4 takes 4 registers"),
    ],
)
def test_an_operand_that_does_not_fit_its_format_is_refused(line, why):
    with pytest.raises(UnsupportedInstruction, match=why):
        execute("gfx950", line, {})


def test_one_half_float_goes_where_op_sel_says_and_the_other_half_stays():
    registers = {"v0": 0x11112222, "v1": 0x38 << 8, "v2": 128 << 23}  # 1.0 in fp8 as byte 1, times 2
    for text, expected in (("[1,0,0]", 0x11114000), ("[1,0,1]", 0x40002222)):
        state = execute("gfx950", f"v_cvt_scalef32_f16_fp8 v0, v1, v2 op_sel:{text}", registers)
        assert (state.U[0] == expected).all()


def test_too_large_a_value_becomes_the_largest_where_the_format_has_no_infinity_or_the_mode_says_so():
    big = np.array([1e9, -1e9, np.inf, np.nan])
    assert FORMATS["fp4"].encode(big, saturate=False).tolist() == [7, 15, 7, 7]
    assert FORMATS["bf8"].encode(big, saturate=True).tolist()[:3] == [0x7B, 0xFB, 0x7B]
    assert FORMATS["bf8"].encode(big, saturate=False).tolist()[:3] == [0x7C, 0xFC, 0x7C]
    assert np.isnan(FORMATS["fp8"].values[FORMATS["fp8"].encode(big, saturate=False)]).all()


@pytest.mark.parametrize("tile", [(32, 32, 64), (16, 16, 128)])
@pytest.mark.parametrize(("first", "second"), [("e4m3", "e2m1"), ("e5m2", "e5m2")])
def test_dot_scaled_becomes_a_matrix_instruction_with_scales(first, second, tile):
    with virtual_gpu("gfx950") as gpu:
        product(Run("gfx950"), first, second, tile)
    name = "v_mfma_scale_f32_32x32x64_f8f6f4" if tile[0] == 32 else "v_mfma_scale_f32_16x16x128_f8f6f4"
    assert name in {op.mnemonic for op in gpu.last.program.ops}


# Transposing reads of LDS


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_a_transposing_read_gives_each_of_16_lanes_a_column(bits):
    random = np.random.default_rng(bits)
    matrix = random.integers(0, 1 << bits, (4, 64 // bits, 16), dtype=np.uint64)  # of each group of lanes

    def words(elements):  # (64, 64 / bits) -> two registers of each lane
        both = (elements << (np.arange(64 // bits, dtype=np.uint64) * np.uint64(bits))).sum(axis=1, dtype=np.uint64)
        return (both & np.uint64(0xFFFFFFFF)).astype(np.uint32), (both >> np.uint64(32)).astype(np.uint32)

    low, high = words(matrix.reshape(64, -1))
    lines = ["ds_write_b64 v0, v[2:3]", f"ds_read_b64_tr_b{bits} v[4:5], v0"]
    state = execute("gfx950", lines, {"v0": np.arange(64) * 8, "v2": low, "v3": high}, shared=512)
    expected = words(matrix.transpose(0, 2, 1).reshape(64, -1))
    assert np.array_equal(state.U[4][0], expected[0])
    assert np.array_equal(state.U[5][0], expected[1])


@triton.jit
def packed_along_n_kernel(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * (K // 2) + tl.arange(0, K // 2)[None, :])
    b = tl.load(b_ptr + k[:, None] * (N // 2) + tl.arange(0, N // 2)[None, :])
    ones = tl.full((M, K // 32), 127, tl.uint8)
    twos = tl.full((N, K // 32), 128, tl.uint8)
    c = tl.dot_scaled(a, ones, "e2m1", b, twos, "e2m1", rhs_k_pack=False)
    tl.store(c_ptr + m[:, None] * N + n[None, :], c)


def test_fp4_that_is_packed_along_n_is_turned_round_on_its_way_out_of_lds():
    generator = torch.Generator().manual_seed(3)
    a, b = torch.randint(0, 16, (64, 128), generator=generator), torch.randint(0, 16, (128, 64), generator=generator)
    values = torch.from_numpy(FORMATS["fp4"].values).double()
    c = torch.empty(64, 64)
    with virtual_gpu("gfx950") as gpu:
        packed = [(x[:, ::2] | x[:, 1::2] << 4).to(torch.uint8).contiguous() for x in (a, b)]
        packed_along_n_kernel[(1,)](*packed, c, 64, 64, 128)
    assert torch.equal(c.double(), values[a] @ values[b] * 2)
    assert "ds_read_b64_tr_b4" in {op.mnemonic for op in gpu.last.program.ops}
