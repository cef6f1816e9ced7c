"""What a call of a vendor's runtime does to the GPU, told by its name; and which way a copy goes."""

from __future__ import annotations

import re
from functools import lru_cache

_NEITHER = re.compile(r"Graph(?!\w*Launch)|LaunchHostFunc|Param|Attribute")
_LAUNCH = re.compile(r"Launch|Memcpy\w*(Async|Batch)|Memset")
_SYNC = re.compile(r"Synchronize|Memcpy")

_ENDS = {"h": "host", "d": "device", "a": "device", "p": "device", "host": "host", "device": "device"}
_WAY = re.compile(r"(host|device)[ _-]*to[ _-]*(host|device)|(?<![a-z])([hdap])to([hdap])(?![a-z])", re.IGNORECASE)
_PEER = re.compile(r"peer", re.IGNORECASE)

HIP_KINDS = {"0": "host to host", "1": "host to device", "2": "device to host", "3": "device to device"}
"""hipMemcpyKind, which torch on ROCm writes as a number."""


@lru_cache(maxsize=4096)
def call_kind(name: str) -> str:
    """ "launch" for a call that starts work on the GPU, "sync" for one that waits for it, "api" for any other.

    A copy that is not asynchronous waits: cudaMemcpy, and hipMemcpyWithStream, by which torch on ROCm does item().

    >>> names = "cudaLaunchKernel_v7000", "hipGraphLaunch", "cuMemcpyDtoHAsync_v2", "cudaLaunchKernelExC"
    >>> {call_kind(name) for name in names}
    {'launch'}
    >>> names = "cudaStreamSynchronize", "hipMemcpyWithStream", "cudaGraphAddMemcpyNode", "cudaLaunchHostFunc"
    >>> [call_kind(name) for name in names]
    ['sync', 'sync', 'api', 'api']
    """
    if _NEITHER.search(name):
        return "api"
    if _LAUNCH.search(name):
        return "launch"
    return "sync" if _SYNC.search(name) else "api"


@lru_cache(maxsize=4096)
def direction(text: str) -> str | None:
    """Which way a copy goes, in one form for all tools; None where the text does not say.

    >>> direction("Memcpy HtoD (Pageable -> Device)"), direction("[CUDA memcpy Device-to-Host]")
    ('host to device', 'device to host')
    >>> direction("MEMORY_COPY_DEVICE_TO_DEVICE"), direction("Memcpy PtoP (Device -> Device)"), direction("HtoA")
    ('device to device', 'device to device', 'host to device')
    >>> direction("Memcpy ? (? -> ?)") is None
    True
    """
    found = _WAY.search(text)
    if found:
        start, end = (_ENDS[part.lower()] for part in found.groups() if part)
        return f"{start} to {end}"
    return "device to device" if _PEER.search(text) else None
