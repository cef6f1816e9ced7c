"""A persistent kernel with roles: some programs send tiles through a ring in global memory, the others compute on them.

It is executed on virtual GPUs. Tiles are counted; how long anything takes is not, see `roles_run`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from gpu_utils.errors import BadArgument
from gpu_utils.virtual import MODELS, virtual_gpu

TILE = 256
"""Elements of a tile."""

STEP_LIMIT = 20_000


@triton.jit(do_not_specialize=["tiles", "slots", "communication", "programs"])
def roles_kernel(
    x_ptr,
    ring_ptr,
    full_ptr,  # by slot: how many times it has been filled
    empty_ptr,  # by slot: how many times it has been emptied
    out_ptr,
    did_ptr,
    tiles,
    slots,
    communication,
    programs,
    TILE: tl.constexpr,
    PUBLISH: tl.constexpr,
    WAIT: tl.constexpr,
):
    """Programs below `communication` copy tiles into the ring; the others square and sum them.

    Where `communication` is 0, every program first sends its share and then computes its share.
    """
    pid = tl.program_id(0)
    at = tl.arange(0, TILE)
    sent, computed, rounds = 0, 0, 0
    if (pid < communication) | (communication == 0):
        senders = tl.where(communication == 0, programs, communication)
        for tile in range(pid, tiles, senders):
            slot = tile % slots
            while tl.atomic_add(empty_ptr + slot, 0, sem=WAIT) != tile // slots:
                rounds += 1
            x = tl.load(x_ptr + tile * TILE + at)
            tl.store(ring_ptr + slot * TILE + at, x)
            tl.debug_barrier()  # all waves have stored before one lane publishes
            tl.atomic_add(full_ptr + slot, 1, sem=PUBLISH)
            sent += 1
    if pid >= communication:
        for tile in range(pid - communication, tiles, programs - communication):
            slot = tile % slots
            while tl.atomic_add(full_ptr + slot, 0, sem=WAIT) != tile // slots + 1:
                rounds += 1
            x = tl.load(ring_ptr + slot * TILE + at)
            tl.store(out_ptr + tile, tl.sum(x * x))
            tl.debug_barrier()  # all waves have read before the slot is given back
            tl.atomic_add(empty_ptr + slot, 1, sem=PUBLISH)
            computed += 1
    tl.store(did_ptr + 3 * pid, sent)
    tl.store(did_ptr + 3 * pid + 1, computed)
    tl.store(did_ptr + 3 * pid + 2, rounds)


@dataclass(frozen=True)
class RolesRun:
    """What one launch of `roles_kernel` did.

    right    whether every tile has the right sum
    sent, computed, rounds   by program: tiles sent, tiles computed, rounds of its waiting loops
    """

    target: str
    right: bool
    sent: tuple[int, ...]
    computed: tuple[int, ...]
    rounds: tuple[int, ...]

    @property
    def most_sent(self) -> int:
        """Tiles that the busiest sender sent."""
        return max(self.sent)

    @property
    def most_computed(self) -> int:
        """Tiles that the busiest program computed: the rounds of the model, ceil(tiles / programs that compute)."""
        return max(self.computed)

    @property
    def rows(self) -> dict[str, dict[str, object]]:
        """A row for each program, for `lesson.table`."""
        does = {(True, False): "sends", (False, True): "computes", (True, True): "sends, then computes"}
        numbers = zip(self.sent, self.computed, self.rounds, strict=True)
        return {
            f"program {pid}": {
                "role": does.get((sent > 0, computed > 0), "nothing to do"),
                "tiles sent": sent,
                "tiles computed": computed,
                "rounds waited": rounds,
            }
            for pid, (sent, computed, rounds) in enumerate(numbers)
        }


def roles_run(
    programs: int,
    communication: int,
    tiles: int,
    target: str = "sm_90",
    slots: int = 4,
    ordered: bool = True,
) -> RolesRun:
    """Execute the kernel with roles on a virtual GPU.

    programs       programs of the grid, one for each SM or CU
    communication  of these, how many only send; 0: all send first and compute then, with a slot for every tile
    tiles          tiles of 256 float32 numbers, sent in order through the ring
    slots          tiles that the ring holds: a sender waits until a slot was emptied
    ordered        False: flags are raised and read with sem="relaxed", which the virtual GPU reports as a Race

    Rounds that a program waited show who waits for whom. They depend on how the virtual GPU takes turns: they are no
    time.
    Raises BadArgument where nobody would compute, and Race where ordered is False and the machine code orders nothing.

    >>> run = roles_run(programs=5, communication=2, tiles=7)
    >>> run.right, run.sent, run.computed
    (True, (4, 3, 0, 0, 0), (0, 0, 3, 2, 2))
    """
    if not 0 <= communication < programs <= 64 or not 1 <= tiles <= 512 or slots < 1:
        raise BadArgument(
            f"{communication} of {programs} programs for communication, {tiles} tiles, {slots} slots: expected at "
            "least one program that computes, at most 64 programs, 1 to 512 tiles, and a slot"
        )
    if target not in MODELS:
        raise BadArgument(f"{target} has no virtual GPU; there are {', '.join(MODELS)}")
    slots = tiles if communication == 0 else slots
    x = (torch.arange(tiles * TILE) % 17 - 8).float().view(tiles, TILE)
    ring = torch.full((slots, TILE), float("nan"))
    full, empty = torch.zeros(slots, dtype=torch.int32), torch.zeros(slots, dtype=torch.int32)
    out, did = torch.full((tiles,), float("nan")), torch.zeros(programs, 3, dtype=torch.int32)
    publish, wait = ("release", "acquire") if ordered else ("relaxed", "relaxed")
    args = (x, ring, full, empty, out, did, tiles, slots, communication, programs)
    with virtual_gpu(target, step_limit=STEP_LIMIT):
        roles_kernel[(programs,)](*args, TILE=TILE, PUBLISH=publish, WAIT=wait, num_warps=4)
    sent, computed, rounds = (tuple(column) for column in did.T.tolist())
    return RolesRun(target, torch.equal(out, (x * x).sum(dim=1)), sent, computed, rounds)
