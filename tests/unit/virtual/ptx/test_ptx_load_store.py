"""Loads, stores and atomics in every space and width, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_harness import HEADER, launch, run_lines

from gpu_utils.errors import MisalignedAccess, OutOfBounds, Race, UninitialisedShared
from gpu_utils.virtual.ptx.load_store import ATOMICS, LOAD_FORMS, STORE_FORMS

KIND_BITS = {f"{k}{n}": n for k in "bus" for n in (8, 16, 32, 64)} | {"f32": 32, "f64": 64}
BASE = ".reg .b64 %a, %b; .reg .b32 %t; mov.u32 %t, %tid.x;"


def test_every_load_and_store_has_a_partner():
    spaces = {form.split(".")[1] for form in LOAD_FORMS}
    assert spaces >= {"global", "shared", "local", "const", "param"}
    assert {form.replace("st", "ld", 1) for form in STORE_FORMS} <= set(LOAD_FORMS)


def vector(registers: list[str]) -> str:
    return registers[0] if len(registers) == 1 else "{" + ", ".join(registers) + "}"


@pytest.mark.parametrize("form", LOAD_FORMS)
def test_a_load_extends_what_it_reads(form):
    """Each lane loads from 32 lanes' worth of bytes; narrow words are extended into a 64-bit register."""
    parts = form.split(".")
    kind = parts[-1]
    count = int(next((p[1] for p in parts if p in ("v2", "v4")), "1"))
    space = parts[1] if parts[1] in ("global", "shared", "local", "const", "param") else ""
    size, total = KIND_BITS[kind] // 8, KIND_BITS[kind] // 8 * count
    data = np.random.default_rng(3).integers(0, 256, 32 * total, np.uint8)
    out = np.zeros((32, count), np.uint64)
    regs = [f"%x{i}" for i in range(count)]
    lines = [BASE, ".reg .b64 " + ", ".join(regs) + ";", f"mul.wide.u32 %b, %t, {total};", "ld.param.u64 %a, [data];"]
    head, extra = "", ".param .u64 data, .param .u64 out"
    fill = [f"ld.global.b8 %byte, [%src+{i}]; st.SPACE.b8 [%dst+{i}], %byte;" for i in range(total)]
    prepare = [".reg .b64 %src, %dst; .reg .b16 %byte; add.u64 %src, %a, %b;"]
    if space in ("global", ""):
        lines.append("add.u64 %a, %a, %b;")
    elif space == "shared":
        head = f".shared .align 16 .b8 buffer[{32 * total}];\n"
        lines += [
            *prepare,
            "mov.u64 %dst, buffer; add.u64 %dst, %dst, %b;",
            *(f.replace("SPACE", "shared") for f in fill),
        ]
        lines.append("mov.u64 %a, %dst;")
    elif space == "local":
        lines += [f".local .align 16 .b8 mine[{total}];", *prepare, "mov.u64 %dst, mine;"]
        lines += [*(f.replace("SPACE", "local") for f in fill), "mov.u64 %a, %dst;"]
    elif space == "const":
        head = f".const .align 16 .b8 table[{len(data)}] = {{{', '.join(map(str, data))}}};\n"
        lines += ["mov.u64 %a, table;", "add.u64 %a, %a, %b;"]
    else:
        extra += f", .param .align 16 .b8 block[{total}]"
        data = np.tile(data[:total], 32)
        lines.append("")
    address = "[block]" if space == "param" else "[%a]"
    lines.append(f"{form} {vector(regs)}, {address};")
    lines.append(f"ld.param.u64 %b, [out]; mad.wide.u32 %b, %t, {8 * count}, %b;")
    lines += [f"st.global.b64 [%b+{8 * i}], {reg};" for i, reg in enumerate(regs)]
    text = HEADER + head + f".visible .entry k({extra}) {{\n" + "\n".join(lines) + "\nret; }"
    arguments: list = [data, out]
    if space == "param":
        arguments.append(int.from_bytes(data[:total].tobytes(), "little"))
    launch(text, arguments)
    words = data.view(f"{'i' if kind[0] == 's' else 'u'}{size}").reshape(32, count)
    assert (out == words.astype(np.int64 if kind[0] == "s" else np.uint64).view(np.uint64)).all()


