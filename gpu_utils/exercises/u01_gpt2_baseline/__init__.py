"""Unit 01: a GPT-2 written, counted and trained. The names of its exercises, in the order of the lab."""

NAMES = (
    "attention",
    "mlp",
    "block",
    "init",
    "logits",
    "param_count",
    "flops_per_token",
    "grad_accumulation",
    "lr_schedule",
    "train_step",
    "kv_cache",
    "activation_memory",
)
