# %% [markdown] top
# # Lab 09: the same answer on two chips
#
# **Seven exercises.**
#
# - **First**: lesson 09. It has the ideas; each statement says what else it needs.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it.
#   `hint("09.ulp")` gives three hints of growing strength. `solution("09.ulp")` asks first.

# %% imports tags=["setup"]
import torch
from torch import Tensor, nn

from gpu_utils import check, hint, lesson, progress, solution

# %% [markdown] part 1
# ## Part 1: how far apart

# %% [markdown] statement of ulp
# ## 09.ulp: PLACEHOLDER

# %% [markdown] statement of reduction_order
# ## 09.reduction_order: PLACEHOLDER

# %% [markdown] statement of tolerance
# ## 09.tolerance: PLACEHOLDER

# %% [markdown] part 2
# ## Part 2: the same bits on purpose

# %% [markdown] statement of fixed_tree
# ## 09.fixed_tree: PLACEHOLDER

# %% [markdown] statement of batch_invariant
# ## 09.batch_invariant: PLACEHOLDER

# %% [markdown] part 3
# ## Part 3: noise or a bug

# %% [markdown] statement of layer_diff
# ## 09.layer_diff: the first operator of a broken port
#
# `port` is `original` written anew, with the same weights. Write `layer_diff(original, port, tokens, tolerance)`: the
# name of the first module, in order of execution, that gives something else *from the same input*.
#
# | | |
# |---|---|
# | `original`, `port` | two `torch.nn.Module`s whose modules have the same names; `original(tokens)` gives logits |
# | `tokens` | int64 (batch, T), no longer than 16 |
# | `tolerance` | the relative error that roundings within *one* module may cause |
# | result | the name of a module that has no inner modules, such as `"layers.1.attn.q"`; `None` where none differs |
#
# - **Something else**: for a tensor $a$ that a module of the original gives and the tensor $b$ that the port's module
#   of that name gives, $\lVert b - a \rVert / \lVert a \rVert$ is not within the tolerance. A module may give a
#   tuple of tensors. What is no number is not within it.
# - **The same input**: what the original's module got when `original(tokens)` ran. The port may be in bfloat16 (all of
#   its parameters are then): its modules take such inputs. Over many layers the roundings of an honest port may grow
#   beyond `tolerance`; that is no fault.
# - There may be no fault, one or several. The two models stay as they were, without hooks.
#
# The modules without inner ones, in order of execution: `embed`; in each layer `norm_1`, `attn.q`, `attn.k`, `attn.v`,
# `attn.rope` (takes q and k, gives both), `attn.core` (takes q, k, v), `attn.o`, `norm_2`, `mlp.up`, `mlp.act`,
# `mlp.down`; at the end `norm` and `head`. They stand in the model in another order. All arguments are positional
# tensors, and each is called once.
#
# **A small example.** Two layers; the port turns k by one position too far in layer 1. Relative errors of some modules
# of the port, with the tolerance 5e-6:
#
# | module | when both models run | from the same input |
# |---|---|---|
# | `layers.1.attn.k` | 0 | 0 |
# | `layers.1.attn.rope` | 0 for q, 0.5 for k | 0 for q, 0.5 for k |
# | `layers.1.attn.core` | 0.3 | 0 |
# | `head` | 0.2 | 0 |
#
# Which of the four is the answer, and what are the last two?


# %% 09.layer_diff tags=["answer", "09.layer_diff"]
def layer_diff(
    original: nn.Module, port: nn.Module, tokens: Tensor, tolerance: float
) -> str | None:
    """The first module of port that gives something else from the same input, or None."""
    # BEGIN SOLUTION
    calls, handles = [], []
    for name, module in original.named_modules():
        if not list(module.children()):

            def keep(module, args, output, name=name):
                calls.append((name, args, output))

            handles.append(module.register_forward_hook(keep))
    with torch.no_grad():
        original(tokens)
        for handle in handles:
            handle.remove()
        dtype = next(port.parameters()).dtype
        for name, args, output in calls:
            given = [x.to(dtype) if x.is_floating_point() else x for x in args]
            found = port.get_submodule(name)(*given)
            if isinstance(output, Tensor):
                output, found = [output], [found]
            for a, b in zip(output, found, strict=True):
                if not (b - a).norm() <= tolerance * a.norm():
                    return name
    return None
    # END SOLUTION


