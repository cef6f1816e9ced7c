"""Occupancy against what LLVM prints for kernels of known registers, LDS and block size, compiled here."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_utils.analytic.occupancy import THREADS, cu_mode, has_cu_mode, occupancy, register_steps
from gpu_utils.chips import TARGETS
from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.errors import BadArgument

AMD = [name for name, target in TARGETS.items() if target.vendor == "amd"]


def llvm(target: str, needs: list[dict[str, int]], feature: str = "") -> list[int]:
    """Waves a SIMD that LLVM prints, a kernel for each need: a statement that clobbers v{n-1} makes it use n VGPRs."""
    source = []
    for i, need in enumerate(needs):
        clobbers = [f'"{kind}{need[kind] - 1}"' for kind in ("v", "a", "s") if need.get(kind)]
        threads, words = need.get("threads", 64), need.get("lds", 0) // 4
        lds = f"__shared__ float t[{words}]; t[threadIdx.x] = *x; __syncthreads(); x[1] = t[3];" if words else ""
        source.append(
            f"__global__ void __attribute__((amdgpu_flat_work_group_size({threads}, {threads}))) {feature}"
            f'k{i}(float *x) {{ {lds} asm volatile("; here" ::: {", ".join(clobbers)}); *x = 1.0f; }}'
        )
    asm = compile_cpp("\n".join(source), target).asm
    found = re.findall(r"^_Z\d+k(\d+)Pf:.*?^; Occupancy: (\d+)", asm, re.MULTILINE | re.DOTALL)
    assert [int(number) for number, _ in found] == list(range(len(needs)))
    return [int(waves) for _, waves in found]


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize("target", AMD)
def test_waves_by_registers_are_llvms_at_every_step(target):
    limits = TARGETS[target]
    edges = [n + extra for n in register_steps(limits).values() for extra in (-1, 0, 1)]
    counts = sorted({n for n in edges if 4 < n <= 256} | {68, 97, 166, 210})
    warps = 64 // limits.lanes  # of the blocks of 64 threads that LLVM is asked about
    ours = [-(-occupancy(limits, n, 0, num_warps=warps).waves // limits.simds) for n in counts]
    assert ours == llvm(target, [{"v": n} for n in counts])


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize("target", [name for name in AMD if TARGETS[name].lanes == 64])
def test_agprs_count_after_the_vgprs_were_rounded_up_to_four(target):
    pairs = [(v, a) for v in (65, 68, 100, 101, 128) for a in (4, 20, 61, 128)]
    totals = [-(-v // 4) * 4 + a for v, a in pairs]
    ours = [occupancy(TARGETS[target], total, 0, num_warps=1).waves_per_simd for total in totals]
    assert ours == llvm(target, [{"v": v, "a": a} for v, a in pairs])


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize("target", AMD)
def test_scalar_registers_limit_where_llvm_says_so(target):
    module = compile_cpp(
        "\n".join(
            f'__global__ void k{n}(float *x) {{ asm volatile("; here" ::: "s{n - 1}"); *x = 1.0f; }}'
            for n in (30, 80, 94, 95, 100, 102)
        ),
        target,
    )
    printed = [int(waves) for waves in re.findall(r"; Occupancy: (\d+)", module.asm)]
    ours = [occupancy(TARGETS[target], 8, 0, 1, scalars=k.sgprs).waves_per_simd for k in module.kernels.values()]
    assert ours == printed
    assert (min(ours) < max(ours)) == (TARGETS[target].lanes == 64), "gfx9 has 800, the others give each wave all"


def random_needs(target: str, seed: int) -> list[dict[str, int]]:
    """Few registers, blocks of every number of waves, LDS of odd sizes and of sizes just past a share of the whole."""
    limits, draw = TARGETS[target], random.Random(seed)
    edges = [limits.shared_per_unit // n // limits.shared_granule * limits.shared_granule for n in range(2, 30)]
    sizes = [
        *(edge + extra for edge in edges for extra in (0, 4)),
        *(draw.randint(300, 16000) * 4 for _ in range(20)),
        0,
    ]
    most = THREADS // limits.lanes
    return [
        {"v": 8, "threads": (i % most + 1) * limits.lanes, "lds": size}
        for i, size in enumerate(size for size in sizes if size <= limits.shared_per_block)
    ]


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize("target", AMD)
def test_waves_by_lds_block_size_and_barriers_are_llvms(target):
    """LLVM's figure is the waves of the fullest SIMD: the waves of all blocks, over the SIMDs, rounded up.

    This LLVM divides LDS by the bytes asked for (a note in its source says that it should round them up first).
    """
    limits, needs = TARGETS[target], random_needs(target, seed=1)
    exact = replace(limits, shared_granule=1)
    asked = [(n["v"], n["lds"], n["threads"] // limits.lanes) for n in needs]
    found, rounded = ([occupancy(kind, *need) for need in asked] for kind in (exact, limits))
    assert [max(1, -(-o.waves // limits.simds)) for o in found] == llvm(target, needs)
    assert {name for o in found for name in o.limited_by} >= {"waves", "LDS"}
    fewer = [need for need, a, b in zip(asked, found, rounded, strict=True) if a.blocks != b.blocks]
    assert fewer
    assert all(a.blocks >= b.blocks for a, b in zip(found, rounded, strict=True))
    assert all(lds % limits.shared_granule for _, lds, _ in fewer)


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize("target", [name for name in AMD if TARGETS[name].shared_granule == 512])
def test_lds_is_handed_out_in_the_blocks_that_llvm_writes_into_the_program_header(target, tmp_path):
    """For graphics drivers LLVM writes the number of LDS blocks itself: bits 15 and up of COMPUTE_PGM_RSRC2.

    gfx950 is left out: LLVM's manual says 1280 bytes there, this header has units of 2048.
    """
    for size in (4, 512, 516, 21508, 65536):
        (tmp_path / "k.ll").write_text(
            f"@lds = internal addrspace(3) global [{size} x i8] poison\n"
            "define amdgpu_cs void @k() { store volatile i8 0, ptr addrspace(3) @lds\n ret void }\n"
        )
        command = [sys.executable, "-m", "ziglang", "clang", "-w", "-target", "amdgcn--amdpal", f"-mcpu={target}"]
        subprocess.run([*command, "-S", "k.ll", "-o", "k.s"], cwd=tmp_path, check=True)
        header = re.search(r"\(COMPUTE_PGM_RSRC2\)'?: (0x[0-9a-f]+)", (tmp_path / "k.s").read_text())
        row = next(row for row in occupancy(TARGETS[target], 8, size, 1).rows if row.resource == "LDS")
        assert row.taken == (int(header[1], 16) >> 15) * TARGETS[target].shared_granule


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_cu_mode_halves_what_a_block_shares_as_in_llvm(target):
    feature = '__attribute__((target("cumode"))) '
    needs = [need for need in random_needs(target, seed=2) if need["threads"] % 64 == 0]
    limits = replace(cu_mode(TARGETS[target]), shared_granule=1)
    found = [occupancy(limits, n["v"], n["lds"], n["threads"] // limits.lanes) for n in needs]
    assert [max(1, -(-o.waves // limits.simds)) for o in found] == llvm(target, needs, feature)
    assert sum(o.waves for o in found) < sum(
        occupancy(TARGETS[target], 8, n["lds"], n["threads"] // 32).waves for n in needs
    )


@pytest.mark.parametrize("target", ["sm_80", "gfx90a", "gfx942"])
def test_only_chips_with_pairs_of_cus_have_a_cu_mode(target):
    assert not has_cu_mode(TARGETS[target])
    with pytest.raises(BadArgument, match="has no CU mode"):
        cu_mode(TARGETS[target])


# NVIDIA by hand, in units of 256 registers and 128 bytes, 1 KB reserved; NVIDIA's calculator: test_cuda_occupancy.py


@pytest.mark.parametrize(
    ("target", "registers", "shared", "warps", "blocks", "limited"),
    [
        ("sm_90", 32, 0, 8, 8, ("waves", "registers")),
        ("sm_90", 33, 0, 8, 6, ("registers",)),  # 40 registers: 12 warps a partition
        ("sm_90", 168, 0, 12, 1, ("registers",)),  # 3 warps a partition
        ("sm_90", 168, 0, 5, 2, ("registers",)),  # 12 warps: two blocks of 5
        ("sm_80", 255, 0, 5, 1, ("registers",)),  # 256 registers: 2 warps a partition, as many as a block of 5 needs
        ("sm_80", 256, 0, 4, 0, ("registers",)),
        ("sm_90", 32, 113 * 1024, 4, 2, ("shared memory",)),
        ("sm_90", 32, 113 * 1024 + 1, 4, 1, ("shared memory",)),
        ("sm_80", 32, 40 * 1024 - 128, 4, 4, ("shared memory",)),
        ("sm_80", 32, 40 * 1024 - 127, 4, 4, ("shared memory",)),  # 41 KB with the reserve: 164 KB hold four
        ("sm_80", 32, 40 * 1024 + 1, 4, 3, ("shared memory",)),
        ("sm_89", 32, 0, 2, 24, ("waves", "blocks")),
        ("sm_89", 32, 99 * 1024, 2, 1, ("shared memory",)),
        ("sm_89", 32, 99 * 1024 + 1, 2, 0, ("shared memory",)),
        ("sm_80", 16, 0, 1, 32, ("blocks",)),
    ],
)
def test_nvidia_by_hand(target, registers, shared, warps, blocks, limited):
    found = occupancy(TARGETS[target], registers, shared, warps)
    assert (found.blocks, found.limited_by) == (blocks, limited)


# what it says about itself


needs = st.tuples(
    st.sampled_from(list(TARGETS)),
    st.integers(1, 260),
    st.integers(0, 160 * 1024),
    st.integers(1, 16),
    st.integers(0, 108),
)


@given(needs)
def test_lifting_what_limits_lets_one_block_more_in_and_no_need_above_it_does(need):
    target, registers, shared, warps, scalars = need
    limits = TARGETS[target]
    before = occupancy(limits, registers, shared, warps, scalars=scalars)
    if before.waves + warps > before.most:
        assert "wave slots" in before.advice or before.blocks == 0
        return
    lifts = {row.resource: row.lift for row in before.rows if row.resource in before.limited_by}
    if None in lifts.values():
        return
    new = {
        "registers": lifts.get("registers", registers),
        "scalar registers": lifts.get("scalar registers", scalars),
        "LDS": lifts.get("LDS", lifts.get("shared memory", shared)),
    }

    def blocks(change: dict[str, int]) -> int:
        asked = {**new, **change}
        return occupancy(limits, asked["registers"], asked["LDS"], warps, scalars=asked["scalar registers"]).blocks

    assert blocks({}) > before.blocks
    for resource in lifts:
        key = "LDS" if resource == "shared memory" else resource
        assert blocks({key: new[key] + 1}) <= before.blocks, resource


@pytest.mark.parametrize(
    ("target", "need", "advice"),
    [
        ("gfx942", (100, 20_000, 4), "for 4 blocks: at most 16384 bytes of LDS a block"),
        (
            "gfx942",
            (129, 21_000, 4),
            "for 4 blocks: at most 128 registers a lane and at most 16384 bytes of LDS a block",
        ),
        ("gfx942", (64, 0, 4), "no further block of 4 waves fits into the 32 wave slots"),
        ("sm_80", (16, 0, 1), "no change of the kernel lets 33 blocks in: 32 blocks an SM"),
        ("sm_90", (32, 228 * 1024, 4), "for 1 block: at most 232448 bytes of shared memory a block"),
        ("gfx90a", (80, 0, 1), "for 25 blocks: at most 72 registers a lane"),
    ],
)
def test_advice_is_one_sentence_about_what_limits(target, need, advice):
    assert occupancy(TARGETS[target], *need).advice == advice


@given(needs)
def test_the_table_names_every_limit_with_its_arithmetic(need):
    target, registers, shared, warps, scalars = need
    found = occupancy(TARGETS[target], registers, shared, warps, scalars=scalars)
    text = found.explain().splitlines()
    marked = {line[2:].split("  ")[0] for line in text if line.startswith(">")}
    assert marked == set(found.limited_by)
    assert len(text) == len(found.rows) + 2
    assert 0 <= found.waves <= found.most


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 0, 4), "registers is -1; expected 0 or more"),
        ((32, -5, 4), "shared is -5"),
        ((32, 0, 0), "a block of 0 waves of 64 lanes was asked for; gfx942 takes 1 to 16, which is 1024 threads"),
        ((32, 0, 17), "a block of 17 waves"),
    ],
)
def test_needs_that_no_block_can_have_are_one_sentence(arguments, message):
    with pytest.raises(BadArgument, match=re.escape(message)):
        occupancy(TARGETS["gfx942"], *arguments)
