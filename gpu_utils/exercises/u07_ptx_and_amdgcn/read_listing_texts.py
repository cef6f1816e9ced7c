"""Listings for 07.read_listing: some that Triton wrote, and texts that are drawn, with all that misleads a reader.

The stored ones are of three small kernels, compiled by Triton 3.7.1; their debug sections are cut off. A drawn text is
no program: it has the lines of a listing in any order. Its instructions are of several chips of one vendor.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

FOLDER = Path(__file__).parent / "listings"


@lru_cache
def stored(name: str) -> str:
    """A listing that Triton wrote: "gelu.sm_80.plain"."""
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


LOADS = {
    "nvidia": {
        8: "ld.global.u8 %rs1, [%rd2]",
        16: "ld.global.nc.b16 %rs3, [%rd2+64]",
        32: "ld.global.b32 {%r1}, [%rd1 + 0]",
        64: "ld.relaxed.gpu.global.L1::no_allocate.v2.f32 {%f1, %f2}, [%rd3]",
        128: "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1 + 0]",
        256: "ld.global.nc.L1::evict_last.v8.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, [%rd8]",
    },
    "amd": {
        8: "global_load_ubyte v1, v2, s[0:1]",
        16: "buffer_load_ushort v1, v2, s[4:7], 0 offen",
        32: "global_load_dword v3, v[4:5], off offset:16",
        64: "buffer_load_b64 v[4:5], v1, s[4:7], 0 offen",
        96: "global_load_b96 v[4:6], v1, s[2:3]",
        128: "global_load_b128 v[4:7], v1, s[2:3]",
    },
}
OTHER_NAMES: dict[str, dict[int, str]] = {
    "nvidia": {-32: "ldu.global.b32 %r1, [%rd1]"},
    "amd": {
        8: "buffer_load_u8 v1, v2, s[4:7], 0 offen",
        16: "global_load_d16_b16 v1, v2, s[0:1]",
        32: "buffer_load_b32 v1, v2, s[4:7], 0 offen",
        64: "global_load_dwordx2 v[4:5], v[6:7], off",
        96: "buffer_load_dwordx3 v[4:6], v1, s[4:7], 0 offen",
        128: "buffer_load_dwordx4 v[4:7], v1, s[4:7], 0 offen",
        -8: "global_load_sbyte v1, v2, s[0:1]",
        -9: "global_load_i8 v1, v2, s[0:1]",
        -16: "global_load_sshort v1, v2, s[0:1]",
        -18: "global_load_u16 v1, v2, s[0:1]",
        -32: "global_load_b32 v1, v2, s[0:1]",
    },
}
"""Of AMD's a width has a name on gfx9, and another one from gfx11 on. Below 0 are further names."""

COPIES = {
    "nvidia": {
        32: "cp.async.ca.shared.global [ %r3 + 0 ], [ %rd1 + 0 ], 0x4, %r4",
        64: "cp.async.ca.shared.global [%r3], [%rd1], 8",
        128: "cp.async.cg.shared.global.L2::128B [ %r3 + 0 ], [ %rd1 + 0 ], 0x10",
    },
    "amd": {
        32: "buffer_load_dword v1, s[4:7], 0 offen lds",
        64: "global_load_async_to_lds_b64 v1, v[2:3], off",
        128: "global_load_lds_dwordx4 v[2:3], off",
    },
}
BULK = {
    "nvidia": (
        "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4]",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r4]",
    ),
    "amd": ("tensor_load_to_lds s[0:3], s[4:11]",),
}
MATRIX = {
    "nvidia": (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, "
        "{%f1, %f2, %f3, %f4}",
        "wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64.rn {%fd1, %fd2}, {%fd3}, {%fd4}, {%fd1, %fd2}",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd1, %rd2, 1, 1, 1, 0, 1",
        "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1",
    ),
    "amd": (
        "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]",
        "v_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[6:9], v10",
        "v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]",
        "v_swmmac_f32_16x16x32_f16 v[0:7], v[8:11], v[12:19], v20",
    ),
}
BARRIERS = {
    "nvidia": ("bar.sync 0", "barrier.sync 1, 128", "barrier.cta.sync.aligned 0"),
    "amd": ("s_barrier", "s_barrier_wait -1"),
}

