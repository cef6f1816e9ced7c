"""Operations of flag_gems for `foreign_kernels.py`: torch's operations as Triton kernels, under torch's names.

flag_gems asks vendors' commands which GPU there is; the environment variable GEMS_VENDOR (nvidia, amd) answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from foreign_operations import HALF, ROWS, WIDTH, Draw, Operation, chances, classes, normal, part, rms_norm, turned

OPS, FUSED = "flag_gems.ops", "flag_gems.fused"
X, XY = {"x": normal(ROWS, WIDTH)}, {"x": normal(ROWS, WIDTH), "y": normal(ROWS, WIDTH)}
IMAGE = {"x": normal(2, 3, 9, 11)}
QKV = {name: normal(1, 2, 37, 32, dtype=HALF) for name in "qkv"}
QUERY_OF_GROUPS = {**QKV, "q": normal(1, 4, 37, 32, dtype=HALF)}
ROPE = {"q": normal(2, 7, 3, 16), "k": normal(2, 7, 1, 16), "angle": normal(1, 7, 8)}
PLACES = {"x": normal(ROWS, WIDTH), "i": classes(ROWS, 3, WIDTH), "s": normal(3, WIDTH)}


def numbers(*found: Any) -> Any:
    """Results as numbers: truth values are 0 and 1."""
    return tuple(value.double() if value.dtype == torch.bool else value for value in found)


def like(
    name: str,
    reference: Callable[..., Any],
    inputs: dict[str, Draw],
    *rest: Any,
    title: str = "",
    module: str = OPS,
    tolerance: float = 1e-3,
    **options: Any,
) -> Operation:
    """An operation that takes what torch's takes, and further arguments; the inputs' order is that of the arguments."""

    def run(function: Callable[..., Any], tensors: dict[str, Any]) -> Any:
        found = function(*tensors.values(), *rest, **options)
        return numbers(*found) if isinstance(found, (tuple, list)) else numbers(found)

    return Operation(
        title or name,
        module,
        inputs,
        lambda m, **tensors: run(getattr(m, name), tensors),
        lambda **tensors: run(reference, tensors),
        tolerance,
        gradients=False,
    )


def whole(*shape: int) -> Draw:
    return lambda: torch.randint(-1000, 1000, shape, dtype=torch.int32)


def distinct(*shape: int) -> Draw:
    """Every value comes once, so that an order has one answer."""
    return lambda: torch.randperm(torch.Size(shape).numel()).reshape(shape).float()


def few(*shape: int) -> Draw:
    return lambda: torch.randint(0, 9, shape)


def attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)


def chosen_experts(scores: Any) -> Any:
    return scores.softmax(-1).topk(2)[1].int()


def experts(x: Any, one: Any, two: Any, weight: Any, place: Any) -> Any:
    """x (tokens, width), one (experts, 2 * inner, width), two (experts, width, inner); weight and place (tokens, 2)."""
    out = torch.zeros_like(x)
    for expert in range(len(one)):
        gate, up = (x @ one[expert].T).chunk(2, -1)
        chosen = (weight * (place == expert)).sum(-1, keepdim=True)
        out += chosen * ((F.silu(gate) * up) @ two[expert].T)
    return out


def softmax_of_experts(m: Any, x: Any) -> Any:
    weight = torch.empty(len(x), 3, device="cuda")
    place, row = (torch.empty(len(x), 3, device="cuda", dtype=torch.int32) for _ in range(2))
    m.topk_softmax(weight, place, row, x)
    return weight


def summed(m: Any, x: Any) -> Any:
    out = torch.empty(9, 33, device="cuda")
    m.moe_sum(x, out)
    return out


def quantized(m: Any, x: Any) -> Any:
    """To float8 in groups of 32 and back."""
    codes, scales = m.per_token_group_quant_fp8(x, 32)
    return (codes.float().reshape(5, 4, 32) * scales[..., None]).reshape(5, 128)


GEMS_OPERATIONS = (
    *(
        like(name, getattr(torch, name), X)
        for name in (
            "exp",
            "exp2",
            "expm1",
            "erf",
            "sin",
            "cos",
            "tan",
            "tanh",
            "sigmoid",
            "cosh",
            "atan",
            "i0",
            "signbit",
        )
    ),
    *(like(name, getattr(torch, name), {"x": part(ROWS, WIDTH)}) for name in ("log", "log10", "rsqrt", "acos")),
    *(
        like(name, getattr(F, name), X)
        for name in ("gelu", "silu", "celu", "elu", "softplus", "softshrink", "relu6", "selu", "hardsigmoid")
    ),
    like("special_i1", torch.special.i1, X),
    like("special_i0e", torch.special.i0e, X),
    *(
        like(name, getattr(torch, name), XY)
        for name in ("atan2", "hypot", "logaddexp", "copysign", "fmin", "maximum", "remainder", "floor_divide")
    ),
    like("pow_tensor_tensor", torch.pow, {"x": part(ROWS, WIDTH), "y": normal(ROWS, WIDTH)}),
    like("addcdiv", torch.addcdiv, {**XY, "z": part(ROWS, WIDTH)}),
    like("lerp_tensor", torch.lerp, {**XY, "z": part(ROWS, WIDTH)}),
    like(
        "floor_divide",
        torch.floor_divide,
        {"x": whole(ROWS, WIDTH), "y": lambda: torch.randint(1, 50, (WIDTH,), dtype=torch.int32)},
        title="floor_divide of integers",
    ),
    like("mm", torch.mm, {"a": normal(37, 45, dtype=HALF), "b": normal(45, 51, dtype=HALF)}, tolerance=1e-2),
    like("mm", torch.mm, {"a": normal(37, 45), "b": normal(45, 51)}, title="mm of float32", tolerance=1e-2),
    like(
        "addmm",
        torch.addmm,
        {"c": normal(51, dtype=HALF), "a": normal(37, 45, dtype=HALF), "b": normal(45, 51, dtype=HALF)},
        tolerance=1e-2,
    ),
    like("bmm", torch.bmm, {"a": normal(3, 37, 45, dtype=HALF), "b": normal(3, 45, 51, dtype=HALF)}, tolerance=1e-2),
    like(
        "baddbmm",
        torch.baddbmm,
        {"c": normal(3, 37, 51, dtype=HALF), "a": normal(3, 37, 45, dtype=HALF), "b": normal(3, 45, 51, dtype=HALF)},
        tolerance=1e-2,
    ),
    like("mv", torch.mv, {"a": normal(37, 45), "b": normal(45)}),
    like("dot", torch.dot, {"a": normal(4099), "b": normal(4099)}),
    like("kron", torch.kron, {"a": normal(3, 5), "b": normal(7, 2)}),
    like("outer", torch.outer, {"a": normal(37), "b": normal(45)}, module=FUSED),
    like("conv1d", F.conv1d, {"x": normal(2, 3, 37), "w": normal(5, 3, 3), "b": normal(5)}, tolerance=1e-2, padding=1),
    like(
        "conv2d",
        F.conv2d,
        {"x": normal(2, 4, 9, 11), "w": normal(6, 2, 3, 3), "b": normal(6)},
        tolerance=1e-2,
        padding=1,
        stride=2,
        groups=2,
    ),
    like("conv3d", F.conv3d, {"x": normal(1, 3, 5, 6, 7), "w": normal(4, 3, 3, 3, 3), "b": normal(4)}, tolerance=1e-2),
    like("avg_pool2d", F.avg_pool2d, IMAGE, 3, 2, 1),
    like("max_pool2d_with_indices", F.max_pool2d_with_indices, IMAGE, 3, 2, 1),
    like("upsample_nearest2d", F.interpolate, IMAGE, (13, 20)),
    Operation(
        "upsample_bicubic2d",
        OPS,
        IMAGE,
        lambda m, x: m.upsample_bicubic2d(x, (13, 20)),
        lambda x: F.interpolate(x, (13, 20), mode="bicubic"),
        gradients=False,
    ),
    Operation(
        "_upsample_bicubic2d_aa",
        OPS,
        IMAGE,
        lambda m, x: m._upsample_bicubic2d_aa(x, (5, 6), False),
        lambda x: F.interpolate(x, (5, 6), mode="bicubic", antialias=True),
        gradients=False,
    ),
    like("pad", F.pad, IMAGE, (2, 1, 1, 3), "reflect"),
    like("flip", torch.flip, IMAGE, (1, 3)),
    like("roll", torch.roll, IMAGE, (2, -3), (1, 3)),
    like("repeat", torch.Tensor.repeat, IMAGE, (1, 2, 1, 3)),
    like("triu", torch.triu, {"x": normal(19, 23)}, 2),
    like("trace", torch.trace, {"x": normal(19, 23)}),
    like("diag_embed", torch.diag_embed, X, 1),
    Operation(
        "cat",
        OPS,
        {"x": normal(5, 7), "y": normal(5, 4), "z": normal(5, 1)},
        lambda m, x, y, z: m.cat([x, y, z], 1),
        lambda x, y, z: torch.cat([x, y, z], 1),
        gradients=False,
    ),
    like("softmax", torch.softmax, X, -1),
    like("softmax", torch.softmax, IMAGE, 1, title="softmax of a middle dimension"),
    like("log_softmax", torch.log_softmax, X, -1),
    Operation(
        "layer_norm",
        OPS,
        {**X, "w": normal(WIDTH), "b": normal(WIDTH)},
        lambda m, x, w, b: m.layer_norm(x, (WIDTH,), w, b),
        lambda x, w, b: (F.layer_norm(x, (WIDTH,), w, b), x.mean(-1), (x.var(-1, correction=0) + 1e-5).rsqrt()),
        gradients=False,
    ),
    Operation(
        "group_norm",
        OPS,
        {"x": normal(2, 8, 35), "w": normal(8), "b": normal(8)},
        lambda m, x, w, b: m.group_norm(x, w, b, 2, 8, 35, 2)[0],
        lambda x, w, b: F.group_norm(x, 2, w, b),
        gradients=False,
    ),
    Operation(
        "batch_norm",
        OPS,
        {"x": normal(5, 6, 7), "w": normal(6), "b": normal(6)},
        lambda m, x, w, b: m.batch_norm(x, w, b, torch.zeros_like(w), torch.ones_like(w), True)[0],
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        gradients=False,
    ),
    Operation("rms_norm", OPS, {**X, "w": normal(WIDTH)}, lambda m, x, w: m.rms_norm(x, (WIDTH,), w, 1e-6), rms_norm),
    Operation(
        "instance_norm",
        FUSED,
        {"x": normal(3, 6, 35), "w": normal(6), "b": normal(6)},
        lambda m, x, w, b: m.instance_norm(x, w, b),
        lambda x, w, b: F.instance_norm(x, None, None, w, b),
    ),
    Operation(
        "skip_layer_norm",
        FUSED,
        {**XY, "w": normal(WIDTH), "b": normal(WIDTH)},
        lambda m, x, y, w, b: m.skip_layer_norm(x, y, (WIDTH,), w, b),
        lambda x, y, w, b: F.layer_norm(x + y, (WIDTH,), w, b),
        gradients=False,
    ),
    Operation(
        "fused_add_rms_norm",
        FUSED,
        {**XY, "w": normal(WIDTH)},
        lambda m, x, y, w: m.fused_add_rms_norm(x, y, (WIDTH,), w, 1e-6),
        lambda x, y, w: (rms_norm(x + y, w), x + y),
        gradients=False,
    ),
    like("weight_norm", torch._weight_norm, {"v": normal(6, 5, 7), "g": normal(6, 1, 1)}, module=FUSED),
    *(like(name, getattr(torch, name), {"x": normal(3, 4099)}, 1) for name in ("cumsum", "cummax", "cummin")),
    like("normed_cumsum", lambda x: x.cumsum(-1) / x.sum(-1, keepdim=True), {"x": part(3, 517)}),
    like("sum_dim", torch.sum, {"x": normal(3, 37, 19)}, (0, 2)),
    like("prod_dim", torch.prod, {"x": normal(3, 37)}, 1),
    like("var_mean", torch.var_mean, {"x": normal(3, 517)}, (1,)),
    like("std", torch.std, {"x": normal(3, 517)}, (1,)),
    like("vector_norm", torch.linalg.vector_norm, {"x": normal(3, 517)}, 3),
    like("argmax", torch.argmax, {"x": distinct(3, 517)}),
    like("max_dim", torch.max, {"x": distinct(3, 517)}, 0),
    like("aminmax", torch.aminmax, {"x": normal(3, 517)}),
    like("any_dim", torch.any, {"x": few(3, 517)}, 1),
    like("count_nonzero", torch.count_nonzero, {"x": few(3, 517)}),
    like("sort", torch.sort, {"x": distinct(3, 517)}, -1),
    like("topk", torch.topk, {"x": distinct(3, 517)}, 9),
    like("nonzero", torch.nonzero, {"x": few(3, 97)}),
    like("masked_select", torch.masked_select, {**X, "where": lambda: torch.rand(ROWS, WIDTH) > 0.5}),
    like(
        "masked_scatter",
        torch.masked_scatter,
        {**X, "where": lambda: torch.rand(ROWS, WIDTH) > 0.5, "y": normal(ROWS, WIDTH)},
    ),
    like("_unique2", torch.unique, {"x": few(517)}, True, True, True, title="unique2"),
    like("unique_consecutive", torch.unique_consecutive, {"x": few(517)}, True, True),
    like("isin", lambda x, y: torch.isin(x, y), {"x": few(3, 97), "y": lambda: torch.tensor([1, 5, 7])}),
    like("bincount", torch.bincount, {"x": few(517)}, module=FUSED),
    like("quantile", torch.quantile, {"x": normal(517), "q": lambda: torch.tensor([0.1, 0.5, 0.99])}),
    Operation(
        "gather",
        OPS,
        {"x": normal(ROWS, WIDTH), "i": classes(ROWS, 3, WIDTH)},
        lambda m, x, i: m.gather(x, 0, i),
        lambda x, i: x.gather(0, i),
        gradients=False,
    ),
    Operation(
        "scatter",
        OPS,
        {**PLACES, "i": lambda: torch.stack([torch.randperm(ROWS)[:3] for _ in range(WIDTH)], 1)},
        lambda m, x, i, s: m.scatter(x, 0, i, s),
        lambda x, i, s: x.scatter(0, i, s),
        gradients=False,
    ),
    Operation(
        "scatter_add",
        OPS,
        PLACES,
        lambda m, x, i, s: m.scatter_add_(x, 0, i, s),
        lambda x, i, s: x.scatter_add(0, i, s),
        gradients=False,
    ),
    Operation(
        "index_add",
        OPS,
        {**X, "i": classes(ROWS, 9), "s": normal(9, WIDTH)},
        lambda m, x, i, s: m.index_add(x, 0, i, s),
        lambda x, i, s: x.index_add(0, i, s),
        gradients=False,
    ),
    Operation(
        "index_put",
        OPS,
        {**X, "i": classes(ROWS, 9), "j": classes(WIDTH, 9), "s": normal(9)},
        lambda m, x, i, j, s: m.index_put(x, (i, j), s, True),
        lambda x, i, j, s: x.index_put((i, j), s, True),
        gradients=False,
    ),
    Operation(
        "index_select",
        OPS,
        {**X, "i": classes(WIDTH, 9)},
        lambda m, x, i: m.index_select(x, 1, i),
        lambda x, i: x.index_select(1, i),
        gradients=False,
    ),
    Operation(
        "embedding",
        OPS,
        {"w": normal(33, 19), "i": classes(33, 4, 5)},
        lambda m, w, i: m.embedding(w, i),
        lambda w, i: F.embedding(i, w),
        gradients=False,
    ),
    Operation(
        "nll_loss",
        OPS,
        {"x": normal(9, 33), "y": classes(33, 9)},
        lambda m, x, y: m.nll_loss_forward(x, y)[0],
        lambda x, y: F.nll_loss(x, y),
        gradients=False,
    ),
    Operation(
        "cross_entropy_loss",
        FUSED,
        {"x": normal(9, 33), "y": classes(33, 9)},
        lambda m, x, y: m.cross_entropy_loss(x, y, label_smoothing=0.1),
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    ),
    Operation(
        "cross_entropy_loss, chances",
        FUSED,
        {"x": normal(9, 33), "y": chances(9, 33)},
        lambda m, x, y: m.cross_entropy_loss(x, y.detach()),
        lambda x, y: F.cross_entropy(x, y.detach()),
    ),
    like("mse_loss", F.mse_loss, XY),
    Operation(
        "scaled_dot_product_attention",
        OPS,
        QKV,
        lambda m, q, k, v: m.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda q, k, v: attention(q, k, v, True),
        1e-2,
    ),
    Operation(
        "scaled_dot_product_attention, groups",
        OPS,
        QUERY_OF_GROUPS,
        lambda m, q, k, v: m.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        lambda q, k, v: attention(q, k, v, False),
        1e-2,
        gradients=False,
    ),
    Operation(
        "flash_attention_forward",
        OPS,
        {name: normal(1, 37, 2, 32, dtype=HALF) for name in "qkv"},
        lambda m, q, k, v: m.flash_attention_forward(q, k, v, None, None, 37, 37, 0.0, True, False)[0],
        lambda q, k, v: attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), True).transpose(1, 2),
        1e-2,
        gradients=False,
    ),
    Operation(
        "apply_rotary_pos_emb",
        FUSED,
        ROPE,
        lambda m, q, k, angle: m.apply_rotary_pos_emb(q, k, angle[0].cos(), angle[0].sin()),
        lambda q, k, angle: tuple(turned(x.transpose(1, 2), angle).transpose(1, 2) for x in (q, k)),
        gradients=False,
    ),
    Operation("silu_and_mul", FUSED, XY, lambda m, x, y: m.silu_and_mul(x, y), lambda x, y: F.silu(x) * y),
    Operation(
        "gelu_and_mul",
        FUSED,
        XY,
        lambda m, x, y: m.gelu_and_mul(x, y, "tanh"),
        lambda x, y: F.gelu(x, approximate="tanh") * y,
    ),
    Operation(
        "geglu",
        FUSED,
        {"x": normal(ROWS, 78)},
        lambda m, x: m.geglu(x),
        lambda x: F.gelu(x[:, :39], approximate="tanh") * x[:, 39:],
        gradients=False,
    ),
    Operation(
        "topk_softmax",
        FUSED,
        {"x": normal(9, 8)},
        softmax_of_experts,
        lambda x: x.softmax(-1).topk(3)[0],
        gradients=False,
    ),
    Operation(
        "fused_experts",
        FUSED,
        {
            "x": normal(9, 32, dtype=HALF),
            "one": normal(4, 64, 32, dtype=HALF, scale=0.2),
            "two": normal(4, 32, 32, dtype=HALF, scale=0.2),
            "s": normal(9, 4),
        },
        lambda m, x, one, two, s: m.outplace_fused_experts(x, one, two, s.softmax(-1).topk(2)[0], chosen_experts(s)),
        lambda x, one, two, s: experts(x, one, two, *s.softmax(-1).topk(2)),
        1e-2,
        gradients=False,
    ),
    Operation(
        "moe_sum",
        FUSED,
        {"x": normal(9, 3, 33)},
        summed,
        lambda x: x.sum(1),
        gradients=False,
    ),
    Operation(
        "hadamard_transform", OPS, {"x": normal(5, 64)}, lambda m, x: m.hadamard_transform(x), None, gradients=False
    ),
    Operation(
        "per_token_group_quant_fp8",
        OPS,
        {"x": normal(5, 128)},
        quantized,
        lambda x: x,
        0.05,
        gradients=False,
    ),
    Operation("sinkhorn", FUSED, {"x": normal(5, 4, 4)}, lambda m, x: m.sinkhorn_forward(x)[0], None, gradients=False),
    *(
        Operation(name, OPS, X, call, None, gradients=False)
        for name, call in (
            ("rand_like", lambda m, x: m.rand_like(x)),
            ("normal", lambda m, x: m.normal_(x.clone())),
            ("exponential", lambda m, x: m.exponential_(x.clone())),
            ("randperm", lambda m, x: m.randperm(517, device=x.device)),
            ("multinomial", lambda m, x: m.multinomial(x.softmax(-1), 3)),
            ("dropout", lambda m, x: m.dropout(x, 0.3, True)[0]),
        )
    ),
    Operation(
        "polar",
        OPS,
        XY,
        lambda m, x, y: torch.view_as_real(m.polar(x, y)),
        lambda x, y: torch.view_as_real(torch.polar(x, y)),
        gradients=False,
    ),
)