@pytest.mark.parametrize("form", STORE_FORMS)
def test_a_store_writes_the_low_bits(form):
    parts = form.split(".")
    kind = parts[-1]
    count = int(next((p[1] for p in parts if p in ("v2", "v4")), "1"))
    space = parts[1] if parts[1] in ("global", "shared", "local") else ""
    size, total = KIND_BITS[kind] // 8, KIND_BITS[kind] // 8 * count
    values = np.random.default_rng(4).integers(0, 2**64, (32, count), np.uint64, endpoint=False)
    out = np.zeros(32 * total, np.uint8)
    regs = [f"%x{i}" for i in range(count)]
    lines = [
        BASE,
        ".reg .b64 %o; .reg .b64 " + ", ".join(regs) + ";",
        f"ld.param.u64 %a, [data]; mad.wide.u32 %a, %t, {8 * count}, %a;",
    ]
    lines += [f"ld.global.b64 {reg}, [%a+{8 * i}];" for i, reg in enumerate(regs)]
    lines += ["ld.param.u64 %o, [out];", f"mad.wide.u32 %o, %t, {total}, %o;"]
    head = ""
    if space in ("global", ""):
        lines.append(f"{form} [%o], {vector(regs)};")
    else:
        place = "mov.u64 %b, buffer;" + (f"mad.wide.u32 %b, %t, {total}, %b;" if space == "shared" else "")
        head = f".shared .align 16 .b8 buffer[{32 * total}];\n" if space == "shared" else ""
        lines.insert(0, "" if space == "shared" else f".local .align 16 .b8 buffer[{total}];")
        lines += [place, f"{form} [%b], {vector(regs)};", ".reg .b16 %byte;"]
        lines += [f"ld.{space}.b8 %byte, [%b+{i}]; st.global.b8 [%o+{i}], %byte;" for i in range(total)]
    launch(
        HEADER + head + ".visible .entry k(.param .u64 data, .param .u64 out) {\n" + "\n".join(lines) + "\nret; }",
        [values, out],
    )
    assert (out.view(f"u{size}").reshape(32, count) == values.astype(f"u{size}")).all()


def expected_atomic(op: str, kind: str, old: np.ndarray, value: np.ndarray, compare: np.ndarray) -> np.ndarray:
    bits = KIND_BITS.get(kind, 16 if kind in ("f16", "bf16") else 32)
    if op == "exch":
        return value
    if op == "cas":
        return np.where(old == compare, value, old)
    if op in ("inc", "dec"):
        if op == "inc":
            return np.where(old >= value, 0, old + 1)
        return np.where((old == 0) | (old > value), value, old - 1)
    if kind in ("f16", "f32", "f64", "f16x2"):
        dtype = {"f16": "f2", "f16x2": "f2", "f32": "f4", "f64": "f8"}[kind]
        return (old.view(dtype) + value.view(dtype)).view(old.dtype)
    if kind in ("bf16", "bf16x2"):
        a, b = ((x.view(np.uint16).astype(np.uint32) << 16).view(np.float32) for x in (old, value))
        total = (a + b).view(np.uint32)
        return ((total + 0x7FFF + (total >> 16 & 1)) >> 16).astype(np.uint16).view(old.dtype)
    view = f"{'i' if kind[0] == 's' else 'u'}{bits // 8}"
    fn = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[op]
    return fn(old.view(view), value.view(view)).view(old.dtype)


@pytest.mark.parametrize("space", ["global", "shared", ""])
@pytest.mark.parametrize(("op", "kind"), sorted(ATOMICS))
def test_an_atomic_returns_the_old_value_and_leaves_the_new_one(op, kind, space):
    """Every lane has a word of its own, so the result is that of one operation."""
    bits = KIND_BITS.get(kind, 16 if kind in ("f16", "bf16") else 32)
    dtype = np.dtype(f"u{bits // 8}")
    draw = np.random.default_rng(5)
    if "f" in kind:
        halves = draw.standard_normal((2, 64)).astype(
            {"f16": "f2", "f16x2": "f2", "f32": "f4", "f64": "f8"}.get(kind, "f4")
        )
        if kind.startswith("bf16"):
            halves = (halves.view(np.uint32) >> 16).astype(np.uint16)
        memory, value = (np.ascontiguousarray(x).view(dtype)[:32].copy() for x in halves)
    else:
        memory, value = (draw.integers(0, 2**bits, 32, np.uint64, endpoint=False).astype(dtype) for _ in range(2))
        memory[:4], value[2:6] = 0, 5
    compare = np.where(np.arange(32) % 2 == 0, memory, value)
    before, returned = memory.copy(), np.zeros(32, dtype)
    size = bits // 8
    noftz = ".noftz" if kind in ("f16", "bf16", "f16x2", "bf16x2") else ""
    lines = [BASE, f".reg .b64 %m, %r; .reg .b{bits} %v, %c, %o;"]
    for name, reg in (("value", "%v"), ("compare", "%c")):
        lines.append(f"ld.param.u64 %a, [{name}]; mad.wide.u32 %a, %t, {size}, %a; ld.global.b{bits} {reg}, [%a];")
    lines += [f"ld.param.u64 %m, [memory]; mad.wide.u32 %m, %t, {size}, %m;", "mov.u64 %b, %m;"]
    head = ""
    if space == "shared":
        head = f".shared .align 8 .b8 buffer[{32 * size}];\n"
        lines += [
            f"mov.u64 %b, buffer; mad.wide.u32 %b, %t, {size}, %b;",
            f"ld.global.b{bits} %o, [%m]; st.shared.b{bits} [%b], %o;",
        ]
    last = ", %c, %v" if op == "cas" else ", %v"
    dotted = f".{space}" if space else ""
    lines.append(f"atom.relaxed.gpu{dotted}.{op}{noftz}.{kind} %o, [%b]{last};")
    if space == "shared":
        lines.append(f".reg .b{bits} %n; ld.shared.b{bits} %n, [%b]; st.global.b{bits} [%m], %n;")
    lines.append(f"ld.param.u64 %r, [returned]; mad.wide.u32 %r, %t, {size}, %r; st.global.b{bits} [%r], %o;")
    params = ", ".join(f".param .u64 {n}" for n in ("memory", "value", "compare", "returned"))
    launch(
        HEADER + head + f".visible .entry k({params}) {{\n" + "\n".join(lines) + "\nret; }",
        [memory, value, compare, returned],
    )
    assert (returned == before).all()
    assert (memory == expected_atomic(op, kind, before, value, compare)).all()


