"""The wrong answers to 07.fix_race: (name, what is changed to what in the solution or all of it, hint)."""

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
_FENCED_WAIT = "    while (atomicAdd(counter, 0) < value) {\n    }\n    __threadfence();"
_UNEQUAL = ("atomicAdd(counter, 0) < value", "atomicAdd(counter, 0) != value")
_THREAD_0_RAISES = f"  if (threadIdx.x == 0) {{\n{_FENCED_RAISE}\n  }}"

_FENCE, _BARRIER = "__threadfence();", "__syncthreads();"


def _waits(counter: str, value: str, fence: str = _FENCE, barrier: str = _BARRIER) -> str:
    asks = f"while (atomicAdd(&queue.{counter}[slot], 0) < {value}) {{ }}"
    return f"  if (threadIdx.x == 0) {{ {asks} {fence} }}\n  {barrier}\n"


def _raises(counter: str, fence: str = _FENCE, barrier: str = _BARRIER) -> str:
    return f"  {barrier}\n  if (threadIdx.x == 0) {{ {fence} atomicAdd(&queue.{counter}[slot], 1); }}\n"


_SENDS = "  double_tile(queue.ring + slot * WORDS, x + t * WORDS, t, clock);\n"
_RECEIVES = "  double_tile(out + t * WORDS, queue.ring + slot * WORDS, t, clock);\n"
_ROOM, _FULL = _waits("empty", "turn"), _raises("full")
_DATA, _EMPTY = _waits("full", "turn + 1"), _raises("empty")


def _sides(send: str = _ROOM + _SENDS + _FULL, receive: str = _DATA + _RECEIVES + _EMPTY) -> str:
    """Both functions without helpers, as the lab gives them; right unless something is changed."""
    begin = "  int slot = t % queue.slots, turn = t / queue.slots;\n"
    return (
        f"__device__ void send(Queue queue, const float *x, int t, int *clock) {{\n{begin}{send}}}\n\n"
        f"__device__ void receive(Queue queue, float *out, int t, int *clock) {{\n{begin}{receive}}}"
    )


Changes = tuple[tuple[str, str], ...]

_THREAD_0_GOES_ON = (
    "Thread 0 raises this counter when its own wave is done, and the other waves may not have begun. All threads of "
    "the block must come to a barrier before it, in send and in receive."
)
_OTHERS_GO_ON = (
    "Thread 0 waits for this counter, and the other waves of the block go on without it. All threads must come to a "
    "barrier behind the wait, in send and in receive."
)
_BARRIER_OF_ONE = (
    "__syncthreads() inside `if (threadIdx.x == 0)` is no barrier: the other threads never come to it. It stands "
    "outside, where all threads of the block pass."
)
_ANY_ROOM = (
    "Right while each tile has a slot of its own. Where a slot is used again, the sender writes over a tile that "
    "its receiver has not read yet. Which counter says that the slot is free?"
)
_TOO_EARLY = (
    "The receiver of the first tile waits for full == 0, which holds before anything was sent. How often has a "
    "slot been filled when its tile number turn (counted from 0) is there?"
)
_TOO_MANY = (
    "The counter rises by the number of threads, and the other side counts turns: it goes on too early, or waits for a "
    "value that is jumped over. Either one thread raises it, or the waiting side counts threads."
)

_BY_FLAG = _sides(
    _waits("full", "0").replace("<", "!=") + _SENDS + _FULL,
    _waits("full", "1").replace("<", "!=")
    + _RECEIVES
    + _raises("full").replace("atomicAdd", "atomicExch").replace(", 1)", ", 0)"),
)

