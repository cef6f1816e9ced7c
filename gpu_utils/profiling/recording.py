"""Runs a Python program under torch.profiler: python recording.py TRACE.json [-m] program [arguments].

Run as a file by whatever Python the program needs: nothing but torch is imported, nothing of the course.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import tempfile
import traceback
from collections.abc import Iterator

SAW = "w2w profile: GPU"
"""Key of the trace's metadata: whether torch saw a GPU, "yes" or "no". gpu_utils.profiling.torch_trace reads it."""


def main() -> None:
    """Run the program; the trace is written however it ends, and its exit code is this process's."""
    target, *words = sys.argv[1:]
    module = words[0] == "-m"
    sys.argv = words[1:] if module else words
    if not module and not os.path.exists(words[0]):  # as Python says it
        print(f"{sys.executable}: can't open file {os.path.abspath(words[0])!r}: No such file", file=sys.stderr)
        sys.exit(2)
    if sys.path[0] == os.path.dirname(os.path.abspath(__file__)):  # not so with -P
        # as Python itself does: the folder of the script, or with -m the present one
        sys.path[0] = os.getcwd() if module else os.path.dirname(os.path.abspath(sys.argv[0]))
    try:
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        sys.exit(f"torch.profiler: {sys.executable} has no torch; name the Python that has it in place of python")
    import torch

    activities = [ProfilerActivity.CPU]
    gpu = torch.cuda.is_available()
    if gpu:
        activities.append(ProfilerActivity.CUDA)
    recorder = profile(activities=activities)
    with _without_probes():
        recorder.start()
    recorder.add_metadata(SAW, "yes" if gpu else "no")
    try:
        if module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:
        at = error.__traceback__  # from the program's own first line on
        while at is not None and at.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
            at = at.tb_next
        traceback.print_exception(type(error), error, at)
        sys.exit(130 if isinstance(error, KeyboardInterrupt) else 1)
    finally:
        with _without_probes():
            recorder.stop()
        recorder.export_chrome_trace(target)


@contextlib.contextmanager
def _without_probes() -> Iterator[None]:
    """What libraries write to stderr meanwhile, but for the lines USDT: of torch's own probes."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            said.seek(0)
            for line in said:
                if not line.startswith(b"USDT:"):
                    os.write(2, line)


if __name__ == "__main__":
    main()
