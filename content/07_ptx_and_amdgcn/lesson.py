# %% [markdown] top
# # 07 PTX and AMDGCN: the layer under Triton
#
# **Afterwards you can** read a listing of either vendor line by line; write a small kernel in PTX and in AMDGCN, have
# the vendor's assembler take it and a virtual GPU execute it; put one instruction into a Triton kernel; place waits and
# barriers, and say which of them is missing; and find the registers that did not fit.
#
# **You need** lessons 00 (listings, EXEC, predicates), 02 (warps, LDS, registers), 03 (inline assembly) and 05 (a
# matrix product). No GPU:
# machine code is executed on virtual GPUs, CPU programs that read the text of PTX or AMDGCN. Nothing here has run on
# AMD silicon. PTX is not the last word on NVIDIA's side either, and sitting 1 shows what comes below it.
#
# **Time**: four sittings. 1 reads and writes instructions, 2 follows one load until its data is there, 3 moves values
# between lanes, 4 gives some SMs to communication. Each takes about 40 minutes with its predictions (a guess).
# Then lab 07.

# %% imports
import torch
import triton
import triton.language as tl

from gpu_utils import CHIPS, compile_for, explore, lesson, listing, predict, virtual_gpu

# %% [markdown] two listings
# # Sitting 1: reading and writing
#
# ## 1. One kernel, two listings
#
# Triton turns a kernel into PTX for NVIDIA and into AMDGCN for AMD. Lesson 00 read such listings in pieces; at the end
# of this sitting you can read all of this one. The kernel is a leaky ReLU: a negative number is multiplied by 0.1.


# %% a leaky relu
@triton.jit
def leaky_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    y = tl.where(x < 0, x * 0.1, x)
    tl.store(y_ptr + i, y, mask=i < n)


x, y = torch.randn(1000), torch.zeros(1000)
both = listing(leaky_kernel, "sm_80", "gfx942", args=(x, y, 1000), BLOCK=256)
both.only("tl.load", "tl.where", "tl.store")

# %% [markdown] how a ptx instruction is built
# ## 2. How a PTX instruction is built
#
# Take a load like the one above, of two numbers: `@%p1 ld.global.v2.b32 { %r4, %r5 }, [ %rd1 + 0 ];`
#
# | part | here | what it says |
# |---|---|---|
# | guard | `@%p1` | only lanes whose predicate `%p1` is true do it; `@!%p1`: whose is false |
# | opcode | `ld` | what is done |
# | state space | `.global` | which memory: `.param` arguments, `.shared` the block's, `.local` a thread's own |
# | modifiers | `.v2` | how: vectors, rounding (`.rn`), caches, `.sync` |
# | type | `.b32` | of one element: `.b` bits, `.u`, `.s` integers, `.f` floats, `.pred` one bit; then its size |
# | results | `{ %r4, %r5 }` | **first the results, then the sources** |
# | sources | `[ %rd1 + 0 ]` | brackets: memory at this address; the offset counts bytes |
#
# PTX is written for **one thread**. Whether 32 of them go together is not said. Types stand in the instruction, not in
# the register: `add.f32` reads the same bits as a float that `add.s32` reads as an integer. Registers are declared
# (`.reg .b32 %r<9>;` makes `%r0` to `%r8`) and there is no limit: they are *virtual*. A module starts with `.version`,
# the version of the language, and `.target`, the oldest chip it is for. One for `sm_80` runs on later chips too; with
# an `a` behind the number (`sm_90a`) it is for that chip alone.
#
# | you meet | it is |
# |---|---|
# | `%tid.x`, `%ctaid.x`, `%ntid.x` | number of the thread, of the block, threads of a block |
# | `setp.lt.f32 %p2, %f1, %f2` | a predicate: is `%f1` less than `%f2`? |
# | `selp.f32 %f3, %f1, %f2, %p2` | `%f1` where the predicate is true, else `%f2` |
# | `mul.wide.u32 %rd3, %r1, 4` | twice as wide a result: an offset of 64 bits |
# | `fma.rn.f32 d, a, b, c` | a * b + c, rounded once, to nearest (`.rn`) |
# | `ex2.approx.ftz.f32` | 2 to the power, approximately; `.ftz` takes subnormal numbers as zero |
# | `cvt.rn.f16.f32 d, a` | another type: **the result's type first**, then the source's |
# | `mov.f32 %f1, 0f3F000000` | `0f` and 8 hexadecimal digits: the bits of a float, here 0.5 |
#
# ## 3. How an AMDGCN instruction is built
#
# AMDGCN is written for **one wave**, and it is machine code: LLVM turns each line into one instruction of the chip. The
# first letters say which unit executes it:
#
# | starts with | class | for |
# |---|---|---|
# | `s_` and arithmetic | SOP1, SOP2, SOPC, SOPK | *scalar* registers `s0`, `s1`, ...: one value for the whole wave |
# | `s_cbranch_`, `s_waitcnt`, `s_barrier` | SOPP | flow: where and when the wave goes on |
# | `s_load_` | SMEM | memory to scalar registers: arguments |
# | `v_` | VOP | *vector* registers `v0`, `v1`, ...: one value of 32 bits for each lane |
# | `v_mfma_`, `v_wmma_` | VOP3P | matrices |
# | `global_`, `scratch_` | FLAT | memory at a lane's own address; `scratch_` is a lane's own memory |
# | `buffer_` | MUBUF | memory through a descriptor of four scalar registers, which knows its size |
# | `ds_` | DS | the LDS, AMD's shared memory |
#
# Take `global_load_dwordx4 v[4:7], v0, s[2:3] offset:64`: results first again, four registers of a lane; the address is
# the scalar pair `s[2:3]` plus the lane's `v0` plus 64 bytes. A store has no result: `global_store_dword v1, v2,
# s[6:7]` and `ds_write_b32 v1, v3` name the address first, then the data. A **dword** is 32 bits. On gfx11 and gfx12 it
# is written `global_load_b128`, in bits; both spellings are the same instruction, and LLVM's assembler still takes the
# old ones. `rev` in a name says that the sources are reversed: `v_lshlrev_b32 v1, 2, v0` is v0 << 2.
#
# | ending | encoding |
# |---|---|
# | `_e32` | VOP1, VOP2, VOPC: 4 bytes, one or two sources, only the first may be scalar or a constant |
# | `_e64` | VOP3: 8 bytes, up to three sources, a minus sign or an absolute value on each, any mask register |
# | `_dpp` | the first source comes from another lane (sitting 3) |
# | `_sdwa` | a byte or a half of a source |
#
# Some registers have names of their own:
#
# | register | bits | what it is |
# |---|---|---|
# | `exec` | one for each lane | which lanes take part in `v_`, `global_`, `ds_` instructions |
# | `vcc` | one for each lane | where a `v_cmp` puts its answer, by default |
# | `scc` | one | the answer of a scalar comparison (`s_cmp`), for `s_cbranch_scc1` |
# | `a0`, `a1`, ... | 32 a lane | AGPRs of CDNA: more vector registers, first of all for sums of MFMA |
#
# In waves of 32 lanes the masks are `exec_lo` and `vcc_lo`. Not every target takes every form. LLVM's assembler knows:

# %% what the assembler takes
LINES = (
    "v_add_f32_e64 v0, -v1, |v2|",
    "v_add_f32_e64 v0, s2, s3",
    "v_perm_b32 v0, v1, v2, 0x5010400",
    "v_mov_b32_sdwa v0, v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1",
)


def taken(line, target):
    try:
        lesson.by_hand("one", "x_ptr", f"  {line}\n  s_endpgm", target)
        return "taken"
    except lesson.CompileFailed as problem:
        return str(problem).split(": ")[1].split(" (`")[0]


rows = {line: {t: taken(line, t) for t in ("gfx942", "gfx1100")} for line in LINES}
lesson.table(rows, first="line")

# %% [markdown] before the parts
# A vector instruction of gfx9 may read **one** scalar register: more would violate its *constant bus*. A constant other
# than -16 to 64 or a few floats such as 0.5 needs 32 bits more, a *literal*; VOP3 of gfx9 has no room for one, so it
# must come in a register. (`v_perm_b32` has no shorter form.) The next cell runs small kernels by hand; section 4 says
# what `lesson.by_hand` writes around them. `s[0:1]` holds the address of their arguments, and `s_waitcnt` is sitting
# 2's.

# %% guess parts
guess = predict(
    "07.parts",
    "How many bytes does a whole warp load by `ld.global.v2.b64 {%rd4, %rd5}, [%rd1]`, "
    "and a whole wavefront of gfx942 by `global_load_dwordx4 v[4:7], v0, s[2:3]`? And "
    "which of these does not depend on EXEC?",
    warp=lesson.number("bytes of a warp"),
    wavefront=lesson.number("bytes of a wavefront"),
    free=lesson.choice("v_add_f32", "s_load_dword", "ds_write_b32", "global_load"),
)

# %% two loads and a switched-off wave
WIDE = """
  .reg .b32 %r<2>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [x_ptr];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 16;          // 16 bytes for each lane
  add.u64 %rd1, %rd1, %rd2;
  ld.global.v2.b64 {%rd4, %rd5}, [%rd1];
  ret;
"""
OFF = """
  v_lshlrev_b32_e32 v0, 4, v0          // 16 bytes for each lane
  s_load_dwordx2 s[2:3], s[0:1], 0x0   // the argument
  s_waitcnt lgkmcnt(0)
  global_load_dwordx4 v[4:7], v0, s[2:3]
  s_waitcnt vmcnt(0)
  s_mov_b64 exec, 0                    // from here on no lane is on
  s_load_dword s4, s[0:1], 0x0
  s_waitcnt lgkmcnt(0)
  global_load_dword v8, v0, s[2:3]
  s_waitcnt vmcnt(0)
  s_endpgm
"""
numbers = torch.arange(256.0)
wide = lesson.by_hand("wide", "x_ptr", WIDE, "sm_80").run(32, [numbers])
off = lesson.by_hand("dark", "x_ptr", OFF, "gfx942")
done = {"a warp of sm_80": wide, "a wavefront of gfx942": off.run(64, [numbers])}
moved = {who: x.counters.totals()["global_load_bytes"] for who, x in done.items()}
steps = off.traced(64, [numbers]).steps
after = {
    step.text.split()[0]: sorted(step.changed)
    for step in steps
    if not step.active.any() and "load" in step.text
}
guess.reveal(
    warp=moved["a warp of sm_80"],
    wavefront=moved["a wavefront of gfx942"],
    free=next(name for name, changed in after.items() if changed),
    because="2 × 64 bits × 32 lanes; 4 × 32 bits × 64 lanes. A scalar instruction is "
    "one for the wave and asks no lane.",
)
lesson.table(
    {f"{name}, EXEC 0: registers changed": ", ".join(c) for name, c in after.items()}
    | {f"bytes loaded by {who}": count for who, count in moved.items()}
)

# %% [markdown] by hand
# ## 4. A kernel written by hand, twice
#
# You have just run machine code that no compiler wrote. Now the leaky ReLU, whole. A block is one wave of 64 threads
# (two warps). First PTX: two branches, one around everything for threads past the end, one around the product.

# %% in PTX
LEAKY_PTX = """
  .reg .pred %p<3>; .reg .b32 %r<3>; .reg .f32 %f<2>; .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [x_ptr];
  ld.param.u64 %rd2, [y_ptr];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  setp.ge.u32 %p1, %r2, %r1;           // past the end?
  @%p1 bra DONE;
  mul.wide.u32 %rd3, %r2, 4;
  add.u64 %rd1, %rd1, %rd3;
  add.u64 %rd2, %rd2, %rd3;
  ld.global.f32 %f1, [%rd1];
  setp.lt.f32 %p2, %f1, 0f00000000;    // negative?
  @!%p2 bra KEEP;
  mul.f32 %f1, %f1, 0f3DCCCCCD;        // 0.1
KEEP:
  st.global.f32 [%rd2], %f1;
DONE:
  ret;
"""

# %% [markdown] the frame
# Around a body stands what the loader must know: the name, the parameters, on AMD also how many registers and how much
# LDS. `lesson.by_hand` writes it, and `ptxas` (NVIDIA's assembler) or LLVM's must take the whole. At its start a kernel
# of ours finds in `s[0:1]` the address of its arguments and in `v0` the thread's number; its block's number is in `s2`
# (on gfx12 in `ttmp9`). A comment begins with `//` in both languages.
#
# In AMDGCN there is no branch at all. `s_and_saveexec_b64 s[10:11], vcc` saves EXEC in `s[10:11]` and leaves on only
# the lanes that are also in `vcc`. What follows runs for these. The inner mask, in `s[12:13]`, comes back before the
# store; the outer one is not needed again.

# %% in AMDGCN
LEAKY_AMD = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0   // x_ptr and y_ptr
  s_load_dword s8, s[0:1], 0x10        // n
  v_lshlrev_b32_e32 v1, 2, v0          // 4 bytes for each lane
  s_waitcnt lgkmcnt(0)
  v_cmp_gt_u32_e32 vcc, s8, v0         // n > number of the thread
  s_and_saveexec_b64 s[10:11], vcc
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  v_cmp_gt_f32_e32 vcc, 0, v2          // 0 > x
  s_and_saveexec_b64 s[12:13], vcc
  v_mul_f32_e32 v2, 0x3dcccccd, v2     // 0.1
  s_mov_b64 exec, s[12:13]             // back to the lanes before n
  global_store_dword v1, v2, s[6:7]
  s_endpgm
