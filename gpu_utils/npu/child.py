"""Runs one compiled kernel in a process of its own: `child.py KERNEL.so SPEC.json`; imports nothing of ours."""

import ctypes
import json
import mmap
import sys


def main(library: str, spec_path: str) -> None:
    with open(spec_path) as file:
        spec = json.load(file)
    ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)
    run = ctypes.CDLL(library).w2w_run
    with open(spec["arena"], "r+b") as file:
        arena = mmap.mmap(file.fileno(), 0)
    here = ctypes.addressof(ctypes.c_char.from_buffer(arena))
    count = len(spec["offsets"])
    bases = (ctypes.c_void_p * (count + 1))(*(here + offset for offset in spec["offsets"]), here + len(arena))
    sizes = (ctypes.c_uint64 * max(count, 1))(*spec["bytes"])
    grains = (ctypes.c_int * max(count, 1))(*spec["grains"])
    run(spec["blocks"], count, bases, sizes, grains, spec["report"].encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
