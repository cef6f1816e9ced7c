"""The wrong answers to 07.fix_race: (name, what of the solution is changed to what, hint)."""

from __future__ import annotations

AS_GIVEN = """
__device__ void send(Queue queue, const float *x, int t, int *clock) {
  int slot = t % queue.slots;
  double_tile(queue.ring + slot * WORDS, x + t * WORDS, t, clock);
  if (threadIdx.x == 0) atomicAdd(&queue.full[slot], 1);
}

__device__ void receive(Queue queue, float *out, int t, int *clock) {
  int slot = t % queue.slots, turn = t / queue.slots;
  while (atomicAdd(&queue.full[slot], 0) < turn + 1) {
  }
  double_tile(out + t * WORDS, queue.ring + slot * WORDS, t, clock);
  if (threadIdx.x == 0) atomicAdd(&queue.empty[slot], 1);
}
""".strip("\n")
"""What the lab gives to repair."""

_FENCED_RAISE = "    __threadfence();\n    atomicAdd(counter, 1);"
_FENCED_WAIT = "    while (atomicAdd(counter, 0) != value) {\n    }\n    __threadfence();"
_THREAD_0_RAISES = f"  if (threadIdx.x == 0) {{\n{_FENCED_RAISE}\n  }}"

Changes = tuple[tuple[str, str], ...]

SLIPS: tuple[tuple[str, Changes | None, str], ...] = (
    (
        "as_given",
        None,
        "No fence of the whole GPU stands on either side, as in the kernel that was given: atomicAdd is relaxed, "
        "__syncthreads() and __threadfence_block() speak for one block only. Which function orders memory for all "
        "blocks? Once it is there, look at the waves of a block, and at slots that are used again.",
    ),
    (
        "no_release",
        ((_FENCED_RAISE, "    atomicAdd(counter, 1);"),),
        "The counter can be seen to rise before the data that it speaks of: atomicAdd is relaxed. A fence must stand "
        "between the two, so after the data and before the atomic; one behind the atomic comes too late.",
    ),
    (
        "no_acquire",
        (("    }\n    __threadfence();", "    }"),),
        "The waiting side finds the counter high enough, and may still read data from before: atomicAdd is relaxed "
        "there too. What must stand between the wait and the first use of the data?",
    ),
    (
        "no_barrier_before_the_counter",
        (("__device__ void publish(int *counter) {\n  __syncthreads();", "__device__ void publish(int *counter) {"),),
        "One wave in a block is right, several are not: thread 0 raises the counter when its own wave is done, "
        "and others may not have begun. What makes it wait for them?",
    ),
    (
        "no_barrier_after_the_wait",
        (("  }\n  __syncthreads();\n}", "  }\n}"),),
        "One wave in a block is right, several are not: thread 0 waits for the counter, and the other waves go on "
        "without it. What holds them back?",
    ),
    (
        "never_waits_for_room",
        (("  wait_for(&queue.empty[slot], turn);\n", ""),),
        "Right while each tile has a slot of its own. Where a slot is used again, the sender writes over a tile that "
        "its receiver has not read yet. Which counter says that the slot is free?",
    ),
    (
        "forgets_the_turn",
        (("&queue.full[slot], turn + 1", "&queue.full[slot], 1"), ("!= value", "< value")),
        "The counters are never set back, so full[slot] > 0 says something about the first tile of a slot only. Tile t "
        "is number t / slots of its slot: how often has it been filled when t is there?",
    ),
    (
        "waits_for_itself",
        (("&queue.empty[slot], turn)", "&queue.empty[slot], turn + 1)"),),
        "Nobody ever starts: each side waits for the other. All counters are 0 at first, and then the slots are "
        "free. For which value of empty must the first tile of a slot wait?",
    ),
    (
        "one_turn_early",
        (("&queue.full[slot], turn + 1", "&queue.full[slot], turn"),),
        "The receiver of the first tile waits for full == 0, which holds before anything was sent. How often has a "
        "slot been filled when its tile number turn (counted from 0) is there?",
    ),
    (
        "every_thread_raises",
        ((_THREAD_0_RAISES, _FENCED_RAISE),),
        "The counter rises by the number of threads, and the other side waits for a value that is jumped over. Either "
        "one thread raises it, or the waiting side counts threads.",
    ),
    (
        "polls_by_a_plain_load",
        (("atomicAdd(counter, 0)", "*counter"),),
        "Nothing tells the compiler that another block changes *counter, so it may load it once and never again. Wait "
        "with an atomic (atomicAdd(counter, 0)).",
    ),
    (
        "volatile_for_a_fence",
        (
            (_FENCED_RAISE, "    *(volatile int *)counter = *(volatile int *)counter + 1;"),
            (_FENCED_WAIT, "    while (*(volatile int *)counter != value) {\n    }"),
        ),
        "Only gfx942 shows it: the virtual sm_80 lets a volatile store release, as old code wants, and on gfx1100 the "
        "barrier waits for stores too. volatile makes the compiler do every access; it does not make the other "
        "accesses of a thread visible before it. What orders memory?",
    ),
)