"""

# %% guess by hand
guess = predict(
    "07.by_hand",
    "64 threads, n = 50, and every third number is negative (0, 3, 6, ...). How many "
    "lanes are on at the multiplication on gfx942, and how many at the store?",
    product=lesson.number("lanes at v_mul_f32"),
    store=lesson.number("lanes at global_store"),
)

# %% run by hand
every_third = torch.where(torch.arange(64) % 3 == 0, -1.0, 1.0) * torch.arange(1, 65)
want = torch.where(every_third < 0, every_third * 0.1, every_third)
want[50:] = 7  # nobody may write there
NVIDIA = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
AMD = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")


def leaky(target):
    amd = target in AMD
    body = lesson.dialect(LEAKY_AMD, target) if amd else LEAKY_PTX
    return lesson.by_hand("leaky", "x_ptr y_ptr n", body, target)


def leaky_ends(target):
    out = torch.full((64,), 7.0)
    leaky(target).run(64, [every_third, out, 50])
    return "right" if torch.allclose(out, want) else "wrong"


trace = leaky("gfx942").traced(64, [every_third, torch.zeros(64), 50])
on = {step.text.split()[0]: int(step.active.sum()) for step in trace.steps}
guess.reveal(
    product=on["v_mul_f32_e32"],
    store=on["global_store_dword"],
    because="17 of the first 50 numbers are negative; for the store all 50 are back.",
)
lesson.table({t: {"virtual GPU": leaky_ends(t)} for t in (*NVIDIA, *AMD)}, across=True)

# %% [markdown] step it
# One PTX text serves five chips. Of the AMDGCN text `lesson.dialect` made the spelling of each target: `exec_lo` for
# waves of 32, `s_wait_kmcnt` and `s_wait_loadcnt` for gfx12 (sitting 2). If this machine has an NVIDIA GPU, its driver
# takes the same PTX:

# %% on a chip
out = torch.full((64,), 7.0)
leaky("sm_80").on_chip(64, [every_third, out, 50], out, want)

# %% [markdown] steps
# Nobody has run the AMDGCN on a chip yet. Step through both with the arrow keys.

# %% step AMD
lesson.WaveFigure(trace, "gfx942", start="v_cmp_gt_f32")

# %% step NVIDIA
trace = leaky("sm_80").traced(64, [every_third, torch.zeros(64), 50])
lesson.WaveFigure(trace, "sm_80", start="setp.lt")

# %% [markdown] two ways to leave lanes out
# On AMD the wave walks straight through and EXEC changes: 64, 50, 17, 50 lanes. In PTX each thread has its own way:
# 11 of the first warp's 32 lanes execute `mul.f32`, then all meet again at `KEEP`.
#
# ## 5. Below PTX: SASS
#
# AMDGCN is what the chip executes. PTX is not: `ptxas` compiles it once more, to **SASS**, the machine code of one
# chip. It is executed nowhere here; we can read it.

# %% guess sass
guess = predict(
    "07.sass",
    "The PTX of leaky has two branches (`bra`). How many jumps (BRA) does ptxas leave "
    "before the last EXIT? What becomes of the branch around the product?",
    jumps=lesson.number("jumps"),
    product=lesson.choice("a jump around it", "a predicate on FMUL", "a select"),
)

# %% sass of leaky
sass = lesson.sass(leaky("sm_80")).split("\n    EXIT")[0]
product = next(line for line in sass.split("\n") if "FMUL" in line)
guess.reveal(
    jumps=sass.count("BRA"),
    product="a predicate on FMUL" if "@" in product else "a select",
    because="an instruction or two under a predicate cost less than a jump.",
)
print(sass)

# %% [markdown] what ptxas did
# `@P0 EXIT` ends the threads past the end, and `@!P0 FMUL` is the product. `c[0x0][0x160]` reads an argument where the
# driver has put it, without a load. `RZ` is zero, `PT` a predicate that is always true, and `GEU` asks "greater, equal
# or unordered": a comparison with NaN counts. (Behind the last EXIT stand jumps that only fill the line up.) A 64-bit
# address takes two registers, and only the first is named: `R2` stands for
# `R2` and `R3`. Odd lines are ptxas's ways: `HFMA2.MMA R5, -RZ, RZ, ...` makes a constant (4) on another unit.
#
# **Scheduling.** This kernel loads a number, squares it, loads the next, squares it, and adds:

# %% squares in PTX
SQUARES_PTX = """
  .reg .b32 %r<2>; .reg .f32 %f<6>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [x_ptr];
  ld.param.u64 %rd2, [y_ptr];
  ld.param.u64 %rd3, [out_ptr];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd4, %r1, 4;
  add.u64 %rd5, %rd1, %rd4;
  ld.global.f32 %f1, [%rd5];
  mul.f32 %f2, %f1, %f1;
  add.u64 %rd6, %rd2, %rd4;
  ld.global.f32 %f3, [%rd6];
  mul.f32 %f4, %f3, %f3;
  add.f32 %f5, %f2, %f4;
  add.u64 %rd7, %rd3, %rd4;
  st.global.f32 [%rd7], %f5;
  ret;
"""

# %% guess schedule
guess = predict(
    "07.schedule",
    "In which order will SASS have the two loads and the first multiplication? How "
    "many multiplications and additions of floats (FMUL, FFMA, FADD) are left of 3?",
    order=lesson.choice("load, multiply, load", "load, load, multiply"),
    left=lesson.number("left"),
)

# %% sass of squares
squares = lesson.by_hand("squares", "x_ptr y_ptr out_ptr", SQUARES_PTX, "sm_80")
text = lesson.sass(squares, "LDG.E", "STG.E")
names = [line.split()[0] for line in text.split("\n")]
guess.reveal(
    order="load, load, multiply"
    if names[0] == "LDG.E" and "1 more" in text
    else "load, multiply, load",
    left=sum(name in ("FMUL", "FFMA", "FADD") for name in names),
    because="the second load needs nothing of the first, so it need not wait for it; "
    "a product and a sum become one FFMA.",
)
print(text)

# %% [markdown] registers
# **Registers.** In PTX every result may have a name of its own. How many does the matrix product of unit 05 name, and
# how many does `ptxas` use?


# %% the product of unit 05
@triton.jit
def dot_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_bk, stride_bn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :])
        b = tl.load(b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn)
        total = tl.dot(a, b, total)
    tl.store(c_ptr + m[:, None] * N + n[None, :], total)


a, b = torch.randn(256, 256).half(), torch.randn(256, 256).half()
c = torch.zeros(256, 256)


def product(target, tile=64, **options):
    args = (a, b, c, 256, 256, 256, *b.stride())
    return compile_for(dot_kernel, target, args, BM=tile, BN=tile, BK=32, **options)


# %% guess registers
TIMES = ("times 1", "times 4", "times 16")
guess = predict(
    "07.registers",
    "How many times as many registers as a lane gets does the PTX for sm_80 name? And "
    "the AMDGCN for gfx942? (The nearest.)",
    sm_80=lesson.choice(*TIMES, label="sm_80"),
    gfx942=lesson.choice(*TIMES, label="gfx942"),
)

# %% names and registers
rows, times = {}, {}
for target in ("sm_80", "sm_90", "gfx942", "gfx1100"):
    compiled = product(target, num_stages=2)
    named = lesson.named_registers(compiled)
    used = lesson.resources(compiled).registers
    times[target] = named / used
    rows[target] = {"named, of 32 bits": named, "used by a lane": used}
guess.reveal(
    sm_80=lesson.nearest(times["sm_80"], TIMES),
    gfx942=lesson.nearest(times["gfx942"], TIMES),
    because="every result of PTX has a name of its own; ptxas lets values that do not "
    "live at the same time share a register. LLVM has done so already.",
)
lesson.table(rows, first="target")

# %% [markdown] same on amd
# So a PTX listing says nothing about
# registers, spills or the order of instructions on the chip; an AMDGCN listing says all three.
#
# > **Facts: PTX and SASS**
# >
# > - PTX is a virtual machine and instruction set, made to be stable over generations of GPUs; it is translated to the
# >   target's instructions when it is installed or loaded. (source: NVIDIA,
# >   [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/), Goals of PTX)
# > - SASS is listed by generation: its opcodes with a few words each. (source: NVIDIA,
# >   [CUDA Binary Utilities](https://docs.nvidia.com/cuda/cuda-binary-utilities/), Instruction Set Reference)
# > - AMD publishes the manual of each generation's machine code. (source: AMD,
# >   [GPU ISA documentation](https://gpuopen.com/amd-isa-documentation/))
#
# ## 6. An index
#
# Two tables to come back to: the instructions that the course has met, what each does, how often it stands in listings
# of `leaky` and the product, and the chapter of the manual that explains it. For PTX that is the
# [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/), part *Instructions*; for AMD the *Instruction Set
# Architecture Reference Guide* of the generation, from the [list of AMD's
# manuals](https://gpuopen.com/amd-isa-documentation/) (the chapters have nearly the same names in all of them), and
# [LLVM's guide](https://llvm.org/docs/AMDGPUUsage.html) for how a kernel starts and what fences become.

# %% index of PTX
index = lesson.instruction_index(leaky("sm_80"), product("sm_80"), product("sm_90"))
lesson.table(index, first="PTX")

# %% index of AMDGCN
index = lesson.instruction_index(leaky("gfx942"), product("gfx942"), product("gfx950"))
lesson.table(index, first="AMDGCN")

# %% [markdown] inline
# ## 7. One instruction in a Triton kernel
#
# `tl.inline_asm_elementwise(text, constraints, [x, y], dtype, is_pure, pack)` puts text into the listing, for all
# elements of blocks `x` and `y`. Lesson 03 had one result. Its parts, in order:
#
# - **Text.** `$0`, `$1`, ... stand for registers: first the results, then the sources. PTX ends each instruction with
#   `;`, AMDGCN with a new line.
# - **Constraints**, one for each in the same order. A result has a `=`. PTX: `r` 32 bits, `h` 16, `l` 64, `f` a float
#   of 32. AMDGCN: `v` a vector register, `s` a scalar one.
# - **`pack`** elements at a time. What is narrower than 32 bits shares a register: with `pack=2` two float16 numbers
#   come as one `r` or `v`, the first in the lower half. 32-bit sources come as `pack` registers each: with `x` and
#   `y` and `pack=2`, `x`'s two first, then `y`'s.
# - **Several results**: a tuple as `dtype`, as many `=` constraints, and the call returns a tuple.
# - **Scratch registers.** In PTX braces open a scope: `{ .reg .b32 t; add.u32 t, $1, $2; shl.b32 $0, t, 1; }`. In
#   AMDGCN name one more result, use it, and throw it away.
# - **`is_pure=True`** lets the compiler drop it or join two alike. It may be True only if the text
#   does nothing but compute its results; False is always safe.
# - Every register needs its constraint, and `$N` a register: one too few, and LLVM ends the whole process, your
#   notebook's kernel with it. The course's compiler finds that before and says so.
#
# The product of two 32-bit numbers has 64 bits. Both chips give its halves by two instructions. Two results:


# %% both halves of a product
@triton.jit
def wide_kernel(x_ptr, y_ptr, out_ptr, TEXT: tl.constexpr, FORM: tl.constexpr):
    i = tl.arange(0, 128)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    low, high = tl.inline_asm_elementwise(
        TEXT, FORM, [x, y], dtype=(tl.int32, tl.int32), is_pure=True, pack=1
    )
    tl.store(out_ptr + i, low)
    tl.store(out_ptr + 128 + i, high)


HALVES = {
    "sm_80": "mul.lo.u32 $0, $2, $3; mul.hi.u32 $1, $2, $3;",
    "gfx942": "v_mul_lo_u32 $0, $2, $3\nv_mul_hi_u32 $1, $2, $3",
}
FORMS = {"sm_80": "=r,=r,r,r", "gfx942": "=v,=v,v,v"}

# %% guess halves
guess = predict(
    "07.halves",
    "The first instruction writes $0, the second still reads $2. On which targets are "
    "both halves right with these constraints?",
    right=lesson.choice("both", "sm_80 alone", "gfx942 alone"),
)

# %% run halves
p, q = torch.randint(1, 2**31 - 1, (2, 128), dtype=torch.int32)
exact = p.long() * q.long()


def halves(target, form):
    out = torch.zeros(256, dtype=torch.int32)
    with virtual_gpu(target):
        wide_kernel[(1,)](p, q, out, HALVES[target], form, num_warps=1)
    low, high = out.long().split(128)
    args = (p, q, out)
    text = compile_for(wide_kernel, target, args, TEXT=HALVES[target], FORM=form).asm
    return {
        "low": torch.equal(low & 0xFFFFFFFF, exact & 0xFFFFFFFF),
        "high": torch.equal(high, exact >> 32),
        "in the listing": "; ".join(
            one.strip() for one in text.split("\n") if "mul_" in one or "mul.lo" in one
        )[:90],
    }


ends = {f"{target}, {form}": halves(target, form) for target, form in FORMS.items()}
ends["gfx942, =&v,=v,v,v"] = halves("gfx942", "=&v,=v,v,v")
right = [row["low"] and row["high"] for row in ends.values()]
guess.reveal(
    right="both" if all(right[:2]) else "sm_80 alone" if right[0] else "gfx942 alone",
    because="LLVM may put a result where a source was, as if all were read before "
    "anything is written. In PTX every register is a new name.",
)
lesson.table(ends, first="target, constraints")

# %% [markdown] early clobber
# Look at the second row: the first instruction writes `v1`, its own source, and the second one multiplies the wrong
# number. `=&v`, an **early clobber**, says: this result is written before all sources are read, so give it a register
# of its own. Whenever a text has more than one instruction, ask this of each result but those of the last instruction.
#
# The other trap is the order of halves. Two floats become two float16 numbers in one register:


# %% pack two
@triton.jit
def narrow_kernel(x_ptr, out_ptr, TEXT: tl.constexpr, FORM: tl.constexpr):
    i = tl.arange(0, 256)
    out = tl.inline_asm_elementwise(
        TEXT, FORM, [tl.load(x_ptr + i)], dtype=tl.float16, is_pure=True, pack=2
    )
    tl.store(out_ptr + i, out)


NARROW = {
    "sm_80": ("cvt.rn.f16x2.f32 $0, $1, $2;", "=r,f,f"),
    "gfx942": ("v_cvt_pkrtz_f16_f32 $0, $1, $2", "=v,v,v"),
}

# %% guess order
guess = predict(
    "07.order",
    "$1 is the first number of a pair, $2 the second. PTX's manual: for f16x2 the "
    "first source goes into the *upper* half. AMD's: the first source into bits 15:0. "
    "x = 1, 2, 3, 4, ...: what is out[0]?",
    sm_80=lesson.number("out[0] on sm_80"),
    gfx942=lesson.number("out[0] on gfx942"),
)

# %% run order
counting, firsts = torch.arange(1.0, 257.0), {}
for target, (text, form) in NARROW.items():
    out = torch.zeros(256, dtype=torch.float16)
    with virtual_gpu(target):
        narrow_kernel[(1,)](counting, out, text, form)
    firsts[target] = {f"out[{i}]": float(out[i]) for i in range(4)}
guess.reveal(
    sm_80=firsts["sm_80"]["out[0]"],
    gfx942=firsts["gfx942"]["out[0]"],
    because="an element that comes first stands in the lower half.",
)
lesson.table(firsts, first="target")

# %% [markdown] end of sitting 1
# So read the manual's sentence on halves before you trust a packed conversion. (And its rounding: `rtz` is toward
# zero.)
#
# > **Facts: packed conversions**
# >
# > - `cvt.rn.f16x2.f32 d, a, b`: `a` goes to the upper half of `d`, `b` to the lower; for the packed types of 8 bits
# >   the same rule holds, with bytes. (source: NVIDIA,
# >   [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/), Data Movement and Conversion, `cvt`)
# > - In LLVM's inline assembly `&` marks an output that may be written before all inputs are read. (source: LLVM,
# >   [Language Reference](https://llvm.org/docs/LangRef.html#inline-asm-constraint-string))
#
# **You have** the grammar of both languages, a kernel of your own in each, and a way to put one instruction into
# Triton. You can do 07.read_listing, 07.ptx_ex2, 07.ptx_cvt_fp8 and 07.amdgcn_perm of the lab now. (The lab has the
# mnemonics that 07.read_listing counts. A label ends in `:`, a directive
# begins with `.`, what follows `//` or `;` in AMDGCN is a comment.) Next: what happens between a load and its data.

# %% first sitting ends
lesson.sitting("07", 1)

# %% [markdown] a load is a promise
# # Sitting 2: waiting, the life of one load
#
# ## 8. A load is a promise
#
# A load from memory takes hundreds of cycles. No GPU stops for that long: the load is *issued*, the wave goes on, and
# the register is filled later. Until then it holds what was there before. Somebody has to know when the data is there.
#
# - **NVIDIA**: PTX says nothing. `ld.global.f32 %f1, [%rd1]`, then `mul.f32 %f2, %f1, %f1` is right as it stands. In
#   SASS the chip's *scoreboard* holds the product back until the register is there.
# - **AMD**: the machine code says it. Counters count what is under way, and `s_waitcnt vmcnt(1)` waits until **at most
#   one** vector access is left. Nothing else holds an instruction back until a load's data is there.
#
# | counter | counts | comes back |
# |---|---|---|
# | `vmcnt` | vector loads from memory (on gfx9 stores as well) | in order |
# | `lgkmcnt` | LDS accesses (`ds_`), and scalar loads (`s_load`) | LDS in order; scalar loads in **any** order |
# | `vscnt` | vector stores, on gfx10 and gfx11 | in order |
#
# "In order" is what makes a number useful: with two loads under way, `vmcnt(1)` means the *older* one is there. Loads
# in any order leave only `lgkmcnt(0)`, and while one of them is under way, no other number is sure for LDS either.
#
# > **Facts: counters**
# >
# > - Memory reads and writes are issued asynchronously, and waits are needed before a result is used, or a register
# >   that a load has still to fill is overwritten; a source is read when the instruction is issued. Scalar loads (SMEM)
# >   come in any order, so their wait is 0. (source: LLVM, llvm/lib/Target/AMDGPU/SIInsertWaitcnts.cpp,
# >   counterOutOfOrder)
# > - A warp may stall for a scoreboard dependency on a load from global or local memory ("Long Scoreboard"). (source:
# >   NVIDIA, [Nsight Compute Profiling Guide](https://docs.nvidia.com/nsight-compute/ProfilingGuide/), Warp Stall
# >   Reasons)
# > - `s_waitcnt` holds numbers for vmcnt, lgkmcnt and expcnt (exports of graphics); vmcnt up to 63, lgkmcnt up to 15 on
# >   gfx9. (source: LLVM, [waitcnt of GFX9](https://llvm.org/docs/AMDGPU/gfx9_waitcnt.html))
#
# Here is the sum of two squares from section 5 in AMDGCN, with three waits.

# %% squares in AMDGCN
SQUARES_AMD = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dwordx2 s[8:9], s[0:1], 0x10
  v_lshlrev_b32_e32 v0, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v1, v0, s[4:5]     // x
  global_load_dword v2, v0, s[6:7]     // y
  s_waitcnt vmcnt(1)                   // x is there
  v_mul_f32_e32 v1, v1, v1
  s_waitcnt vmcnt(0)                   // y is there
  v_fmac_f32_e32 v1, v2, v2            // v1 += v2 * v2
  global_store_dword v0, v1, s[8:9]
  s_endpgm
"""
xs, ys = torch.arange(64.0), torch.arange(64.0) + 1