def test_lanes_that_share_a_word_update_it_one_after_the_other():
    (old,) = run_lines(
        ".shared .align 4 .b32 n; .reg .pred %p; setp.eq.u32 %p, %index, 0; @%p st.shared.u32 [n], 100; bar.sync 0;"
        "atom.shared.add.u32 %out0, [n], 3;",
        [np.zeros(64, np.uint32)], [32],
    )  # fmt: skip
    assert sorted(old) == list(range(100, 100 + 3 * 64, 3))


def test_a_guarded_reduction_touches_only_the_lanes_of_its_guard():
    total = np.zeros(1, np.float32)
    text = (
        HEADER
        + """.visible .entry k(.param .u64 total) {
      .reg .b32 %t; .reg .b64 %a; .reg .pred %p; mov.u32 %t, %tid.x; ld.param.u64 %a, [total]; setp.lt.u32 %p, %t, 5;
      @%p red.global.add.f32 [%a], 0f3F800000; ret; }"""
    )
    launch(text, [total])
    assert total[0] == 5


def test_generic_addresses_reach_shared_and_global_memory_in_one_instruction():
    out = np.zeros(32, np.uint32)
    data = np.arange(32, dtype=np.uint32)
    text = (
        HEADER
        + """.visible .entry k(.param .u64 data, .param .u64 out) {
      .reg .b32 %t, %v, %o; .reg .b64 %a, %s, %x; .reg .pred %p; .shared .align 4 .b8 buffer[128];
      mov.u32 %t, %tid.x; ld.param.u64 %a, [data]; mad.wide.u32 %a, %t, 4, %a;
      mov.u64 %s, buffer; cvta.shared.u64 %s, %s; mad.wide.u32 %s, %t, 4, %s; mul.lo.u32 %v, %t, 100; st.u32 [%s], %v;
      and.b32 %o, %t, 1; setp.eq.u32 %p, %o, 0; selp.b64 %x, %s, %a, %p; ld.u32 %v, [%x];
      ld.param.u64 %a, [out]; mad.wide.u32 %a, %t, 4, %a; st.u32 [%a], %v; ret; }"""
    )
    launch(text, [data, out])
    assert (out == np.where(data % 2 == 0, data * 100, data)).all()


def test_a_data_section_keeps_its_initial_values_and_symbols():
    out = np.zeros(3, np.uint64)
    text = (
        HEADER
        + """.global .align 4 .u32 words[3] = {7, 0x10, 9}; .global .align 8 .u64 there = generic(words)+4;
      .visible .entry k(.param .u64 out) { .reg .b64 %a, %b, %v; .reg .b32 %w; .reg .pred %p; .reg .b32 %t;
      mov.u32 %t, %tid.x; setp.eq.u32 %p, %t, 0; @!%p ret; ld.param.u64 %a, [out]; ld.global.u64 %b, [there];
      ld.global.u32 %w, [%b]; cvt.u64.u32 %v, %w; st.global.u64 [%a], %v; ld.global.u32 %w, [words+8];
      cvt.u64.u32 %v, %w;
      st.global.u64 [%a+8], %v; ret; }"""
    )
    launch(text, [out])
    assert out.tolist() == [16, 9, 0]


