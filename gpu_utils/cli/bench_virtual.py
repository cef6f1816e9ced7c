"""The command `bench virtual`: how fast the virtual GPUs run the kernel set, against Triton's interpreter.

Both run the same cases on the same inputs; only the time inside launches counts. A virtual GPU runs each case
once before, so that compiling and decoding are apart. The interpreter is Triton's own, in a process with
TRITON_INTERPRET=1; a case whose results are wrong there, or that it refuses, has no ratio. Large launches follow, see
bench_workloads.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

MEASURED = ("gfx942", "sm_80")
LEAST_MEAN = 30.0
# A case runs until so much time went into its launches, or so often: this machine may have others to serve.
ENOUGH_SECONDS = 0.25
LEAST_RUNS, MOST_RUNS = 2, 10


def measure(target: str, name: str) -> dict[str, Any]:
    """Seconds inside the launches of one case: of the first run (with compiling), and of the best warm one.

    target: a virtual GPU, or "interpreter" in a process started with TRITON_INTERPRET=1. The last run is judged:
    `wrong` holds the first complaint, or the error.
    """
    from contextlib import nullcontext

    from gpu_utils.kernelset import CASES, Run
    from gpu_utils.kernelset.judge import complaint
    from gpu_utils.virtual import virtual_gpu

    interpreted = target == "interpreter"
    seconds: list[float] = []
    while True:
        run = Run(target, large=True)
        try:
            with nullcontext() if interpreted else virtual_gpu(target):
                CASES[name].body(run)
        except Exception as error:
            return {"wrong": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        seconds.append(run.seconds)
        warm = seconds if interpreted else seconds[1:]  # the interpreter compiles nothing
        if (interpreted or len(warm) >= LEAST_RUNS) and (len(warm) == MOST_RUNS or sum(warm) > ENOUGH_SECONDS):
            break
    wrong = next((said for result in run.results if (said := complaint(result))), "")
    return {"first": seconds[0], "seconds": min(warm), **({"wrong": wrong} if wrong else {})}


def interpret(names: list[str]) -> dict[str, dict[str, Any]]:
    """`measure("interpreter", name)` for each name, in a process of its own; one that dies costs one case."""
    results: dict[str, dict[str, Any]] = {}
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    while left := [name for name in names if name not in results]:
        command = [sys.executable, "-m", "gpu_utils.cli.bench_virtual", *left]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        with subprocess.Popen(command, env=environment, **pipes) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if line.startswith("{"):
                    found = json.loads(line)
                    results[found.pop("name")] = found
        dead = next((name for name in left if name not in results), None)
        if dead is not None:
            results[dead] = {"wrong": f"the process ended with code {child.returncode}"}
    return results


def mean_ratio(rows: list[dict[str, Any]], target: str) -> float:
    """Geometric mean of interpreter seconds / virtual seconds over the cases that have both.

    >>> mean_ratio([{"ratio": {"sm_80": 2.0}}, {"ratio": {"sm_80": 8.0}}, {"ratio": {}}], "sm_80")
    4.0
    """
    ratios = [row["ratio"][target] for row in rows if target in row["ratio"]]
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def run(out: Path) -> bool:
    """Measure the cases and the large launches, print tables, write JSON; True when every goal is met."""
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    from gpu_utils.cli import bench_workloads
    from gpu_utils.kernelset import CASES

    names = list(CASES)
    rows: list[dict[str, Any]] = []
    for name in track(names, "virtual GPUs", transient=True):
        rows.append({"name": name} | {t: measure(t, name) for t in MEASURED if t in CASES[name].targets})
    interpreted = interpret(names)
    for row in rows:
        row["interpreter"], row["ratio"] = interpreted[row["name"]], {}
        if "wrong" not in row["interpreter"]:
            interpreter = row["interpreter"]["seconds"]
            row["ratio"] = {t: interpreter / row[t]["seconds"] for t in MEASURED if "seconds" in row.get(t, {})}
    means = {target: mean_ratio(rows, target) for target in MEASURED}
    slower = [(row["name"], t) for row in rows for t, ratio in row["ratio"].items() if ratio < 1]
    wrong = [(row["name"], t) for row in rows for t in MEASURED if "wrong" in row.get(t, {})]

    table = Table(title="Kernel set: milliseconds inside launches, compiled before")
    table.add_column("kernel")
    for head in (*MEASURED, "interpreter", *(f"x {target}" for target in MEASURED)):
        table.add_column(head, justify="right")
    for row in rows:
        cells = [_cell(row.get(place)) for place in (*MEASURED, "interpreter")]
        cells += [f"{row['ratio'][t]:.1f}" if t in row["ratio"] else "" for t in MEASURED]
        table.add_row(row["name"], *cells)
    table.add_row("geometric mean", "", "", "", *(f"{means[t]:.1f}" for t in MEASURED))
    Console(width=120).print(table)
    print(
        f"goal: a geometric mean of {LEAST_MEAN:g}, none slower; slower: {slower or 'none'}; wrong: {wrong or 'none'}"
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    large, large_met = bench_workloads.run()
    out.write_text(json.dumps({"kernels": rows, "mean": means, "large": large}, indent=1) + "\n")
    print(f"written to {out}")
    fast = all(mean >= LEAST_MEAN for mean in means.values())
    return fast and large_met and not slower and not wrong


def _cell(measured: dict[str, Any] | None) -> str:
    if measured is None:
        return ""
    if "seconds" not in measured:
        return "cannot"
    return "wrong" if "wrong" in measured else f"{1000 * measured['seconds']:.1f}"


if __name__ == "__main__":
    for case_name in sys.argv[1:]:
        print(json.dumps({"name": case_name, **measure("interpreter", case_name)}), flush=True)
