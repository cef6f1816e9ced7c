"""A process that marks answers, one after the other, for whoever started it.

    python -m gpu_utils.classroom.marker [--unsafe-no-sandbox] [--devices]

Reading somebody's notebook can end a process, and judging can go on without end; then this one is replaced, and its
starter lives on. It ends with its standard input.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict

import msgpack

from gpu_utils.classroom.marking import mark
from gpu_utils.classroom.records import Submission
from gpu_utils.compiler import clang
from gpu_utils.grading.walls import bwrap
from gpu_utils.grading.walls.frames import Gone, receive_bytes, send_bytes
from gpu_utils.grading.walls.runner import Walls


def main(walled: bool, devices: bool) -> None:
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    if walled:
        clang.run_tools(bwrap.around)
    with Walls(walled, devices) as walls:
        send_bytes(answers, b"ready")
        while True:
            try:
                request = msgpack.unpackb(receive_bytes(requests))
            except Gone:
                return
            result = mark(
                Submission.of(request["submission"]),
                request["exercise"],
                int(request["seed"]),
                request["out_of"],
                walls,
                request["backends"],
            )
            send_bytes(answers, msgpack.packb(asdict(result)))


if __name__ == "__main__":
    main("--unsafe-no-sandbox" not in sys.argv, "--devices" in sys.argv)
