"""Wrong answers of a made class: small changes to a solution, as learners make them, each of which fails its check."""

from __future__ import annotations

SLIPS: dict[str, dict[str, tuple[str, str]]] = {
    "00.platform": {
        "the vendors are swapped": ("is not None", "is None"),
        "every GPU is NVIDIA's": ('"amd" if torch.version.hip is not None else "nvidia"', '"nvidia"'),
    },
    "00.vector_add": {
        "x is loaded without a mask": ("tl.load(x_ptr + offsets, mask=mask)", "tl.load(x_ptr + offsets)"),
        "y is read at the place of x": ("y_ptr + offsets % m", "y_ptr + offsets"),
        "the grid rounds down": ("triton.cdiv(n, BLOCK)", "n // BLOCK"),
    },
    "00.saxpy": {
        "rows and columns are swapped": ("offsets // n_cols, offsets % n_cols", "offsets % n_cols, offsets // n_cols"),
        "a multiplies y": ("offsets, a * x + y", "offsets, x + a * y"),
        "y has the row stride of x": ("y_ptr + row * stride_ym", "y_ptr + row * stride_xm"),
    },
    "00.find_mask": {
        "every guard counts": ('text.startswith("@") and ".global" in text', 'text.startswith("@")'),
        "the first operand is taken for the offset": ("operands[1]", "operands[0]"),
    },
    "00.predict_counters": {
        "waves of the elements only": ("triton.cdiv(n, 256) * 256 // lanes", "triton.cdiv(n, lanes)"),
        "a step more than there are": ("(lanes - 1) * 4 * stride // piece + 1", "lanes * 4 * stride // piece"),
    },
    "00.column_sums": {
        "a row has the length of a block": ("row * n_cols + cols", "row * BLOCK + cols"),
        "only the last row counts": ("total += tl.load", "total = tl.load"),
    },
    "01.attention": {
        "a token does not see itself": (".triu(1)", ".triu(0)"),
        "the scale is the width's": ("math.sqrt(d // n_head)", "math.sqrt(d)"),
        "heads are merged without a transpose": ("(weights @ v).transpose(1, 2).reshape", "(weights @ v).reshape"),
    },
    "01.mlp": {
        "the exact GELU": (', approximate="tanh"', ""),
        "no last bias": ("F.linear(hidden, w_proj, b_proj)", "F.linear(hidden, w_proj)"),
    },
    "01.block": {
        "the second branch replaces its input": ("return x + mlp(h,", "return mlp(h,"),
        "one norm for both branches": ('*pair("ln_2"))', '*pair("ln_1"))'),
    },
    "01.init": {
        "one branch a layer": ("math.sqrt(2 * n_layer)", "math.sqrt(n_layer)"),
        "the last layer has weights of its own": ('weights["lm_head.weight"] = weights["wte.weight"]', "pass"),
    },
    "01.logits": {
        "positions from 0": ("[start : start + T]", "[:T]"),
        "the token before the last": ("x[sequences, at]", "x[sequences, at - 1]"),
    },
    "01.param_count": {
        "no last norm": ("* d + 2 * d", "* d"),
        "any width will do": (" // multiple * multiple", ""),
    },
    "01.flops_per_token": {
        "backward costs as much as forward": ("3 * (weights", "2 * (weights"),
        "one position early": ("attention_per_position + 1,", "attention_per_position,"),
    },
    "01.grad_accumulation": {
        "a mean of each part": ('reduction="sum") / count', 'reduction="mean")'),
        "masked targets are counted": ("(targets != -100).sum()", "targets.numel()"),
    },
    "01.lr_schedule": {
        "warm-up starts at 0": ("(step + 1) / warmup_steps", "step / warmup_steps"),
        "twice the cosine": ("0.5 * (1 + math.cos", "(1 + math.cos"),
    },
    "01.train_step": {
        "gradients of the step before": ("optimizer.zero_grad()", "pass"),
        "parts weigh alike": ("* count / sum(real)", "/ len(parts)"),
    },
    "01.kv_cache": {
        "the cache comes last": ("torch.cat([v_cache, v], dim=2)", "torch.cat([v, v_cache], dim=2)"),
        "the mask forgets the past": ("kept.tril(T_past)", "kept.tril(0)"),
    },
    "01.activation_memory": {
        "the optimizer's state is forgotten": ("16 * parameters", "4 * parameters"),
        "a fused kernel keeps probabilities": ("if not fused:", "if fused:"),
    },
}  # fmt: skip
"""Exercise -> what is wrong -> (text that the solution has once, what stands there instead)."""


def slipped(solution: str, exercise: str, what: str) -> str:
    """The solution with one of its slips."""
    right, wrong = SLIPS[exercise][what]
    return solution.replace(right, wrong)
