"""Train GPT-2 on whatever is there, and compare the run with an earlier one: unit 01's script, ported.

One code path for a CPU and for a GPU of either vendor. Every question that this script asks of the machine is answered
by `gpu_utils.model.device`: is there a GPU (torch.cuda.is_available(), which is true on AMD as well), and does its
hardware have bfloat16. No vendor is named. Written for ROCm too, and not yet run on AMD silicon.

    .venv/bin/python work/03_porting_to_rocm/train.py --steps 60
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from gpu_utils import probe
from gpu_utils.lesson import (
    PRESETS,
    RunRecord,
    TrainConfig,
    W2WError,
    agreement,
    default_preset,
    latest_record,
    load_record,
    parity,
    save_record,
    train,
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=sorted(PRESETS), default=default_preset(), help="size of the run")
    parser.add_argument("--steps", type=int, help="steps instead of the preset's; the schedule is drawn for so many")
    parser.add_argument("--device", help='"cuda" for a GPU of either vendor, or "cpu"; the default is what is there')
    parser.add_argument(
        "--compare", default="01", help="a unit whose newest record to compare with, or a record's file"
    )
    return parser.parse_args()


def earlier(name: str) -> RunRecord:
    """The newest record of a unit ("01"), or the record in a file."""
    return latest_record(name) if name.isdigit() else load_record(name)


def main() -> None:
    chosen = arguments()
    config = TrainConfig.preset(chosen.preset)
    if chosen.steps:
        config = replace(config, steps=chosen.steps, warmup=min(config.warmup, max(1, chosen.steps // 10)))
    before = earlier(chosen.compare)  # first, so that a missing record is not found out after the training
    print(probe())
    record = train(config, device=chosen.device, unit="03").record
    print(f"validation loss {record.final_val_loss:.3f}, {record.tokens_per_second:,.0f} tokens/s")
    print(f"record: {save_record(record)}\n")
    report = parity(before, record, agreement(chosen.device))
    print(report)
    sys.exit(not report.passed)


if __name__ == "__main__":
    try:
        main()
    except W2WError as problem:
        sys.exit(f"{type(problem).__name__}: {problem}")