OTHERS = {
    "nvidia": (
        ("ld.param.b64 %rd1, [kernel_param_0]",) * 3,
        ("ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r5]", "ld.shared.b32 %r1, [%r5]", "ld.shared.b32 %r7, [%r5+4]"),
        ("ld.local.b32 %r1, [%rd9]",),
        ("st.global.v4.b32 [%rd1], {%r1, %r2, %r3, %r4}", "st.shared.b32 [%r5], %r1", "prefetch.global.L2 [%rd1]"),
        ("cp.async.commit_group", "cp.async.wait_group 2"),
        ("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}], [%r3]",) * 2,
        ("wgmma.fence.sync.aligned", "wgmma.commit_group.sync.aligned", "wgmma.wait_group.sync.aligned 0"),
        (
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5]",
            "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r5], {%r1, %r2, %r3, %r4}",
        ),
        ("bar.warp.sync -1", "mbarrier.init.shared::cta.b64 [%r1], 1"),
        ("wmma.load.a.sync.aligned.row.m8n8k4.shared.f64 {%fd3}, [%r5]",),
        ("fence.proxy.async.shared::cta", "membar.gl", "fence.acq_rel.gpu"),
        ("red.global.add.f32 [%rd1], %f1", "atom.global.add.u32 %r1, [%rd1], 1"),
        ("mov.u32 %r1, %tid.x", "fma.rn.f32 %f1, %f2, %f3, %f4", "shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1"),
    ),
    "amd": (
        (
            "s_load_dwordx4 s[0:3], s[0:1], 0x0",
            "s_load_b128 s[4:7], s[0:1], 0x10",
            "s_buffer_load_dword s9, s[4:7], 0x0",
        ),
        ("ds_read_b128 v[0:3], v4", "ds_load_b64 v[0:1], v4"),
        ("scratch_load_dword v1, off, off offset:4",) * 3,
        (
            "global_store_dwordx4 v[2:3], v[4:7], off",
            "buffer_store_b128 v[4:7], v1, s[4:7], 0 offen",
            "ds_write_b32 v1, v2",
        ),
        ("tensor_store_from_lds s[0:3], s[4:11]",) * 2,
        ("ds_read_b64_tr_b16 v[0:1], v2",),
        ("s_barrier_signal -1",) * 5,
        (
            "s_waitcnt vmcnt(0) lgkmcnt(0)",
            "s_wait_loadcnt 0x0",
            "buffer_inv sc1",
            "buffer_gl0_inv",
            "global_inv scope:SCOPE_SE",
        ),
        ("global_atomic_add v1, v2, s[0:1]",),
        ("v_pk_fma_f16 v1, v2, v3, v4", "v_readlane_b32 s1, v1, 3", "v_exp_f32_e32 v1, v2", "s_nop 0"),
    ),
}
"""What stands beside all that, group by group: each group is what one mistake would count."""

NAMES = {
    "nvidia": ("ld.global.v4.b32", "cp.async.cg.shared.global", "mma.sync.aligned.m16n8k16", "bar.sync"),
    "amd": ("global_load_dwordx4", "global_load_lds_dwordx4", "v_mfma_f32_32x32x8_f16", "s_barrier"),
}
"""Words of comments; and on AMD, where they may be, of labels."""


def _several(rng: random.Random, of: dict[int, str], least: int, most: int) -> list[str]:
    return rng.choices([of[bits] for bits in sorted(of)], k=rng.randint(least, most))


def _instructions(rng: random.Random, vendor: str) -> list[str]:
    """Instructions of one kernel in any order; of each kind at least one."""
    loads = dict(LOADS[vendor])
    for bits, other in OTHER_NAMES[vendor].items():
        if rng.random() < 0.5:
            loads[bits] = other
    drawn = _several(rng, loads, 3, 9) + _several(rng, COPIES[vendor], 2, 6)
    drawn += [rng.choice(BULK[vendor])] * rng.randint(1, 2)
    if vendor == "amd":
        drawn.append(COPIES[vendor][32])  # the one whose last word says so
    drawn += [one for one in MATRIX[vendor] for _ in range(rng.randint(1, 4))]
    drawn += [one for one in BARRIERS[vendor] for _ in range(rng.randint(1, 3))]
    drawn += [one for group in OTHERS[vendor] for one in group if rng.random() < 0.7]
    drawn += [group[0] for group in OTHERS[vendor]]
    rng.shuffle(drawn)
    return drawn


