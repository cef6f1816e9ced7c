"""Runs a Python program under torch.profiler: python recording.py TRACE.json [-m] program [arguments].

Run as a file by whatever Python the program needs: nothing but torch is imported, nothing of the course.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback


def main() -> None:
    """Run the program; the trace is written however it ends, and its exit code is this process's."""
    target, *words = sys.argv[1:]
    module = words[0] == "-m"
    sys.argv = words[1:] if module else words
    if sys.path[0] == os.path.dirname(os.path.abspath(__file__)):  # not so with -P
        # as Python itself does: the folder of the script, or with -m the present one
        sys.path[0] = os.getcwd() if module else os.path.dirname(os.path.abspath(sys.argv[0]))
    try:
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        sys.exit(f"torch.profiler: {sys.executable} has no torch; name the Python that has it in place of python")
    import torch

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    recorder = profile(activities=activities)
    recorder.start()
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
        recorder.stop()
        recorder.export_chrome_trace(target)


if __name__ == "__main__":
    main()
