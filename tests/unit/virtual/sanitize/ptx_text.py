"""PTX kernels of a few lines: what they compute goes to out[tid] unless the lines say otherwise."""

import torch

from gpu_utils.virtual import virtual_gpu

_HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a)
{
  .reg .pred %p<9>;
  .reg .b32 %r<20>;
  .reg .b64 %rd<9>;
  .shared .align 8 .b8 s[512];
  ld.param.u64 %rd1, [a];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd3, %rd1, %rd2;
  mov.u32 %r2, %r1;
  setp.lt.u32 %p1, %r1, 16;
"""


def launch(body: str, threads: int = 64, tools="synccheck") -> list[int]:
    """Run the lines with p1: tid < 16, r1: tid, r2: tid, rd3: the address of out[tid]; returns out."""
    out = torch.zeros(threads, dtype=torch.int32)
    with virtual_gpu("sm_80", sanitize=tools) as gpu:
        gpu.load(_HEAD + body + "\n  ret;\n}\n").launch("k", 1, threads, [out])
    return out.tolist()
