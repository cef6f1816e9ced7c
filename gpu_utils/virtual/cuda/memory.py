"""Memory of the GPU: the bytes of tensors that count as being there. Reserved is allocated: no allocator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Books:
    """allocated, peak: bytes now and at most since the last reset. total: all bytes that were ever allocated."""

    def __init__(self) -> None:
        self.allocated = self.peak = self.total = 0

    def add(self, size: int) -> None:
        self.allocated += size
        self.total += max(size, 0)
        self.peak = max(self.peak, self.allocated)

    def reset(self) -> None:
        self.peak = self.allocated


def stats_of(books: Books) -> dict[str, int]:
    """The entries of torch's memory_stats that can be counted."""
    now, peak = books.allocated, books.peak
    return {
        "allocated_bytes.all.current": now,
        "allocated_bytes.all.peak": peak,
        "allocated_bytes.all.allocated": books.total,
        "allocated_bytes.all.freed": books.total - now,
        "reserved_bytes.all.current": now,
        "reserved_bytes.all.peak": peak,
        "num_alloc_retries": 0,
        "num_ooms": 0,
    }


def functions(books: Books, total: Callable[[], int]) -> dict[str, Callable[..., Any]]:
    """The functions of torch.cuda about memory, by name. total: bytes of the chip's memory, as a function."""

    def allocated(device: Any = None) -> int:
        return books.allocated

    def peak(device: Any = None) -> int:
        return books.peak

    def reset(device: Any = None) -> None:
        books.reset()

    def nothing(*_: Any, **__: Any) -> None:
        return None

    def info(device: Any = None) -> tuple[int, int]:
        return max(0, total() - books.allocated), total()

    def stats(device: Any = None) -> dict[str, int]:
        return stats_of(books)

    def summary(device: Any = None, abbreviated: bool = False) -> str:
        return "\n".join(f"{name:36} {value:>16,}" for name, value in stats_of(books).items())

    return {
        **dict.fromkeys(("memory_allocated", "memory_reserved", "memory_cached", "device_memory_used"), allocated),
        **dict.fromkeys(("max_memory_allocated", "max_memory_reserved", "max_memory_cached"), peak),
        **dict.fromkeys(("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"), reset),
        **dict.fromkeys(("empty_cache", "reset_accumulated_memory_stats", "set_per_process_memory_fraction"), nothing),
        "mem_get_info": info,
        "memory_stats": stats,
        "memory_summary": summary,
    }
