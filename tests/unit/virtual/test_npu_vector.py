"""SIMD functions of a virtual vector core: each operation on random registers against torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch

from gpu_utils.compiler.tilelang import lower
from gpu_utils.kernelset.tile_rows import cast
from gpu_utils.npu import run_ascendc

pytestmark = pytest.mark.usefixtures("tilelang")

INCLUDES = "#include <tl_templates/ascend/common.h>\n#include <tl_templates/ascend/simd_inst.h>\n"
TYPES = {"float": torch.float32, "half": torch.float16, "bfloat16_t": torch.bfloat16, "int32_t": torch.int32}
TYPES |= {"int16_t": torch.int16, "uint8_t": torch.uint8, "int8_t": torch.int8}
TYPES |= {"float8_e4m3_t": torch.float8_e4m3fn, "float8_e5m2_t": torch.float8_e5m2}
WORDS = {"float": "f32", "half": "f16", "bfloat16_t": "bf16", "int32_t": "s32", "int16_t": "s16", "uint8_t": "u8"}
WORDS |= {"int8_t": "s8", "float8_e4m3_t": "f8e4m3", "float8_e5m2_t": "f8e5m2"}
_AT = re.compile(r"\bAT\b")


class Op(NamedTuple):
    """An operation and what torch makes of it.

    code works on registers a and b of `kind`, which lie at AT and AT + 256 in UB, and a mask; it makes r of `result`.
    """

    kind: str
    code: str
    expected: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    result: str = ""
    active: int = 1000
    close: float = 0.0


def _kernel(ops: list[Op]) -> str:
    """One vector function that runs every operation, each on registers of its own."""
    body = []
    for place, (kind, code, _, result, active, _) in enumerate(ops):
        result = result or kind
        width = torch.tensor([], dtype=TYPES[kind]).element_size()
        body.append(
            f"  {{ vector_{WORDS[kind]} a = simd_inst::vlds_norm<{kind}>(({kind}*)(ub + {512 * place}), 0);\n"
            f"    vector_{WORDS[kind]} b = simd_inst::vlds_norm<{kind}>(({kind}*)(ub + {512 * place + 256}), 0);\n"
            f"    uint32_t count = {active}; vector_bool mask = asc_update_mask_b{8 * width}(count);\n"
            f"    {_AT.sub(f'(ub + {512 * place})', code)}\n"
            f"    mask = asc_create_mask_b8(PAT_ALL);\n"
            f"    simd_inst::vsts_norm<{result}>(r, ({result}*)(out + {256 * place}), 0, mask); }}"
        )
    bytes_in, bytes_out = 512 * len(ops), 256 * len(ops)
    return (
        INCLUDES
        + "__simd_vf__ inline void every(__ubuf__ uint8_t* ub, __ubuf__ uint8_t* out) {\n"
        + "\n".join(body)
        + '\n}\nextern "C" __global__ __vector__ void k(__gm__ uint8_t* x, __gm__ uint8_t* y) {\n'
        "  __ubuf__ uint8_t *ub = (__ubuf__ uint8_t *)0;\n"
        f"  asc_copy_gm2ub_align(ub, x, 1, {bytes_in}, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0),\n"
        f"    {bytes_in}, {bytes_in});\n"
        "  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));\n"
        "  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));\n"
        f"  every(ub, ub + {bytes_in});\n"
        "  asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));\n"
        "  asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));\n"
        f"  asc_copy_ub2gm_align(y, ub + {bytes_in}, 1, {bytes_out}, static_cast<asc_store_l2_cache_mode>(4),\n"
        f"    {bytes_out}, {bytes_out});\n"
        "}\n"
    )


def _random(kind: str, seed: int) -> torch.Tensor:
    made = torch.Generator().manual_seed(seed)
    dtype = TYPES[kind]
    lanes = 256 // torch.tensor([], dtype=dtype).element_size()
    if dtype.is_floating_point:
        return (3 * torch.randn(lanes, generator=made)).to(dtype)
    low, high = (0, 200) if dtype == torch.uint8 else (-100, 100)
    return torch.randint(low, high, (lanes,), generator=made).to(dtype)


def _run(ops: list[Op]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What came out and what should, for each operation."""
    pairs = [(_random(op.kind, 2 * i), _random(op.kind, 2 * i + 1)) for i, op in enumerate(ops)]
    x = torch.cat([one.view(torch.uint8) for pair in pairs for one in pair])
    y = torch.full((256 * len(ops),), 0x77, dtype=torch.uint8)
    run_ascendc(_kernel(ops), "k", 1, [x, y])
    got = [part.view(TYPES[op.result or op.kind]) for op, part in zip(ops, y.split(256), strict=True)]
    return list(zip(got, [op.expected(*pair) for op, pair in zip(ops, pairs, strict=True)], strict=True))


