"""What ptxas allotted to a kernel: NVIDIA's own tools, which come with Triton, read it from the binary."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path


def registers_and_stack(cubin: bytes, name: str) -> tuple[int, int]:
    """(registers, bytes of stack) of one thread of the kernel `name`."""
    from triton import knobs

    with tempfile.TemporaryDirectory(prefix="w2w-cubin-") as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        usage = nvidia_tool(knobs.nvidia.cuobjdump.path, "-res-usage", str(file))
    found = re.search(rf"Function {re.escape(name)}:\s+REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise ValueError(f"cuobjdump names no registers for {name}: {usage.strip()[:200]}")
    return int(found.group(1)), int(found.group(2))


def nvidia_tool(path: str, *arguments: str) -> str:
    """What a tool printed, on both streams. Raises CalledProcessError when it failed."""
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr
