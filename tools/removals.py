"""Removes each barrier and wait of the kernel set by itself, on each target, and writes down whether that is noticed.

    python tools/removals.py [--targets sm_90 gfx942] [--cases row_sum ...] [--most 60] [--seconds 60] [--page]

Every case is also launched as compiled under `sanitize=True`: what is reported there is a false alarm. A kernel with
more than `--most` ops that order something has that many of them drawn, with a fixed seed; a case that has taken
`--seconds` of the processor leaves the rest. What is in benchmarks/results/removals.json already is not run again, and docs/removals.md
is written from it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import triton  # noqa: E402

from gpu_utils.course.files import write_atomically  # noqa: E402
from gpu_utils.errors import VirtualGpuError  # noqa: E402
from gpu_utils.kernelset import CASES, TARGETS  # noqa: E402
from gpu_utils.kernelset.removals import clean, ordering, recorded, removals  # noqa: E402
from gpu_utils.virtual.machine import Op  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "removals.json"
SEED = 0


def one_case(case: str, target: str, most: int, seconds: float) -> dict[str, Any]:
    """What the page says of a case on a target. Counts of removals are lists [kernel, kind of op, outcome, why, count].

    clean: launches under `sanitize=True` with no report; alarms: the reports of the others. ops: that order something;
    left: how many of them were not removed. missed: removals that nothing noticed and no argument explains.
    """
    start = time.process_time()
    row: dict[str, Any] = {"clean": 0, "alarms": [], "ops": 0, "left": 0, "removed": [], "missed": []}
    try:
        row["clean"] = clean(case, target)
    except VirtualGpuError as error:
        row["alarms"].append(f"{type(error).__name__}: {error}")
    launches = recorded(case, target)
    row["ops"] = sum(len(ordering(launch.program)) for launch in launches)
    chance = random.Random(SEED)

    def pick(ops: list[Op]) -> list[Op]:
        return chance.sample(ops, min(most, len(ops)))  # in an order of its own: where time ends no place is preferred

    counts: Counter[tuple[str, ...]] = Counter()
    for launch in launches:
        begun = time.process_time()
        try:
            for removal in removals(case, target, pick, [launch]):
                why = removal.error or (removal.why if removal.outcome == "unnecessary" else "")
                counts[removal.kernel, removal.kind, removal.outcome, why] += 1
                if removal.outcome == "missed":
                    row["missed"].append([removal.kernel, removal.op, removal.line, removal.changed])
                if time.process_time() - begun > seconds / len(launches):
                    break
        except VirtualGpuError as error:
            row["alarms"].append(f"{type(error).__name__}: {error}")
    row["removed"] = [[*key, count] for key, count in sorted(counts.items())]
    row["left"] = row["ops"] - counts.total()
    row["seconds"] = round(time.process_time() - start, 1)
    return row


def stored() -> dict[str, Any]:
    if RESULTS.exists():
        return dict(json.loads(RESULTS.read_text()))
    return {"triton": triton.__version__, "seed": SEED, "targets": {}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--most", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    found = stored()
    for case, target in itertools.product(asked.cases, asked.targets):
        rows = found["targets"].setdefault(target, {})
        if target not in CASES[case].targets or case in rows:
            continue
        rows[case] = row = one_case(case, target, asked.most, asked.seconds)
        write_atomically(RESULTS, (json.dumps(found, indent=1) + "\n").encode())
        print(target, case, row["seconds"], f"{row['left']} left", *row["missed"], *row["alarms"], flush=True)


if __name__ == "__main__":
    main()