def squares_end(old, new, sanitize=True):
    body = SQUARES_AMD.replace(old, new) if old else SQUARES_AMD
    kernel = lesson.by_hand("squares", "x_ptr y_ptr out_ptr", body, "gfx942")
    return kernel.ended(64, [xs, ys, torch.zeros(64)], xs * xs + ys * ys, sanitize)


# %% guess missing
CHANGES = {
    "as it is": ("", ""),
    "no vmcnt(1)": ("s_waitcnt vmcnt(1)", ""),
    "vmcnt(1) is vmcnt(2)": ("vmcnt(1)", "vmcnt(2)"),
    "vmcnt(1) is vmcnt(0)": ("vmcnt(1)", "vmcnt(0)"),
    "no vmcnt(0)": ("s_waitcnt vmcnt(0)", ""),
    "lgkmcnt(0) is lgkmcnt(1)": ("lgkmcnt(0)", "lgkmcnt(1)"),
}
guess = predict(
    "07.missing",
    "Five changes: a wait is left out (no vmcnt(1), no vmcnt(0)), or its number is "
    "another one: vmcnt(1) becomes vmcnt(2) or vmcnt(0), lgkmcnt(0) becomes "
    "lgkmcnt(1). Which of them is still right?",
    right=lesson.choice(*[name for name in CHANGES if name != "as it is"]),
)

# %% take a wait away
ends = {name: squares_end(*change) for name, change in CHANGES.items()}
blind = {name: squares_end(*change, sanitize=False) for name, change in CHANGES.items()}
guess.reveal(
    right=next(n for n, end in ends.items() if end == "right" and n != "as it is"),
    because="0 waits for both loads: too long, but not wrong. Of two scalar loads the "
    "second may come first, so lgkmcnt(1) promises nothing.",
)
lesson.table(
    {n: {"no sanitizer": blind[n], "waitcheck": end} for n, end in ends.items()},
    first="change",
)

# %% [markdown] why a sanitizer
# The errors come from the sanitizer `waitcheck` (`virtual_gpu(target, sanitize=True)`, which `lesson.by_hand` uses). A
# virtual GPU fills a register when the load is issued, so without it all six are right: a result proves nothing about
# waits. `waitcheck` keeps the counters and names the instruction that came too early, and the loosest wait that would
# do.
#
# ## 9. One wait too many
#
# A wait with too small a number is never wrong. What does it cost? Loads that are under way together are waited for
# together. This kernel sums eight numbers of a lane, with **two** loads in flight: it issues the
# next one before it waits for the one before.


# %% eight loads
def eight(wait):
    """A lane sums x[lane], x[64 + lane], ...; two loads in flight."""
    lines = [
        "s_load_dwordx4 s[4:7], s[0:1], 0x0",
        "v_lshlrev_b32_e32 v0, 2, v0",
        "v_mov_b32_e32 v3, 0",
        "s_waitcnt lgkmcnt(0)",
        "global_load_dword v1, v0, s[4:5]",
    ]
    for i in range(1, 8):
        lines.append(f"global_load_dword v{1 + i % 2}, v0, s[4:5] offset:{256 * i}")
        lines += [f"s_waitcnt vmcnt({wait})", f"v_add_f32_e32 v3, v3, v{2 - i % 2}"]
    lines += ["s_waitcnt vmcnt(0)", "v_add_f32_e32 v3, v3, v2"]
    lines += ["global_store_dword v0, v3, s[6:7]", "s_endpgm"]
    return lesson.by_hand("eight", "x_ptr y_ptr", "\n".join(lines), "gfx942")


# %% guess loose
guess = predict(
    "07.loose",
    "A model: an instruction takes 4 cycles, data comes 500 cycles after its load, a "
    "scalar load's after 200. With vmcnt(1) the kernel takes about 2,250 cycles. And "
    "with vmcnt(0) in its place?",
    cycles=lesson.number("with vmcnt(0)", unit="cycles", factor=1.15),
)

# %% loose
numbers, rows = torch.rand(512), {}
for wait in (1, 0):
    record = eight(wait).traced(64, [numbers, torch.zeros(64)])
    waits = lesson.waits(record)
    idle = sum(one.cycles for one in waits)
    rows[f"vmcnt({wait})"] = {
        "waits that really wait": len(waits),
        "cycles waited": idle,
        "cycles in all": idle + 4 * len(record.steps),
        "result": eight(wait).ended(
            64, [numbers, torch.zeros(64)], numbers.view(8, 64).sum(0)
        ),
    }
guess.reveal(
    cycles=rows["vmcnt(0)"]["cycles in all"],
    because="with vmcnt(0) only the first pair is under way together; each of the six "
    "loads after it is waited for alone, 500 cycles each.",
)
lesson.table(rows, first="wait")

# %% [markdown] ptx in the model
# The same model for PTX, where nobody writes a wait and a wave stands at the first use of a register:

# %% the same on NVIDIA
first = "  mul.f32 %f2, %f1, %f1;\n"
ORDERS = {
    "load, multiply, load (PTX)": SQUARES_PTX,
    "load, load, multiply (as SASS)": SQUARES_PTX.replace(first, "").replace(
        "  mul.f32 %f4", first + "  mul.f32 %f4"
    ),
}
rows = {}
for order, body in ORDERS.items():
    kernel = lesson.by_hand("squares", "x_ptr y_ptr out_ptr", body, "sm_80")
    record = kernel.traced(32, [xs, ys, torch.zeros(64)])
    rows[order] = {"waits at": " and ".join(x.text for x in lesson.waits(record))}
    rows[order]["cycles waited"] = sum(x.cycles for x in lesson.waits(record))
lesson.table(rows, first="order")

# %% [markdown] the model
# On NVIDIA nobody writes a wait, and the order decides: that is why ptxas moved the loads up in section 5.
#
# This is a **model** of one wave alone on its SIMD (`lesson.waits`), no clock and no chip: it says where a wave waits
# and which of two orders waits less. On a chip other waves work meanwhile (lesson 02). The rule stays: a wait as late
# and as loose as it can be. **Try:** three loads in flight need another register and another number. Which one? (It is
# `vmcnt(2)`, and about 1,760 cycles in this model.)
#
# ## 10. Through shared memory
#
# Two waves reverse 128 numbers through the LDS. What one wave writes the other one reads, so a barrier stands between.
# But a barrier waits for *waves*, not for their memory accesses: each wave must first wait for its own writes.

# %% turn
TURN_AMD = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32_e32 v1, 2, v0
  v_sub_u32_e32 v2, 508, v1            // 4 * (127 - thread)
  s_waitcnt lgkmcnt(0)                 // the arguments
  global_load_dword v3, v1, s[4:5]
  s_waitcnt vmcnt(0)                   // the number
  ds_write_b32 v1, v3
  s_waitcnt lgkmcnt(0)                 // the write
  s_barrier
  ds_read_b32 v4, v2
  s_waitcnt lgkmcnt(0)                 // the read
  global_store_dword v1, v4, s[6:7]
  s_endpgm
"""
row = torch.arange(128.0)


def turned(body, target="gfx942", left_out=""):
    """How the kernel ends, without the line that holds `left_out`."""
    lines = [one for one in body.split("\n") if not left_out or left_out not in one]
    body = "\n".join(lines)
    if target in AMD:
        body = lesson.dialect(body, target)
    kernel = lesson.by_hand("turn", "x_ptr y_ptr", body, target, shared=512)
    return kernel.ended(128, [row, torch.zeros(128)], row.flip(0))


# %% guess turn
WORDS = ("LateData", "Race")
guess = predict(
    "07.turn",
    "LateData: a wave uses what is not there yet. Race: one wave reads what another "
    "one has written, and nothing orders the two. What is reported without each line?",
    write=lesson.choice(*WORDS, label="the wait for the write"),
    barrier=lesson.choice(*WORDS, label="the barrier"),
    read=lesson.choice(*WORDS, label="the wait for the read"),
)

# %% run turn
LEFT_OUT = ("the arguments", "the number", "the write", "s_barrier", "the read")
ends = {line: turned(TURN_AMD, left_out=line) for line in LEFT_OUT}
guess.reveal(
    write=ends["the write"].split(":")[0],
    barrier=ends["s_barrier"].split(":")[0],
    read=ends["the read"].split(":")[0],
    because="the read is the wave's own affair; the write concerns the other wave.",
)
lesson.table({name: {"ends": end} for name, end in ends.items()}, first="without")

# %% [markdown] barriers of both
# On NVIDIA `st.shared`, `bar.sync 0`, `ld.shared` is enough: a barrier of PTX also makes the accesses before it known.
# `bar.sync 0` is one of the 16 barriers of a block; `__syncthreads()` and `tl.debug_barrier()` become this one.
#
# > **Facts: barriers**
# >
# > - `bar.sync` guarantees that memory accesses of a thread before it are performed for all threads of the barrier; a
# >   block has 16 barriers, numbered from 0. (source: NVIDIA,
# >   [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/), Parallel Synchronization and Communication,
# >   `bar`)
#
# **Every** wave of a block must come to a barrier, and equally often. Here only the first wave does, on both vendors. A
# chip does not wait for waves that have ended, so this one might get through there; the sanitizer asks for what the
# source promised:

# %% a barrier under a condition
SOME_PTX = """
  .reg .pred %p1; .reg .b32 %r1;
  mov.u32 %r1, %tid.x;
  setp.ge.u32 %p1, %r1, 64;
  @%p1 bra AFTER;
  bar.sync 0;
AFTER:
  ret;
"""
SOME_AMD = """
  v_readfirstlane_b32 s4, v0           // the wave's first thread
  s_cmp_ge_u32 s4, 64                  // SCC
  s_cbranch_scc1 AFTER
  s_barrier
AFTER:
  s_endpgm
"""
texts = {"sm_80": SOME_PTX, "gfx942": SOME_AMD}
ends = {
    target: lesson.by_hand("some", "y_ptr", body, target).ended(128, [row], row)
    for target, body in texts.items()
}
lesson.table({target: {"ends": end} for target, end in ends.items()}, first="target")

# %% [markdown] twice and split
# Where a loop writes the same place again, a **second** barrier stands between the last read and the next write, or a
# fast wave overwrites what a slow one has not read yet. Section 12 has loops with both.
#
# gfx12 splits what is counted, and the barrier. The same kernel in its words:
#
# | gfx9 to gfx11 | gfx12 | counts |
# |---|---|---|
# | `s_waitcnt vmcnt(n)` | `s_wait_loadcnt n` | vector loads |
# | with the loads (gfx9), `s_waitcnt_vscnt null, n` | `s_wait_storecnt n` | vector stores |
# | `s_waitcnt lgkmcnt(n)` | `s_wait_dscnt n` | LDS |
# | `s_waitcnt lgkmcnt(0)` | `s_wait_kmcnt 0` | scalar loads |
# | `s_barrier` | `s_barrier_signal -1`, `s_barrier_wait -1` | I am here; are all here? |
#
# So a scalar load no longer disturbs the count of the LDS. Between signal and wait a wave may do other work. (-1 is the
# block's own barrier; `null` stands where no scalar register is needed.)
#
# > **Facts: split counters**
# >
# > - loadcnt was vmcnt, dscnt was lgkmcnt, storecnt was vscnt on gfx10 and gfx11; kmcnt is new with gfx12. (source:
# >   LLVM, llvm/lib/Target/AMDGPU/Utils/AMDGPUWaitcntUtils.h)

# %% gfx12
print(lesson.dialect(TURN_AMD, "gfx1201"))
ends = {t: {"virtual GPU": turned(TURN_AMD, t)} for t in AMD}
lesson.table(ends, first="target", across=True)

# %% [markdown] past the registers
# ## 11. Past the registers
#
# The number went from memory to a register only to go on to shared memory. Both vendors have a load that leaves the
# register out. It is asynchronous on NVIDIA too, so now PTX has something to wait for:
#
# | | NVIDIA, sm_80 | AMD, gfx942 and gfx950 |
# |---|---|---|
# | the copy | `cp.async.ca.shared.global [to], [from], 4;` | `global_load_lds_dword`, `buffer_load ... lds` |
# | where to | an address for each lane | `m0` holds the wave's place; lane *i* goes to `m0` + 4 *i* |
# | bundled by | `cp.async.commit_group` | nothing: every load counts |
# | waited for by | `cp.async.wait_group n`: at most n groups left | `s_waitcnt vmcnt(n)`: at most n loads left |

# %% copies
COPY_PTX = """
  .reg .b32 %r<6>; .reg .b64 %rd<5>; .reg .f32 %f<2>;
  .shared .align 16 .b8 tile[512];
  ld.param.u64 %rd1, [x_ptr];
  ld.param.u64 %rd2, [y_ptr];
  mov.u32 %r1, %tid.x;
  shl.b32 %r2, %r1, 2;
  cvt.u64.u32 %rd3, %r2;
  add.u64 %rd1, %rd1, %rd3;
  add.u64 %rd2, %rd2, %rd3;
  mov.u32 %r3, tile;                   // its address in shared memory
  add.u32 %r4, %r3, %r2;
  sub.u32 %r5, %r3, %r2;
  cp.async.ca.shared.global [%r4], [%rd1], 4;
  cp.async.commit_group;
  cp.async.wait_group 0;
  bar.sync 0;
  ld.shared.f32 %f1, [%r5+508];
  st.global.f32 [%rd2], %f1;
  ret;
"""
COPY_AMD = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32_e32 v1, 2, v0
  v_sub_u32_e32 v2, 508, v1
  v_readfirstlane_b32 s8, v1           // the wave's place: 0 or 256
  s_mov_b32 m0, s8
  s_waitcnt lgkmcnt(0)
  global_load_lds_dword v1, s[4:5]
  s_waitcnt vmcnt(0)
  s_barrier
  ds_read_b32 v4, v2
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v4, s[6:7]
  s_endpgm
"""

# %% guess copies
guess = predict(
    "07.copies",
    "Without `cp.async.commit_group`, wait and barrier left in place: what happens on "
    "the virtual sm_80?",
    commit=lesson.choice("right", "Race", "wrong"),
)

