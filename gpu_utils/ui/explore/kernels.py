"""A kernel on the rooflines of two chips: what FLOP, bytes and waiting take alone, and which of them bounds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from gpu_utils.analytic.bounds import Bounds, bounds
from gpu_utils.analytic.roofline import Point, Roofline, roofline
from gpu_utils.chips import CHIPS, TARGETS
from gpu_utils.errors import BadArgument, UnknownFigure
from gpu_utils.profiling.profile import Profile
from gpu_utils.ui.explore.drawing import Picture, picture, small, status, table
from gpu_utils.ui.explore.roofline import FORMATS, plot, reason, si
from gpu_utils.ui.explore.widget import Explorer, choice, slider

OWN = "set by the sliders"
LEAST, MOST = 12, 36  # powers of two: bytes
DIMMEST, BRIGHTEST = -4, 12  # powers of two: FLOP per byte
LATENCIES = (50, 2000)  # ns
_WHOLE = {"compute": "arithmetic", "memory": "memory", "latency": "latency"}


def offered(vendor: str) -> list[str]:
    """Chips whose SMs or CUs, bandwidth and some peak have a figure. (RDNA's pairs of CUs are left out.)"""
    return [
        name
        for name, chip in CHIPS.items()
        if chip.vendor == vendor
        and chip.target in TARGETS
        and TARGETS[chip.target].family in ("sm", "gfx9")
        and chip.units.value is not None
        and chip.bandwidth_tb.value is not None
    ]


def in_flight(name: str, occupancy: int, lane_bytes: int) -> float:
    """Bytes that a full chip has asked memory for at a time: units x resident lanes x bytes of a lane.

    occupancy: percent of the waves that an SM or CU can hold; lane_bytes: what each lane has asked for and not got.

    >>> in_flight("A100", 100, 4) == 108 * 64 * 32 * 4
    True
    """
    target, units = TARGETS[CHIPS[name].target], CHIPS[name].units.value
    assert units is not None
    return units * target.waves_per_unit * target.lanes * lane_bytes * occupancy / 100


def kernels_of(what: Any) -> list[Point]:
    """One point for each kernel name, launches added up: of a Profile, a table (`profile.table()`), rows, or Points.

    Rows have "name", "memory_bytes", and where they are known "fp32_flop", "matrix_flop" (FLOP) and "duration" (ns).
    A kernel without bytes has no place on a roofline and is left out.
    Errors: BadArgument for what has no kernel with bytes.
    """
    if isinstance(what, Profile):
        columns = ("memory_bytes", "fp32_flop", "matrix_flop")
        rows: Iterable[Any] = [
            {"name": event.name, "duration": event.duration, **{name: event.value(name) for name in columns}}
            for event in what.kernels
        ]
    else:
        rows = what.to_dict("records") if hasattr(what, "to_dict") else [what] if isinstance(what, Point) else what
    groups: dict[str, list[Point]] = {}
    for row in rows:
        point = row if isinstance(row, Point) else _point(row)
        if point is not None:
            groups.setdefault(point.name, []).append(point)
    if not groups:
        raise BadArgument(
            "no kernel here has bytes of memory; profile again with dram__bytes.sum (ncu) or with FETCH_SIZE and "
            "WRITE_SIZE (rocprofv3)"
        )
    return [_together(name, points) for name, points in groups.items()]


def _point(row: Mapping[str, Any]) -> Point | None:
    moved = _number(row.get("memory_bytes"))
    if not moved:
        return None
    flops = sum(_number(row.get(name)) or 0 for name in ("fp32_flop", "matrix_flop"))
    took = _number(row.get("duration"))
    return Point(str(row["name"]), flops, moved, took / 1e9 if took else None)


def _number(value: Any) -> float | None:
    """pandas has a word of its own for what is not known."""
    try:
        return None if value is None or value != value else float(value)
    except TypeError:
        return None


def _together(name: str, points: Sequence[Point]) -> Point:
    times = [point.seconds for point in points if point.seconds is not None]
    many = f"{name} ({len(points)} launches)" if len(points) > 1 else name
    took = sum(times) if len(times) == len(points) else None
    return Point(many, sum(point.flops for point in points), sum(point.bytes for point in points), took)


def draw(
    given: Sequence[Point],
    *,
    nvidia: str,
    amd: str,
    dtype: str,
    kernel: str,
    size: int,
    intensity: int,
    occupancy: int,
    lane_bytes: int,
    latency: int,
) -> Picture:
    """The kernel on both rooflines, a sentence for each chip, and the three bounds as a table.

    given      kernels with figures of their own; kernel: the name of one of them, or OWN
    size       OWN moves 2 to this power bytes; intensity: and does 2 to this power FLOP for each
    occupancy, lane_bytes  as in `in_flight`; latency: ns

    A kernel with a time stands at what it reached, another one at what the longest bound allows on each chip.
    """
    own = Point("your kernel", 2.0 ** (size + intensity), 2.0**size)
    chosen = next((point for point in given if point.name == kernel), own)
    roofs, points, rows, said, missing = [], [], [], [], []
    for name in (nvidia, amd):
        try:
            roof = roofline(name, dtype)
        except UnknownFigure:
            missing.append(f"{name} has no roofline for {FORMATS[dtype]}: {reason(name, dtype)}.")
            continue
        full = in_flight(name, occupancy, lane_bytes)
        found = bounds(roof, chosen.flops, chosen.bytes, min(full, chosen.bytes), latency / 1e9)
        roofs.append(roof)
        if chosen.seconds is None:
            points.append(Point(f"{chosen.name} on {name}", chosen.flops, chosen.bytes, found.seconds))
        said.append(_sentence(name, roof, chosen, found))
        rows.append(_row(f"{len(points)} {name}" if chosen.seconds is None else name, found, full, chosen))
    if chosen.seconds is not None and roofs:
        points.append(chosen)
        flying = chosen.bytes / chosen.seconds * latency / 1e9
        said.append(f"At {latency} ns its speed means {si(flying)}B in flight at a time (Little's law).")
    words = " ".join([*said, *missing])
    sources = [
        f"{r.name}: peak {si(r.peak)}FLOP/s ({r.sources[0]}), {si(r.bandwidth)}B/s ({r.sources[1]}), "
        f"{CHIPS[name].units.value:g} {CHIPS[name].units.unit} ({CHIPS[name].units.source})"
        for r, name in zip(roofs, [n for n in (nvidia, amd) if CHIPS[n].name in {r.name for r in roofs}], strict=True)
    ]
    assumed = f"The latency is what you set, {latency} ns: no figure of a chip."
    head = ("", "FLOP alone", "bytes alone", "waiting alone", "bound by", "in flight at most", "time")
    return picture(
        "",
        words,
        *(
            [plot(roofs, points, words, [roof.name for roof in roofs] if len(points) == len(roofs) else ())]
            if roofs
            else []
        ),
        status(words),
        table(head, rows) if rows else "",
        after="".join(small(line) for line in [assumed, *sources]),
        spoken=False,
    )


def _sentence(name: str, roof: Roofline, kernel: Point, found: Bounds) -> str:
    """What bounds it and by how much; with a time, how far from that it stayed."""
    others = {"compute": "its bytes or its waiting", "memory": "its FLOP or its waiting", "latency": "FLOP or bytes"}
    fit = f"{found.margin:.3g} times what {others[found.name]} would" if found.margin < 1000 else "nothing else counts"
    if found.name == "latency":
        share = max(found.compute, found.memory) / found.latency
        bound = f"On {name} neither roof bounds it but latency: {_micro(found.latency)}, {share:.0%} of its roof."
    else:
        bound = f"On {name} {_WHOLE[found.name]} bounds it: {_micro(found.seconds)}, {fit}."
    if kernel.seconds is None:
        return bound
    share = roof.seconds(kernel) / kernel.seconds
    if share > 1.005:
        return (
            f"{bound} It took {_micro(kernel.seconds)}, less than the roof allows: another chip, a cache, or a count."
        )
    return f"{bound} It took {_micro(kernel.seconds)}: {share:.0%} of its roof."


def _row(name: str, found: Bounds, full: float, kernel: Point) -> list[object]:
    return [
        name,
        _micro(found.compute),
        _micro(found.memory),
        _micro(found.latency),
        found.name,
        f"{si(min(full, kernel.bytes))}B",
        f"{_micro(kernel.seconds)} (its own)" if kernel.seconds else f"{_micro(found.seconds)} or more",
    ]


def _micro(seconds: float) -> str:
    """
    >>> _micro(12.34e-6), _micro(3.5e-3), _micro(2e-8)
    ('12.3 µs', '3,500 µs', '0.02 µs')
    """
    micro = seconds * 1e6
    return f"{micro:,.0f} µs" if micro >= 100 else f"{micro:.3g} µs"


def explorer(
    *what: Any,
    nvidia: str = "A100",
    amd: str = "MI300X",
    dtype: str = "fp32",
    size: int = 28,
    intensity: int = -2,
    occupancy: int = 50,
    lane_bytes: int = 16,
    latency: int = 500,
) -> Any:
    """Lists for a chip of each vendor, the number format and the kernel; sliders for a kernel of your own.

    what         at most one: a Profile, its table, rows, or Points (see `kernels_of`); its kernels join the list
    nvidia, amd  chips of the registry
    size, intensity, occupancy, lane_bytes, latency: where the sliders start, as in `draw`

    While a kernel with figures of its own is chosen the sliders for bytes and FLOP rest.
    Errors: UnknownName for a chip or a format; BadArgument for a value off its slider, and as for `kernels_of`.
    """
    if len(what) > 1:
        raise BadArgument(f"{len(what)} things were given; expected at most one profile, table or list of kernels")
    given = kernels_of(what[0]) if what else []
    for label, value, low, high in (
        ("size", size, LEAST, MOST),
        ("intensity", intensity, DIMMEST, BRIGHTEST),
        ("occupancy", occupancy, 1, 100),
        ("lane_bytes", lane_bytes, 1, 128),
        ("latency", latency, *LATENCIES),
    ):
        if not low <= value <= high:
            raise BadArgument(f"{label} is {value}; expected {low} to {high}")
    names = [point.name for point in given]
    controls = {
        "nvidia": choice("NVIDIA chip", offered("nvidia"), nvidia),
        "amd": choice("AMD chip", offered("amd"), amd),
        "dtype": choice("number format", [(words, name) for name, words in FORMATS.items()], dtype),
        "kernel": choice("kernel", [*names, OWN], names[0] if names else OWN),
        "size": slider("bytes: 2 to the", size, LEAST, MOST),
        "intensity": slider("FLOP/byte: 2^", intensity, DIMMEST, BRIGHTEST),
        "occupancy": slider("occupancy, %", occupancy, 1, 100),
        "lane_bytes": slider("bytes a lane", lane_bytes, 1, 128),
        "latency": slider("latency, ns", latency, *LATENCIES, 50),
    }

    def rest(_: object = None) -> None:
        for name in ("size", "intensity"):
            controls[name].disabled = controls["kernel"].value != OWN

    controls["kernel"].observe(rest, names="value")
    rest()
    return Explorer(partial(draw, tuple(given)), controls)
