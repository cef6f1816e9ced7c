"""Samples of program counters (rocprofv3's PC sampling), summed up for each dispatch: why its waves did not issue.

Docs: "Using PC sampling" of rocprofiler-sdk. A sample names its dispatch and no kernel; `joining` finds that by number.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from gpu_utils.profiling.profile import Event

UNNAMED = "<dispatch {}>"
"""The name of an event of which a file says only the number."""


def sampled(rows: Sequence[Mapping[str, str]], process: int | None) -> tuple[list[Event], list[str]]:
    """One event for each dispatch, and remarks.

    Figures: samples; issued (in which the wave issued an instruction); "stalled: REASON" for the others; lanes of a
    sample (mean); unknown (samples whose instruction could not be told, which count as no stall). Reasons are there
    for stochastic sampling only.
    """
    found: dict[int, Counter[str]] = defaultdict(Counter)
    lanes: Counter[int] = Counter()
    for row in rows:
        dispatch = int(row["dispatch_id"] or 0)
        counts = found[dispatch]
        counts["samples"] += 1
        lanes[dispatch] += bin(_mask(row["exec_mask"])).count("1")
        if not row.get("instruction", "").strip() and row.get("instruction_comment", "").startswith("Unrecognized"):
            counts["samples without a known instruction"] += 1
        elif row.get("wave_issued_instruction", "").strip() in ("1", "true", "True"):
            counts["samples that issued"] += 1
        elif reason := row.get("stall_reason", "").strip():
            counts[f"stalled: {reason.rpartition('REASON_')[2]}"] += 1
    events = []
    for dispatch, counts in found.items():
        event = Event("kernel", UNNAMED.format(dispatch), process=process, number=dispatch)
        for name, many in counts.items():
            event.note(name, many, "rocprofv3: PC sampling", "samples")
        event.note("lanes of a sample", lanes[dispatch] / counts["samples"], "rocprofv3: Exec_Mask, mean", "lanes")
        events.append(event)
    unknown = sum(counts["samples without a known instruction"] for counts in found.values())
    return events, [f"samples whose code nobody knows (no stalls): {unknown}"] if unknown else []


def _mask(text: str) -> int:
    """Exec_Mask: decimal up to 64 bits, or hexadecimal; Python's numbers do not overflow."""
    return int(text, 16) if text.strip().lower().startswith("0x") else int(text or 0)
