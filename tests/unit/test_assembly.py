"""Reading assembly text: every mnemonic in its class, widths, source lines."""

from __future__ import annotations

import pytest

from gpu_utils.compiler.assembly import CLASSES, instructions

PTX = {
    "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1+0];": ("global load", 128),
    "@%p1 ld.global.b16 {%rs1}, [%rd1+0];": ("global load", 16),
    "ld.relaxed.gpu.global.b32 %r1, [%rd1];": ("global load", 32),
    "st.global.v2.b64 [%rd5+0], {%rd1, %rd2};": ("global store", 128),
    "ld.shared.v2.b32 {%r1, %r2}, [%r3];": ("shared load", 64),
    "@!%p2 st.shared.b8 [%r10+0], %rs11;": ("shared store", 8),
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1,%r2,%r3,%r4}, [%r5];": ("shared load", 128),
    "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r5], {%r1,%r2};": ("shared store", 64),
    "ld.param.b64 %rd7, [kernel_param_0];": ("argument load", None),
    "st.param.b64 [param0], %rd1;": ("vector", None),
    "ld.local.b32 %r1, [%rd1];": ("scratch", None),
    "cp.async.cg.shared.global [%r1], [%rd1], 0x10, %r2;": ("copy to shared", 128),
    "cp.async.commit_group;": ("wait", None),
    "cp.async.wait_group 2;": ("wait", None),
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier [%r1], [%rd1, {%r2, %r3}], [%r4];": (
        "copy to shared",
        None,
    ),
    "cp.async.bulk.wait_group.read 0;": ("wait", None),
    "atom.global.gpu.acq_rel.add.f32 %r1, [%rd1], %r2;": ("global atomic", None),
    "red.shared.add.u32 [%r1], 1;": ("shared atomic", None),
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1}, {%r2}, {%r3}, {%r4};": ("matrix", None),
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%r1}, %rd1, %rd2, p, 1, 1, 0, 0;": ("matrix", None),
    "wgmma.wait_group.sync.aligned 0;": ("wait", None),
    "wgmma.fence.sync.aligned;": ("wait", None),
    "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, p;": ("matrix", None),
    "tcgen05.ld.sync.aligned.32x32b.x32.b32 {%r1}, [%r2];": ("tensor memory", None),
    "mbarrier.try_wait.parity.shared.b64 p, [%r1], %r2;": ("wait", None),
    "mbarrier.init.shared::cta.b64 [%r1], 1;": ("barrier", None),
    "bar.sync 0;": ("barrier", None),
    "fence.proxy.async.shared::cta;": ("barrier", None),
    "shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;": ("cross-lane", None),
    "@%p1 bra $L__BB0_2;": ("branch", None),
    "bra.uni $L__BB0_2;": ("branch", None),
    "ret;": ("branch", None),
    "fma.rn.f32 %r1, %r2, %r3, %r4;": ("vector", None),
    "mov.u32 %r1, %tid.x;": ("vector", None),
    "barrier.cluster.arrive;": ("barrier", None),
    "redux.sync.add.s32 %r1, %r2, -1;": ("cross-lane", None),
}

AMDGCN = {
    "buffer_load_dwordx4 v[0:3], v8, s[0:3], 0 offen": ("global load", 128),
    "global_load_dword v1, v2, s[0:1]": ("global load", 32),
    "global_load_b128 v[0:3], v1, s[0:1]": ("global load", 128),
    "buffer_load_ushort v1, v2, s[0:3], 0 offen": ("global load", 16),
    "buffer_load_u8 v1, v2, s[0:3], 0 offen": ("global load", 8),
    "global_load_d16_b16 v1, v2, s[0:1]": ("global load", 16),
    "buffer_load_short_d16_hi v1, v2, s[0:3], 0 offen": ("global load", 16),
    "buffer_load_dword v4, s[8:11], 0 offen lds": ("copy to shared", 32),
    "global_store_dwordx2 v1, v[2:3], s[0:1]": ("global store", 64),
    "buffer_store_b64 v[0:1], v2, s[0:3], 0 offen": ("global store", 64),
    "global_atomic_add_f32 v0, v1, s[0:1]": ("global atomic", None),
    "flat_atomic_cmpswap v0, v[1:2], v[3:4] glc": ("global atomic", None),
    "ds_read_b128 v[0:3], v4": ("shared load", 128),
    "ds_read2_b64 v[0:3], v4 offset1:1": ("shared load", 128),
    "ds_read2st64_b32 v[0:1], v4 offset1:1": ("shared load", 64),
    "ds_load_2addr_b64 v[0:3], v4 offset1:1": ("shared load", 128),
    "ds_load_2addr_stride64_b32 v[0:1], v4 offset1:1": ("shared load", 64),
    "ds_read_b64_tr_b16 v[0:1], v4": ("shared load", 64),
    "ds_read_u16_d16 v1, v2": ("shared load", 16),
    "ds_write_b64 v0, v[1:2]": ("shared store", 64),
    "ds_store_b128 v0, v[1:4]": ("shared store", 128),
    "ds_bpermute_b32 v1, v2, v3": ("cross-lane", None),
    "ds_swizzle_b32 v1, v2 offset:swizzle(SWAP,16)": ("cross-lane", None),
    "ds_add_u32 v1, v2": ("shared atomic", None),
    "s_load_dwordx8 s[4:11], s[0:1], 0x8": ("argument load", None),
    "s_load_b128 s[4:7], s[0:1], 0x8": ("argument load", None),
    "scratch_store_dword off, v1, off": ("scratch", None),
    "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]": ("matrix", None),
    "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]": ("matrix", None),
    "v_mov_b32_dpp v10, v5 row_shr:8 row_mask:0xf bank_mask:0xf": ("cross-lane", None),
    "v_add_f32_e64_dpp v1, v2, v3 quad_perm:[1,0,3,2] row_mask:0xf": ("cross-lane", None),
    "v_readfirstlane_b32 s2, v0": ("cross-lane", None),
    "v_permlane32_swap_b32_e32 v1, v2": ("cross-lane", None),
    "s_waitcnt vmcnt(0)": ("wait", None),
    "s_wait_loadcnt 0x0": ("wait", None),
    "s_delay_alu instid0(VALU_DEP_1)": ("wait", None),
    "s_barrier": ("barrier", None),
    "s_barrier_signal -1": ("barrier", None),
    "s_cbranch_scc1 .LBB0_3": ("branch", None),
    "s_endpgm": ("branch", None),
    "s_and_b32 s2, s2, 0xc0": ("scalar", None),
    "v_pk_add_f32 v[2:3], v[2:3], v[6:7]": ("vector", None),
    "v_cmp_gt_i32_e32 vcc, s8, v0": ("vector", None),
}


