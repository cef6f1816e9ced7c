"""Which lane and register holds which element of a matrix operand, for instructions of both vendors.

The rules are the vendors', written down as digits: what each digit of a lane's number, and of an element's number
within the lane, adds to row and column. tests/unit/test_u07_operands.py executes every instruction on every target
that has it, and compares element by element. What an execution cannot show, because it changes no product, is an order
of k that A and B share: that part is the manuals' word. tests/gpu/test_u07_operands.py does the same on a real NVIDIA
GPU: what an H200 has agreed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

from gpu_utils.chips.targets import TARGETS
from gpu_utils.errors import BadArgument, UnknownName

BITS = {"f64": 64, "f32": 32, "tf32": 32, "s32": 32, "f16": 16, "bf16": 16, "fp8": 8, "e4m3": 8, "s8": 8}

PTX_MMA = "PTX ISA, Matrix Fragments of mma"
PTX_WGMMA = "PTX ISA, Register Fragments of wgmma"
CALCULATOR = "AMD Matrix Instruction Calculator"
TRITON = "Triton, LinearLayoutConversions.cpp"


class Digit(NamedTuple):
    """One digit of a number, the lowest first: it takes `size` values, each adds so many rows and columns."""

    size: int
    row: int
    column: int

    def turned(self) -> Digit:
        return Digit(self.size, self.column, self.row)


def down(size: int, rows: int = 1) -> Digit:
    return Digit(size, rows, 0)


def along(size: int, columns: int = 1) -> Digit:
    return Digit(size, 0, columns)


COPY = Digit(2, 0, 0)
"""A digit that changes nothing: two lanes hold the same element."""


class Place(NamedTuple):
    """Where an element is: its lane, and which of the elements of that lane it is, from 0."""

    lane: int
    item: int


@dataclass(frozen=True)
class Operand:
    """One operand: a matrix (rows, columns) of `kind`, spread over the registers of all lanes.

    lanes, items  what the digits of a lane's number and of an item's add to row and column
    pairs         a number of 64 bits fills two registers of 32 bits (AMD), not one of 64 (PTX)

    >>> A = INSTRUCTIONS["mma.m16n8k16.f16"].operands["A"]
    >>> A.places(3, 5)
    (Place(lane=14, item=1),)
    >>> A.element(14, 1), A.where(1)
    ((3, 5), 'register 0, upper half')
    """

    rows: int
    columns: int
    kind: str
    lanes: tuple[Digit, ...]
    items: tuple[Digit, ...]
    pairs: bool = False

    @property
    def lane_count(self) -> int:
        return prod(digit.size for digit in self.lanes)

    @property
    def item_count(self) -> int:
        """Elements that one lane holds."""
        return prod(digit.size for digit in self.items)

    @property
    def parts(self) -> int:
        """Elements in a register."""
        return max(32 // BITS[self.kind], 1)

    @property
    def registers(self) -> int:
        """Registers of a lane: of 32 bits, or of 64 for f64 in PTX."""
        return self.item_count * 2 if self.pairs else self.item_count // self.parts

    def register(self, item: int) -> int:
        """The register in which an item starts."""
        return item * 2 if self.pairs else item // self.parts

    def element(self, lane: int, item: int) -> tuple[int, int]:
        """(row, column) of an item of a lane."""
        if not (0 <= lane < self.lane_count and 0 <= item < self.item_count):
            raise BadArgument(
                f"lane {lane}, item {item}; expected lanes below {self.lane_count}, items below {self.item_count}"
            )
        row = column = 0
        for number, digits in ((lane, self.lanes), (item, self.items)):
            for digit in digits:
                number, value = divmod(number, digit.size)
                row, column = row + value * digit.row, column + value * digit.column
        return row, column

    @cached_property
    def _places(self) -> dict[tuple[int, int], tuple[Place, ...]]:
        found: dict[tuple[int, int], tuple[Place, ...]] = {}
        for lane in range(self.lane_count):
            for item in range(self.item_count):
                at = self.element(lane, item)
                found[at] = (*found.get(at, ()), Place(lane, item))
        return found

    def places(self, row: int, column: int) -> tuple[Place, ...]:
        """Where an element is: one place, or one in each lane that holds a copy. The inverse of `element`."""
        if (row, column) not in self._places:
            raise BadArgument(f"no element ({row}, {column}); expected a row below {self.rows}, a column below "
                              f"{self.columns}")  # fmt: skip
        return self._places[row, column]

    def where(self, item: int) -> str:
        """The register of an item and its part, in words."""
        at = self.register(item)
        if self.pairs:
            return f"registers {at} and {at + 1}"
        return f"register {at}" + ("" if self.parts == 1 else f", {part_name(self.parts, item % self.parts)}")


def part_name(parts: int, part: int) -> str:
    """
    >>> part_name(2, 1), part_name(4, 3)
    ('upper half', 'byte 3')
    """
    return ("lower half", "upper half")[part] if parts == 2 else f"byte {part}"


@dataclass(frozen=True)
class Instruction:
    """A matrix instruction D = A B + C; C lies as D does.

    text      what the assembler takes; `spelled` has the exceptions
    shape     m, n, k
    operands  "A" (m, k), "B" (k, n), "D" (m, n), those that lie in registers; the others are in shared memory
    source    where the vendor, or Triton, says so
    note      what else there is to know of it
    """

    name: str
    text: str
    targets: tuple[str, ...]
    shape: tuple[int, int, int]
    operands: dict[str, Operand]
    source: str
    note: str = ""

    @property
    def vendor(self) -> str:
        return TARGETS[self.targets[0]].vendor

    @property
    def lanes(self) -> int:
        return self.operands["D"].lane_count

    def operand(self, name: str) -> Operand:
        """Raises UnknownName for what is no operand, BadArgument for one that is not in registers."""
        known = self.operands["D"] if name == "C" else self.operands.get(name)
        if known is None and name not in ("A", "B"):
            raise UnknownName("operand", name, ("A", "B", "C", "D"))
        if known is None:
            raise BadArgument(f"{name} of {self.name} lies in shared memory, behind a descriptor: no lane holds it")
        return known

    def spelled(self, target: str) -> str:
        """The mnemonic as LLVM and ptxas take it for a target: gfx90a writes `8f16`, later CDNA `8_f16`."""
        return _GFX90A.get(self.text, self.text) if target == "gfx90a" else self.text


_GFX90A = {
    "v_mfma_f32_32x32x8_f16": "v_mfma_f32_32x32x8f16",
    "v_mfma_f32_16x16x16_f16": "v_mfma_f32_16x16x16f16",
    "v_mfma_f32_32x32x8_bf16": "v_mfma_f32_32x32x8bf16_1k",
    "v_mfma_f32_16x16x16_bf16": "v_mfma_f32_16x16x16bf16_1k",
    "v_mfma_f32_32x32x2_f32": "v_mfma_f32_32x32x2f32",
    "v_mfma_f32_16x16x4_f32": "v_mfma_f32_16x16x4f32",
    "v_mfma_f64_16x16x4_f64": "v_mfma_f64_16x16x4f64",
}

_SM = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
_CDNA = ("gfx90a", "gfx942", "gfx950")

_QUADS = (along(4), down(8))
"""Lanes of a warp by fours: a group of four to each of eight rows."""


def _of_mma(k: int, kind: str, a: tuple[Digit, ...], b: tuple[Digit, ...], step: int, d: str) -> dict[str, Operand]:
    """Operands of mma.m16n8: lanes of a group of four stand `step` columns of A apart."""
    return {
        "A": Operand(16, k, kind, (along(4, step), down(8)), a),
        "B": Operand(k, 8, kind, (down(4, step), along(8)), b),
        "D": Operand(16, 8, d, (along(4, 2), down(8)), (along(2), down(2, 8))),
    }


def _mma(shape: str, kind: str, targets: tuple[str, ...], operands: dict[str, Operand]) -> Instruction:
    m, n, k = (int(number) for number in shape.replace("m", "").replace("n", " ").replace("k", " ").split())
    kinds = ".".join((operands["D"].kind, kind, kind, operands["D"].kind))
    text = f"mma.sync.aligned.{shape}.row.col.{kinds}"
    return Instruction(f"mma.{shape}.{kind}", text, targets, (m, n, k), operands, PTX_MMA)


_HALVES = ((along(2), down(2, 8), along(2, 8)), (down(2), down(2, 8)))
_BYTES = ((along(4), down(2, 8), along(2, 16)), (down(4), down(2, 16)))


def _wgmma(n: int) -> Instruction:
    d_items = (along(2), down(2, 8), *((along(n // 8, 8),) if n > 8 else ()))
    operands = {
        "A": Operand(64, 16, "f16", (along(4, 2), down(8), down(4, 16)), _HALVES[0]),
        "D": Operand(64, n, "f32", (along(4, 2), down(8), down(4, 16)), d_items),
    }
    text = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16"
    note = "B lies in shared memory; A does too, or in registers as drawn. Each of the four warps has 16 rows."
    return Instruction(f"wgmma.m64n{n}k16.f16", text, ("sm_90",), (64, n, 16), operands, PTX_WGMMA, note)


_TCGEN05 = Instruction(
    "tcgen05.m128n16k16.f16",
    "tcgen05.mma.cta_group::1.kind::f16",
    ("sm_100",),
    (128, 16, 16),
    {"D": Operand(128, 16, "f32", (down(128),), (along(16),))},
    "PTX ISA, tcgen05 Data path layout D and Matrix fragments of tcgen05.ld",
    "D lies in tensor memory: row r in its lane r, column c in its column c. tcgen05.ld.32x32b.x16 brings it into the "
    "registers of four warps, as drawn.",
)


def _matrix_core(
    text: str, side: int, each: int, kind: str, targets: tuple[str, ...], d: str = "f32", source: str = CALCULATOR
) -> Instruction:
    """An MFMA of one block, side x side: lanes along the side, then along k; `each`: neighbours in k in a lane."""
    groups, pairs = 64 // side, kind == "f64"
    a_lanes, a_items = (down(side), along(groups, each)), ((along(each),) if each > 1 else ())
    b_lanes, b_items = (tuple(digit.turned() for digit in digits) for digits in (a_lanes, a_items))
    if pairs:
        d_lanes, d_items = (along(side), down(groups)), (down(4, 4),)
    else:
        d_lanes, d_items = (along(side), down(groups, 4)), (down(4), *((down(4, 8),) if side == 32 else ()))
    k = groups * each
    operands = {
        "A": Operand(side, k, kind, a_lanes, a_items, pairs),
        "B": Operand(k, side, kind, b_lanes, b_items, pairs),
        "D": Operand(side, side, d, d_lanes, d_items, pairs),
    }
    return Instruction(text, text, targets, (side, side, k), operands, source)


def _wave_matrix(
    name: str, k: int, kind: str, targets: tuple[str, ...], lanes: Digit, items: tuple[Digit, ...],
    d: tuple[Digit, Digit], source: str, note: str = "",
) -> Instruction:  # fmt: skip
    """A WMMA of 16 x 16: lanes: what lanes from 16 on add in A; d: the same in D, and what its registers add."""
    operands = {
        "A": Operand(16, k, kind, (down(16), lanes), items),
        "B": Operand(k, 16, kind, (along(16), lanes.turned()), tuple(digit.turned() for digit in items)),
        "D": Operand(16, 16, "f32", (along(16), d[0]), (d[1],)),
    }
    return Instruction(name, name.split()[0], targets, (16, 16, k), operands, source, note)


_COPIES = "A and B lie twice: lanes 16 to 31 must hold what lanes 0 to 15 hold."
_ORDER_OF_K = (
    "AMD's calculator puts runs of four k into the halves of the wave by turns; Triton gives each half eight in a row. "
    "Both are right: where A and B agree on an order of k, the product is the same."
)
_ROWS_APART = (down(2, 8), down(8))

_ALL = (
    _mma("m16n8k8", "tf32", _SM, _of_mma(8, "tf32", (down(2, 8), along(2, 4)), (down(2, 4),), 1, "f32")),
    _mma("m16n8k8", "f16", _SM, _of_mma(8, "f16", (along(2), down(2, 8)), (down(2),), 2, "f32")),
    _mma("m16n8k16", "f16", _SM, _of_mma(16, "f16", *_HALVES, 2, "f32")),
    _mma("m16n8k16", "bf16", _SM, _of_mma(16, "bf16", *_HALVES, 2, "f32")),
    _mma("m16n8k32", "s8", _SM, _of_mma(32, "s8", *_BYTES, 4, "s32")),
    _mma("m16n8k32", "e4m3", _SM[1:], _of_mma(32, "e4m3", *_BYTES, 4, "f32")),
    _mma("m8n8k4", "f64", _SM, {
        "A": Operand(8, 4, "f64", (along(4), down(8)), ()),
        "B": Operand(4, 8, "f64", (down(4), along(8)), ()),
        "D": Operand(8, 8, "f64", (along(4, 2), down(8)), (along(2),)),
    }),
    _wgmma(8),
    _wgmma(16),
    _TCGEN05,
    _matrix_core("v_mfma_f32_32x32x8_f16", 32, 4, "f16", _CDNA),
    _matrix_core("v_mfma_f32_16x16x16_f16", 16, 4, "f16", _CDNA),
    _matrix_core("v_mfma_f32_32x32x8_bf16", 32, 4, "bf16", _CDNA),
    _matrix_core("v_mfma_f32_16x16x16_bf16", 16, 4, "bf16", _CDNA),
    _matrix_core("v_mfma_f32_32x32x2_f32", 32, 1, "f32", _CDNA),
    _matrix_core("v_mfma_f32_16x16x4_f32", 16, 1, "f32", _CDNA),
    _matrix_core("v_mfma_f64_16x16x4_f64", 16, 1, "f64", _CDNA, "f64"),
    _matrix_core("v_mfma_i32_32x32x16_i8", 32, 8, "s8", _CDNA[1:], "s32"),
    _matrix_core("v_mfma_i32_16x16x32_i8", 16, 8, "s8", _CDNA[1:], "s32"),
    _matrix_core("v_mfma_f32_32x32x16_fp8_fp8", 32, 8, "fp8", _CDNA[1:]),
    _matrix_core("v_mfma_f32_16x16x32_fp8_fp8", 16, 8, "fp8", _CDNA[1:]),
    _matrix_core("v_mfma_f32_32x32x16_f16", 32, 8, "f16", _CDNA[2:], source=TRITON),
    _matrix_core("v_mfma_f32_16x16x32_f16", 16, 8, "f16", _CDNA[2:], source=TRITON),
    _wave_matrix("v_wmma_f32_16x16x16_f16 gfx11", 16, "f16", ("gfx1100",), COPY, (along(16),),
                 (down(2), down(8, 2)), CALCULATOR, _COPIES),
    _wave_matrix("v_wmma_f32_16x16x16_f16 gfx12", 16, "f16", ("gfx1201",), along(2, 4), (along(4), along(2, 8)),
                 _ROWS_APART, CALCULATOR, _ORDER_OF_K),
    _wave_matrix("v_wmma_f32_16x16x16_fp8_fp8", 16, "fp8", ("gfx1201",), along(2, 8), (along(8),),
                 _ROWS_APART, CALCULATOR),
    _wave_matrix("v_wmma_f32_16x16x4_f32", 4, "f32", ("gfx1250",), along(2, 2), (along(2),), _ROWS_APART, TRITON),
    _wave_matrix("v_wmma_f32_16x16x32_f16", 32, "f16", ("gfx1250",), along(2, 8), (along(8), along(2, 16)),
                 _ROWS_APART, TRITON),
    _wave_matrix("v_wmma_f32_16x16x64_fp8_fp8", 64, "fp8", ("gfx1250",), along(2, 8), (along(8), along(4, 16)),
                 _ROWS_APART, TRITON),
)  # fmt: skip

INSTRUCTIONS = {each.name: each for each in _ALL}
"""Name -> instruction: the short names of PTX (`mma.m16n8k16.f16`), LLVM's mnemonics of AMD.

`v_wmma_f32_16x16x16_f16` stands for two layouts, so its generation is part of the name.
"""


def instruction(name: str) -> Instruction:
    """Raises UnknownName for what is not in INSTRUCTIONS."""
    if name not in INSTRUCTIONS:
        raise UnknownName("instruction", name, INSTRUCTIONS)
    return INSTRUCTIONS[name]
