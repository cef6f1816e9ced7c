"""On which queue of its wave an op reads or writes shared memory; None: the wave does it itself, in program order."""

from __future__ import annotations

from functools import lru_cache

from gpu_utils.virtual.machine import Op

QUEUES: dict[str, tuple[str, ...]] = {
    "ptx": (
        "cp.async",
        "bulk",
        "bulk store",
        "wgmma",
        "tcgen05",
        "tensor load",
        "tensor store",
        "fenced",
    ),
    "amdgcn": ("lds", "load to lds", "async", "tensor"),
}
"""Instruction set -> the queues of a wave.

"tensor load" and "tensor store" are tcgen05.ld and .st, which access tensor memory. "fenced" is no queue: its agent
stands for what a wave itself has written and a fence.proxy.async has made visible to the async proxy since. What a wave
knows of it travels with all else that it knows.
"""

ASYNC_PROXY = frozenset({"bulk", "bulk store", "wgmma", "tcgen05"})
"""Queues of PTX whose accesses see what waves have written only behind a fence.proxy.async (PTX manual, "Async Proxy").

cp.async is none of them, and what it has copied needs no such fence to be read by wgmma: CUTLASS writes none there
(sm90_mma_multistage_gmma_ss_warpspecialized.hpp).
"""


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
    if name.startswith("wgmma"):
        return "wgmma"
    return "tcgen05" if name.startswith(("tcgen05.mma", "tcgen05.cp")) else None


@lru_cache(maxsize=64)
def asynchronous(isa: str, ops: tuple[Op, ...]) -> bool:
    """Whether a wave may meet in shared memory what it has put on a queue itself."""
    return any(
        queue_of(isa, op) not in (None, "lds")
        and (isa == "ptx" or op.mnemonic.startswith("tensor_") or "lds" in op.text)
        for op in ops
    )


@lru_cache(maxsize=64)
def proxy_queues(isa: str, ops: tuple[Op, ...]) -> frozenset[str]:
    """The queues of the async proxy that a program uses."""
    return frozenset() if isa != "ptx" else ASYNC_PROXY.intersection(queue_of(isa, op) for op in ops)