# %% 09.layer_diff check tags=["check", "09.layer_diff"]
check("09.layer_diff")

# %% [markdown] own layer_diff
# **On a model that is not ours.** Below is a small Llama of `transformers`, and the same with a fault that a seed
# plants. Its modules take keyword arguments and give tuples of other things, so your function would need some more
# lines; `./w2w diff` has them. It also follows the operators within the module. Which of the six faults is it?
#
# <details><summary>The small example</summary>
#
# `layers.1.attn.rope`: the first that gives something else from the same input. `attn.core` and `head` are victims:
# their inputs differ, and they do with them what they should.
#
# </details>

# %% a fault that a seed plants
from transformers import LlamaConfig, LlamaForCausalLM

shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3}
heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
config = LlamaConfig(vocab_size=97, hidden_act="gelu", **shape, **heads)
tokens = torch.randint(97, (2, 12), generator=torch.Generator().manual_seed(1))


def llama():
    torch.manual_seed(9)
    return LlamaForCausalLM(config).eval()


theirs, broken = llama(), llama()
lesson.plant_fault(broken, ["eps", "gelu", "mask", "scale"][2], seed=4)
found = lesson.port_diff(lesson.recording_of(theirs, tokens), broken, tokens)
lesson.table(
    {
        fault.module: {
            "operator": fault.operator,
            "what differs": fault.because,
            "line": fault.line,
        }
        for fault in found.faults
    }
)

# %% [markdown] statement of convergence
# ## 09.convergence: noise or a bug?
#
# A port was trained beside the original, with six seeds. Rounding alone sets two right runs apart. Write
# `convergence(reference, port, tail)`: is what you see noise, or a bug?
#
# | | |
# |---|---|
# | `reference`, `port` | float64 (6, steps): the loss in nats. Row i of both has the same seed and the same batches |
# | `tail` | a bug here moves the last `tail` steps, up or down; the steps before say nothing about it |
# | result | `"noise"` or `"bug"` |
#
# Your test is judged by how often it is wrong, over hundreds of drawn pairs of sets:
#
# - of **honest** ports at most 5% may be called a bug (a check allows for chance in its count);
# - of bugs that move the mean by **five standard errors**, in either direction, at least 75% must be found. The
#   standard error is that of the mean over the six pairs of runs;
# - a run that became NaN is a bug.
#
# What is known of the noise: a seed moves a whole curve, in both runs of a pair alike. What separates the two runs of a
# pair may stay for many steps, is larger while the curve falls, and is independent from seed to seed, and normal. Its
# size differs from case to case, from 0.0003 to 0.1 nats. Any test that keeps these rates is right.
#
# Of Student's t for 5 degrees of freedom, 95% lie between -2.571 and 2.571.
#
# **A small example**, of one step: the six losses are 3.10, 2.90, 3.05, 3.20, 2.95, 3.00 in the reference, and 3.11,
# 2.91, 3.07, 3.21, 2.96, 3.02 in the port. The means of the two sets lie 0.013 apart, and seeds 0.1. Noise?


# %% 09.convergence tags=["answer", "09.convergence"]
def convergence(reference: Tensor, port: Tensor, tail: int) -> str:
    """ "noise" or "bug" for the losses (6, steps) of pairs of runs."""
    # BEGIN SOLUTION
    apart = (port - reference)[:, -tail:].mean(dim=1)
    error = apart.std() / len(apart) ** 0.5
    return "noise" if apart.mean().abs() <= 2.571 * error else "bug"
    # END SOLUTION


# %% 09.convergence check tags=["check", "09.convergence"]
check("09.convergence")

# %% [markdown] own convergence
# The parity report of unit 03 takes its bounds from the same distribution: `lesson.parity` compares a mean with what
# other seeds do to the reference, at 5%, and shows the interval of the pairs' differences. It does not judge by the
# latter: with pairs even another rounding shows, if it does the same to every seed. Whether a shift of 0.0001 nats
# matters is no question of statistics.
#
# <details><summary>The small example</summary>
#
# The differences are 0.01, 0.01, 0.02, 0.01, 0.01, 0.02: a mean of 0.0133 with a standard error of 0.0021, which is 6.3
# of them. A bug, although seeds do ten times as much: they do it to both runs.
#
# </details>

# %% [markdown] end of the lab
# ## Done
#
# PLACEHOLDER

# %% progress
progress()