# %% run copies
ends = {
    f"{target}, without {line}": turned(body, target, line)
    for target, body, lines in (
        ("sm_80", COPY_PTX, ("commit_group", "wait_group", "bar.sync")),
        ("gfx942", COPY_AMD, ("vmcnt", "s_barrier")),
    )
    for line in lines
}
whole = {t: turned(COPY_PTX, t) for t in NVIDIA}
whole |= {t: turned(COPY_AMD, t) for t in ("gfx942", "gfx950")}
guess.reveal(
    commit=ends["sm_80, without commit_group"].split(":")[0],
    because="a wait counts groups; a copy that was never committed is in none.",
)
lesson.table(
    {name: {"ends": end} for name, end in ends.items()},
    first="kernel",
    note=f"With every line: {', '.join(f'{t} {end}' for t, end in whole.items())}.",
)

# %% [markdown] pipelined product
# ## 12. What Triton writes
#
# Now the loop of unit 05's product is readable. With `num_stages=3` the copies of later blocks are under way while a
# block is multiplied. `sm_80` first: its waits, barriers and copies, and where the products stand.

# %% the loop on sm_80
lesson.table(
    lesson.loop_lines(product("sm_80", num_stages=3)),
    note=".cg goes past the L1. The last operand of a copy: bytes that are read.",
)

# %% guess groups
guess = predict(
    "07.groups",
    "In each round the loop commits two groups (a tile of A, one of B) and then waits "
    "at its top with wait_group 2. Which number has num_stages=4, and which 2?",
    four=lesson.number("num_stages=4"),
    two=lesson.number("num_stages=2"),
)

# %% groups
left = {}
for stages in (2, 3, 4):
    for one in lesson.in_loops(product("sm_80", num_stages=stages)):
        if "wait_group" in one.text:
            left[stages] = int(one.text.rstrip(";").split()[-1])
guess.reveal(
    four=left[4],
    two=left[2],
    because="num_stages - 1 tiles are under way, and the oldest must be there: two "
    "groups for each of the others may be left.",
)
lesson.table({f"num_stages={s}": {"wait_group": n} for s, n in left.items()})

# %% [markdown] the others
# On `gfx942` loads go to registers and from there to the LDS, and the count of loads takes the place of groups. Both
# loads of a round are issued in front of its matrix instructions and waited for behind them:

# %% the loop on gfx942
lesson.table(lesson.loop_lines(product("gfx942", num_stages=2)))

# %% [markdown] hopper
# `vmcnt(1)` lets the tile of A into the LDS while that of B may still be under way. Two barriers: one before the first
# read of a tile, one between the last read and the next write.
#
# `gfx950` can load to the LDS directly, also 16 bytes a lane. Triton 3.7.1 does it on request:

# %% the loop on gfx950
with triton.knobs.amd.scope():
    triton.knobs.amd.use_async_copy = True
    direct = product("gfx950", num_stages=3)
lesson.table(lesson.loop_lines(direct))

# %% [markdown] to hopper
# Now the count means what the groups meant on `sm_80`: two loads are one round's, and may be left. One barrier is
# enough here: the next copy goes to a place that was read a round ago, before this barrier.
#
# On `sm_90` the product is asynchronous as well. Four warps issue `wgmma.mma_async` together; it reads shared memory
# and adds to registers **while the warps go on**:
#
# - `wgmma.fence` before the first one: what was done to these registers is done;
# - `wgmma.commit_group` bundles the products issued so far, as `cp.async` does it;
# - `wgmma.wait_group 1`: at most one group left. Only then may the block's place in shared memory be overwritten, and
#   with 0 left the sums be read.
# - `fence.proxy.async`: what ordinary stores put into shared memory is seen by the asynchronous units, too.

# %% the loop on sm_90
lesson.table(lesson.loop_lines(product("sm_90", num_stages=3)))

# %% guess wgmma
guess = predict(
    "07.wgmma",
    "Take both `wgmma.wait_group` (one stands behind the loop) away. Who notices "
    "first? And which "
    "report does gfx942 give without its `s_barrier`s?",
    who=lesson.choice("a copy into shared memory", "the store of the sums"),
    gfx942=lesson.choice("LateData", "Race", "no report"),
)

# %% take the waits away
CASES = {
    "sm_90": ("", "wgmma.wait_group", "wgmma.fence", "cp.async.wait_group"),
    "gfx942": ("", "vmcnt(0)", "s_barrier"),
    "gfx950": ("", "vmcnt"),
}
ends = {}
for target, words in CASES.items():
    kernel = direct if target == "gfx950" else product(target, num_stages=3)
    args = [a, b, c, 256, 256, 256, b.stride(0)]
    for word in words:
        end = lesson.ended_without(kernel, word, args)
        ends[f"{target}, {word or 'as it is'}"] = end
guess.reveal(
    who="a copy into shared memory"
    if "writes offset" in ends["sm_90, wgmma.wait_group"]
    else "the store of the sums",
    gfx942=ends["gfx942, s_barrier"].split(":")[0],
    because="the next round's copy goes where the product may still read; and between "
    "waves only barriers order the LDS.",
)
lesson.table({name: {"ends": end} for name, end in ends.items()}, first="without")

# %% [markdown] TMA
# ### TMA and mbarrier
#
# A copy by `cp.async` still costs a thread for each 16 bytes. TMA, the *tensor memory accelerator* of `sm_90`, copies a
# whole tile for **one** thread's `cp.async.bulk`. Nobody else knows of that copy, so its end is told to an
# **mbarrier**: a word in shared memory that counts arrivals and bytes. Here TMA brings our 512 bytes in one piece. The
# copy's operands are where to, where from, how many bytes, and the mbarrier that is told; `_` throws a result away, and
# the fence shows the new mbarrier to the copying unit.

# %% bulk copy
BULK = """
  .reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %rd<5>; .reg .f32 %f<2>;
  .shared .align 128 .b8 tile[512];
  .shared .align 8 .b64 bar;
  ld.param.u64 %rd1, [x_ptr];
  ld.param.u64 %rd2, [y_ptr];
  mov.u32 %r1, %tid.x;
  mov.u32 %r3, tile;
  mov.u32 %r4, bar;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra READY;                      // one thread does it all:
  mbarrier.init.shared.b64 [%r4], 1;   // one arrival ends a phase
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 512;  // ... and 512 bytes
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
    [%r3], [%rd1], 512, [%r4];
READY:
  bar.sync 0;                          // the mbarrier is there
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0;   // is phase 0 over?
  @!%p2 bra WAIT;
  shl.b32 %r2, %r1, 2;
  sub.u32 %r5, %r3, %r2;
  ld.shared.f32 %f1, [%r5+508];
  cvt.u64.u32 %rd3, %r2;
  add.u64 %rd2, %rd2, %rd3;
  st.global.f32 [%rd2], %f1;
  ret;
"""
NEWER = ("sm_90", "sm_100", "sm_120")
impatient = BULK.replace("@!%p2 bra WAIT;", "")
ends = {f"{t}, as it is": turned(BULK, t) for t in NEWER}
ends |= {"sm_90, without the wait": turned(impatient, "sm_90", "try_wait")}
lesson.table({name: {"ends": end} for name, end in ends.items()}, first="kernel")

# %% [markdown] contract
# Read it as a contract. `expect_tx` promises 512 bytes, the copy delivers them, and when arrivals and bytes are
# complete the mbarrier's phase is over. The number behind it is the **parity** of the phase that is waited for: 0 for
# the first, 1 for the second, 0 for the third. A pipeline has one mbarrier for each stage and flips the parity each
# time round. Triton writes all this where the tiles are loaded through descriptors:


# %% the product through descriptors
@triton.jit
def tiles_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    a_tiles = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b_tiles = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [BK, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a_tiles.load([m, k]), b_tiles.load([k, n]), total)
    rows, columns = m + tl.arange(0, BM), n + tl.arange(0, BN)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)


args, tile = (a, b, c, 256, 256, 256), {"BM": 64, "BN": 64, "BK": 32}
tiles = compile_for(tiles_kernel, "sm_90", args, num_stages=3, **tile)
lesson.table(lesson.loop_lines(tiles))

# %% [markdown] tcgen05
# Two copies replace the many `cp.async` of all threads; the 8,192 bytes that are promised are both tiles of a round.
#
# `sm_100` goes one step further: `tcgen05.mma` is issued by one thread, reads shared memory and puts its sums into
# **tensor memory**, 128 lanes (rows) of columns that belong to no thread. A kernel must `tcgen05.alloc` columns, bring
# the sums to registers by `tcgen05.ld` and `tcgen05.wait::ld`, and `tcgen05.dealloc`. The end of a product is told to
# an mbarrier as well, by `tcgen05.commit`:

# %% the loop on sm_100
lesson.table(lesson.loop_lines(product("sm_100", num_stages=3)))

# %% [markdown] waits in one table
# > **Facts: copies and products that run by themselves**
# >
# > - A `cp.async` copies 4, 8 or 16 bytes; `wait_group N` waits until at most the N most recent groups of the thread
# >   are pending. (source: NVIDIA, [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/), `cp.async` and
# >   `cp.async.wait_group`)
# > - An mbarrier counts arrivals of a phase and, with `expect_tx`, bytes (its tx-count). (source: PTX ISA, `mbarrier`)
# > - `wgmma.wait_group N` waits until at most the N most recent groups are pending. (source: PTX ISA,
# >   `wgmma.wait_group`)
# > - Tensor memory has 128 lanes and 512 columns of 32 bits for a block. (source: PTX ISA, Tensor Memory)
#
# All of this sitting in one table:
#
# | what is under way | who waits, and by what |
# |---|---|
# | `ld.global` | nothing in PTX; a scoreboard in SASS |
# | `cp.async` | its own thread: `commit_group`, `wait_group n`; others: a barrier behind it |
# | `cp.async.bulk` (TMA) | whoever needs it: `mbarrier.try_wait` |
# | `wgmma` | the four warps: `commit_group`, `wait_group n` |
# | `tcgen05.mma` | whoever needs it: `tcgen05.commit`, `mbarrier.try_wait` |
# | `global_load`, `buffer_load`, also to the LDS | the wave: `vmcnt(n)`, `loadcnt`; others: a barrier behind it |
# | `s_load` | the wave: `lgkmcnt(0)`, `kmcnt` |
# | `ds_read`, `ds_write` | the wave: `lgkmcnt(n)`, `dscnt`; others: a barrier behind it |
# | `v_mfma` | nobody; LLVM puts `s_nop` where its result would be read too early |
#
# > **Facts: MFMA**
# >
# > - LLVM knows how many wait states stand between an MFMA and who reads its result, and inserts them. (source: LLVM,
# >   llvm/lib/Target/AMDGPU/GCNHazardRecognizer.cpp, checkMAIHazards90A)
#
# ## 13. Where registers go
#
# One more kind of memory access is in no source. When a lane's values do not fit its registers, the compiler *spills*:
# it stores some to the lane's own memory and loads them back. A larger tile, a limit of registers (`maxnreg` on NVIDIA)
# or of waves (`waves_per_eu` on AMD, which asks for room for so many waves on a SIMD) can cause it. Without any
# limit of yours the target has one, in the column `most` below; on CDNA AGPRs count.

# %% guess spills
guess = predict(
    "07.spills",
    "The product with tiles of 128 × 128 uses 168 registers of a lane on sm_90. We "
    "allow only 96. What shows that it spills?",
    ptx=lesson.yes_no("st.local in the PTX"),
    sass=lesson.yes_no("STL, a store to local memory, in SASS"),
    amd=lesson.yes_no("scratch_store in AMDGCN, with waves_per_eu=4"),
)

# %% spills
rows, seen = {}, {}
LIMITS = {"sm_90": {"maxnreg": 96}, "gfx942": {"waves_per_eu": 4}}
for target, limit in LIMITS.items():
    for tile, options in ((64, {}), (128, {}), (128, limit)):
        compiled = product(target, tile, num_stages=2, **options)
        needs = lesson.resources(compiled)
        seen[target] = compiled
        extra = "".join(f", {key}={value}" for key, value in options.items())
        name = f"{target}, {tile} × {tile}{extra}"
        listed = lesson.mnemonics(compiled, "scratch")
        rows[name] = {
            "registers": needs.registers,
            "most": lesson.TARGETS[target].registers_max,
            "spills": needs.spills,
            "bytes of a lane": needs.scratch,
            "st.local, scratch_ in the listing": sum(listed.values()),
        }
guess.reveal(
    ptx="st.local" in seen["sm_90"].asm,
    sass="STL" in lesson.sass(seen["sm_90"]),
    amd="scratch_store" in seen["gfx942"].asm,
    because="ptxas hands out registers after PTX; LLVM before AMDGCN is written.",
)
lesson.table(
    rows,
    first="kernel",
    note="Spills: bytes of all spill stores in the text on NVIDIA, registers on AMD. "
    "Bytes of a lane: the memory that they share; a place may be stored to often.",
)

# %% most registers of a lane
lesson.table({t: {"most": lesson.TARGETS[t].registers_max} for t in (*NVIDIA, *AMD)})

# %% [markdown] cures
# So on NVIDIA ask `lesson.resources(compiled)`, not the listing. `st.local` does appear in PTX for another reason: an
# array of a thread that is indexed at run time. On CDNA LLVM may also spill to AGPRs (`v_accvgpr_write`); these count
# as spills in the table, and are no `scratch_`.
#
# The causes say what helps. Sums take `BM * BN / (num_warps * lanes)` registers: a smaller tile, or more warps, halves
# them. A limit that nobody needs goes. Fewer stages free shared memory and registers of loads. Lesson 05 showed the
# price: a smaller tile reads more bytes. Two targets may need two tiles.
#
# **You have** the life of a load on both vendors: issued, counted or committed, waited for, and made known to others by
# a barrier. You can do 07.waitcnt, 07.barriers and 07.no_spills of the lab now. Next: lanes.

# %% second sitting ends
lesson.sitting("07", 2)

# %% [markdown] lanes
# # Sitting 3: lanes
#
# A lane computes in its own registers. Yet a sum of a row, a softmax, a matrix product need the numbers of other lanes.
# This sitting is about how one lane gets another's value, which lane holds which element of a matrix, and what orders
# lanes and waves.
#
# ## 14. One kernel for all exchanges
#
# Everything in the first half runs in one small kernel, written by hand for both vendors. Lane $i$ reads `x[i]` into a
# register, the *exchange* stands in the middle, and what the lane got goes to `out[i]`. The result register holds -1
# before. We let lane $i$ give $100 + i$: so the result says from whom it came.

# %% the kernel around an exchange
FLIP = "shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;"
DPP_FLIP = "v_mov_b32_dpp v2, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf"
print(lesson.lane_body(FLIP, "sm_80"), lesson.lane_body(DPP_FLIP, "gfx942"), sep="\n\n")

# %% [markdown] read the kernel
# Only the line in the middle changes from here on; its masks are explained in section 16. In PTX `%r1` is what this
# lane gives and `%r2` what it gets; in AMDGCN `v1` and `v2`. `v0` is the lane's number, times 4 after the shift: an
# offset in bytes. Both exchanges swap neighbours.


# %% neighbours
def exchange(lines):
    """A picture of exchanges: title -> (target, lines in the middle of the kernel)."""
    shown = {}
    for title, (target, line) in lines.items():
        shown[f"{target}: {title}"] = lesson.lane_run(line, target)
    return lesson.exchange_figure(shown)


exchange({"shfl.sync.bfly 1": ("sm_80", FLIP), "quad_perm": ("gfx942", DPP_FLIP)})

