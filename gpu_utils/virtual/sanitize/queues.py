"""On which queue of its wave an op reads or writes shared memory; None: the wave does it itself, in program order."""

from __future__ import annotations

from functools import lru_cache

from gpu_utils.virtual.machine import Op

QUEUES: dict[str, tuple[str, ...]] = {
    "ptx": ("cp.async", "bulk", "bulk store", "wgmma", "tcgen05"),
    "amdgcn": ("lds", "load to lds", "async", "tensor"),
}
"""Instruction set -> the queues of a wave."""


def queue_of(isa: str, op: Op) -> str | None:
    """The queue of the accesses that this op makes to shared memory.

    >>> queue_of("amdgcn", Op(print, "ds_read_b64", "shared")), queue_of("ptx", Op(print, "ld.shared.b32", "shared"))
    ('lds', None)
    """
    name = op.mnemonic
    if isa == "amdgcn":
        if name.startswith(("ds_", "flat_")):
            return "lds"
        if name.startswith("tensor_"):
            return "tensor"
        return "async" if "async" in name else "load to lds"
    if name.startswith(("cp.async.bulk", "cp.reduce.async.bulk")):
        return "bulk store" if ".global.shared" in name else "bulk"
    if name.startswith("cp.async"):
        return "cp.async"
    return next((queue for queue in ("wgmma", "tcgen05") if name.startswith(queue)), None)


@lru_cache(maxsize=64)
def asynchronous(isa: str, ops: tuple[Op, ...]) -> bool:
    """Whether a wave may meet in shared memory what it has put on a queue itself."""
    return any(
        queue_of(isa, op) not in (None, "lds")
        and (isa == "ptx" or op.mnemonic.startswith("tensor_") or "lds" in op.text)
        for op in ops
    )
