"""What a call of a vendor's runtime does to the GPU, told by its name; and which way a copy goes."""

from __future__ import annotations

import re

_SYNC = re.compile(r"Synchronize|Memcpy(?!\w*Async|\w*Batch)(?!\w*Register)")
_LAUNCH = re.compile(r"Launch(Kernel|Cooperative|Grid)|GraphLaunch|LaunchKernel|Memcpy\w*Async|MemcpyBatch|Memset")
_NOT = re.compile(r"LaunchHostFunc|^(cuda|cu|hip)(Graph(?!Launch)|Get|Func|.*Param)|CallConfiguration")

_ENDS = {"h": "host", "d": "device", "host": "host", "device": "device", "a": "device", "p": "device"}
_WAY = re.compile(r"\b(host|device|[hdap])[ _-]*to[ _-]*(host|device|[hdap])\b", re.IGNORECASE)
_PEER = re.compile(r"\b(ptop|peer)\b|peer[ _-]*to[ _-]*peer", re.IGNORECASE)


def call_kind(name: str) -> str:
    """ "launch" for a call that starts work on the GPU, "sync" for one that waits for it, "api" for any other.

    A copy that is not asynchronous waits: cudaMemcpy, and hipMemcpyWithStream, by which torch on ROCm does item().

    >>> [call_kind(name) for name in ("cudaLaunchKernel_v7000", "hipGraphLaunch", "cuMemcpyDtoHAsync_v2", "hipMemsetAsync")]
    ['launch', 'launch', 'launch', 'launch']
    >>> [call_kind(name) for name in ("cudaStreamSynchronize", "hipMemcpyWithStream", "cudaMalloc", "cudaLaunchHostFunc")]
    ['sync', 'sync', 'api', 'api']
    """
    if _NOT.search(name):
        return "api"
    if _LAUNCH.search(name):
        return "launch"
    return "sync" if _SYNC.search(name) else "api"


def direction(text: str) -> str | None:
    """Which way a copy goes, in one form for all tools; None where the text does not say.

    >>> direction("Memcpy HtoD (Pageable -> Device)"), direction("[CUDA memcpy Device-to-Host]")
    ('host to device', 'device to host')
    >>> direction("MEMORY_COPY_DEVICE_TO_DEVICE"), direction("Memcpy PtoP (Device -> Device)"), direction("HtoA")
    ('device to device', 'device to device', 'host to device')
    >>> direction("Memcpy ? (? -> ?)") is None
    True
    """
    found = _WAY.search(text.replace("COPY_", "copy "))
    if found:
        start, end = (_ENDS[part.lower()] for part in found.groups())
        return f"{start} to {end}"
    return "device to device" if _PEER.search(text) else None