# %% [markdown] shuffles
# ## 15. NVIDIA: one shuffle, four modes
#
# ```text
# shfl.sync.MODE.b32  d|p, a, b, c, members;
# ```
#
# `a` is what the lane gives, `d` what it gets. `b` is a number whose meaning depends on the mode:
#
# | mode | source lane | in range when | for |
# |---|---|---|---|
# | `idx` | `b` | not above the last lane | one lane to all |
# | `up` | own lane - `b` | not below the first lane | prefix sums |
# | `down` | own lane + `b` | not above the last lane | sums to the first lane |
# | `bfly` | own lane XOR `b` | not above the last lane | sums that all lanes get |
#
# First and last lane are those of the lane's own *segment*, of which more below, and `idx` counts `b` from its first.
#
# **`c` holds two numbers.** Bits 0 to 4 are the clamp: 31 (`0x1f`) for all modes but `up`, which wants 0. Bits 8 to 12
# are the bits of the lane number that must stay: they cut the warp into segments, and each has a last lane of its own.
# `0x1f` alone is one segment of 32. With `0x181f` bits 3 and 4 stay, so segments have 8 lanes.
#
# **Out of range** the lane gets its own `a`, and the predicate `p` is false. `|p` may be left out.
#
# **`members`** has a bit for each lane that takes part, `-1` for all. Every lane that is named must come to this very
# instruction, and every lane that comes must be named.

# %% guess down
guess = predict(
    "07.down",
    "shfl.sync.down, b = 4, c = 0x181f, all lanes. From which lane do these get a "
    "value?",
    two=lesson.number("lane 2"),
    six=lesson.number("lane 6"),
)

# %% four shuffles
SHUFFLE = "shfl.sync.{}.b32 %r2, %r1, {}, {}, -1;"
got = [
    value - 100 for value in lesson.lane_run(SHUFFLE.format("down", 4, 0x181F), "sm_80")
]
guess.reveal(
    two=got[2],
    six=got[6],
    because="6 + 4 is past lane 7, the last of its segment: lane 6 keeps its own.",
)
exchange(
    {
        "down, b = 4, c = 0x1f": ("sm_80", SHUFFLE.format("down", 4, 0x1F)),
        "down, b = 4, c = 0x181f": ("sm_80", SHUFFLE.format("down", 4, 0x181F)),
        "up, b = 1, c = 0": ("sm_80", SHUFFLE.format("up", 1, 0)),
        "idx, b = 5, c = 0x1f": ("sm_80", SHUFFLE.format("idx", 5, 0x1F)),
    }
)

# %% [markdown] after shuffles
# Grey lines are lanes that got their own value back. A sum that goes `down` adds such a value twice in lanes whose
# results nobody reads; a *prefix* sum would be wrong with it, so it asks `p` or compares lane numbers.
#
# Floats travel too: `.b32` moves 32 bits and asks for no type. What you *add* afterwards needs `add.f32`; `add.s32` on
# the bits of two floats is a number, and a wrong one.
#
# What if a lane comes that is not named? On a chip that is undefined. The virtual GPU, asked by `sanitize`, says so:

# %% a lane that is not named
try:
    HALF = "shfl.sync.down.b32 %r2, %r1, 1, 31, 0xffff;"
    lesson.lane_run(HALF, "sm_80", sanitize="synccheck")
except lesson.W2WError as problem:
    print(problem)

# %% [markdown] all lanes at once
# ### One answer from all lanes
#
# Some questions need no tree of shuffles, because one instruction asks all lanes:
#
# | PTX | each lane gets |
# |---|---|
# | `vote.sync.ballot.b32 d, p, members` | a bit for each lane whose predicate is true |
# | `vote.sync.any.pred`, `.all.pred` | whether some, whether all are true |
# | `match.any.sync.b32 d, a, members` | a bit for each lane that gives the same value as itself |
# | `redux.sync.add.s32 d, a, members` | the sum of all, integers; also `min`, `max`, `and`, `or`, `xor` |
#
# Floats have no `redux` but `min` and `max` on sm_100a, so a sum of floats stays a tree of shuffles.
#
# AMD has no `match` and no `redux`. It needs no ballot: on a wave every comparison *is* one. `v_cmp` writes a bit for
# each lane into scalar registers, 64 bits on CDNA. (`s_nop 1` is two cycles in which the wave does nothing; why it
# stands there, the facts of section 16 say.)

# %% guess all lanes
guess = predict(
    "07.collective",
    "Lane i gives i % 4. What does redux.sync.add give in a warp? How many bits are "
    "set in what match.any gives lane 1?",
    total=lesson.number("sum"),
    bits=lesson.number("bits"),
)

# %% one answer from all lanes
FOUR = [lane % 4 for lane in range(64)]
ASKED = {
    "redux.sync.add": ("sm_80", "redux.sync.add.s32 %r2, %r1, -1;"),
    "match.any": ("sm_80", "match.any.sync.b32 %r2, %r1, -1;"),
    "ballot of a == 1": (
        "sm_80",
        "setp.eq.u32 %p1, %r1, 1;\nvote.sync.ballot.b32 %r2, %p1, -1;",
    ),
    "v_cmp, low half": (
        "gfx942",
        "v_cmp_eq_u32_e32 vcc, 1, v1\ns_nop 1\nv_mov_b32_e32 v2, vcc_lo",
    ),
}
one = {n: lesson.lane_run(line, target, FOUR)[1] for n, (target, line) in ASKED.items()}
guess.reveal(
    total=one["redux.sync.add"],
    bits=one["match.any"].bit_count(),
    because="8 times 0 + 1 + 2 + 3, and eight of 32 lanes give a 1.",
)
lesson.table(
    {
        n: {"lane 1 gets": value, "as bits": f"{value:#034b}"}
        for n, value in one.items()
    },
    first="instruction",
)

# %% [markdown] dpp
# ## 16. AMD: DPP, a modifier of ordinary instructions
#
# DPP (data-parallel primitives) is no instruction. It is an encoding of ordinary VALU instructions, in which the
# *first source* comes from another lane: `v_add_f32_dpp v2, v1, v1 row_shr:1` moves and adds at once. A wave is cut
# into **rows** of 16 lanes, and a row into **banks** of 4. Most patterns stay in a row:
#
# | control | source of a lane | where |
# |---|---|---|
# | `quad_perm:[a,b,c,d]` | lane a, b, c or d of its four | all |
# | `row_shl:n`, `row_shr:n` | n lanes higher; n lanes lower, in the row | all |
# | `row_ror:n` | n lanes lower, around the row's end | all |
# | `row_mirror`, `row_half_mirror` | the row, or each half of it, backwards | all |
# | `row_bcast:15`, `row_bcast:31` | lane 15 of each row to the next; lane 31 to all above | gfx9 only |
# | `row_newbcast:n` | lane n of the row | gfx90a and later gfx9 |
# | `row_share:n`, `row_xmask:n` | lane n of the row; own lane XOR n | gfx11, gfx12 |
# | `dpp8:[...]` | any of its eight | gfx11, gfx12 |
#
# `shr` is "shift right": values move to *higher* lanes, as `shfl.up` does it. Three more words say who writes:
#
# - `row_mask:0xa`: bit r allows row r to write; `0xa` is rows 1 and 3. `bank_mask` does so for banks in each row.
# - Without `bound_ctrl`, a lane whose source does not exist **writes nothing**: the register keeps what it held.
# - With `bound_ctrl:0` it gets the number **0** instead. (The 0 is an old spelling: it switches the zero *on*. LLVM's
#   listings write `bound_ctrl:1` for the same.)
# - A source lane that EXEC has switched off counts as one that does not exist. With `shfl`, a lane that does not come
#   has no defined value: `synccheck` calls it AbsentLane.

# %% guess dpp
guess = predict(
    "07.dpp",
    "v_mov_b32_dpp v2, v1 row_shr:1 with all masks 0xf. v2 holds -1 before, lane i "
    "gives 100 + i. What does lane 16 hold afterwards?",
    without=lesson.number("without bound_ctrl"),
    with_it=lesson.number("with bound_ctrl:0"),
)

# %% two shifts in rows
ALL = "row_mask:0xf bank_mask:0xf"
SHIFT = f"v_mov_b32_dpp v2, v1 row_shr:1 {ALL}"
guess.reveal(
    without=lesson.lane_run(SHIFT, "gfx942")[16],
    with_it=lesson.lane_run(f"{SHIFT} bound_ctrl:0", "gfx942")[16],
    because="lane 16 is the first of its row, and nobody is below it there.",
)
exchange(
    {
        "row_shr:1": ("gfx942", SHIFT),
        "row_shr:1 bound_ctrl:0": ("gfx1100", f"{SHIFT} bound_ctrl:0"),
        "row_ror:4": ("gfx1100", f"v_mov_b32_dpp v2, v1 row_ror:4 {ALL}"),
    }
)

# %% [markdown] old value
# Which of the two is right depends on what you do next. In a sum, "keep" in `v_add_f32_dpp v1, v1, v1` leaves a lane
# without a source as it was, which a prefix sum wants. In a `v_mov` into a fresh register, "keep" leaves whatever
# stood there: write a neutral value first, 0 for a sum, -infinity for a maximum.
#
# Rows are the hard part: of the patterns above only `row_bcast` leaves a row. (gfx9 also takes `wave_shr:1` and
# `wave_ror:1`, one lane across the whole wave.) Each family crosses in another way.

# %% across rows
BCAST = "v_mov_b32_dpp v2, v1 row_bcast:15 row_mask:0xa bank_mask:0xf"
try:
    lesson.lane_run(BCAST, "gfx1100")
except lesson.CompileFailed as problem:
    print(problem)
exchange(
    {
        "row_bcast:15 row_mask:0xa": ("gfx942", BCAST),
        "v_permlanex16_b32 v2, v1, 0, 0": ("gfx1201", "v_permlanex16_b32 v2, v1, 0, 0"),
    }
)

# %% [markdown] permlanex16
# `v_permlanex16_b32 v2, v1, s4, s5` is RDNA's: every lane reads from the *other* row of its pair, and 16 times four
# bits in the two scalars say which lane there. All zero is lane 0 of the other row. `s4` serves the lower eight lanes
# of a row, `s5` the upper eight: for "the same place in the other row" they are `0x76543210` and `0xfedcba98`.
#
# > **Facts: what DPP needs on a chip**
# >
# > - On gfx9 two wait states must lie between a VALU instruction that writes a register and a DPP instruction that
# >   reads it, and five after one that writes EXEC. A **wait state** is one instruction, or one cycle of `s_nop`:
# >   `s_nop N` is N + 1 of them. By hand that is `s_nop 1` between the two. (source: LLVM,
# >   GCNHazardRecognizer.cpp, checkDPPHazards)
# > - On gfx942 and gfx950 `v_readlane` or `v_readfirstlane` must not read a vector register in the next
# >   instruction after it was written (1 wait state), and a VALU instruction must not read a scalar register within 2
# >   wait states after a VALU instruction wrote it. (source: LLVM, GCNHazardRecognizer.cpp, hasVDecCoExecHazard)
# > - LLVM's *compiler* inserts these; its *assembler* takes your text as it is. The virtual GPU executes one
# >   instruction after the other and does not model them, so a result never shows that one is missing.
# > - Why rows of 16: GCN's SIMD is 16 lanes wide, and a wave of 64 goes through it in four cycles. `ds_swizzle` and
# >   `ds_bpermute` use the LDS hardware to route values, and touch no LDS memory. (source: [AMD GCN Assembly:
# >   Cross-Lane Operations](https://gpuopen.com/learn/amd-gcn-assembly-cross-lane-operations/))
#
# ## 17. AMD: more ways
#
# | instruction | who chooses the source | through | wait counter |
# |---|---|---|---|
# | DPP | a fixed pattern in the instruction | the VALU's own inputs | nothing |
# | `ds_swizzle_b32` | a fixed pattern in 32 lanes | the LDS hardware, no memory | `lgkmcnt`, `dscnt` |
# | `ds_bpermute_b32` | each lane, by a register: **lane times 4** | the LDS hardware, no memory | `lgkmcnt`, `dscnt` |
# | `v_readlane_b32` | one lane for the wave, to a scalar register | the VALU | nothing |
# | `v_permlane32_swap_b32` (gfx950), `16` (gfx950, gfx1250) | halves of two registers swap | the VALU | nothing |
#
# The first question is therefore: is the pattern fixed? Then DPP or a swap, which wait for no counter. A shuffle
# from C++, where the lane is a number at run time, becomes `ds_bpermute_b32`. Its index is an address in bytes. (A line
# `wait` in these cells stands for the target's wait for LDS: `s_waitcnt lgkmcnt(0)`, on gfx12 `s_wait_dscnt 0`.)

# %% guess bpermute
guess = predict(
    "07.bpermute",
    "Somebody gives ds_bpermute_b32 the lane's number itself as index, and forgets the "
    "factor 4. From which lane does lane 9 get a value?",
    lane=lesson.number("lane"),
)

# %% through the LDS hardware, and without it
FORGOT = "v_lshrrev_b32_e32 v3, 2, v0\nds_bpermute_b32 v2, v3, v1\nwait"
guess.reveal(
    lane=lesson.lane_run(FORGOT, "gfx942")[9] - 100,
    because="byte 9 lies in word 2: no error, a stretched copy of the first 16 lanes.",
)
SWAP = "v_mov_b32_e32 v2, v1\ns_nop 1\nv_permlane32_swap_b32 v2, v1"
SWIZZLE = "ds_swizzle_b32 v2, v1 offset:swizzle(SWAP,16)\nwait"
exchange(
    {
        "ds_bpermute_b32 without the factor 4": ("gfx942", FORGOT),
        "ds_swizzle_b32 offset:swizzle(SWAP,16)": ("gfx942", SWIZZLE),
        "v_permlane32_swap_b32 v2, v1 (v2 is shown)": ("gfx950", SWAP),
        "v_readlane_b32 s8, v1, 7": (
            "gfx1100",
            "v_readlane_b32 s8, v1, 7\nv_mov_b32_e32 v2, s8",
        ),
    }
)

# %% [markdown] which do compilers take
# `v_permlane32_swap_b32 v2, v1` exchanges the upper half of `v2` with the lower half of `v1`: with a copy of one
# value in both, one instruction brings the other half. What does Triton take for a sum over one wave? Here is the
# same `tl.sum` for six targets.


# %% what a sum becomes
@triton.jit
def sum_kernel(x_ptr, y_ptr, N: tl.constexpr):
    tl.store(y_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, N)), 0))


MOVES = ("shfl", "redux", "v_add_f32_dpp", "v_mov_b32_dpp", "v_perml", "v_readl", "ds_")
rows = {}
for target in ("sm_80", "sm_100", "gfx90a", "gfx942", "gfx1100", "gfx1201"):
    lanes = lesson.TARGETS[target].lanes
    args = (torch.ones(lanes), torch.zeros(1))
    compiled = compile_for(sum_kernel, target, args, N=lanes, num_warps=1)
    found = lesson.mnemonics(compiled, starting=MOVES)
    rows[target] = {"lanes": lanes} | dict(found)
lesson.table(rows, first="target", note="Instructions in one wave's sum.")

# %% [markdown] after the sum
# A sum over 32 lanes is five exchanges, over 64 six: each halves what is left. NVIDIA pays each with a `shfl` *and*
# an addition. AMD's DPP folds four or five of them into the additions; one more instruction crosses to the last half,
# and `v_readlane` hands the total over. None of AMD's waits for a counter. The lab's 07.lane_sum and 07.dpp_sum ask
# you for such a tree by hand.
#
# ## 18. Whose element? Operands of matrix instructions
#
# A matrix instruction takes its operands from the registers of *all* lanes of a wave. The manual says which lane
# holds which element: this table is called a **layout**, and the part in one lane a **fragment**. Nothing checks it.
# Registers that are filled in another order give a product of other matrices, without a word.
#
# | instruction | A, B from | C, D in | lanes that work together |
# |---|---|---|---|
# | `mma.sync` | registers | registers | a warp |
# | `wgmma` | A: registers or shared memory; B: shared memory | registers | a warpgroup, 128 threads |
# | `v_mfma` | vector registers or AGPRs | the same | a wavefront of 64 |
# | `v_wmma` (RDNA) | vector registers | vector registers | a wave of 32 |
# | `tcgen05.mma` | A: shared or tensor memory; B: shared memory | tensor memory | one thread issues it |
#
# **Find the lane.** You need no manual to find a place: put a single 1 into one register of one lane of A, fill B with
# ones, and look where the product is not 0. Row $m$ of A meets only row $m$ of D. Two smaller relatives of the lab's
# instructions, `mma.m16n8k8` in float16 and `v_mfma_f32_16x16x4_f32`:

