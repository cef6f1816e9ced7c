"""What csv, json and databases of AMD's profilers have in common: a dispatch, its figures, its counters, its times.

A grid counts work-items there; here it counts blocks. rocprofv3's csv, generateCSV.cpp and generateJSON.cpp in
ROCm/rocm-systems; counters: counter_defs.yaml.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpu_utils.chips import TARGETS
from gpu_utils.profiling.columns import COLUMNS, ROCPROF
from gpu_utils.profiling.profile import Device, Event, Figure

IMPOSSIBLE = 1e18
"""A count above it is none: a GPU that counts one in each of 100,000 lanes at 2 GHz needs an hour for it."""

PART_GRID = "dispatches whose grid is smaller than one block: their file seems to count blocks, not work-items"
NO_TIME = "without times that can be (0, or an end before the start), so in no total"
NO_VALUE = "values of counters that are none (nan, infinite, negative or impossible), left out"
REPEATED = "values of a counter that came again for one dispatch (replay, or several instances), not summed"
DIFFERENT = "counters with several values for one dispatch, kept as lists under the tool's name"


def plain_name(name: str) -> str:
    """A kernel's name without what marks the code object: " [clone .kd]", " (.kd)", ".kd".

    >>> [plain_name(f"saxpy(int, float*){end}") for end in (" [clone .kd]", " (.kd)", "")]
    ['saxpy(int, float*)', 'saxpy(int, float*)', 'saxpy(int, float*)']
    >>> plain_name("_Z5saxpyiPf.kd")
    '_Z5saxpyiPf'
    """
    return re.sub(r"( \[clone \.kd\]| \(\.kd\)|\.kd)+$", "", name.strip())


def set_times(event: Event, start: int | None, end: int | None, odd: Counter[str]) -> None:
    """Start and end, unless they cannot be; odd counts those."""
    if start is None and end is None:
        return
    if not start or not end or end < start:
        odd[f"{event.kind}s {NO_TIME}"] += 1
    else:
        event.start, event.end = start, end


def set_sizes(
    event: Event, items: Sequence[int | None], threads: Sequence[int | None], source: str, odd: Counter[str]
) -> None:
    """The block, and the grid in blocks, from work-items: three sizes of each, or one product of each."""
    if not items or not threads or None in (*items, *threads) or 0 in threads:
        return
    whole = [(int(i or 0), int(t or 0)) for i, t in zip(items, threads, strict=True)]
    blocks = tuple(-(-item // thread) for item, thread in whole)
    if len(whole) == 3:
        event.note("grid", blocks, f"{source}: Grid_Size in work-items, over Workgroup_Size")
        event.note("block", tuple(thread for _, thread in whole), f"{source}: Workgroup_Size")
    else:
        event.note("blocks", blocks[0], f"{source}: Grid_Size in work-items, over Workgroup_Size")
        event.note("threads", whole[0][1], f"{source}: Workgroup_Size")
    if math.prod(item for item, _ in whole) < math.prod(thread for _, thread in whole):
        odd[PART_GRID] += 1


def note_counter(event: Event, name: str, value: float | None, source: str, odd: Counter[str]) -> None:
    """A counter of a dispatch, in its column or under its own name. A second value is never added in silence."""
    if value is None or not math.isfinite(value) or not 0 <= value < IMPOSSIBLE:
        odd[NO_VALUE] += 1
        return
    counter = ROCPROF.get(name)
    column = name if counter is None else counter.column
    unit = "" if counter is None else COLUMNS[column].unit
    figure = Figure(_whole(value * (1 if counter is None else counter.factor)), unit, f"{source}: {name}")
    held = event.figures.get(column)
    if held is None:
        event.figures[column] = figure
    elif held.source != figure.source:  # two counters of one column: the second under its own name
        event.figures.setdefault(name, Figure(_whole(value), "", figure.source))
    elif held.value == figure.value:
        odd[REPEATED] += 1
    else:
        several = event.figures.pop(column) if isinstance(held.value, list) else held
        values = several.value if isinstance(several.value, list) else [held.value]
        event.figures[column] = Figure([*values, figure.value], unit, figure.source)
        odd[DIFFERENT] += 1


def _whole(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value


def device_of(name: str) -> Device:
    """What the name of an agent gives away: a virtual one names its target."""
    found = re.search(r"gfx[0-9a-f]+", name)
    target = found[0] if found else None
    lanes = TARGETS[target].lanes if target is not None and target in TARGETS else None
    return Device(name, "amd", target, None, lanes, name.lower().startswith("virtual"))


def target_of(version: int) -> str:
    """Gfx_Target_Version of an agent as a target: decimal digits, the last two in hexadecimal.

    >>> [target_of(version) for version in (90402, 90010, 110000, 120001)]
    ['gfx942', 'gfx90a', 'gfx1100', 'gfx1201']
    """
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def agents(rows: Sequence[Mapping[str, Any]]) -> dict[str, Device]:
    """GPUs of an agent list under each name that rocprofv3 may give them: "Agent 1", "GPU 0", "4".

    rows: one an agent; keys in small letters as in rocprofv3's agent_info.csv. `joining` drops names that nobody uses.
    """
    found: dict[str, Device] = {}
    gpus = [row for row in rows if str(row.get("agent_type", "")).upper() in ("GPU", "2") or _is_gfx(row)]
    for at, row in enumerate(gpus):
        name = str(row.get("name") or "")
        device = Device(
            str(row.get("product_name") or row.get("model_name") or name),
            "amd",
            name if name.startswith("gfx") else target_of(_count(row, "gfx_target_version") or 0),
            _count(row, "cu_count"),
            _count(row, "wave_front_size"),
            name.startswith("virtual"),
            _count(row, "num_xcc"),
        )
        logical, node = row.get("logical_node_id"), row.get("node_id")
        for key in (f"Agent {logical}", f"GPU {at}", f"Agent {node}", str(node)):
            found.setdefault(key, device)
    return found


def _is_gfx(row: Mapping[str, Any]) -> bool:
    return str(row.get("name", "")).startswith(("gfx", "virtual"))


def _count(row: Mapping[str, Any], name: str) -> int | None:
    try:
        return int(row.get(name) or 0) or None
    except ValueError:
        return None


def remarks_of(odd: Counter[str]) -> list[str]:
    """One sentence for each kind of oddity, with how many there are."""
    return [f"{what}: {many}" for what, many in odd.items()]