ONE_STORE = (
    HEADER
    + """.visible .entry copy(.param .u64 out, .param .u32 offset) {{
  .reg .b32 %t, %o; .reg .b64 %a; mov.u32 %t, {index}; ld.param.u32 %o, [offset]; add.u32 %t, %t, %o;
  ld.param.u64 %a, [out];
  mad.wide.u32 %a, %t, 4, %a; st.global.u32 [%a{byte}], {value}; ret; }}"""
)


def test_a_store_past_the_end_names_kernel_program_lane_and_offset():
    with pytest.raises(OutOfBounds, match=r"kernel copy.*program \(0, 0, 0\), wave 0, lane 31.*byte offset 128"):
        launch(ONE_STORE.format(index="%tid.x", byte="", value="%t"), [np.zeros(32, np.uint32), 1])


def test_a_misaligned_store_is_an_error():
    with pytest.raises(MisalignedAccess):
        launch(ONE_STORE.format(index="%tid.x", byte="+2", value="%t"), [np.zeros(40, np.uint32), 0])


def test_two_programs_that_write_different_values_to_one_word_race():
    with pytest.raises(Race, match="programs 1 and 0"):
        launch(
            ONE_STORE.format(index="%tid.x", byte="", value="%ctaid.x")
            .replace("mov.u32 %t, %tid.x;", "mov.u32 %t, %tid.x; .reg .b32 %c; mov.u32 %c, %ctaid.x;")
            .replace("], %ctaid.x", "], %c"),
            [np.zeros(32, np.uint32), 0],
            grid=(2, 1, 1),
        )


def test_shared_memory_that_nobody_wrote_cannot_be_read():
    with pytest.raises(UninitialisedShared):
        run_lines(".shared .align 4 .b8 b[256]; ld.shared.u32 %out0, [b];", [np.zeros(32, np.uint32)], [32])


def test_isspacep_tells_the_windows_apart_and_ldu_reads_global_memory():
    data, out = np.arange(1, 33, dtype=np.uint32), np.zeros((32, 4), np.uint32)
    text = (
        HEADER
        + """.const .align 4 .u32 table[2] = {1, 2}; .visible .entry k(.param .u64 data, .param .u64 out) {
      .reg .b32 %t, %v, %w; .reg .b64 %a, %s, %l, %o; .reg .pred %p; .shared .align 4 .b8 buffer[4];
      .local .align 4 .b8 mine[4];
      mov.u32 %t, %tid.x; ld.param.u64 %a, [data]; mad.wide.u32 %a, %t, 4, %a; ldu.global.u32 %v, [%a];
      ld.param.u64 %o, [out]; mad.wide.u32 %o, %t, 16, %o; st.global.u32 [%o], %v;
      mov.u64 %s, buffer; cvta.shared.u64 %s, %s; mov.u64 %l, mine; cvta.local.u64 %l, %l;
      mov.b32 %w, 0; isspacep.shared %p, %s; @%p or.b32 %w, %w, 1; isspacep.shared %p, %a; @%p or.b32 %w, %w, 2;
      isspacep.local %p, %l; @%p or.b32 %w, %w, 4; isspacep.global %p, %a; @%p or.b32 %w, %w, 8;
      isspacep.global %p, %s; @%p or.b32 %w, %w, 16; mov.u64 %s, table; isspacep.const %p, %s; @%p or.b32 %w, %w, 32;
      st.global.u32 [%o+4], %w; mov.u64 %s, buffer; cvta.shared.u64 %s, %s; cvta.to.shared.u64 %s, %s;
      cvt.u32.u64 %v, %s;
      st.global.u32 [%o+8], %v; st.u32 [%l], %t; ld.local.u32 %v, [mine]; st.global.u32 [%o+12], %v; ret; }"""
    )
    launch(text, [data, out])
    assert (out[:, 0] == data).all()
    assert set(out[:, 1].tolist()) == {1 | 4 | 8 | 32}
    assert not out[:, 2].any()
    assert out[:, 3].tolist() == list(range(32))


def test_a_thread_that_leaves_its_local_memory_is_stopped():
    text = (
        HEADER
        + """.visible .entry k(.param .u64 out, .param .u32 at) {
      .reg .b32 %t, %v; .reg .b64 %a, %o; .reg .pred %p; .local .align 4 .b8 mine[64];
      mov.u32 %t, %tid.x; ld.param.u32 %v, [at]; mul.lo.u32 %t, %t, %v; setp.lt.u32 %p, %t, 124; mov.u64 %a, mine;
      cvt.u64.u32 %o, %t; add.u64 %a, %a, %o; @%p st.local.u32 [%a], %t; ret; }"""
    )
    out = np.zeros(32, np.uint32)
    launch(text, [out, 1000])  # lanes past the guard reach nothing
    with pytest.raises(OutOfBounds, match=r"lane 16 .*writes 4 bytes at byte offset 64 of its local memory.* 64 bytes"):
        launch(text, [out, 4])