# %% a single one
MMA = """
.reg .f32 %f<8>;
setp.eq.u32 %p1, %r0, 13;            // lane 13 alone
selp.b32 %r3, 0x3c00, 0, %p1;        // gives 1.0, in the low half of its first register
mov.b32 %r4, 0x3c003c00;             // B: all ones
mov.b32 %r5, 0;
mov.f32 %f4, 0f00000000;
mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 \
{%f0, %f1, %f2, %f3}, {%r3, %r5}, {%r4}, {%f4, %f4, %f4, %f4};
cvt.rzi.s32.f32 %r2, %f0;            // look at the first register of D"""
MFMA = """
v_lshrrev_b32_e32 v3, 2, v0
v_cmp_eq_u32_e32 vcc, 21, v3         ; lane 21 alone
v_mov_b32_e32 v8, 1.0                ; B: all ones
s_nop 1
v_cndmask_b32_e64 v3, 0, 1.0, vcc    ; gives 1.0
s_nop 1
v_mfma_f32_16x16x4_f32 v[4:7], v3, v8, 0
s_nop 15                             ; D takes its time, and nothing waits by itself
v_cvt_i32_f32_e32 v2, v5             ; look at the second register of D"""
one = {
    "sm_80": lesson.lane_run(MMA, "sm_80"),
    "gfx942": lesson.lane_run(MFMA, "gfx942"),
}
lesson.lane_figure(one)

# %% [markdown] read the layout
# Lane 13 of NVIDIA: the 1 shows in lanes 12 to 15, so these four share a row of D, and lane 13 holds a piece of that
# row of A. Lane 21 of AMD: the 1 shows in 16 lanes, one row of D lies across 16 lanes, in their *second* register.
# Four lanes for a row on one side, sixteen on the other: a fragment of one vendor never fits the other.
#
# To find $k$ as well, put a single 1 into B, too, in one lane after another: the product is 1 only where both have the
# same $k$. So the layout follows by experiment, up to an order of $k$ that A and B share: nobody can see that one.

# %% guess fragment
guess = predict(
    "07.fragment",
    "The same mma with the 1 in lane 17 in place of lane 13. In which lanes does D "
    "show it?",
    first=lesson.number("first lane"),
    last=lesson.number("last lane"),
)

# %% the 1 in lane 17
shown = lesson.lane_run(MMA.replace("%r0, 13", "%r0, 17"), "sm_80")
lanes = [lane for lane, value in enumerate(shown) if value]
guess.reveal(
    first=lanes[0],
    last=lanes[-1],
    because="four lanes share a row; lane 17 is in the fifth group of four.",
)
lesson.operand_figure("mma.m16n8k8.f16", operand="D", lane=17)

# %% [markdown] the explorer
# The explorer has the layouts of all matrix instructions of this course, each checked against execution. Choose an
# instruction and an operand; an element shows its lane, register and half, and a lane shows its elements, as above.

# %% explore operands
explore("operands", "v_mfma_f32_32x32x8_f16", operand="D", row=9, column=5)

# %% [markdown] reading layouts
# Three things to try:
#
# 1. **Can a product feed the next one?** Compare D of `mma.m16n8k16.f16` with the left half of its A, and D of
#    `v_mfma_f32_16x16x16_f16` with its B. Each element lies in the same lane. So attention can round the scores to
#    float16 and multiply again, with no exchange between lanes at all.
# 2. **Then do the same for `v_mfma_f32_32x32x8_f16`**: does its D still match its B? (B has 8 rows, D 32: take eight
#    at a time.)
# 3. Compare A with B of one MFMA: the same table, with rows and columns exchanged.
#
# **An order of $k$ that A and B share does not matter.** The product sums over $k$; who permutes both operands alike
# gets the same sum. So an experiment cannot tell such orders apart, and a kernel may choose the one that loads best.
#
# ## 19. Inside a wave: in step or not?
#
# Lanes 0 and 1 exchange through shared memory: each writes its word, then reads its neighbour's. One wave, no barrier.

# %% through shared memory
LDS_PTX = """
.shared .align 8 .b32 buffer[32];
mov.u32 %r3, buffer;
shl.b32 %r4, %r0, 2;
add.u32 %r3, %r3, %r4;               // the address of my word
st.shared.u32 [%r3], %r1;
// HERE
xor.b32 %r4, %r3, 4;                 // of my neighbour's
ld.shared.u32 %r2, [%r4];"""
LDS_AMD = """
ds_write_b32 v0, v1
v_xor_b32_e32 v3, 4, v0
ds_read_b32 v2, v3
wait"""

# %% [markdown] in step
# - **AMD**: a wavefront has one program counter. All 64 lanes write, then all read; LDS instructions of one wave come
#   back in order. The machine code is right as it stands. A *compiler* must still be told, or it moves the read up:
#   HIP's `__syncwarp()` is there for it and may leave no instruction.
# - **NVIDIA, until Pascal**: the same, and much code relied on it.
# - **NVIDIA, since Volta**: *independent thread scheduling*. Each lane has its own program counter. Lanes that took a
#   branch together may come out of it apart, and nothing promises that lane 1 has written when lane 0 reads. What
#   promises it is `bar.warp.sync members`, which is `__syncwarp()`: it waits for the lanes, and orders their memory.
#
# `activemask.b32` says who happens to be here *now*. It is a measurement, not an agreement: two lanes that will both
# come may find themselves apart. So the mask of a shuffle is decided from the data (a ballot before the branch), never
# by asking who is around.
#
# Here lanes 0 to 15 take one way and the others another, and each asks on its own.

# %% who is here
ASK = """
setp.lt.u32 %p1, %r0, 16;
@%p1 bra LOW;
activemask.b32 %r2;
bra JOIN;
LOW:
activemask.b32 %r2;
JOIN:"""
got = [value & 0xFFFFFFFF for value in lesson.lane_run(ASK, "sm_80")]
lesson.table({f"lane {lane} sees": f"{got[lane]:#010x}" for lane in (0, 15, 16, 31)})

# %% [markdown] each side
# On the virtual GPU each side sees its own half. A chip may split them further, at any branch.
#
# The tool `lockstep` of the virtual GPU looks for what relies on lanes going in step.

# %% guess lockstep
RIGHT, RACE = "right", "Race"
guess = predict(
    "07.lockstep",
    "Under lockstep on the virtual sm_80, how does the exchange through shared "
    "memory end?",
    bare=lesson.choice(RIGHT, RACE, label="as it stands"),
    synced=lesson.choice(RIGHT, RACE, label="with bar.warp.sync -1 at HERE"),
)

# %% lockstep
ends = {}
for name, text, tool in (
    ("sm_80, bare, no tool", LDS_PTX, False),
    ("sm_80, bare, lockstep", LDS_PTX, "lockstep"),
    (
        "sm_80, synced, lockstep",
        LDS_PTX.replace("// HERE", "bar.warp.sync -1;"),
        "lockstep",
    ),
    ("gfx942, bare, no tool", LDS_AMD, False),
):
    try:
        got = lesson.lane_run(text, name.split(",")[0], sanitize=tool)
        ends[name] = RIGHT if got[:2] == [101, 100] else "wrong"
    except lesson.W2WError as problem:
        ends[name] = type(problem).__name__
        print(problem)
guess.reveal(
    bare=ends["sm_80, bare, lockstep"],
    synced=ends["sm_80, synced, lockstep"],
    because="nothing but going in step stood between store and load.",
)
lesson.table(ends)

# %% [markdown] the lock again
# Without the tool the bare version is right: the virtual GPU, like many a chip on many a day, runs these lanes
# together. "It passes" shows nothing here.
#
# ### The lock, one floor down
#
# Lesson 03 had a lock that hung on `gfx942` and not on `sm_80`. Now you can read why. Every lane wants to add 1 under
# one lock. Two ways to write it by hand for AMD; what differs is where the work stands.

# %% two locks by hand
HEAD = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_mov_b32_e32 v0, 0
  v_mov_b32_e32 v2, 1                  ; the new value of the lock
  v_mov_b32_e32 v3, 0                  ; the value we hope for: free
  s_mov_b64 s[8:9], exec
  s_waitcnt lgkmcnt(0)
AGAIN:
  global_atomic_cmpswap v4, v0, v[2:3], s[4:5] sc0
  s_waitcnt vmcnt(0)""".strip("\n")
WORK = """
  buffer_inv sc1                       ; acquire
  global_load_dword v5, v0, s[6:7]
  s_waitcnt vmcnt(0)
  v_add_u32_e32 v5, 1, v5
  global_store_dword v0, v5, s[6:7]
  buffer_wbl2 sc1                      ; release
  s_waitcnt vmcnt(0)
  global_atomic_swap v0, v0, s[4:5]""".strip("\n")
BEHIND = f"""
{HEAD}
  v_cmp_ne_u32_e32 vcc, 0, v4          ; who has NOT got it
  s_and_b64 exec, exec, vcc            ; asks again; the others are off
  s_cbranch_execnz AGAIN
  s_mov_b64 exec, s[8:9]               ; all together
{WORK}
  s_endpgm"""
INSIDE = f"""
{HEAD}
  v_cmp_eq_u32_e32 vcc, 0, v4          ; who HAS got it
  s_and_saveexec_b64 s[8:9], vcc       ; works now; the others are off
  s_cbranch_execz NOBODY
{WORK}
NOBODY:
  s_andn2_b64 exec, s[8:9], exec       ; off: who has worked
  s_cbranch_execnz AGAIN
  s_endpgm"""
SPIN_PTX = """
  .reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [lock_ptr];
  ld.param.u64 %rd2, [count_ptr];
AGAIN:
  atom.global.cas.b32 %r1, [%rd1], 0, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra AGAIN;                      // who has NOT got it asks again
  fence.acq_rel.gpu;
  ld.global.u32 %r2, [%rd2];
  add.u32 %r2, %r2, 1;
  st.global.u32 [%rd2], %r2;
  fence.acq_rel.gpu;
  atom.global.exch.b32 %r3, [%rd1], 0;
  ret;"""

# %% guess the locks
HANGS = "hangs"
guess = predict(
    "07.lock",
    "64 threads, each adds 1 under the lock. Which of the three end?",
    behind=lesson.choice(RIGHT, HANGS, label="gfx942, work behind the loop"),
    inside=lesson.choice(RIGHT, HANGS, label="gfx942, work inside the loop"),
    spin=lesson.choice(RIGHT, HANGS, label="sm_80, work behind the loop"),
)


# %% three locks
def locked(target, text):
    """How 64 threads under one lock end."""
    lock, count = (torch.zeros(1, dtype=torch.int32) for _ in range(2))
    kernel = lesson.by_hand("lock", "lock_ptr count_ptr", text, target)
    try:
        kernel.run(64, [lock, count], sanitize=False)
    except lesson.W2WError as problem:
        print(problem)
        return HANGS
    return RIGHT if count.item() == 64 else "wrong"


ends = {
    "gfx942, work behind the loop": locked("gfx942", BEHIND),
    "gfx942, work inside the loop": locked("gfx942", INSIDE),
    "sm_80, work behind the loop": locked("sm_80", SPIN_PTX),
}
behind, inside, spin = ends.values()
guess.reveal(
    behind=behind,
    inside=inside,
    spin=spin,
    because="who has the lock must get to the line that frees it, while others ask.",
)
lesson.table(ends, note="hangs: StepLimit after 2,000 rounds.")

# %% [markdown] why it hangs
# `BEHIND` switches the winner off and keeps asking with the other 63. They ask for ever: the lock is held by a lane
# that is off. `INSIDE` lets the winner work and free the lock *within* the round. In C++ you write one loop, and the
# compiler chooses where the work lands, before or after the branch back: so source alone does not tell whether it
# hangs. On `sm_80` the winner has a program counter of its own, and the virtual GPU gives it its turn, as a chip
# since Volta must.
#
# > **Facts: lanes and time**
# >
# > - Since Volta the state of execution, program counter and call stack, is kept for each thread, and code that
# >   relies on lanes going in step must say so by `__syncwarp()`. (source: [NVIDIA, Volta Tuning
# >   Guide](https://docs.nvidia.com/cuda/archive/11.0_GA/pdf/Volta_Tuning_Guide.pdf), Independent Thread Scheduling)
# > - `match.sync` waits until all lanes of the mask that have not exited have executed it, and is undefined for a lane
# >   that is not in its own mask. (source: [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/),
# >   match.sync)
# > - The count of threads of a barrier must be a multiple of the warp size. (source: [PTX
# >   ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/), barrier)
#
# ## 20. Between waves: barriers with names
#
# `bar.sync 0` waits for the whole block. PTX has sixteen such barriers, and each may have a count: `bar.sync 1, 64` is
# barrier 1 for 64 threads, two warps. That lets *roles* in one block meet without the others: warps that load, warps
# that multiply. AMD's `s_barrier` has no number and no count: it is for all waves of the block. gfx12 splits it, as
# section 10 showed, and there -1 is the block's barrier; its assembler also takes other numbers.
#
# In this block of four warps, warps 0 and 1 exchange words, and warps 2 and 3 leave early.

# %% pairs of warps
PAIRS = """
  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
  .shared .align 4 .b32 buffer[128];
  ld.param.u64 %rd1, [out_ptr];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, buffer;
  shl.b32 %r2, %r0, 2;
  add.u32 %r3, %r1, %r2;
  st.shared.u32 [%r3], %r0;
  setp.ge.u32 %p1, %r0, 64;
  @%p1 bra DONE;                       // warps 2 and 3 have other work
  BARRIER
  xor.b32 %r4, %r2, 128;               // the same lane of the other warp
  add.u32 %r4, %r1, %r4;
  ld.shared.u32 %r5, [%r4];
  mul.wide.u32 %rd2, %r0, 4;
  add.u64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r5;
