"""What learners write in 07.lane_sum, each as the part of the kernel that is theirs, with its hint."""

from __future__ import annotations

_STEP = "  shfl.sync.{way} %f2, %f1, {offset}, {bound}, {mask};\n  add.f32 %f1, %f1, %f2;\n"
_STORE = """  setp.eq.u32 %p2, %r1, {lane};
  mul.wide.u32 %rd4, %r2, 4;
  add.u64 %rd4, %rd2, %rd4;
  @%p2 st.global.f32 [%rd4], %f1;"""

_AS_WHOLE_NUMBERS = "  mov.b32 %r6, %f1;\n{}  mov.b32 %f1, %r6;\n"
_WHOLE_STEP = "  shfl.sync.down.b32 %r7, %r6, {}, 0x1f, 0xffffffff;\n  add.s32 %r6, %r6, %r7;\n"

_SHARED = """  .shared .align 4 .b8 all[128];
  mov.u32 %r6, all;
  shl.b32 %r7, %r1, 2;
  add.u32 %r7, %r6, %r7;
  st.shared.f32 [%r7], %f1;
  bar.sync 0;
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra done;
  mov.u32 %r8, 1;
again:
  add.u32 %r6, %r6, 4;
  ld.shared.f32 %f2, [%r6];
  add.f32 %f1, %f1, %f2;
  add.u32 %r8, %r8, 1;
  setp.lt.u32 %p3, %r8, 32;
  @%p3 bra again;
  mul.wide.u32 %rd4, %r2, 4;
  add.u64 %rd4, %rd2, %rd4;
  st.global.f32 [%rd4], %f1;
done:"""

_ATOMIC = """  mul.wide.u32 %rd4, %r2, 4;
  add.u64 %rd4, %rd2, %rd4;
  red.global.add.f32 [%rd4], %f1;"""

_ONE_BY_ONE = """  mov.f32 %f3, %f1;
  mov.u32 %r8, 1;
again:
  shfl.sync.idx.b32 %f2, %f1, %r8, 0x1f, 0xffffffff;
  add.f32 %f3, %f3, %f2;
  add.u32 %r8, %r8, 1;
  setp.lt.u32 %p3, %r8, 32;
  @%p3 bra again;
  mov.f32 %f1, %f3;
"""

_REDUX = "  redux.sync.add.f32 %f1, %f1, 0xffffffff;\n"


def steps(
    offsets: tuple[int, ...] = (16, 8, 4, 2, 1), way: str = "down.b32", bound: str = "0x1f", mask: str = "0xffffffff"
) -> str:
    """The exchange, one step for each offset."""
    return "".join(_STEP.format(way=way, offset=offset, bound=bound, mask=mask) for offset in offsets)


def storing(value: str) -> str:
    """A part that exchanges nothing that counts, and stores a value; %f9 is what lane 0 had summed before."""
    return f"  mov.f32 %f9, %f1;\n{steps()}{_STORE.format(lane=0)}".replace("], %f1", f"], {value}")


