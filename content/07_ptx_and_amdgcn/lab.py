# %% [markdown] top
# # Lab 07: PTX and AMDGCN
#
# **Two exercises** in this part: waits and barriers. `hint("07.waitcnt")` gives three hints of growing strength;
# `solution("07.waitcnt")` asks first.

# %% imports tags=["setup"]
from gpu_utils import check, hint, progress, solution

# %% [markdown] statement of waitcnt
# ## 07.waitcnt: place the waits
#
# On AMD nothing holds an instruction back until the data of a load is there. Counters count what is under way, and a
# wait lets a wave go on once a counter has fallen to a number. Below is a kernel **without any wait**. Put them in: as
# many as it needs, none more, each as loose as it can be.
#
# | joins the queue of | gfx9: gfx90a, gfx942, gfx950 | gfx11: gfx1100 | gfx12: gfx1201, gfx1250 |
# |---|---|---|---|
# | `global_load` | vmcnt | vmcnt | loadcnt |
# | `global_store` | vmcnt | vscnt | storecnt |
# | `ds_read`, `ds_write` | lgkmcnt | lgkmcnt | dscnt |
# | `s_load` | lgkmcnt | lgkmcnt | kmcnt |
# | a wait is written | `s_waitcnt vmcnt(2)`, `s_waitcnt lgkmcnt(0)` | the same | `s_wait_loadcnt 2`, `s_wait_dscnt 0` |
#
# A queue keeps the order in which a wave has issued its accesses, and its oldest access is done first; on gfx9 loads
# and stores share one. Scalar loads are the exception: they come back in any order. The LDS does all accesses of one
# wave, reads and writes, in the order of issue. A register that an instruction only reads is read when it is issued.
# (sources: LLVM's AMDGPUUsage, memory models, and its pass SIInsertWaitcnts.cpp; AMD's ISA manuals)
#
# Each of 64 threads works on three rows of 64 elements; its partner is the thread whose number differs in the lowest
# bit. `out[r][t]` is `x[r][t] * y[r][t] + x[r][partner]`, in row 2 without `y`. The loads were scrambled by hand:
#
# ```text
#  1  s_load_dwordx2 s[4:5], s[0:1], 0x0            // address of x
#  2  s_load_dwordx2 s[6:7], s[0:1], 0x8            // address of y
#  3  v_lshlrev_b32 v1, 2, v0                       // 4 * thread
#  4  v_xor_b32 v2, 4, v1                           // 4 * partner
#  5  global_load_dword v3, v1, s[4:5]              // x, row 0
#  6  global_load_dword v5, v1, s[6:7] offset:256   // y, row 1
#  7  global_load_dword v4, v1, s[6:7]              // y, row 0
#  8  global_load_dword v6, v1, s[4:5] offset:256   // x, row 1
#  9  s_load_dwordx2 s[8:9], s[0:1], 0x10           // address of out
# 10  ds_write_b32 v1, v3
# 11  ds_read_b32 v7, v2
# 12  v_mul_f32 v3, v3, v4
# 13  global_load_dword v4, v1, s[4:5] offset:512   // x, row 2
# 14  v_add_f32 v3, v3, v7
# 15  global_store_dword v1, v3, s[8:9]             // out, row 0
# 16  ds_write_b32 v1, v6
# 17  ds_read_b32 v9, v2
# 18  v_mul_f32 v6, v6, v5
# 19  ds_write_b32 v1, v4 offset:256
# 20  ds_read_b32 v8, v2 offset:256
# 21  v_add_f32 v6, v6, v9
# 22  global_store_dword v1, v6, s[8:9] offset:256  // out, row 1
# 23  v_add_f32 v4, v4, v8
# 24  global_store_dword v1, v4, s[8:9] offset:512  // out, row 2
# 25  s_endpgm
# ```
#
# `waitcnt(family) -> dict[int, str]`, where `family` is `"gfx9"`, `"gfx11"` or `"gfx12"`: for each line that needs one,
# the wait that stands **before** it. Several waits before one line are lines of one string, `"...\n..."`.
#
# A tiny example of another listing, on gfx9:
#
# | | | under way before it | needs | wait before it |
# |---|---|---|---|---|
# | 1 | `global_load_dword v3, v1, s[4:5]` | nothing | nothing | none |
# | 2 | `global_load_dword v4, v1, s[6:7]` | load 1 | nothing | none |
# | 3 | `v_add_f32 v5, v3, v3` | loads 1 and 2 | load 1 | `s_waitcnt vmcnt(1)` |
# | 4 | `v_add_f32 v5, v5, v4` | load 2 | load 2 | `s_waitcnt vmcnt(0)` |
#
# Its answer is `{3: "s_waitcnt vmcnt(1)", 4: "s_waitcnt vmcnt(0)"}`.
#
# **What is checked**, on all six virtual GPUs of AMD: LLVM's assembler takes the kernel; `waitcheck` finds no line that
# uses a register before its load is done, or names line and load; the numbers are right. Then two counts, both 0 in
# the best answer:
#
# - *accesses waited for early*: for each line, the accesses that are done behind the waits before it, and that could
#   still be under way behind the loosest waits with which this line may run. `s_waitcnt vmcnt(0)` before line 3 of the
#   tiny example makes 1.
# - *waits that hold back nothing*: waits behind which as much is under way as before.


