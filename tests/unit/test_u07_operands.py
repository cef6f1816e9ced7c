"""The layouts of matrix operands, element by element, against the virtual GPUs; and the explorer that draws them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from math import ceil

import numpy as np
import pytest
import torch

from gpu_utils import explore
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import amdgcn_kernel, assembled, ptx_kernel
from gpu_utils.ui.explore.operands import draw
from gpu_utils.ui.operand_figure import operand_figure
from gpu_utils.ui.operand_layouts import INSTRUCTIONS, Instruction, Operand, along, down
from gpu_utils.virtual import virtual_gpu

ON_TARGETS = [(name, target) for name, each in INSTRUCTIONS.items() for target in each.targets]

EXACT = {"f64": 4096, "f32": 4096, "tf32": 1024, "s32": 4096, "f16": 1024, "bf16": 128, "fp8": 16, "e4m3": 16, "s8": 64}
"""Whole numbers below this are exact in a kind: elements are numbered with digits to this base, a wave for each."""

STORED = {
    "f64": torch.float64, "f32": torch.float32, "tf32": torch.float32, "s32": torch.int32, "f16": torch.float16,
    "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "s8": torch.int8,
}  # fmt: skip


def stored(kind: str, target: str) -> torch.dtype:
    if kind == "fp8":
        return torch.float8_e4m3fnuz if target == "gfx942" else torch.float8_e4m3fn
    return STORED[kind]


# The kernels: each lane loads its registers of A, B and C, and stores those of D


def ptx_text(each: Instruction) -> str:
    if each.targets == ("sm_100",):
        return tcgen05_text(each)
    wide = each.operands["D"].kind == "f64"
    size, kind = (8, "b64") if wide else (4, "b32")
    names = [name for name in "abd" if name.upper() in each.operands]
    count = {name: each.operands[name.upper()].registers for name in names}
    lines = [".reg .b64 %p, %desc; .reg .b32 %t, %s, %w; .reg .pred %one; mov.u32 %t, %tid.x;"]
    lines += [f".reg .{'f64' if wide else 'b32'} %{name}<{count[name]}>;" for name in names]
    lines.append(f"mov.u32 %s, %ctaid.x; mad.lo.u32 %s, %s, {each.lanes}, %t;")
    for name in names:
        lines.append(f"ld.param.u64 %p, [{name}_ptr]; mad.wide.u32 %p, %s, {size * count[name]}, %p;")
        lines += [f"ld.global.{kind} %{name}{i}, [%p+{size * i}];" for i in range(count[name])]
    of = {name: "{" + ", ".join(f"%{name}{i}" for i in range(count[name])) + "}" for name in names}
    if "b" in names:
        lines.append(f"{each.text} {of['d']}, {of['a']}, {of['b']}, {of['d']};")
    else:
        lines += _wgmma(each, of)
    lines += [f"st.global.{kind} [%p+{size * i}], %d{i};" for i in range(count["d"])]
    target = "sm_90a" if each.targets == ("sm_90",) else each.targets[0]
    return ptx_kernel("product", "a_ptr b_ptr d_ptr", "\n".join((*lines, "ret;")), target)


def _wgmma(each: Instruction, of: dict[str, str]) -> list[str]:
    """B from shared memory: core matrices of 8 columns of B x 16 bytes along k, the two along k side by side."""
    image = 2 * each.shape[1] * each.shape[2]
    lead, stride = 128, 256
    descriptor = lead >> 4 << 16 | stride >> 4 << 32
    lines = [
        f".shared .align 128 .b8 tile[{image}];",
        f"ld.param.u64 %p, [b_ptr]; mov.u32 %w, %ctaid.x; mul.lo.u32 %w, %w, {image}; mad.lo.u32 %w, %t, 4, %w;",
        "cvt.u64.u32 %desc, %w; add.u64 %p, %p, %desc;",
    ]
    for at in range(0, image, 4 * each.lanes):
        guard = f"setp.lt.u32 %one, %t, {(image - at) // 4};"
        lines.append(f"{guard} @%one ld.global.b32 %w, [%p+{at}]; mov.u32 %s, tile; mad.lo.u32 %s, %t, 4, %s;")
        lines.append(f"@%one st.shared.b32 [%s+{at}], %w;")
    lines += [
        "fence.proxy.async; bar.sync 0; setp.eq.u32 %one, 0, 0; mov.u32 %s, tile; cvt.u64.u32 %desc, %s;",
        f"shr.u64 %desc, %desc, 4; or.b64 %desc, %desc, {descriptor};",
        "wgmma.fence.sync.aligned;",
        f"{each.text} {of['d']}, {of['a']}, %desc, %one, 1, 1, 0;",
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        "mov.u32 %s, %ctaid.x; mad.lo.u32 %s, %s, 128, %t; ld.param.u64 %p, [d_ptr];",
        f"mad.wide.u32 %p, %s, {4 * each.operands['D'].registers}, %p;",
    ]
    return lines


TCGEN05 = """
.reg .b64 %p, %desc<2>, %o; .reg .b32 %t, %s, %w, %d<16>, %memory; .reg .pred %first, %one, %ok;
.shared .align 1024 .b8 tiles[4608]; .shared .align 8 .b64 bar; .shared .align 4 .b32 place;
mov.u32 %t, %tid.x; setp.eq.u32 %one, %t, 0; setp.lt.u32 %first, %t, 32;
@%one mbarrier.init.shared::cta.b64 [bar], 1;
@%first tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;
LOADS
mov.u32 %s, %ctaid.x; mad.lo.u32 %s, %s, 128, %t; ld.param.u64 %p, [d_ptr]; mad.wide.u32 %o, %s, 64, %p;
fence.proxy.async; bar.sync 0;
ld.shared.u32 %memory, [place]; mov.u32 %s, tiles; cvt.u64.u32 %desc0, %s; shr.u64 %desc0, %desc0, 4;
or.b64 %desc0, %desc0, DESCRIPTOR; add.u64 %desc1, %desc0, 256;
and.b32 %w, %t, 96; shl.b32 %w, %w, 16; add.u32 %w, %w, %memory; // a warp's own quarter of the lanes
C_LOADS
tcgen05.st.sync.aligned.32x32b.x16.b32 [%w], REGISTERS;
tcgen05.wait::st.sync.aligned; tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
mov.u32 %s, IDESC; setp.eq.u32 %ok, 0, 0;
@%one tcgen05.mma.cta_group::1.kind::f16 [%memory], %desc0, %desc1, %s, %ok;
@%one tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %ok, [bar], 0; @!%ok bra WAIT;
tcgen05.fence::after_thread_sync;
tcgen05.ld.sync.aligned.32x32b.x16.b32 REGISTERS, [%w];
tcgen05.wait::ld.sync.aligned;
STORES
bar.sync 0;
@%first tcgen05.dealloc.cta_group::1.sync.aligned.b32 %memory, 32;
ret;
"""


def tcgen05_text(each: Instruction) -> str:
    """A and B as core matrices in shared memory, C by tcgen05.st, D by tcgen05.ld."""
    m, n, _ = each.shape
    loads = []
    for name, size, at in (("a", 32 * m, 0), ("b", 32 * n, 32 * m)):
        loads.append(f"ld.param.u64 %p, [{name}_ptr]; mov.u32 %w, %ctaid.x; mul.lo.u32 %w, %w, {size};")
        loads.append("mad.lo.u32 %w, %t, 4, %w; cvt.u64.u32 %desc0, %w; add.u64 %p, %p, %desc0; shl.b32 %s, %t, 2;")
        loads.append("mov.u32 %w, tiles; add.u32 %s, %s, %w;")
        for first in range(0, size, 512):
            loads.append(f"ld.global.b32 %w, [%p+{first}]; st.shared.b32 [%s+{at + first}], %w;")
    parts = {
        "C_LOADS": "\n".join(f"ld.global.b32 %d{i}, [%o+{4 * i}];" for i in range(n)),
        "LOADS": "\n".join(loads),
        "STORES": "\n".join(f"st.global.b32 [%o+{4 * i}], %d{i};" for i in range(n)),
        "DESCRIPTOR": str(128 >> 4 << 16 | 256 >> 4 << 32 | 1 << 46),
        "IDESC": str(1 << 4 | n >> 3 << 17 | m >> 4 << 24),
        "REGISTERS": "{" + ", ".join(f"%d{i}" for i in range(n)) + "}",
    }
    body = TCGEN05
    for word, text in parts.items():
        body = body.replace(word, text)
    return ptx_kernel("product", "a_ptr b_ptr d_ptr", body, "sm_100a")


def amdgcn_text(each: Instruction, target: str) -> str:
    first = {"A": 8, "B": 24, "D": 40}
    count = {name: each.operands[name].registers for name in first}
    of = {name: f"v[{first[name]}:{first[name] + n - 1}]" if n > 1 else f"v{first[name]}" for name, n in count.items()}
    late = target.startswith("gfx12")
    scalars, vectors = (
        ("s_wait_kmcnt 0", "s_wait_loadcnt 0") if late else ("s_waitcnt lgkmcnt(0)", "s_waitcnt vmcnt(0)")
    )
    lines = ["s_load_dwordx4 s[4:7], s[0:1], 0", "s_load_dwordx2 s[8:9], s[0:1], 16", scalars]
    for at, name in zip((4, 6, 8), first, strict=True):
        lines.append(f"v_mul_u32_u24 v1, {4 * count[name]}, v0")
        lines += [
            f"global_load_dword v{first[name] + i}, v1, s[{at}:{at + 1}] offset:{4 * i}" for i in range(count[name])
        ]
    lines += [vectors, f"{each.spelled(target)} {of['D']}, {of['A']}, {of['B']}, {of['D']}"]
    lines += ["s_nop 15", "s_nop 15"] if not late else ["v_nop"] * 8
    lines += [f"global_store_dword v1, v{first['D'] + i}, s[8:9] offset:{4 * i}" for i in range(count["D"])]
    return amdgcn_kernel("product", "a_ptr b_ptr d_ptr", "\n".join((*lines, "s_endpgm")), target)


# Matrices to registers and back, by the rule


def in_registers(matrices: np.ndarray, operand: Operand, dtype: torch.dtype) -> torch.Tensor:
    """(waves, rows, columns) -> (waves, lanes, items), bytes of each lane's registers in their order."""
    held = np.zeros((len(matrices), operand.lane_count, operand.item_count))
    for row in range(operand.rows):
        for column in range(operand.columns):
            for lane, item in operand.places(row, column):
                held[:, lane, item] = matrices[:, row, column]
    return torch.from_numpy(held).to(dtype).contiguous()


