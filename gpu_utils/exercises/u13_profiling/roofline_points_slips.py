"""Roofline points of raw counters by rules, each of which can be wrong. Plain Python: it runs where an answer runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Weights = Mapping[str, float]

VECTOR = {"SQ_INSTS_VALU_ADD_F32": 64, "SQ_INSTS_VALU_MUL_F32": 64, "SQ_INSTS_VALU_FMA_F32": 128}
MATRIX = {"SQ_INSTS_VALU_MFMA_MOPS_F32": 512}
THREADS = {
    f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum": 1 + (op == "ffma") for op in ("fadd", "fmul", "ffma")
}
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
TENSOR = "sm__inst_executed_pipe_tensor.sum"
FLOP: Weights = {**VECTOR, **MATRIX, **THREADS}
BYTES: Weights = {"FETCH_SIZE": 1024, "WRITE_SIZE": 1024, "dram__bytes_read.sum": 1, "dram__bytes_write.sum": 1}
NS: Weights = {"End_Timestamp": 1, "Start_Timestamp": -1, "gpu__time_duration.sum": 1}
OF_WAVES = {name: each / 64 for name, each in VECTOR.items()}
OF_32 = {name: each / 2 for name, each in VECTOR.items()}
FMA_ONCE = {"SQ_INSTS_VALU_FMA_F32": 64, FFMA: 1}
LOW = 0.5


def summed(rows: Sequence[Row], weights: Weights) -> Any:
    """The weighted sum over launches; None where a counter of it is unknown."""
    terms = [(row[counter], weight) for row in rows for counter, weight in weights.items() if counter in row]
    return None if any(count is None for count, _ in terms) else sum(count * weight for count, weight in terms)


def known_only(rows: Sequence[Row], weights: Weights) -> Any:
    return summed([{key: value or 0 for key, value in row.items()} for row in rows], weights)


def without_unknown_launches(rows: Sequence[Row], weights: Weights) -> Any:
    whole = [row for row in rows if not any(row.get(counter, 0) is None for counter in weights)]
    return summed(whole, weights) if whole else None


def mean(rows: Sequence[Row], weights: Weights) -> Any:
    total = summed(rows, weights)
    return None if total is None else total / len(rows)


def last(rows: Sequence[Row], weights: Weights) -> Any:
    return summed(rows[-1:], weights)


def least(flop: float, moved: float, peak: float, bandwidth: float) -> float:
    """Seconds that the roof allows at the least."""
    return max(flop / peak, moved / bandwidth)


def against_the_peak(flop: float, moved: float, peak: float, bandwidth: float) -> float:
    return flop / peak


def against_the_bandwidth(flop: float, moved: float, peak: float, bandwidth: float) -> float:
    return moved / bandwidth


def both_in_turn(flop: float, moved: float, peak: float, bandwidth: float) -> float:
    return flop / peak + moved / bandwidth


def the_smaller(flop: float, moved: float, peak: float, bandwidth: float) -> float:
    return min(flop / peak, moved / bandwidth)


def by_ridge(intensity: float, share: float, peak: float, bandwidth: float) -> str:
    if share < LOW:
        return "neither"
    return "memory" if intensity < peak / bandwidth else "compute"


def turned(intensity: float, share: float, peak: float, bandwidth: float) -> str:
    if share < LOW:
        return "neither"
    return "compute" if intensity < peak / bandwidth else "memory"


def never_neither(intensity: float, share: float, peak: float, bandwidth: float) -> str:
    return "memory" if intensity < peak / bandwidth else "compute"


def upside_down(intensity: float, share: float, peak: float, bandwidth: float) -> str:
    if share < LOW:
        return "neither"
    return "memory" if intensity < bandwidth / peak else "compute"


def above_one(intensity: float, share: float, peak: float, bandwidth: float) -> str:
    """Memory-bound wherever a byte gets less than one FLOP."""
    if share < LOW:
        return "neither"
    return "memory" if intensity < 1 else "compute"


def largest_gain(points: Sequence[dict[str, Any]]) -> str | None:
    known = [point for point in points if point["gain"] is not None]
    return max(known, key=lambda point: point["gain"])["name"] if known else None


def first_by(key: Callable[[dict[str, Any]], float]) -> Callable[[Sequence[dict[str, Any]]], str | None]:
    def first(points: Sequence[dict[str, Any]]) -> str | None:
        known = [point for point in points if point["gain"] is not None]
        return max(known, key=key)["name"] if known else None

    return first


def even_unknown(points: Sequence[dict[str, Any]]) -> str | None:
    """Whoever takes longest among the unknown, for these could gain everything."""
    return max(points, key=lambda point: point["seconds"] if point["gain"] is None else point["gain"])["name"]


def answer(
    flop: Weights = FLOP,
    moved: Weights = BYTES,
    second: float = 1e9,
    add: Callable[[Sequence[Row], Weights], Any] = summed,
    unknown: bool = True,
    tensor: bool = True,
    roof: Callable[[float, float, float, float], float] = least,
    bound: Callable[[float, float, float, float], str] = by_ridge,
    intensity: Callable[[Sequence[Row], float, float], float] | None = None,
    first: Callable[[Sequence[dict[str, Any]]], str | None] = largest_gain,
) -> Callable[..., dict[str, Any]]:
    """An answer with these rules.

    second     ns of a second;  add: how launches become one
    unknown    False: a kernel with a counter that is None is left out
    tensor     False: instructions of the tensor cores are not looked at
    intensity  None: FLOP over bytes of the sums
    """

    def roofline_points(kernels: Sequence[Row], peak: float, bandwidth: float) -> dict[str, Any]:
        of_name: dict[str, list[Row]] = {}
        for row in kernels:
            of_name.setdefault(row["name"], []).append(row)
        points = []
        for name, rows in of_name.items():
            point: dict[str, Any] = dict.fromkeys(
                ("name", "flop", "bytes", "seconds", "intensity", "share", "bound", "gain")
            )
            work, traffic = add(rows, flop), add(rows, moved)
            if tensor and any(row.get(TENSOR, 0) != 0 for row in rows):
                work = None
            point |= {"name": name, "flop": work, "bytes": traffic, "seconds": add(rows, NS) / second}
            if work is not None and traffic is not None:
                at = intensity(rows, work, traffic) if intensity else work / traffic
                soonest = roof(work, traffic, peak, bandwidth)
                share = soonest / point["seconds"]
                point |= {"intensity": at, "share": share, "bound": bound(at, share, peak, bandwidth)}
                point["gain"] = point["seconds"] - soonest
            if unknown or point["gain"] is not None:
                points.append(point)
        return {"points": points, "first": first(points)}

    return roofline_points


def mean_of_intensities(rows: Sequence[Row], work: float, traffic: float) -> float:
    """A ratio for each launch, then their mean."""
    return sum(summed([row], FLOP) / summed([row], BYTES) for row in rows) / len(rows)


def bytes_for_a_flop(rows: Sequence[Row], work: float, traffic: float) -> float:
    return traffic / work if work else 0.0
