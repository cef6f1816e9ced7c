"""The kernels that 07.mma_layout feeds: every lane loads its registers, one matrix instruction, every lane stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import amdgcn_kernel, ptx_kernel
from gpu_utils.exercises.u07_ptx_and_amdgcn.mma_layout_tables import LANES, MMA, Table, extents

NAME = "one_product"
PARAMETERS = "a_ptr b_ptr c_ptr"

_PTX = """  .reg .b32 %r<8>;
  .reg .f32 %f<5>;
  .reg .b64 %rd<8>;

  mov.u32 %r1, %tid.x;
  ld.param.u64 %rd1, [a_ptr];
  ld.param.u64 %rd2, [b_ptr];
  ld.param.u64 %rd3, [c_ptr];
  mul.wide.u32 %rd4, %r1, 16;
  mul.wide.u32 %rd5, %r1, 8;
  add.u64 %rd1, %rd1, %rd4;
  add.u64 %rd2, %rd2, %rd5;
  add.u64 %rd3, %rd3, %rd4;
  ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%rd1];
  ld.global.v2.b32 {%r6, %r7}, [%rd2];
  mov.f32 %f1, 0f00000000;
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    {%f1, %f2, %f3, %f4}, {%r2, %r3, %r4, %r5}, {%r6, %r7}, {%f1, %f1, %f1, %f1};
  st.global.v4.f32 [%rd3], {%f1, %f2, %f3, %f4};
  ret;"""

_AMDGCN = """  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dwordx2 s[8:9], s[0:1], 0x10
  v_lshlrev_b32 v1, 3, v0
  v_lshlrev_b32 v2, 4, v0
  s_waitcnt lgkmcnt(0)
  global_load_dwordx2 v[4:5], v1, s[4:5]
  global_load_dwordx2 v[6:7], v1, s[6:7]
  s_waitcnt vmcnt(0)
  {instruction} v[8:11], v[4:5], v[6:7], 0
  s_nop 15
  s_nop 3
  global_store_dwordx4 v2, v[8:11], s[8:9]
  s_endpgm"""


def kernel(instruction: str, target: str) -> str:
    """The kernel. On gfx90a the MFMA is spelt v_mfma_f32_16x16x16f16."""
    if instruction == MMA:
        return ptx_kernel(NAME, PARAMETERS, _PTX)
    spelling = instruction.replace("16_f16", "16f16") if target == "gfx90a" else instruction
    return amdgcn_kernel(NAME, PARAMETERS, _AMDGCN.format(instruction=spelling), target)


def arguments(instruction: str, tables: list[Table], a: Tensor, b: Tensor) -> tuple[list[Any], Tensor]:
    """The registers of all lanes, filled by the tables, and room for those of C: (lanes, elements of a lane)."""

    def filled(matrix: Tensor, name: str) -> Tensor:
        return torch.stack([matrix[*zip(*table[name], strict=True)] for table in tables])

    c = torch.full((LANES[instruction], 4), float("nan"))
    return [filled(a, "a"), filled(b, "b"), c], c


def gathered(instruction: str, tables: list[Table], registers: Tensor) -> Tensor:
    """C, each element where the tables say that it is."""
    c = np.full(extents(instruction)["c"], np.nan, np.float32)
    for table, held in zip(tables, registers, strict=True):
        c[*zip(*table["c"], strict=True)] = held.numpy()
    return torch.from_numpy(c)