DONE:
  ret;"""

PAIRS_AMD = """
  s_load_dwordx2 s[4:5], s[0:1], 0x0
  v_lshlrev_b32_e32 v1, 2, v0
  ds_write_b32 v1, v0
  v_cmp_gt_u32_e32 vcc, 128, v0
  s_and_saveexec_b64 s[6:7], vcc
  s_cbranch_execz DONE                 ; waves 2 and 3 have other work
  s_waitcnt lgkmcnt(0)
  s_barrier
  v_xor_b32_e32 v2, 0x100, v1          ; the same lane of the other wave
  ds_read_b32 v3, v2
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v3, s[4:5]
DONE:
  s_endpgm"""

# %% guess barriers
MISSED, STUCK = "a barrier missed", "a deadlock"
ENDS = (RIGHT, "a race", MISSED, STUCK)
guess = predict(
    "07.named",
    "Each of these stands at BARRIER in turn. How does the block end under the "
    "sanitizers? (Missed: a thread ends without a barrier of the whole block. "
    "Deadlock: the count of a barrier never fills.)",
    warp=lesson.choice(*ENDS, label="bar.warp.sync -1"),
    block=lesson.choice(*ENDS, label="bar.sync 0"),
    two=lesson.choice(*ENDS, label="bar.sync 1, 64"),
    three=lesson.choice(*ENDS, label="bar.sync 1, 96"),
)

# %% five barriers
KINDS = {"Race": "a race", "MissedBarrier": MISSED, "BarrierDeadlock": STUCK}


def paired(target, text, half):
    """How a block of four waves ends, of which two exchange: `half` threads."""
    out = torch.zeros(half, dtype=torch.int32)
    try:
        lesson.by_hand("pairs", "out_ptr", text, target, 1024).run(2 * half, [out])
    except lesson.W2WError as problem:
        return KINDS[type(problem).__name__]
    return RIGHT if out[0] == half // 2 and out[half // 2] == 0 else "wrong"


ends = {}
for line in ("bar.warp.sync -1;", "bar.sync 0;", "bar.sync 1, 64;", "bar.sync 1, 96;"):
    ends[f"sm_80: {line}"] = paired("sm_80", PAIRS.replace("BARRIER", line), 64)
warp, block, two, three = ends.values()
guess.reveal(
    warp=warp,
    block=block,
    two=two,
    three=three,
    because="a warp's barrier orders no other warp; 0 is for all 128; 96 never come.",
)
ends["gfx942: s_barrier"] = paired("gfx942", PAIRS_AMD, 128)
lesson.table(ends)

# %% [markdown] stop after lanes
# The two missed rows are stricter than a chip. There a barrier waits for the threads that have not exited (CUDA's guide
# says so), and both would get through. `synccheck` reports them all the same: half a block that skips its barrier is
# most often a mistake.
#
# ### Stop
#
# **What you have.** Four shuffles and what a lane gets out of range; DPP with its masks and its "keep or zero"; the
# ways through the LDS hardware; a single 1 that finds a layout; three ends of a lock; barriers with names.
# You can do 07.lane_sum, 07.dpp_sum, 07.mma_layout and 07.barriers of the lab now.

# %% third stop
lesson.sitting("07", 3)

# %% [markdown] deepseek
# # Sitting 4: 20 of 132 SMs
#
# ## 21. A headline
#
# > **Claim and fact: "DeepSeek bypassed CUDA"**
# >
# > - **The claim.** Headlines said that DeepSeek-V3 was trained without CUDA, in PTX. (source: such as [this
# >   one](https://janusai.pro/deepseek-v3-paper-details-how-to-bypass-the-cuda-monopoly/), "how to bypass the CUDA
# >   monopoly")
# > - **What the report says.** Section 3.2.2 names PTX, for the kernels that move tokens between GPUs: they use
# >   customised PTX instructions and a chunk size that is tuned automatically, to use less of the L2 and to disturb
# >   other SMs less. (source: [DeepSeek-V3 report](https://arxiv.org/abs/2412.19437), 3.2.2)
# > - **What these kernels have.** 20 SMs of the 132 of an H800, split into 10 channels. Between nodes InfiniBand
# >   gives 50 GB/s, inside of a node NVLink 160 GB/s, 3.2 times as much. (source: [DeepSeek-V3
# >   report](https://arxiv.org/abs/2412.19437), 3.2.2)
# > - **What PTX is.** A documented part of CUDA: nvcc makes it of every CUDA C++ kernel, and `asm` in CUDA C++ takes
# >   it. (source: [NVIDIA, CUDA compiler driver](https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/); [inline
# >   PTX assembly](https://docs.nvidia.com/cuda/inline-ptx-assembly/))
# > - So a few instructions in a few kernels were chosen by hand, in a language that is CUDA's own. That is engineering
# >   one floor down, and no way around CUDA.
#
# Two questions remain, and both can be worked on here. What can be said in PTX that CUDA C++ does not say? And what do
# 20 SMs cost, and buy?
#
# ## 22. A load that says where it wants to live
#
# DeepSeek published such kernels later, as DeepEP. Its first version reads what other GPUs have written with this:
#
# ```text
# ld.global.nc.L1::no_allocate.L2::256B
# ```
#
# | word | says |
# |---|---|
# | `.nc` | through the path for data that nobody writes while the kernel runs ("non-coherent") |
# | `.L1::no_allocate` | do not keep it in the L1 |
# | `.L2::256B` | let the L2 fetch 256 bytes |
#
# Data that is read once should not push out what the matrix product next door reads again and again: that is the
# cache policy of the report. But the data *is* being written, by another GPU. `.nc` promises the opposite.
#
# > **Facts: the instruction in DeepEP**
# >
# > - Its authors call it an undefined-behaviour use of PTX: reading volatile data through `.nc`. With
# >   `.L1::no_allocate` they tested it to be right on Hopper, and guess why: the non-coherent cache is the L1 there,
# >   and nothing of it is kept. (source: [deepseek-ai/DeepEP](https://github.com/deepseek-ai/DeepEP), docs/legacy.md,
# >   "Undefined-behavior PTX usage")
# > - Without `.L1::no_allocate` results could be wrong. A build flag, `DISABLE_AGGRESSIVE_PTX_INSTRS=1`, takes
# >   `ld.volatile.global` instead. (source: [deepseek-ai/DeepEP](https://github.com/deepseek-ai/DeepEP), docs/legacy.md
# >   and csrc/kernels/legacy/utils.cuh)
# > - A comment there says what SASS it becomes: `LDG.E.NA.[width].CONSTANT`. (source:
# >   [deepseek-ai/DeepEP](https://github.com/deepseek-ai/DeepEP), csrc/kernels/legacy/utils.cuh)
#
# You can check that comment, with `ptxas`. NVIDIA documents SASS by little more than names, so read its words as
# ptxas's translation of yours: `STRONG.GPU` marks an access that other SMs must see, `CONSTANT` one through the
# read-only path, `NA` one that is not kept in the L1.

# %% a copy by hand
COPY = """
  .reg .b32 %r<8>; .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [x_ptr];
  ld.param.u64 %rd2, [out_ptr];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd3, %r0, 16;
  add.u64 %rd4, %rd1, %rd3;
  add.u64 %rd5, %rd2, %rd3;
  LOAD.v4.s32 {%r1, %r2, %r3, %r4}, [%rd4];
  STORE.v4.s32 [%rd5], {%r1, %r2, %r3, %r4};
  ret;"""
PAIRS_OF_WORDS = {
    "plain": ("ld.global", "st.global"),
    "DeepEP": ("ld.global.nc.L1::no_allocate.L2::256B", "st.global.L1::no_allocate"),
    "its fallback": ("ld.volatile.global", "st.volatile.global"),
    "acquire, release": ("ld.acquire.gpu.global", "st.release.gpu.global"),
}

# %% guess policy
guess = predict(
    "07.policy",
    "Which words does ptxas put into the SASS of these loads for sm_90?",
    constant=lesson.yes_no("CONSTANT in DeepEP's load"),
    kept=lesson.yes_no("NA in DeepEP's load"),
    strong=lesson.yes_no("STRONG in DeepEP's load"),
    fallback=lesson.yes_no("STRONG in its fallback"),
)


# %% what ptxas makes of the copies
def sass_of(load, store):
    """The loads, stores and orders in the SASS of a copy, which is executed, too."""
    body = COPY.replace("LOAD", load).replace("STORE", store)
    parameters, target = "x_ptr out_ptr", "sm_90"
    kernel = lesson.by_hand("copy", parameters, body, target, built_for="sm_90a")
    x, out = torch.arange(128, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    kernel.run(32, [x, out])
    lines = lesson.sass(kernel).splitlines()
    words = [line.split()[0] for line in lines if line.split()]
    kept = [word for word in words if word.startswith(("LDG", "STG", "MEMBAR", "CCTL"))]
    return {"SASS": "; ".join(kept), "copied": torch.equal(x, out)}


rows = {name: sass_of(*words) for name, words in PAIRS_OF_WORDS.items()}
deepep, fallback = (
    rows[name]["SASS"].split(";")[0] for name in ("DeepEP", "its fallback")
)
guess.reveal(
    constant="CONSTANT" in deepep,
    kept="NA" in deepep,
    strong="STRONG" in deepep,
    fallback="STRONG" in fallback,
    because=".nc asks for the read-only path; volatile asks that others be seen.",
)
lesson.table(rows, first="copy", note="copied: executed on the virtual sm_90.")

# %% [markdown] what it bought
# The comment holds: `LDG.E.NA`, `CONSTANT`, and the 256 bytes as `LTC256B`. The last row is for section 24: an acquire
# of PTX is a load and then `CCTL.IVALL` (cache control, invalidate all), and a release is `MEMBAR` and then the store.
# AMD writes the same two things as `buffer_inv sc1` and as `buffer_wbl2 sc1` with a wait.
#
# "Executed" shows little here: the virtual GPU has no L1, so it cannot tell whether a stale line would be read. Nor can
# `ptxas`. That is why a build flag exists: on another chip, test again, or use the strong load.
#
# CUDA C++ has functions for a part of this (`__ldcs`, `__ldcg`), and clang has `__builtin_nontemporal_load`, for HIP
# too. Triton has two arguments. What do they become on both sides?


# %% cache words of Triton
@triton.jit
def cache_kernel(
    x_ptr, y_ptr, WORD: tl.constexpr, EVICT: tl.constexpr, N: tl.constexpr
):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i, cache_modifier=WORD, eviction_policy=EVICT)
    tl.store(y_ptr + i, x)


def load_words(target, word, evict):
    """The modifiers of the load."""
    args = (torch.zeros(1024), torch.zeros(1024))
    options = {"WORD": word, "EVICT": evict, "N": 1024}
    found = listing(cache_kernel, target, args=args, **options).only("x = tl.load")
    load = next(i.text for i in found.columns[0].instructions if "load" in i.kind)
    if target.startswith("sm"):
        return (
            load.split(" {")[0]
            .split()[-1]
            .removeprefix("ld.global")
            .removesuffix(".v4.b32")
        )
    return " ".join(load.split("offen")[1].split()) if "offen" in load else load


ASKED = {
    "nothing": ("", ""),
    'cache_modifier=".cg"': (".cg", ""),
    'cache_modifier=".cv"': (".cv", ""),
    'eviction_policy="evict_first"': ("", "evict_first"),
}
lesson.table(
    {
        name: {t: load_words(t, *words) or "-" for t in ("sm_90", "gfx942", "gfx950")}
        for name, words in ASKED.items()
    },
    first="asked for",
    note="-: the plain load.",
)

# %% [markdown] words are hints
# `.cg` caches a load in the L2 and not in the L1 (source: PTX ISA, cache operators); on `gfx942` it is `sc0 nt`,
# where `nt` marks data as non-temporal: used once (source: LLVM, user guide for the AMDGPU backend, memory model of
# gfx942). `.cv`, "read it anew", is `sc0 sc1` there, and on NVIDIA this Triton drops the word. `evict_first` is
# nothing at all on AMD in this version. Read the listing before you believe a hint.
#
# ## 23. What 20 SMs cost
#
# An SM that copies does not multiply. Take one layer's work on an H800: it must send some megabytes to other nodes, and
# multiply. Give $n$ SMs to communication. Then
#
# - **communication** takes bytes / min(n x what one SM moves, what the link carries): it falls with $n$, until the link
#   is full;
# - **multiplying** takes its time on all SMs, times SMs / (SMs - n): it rises with $n$;
# - both run side by side, so the slower one counts.

# Two figures come from the registry. That 20 SMs just fill the link is an assumption, and 700 µs of multiplying are
# made up.

# %% figures of the model
h800, infiniband = CHIPS["H800"], lesson.LINKS["InfiniBand NDR"]
SMS, LINK = h800.units.value, infiniband.gb.value  # GB/s
ONE_SM = LINK / 20  # assumed: 20 SMs just fill the link, 2.5 GB/s each
lesson.sourced({"SMs of an H800": h800.units, "InfiniBand, one way": infiniband.gb})

# %% guess price
guess = predict(
    "07.price",
    "40 MB to send, and 700 µs of multiplying on all 132 SMs. How long do both take, "
    "one after the other, if all SMs send first? And side by side with n = 20?",
    sequential=lesson.number("one after the other", unit="µs", factor=1.02),
    split=lesson.number("side by side, n = 20", unit="µs", factor=1.02),
)


# %% time over n
def sending(n, megabytes):
    return megabytes / min(n * ONE_SM, LINK) * 1000  # MB / (GB/s) is ms; now µs


def multiplying(n, alone=700.0):
    return alone * SMS / (SMS - n)


guess.reveal(
    sequential=sending(SMS, 40) + multiplying(0),
    split=max(sending(20, 40), multiplying(20)),
    because="800 + 700; and 700 x 132 / 112 is 825, which is longer than 800.",
)
few, more = range(4, 61, 2), range(12, 61, 2)
lesson.curves(
    {
        "sending 40 MB": [(n, sending(n, 40)) for n in more],
        "sending 10 MB": [(n, sending(n, 10)) for n in few],
        "multiplying": [(n, multiplying(n)) for n in few],
    },
    "µs",
    xlabel="SMs for communication",
)

# %% [markdown] read the picture
# Look for the place where the *higher* of two curves is lowest. For 40 MB it is near 20: there the link is full, and
# every further SM only slows the product. For 10 MB it is near 6, long before the link is full. So **20 is no property
# of a chip**: it is the answer for one amount of bytes, one amount of FLOPs, one link. Half the bytes (FP8 in place of
# BF16), a faster link or copies that need no SM, and the answer is another one.
#
# At $n = 20$ the product takes 132 / 112 = 1.18 times as long. It buys 1,500 µs down to 825.
#
# Two things are left out here, and the lab's 07.sm_partition has both. Work comes in whole **tiles**, and the last
# round of tiles rarely fills all SMs: so the time is a staircase, and giving away one SM may cost nothing, or a whole
# round. And sometimes the best split is none: all send, then all multiply.

# %% [markdown] between blocks
# ## 24. Between blocks: release and acquire
#
# Blocks have no barrier. They speak through global memory, and there two things are needed:
#
# - **release**: all I have written until now is visible *before* the flag that I raise;
# - **acquire**: all I read from now on is read *after* the flag that I saw.
#
# Each has a **scope**: who must see it. A block (`.cta`, workgroup), a GPU (`.gpu`, agent), all GPUs and the host
# (`.sys`, system). The wider, the further data must travel: PTX says it in a modifier, and AMDGCN by instructions of
# their own. `buffer_wbl2 sc1` writes back what lies changed in the L2 (an MI300X has eight of them), `s_waitcnt
# vmcnt(0)` waits until it is done, `buffer_inv sc1` drops from this CU's cache what may be old. `sc0` and `sc1`
# are gfx942's words for the scope: `sc0` the workgroup, `sc1` the agent, both the system. On an atomic `sc0` says
# something else: give the old value back. (source: LLVM, [AMDGPUUsage](https://llvm.org/docs/AMDGPUUsage.html), memory
# model of gfx942)

# %% guess release
BEFORE, AFTER = "before the atomic", "after it"
guess = predict(
    "07.release",
    "An atomic raises or reads a flag on gfx942. Where must these stand?",
    wait=lesson.choice(BEFORE, AFTER, label="write back and wait, for a release"),
    drop=lesson.choice(BEFORE, AFTER, label="drop the cache, for an acquire"),
)


# %% what release and acquire become
@triton.jit
def flag_kernel(data_ptr, flag_ptr, SEM: tl.constexpr):
    tl.store(data_ptr, 1.0)
    tl.atomic_xchg(flag_ptr, 1, sem=SEM, scope="gpu")


ORDER = ("atom", "fence", "global_atomic", "s_wait", "buffer_", "global_inv")


def beside_the_atomic(target, sem):
    """The instructions of the atomic's line that order something, without operands."""
    args = (torch.zeros(1), torch.zeros(1, dtype=torch.int32))
    found = listing(flag_kernel, target, args=args, SEM=sem, num_warps=1)
    texts = [each.text for each in found.only("tl.atomic_xchg").columns[0].instructions]
    words = [text.removeprefix("@%p1 ").split(" v")[0].split(" %")[0] for text in texts]
    return [word for word in words if word.startswith(ORDER)]


