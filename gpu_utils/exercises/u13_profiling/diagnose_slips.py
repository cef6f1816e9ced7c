"""13.diagnose: the rule, and what learners write in its place."""

from __future__ import annotations

from typing import Any

Rows = list[dict[str, Any]]
FEW_LINES, CONFLICTS, FULL, BUSY, SYNCS = 8, 0.3, 50, 0.8, 0.5
"""Sound kernels of the program have at most 4 sectors or lines an instruction, 8% of their passes are conflicts, and at
least 87% of the waves fit. A sound run is busy for at least 91% of its time, one with a fault of the host for at most
69%, or 77% where copies count; a sound one waits once."""


def total(row: dict[str, Any], *names: str) -> float:
    return sum(row[name] or 0 for name in names)


def pieces_per_instruction(row: dict[str, Any]) -> float:
    """32-byte sectors (NVIDIA) or cache lines (AMD) for each load or store of a wave."""
    asked = total(row, "load_requests", "store_requests") or total(row, "load_instructions", "store_instructions")
    return total(row, "load_sectors", "store_sectors", "cache_lines") / asked if asked else 0.0


def conflict_share(row: dict[str, Any]) -> float:
    every = total(row, "shared_passes", "shared_cycles")
    return total(row, "conflict_passes", "conflict_cycles") / every if every else 0.0


def busy_share(events: Rows) -> float:
    """Of the time from the first kernel's start to the last one's end."""
    kernels = [event for event in events if event["kind"] == "kernel"]
    span = max(event["end"] for event in kernels) - kernels[0]["start"]
    return sum(event["end"] - event["start"] for event in kernels) / span


def by_kernel(kernels: Rows, measure: Any) -> dict[str, float]:
    """The largest of a measure over the launches of each kernel."""
    found: dict[str, float] = {}
    for row in kernels:
        found[row["name"]] = max(found.get(row["name"], 0.0), measure(row))
    return found


def largest(found: dict[str, float]) -> str:
    return max(found, key=lambda name: found[name])


def worst(kernels: Rows, measure: Any, limit: float) -> str | None:
    found = by_kernel(kernels, measure)
    name = largest(found)
    return name if found[name] > limit else None


def emptiness(row: dict[str, Any]) -> float:
    return 100 - row["occupancy_limit"]


def of_kernels(kernels: Rows) -> tuple[str, str | None] | None:
    for fault, measure, limit in (
        ("spills", lambda row: row["scratch_bytes"] or 0, 0),
        ("uncoalesced", pieces_per_instruction, FEW_LINES),
        ("bank_conflicts", conflict_share, CONFLICTS),
        ("low_occupancy", emptiness, 100 - FULL),
    ):
        if name := worst(kernels, measure, limit):
            return fault, name
    return None


def syncs_per_kernel(events: Rows) -> float:
    kinds = [event["kind"] for event in events]
    return kinds.count("sync") / kinds.count("kernel")


def of_host(events: Rows) -> tuple[str, str | None]:
    if busy_share(events) > BUSY:
        return ("none", None)
    return ("host_sync" if syncs_per_kernel(events) > SYNCS else "launch_bound", None)


def right(events: Rows, kernels: Rows) -> tuple[str, str | None]:
    return of_kernels(kernels) or of_host(events)


# --- misconceptions ---------------------------------------------------------------------------------------------


def longest_kernel(events, kernels):
    fault, kernel = right(events, kernels)
    time: dict[str, float] = {}
    for row in kernels:
        time[row["name"]] = time.get(row["name"], 0) + row["duration"]
    return fault, largest(time) if kernel else None


def sectors_not_per_request(events, kernels):
    most = by_kernel(kernels, lambda row: total(row, "load_sectors", "store_sectors", "cache_lines"))
    found = right(events, kernels)
    return ("uncoalesced", largest(most)) if found[0] in ("none", "uncoalesced") else found


def loads_only(events, kernels):
    def measure(row):
        asked = total(row, "load_requests") or total(row, "load_instructions")
        return total(row, "load_sectors") / asked if row["load_sectors"] else pieces_per_instruction(row)

    if name := worst(kernels, measure, FEW_LINES):
        return "uncoalesced", name
    found = right(events, kernels)
    return of_host(events) if found[0] == "uncoalesced" else found


def nvidia_only(events, kernels):
    if any(row["load_sectors"] for row in kernels):
        return right(events, kernels)
    found = right(events, kernels)
    return of_host(events) if found[0] in ("uncoalesced", "bank_conflicts") else found


def any_conflict(events, kernels):
    found = right(events, kernels)
    name = worst(kernels, lambda row: total(row, "conflict_passes", "conflict_cycles"), 0)
    return ("bank_conflicts", name) if name and found[0] in ("none", "low_occupancy", "launch_bound") else found


def most_conflicts(events, kernels):
    found = right(events, kernels)
    if found[0] == "bank_conflicts":
        return "bank_conflicts", worst(kernels, lambda row: total(row, "conflict_passes", "conflict_cycles"), 0)
    return found


def full_or_low(events, kernels):
    found = right(events, kernels)
    if found[0] in ("none", "launch_bound", "host_sync") and (name := worst(kernels, emptiness, 0)):
        return "low_occupancy", name
    return found


def idle_is_launch_bound(events, kernels):
    found = right(events, kernels)
    return ("launch_bound", None) if found[0] == "host_sync" else found


def any_wait_is_a_sync(events, kernels):
    waits = any(event["kind"] == "sync" for event in events)
    return of_kernels(kernels) or (("host_sync", None) if waits else ("none", None))


def many_launches(events, kernels):
    found = right(events, kernels)
    if found[0] in ("none", "launch_bound") and len(kernels) > 25:
        return "launch_bound", None
    return found


def kernel_for_the_host(events, kernels):
    found = right(events, kernels)
    return (found[0], kernels[0]["name"]) if found[0] in ("launch_bound", "host_sync") else found


def shared_memory_is_low_occupancy(events, kernels):
    found = right(events, kernels)
    most = by_kernel(kernels, lambda row: row["shared_bytes"] or 0)
    return ("low_occupancy", largest(most)) if found[0] in ("none", "spills", "uncoalesced") else found


def always_something(events, kernels):
    found = right(events, kernels)
    return ("launch_bound", None) if found[0] == "none" else found