def parts(solution: str) -> dict[str, tuple[str, str]]:
    """Name -> (the learner's part, its hint)."""
    stored = _STORE.format(lane=0)
    return {
        "stops_at_2": (
            steps((16, 8, 4, 2)) + stored,
            "After the step of 2, lane 0 holds the even lanes and lane 1 the odd ones. Which step is still to come?",
        ),
        "starts_at_8": (
            steps((8, 4, 2, 1)) + stored,
            "The steps 8, 4, 2, 1 reach 16 lanes. A warp has 32: what must the first step be?",
        ),
        "starts_at_32": (
            steps((32, 16, 8, 4, 2, 1)) + stored,
            "There are six steps, and the sum is doubled: in one of them each lane gets its own value. Of an offset "
            "only the low five bits count, so 32 is 0. Wavefronts of 64 start at 32; where does a warp of 32 start?",
        ),
        "never_moves": (
            steps(bound="0") + stored,
            "The sum is 32 times that of lane 0: in each step it added its own value. Where a source is out of range, "
            "a lane gets its own. For .down the bound is the last lane, 0x1f; 0 is the bound of .up, and .up gathers "
            "the sum in lane 31. Or is a register added to itself?",
        ),
        "only_lane_31": (
            steps() + _STORE.format(lane=31),
            "The sum is 32 times that of lane 31. With .down sums move towards lane 0, so which lane stores? With .up "
            "they move to lane 31, and the bound is 0, not 0x1f. If lane 0 stores, look whether shfl.sync writes the "
            "register that you then add to, or the addition takes what was moved twice.",
        ),
        "mask_of_16": (
            steps(mask="0xffff") + stored,
            "The last operand is the member mask: it must name every lane that executes the instruction, and here all "
            "32 do. How many bits is that?",
        ),
        "lane_0_alone_shuffles": (
            _one_lane(stored),
            "The shuffles are executed by some of the lanes only, so that the others hand on nothing. All lanes of the "
            "mask must come to shfl.sync; what only one lane does begins after the last of them.",
        ),
        "mask_of_those_with_a_column": (
            "  setp.lt.u32 %p3, %r1, %r3;\n  vote.sync.ballot.b32 %r6, %p3, 0xffffffff;\n" + steps(mask="%r6") + stored,
            "Where a row has fewer than 32 columns, the mask leaves out lanes that had none. They come to shfl.sync "
            "all the same, with 0 in %f1.",
        ),
        "mask_by_activemask": (
            "  activemask.b32 %r6;\n" + steps(mask="%r6") + stored,
            "activemask.b32 says which lanes are together at this moment. The lanes left the loop after different "
            "turns, and on a chip it may be any of them: the mask must say who is meant to come.",
        ),
        "idx_with_an_offset": (
            steps(way="idx.b32") + stored,
            "With .idx the operand is the number of the source lane, for all lanes the same one here: each step adds "
            "one lane's value. Which mode takes a distance?",
        ),
        "sum_in_another_register": (
            steps().replace("add.f32 %f1, %f1, %f2", "add.f32 %f3, %f1, %f2") + stored,
            "Lane 0 stores what it had before the first shuffle. Each addition must write the register that the next "
            "shuffle hands on, and that is stored at the end.",
        ),
        "add_of_whole_numbers": (
            steps().replace("add.f32", "add.s32") + stored,
            "ptxas refuses an addition of whole numbers on registers of floats (.f32): which type must add have?",
        ),
        "without_the_mask": (
            steps().replace(", 0xffffffff", "") + stored,
            "shfl.sync takes five operands: d, a, b, the bound c and the mask. Which one is missing?",
        ),
        "whole_numbers": (
            _AS_WHOLE_NUMBERS.format("".join(map(_WHOLE_STEP.format, (16, 8, 4, 2, 1)))) + stored,
            "The bits of the floats are added as whole numbers. shfl.sync moves 32 bits and does not ask what they "
            "mean; the addition does: which type must add have?",
        ),
        "all_lanes_store": (
            solution.replace("@%p2 st", "st"),
            "More than one lane stores, all to the same address, and which of them is last is not defined. One lane "
            "has the sum for certain: guard the store by a predicate that only this lane has.",
        ),
        "nobody_stores": (
            solution.replace("@%p2 st", "@%p3 st"),
            "The sums are exchanged, and none is stored. Is there an instruction st.global, and is its predicate true "
            "for the lane that has the sum?",
        ),
        "no_row": (
            solution.replace("[%rd4], %f1", "[%rd2], %f1"),
            "Every row stores to y[0]. The address needs the row, %r2, times the size of a float.",
        ),
        "row_not_in_bytes": (
            solution.replace("mul.wide.u32 %rd4, %r2, 4", "cvt.u64.u32 %rd4, %r2"),
            "Addresses count bytes, and a float has four: y[1] lies 4 bytes behind y[0].",
        ),
        "by_shared_memory": (
            _SHARED,
            "Through shared memory the sum is right, and it costs a store, a barrier and 31 loads. The lanes of one "
            "warp can read each other's registers: use shfl.sync.",
        ),
        "by_an_atomic": (
            _ATOMIC,
            "32 atomics on one address wait for each other, and y would have to hold 0 before. Let the lanes of the "
            "warp add up first, by shfl.sync, and store once.",
        ),
        "one_by_one": (
            _ONE_BY_ONE + stored,
            "31 shuffles fetch one value each, and 31 lanes only watch. Let all lanes add at once: 32 sums, then 16, "
            "then 8. How many steps is that?",
        ),
        "redux_of_floats": (
            _REDUX + stored,
            "redux.sync adds whole numbers (and takes minima and maxima); on sm_80 it knows no floats. "
            "Exchange by shfl.sync and add by add.f32.",
        ),
    }


def _one_lane(stored: str) -> str:
    guarded = steps().replace("  shfl", "  @%p2 shfl").replace("  add.f32", "  @%p2 add.f32")
    compare, _, rest = stored.partition("\n")
    return f"{compare}\n{guarded}{rest}"
