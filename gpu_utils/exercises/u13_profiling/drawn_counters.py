"""Rows of raw counters, drawn so that the kernels differ in what limits them: as ncu and rocprofv3 name them."""

from __future__ import annotations

import random
from typing import Any

Row = dict[str, Any]

NAMES = ("layer_norm", "gelu", "softmax", "adam_step", "residual", "embedding", "rope")
COPY, MATRIX = "transpose", "gemm"


def of_amd(name: str, start: int, end: int, *, add: Any, mul: Any, fma: Any, mops: Any, fetch: Any, write: Any) -> Row:
    """One launch as rocprofv3 counts it: instructions of waves, KiB, ns."""
    return {
        "name": name,
        "Start_Timestamp": start,
        "End_Timestamp": end,
        "SQ_INSTS_VALU_ADD_F32": add,
        "SQ_INSTS_VALU_MUL_F32": mul,
        "SQ_INSTS_VALU_FMA_F32": fma,
        "SQ_INSTS_VALU_MFMA_MOPS_F32": mops,
        "FETCH_SIZE": fetch,
        "WRITE_SIZE": write,
    }


def of_nvidia(name: str, ns: int, *, fadd: Any, fmul: Any, ffma: Any, tensor: Any, read: Any, write: Any) -> Row:
    """One launch as ncu counts it: instructions of threads, bytes, ns."""
    return {
        "name": name,
        "gpu__time_duration.sum": ns,
        "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": fadd,
        "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum": fmul,
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": ffma,
        "sm__inst_executed_pipe_tensor.sum": tensor,
        "dram__bytes_read.sum": read,
        "dram__bytes_write.sum": write,
    }


def drawn_rows(
    rng: random.Random, vendor: str, kernels: int, peak: float, bandwidth: float, unknown: int = 0
) -> list[Row]:
    """Launches of so many kernels, five at least, in the order of a run; `unknown` of them lack a counter.

    The kernel that takes longest is near its roof, the one farthest below it takes little, and a third could gain most.
    One only copies; one uses the matrix units, whose FLOP no counter of NVIDIA's tells.
    """
    longest, lowest, gains, *rest = rng.sample(NAMES, kernels - 2)
    # name -> (us, share of its roof, intensity over the ridge)
    plan = {
        longest: (rng.uniform(900, 1000), rng.uniform(0.85, 0.95), rng.uniform(0.02, 0.3)),
        lowest: (rng.uniform(20, 60), rng.uniform(0.02, 0.1), rng.uniform(0.05, 4)),
        gains: (rng.uniform(400, 600), rng.uniform(0.2, 0.4), rng.uniform(0.1, 0.8)),
        COPY: (rng.uniform(100, 200), rng.uniform(0.6, 0.8), 0.0),
    }
    for name in rest:
        low = rng.random() < 0.5
        share = rng.uniform(0.15, 0.45) if low else rng.uniform(0.55, 0.95)
        plan[name] = (rng.uniform(50, 200), share, rng.choice([rng.uniform(0.05, 0.7), rng.uniform(1.5, 9)]))
    plan[MATRIX] = (rng.uniform(300, 500), rng.uniform(0.7, 0.9), rng.uniform(2, 6))
    rows = []
    for name, (us, share, over_ridge) in plan.items():
        least = us * 1e-6 * share
        intensity = over_ridge * peak / bandwidth
        moved = least * bandwidth if over_ridge < 1 else least * peak / intensity
        rows += _launches(rng, vendor, name, us * 1e3, intensity * moved, moved)
    for name in rng.sample(sorted(set(plan) - {gains, longest}), unknown):
        row = rng.choice([row for row in rows if row["name"] == name])
        row[rng.choice([key for key in row if key.startswith(("SQ_", "sm", "FETCH", "dram"))])] = None
    rng.shuffle(rows)
    return rows


def _parts(rng: random.Random, total: float, pieces: int) -> list[float]:
    weights = [rng.uniform(0.5, 1.5) for _ in range(pieces)]
    return [total * weight / sum(weights) for weight in weights]


def _launches(rng: random.Random, vendor: str, name: str, ns: float, flop: float, moved: float) -> list[Row]:
    """One to three launches that together have these figures, each in other proportions."""
    pieces = rng.randrange(2, 4)
    rows, start = [], 10**9 + rng.randrange(10**6)
    for time, work, traffic in zip(*(_parts(rng, of, pieces) for of in (ns, flop, moved)), strict=True):
        read = rng.uniform(0.4, 0.7)
        matrix = 0.9 if name == MATRIX else 0.0
        adds, muls, fused = _parts(rng, work * (1 - matrix), 3)
        if vendor == "amd":
            counts = {"add": round(adds / 64), "mul": round(muls / 64), "fma": round(fused / 128)}
            counts["mops"] = round(work * matrix / 512)
            kib = [round(traffic * part / 32) / 32 for part in (read, 1 - read)]
            rows.append(of_amd(name, start, start + round(time), **counts, fetch=kib[0], write=kib[1]))
        else:
            counts = {"fadd": round(adds), "fmul": round(muls), "ffma": round(fused / 2)}
            counts["tensor"] = round(work * matrix / 4096)
            sectors = [round(traffic * part / 32) * 32 for part in (read, 1 - read)]
            rows.append(of_nvidia(name, round(time), **counts, read=sectors[0], write=sectors[1]))
        start += round(time) + rng.randrange(1000, 9000)
    return rows