# %% 07.waitcnt tags=["answer", "07.waitcnt"]
def waitcnt(family: str) -> dict[int, str]:
    """The waits of the listing: line -> what stands before it."""
    # BEGIN SOLUTION
    if family == "gfx12":
        return {
            5: "s_wait_kmcnt 0",
            10: "s_wait_loadcnt 3",
            12: "s_wait_loadcnt 1",
            14: "s_wait_dscnt 0",
            15: "s_wait_kmcnt 0",
            16: "s_wait_loadcnt 1",
            19: "s_wait_loadcnt 0",
            21: "s_wait_dscnt 2",
            23: "s_wait_dscnt 0",
        }
    stores = 1 if family == "gfx9" else 0  # line 15's, in the queue of the loads
    return {
        5: "s_waitcnt lgkmcnt(0)",
        10: "s_waitcnt vmcnt(3)",
        12: "s_waitcnt vmcnt(1)",
        14: "s_waitcnt lgkmcnt(0)",
        16: f"s_waitcnt vmcnt({1 + stores})",
        19: f"s_waitcnt vmcnt({stores})",
        21: "s_waitcnt lgkmcnt(2)",
        23: "s_waitcnt lgkmcnt(0)",
    }
    # END SOLUTION


# %% 07.waitcnt check tags=["check", "07.waitcnt"]
check("07.waitcnt")

# %% [markdown] why waitcnt
# **Why it matters.** This is what the compiler's last passes do for every kernel that you launch, and where inline
# assembly goes wrong: LLVM does not look into it. With every number at 0 the kernel is right as well, and each load is
# waited for alone.