TARGETS = ("sm_90", "gfx90a", "gfx942", "gfx1100", "gfx1201")
SEMS = ("relaxed", "release", "acquire")
found = {
    target: {sem: beside_the_atomic(target, sem) for sem in SEMS} for target in TARGETS
}
released, acquired = found["gfx942"]["release"], found["gfx942"]["acquire"]
guess.reveal(
    wait=BEFORE if "atomic" in released[-1] else AFTER,
    drop=AFTER if "buffer_inv" in acquired[-1] else BEFORE,
    because="a flag may not overtake the data, and a read may not overtake the flag.",
)
lesson.table(
    {
        t: {sem: "; ".join(words) for sem, words in row.items()}
        for t, row in found.items()
    },
    first="target",
)

# %% [markdown] persistent kernel
# So the same order costs other instructions on each chip. On PTX it is one word; what `ptxas` makes of it, section 22
# showed. gfx90a and RDNA write nothing back here, for all CUs share one L2: they wait, and drop what nearer caches
# hold. Note how `relaxed` names nothing beside the atomic: it is indivisible, and that is all.
#
# ## 25. A persistent kernel with roles
#
# How does one *give* an SM to something? Launch as many programs as the chip has SMs, let each stay until all is done
# (a **persistent** kernel), and let its number say what it does: a **role**. Senders put tiles into a ring of slots,
# the others take them out. Two flags for each slot: *full*, there is data; *empty*, there is room.

# %% the kernel with roles
lesson.code(lesson.roles_kernel.fn)

# %% [markdown] read the roles
# Read it in this order. (`communication` 0 means no roles: all send, with a slot for every tile, then all compute.)
#
# 1. `if (pid < communication)`: the role. Tile $t$ uses slot $t$ mod `slots`, by senders and takers alike, so nobody
#    must ask.
# 2. A sender waits until its slot has been emptied as often as it was filled, copies, and raises `full` with a release.
# 3. A taker waits with an acquire until the slot is full for its turn, computes, and raises `empty` with a release: the
#    *reader* releases too, since only then may the slot be overwritten.
# 4. `tl.debug_barrier()` before each atomic: all waves of the program have stored (or read) before one lane says so.
# 5. All programs must be on the chip **at the same time**: one that waits for a program that has not begun waits for
#    ever. So never launch more than fit. The virtual GPU lets a waiting program rest and starts the next; a chip does
#    not.
#
# Waiting is an atomic that adds 0: a plain load in such a loop may be moved out of it by a compiler.

# Release and acquire stand in its machine code. Raising `full`, and one round of waiting for it, on both
# vendors:

# %% release and acquire in the roles
from_roles = {"TILE": 256, "PUBLISH": "release", "WAIT": "acquire"}
words, numbers = torch.zeros(4, dtype=torch.int32), (24, 4, 2, 8)
args = (torch.zeros(1024), torch.zeros(1024), words, words, torch.zeros(24), words)
found = listing(
    lesson.roles_kernel, "sm_90", "gfx942", args=(*args, *numbers), **from_roles
)
found.only("atomic_add(full_ptr", kinds=("global atomic", "global load", "barrier"))

# %% [markdown] read the two flags
# The compiler knows that adding 0 changes nothing, so waiting became a load that acquires: `ld.global.gpu.acquire`, or
# `global_load_dword ... sc1` and `buffer_inv sc1`. Raising is an atomic that releases: `buffer_wbl2 sc1` stands before
# it. The `bar.sync` and `s_barrier` beside them are Triton's: all waves of a program go through a round together.
#
# Eight programs now, two of them senders.

# %% guess roles
guess = predict(
    "07.roles",
    "8 programs, of which 2 send; 24 tiles. How many tiles does the busiest sender "
    "send, and how many does the busiest of the others compute?",
    sent=lesson.number("sent"),
    computed=lesson.number("computed"),
)

# %% eight programs, two roles
run = lesson.roles_run(programs=8, communication=2, tiles=24, target="gfx942")
guess.reveal(
    sent=run.most_sent,
    computed=run.most_computed,
    because="24 over 2, and 24 over the 6 others.",
)
lesson.table(run.rows, first="gfx942")

# %% [markdown] rounds
# "Rounds waited" counts turns of the waiting loops. They depend on how the virtual GPU takes turns, so they are no
# time; but they show *who* waits for whom. Now change one thing, how many send.

# %% several splits
table = {}
for n in (1, 2, 4, 7):
    row = {}
    for target in ("sm_90", "gfx942"):
        run = lesson.roles_run(programs=8, communication=n, tiles=24, target=target)
        row[f"{target}: right"] = run.right
        row[f"{target}: most computed"] = run.most_computed
        row[f"{target}: senders waited"] = sum(run.rounds[:n])
        row[f"{target}: others waited"] = sum(run.rounds[n:])
    table[n] = row
lesson.table(table, first="senders")

# %% [markdown] the splits
# The ring has four slots, so senders wait for room in every row. With one or two senders some of the others wait for
# data, too. With four or more none of them does: the senders wait for
# room instead, the longer the fewer compute. A queue makes both visible: in a real kernel you count such rounds, and
# move the border. `most computed` is the staircase of the model: 24 tiles over 7, 6, 4 and 1 programs, rounded up.
#
# ## 26. A flag that comes too early
#
# What if the flag is raised without a release? Then the data may still be on its way when the flag is seen. Here
# program 0 hands 256 numbers to program 1. The knob is the memory order, `sem`, of each of the two
# atomics.


# %% handing over
@triton.jit
def hand_over(data_ptr, flag_ptr, out_ptr, RAISE: tl.constexpr, READ: tl.constexpr):
    i = tl.arange(0, 256)
    if tl.program_id(0) == 0:
        tl.store(data_ptr + i, i * 1.0)
        tl.debug_barrier()
        tl.atomic_xchg(flag_ptr, 1, sem=RAISE)
    else:
        while tl.atomic_add(flag_ptr, 0, sem=READ) == 0:
            pass
        tl.debug_barrier()
        tl.store(out_ptr + i, tl.load(data_ptr + i))


def handed(target, raised, read):
    """How the hand-over ends."""
    data, out = torch.zeros(256), torch.zeros(256)
    flag = torch.zeros(1, dtype=torch.int32)
    try:
        with virtual_gpu(target, step_limit=1000):
            hand_over[(2,)](data, flag, out, RAISE=raised, READ=read)
    except lesson.W2WError as problem:
        if (target, read) == ("gfx942", "acquire"):
            print(problem, end="\n\n")
        return type(problem).__name__
    return "right" if out[255] == 255 else "wrong"


# %% guess flags
guess = predict(
    "07.flag",
    "How does it end on sm_90?",
    first=lesson.choice("right", "Race", label="relaxed, relaxed"),
    second=lesson.choice("right", "Race", label="release, relaxed"),
    third=lesson.choice("right", "Race", label="relaxed, acquire"),
    fourth=lesson.choice("right", "Race", label="release, acquire"),
)

# %% four orders
ORDERS = [(a, b) for a in ("relaxed", "release") for b in ("relaxed", "acquire")]
ends = {}
for raised, read in ORDERS:
    row = {t: handed(t, raised, read) for t in ("sm_90", "gfx90a", "gfx942", "gfx1100")}
    ends[f"{raised}, {read}"] = row
guess.reveal(
    first=ends["relaxed, relaxed"]["sm_90"],
    second=ends["release, relaxed"]["sm_90"],
    third=ends["relaxed, acquire"]["sm_90"],
    fourth=ends["release, acquire"]["sm_90"],
    because="order needs both ends: one publishes, the other takes over.",
)
lesson.table(ends, first="raised, read")

# %% [markdown] both ends
# Only both together are right everywhere. Two cells of the table are right with one half alone, and both are luck. On
# `gfx1100` the barrier before the flag already waits for the stores, for a reason of its own (`s_waitcnt_vscnt`). On
# `gfx90a` a polling load looks like a volatile one, and the virtual GPU lets it pass. The source is wrong on both,
# and the next compiler owes you nothing. Test on several targets: the strictest one finds it.
#
# The report names both programs, and what is missing *between* them.
#
# ### In C++: fences
#
# `sem=` is Triton's. CUDA C++ and HIP have the fence `__threadfence()`, between plain or relaxed accesses. It says both
# things at once, for the whole GPU. In lesson 03's lock one stands between the store and the release of the lock. What
# is it on each target?

# %% what a fence becomes
LOCK = (lesson.unit_folder("03") / "kernels" / "lock_turns.cu").read_text()


def fence(target):
    """The instructions between the store of the count and the exchange of the lock."""
    lines = [line.strip() for line in lesson.compile_cpp(LOCK, target).asm.splitlines()]
    code = [line.rstrip(";") for line in lines if line and line[0].isalpha()]
    found = enumerate(code)
    last = next(at for at, line in found if "_swap" in line or "exch" in line)
    stores = [at for at in range(last) if "_store" in code[at] or "st.gl" in code[at]]
    return "; ".join(code[stores[-1] + 1 : last])


lesson.table({target: fence(target) for target in ("sm_80", "gfx942", "gfx1100")})

# %% [markdown] after fences
# On gfx942: write back and wait, *and* drop. `membar.gl` is PTX's word for it, and gfx1100 has nothing to write back. A
# fence is a release and an acquire in one. It orders what stands before it against what stands behind it **in the
# thread that runs it**. So a block's other threads need a barrier on the right side of it, the reader needs one as well
# as the writer, and a ring whose slots come back has a second direction in which somebody can be too early. The queue
# of 07.fix_race is in C++.
#
# ## 27. And with fewer
#
# If SMs for communication are a price, the next step is to pay less.
#
# > **Facts: SMs and CUs for communication**
# >
# > - DeepEP V2 takes 4 to 6 SMs where the first version took 24, for training as in V3, at the same or better speed,
# >   and computes their number in place of tuning it. (source:
# >   [deepseek-ai/DeepEP](https://github.com/deepseek-ai/DeepEP), README)
# > - DeepEP's kernels for low latency take no SM while messages are on their way: the network card moves them, and a
# >   hook receives. (source: [deepseek-ai/DeepEP](https://github.com/deepseek-ai/DeepEP), docs/legacy.md)
# > - AMD's counterpart is MORI. Eight MI300X in a node: 307 GB/s for dispatch and 330 GB/s for combine, with 80 of 304
# >   CUs. (source: [ROCm/mori](https://github.com/ROCm/mori), docs/MORI-EP-GUIDE.md)
# > - Over two nodes its README had both numbers of CUs side by side, kernel EP16-V1 over the network: 32 CUs, 57 GB/s
# >   dispatch and 52 GB/s combine; 80 CUs, 63 and 49 GB/s. (source: [ROCm/mori](https://github.com/ROCm/mori), README
# >   at 05bb5f4)
#
# The last item is our picture, measured by others: two and a half times the CUs bought a tenth in one direction and
# nothing in the other. Where the link is full you pay and get nothing.
#
# ### Stop
#
# **What you have.** A headline taken apart; a load whose words you can read down to SASS; the price of an SM; a queue
# with two flags; a race that half an order does not mend. You can do 07.fix_race and 07.sm_partition
# now.

# %% last stop
lesson.sitting("07", 4)

# %% [markdown] summary
# ## Summary
#
# - PTX is written for one thread, with as many registers as it likes; AMDGCN for one wave, and it is the machine code.
#   Under PTX stands SASS, where `ptxas` has chosen registers, order and predicates.
# - On AMD a count says which loads are waited for; in SASS a scoreboard does. A barrier waits for waves, not for data.
# - Inline assembly: a constraint for each register, `=&v` when a result is written while sources are still to be read.
# - What did not fit into registers shows in AMDGCN and in SASS, not in PTX: ask `lesson.resources`.
# - A shuffle names lane, clamp and segment in two numbers; out of range a lane gets its own value. All named lanes
#   come.
# - DPP is a modifier: the first operand of an ordinary instruction from another lane of the row. Without `bound_ctrl` a
#   lane without source keeps its register, with it it gets 0. Crossing rows differs by family.
# - `ds_bpermute` takes bytes, and like `ds_swizzle` waits for the LDS counter; DPP, `readlane` and the swaps wait for
#   none.
# - A layout says which lane holds which element. A single 1 finds it. An order of $k$ that A and B share is free.
# - AMD's waves are in step; NVIDIA's lanes are not, since Volta. Where the work of a lock stands decides whether it
#   ends.
# - Release before the flag, acquire behind it, both with a scope. On AMD they are write-backs, waits and invalidations;
#   on NVIDIA `MEMBAR` and `CCTL`.
# - Custom PTX in DeepSeek is a cache policy in communication kernels. 20 of 132 SMs is the answer of one balance, and
#   moves with bytes, FLOPs and links.
#
# **The payoff.** You started with a Triton kernel and its listing. Now you can say of each instruction who executes it,
# what it waits for, and what would break without it; and you can write one yourself where the compiler's words end. The
# lab ends with your own `sm_partition` beside the kernel with roles.
#
# ## Read next
#
# - NVIDIA, [PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/): shfl.sync, redux.sync, match.sync, mma,
#   memory consistency model.
# - AMD, [instruction set architectures](https://gpuopen.com/amd-isa-documentation/), such as that of CDNA3: DPP, MFMA
#   and its layouts, manually inserted wait states.
# - LLVM, [user guide for the AMDGPU backend](https://llvm.org/docs/AMDGPUUsage.html): the memory model of each target
#   as tables of instructions.
# - AMD, [matrix instruction calculator](https://github.com/ROCm/amd_matrix_instruction_calculator): layouts of MFMA and
#   WMMA by element.
# - [AMD GCN Assembly: Cross-Lane Operations](https://gpuopen.com/learn/amd-gcn-assembly-cross-lane-operations/).
# - [deepseek-ai/DeepEP](https://github.com/deepseek-ai/DeepEP) and [ROCm/mori](https://github.com/ROCm/mori): kernels
#   with roles, in C++ and PTX, and in HIP.
#
# ## Check yourself
#
# Answer first, then open.
#
# <details><summary>Four loads are under way, and you need the oldest. Which wait on gfx942, and on gfx1201?</summary>
#
# <code>s_waitcnt vmcnt(3)</code>, <code>s_wait_loadcnt 3</code>: three may stay under way.
# </details>
#
# <details><summary>A text for <code>v_perm_b32</code> with two results is right on one target and wrong on the next.
# Why?</summary>
#
# Its first result may lie in the register of a source that the second line still reads: <code>=&v</code>.
# </details>
#
# <details><summary><code>shfl.sync.up.b32 d, a, 1, 0, -1;</code> and lane 0?</summary>
#
# It is out of range and gets its own <code>a</code>; a predicate <code>|p</code> would be false there.
# </details>
#
# <details><summary><code>v_add_f32_dpp v1, v1, v1 row_shr:1</code> without <code>bound_ctrl</code>: lane 32?</summary>
#
# The first lane of its row has no source, so it writes nothing: <code>v1</code> stays.
# </details>
#
# <details><summary>A sum over 64 lanes without a memory counter. Which instructions?</summary>
#
# DPP inside the rows, <code>row_bcast</code> across them on gfx9, and <code>v_readlane</code>; none of them goes
# through the LDS hardware.
# </details>
#
# <details><summary>A and B of one MFMA are filled with k in reverse order, both. What comes out?</summary>
#
# The same product: a sum over k in another order.
# </details>
#
# <details><summary>Warps 0 and 1 of four call <code>__syncthreads()</code> in an <code>if</code>. What should stand
# there?</summary>
#
# A named barrier with a count, <code>bar.sync 1, 64</code>; on AMD another shape of kernel, since
# <code>s_barrier</code> is for all waves.
# </details>
#
# <details><summary>A flag is raised with release and polled with a relaxed atomic. What can go wrong?</summary>
#
# The reads behind the loop may take old data: nothing says that they come after the flag.
# </details>
#
# <details><summary>Twice the SMs for communication, and nothing is faster. Two reasons?</summary>
#
# The link was full already; or the product, with fewer SMs, has become the slower part.
# </details>
#
# Now open [lab 07](../labs/07_ptx_and_amdgcn.ipynb).
