"""Unit 10: multi-head latent attention and mixture of experts. Its exercises, in the lab's order."""

NAMES = (
    # attention with latent vectors
    "mla",
    "mla_absorb",
    # routing and balance
    "gate",
    "group_limited",
    "bias_update",
    # kernels of a layer of experts
    "permute",
    "grouped_gemm",
    # the model
    "moe_block",
    "mtp",
)