# %% [markdown] statement of barriers
# ## 07.barriers: place the barriers
#
# One block of `n` threads turns weights into cumulative shares, as sampling needs them:
#
# $$\text{out}_t = \frac{w_0 + \dots + w_t}{w_0 + \dots + w_{n-1}} \qquad 0 \le t < n$$
#
# It adds in rounds through an array `a` in shared memory: with `d` = 1, 2, 4 and so on below `n`, every thread with
# `t >= d` adds `a[t - d]` to its sum and all write theirs to `a[t]`. With `n` = 4 and weights 1, 2, 3, 4:
#
# | | t = 0 | t = 1 | t = 2 | t = 3 |
# |---|---|---|---|---|
# | a | 1 | 2 | 3 | 4 |
# | after the round with d = 1 | 1 | 3 | 5 | 7 |
# | after the round with d = 2 | 1 | 3 | 6 | 10 |
# | out | 0.1 | 0.3 | 0.6 | 1 |
#
# The kernel is given, **without a barrier**, for both vendors. What stands around these lines loads `w[t]` and stores
# the share. All lines that touch shared memory are here.
#
# ```text
#  1  st.shared.f32 [%r3], %f0;        // a[t] = w[t]
#  2  mov.u32 %r4, 1;                  // d = 1
#  3  ROUND:
#  4  setp.lt.u32 %p1, %r1, %r4;
#  5  @%p1 bra KEEP;                   // if (t >= d) {
#  6  shl.b32 %r5, %r4, 2;
#  7  sub.u32 %r5, %r3, %r5;
#  8  ld.shared.f32 %f2, [%r5];        //   a[t - d]
#  9  add.f32 %f1, %f1, %f2;           //   sum += a[t - d]
# 10  KEEP:                            // }
# 11  st.shared.f32 [%r3], %f1;        // a[t] = sum
# 12  shl.b32 %r4, %r4, 1;             // d = 2 * d
# 13  setp.lt.u32 %p2, %r4, %r2;
# 14  @%p2 bra ROUND;                  // again while d < n
# 15  ld.shared.f32 %f3, [%r6];        // a[n - 1], the total
# ```
#
# ```text
#  1  ds_write_b32 v1, v7                   // a[t] = w[t]
#  2  s_mov_b32 s8, 4                       // d = 1, in bytes
#  3  ROUND:
#  4  v_cmp_le_u32 vcc, s8, v1
#  5  s_and_saveexec_b64 s[10:11], vcc      // if (t >= d) {
#  6  s_cbranch_execz KEEP
#  7  v_sub_u32 v2, v1, s8
#  8  ds_read_b32 v4, v2                    //   a[t - d]
#  9  s_waitcnt lgkmcnt(0)                  //   the sum needs it
# 10  v_add_f32 v3, v3, v4                  //   sum += a[t - d]
# 11  KEEP:                                 // }
# 12  s_or_b64 exec, exec, s[10:11]
# 13  ds_write_b32 v1, v3                   // a[t] = sum
# 14  s_lshl_b32 s8, s8, 1                  // d = 2 * d
# 15  s_cmp_le_u32 s8, s9
# 16  s_cbranch_scc1 ROUND                  // again while d < n
# 17  ds_read_b32 v5, v6                    // a[n - 1], the total
# ```
#
# This is gfx9. On gfx11 and gfx12, with waves of 32, lines 4, 5 and 12 have `vcc_lo`, `_b32`, `s10` and `exec_lo`, and
# gfx12's line 9 is `s_wait_dscnt 0`; the numbers are the same.
#
# `barriers(family) -> dict[int, str]`, where `family` is `"ptx"`, `"gfx9"`, `"gfx11"` or `"gfx12"`: for each line that
# needs something, what stands **before** it; several instructions are lines of one string, `"...\n..."`. An entry
# before a label is passed by those that fall through to it, not by those that jump there.
#
# | | |
# |---|---|
# | `"ptx"` | `bar.sync 0;` waits for the whole block |
# | `"gfx9"`, `"gfx11"` | `s_barrier`, and `s_waitcnt lgkmcnt(0)` where an access of LDS must be done first |
# | `"gfx12"` | `s_barrier_signal -1` and behind it `s_barrier_wait -1`; the wait for LDS is `s_wait_dscnt 0` |
#
# **What is checked**, on all eleven virtual GPUs with 64 to 1,024 threads: the vendor's assembler takes the kernel;
# `racecheck` finds no two waves that meet in shared memory with nothing between them, or names both lines; `synccheck`
# finds nobody who misses a barrier; the shares are right. Then one count: *barriers that a wave comes to* while the
# kernel runs, which must be as few as possible. Waits on AMD are not counted here.


# %% 07.barriers tags=["answer", "07.barriers"]
def barriers(family: str) -> dict[int, str]:
    """Barriers of a family's listing: line -> what stands before it."""
    # BEGIN SOLUTION
    if family == "ptx":
        return {2: "bar.sync 0;", 11: "bar.sync 0;", 12: "bar.sync 0;"}
    barrier, wait = "s_barrier", "s_waitcnt lgkmcnt(0)"
    if family == "gfx12":
        barrier, wait = "s_barrier_signal -1\ns_barrier_wait -1", "s_wait_dscnt 0"
    written = f"{wait}\n{barrier}"  # what is under way does not count as written
    return {2: written, 13: barrier, 14: written}
    # END SOLUTION


# %% 07.barriers check tags=["check", "07.barriers"]
check("07.barriers")

# %% [markdown] why barriers
# **Why it matters.** A race seldom shows: on the virtual GPU all waves of a block run in step, and without a barrier
# the shares may well be right. On a chip it depends on who is fast today. One barrier too many never shows in a
# result either, only in the time: all waves wait for the slowest one.

# %% [markdown] end of the lab
# ## Done

# %% progress
progress()