@pytest.mark.parametrize(
    ("vendor", "line", "expected"),
    [("nvidia", line, expected) for line, expected in PTX.items()]
    + [("amd", line, expected) for line, expected in AMDGCN.items()],
)
def test_each_instruction_has_its_class_and_width(vendor, line, expected):
    (found,) = instructions(f"\t{line}\n", vendor)
    assert (found.kind, found.bits) == expected
    assert found.kind in CLASSES


def test_every_class_is_covered_here():
    assert {kind for kind, _ in [*PTX.values(), *AMDGCN.values()]} == set(CLASSES)


def test_directives_labels_comments_and_metadata_are_no_instructions():
    ptx = (
        "// hello there;\n.visible .entry k(\n\t.param .u64 k_param_0\n)\n{\n\t.reg .b32 %r<3>;\n$L__BB0:\n\tret;\n}\n"
    )
    assert [found.text for found in instructions(ptx, "nvidia")] == ["ret;"]
    amd = "k: ; @k\n\t.loc 1 2 3\n; %bb.1:\n\ts_endpgm\n\t.amdgpu_metadata\n---\n  wavefront_size: 64\n"
    assert [found.text for found in instructions(amd, "amd")] == ["s_endpgm"]


def test_inline_assembly_may_hold_several_statements_in_a_line():
    text = "\t{ .reg .pred p; setp.ne.b32 p, %r1, 0; @p bra $L1; }\n"
    assert [found.mnemonic for found in instructions(text, "nvidia")] == ["setp.ne.b32", "bra"]


@pytest.mark.parametrize(("vendor", "mark"), [("nvidia", "//"), ("amd", ";")])
def test_an_inlined_instruction_belongs_to_the_kernels_line(vendor, mark):
    end = ";" if vendor == "nvidia" else ""
    text = (
        f"\t.loc\t1 7 3 {mark} k.py:7:3\n\tbra x{end}\n"
        f"\t.loc\t2 263 36 {mark} standard.py:263:36 @[ standard.py:1:2 @[ k.py:12:4 ] ]\n\tbra x{end}\n"
        f"\t.loc\t2 5 1 {mark} standard.py:5:1\n\tbra x{end}\n"
        f"\t.loc\t1 0 0 {mark} :0:0\n\tbra x{end}\n"
    )
    assert [found.source for found in instructions(text, vendor, "/home/k.py")] == [7, 12, None, None]


def test_the_newer_way_to_write_inlined_places_is_followed_to_the_kernel():
    inlined = "function_name $L__info_string0, inlined_at"
    text = (
        f"\t.loc\t2 216 16, {inlined} 1 21 20 // standard.py:216:16\n\tbra x;\n"
        f"\t.loc\t2 196 12, {inlined} 2 216 16 // standard.py:196:12\n\tbra x;\n"
        "\t.loc\t1 22 5 // k.py:22:5\n\tbra x;\n"
        f"\t.loc\t2 216 16, {inlined} 1 30 20 // standard.py:216:16\n"
        f"\t.loc\t2 196 12, {inlined} 2 216 16 // standard.py:196:12\n\tbra x;\n"
        '\t.file 1 "/home/k.py"\n\t.file 2 "/lib/standard.py"\n'
    )
    assert [found.source for found in instructions(text, "nvidia", "/home/k.py")] == [21, 21, 22, 30]