def _simple(call: str, expected: Callable[..., torch.Tensor], kinds: tuple[str, ...], close: float = 0.0) -> list[Op]:
    return [Op(kind, f"auto r = simd_inst::{call};", expected, close=close) for kind in kinds]


def _first(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    made = torch.zeros_like(like)
    made[: value.numel()] = value
    return made


def _best(best: torch.Tensor, index: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    whole = {4: torch.int32, 2: torch.int16}[like.element_size()]
    return _first(torch.stack([best, index.to(whole).view(like.dtype)]), like)


def _spaced(value: torch.Tensor, part: int, count: int) -> torch.Tensor:
    made = torch.zeros(value.numel() * count, dtype=value.dtype)
    if value.dtype.itemsize == 1:
        made.view(torch.uint8)[part::count] = value.view(torch.uint8)
    else:
        made[part::count] = value
    return made


_F = ("float", "half")
_ALL = ("float", "half", "int32_t")
ARITHMETIC = [
    *_simple("vadd(a, b, mask, MODE_ZEROING)", lambda a, b: a + b, (*_ALL, "bfloat16_t")),
    *_simple("vsub(a, b, mask, MODE_ZEROING)", lambda a, b: a - b, _ALL),
    *_simple("vmul(a, b, mask, MODE_ZEROING)", lambda a, b: a * b, (*_ALL, "bfloat16_t")),
    *_simple("vdiv(a, b, mask, MODE_ZEROING)", lambda a, b: a / b, _F),
    *_simple("vdiv_0ulp_ftz_true(a, b, mask, MODE_ZEROING)", lambda a, b: a / b, ("float",)),
    *_simple("vmax(a, b, mask, MODE_ZEROING)", torch.maximum, _ALL),
    *_simple("vmin(a, b, mask, MODE_ZEROING)", torch.minimum, _ALL),
    *_simple("vabsdif(a, b, mask, MODE_ZEROING)", lambda a, b: (a - b).abs(), _ALL),
    *_simple("vand(a, b, mask, MODE_ZEROING)", lambda a, b: a & b, ("int32_t", "uint8_t")),
    *_simple("vxor(a, b, mask, MODE_ZEROING)", lambda a, b: a ^ b, ("int32_t", "int16_t")),
    *_simple("vadds(a, 3, mask, MODE_ZEROING)", lambda a, b: a + 3, _ALL),
    *_simple("vmuls(a, 2.5f, mask, MODE_ZEROING)", lambda a, b: a * 2.5, _F),
    *_simple("vmaxs(a, 0, mask, MODE_ZEROING)", lambda a, b: a.clamp(min=0), _ALL),
    *_simple("vshls(a, 3, mask, MODE_ZEROING)", lambda a, b: a << 3, ("int32_t", "int16_t")),
    *_simple("vshrs(a, 2, mask, MODE_ZEROING)", lambda a, b: a >> 2, ("int32_t", "int16_t")),
    *_simple("vshrs(a, 40, mask, MODE_ZEROING)", lambda a, b: -(a < 0).to(a.dtype), ("int32_t", "int16_t")),
    *_simple("vexp(a, mask, MODE_ZEROING)", lambda a, b: a.float().exp().to(a.dtype), _F, 1e-3),
    *_simple("vexp_1ulp_ftz_false(a, mask, MODE_ZEROING)", lambda a, b: a.exp(), ("float",), 1e-6),
    *_simple("vln(vabs(a, mask, MODE_ZEROING), mask, MODE_ZEROING)".replace("vabs", "simd_inst::vabs"),
             lambda a, b: a.float().abs().log().to(a.dtype), _F, 2e-3),
    *_simple("vsqrt(a * a, mask, MODE_ZEROING)".replace("a * a", "simd_inst::vmul(a, a, mask, MODE_ZEROING)"),
             lambda a, b: (a * a).float().sqrt().to(a.dtype), _F, 1e-3),
    *_simple("vabs(a, mask, MODE_ZEROING)", lambda a, b: a.abs(), _ALL),
    *_simple("vneg(a, mask, MODE_ZEROING)", lambda a, b: -a, _ALL),
    *_simple("vrelu(a, mask, MODE_ZEROING)", lambda a, b: a.clamp(min=0), _ALL),
    *_simple("vnot(a, mask, MODE_ZEROING)", lambda a, b: ~a, ("int32_t", "uint8_t")),
    *_simple("vlrelu(a, 0.25f, mask)", lambda a, b: torch.where(a > 0, a, a * 0.25), _F),
    *_simple("vprelu(a, b, mask)", lambda a, b: torch.where(a > 0, a, a * b), _F),
    *_simple("vexpdif(a, b, mask)", lambda a, b: (a - b).exp(), ("float",), 1e-6),
    Op("float", "auto r = a; simd_inst::vmula(&r, a, b, mask, MODE_ZEROING);",
       lambda a, b: (a.double() + a.double() * b.double()).float()),
    Op("float", "auto r = a; simd_inst::vmadd(&r, b, b, mask, MODE_ZEROING);",
       lambda a, b: (a.double() * b.double() + b.double()).float()),
    Op("half", "auto r = a; simd_inst::vmula(&r, a, b, mask, MODE_ZEROING);",
       lambda a, b: (a.double() + a.double() * b.double()).half()),
    Op("float", "auto r = a; simd_inst::vaxpy(&r, b, 0.5f, mask, MODE_ZEROING);", lambda a, b: a + b * 0.5),
]  # fmt: skip
MASKS = [
    Op("float", "auto r = simd_inst::vadd(a, b, mask, MODE_ZEROING);", lambda a, b: _first((a + b)[:9], a), active=9),
    Op("float", "auto r = a; simd_inst::vadd(r, a, b, mask, MODE_MERGING);",
       lambda a, b: torch.cat([(a + b)[:9], a[9:]]), active=9),
    Op("float", "auto r = a; ::vadd(r, a, b, mask, MODE_MERGING);",
       lambda a, b: torch.cat([(a + b)[:9], a[9:]]), active=9),
    Op("half", "auto r = simd_inst::vdup<half>(half(1.5f), asc_create_mask_b16(PAT_M3), MODE_ZEROING);",
       lambda a, b: torch.tensor([1.5 if i % 3 == 0 else 0 for i in range(128)], dtype=torch.half)),
    Op("float", "auto r = simd_inst::vdup<float>(2.0f, asc_create_mask_b32(PAT_Q), MODE_ZEROING);",
       lambda a, b: _first(torch.full((16,), 2.0), a)),
    Op("float", "auto r = simd_inst::vsel(a, b, simd_inst::vcmp_lt(a, b, mask));", torch.minimum),
    Op("half", "auto r = simd_inst::vsel(a, b, simd_inst::vcmps_ge(a, 0.5f, mask));",
       lambda a, b: torch.where(a >= 0.5, a, b)),
    Op("float", "auto p = simd_inst::vcmp_lt(a, b, mask); auto q = simd_inst::vcmps_gt(a, 0.0f, mask);"
       "auto r = simd_inst::vsel(a, b, simd_inst::pxor(p, q, mask));",
       lambda a, b: torch.where((a < b) ^ (a > 0), a, b)),
    Op("float", "auto p = simd_inst::vcmp_lt(a, b, mask); auto pq = simd_inst::pintlv_b32(p, mask);"
       "auto back = simd_inst::pdintlv_b32(pq.v0, pq.v1); auto r = simd_inst::vsel(a, b, back.v0);", torch.minimum),
    Op("half", "auto wide = simd_inst::punpack(simd_inst::vcmp_lt(a, b, mask), LOWER);"
       "auto r = simd_inst::vdup<float>(1.0f, wide, MODE_ZEROING);",
       lambda a, b: (a < b)[:64].float(), "float"),
    Op("float", "auto narrow = simd_inst::ppack(simd_inst::vcmp_lt(a, b, mask), HIGHER);"
       "auto r = simd_inst::vdup<half>(half(1.0f), narrow, MODE_ZEROING);",
       lambda a, b: torch.cat([torch.zeros(64), (a < b).float()]).half(), "half"),
    Op("int32_t", "auto r = simd_inst::vusqz<int32_t>(simd_inst::vcmp_lt(a, b, mask));",
       lambda a, b: ((a < b).int().cumsum(0) - (a < b).int()).int()),
    Op("float", "auto r = simd_inst::vsqz(a, simd_inst::vcmp_lt(a, b, mask), MODE_STORED);",
       lambda a, b: _first(a[a < b], a)),
]  # fmt: skip
LANES = [
    *_simple("vintlv(a, b).v1", lambda a, b: torch.stack([a, b], 1).flatten()[a.numel() :], _ALL),
    *_simple("vdintlv(a, b).v1", lambda a, b: torch.cat([a, b])[1::2], _ALL),
    *_simple("vdupv(a, mask, POS_LOWEST, MODE_ZEROING)", lambda a, b: a[0].expand(a.numel()), _F),
    Op("int32_t", "auto r = simd_inst::vci<int32_t>(7, INC_ORDER);", lambda a, b: torch.arange(7, 71).int()),
    Op("float", "auto r = simd_inst::vselr(a, simd_inst::vshrs((vector_u32 &)b, 26, mask, MODE_ZEROING));",
       lambda a, b: a[(b.view(torch.int32).long() & 0xFFFFFFFF) >> 26]),
    Op("int32_t", "auto r = simd_inst::vpack<int16_t>(a, HIGHER);",
       lambda a, b: torch.cat([torch.zeros(64), a]).short(), "int16_t"),
    Op("int16_t", "auto r = simd_inst::vunpack(a, HIGHER);", lambda a, b: a[64:].int(), "int32_t"),
    *_simple("vcadd(a, mask, MODE_ZEROING)", lambda a, b: _first(a.double().sum().to(a.dtype)[None], a), _F, 0.1),
    Op("float", "auto r = simd_inst::vcadd(a, mask, MODE_ZEROING);",
       lambda a, b: _first(a[:5].double().sum().float()[None], a), active=5, close=1e-6),
    Op("int16_t", "auto r = simd_inst::vcadd(a, mask, MODE_ZEROING);",
       lambda a, b: _first(a.int().sum()[None], torch.zeros(64).int()), "int32_t"),
    *_simple("vcmax(a, mask, MODE_ZEROING)", lambda a, b: _best(a.max(), a.argmax(), a), (*_F, "int32_t")),
    *_simple("vcmin(a, mask, MODE_ZEROING)", lambda a, b: _best(a.min(), a.argmin(), a), (*_F, "int16_t")),
    *_simple("vcgadd(a, mask, MODE_ZEROING)",
             lambda a, b: _first(a.double().view(8, -1).sum(1).to(a.dtype), a), _F, 0.02),
    *_simple("vcgmax(a, mask, MODE_ZEROING)", lambda a, b: _first(a.view(8, -1).amax(1), a), (*_F, "int32_t")),
    *_simple("vcpadd(a, mask, MODE_ZEROING)", lambda a, b: _first(a[::2] + a[1::2], a), _F),
]  # fmt: skip


def _cast(kind: str, result: str, words: str, expected: Callable[[torch.Tensor], torch.Tensor]) -> Op:
    return Op(kind, f"auto r = simd_inst::vcvt<{result}>(a, mask, {words});", lambda a, b: expected(a), result)


CASTS = [
    _cast("float", "half", "ROUND_R, RS_ENABLE, PART_EVEN, MODE_ZEROING", lambda a: _spaced(a.half(), 0, 2)),
    _cast("float", "bfloat16_t", "ROUND_R, RS_ENABLE, PART_ODD, MODE_ZEROING", lambda a: _spaced(a.bfloat16(), 1, 2)),
    _cast("float", "bfloat16_t", "ROUND_Z, RS_DISABLE, PART_EVEN, MODE_ZEROING",
          lambda a: _spaced((a.view(torch.int32) & -65536).view(torch.float32).bfloat16(), 0, 2)),
    *[_cast("float", "float8_e4m3_t", f"ROUND_R, RS_ENABLE, PART_P{p}, MODE_ZEROING",
            lambda a, p=p: _spaced(a.to(torch.float8_e4m3fn), p, 4)) for p in (0, 3)],
    _cast("float", "float8_e5m2_t", "ROUND_R, RS_ENABLE, PART_P1, MODE_ZEROING",
          lambda a: _spaced(a.to(torch.float8_e5m2), 1, 4)),
    _cast("half", "float8_e4m3_t", "ROUND_R, RS_ENABLE, PART_ODD, MODE_ZEROING",
          lambda a: _spaced(a.to(torch.float8_e4m3fn), 1, 2)),
    _cast("half", "float", "PART_ODD, MODE_ZEROING", lambda a: a[1::2].float()),
    _cast("bfloat16_t", "float", "PART_EVEN, MODE_ZEROING", lambda a: a[::2].float()),
    _cast("float8_e4m3_t", "float", "PART_P2, MODE_ZEROING", lambda a: a.float()[2::4]),
    _cast("float8_e5m2_t", "float", "PART_P0, MODE_ZEROING", lambda a: a.float()[::4]),
    _cast("half", "bfloat16_t", "ROUND_R, MODE_ZEROING", lambda a: a.bfloat16()),
    _cast("bfloat16_t", "half", "RS_ENABLE, ROUND_R, MODE_ZEROING", lambda a: a.half()),
    _cast("float", "int32_t", "ROUND_R, RS_ENABLE, MODE_ZEROING", lambda a: a.round().int()),
    _cast("float", "int32_t", "ROUND_F, RS_ENABLE, MODE_ZEROING", lambda a: a.floor().int()),
    _cast("float", "int16_t", "ROUND_C, RS_ENABLE, PART_EVEN, MODE_ZEROING",
          lambda a: _spaced(a.ceil().short(), 0, 2)),
    _cast("half", "int8_t", "ROUND_Z, RS_ENABLE, PART_EVEN, MODE_ZEROING", lambda a: _spaced(a.char(), 0, 2)),
    _cast("int32_t", "float", "ROUND_R, MODE_ZEROING", lambda a: a.float()),
    _cast("int16_t", "float", "PART_ODD, MODE_ZEROING", lambda a: a[1::2].float()),
    _cast("int32_t", "int16_t", "RS_ENABLE, PART_EVEN, MODE_ZEROING", lambda a: _spaced(a.short(), 0, 2)),
    _cast("int32_t", "uint8_t", "RS_ENABLE, PART_P1, MODE_ZEROING",
          lambda a: _spaced(a.clamp(min=0).to(torch.uint8), 1, 4)),
    _cast("int32_t", "uint8_t", "RS_DISABLE, PART_P1, MODE_ZEROING", lambda a: _spaced(a.to(torch.uint8), 1, 4)),
    _cast("int8_t", "int16_t", "PART_ODD, MODE_ZEROING", lambda a: a[1::2].short()),
]  # fmt: skip


def _load(kind: str, call: str, expected: Callable[[torch.Tensor], torch.Tensor]) -> Op:
    """A load of what lies at AT; expected takes both registers as one."""
    return Op(kind, f"auto r = simd_inst::{call};", lambda a, b: expected(torch.cat([a, b])))


def _zeros_between(value: torch.Tensor, count: int) -> torch.Tensor:
    return torch.stack([value, *[torch.zeros_like(value)] * (count - 1)], 1).flatten()


MEMORY = [
    _load("float", "vlds_brc_elem<float>((float*)AT + 3, 0)", lambda x: x[3].expand(64)),
    _load("half", "vlds_upsample<half>((half*)AT, 0)", lambda x: x[:64].repeat_interleave(2)),
    _load("half", "vlds_downsample<half>((half*)AT, 0)", lambda x: x[::2]),
    _load("half", "vlds_unpack<half>((half*)AT, 0)", lambda x: _zeros_between(x[:64], 2)),
    _load("uint8_t", "vlds_unpack4<uint8_t>((uint8_t*)AT, 0)", lambda x: _zeros_between(x[:64], 4)),
    _load("float", "vlds_brc_datablock<float>((float*)AT, 0)", lambda x: x[:8].repeat(8)),
    _load("half", "vlds_brc_elem2datablock<half>((half*)AT, 0)", lambda x: x[:8].repeat_interleave(16)),
    _load("float", "vld_x2<float>((float*)AT, 0, DINTLV_B32).v1", lambda x: x[1::2]),
    _load("float", "vlds_norm_postupdate<float>((float*)AT, 8).v0", lambda x: x[:64]),
    _load("float", "vlds_norm<float>(simd_inst::vlds_norm_postupdate<float>((float*)AT, 8).v1, 0)", lambda x: x[8:72]),
    Op("int32_t", "auto i = simd_inst::vshrs((vector_u32 &)b, 26, mask, MODE_ZEROING);"
       "auto r = simd_inst::vgather2((int32_t*)AT, i, mask);", lambda a, b: a[(b.long() & 0xFFFFFFFF) >> 26]),
    Op("int32_t", "auto i = simd_inst::vmuls(simd_inst::vci<int32_t>(0, INC_ORDER), 32, mask, MODE_ZEROING);"
       "auto r = simd_inst::vgatherb((int32_t*)AT + 8, (vector_u32 &)i);",
       lambda a, b: torch.cat([a[8:], b[:8]])),
    Op("int32_t", "auto i = simd_inst::vci<int32_t>(0, INC_ORDER);"
       "i = simd_inst::vxor(i, simd_inst::vdup<int32_t>(5, mask, MODE_ZEROING), mask, MODE_ZEROING);"
       "simd_inst::vscatter(a, (int32_t*)AT, (vector_u32 &)i, mask);"
       "auto r = simd_inst::vlds_norm<int32_t>((int32_t*)AT, 0);", lambda a, b: a[torch.arange(64) ^ 5]),
    Op("float", "simd_inst::vsts_norm<float>(a, (float*)(AT + 256), 0, mask);"
       "auto r = simd_inst::vlds_norm<float>((float*)(AT + 256), 0);",
       lambda a, b: torch.cat([a[:11], b[11:]]), active=11),
    Op("float", "simd_inst::vsts_1st<float>(a, (float*)(AT + 256) + 5, 0, mask);"
       "auto r = simd_inst::vlds_norm<float>((float*)(AT + 256), 0);",
       lambda a, b: torch.cat([b[:5], a[:1], b[6:]])),
    Op("int32_t", "simd_inst::vsts_pack_b32<int32_t>(a, (int32_t*)(AT + 256), 0, mask);"
       "auto r = simd_inst::vlds_norm<int16_t>((int16_t*)(AT + 256), 0);",
       lambda a, b: torch.cat([a.short(), b.view(torch.int16)[64:]]), "int16_t"),
    Op("float", "simd_inst::vsts_pack_quarter<float>(a, (float*)(AT + 256), 0, mask);"
       "auto r = simd_inst::vlds_norm<uint8_t>((uint8_t*)(AT + 256), 0);",
       lambda a, b: torch.cat([a.view(torch.uint8)[::4], b.view(torch.uint8)[64:]]), "uint8_t"),
    Op("float", "simd_inst::vsstb<float>(a, (float*)AT, 2 << 16 | 1, asc_create_mask_b32(PAT_VL32));"
       "auto r = simd_inst::vlds_norm<float>((float*)AT, 0);",
       lambda a, b: torch.cat([a[:8], a[8:16], a[8:16], a[24:32], a[16:24], a[40:48], a[24:32], a[56:]])),
    Op("float", "auto p = simd_inst::vcmp_lt(a, b, mask); simd_inst::psts_norm(p, (uint32_t*)AT, 0);"
       "auto r = simd_inst::vsel(a, b, simd_inst::plds_norm((uint32_t*)AT, 0));", torch.minimum),
]  # fmt: skip


@pytest.mark.drawn("all", 3)
@pytest.mark.parametrize(
    "ops", [ARITHMETIC, MASKS, LANES, CASTS, MEMORY], ids=["arithmetic", "masks", "lanes", "casts", "memory"]
)
def test_each_operation_does_what_torch_does(ops: list[Op]) -> None:
    wrong = []
    for op, (got, expected) in zip(ops, _run(ops), strict=True):
        tolerance = op.close * max(1.0, expected.double().abs().max().item())
        bits_differ = (got.view(torch.uint8) != expected.contiguous().view(torch.uint8)).any()
        if bits_differ and not (got.double() - expected.double()).abs().max() <= tolerance:
            wrong.append(f"{op.kind}: {op.code}\n  {got[:6].tolist()} instead of {expected[:6].tolist()}")
    assert not wrong, "\n".join(wrong)


def softmax(T, vendor, M, N):
    """softmax of rows with SIMD registers, 64 lanes at a time, for an AI core alone."""

    @T.prim_func
    def main(a: T.Tensor((M, N), "float32"), c: T.Tensor((M, N), "float32")):
        with T.Kernel(M) as row:
            x = T.alloc_shared((N,), "float32")
            y = T.alloc_shared((N,), "float32")
            T.copy(a[row, 0], x)
            with T.SimdVF():
                top = T.simd.alloc_var("float32")
                total = T.simd.alloc_var("float32")
                top = T.simd.vdup(T.float32(-3e38), "float32")
                for j in T.serial(N // 64):
                    top = T.simd.vmax(top, T.simd.vld(x[j * 64]))
                top = T.simd.vdupv(T.simd.vcmax(top))
                total = T.simd.vdup(T.float32(0), "float32")
                for j in T.serial(N // 64):
                    e = T.simd.vexpdif(T.simd.vld(x[j * 64]), top)
                    T.simd.vsts(y[j * 64], e)
                    total = T.simd.vadd(total, e)
                total = T.simd.vdupv(T.simd.vcadd(total))
                T.simd.mem_bar("VST_VLD")
                for j in T.serial(N // 64):
                    T.simd.vsts(y[j * 64], T.simd.vdiv(T.simd.vld(y[j * 64]), total))
            T.copy(y, c[row, 0])

    return main


def quantize(T, vendor, M, N):
    """Rows to fp8, each with a scale of its own: the greatest size of a row becomes 448."""

    @T.prim_func
    def main(a: T.Tensor((M, N), "float32"), q: T.Tensor((M, N), "float8_e4m3fn"), s: T.Tensor((M, 8), "float32")):
        with T.Kernel(M) as row:
            x = T.alloc_shared((N,), "float32")
            y = T.alloc_shared((N,), "float8_e4m3fn")
            scale = T.alloc_shared((8,), "float32")
            T.copy(a[row, 0], x)
            with T.SimdVF():
                top = T.simd.alloc_var("float32")
                top = T.simd.vdup(T.float32(0), "float32")
                for j in T.serial(N // 64):
                    top = T.simd.vmax(top, T.simd.vabs(T.simd.vld(x[j * 64])))
                top = T.simd.vmuls(T.simd.vdupv(T.simd.vcmax(top)), T.float32(1 / 448))
                eight = T.simd.pset(32, "PAT_VL8")
                T.simd.vsts(scale[0], top, mask=eight, extent=8)
                for j in T.serial(N // 64):
                    r = T.simd.vcvt(T.simd.vdiv(T.simd.vld(x[j * 64]), top), "float8_e4m3fn", part=0)
                    T.simd.vsts(y[j * 64], r, dist="PK4_B32")
            T.copy(y, q[row, 0])
            T.copy(scale, s[row, 0])

    return main


def test_softmax_in_simd() -> None:
    lowered = lower(softmax, "ascend950", M=3, N=256)
    a, c = torch.randn(3, 256), torch.full((3, 256), torch.nan)
    run = run_ascendc(lowered.source, lowered.kernel, 3, [a, c])
    assert (c - a.double().softmax(1)).abs().max() < 1e-6
    assert run.counters["GM->UB"] == run.counters["UB->GM"] == 3 * 256 * 4
    assert run.counters["vector_elements"] > 3 * 256 * 4  # a maximum, exp, a sum and a quotient


def test_quantization_in_simd() -> None:
    lowered = lower(quantize, "ascend950", M=2, N=256)
    a = torch.randn(2, 256)
    q, s = torch.zeros(2, 256, dtype=torch.float8_e4m3fn), torch.zeros(2, 8)
    run_ascendc(lowered.source, lowered.kernel, 2, [a, q, s])
    scale = a.abs().amax(1, keepdim=True) * torch.tensor(1 / 448)
    assert torch.equal(s[:, :1], scale)
    assert torch.equal(q.view(torch.uint8), (a / scale).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8))


NZ = """#include <tl_templates/ascend/common.h>
#include <tl_templates/ascend/nd2nz_copy.h>
extern "C" __global__ __vector__ void k(__gm__ uint8_t* x, __gm__ uint8_t* y) {
  __ubuf__ uint8_t *ub = (__ubuf__ uint8_t *)0;
  asc_copy_gm2ub_align(ub, x, 1, IN, 0, 0, 0, static_cast<asc_load_l2_cache_mode>(0), IN, IN);
  asc_sync_notify(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  asc_sync_wait(PIPE_MTE2, PIPE_V, static_cast<event_t>(0));
  ascend_nd2nz_scatter<ROWS, COLS, FROM, TO>((FROM *)ub, (TO *)(ub + IN));
  asc_sync_notify(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_sync_wait(PIPE_V, PIPE_MTE3, static_cast<event_t>(0));
  asc_copy_ub2gm_align(y, ub + IN, BLOCKS, TAKEN, static_cast<asc_store_l2_cache_mode>(4), TAKEN, TAKEN + 32);
}
"""


@pytest.mark.drawn("all", 1)
@pytest.mark.parametrize(
    ("kind", "result", "cols"), [("half", "half", 96), ("float", "float", 64), ("float", "bfloat16_t", 128)]
)
def test_rows_become_fractals(kind: str, result: str, cols: int) -> None:
    """Columns in groups of 32 bytes, each group a block of rows with one row of padding behind it."""
    rows, made = 32, TYPES[result]
    wide = 32 // made.itemsize
    a = torch.randn(rows, cols).to(TYPES[kind])
    got = torch.zeros(cols // wide, rows, wide, dtype=made)
    values = {"ROWS": rows, "COLS": cols, "FROM": kind, "TO": result, "BLOCKS": cols // wide, "TAKEN": rows * 32}
    values["IN"] = a.nbytes
    source = re.sub(r"\b(ROWS|COLS|FROM|TO|BLOCKS|TAKEN|IN)\b", lambda one: str(values[one[0]]), NZ)
    run_ascendc(source, "k", 1, [a.view(-1).view(torch.uint8), got.view(-1).view(torch.uint8)])
    assert torch.equal(got, a.to(made).view(rows, -1, wide).transpose(0, 1))


def test_a_vector_function_must_wait_and_be_waited_for() -> None:
    lowered = lower(softmax, "ascend950", M=1, N=256)
    waits = re.findall(r"^  asc_sync_wait\(.*\n", lowered.source, re.MULTILINE)
    assert len(waits) == 2
    for wait in waits:
        a, c = torch.randn(1, 256), torch.empty(1, 256)
        run = run_ascendc(lowered.source.replace(wait, "", 1), lowered.kernel, 1, [a, c], check=False)
        assert "not ready" in [fault.kind for fault in run.faults], wait


def test_what_is_not_documented_is_refused_by_name() -> None:
    rounded = "simd_inst::vcvt<half>(a, mask, ROUND_O, RS_ENABLE, PART_EVEN, MODE_ZEROING);"
    ops = [
        Op("float", "auto r = simd_inst::vci<float>(1.0f, DEC_ORDER);", lambda a, b: a),
        Op("float", f"auto r = {rounded}", lambda a, b: a, "half"),
        Op("float", "auto r = simd_inst::vdupv(a, mask, POS_HIGHEST, MODE_ZEROING);", lambda a, b: a),
    ]
    x, y = torch.zeros(512 * 3, dtype=torch.uint8), torch.zeros(256 * 3, dtype=torch.uint8)
    run = run_ascendc(_kernel(ops), "k", 1, [x, y], check=False)
    assert {fault.kind for fault in run.faults} == {"not modelled"}
    said = " ".join(fault.sentence for fault in run.faults)
    assert all(name in said for name in ("asc_arange_descend", "ROUND_O", "asc_duplicate_highest"))


@pytest.mark.drawn("all", 1)
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("result", ["float8_e4m3fn", "float8_e5m2"])
def test_casts_to_8_bits_in_simt(kind: str, result: str) -> None:
    lowered = lower(cast, "ascend950", M=16, N=256, R=4, dtype=kind, result=result)
    a, dtype = (300 * torch.randn(16, 256)).to(getattr(torch, kind)), getattr(torch, result)
    c = torch.zeros(16, 256, dtype=dtype)
    run_ascendc(lowered.source, lowered.kernel, 4, [a, c])
    most = torch.finfo(dtype).max
    assert torch.equal(c.view(torch.uint8), a.clamp(-most, most).to(dtype).view(torch.uint8))


def test_every_8_bit_float_is_read_as_torch_does() -> None:
    """All 256 bit patterns, a quarter at a time."""
    kinds = ("float8_e4m3_t", "float8_e5m2_t")
    x = torch.arange(256, dtype=torch.int16).to(torch.uint8)
    code = "auto r = simd_inst::vcvt<float>(a, mask, PART_P{}, MODE_ZEROING);"
    ops = [Op(kind, code.format(part), lambda a, b: a, "float") for kind in kinds for part in range(4)]
    y = torch.zeros(256 * len(ops), dtype=torch.uint8)
    run_ascendc(_kernel(ops), "k", 1, [x.repeat(2 * len(ops)), y])
    for kind, got in zip(kinds, y.view(torch.float32).view(2, 4, 64), strict=True):
        assert torch.allclose(got.T.reshape(-1), x.view(TYPES[kind]).float(), rtol=0, atol=0, equal_nan=True)