def from_registers(held: torch.Tensor, operand: Operand) -> np.ndarray:
    values = held.double().numpy()
    found = np.empty((len(values), operand.rows, operand.columns))
    for lane in range(operand.lane_count):
        for item in range(operand.item_count):
            found[(slice(None), *operand.element(lane, item))] = values[:, lane, item]
    return found


def kind_of(each: Instruction) -> str:
    return each.operands["A"].kind if "A" in each.operands else "f16"


def in_core_matrices(b: np.ndarray) -> torch.Tensor:
    """B (waves, 16, n) as wgmma and tcgen05 read it from shared memory without a swizzle, K-major."""
    waves, k, n = b.shape
    tiles = b.transpose(0, 2, 1).reshape(waves, n // 8, 8, k // 8, 8).transpose(0, 1, 3, 2, 4)
    return torch.from_numpy(np.ascontiguousarray(tiles)).half()


def digits_of(rows: int, columns: int, base: int) -> list[np.ndarray]:
    """Matrices of the digits of each element's number: together they say which element is where."""
    numbers, found = np.arange(rows * columns).reshape(rows, columns), []
    while not found or numbers.any():
        found.append((numbers % base).astype(float))
        numbers = numbers // base
    return found


def problems(each: Instruction) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B and C of each wave: numbered elements of A past identities, of B past identities, then all at random."""
    m, n, k = each.shape
    base = EXACT[kind_of(each)]
    a, b = [], []
    for first in range(0, k, n):
        for numbered in digits_of(m, k, base):
            a.append(numbered)
            b.append(np.eye(k, n, -first))
    for first in range(0, k, m):
        for numbered in digits_of(k, n, base):
            a.append(np.eye(m, k, first))
            b.append(numbered)
    random = np.random.default_rng(7)
    a.append(random.integers(-4, 5, (m, k)).astype(float))
    b.append(random.integers(-4, 5, (k, n)).astype(float))
    c = np.zeros((len(a), m, n))
    c[-1] = np.arange(m * n).reshape(m, n)
    return np.array(a), np.array(b), c


def prepared(
    each: Instruction, target: str, a: np.ndarray, b: np.ndarray, c: np.ndarray
) -> tuple[str, int, int, list[torch.Tensor]]:
    """Text, grid, block and arguments of a launch that multiplies; the last argument holds C before and D after."""
    of, waves = each.operands, len(a)
    kind = stored(kind_of(each), target)
    left = in_registers(a, of["A"], kind) if "A" in of else in_core_matrices(a.transpose(0, 2, 1))
    right = in_registers(b, of["B"], kind) if "B" in of else in_core_matrices(b)
    d = in_registers(c, of["D"], stored(of["D"].kind, target))
    text = ptx_text(each) if each.vendor == "nvidia" else amdgcn_text(each, target)
    grid, block = (waves, each.lanes) if each.vendor == "nvidia" else (1, waves * each.lanes)
    return text, grid, block, [left.view(torch.uint8), right.view(torch.uint8), d]


def executed(each: Instruction, target: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    text, grid, block, args = prepared(each, target, a, b, c)
    with virtual_gpu(target, strict=True, sanitize=("racecheck", "waitcheck")) as gpu:
        gpu.load(assembled(text, target)).launch("product", grid, block, args)
    return from_registers(args[-1], each.operands["D"])


@pytest.mark.parametrize(("name", "target"), ON_TARGETS)
def test_every_element_is_where_the_rule_says(name, target):
    each = INSTRUCTIONS[name]
    a, b, c = problems(each)
    assert (executed(each, target, a, b, c) == a @ b + c).all()


def test_a_numbered_matrix_past_an_identity_is_read_back_whole():
    a, b, _ = problems(INSTRUCTIONS["mma.m16n8k32.e4m3"])
    waves = ceil(32 / 8)
    assert len(a) == 3 * waves + 2 * 2 + 1
    product = a @ b
    numbers = np.concatenate([sum(product[3 * w + d] * 16**d for d in range(3)) for w in range(waves)], axis=1)
    assert (numbers == np.arange(16 * 32).reshape(16, 32)).all()


def test_a_wrong_rule_is_found():
    each = INSTRUCTIONS["v_mfma_f32_16x16x16_f16"]
    a, b, c = problems(each)
    wrong = replace(each.operands["D"], items=(down(4, 4),), lanes=(along(16), down(4)))
    assert not (executed(replace(each, operands=each.operands | {"D": wrong}), "gfx942", a, b, c) == a @ b + c).all()


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_places_and_elements_are_inverse_and_fill_the_matrix(name):
    for operand in INSTRUCTIONS[name].operands.values():
        total, held = operand.rows * operand.columns, operand.lane_count * operand.item_count
        places = {(r, c): operand.places(r, c) for r in range(operand.rows) for c in range(operand.columns)}
        assert sum(map(len, places.values())) == held
        assert {len(found) for found in places.values()} == {held // total}
        assert all(operand.element(*place) == at for at, found in places.items() for place in found)
        with pytest.raises(BadArgument, match="no element"):
            operand.places(operand.rows, 0)
        with pytest.raises(BadArgument, match="expected lanes below"):
            operand.element(operand.lane_count, 0)


# The drawing

DRAWN = [
    "mma.m16n8k16.f16", "mma.m8n8k4.f64", "wgmma.m64n8k16.f16", "tcgen05.m128n16k16.f16", "v_mfma_f32_32x32x2_f32",
    "v_mfma_f64_16x16x4_f64", "v_wmma_f32_16x16x16_f16 gfx11", "v_wmma_f32_16x16x64_fp8_fp8",
]  # fmt: skip


def drawing(picture):
    root = ElementTree.fromstring(f"<all>{picture.html}</all>")
    return next(root.iter("{http://www.w3.org/2000/svg}svg"))


def cells(picture):
    """(row, column) -> (words under the pointer, label)."""
    groups = drawing(picture).findall("{http://www.w3.org/2000/svg}g")
    said = [box[0].text for box in groups[0]]
    labels = [words.text for words in groups[1]]
    at = [tuple(map(int, re.match(r"row (\d+), column (\d+):", words).groups())) for words in said]
    return dict(zip(at, zip(said, labels, strict=True), strict=True))


@pytest.mark.parametrize("name", DRAWN)
def test_each_cell_says_the_lane_of_its_element(name):
    for letter, operand in INSTRUCTIONS[name].operands.items():
        found = cells(operand_figure(name, letter))
        assert len(found) == min(operand.rows, 16 if operand.rows > 32 else 32) * min(operand.columns, 32)
        for at, (said, label) in found.items():
            places = operand.places(*at)
            assert label == " ".join(str(place.lane) for place in places)
            assert said.endswith(
                f" {' and '.join(str(place.lane) for place in places)}, {operand.where(places[0].item)}"
            )


def test_as_many_cells_are_framed_as_the_lane_has_elements():
    picture = operand_figure("mma.m16n8k16.f16", "A", lane=14)
    assert picture.words == "Lane 14 holds 8 of the 256 elements, in 4 registers of A."
    assert picture.html.count('class="edge"') == 8
    assert "stroke-width:3.5" not in picture.html
    assert operand_figure("mma.m16n8k16.f16", "A", row=3, column=5).html.count("stroke-width:3.5") == 1


def test_cells_can_show_registers():
    found = cells(operand_figure("v_mfma_f32_32x32x8_f16", "C", shows="register"))
    assert [found[row, 0][1] for row in range(12)] == ["0", "1", "2", "3"] * 2 + ["4", "5", "6", "7"]


def test_a_tall_matrix_is_drawn_around_the_chosen_element():
    picture = operand_figure("wgmma.m64n8k16.f16", "D", row=37, column=5)
    assert {row for row, _ in cells(picture)} == set(range(32, 48))
    assert "thread 86 (lane 22 of warp 2), register 1." in picture.words
    assert "Drawn: rows 32 to 47 of 64." in picture.html


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ({"name": "mma.m16n8k4.f16"}, UnknownName),
        ({"operand": "E"}, UnknownName),
        ({"name": "wgmma.m64n8k16.f16", "operand": "B"}, BadArgument),
        ({"row": 16, "column": 0}, BadArgument),
        ({"row": 3}, BadArgument),
        ({"lane": 32}, BadArgument),
        ({"lane": 3, "row": 0, "column": 0}, BadArgument),
        ({"shows": "item"}, UnknownName),
    ],
)
def test_what_there_is_not_is_refused(what, problem):
    with pytest.raises(problem):
        operand_figure(**{"name": "mma.m16n8k16.f16"} | what)


def test_the_explorer_follows_its_controls():
    explorer = explore("operands")
    assert explorer.words.startswith("Row 3, column 5 of A is in lane 14, register 0, upper half.")
    explorer.controls["row"].value = 11
    assert explorer.words.startswith("Row 11, column 5 of A is in lane 14, register 1, upper half.")
    explorer.controls["operand"].value = "B"
    assert explorer.controls["column"].max == 7
    explorer.controls["name"].value = "v_mfma_f32_32x32x8_f16"
    assert (explorer.controls["row"].max, explorer.controls["column"].max) == (7, 31)
    explorer.controls["name"].value = "wgmma.m64n8k16.f16"
    assert "no lane holds it" in explorer.words
    explorer.controls["operand"].value = "A"
    assert explorer.controls["row"].max == 63


@pytest.mark.parametrize(
    ("start", "problem"),
    [({"row": 16}, BadArgument), ({"operand": "X"}, UnknownName), ({"shows": "byte"}, UnknownName)],
)
def test_the_explorer_refuses_a_start_that_there_is_not(start, problem):
    with pytest.raises(problem):
        explore("operands", **start)


def test_a_larger_number_stands_for_the_last_row_and_column():
    assert draw("mma.m8n8k4.f64", "A", 99, 99, "lane").words.startswith(
        "Row 7, column 3 of A is in lane 31, register 0"
    )
