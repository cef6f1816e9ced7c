"""Runs a few lines of PTX on arrays, one thread per element, through the whole path from text to results."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import numpy as np

from gpu_utils.analytic.access import MemoryShape
from gpu_utils.virtual import machine
from gpu_utils.virtual.counters import Counters
from gpu_utils.virtual.global_memory import Memory
from gpu_utils.virtual.ptx import decode, new_state

HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def launch(text, arguments, grid=(1, 1, 1), block=(32, 1, 1), shared=0, name=None, target="sm_90"):
    """Run a kernel of a PTX module. arguments: NumPy arrays (as pointers), ints, floats. Returns the Counters."""
    program = decode(text, target, name)
    memory = Memory()
    buffer = np.zeros(program.info.parameter_bytes, np.uint8)
    for (offset, size), value in zip(program.info.parameters, arguments, strict=True):
        if isinstance(value, np.ndarray):
            memory.add_array(f"argument {offset}", value, "tensor")
            raw = struct.pack("<Q", value.ctypes.data)
        elif isinstance(value, float):
            raw = struct.pack("<f" if size == 4 else "<d", value)
        else:
            raw = (int(value) % (1 << 8 * size)).to_bytes(size, "little")
        buffer[offset : offset + size] = np.frombuffer(raw, np.uint8)
    if program.info.data.size:
        memory.add_array("the module's data", program.info.data, "constant")
    request = SimpleNamespace(
        name=program.name, grid=grid, block=block, args=buffer, memory=memory, chip=None,
        counters=Counters(program, MemoryShape()), shared_bytes=shared + program.info.static_shared,
    )  # fmt: skip
    blocks = np.stack(np.meshgrid(*(np.arange(n) for n in grid), indexing="ij"), -1).reshape(-1, 3)
    threads = int(np.prod(block))
    state = new_state(program, request, blocks, -(-threads // 32))
    if threads % 32:
        state.disable((state.wave_in_block[:, None] * 32 + np.arange(32)) >= threads)
    machine.run_batches(iter([state]))
    return request.counters


def run_lines(body, inputs, outputs, shared=0, registers="", target="sm_90"):
    """Run `body` for every element of the 1-D arrays `inputs`; returns one array per entry of `outputs` (bit widths).

    The body finds element i of input k in %in<k> (a register of its width) and leaves results in %out<k>.
    """
    count = len(inputs[0])
    threads = -(-count // 32) * 32
    padded = [np.concatenate([a, np.zeros(threads - count, a.dtype)]) for a in inputs]
    results = [np.zeros(threads, f"u{max(bits // 8, 1)}") for bits in outputs]
    lines, loads, stores, params = [], [], [], []
    for k, array in enumerate(padded):
        bits = array.dtype.itemsize * 8
        params.append(f".param .u64 in{k}")
        lines.append(f".reg .b{max(bits, 16)} %in{k};")
        loads += [f"ld.param.u64 %base, [in{k}];", f"mad.wide.u32 %base, %index, {bits // 8}, %base;",
                  f"ld.global.b{bits} %in{k}, [%base];"]  # fmt: skip
    for k, bits in enumerate(outputs):
        params.append(f".param .u64 out{k}")
        lines.append(f".reg .b{max(bits, 16)} %out{k};")
        stores += [f"ld.param.u64 %base, [out{k}];", f"mad.wide.u32 %base, %index, {max(bits // 8, 1)}, %base;",
                   f"st.global.b{max(bits, 8)} [%base], %out{k};"]  # fmt: skip
    code = "\n".join(
        [
            HEADER,
            f".visible .entry k({', '.join(params)}) {{",
            ".reg .b64 %base; .reg .b32 %index;",
            *lines,
            registers,
            "mov.u32 %index, %tid.x;",
            *loads,
            body,
            *stores,
            "ret; }",
        ]
    )  # fmt: skip
    launch(code, [*padded, *results], block=(threads, 1, 1), shared=shared, target=target)
    return [result[:count] for result in results]