SLIPS: tuple[tuple[str, Changes | str, str], ...] = (
    (
        "as_given",
        AS_GIVEN,
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
        _ANY_ROOM,
    ),
    (
        "forgets_the_turn",
        (("&queue.full[slot], turn + 1", "&queue.full[slot], 1"),),
        "The counters are never set back, so full[slot] > 0 says something about the first tile of a slot only. Tile t "
        "is number t / slots of its slot: how often has it been filled when t is there?",
    ),
    (
        "waits_for_itself",
        (("&queue.empty[slot], turn)", "&queue.empty[slot], turn + 1)"),),
        "No counter ever rises: each side waits for the other, or nobody raises full. All counters are 0 at first, and "
        "then the slots are free. For which value of empty must the first tile of a slot wait?",
    ),
    (
        "one_turn_early",
        (("&queue.full[slot], turn + 1", "&queue.full[slot], turn"),),
        _TOO_EARLY,
    ),
    (
        "every_thread_raises",
        ((_THREAD_0_RAISES, _FENCED_RAISE),),
        _TOO_MANY,
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
            (_FENCED_WAIT, "    while (*(volatile int *)counter < value) {\n    }"),
        ),
        "Only gfx942 shows it: the virtual sm_80 lets a volatile store release, as old code wants, and on gfx1100 the "
        "barrier waits for stores too. volatile makes the compiler do every access; it does not make the other "
        "accesses of a thread visible before it. What orders memory?",
    ),
    (
        "no_acquire_of_room",
        _sides(send=_waits("empty", "turn", fence="") + _SENDS + _FULL),
        "The way of the data is right. The wait for room needs the same fence: what the receiver still reads must come "
        "before what the sender writes.",
    ),
    (
        "no_release_of_room",
        _sides(receive=_DATA + _RECEIVES + _raises("empty", fence="")),
        "The way of the data is right. Before empty rises there must be a fence too: the receiver's reads come first. "
        "gfx1100 does not show it, there a barrier waits for all accesses.",
    ),
    (
        "fences_before_the_barrier",
        _sides(
            _ROOM + _SENDS + f"  if (threadIdx.x == 0) {_FENCE}\n" + _raises("full", fence=""),
            _DATA + _RECEIVES + f"  if (threadIdx.x == 0) {_FENCE}\n" + _raises("empty", fence=""),
        ),
        "Thread 0 fences before the barrier: what the other waves store until then is not covered. Either the fence "
        "of thread 0 stands behind the barrier, or every thread fences before it.",
    ),
    (
        "no_barrier_before_full",
        _sides(send=_ROOM + _SENDS + _raises("full", barrier="")),
        "Look at full. " + _THREAD_0_GOES_ON,
    ),
    (
        "no_barrier_before_empty",
        _sides(receive=_DATA + _RECEIVES + _raises("empty", barrier="")),
        "Look at empty. " + _THREAD_0_GOES_ON,
    ),
    (
        "no_barrier_after_data",
        _sides(receive=_waits("full", "turn + 1", barrier="") + _RECEIVES + _EMPTY),
        "Look at the wait for data. " + _OTHERS_GO_ON,
    ),
    (
        "no_barrier_after_room",
        _sides(send=_waits("empty", "turn", barrier="") + _SENDS + _FULL),
        "Look at the wait for room. " + _OTHERS_GO_ON,
    ),
    (
        "barrier_of_one_thread_after_the_wait",
        _sides(
            _waits("empty", "turn", fence=_FENCE + _BARRIER, barrier="") + _SENDS + _FULL,
            _waits("full", "turn + 1", fence=_FENCE + _BARRIER, barrier="") + _RECEIVES + _EMPTY,
        ),
        "Look at the waits. " + _BARRIER_OF_ONE,
    ),
    (
        "barrier_of_one_thread_before_the_counter",
        _sides(
            _ROOM + _SENDS + _raises("full", fence=_BARRIER + _FENCE, barrier=""),
            _DATA + _RECEIVES + _raises("empty", fence=_BARRIER + _FENCE, barrier=""),
        ),
        "Look at where the counters rise. " + _BARRIER_OF_ONE,
    ),
    (
        "barrier_of_a_wave",
        _sides().replace(_BARRIER, "__syncwarp();"),
        "__syncwarp() joins the lanes of one wave. A block has up to 4 waves: which barrier joins them all?",
    ),
    (
        "waits_for_room_too_late",
        _sides(send=_SENDS + _ROOM + _FULL),
        "The sender waits for room when it has written already. The wait stands before double_tile.",
    ),
    (
        "full_too_early",
        _sides(send=_ROOM + _FULL + _SENDS),
        "full rises before the tile is there. It says that the slot has been filled: so it comes behind double_tile.",
    ),
    (
        "empty_too_early",
        _sides(receive=_DATA + _EMPTY + _RECEIVES),
        "empty rises before the tile was read. It says that the slot has been emptied: so it comes behind double_tile.",
    ),
    (
        "a_flag_without_turns",
        _BY_FLAG,
        "A flag that is set back says that a slot is full, and not whose turn it is: where several senders or "
        "receivers share a slot, one takes the tile of another. Counters that only rise, compared with the turn, tell "
        "them apart.",
    ),
    (
        "asks_once",
        _sides().replace("while (", "if ("),
        "An `if` asks the counter once and goes on, whatever it found. A wait asks until it is high enough.",
    ),
    (
        "never_says_empty",
        _sides(receive=_DATA + _RECEIVES),
        "full rose and empty never did, so the sender of the next turn waits for ever. Does the receiver get through "
        "its wait (for how many fillings?), and does it raise empty then?",
    ),
    (
        "counts_tiles",
        _sides(receive=_waits("full", "t + 1") + _RECEIVES + _EMPTY),
        "full[s] counts how often slot s was filled, not how many tiles were sent. Tile t is number t / slots of its "
        "slot.",
    ),
    (
        "swaps_the_counters",
        _sides(_ROOM + _SENDS + _raises("empty"), _DATA + _RECEIVES + _raises("full")),
        "full and empty are mixed up: empty rose, and full never did. A sender waits for empty and raises full, a "
        "receiver waits for full and raises empty.",
    ),
    (
        "never_waits_for_room_by_unequal",
        (("  wait_for(&queue.empty[slot], turn);\n", ""), _UNEQUAL),
        _ANY_ROOM + " A wait for one exact value can then be jumped over.",
    ),
    (
        "one_turn_early_by_unequal",
        (("&queue.full[slot], turn + 1", "&queue.full[slot], turn"), _UNEQUAL),
        _TOO_EARLY + " A wait for one exact value can then be jumped over.",
    ),
    (
        "every_thread_raises_by_unequal",
        ((_THREAD_0_RAISES, _FENCED_RAISE), _UNEQUAL),
        "The wait never ends: the counter was never seen at that value. " + _TOO_MANY,
    ),
)