def _ptx(rng: random.Random, name: str) -> str:
    lines = []
    for number, one in enumerate(_instructions(rng, "nvidia")):
        guard = rng.choice(("@%p1 ", "@!%p2 ")) if rng.random() < 0.3 else ""
        lines.append(f"\t{guard}{one};")
        if rng.random() < 0.15:
            lines.append(f"\t.loc\t1 {number + 7} 24")
        if rng.random() < 0.15:
            lines.append(f"\t// was: {rng.choice(NAMES['nvidia'])} %r1, [%rd1], 16;")
        if rng.random() < 0.1:
            lines.append(f"$L__BB0_{number}:")
        if rng.random() < 0.1:
            lines.append("\t/* ld.global.v2.b32 {%r1, %r2}, [%rd1];\n\t   bar.sync 0; */")
    inline = "{ ld.global.b32 %r1, [%rd1]; @%p1 ld.global.b32 %r2, [%rd1+4]; bar.sync 0; bar.sync 0; }"
    lines.insert(rng.randrange(len(lines)), f"\t// begin inline asm\n\t{inline}\n\t// end inline asm")
    lines.append("\t// mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 by hand: see above;")
    body = "\n".join(lines)
    head = f".visible .entry {name}(\n\t.param .u64 .ptr .global .align 16 {name}_param_0\n)\n.reqntid 128\n{{"
    return f"{head}\n\t.reg .pred \t%p<4>;\n\t.reg .b32 \t%r<9>;\n\t.reg .b64 \t%rd<9>;\n{body}\n\tret;\n}}\n"


def _amdgcn(rng: random.Random, name: str) -> str:
    lines = []
    for number, one in enumerate(_instructions(rng, "amd")):
        comment = f"  ; {rng.choice(NAMES['amd'])} v[0:3], v4" if rng.random() < 0.15 else ""
        lines.append(f"\t{one}{comment}")
        if rng.random() < 0.15:
            lines.append(f"\t.loc\t1 {number + 7} 24  ; kernel.py:{number + 7}:24")
        if rng.random() < 0.15:
            lines.append(f"\t; {rng.choice(NAMES['amd'])} v[0:3], v4")
        if rng.random() < 0.1:
            lines.append(f".LBB0_{number}:")
    lines.append("\t; s_barrier\n\t// v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3]")
    body = "\n".join(lines)
    head = f"\t.globl\t{name}\n\t.p2align\t8\n\t.type\t{name},@function\n{name}:  ; @{name}"
    return f"{head}\n{body}\n\ts_endpgm\n.Lend_{name}:\n\t.size\t{name}, .Lend_{name}-{name}\n"


def written(rng: random.Random, vendor: str, kernels: int) -> str:
    """A text of so many kernels. On AMD kernels have names that look like instructions."""
    if vendor == "nvidia":
        texts = [_ptx(rng, f"kernel_{number}") for number in range(kernels)]
        return (
            f"//\n// Generated for a reader\n//\n\n.version 8.7\n.target {rng.choice(('sm_80', 'sm_90a'))}\n"
            + "\n".join(texts)
        )
    names = [f"global_load_dwordx{number}_test" for number in range(2, 2 + kernels)]
    target = f'\t.amdgcn_target "amdgcn-amd-amdhsa--{rng.choice(("gfx942", "gfx1201"))}"\n\t.text\n'
    listed = "".join(f"  - .name:           {name}\n    .symbol:         {name}.kd\n" for name in names)
    metadata = f"---\namdhsa.kernels:\n{listed}amdhsa.version:\n  - 1\n  - 2\n...\n"
    body = "\n".join(_amdgcn(rng, name) for name in names)
    return f"{target}{body}\t.amdgpu_metadata\n{metadata}\t.end_amdgpu_metadata\n"


def small(vendor: str, lines: Iterable[str]) -> str:
    """A text of these instructions."""
    end = ";" if vendor == "nvidia" else ""
    head = ".target sm_90a\n{" if vendor == "nvidia" else '\t.amdgcn_target "amdgcn-amd-amdhsa--gfx1250"'
    return "\n".join([head, *(f"\t{line}{end}" for line in lines), "\tret;\n}\n" if end else "\ts_endpgm\n"])


def short(vendor: str, loads: Sequence[int], copies: Sequence[int] = (), bulk: int = 0) -> str:
    """A small text with loads and copies of these widths, and so many copies of whole tiles."""
    lines = [LOADS[vendor][bits] for bits in loads] + [COPIES[vendor][bits] for bits in copies]
    return small(vendor, lines + list(BULK[vendor][:1]) * bulk)


def one_each(vendor: str) -> dict[str, str]:
    """A text for each way to write a load."""
    lines = [*LOADS[vendor].values(), *(OTHER_NAMES[vendor].values())]
    return {line.split()[0]: small(vendor, [line]) for line in lines}
