"""The causes and fixes of 03.triage, what each log is, and which line speaks against which wrong reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CAUSES: Mapping[str, str] = {
    "masks_compose": "two visibility variables are set, and the second counts among what the first has left",
    "foreign_override": "HSA_OVERRIDE_GFX_VERSION makes the GPU pass for one of another generation",
    "mask_for_each_rank": "each process has a ROCR_VISIBLE_DEVICES of its own",
    "missing_target": "a library has no machine code for this GPU",
    "wrong_build": "torch was built for the other vendor",
    "lds_exceeded": "a block asks for more shared memory (LDS) than the target has",
    "ptx_constraint": "inline PTX with its constraint letters meets AMD's compiler",
    "mask_of_32_bits": "a lane mask of 32 bits",
    "warp_size_constant": "warpSize taken for a compile-time constant",
    "fp8_maximum": "values are scaled to the largest number of another FP8 format",
    "call_in_capture": "a call that is not allowed while a stream is captured into a graph",
    "tuning_left_on": "TunableOp tunes in the middle of the job",
    "network": "ranks on two nodes do not reach each other over the network",
    "out_of_memory": "the memory of the GPU is full",
    "learning_rate": "the optimiser's steps are too large",
    "driver": "the GPU driver is not loaded, or its files may not be opened",
}
"""Name -> what it says: one for each log."""

FIXES: Mapping[str, str] = {
    "number_within_mask": "number the GPUs among those that the first variable leaves, or set one variable only",
    "unset_override": "unset HSA_OVERRIDE_GFX_VERSION",
    "show_all_gpus": "let every process see all GPUs of the job; it takes its own by number",
    "build_for_target": "build the library for this GPU's target as well",
    "install_rocm_build": "install the builds for ROCm",
    "smaller_stages": "fewer stages or smaller tiles on this target",
    "branch_by_backend": "put the assembly behind a test of the backend, with AMD's version or none beside it",
    "mask_of_64_bits": "a mask of 64 bits that names the lanes that call",
    "narrowest_wave": "size the array for the narrowest wave, and count waves at run time",
    "ask_finfo": "take the largest number from torch.finfo of the dtype",
    "move_out_of_capture": "move the call out of the captured part",
    "stop_tuning": "PYTORCH_TUNABLEOP_TUNING=0 with the results at hand, or the tuner off",
    "choose_interface": "name the interface that the nodes share in NCCL_SOCKET_IFNAME",
    "allow_device": "give the user the group that may open /dev/kfd",
    "raise_timeout": "a longer timeout for collectives",
    "disable_p2p": "NCCL_P2P_DISABLE=1",
    "set_override": "set HSA_OVERRIDE_GFX_VERSION to the target that the library knows",
    "smaller_batch": "a smaller batch",
    "lower_learning_rate": "a lower learning rate",
    "reinstall_driver": "install the GPU driver again",
    "opt_in_shared": "allow more dynamic shared memory by cudaFuncSetAttribute",
}


@dataclass(frozen=True)
class Against:
    """Why one reading of a log is wrong. line: words that only one line of the log has; why: what that line says."""

    line: str
    why: str


@dataclass(frozen=True)
class Truth:
    """One log. causes, fixes: wrong names -> what speaks against them; source: the public thread behind the text.

    evidence: markers of the lines that show the cause; the first of each counts. near: lines that only seem to.
    """

    cause: str
    fix: str
    source: str
    evidence: tuple[str, ...]
    causes: Mapping[str, Against]
    fixes: Mapping[str, Against]
    near: tuple[Against, ...] = ()


_WATCHDOG = "a rank that waits for a dead one reports this minutes later: it is a consequence. What came first?"

TRUTHS: Mapping[str, Truth] = {
    "01_batch_job": Truth(
        "masks_compose",
        "number_within_mask",
        "pytorch #142292; SwarmUI #565",
        ("batch system has set ROCR", "export HIP_VISIBLE_DEVICES"),
        {
            "driver": Against(
                "amd-smi: driver", "the driver is loaded and knows the GPUs, so they are hidden, not missing"
            ),
            "foreign_override": Against("export HIP_VISIBLE", "no override is set anywhere; this is what the job sets"),
            "wrong_build": Against("+rocm", "this is a build for ROCm"),
            "mask_for_each_rank": Against(
                "batch system has set", "the whole job has one mask, the same for every rank"
            ),
        },
        {
            "reinstall_driver": Against("amd-smi: driver", "the driver has found all GPUs"),
            "show_all_gpus": Against(
                "batch system has set", "this layer is the batch system's, and it hides GPUs from all"
            ),
        },
    ),
    "02_workstation": Truth(
        "foreign_override",
        "unset_override",
        "project-nomad #810; ROCm/rocm-systems #5686",
        ("export HSA_OVERRIDE_GFX_VERSION", "found agent"),
        {
            "driver": Against("amd-smi: driver", "the driver is loaded and has named the GPU"),
            "masks_compose": Against(
                "found agent", "the runtime has found the GPU: no mask hides it. Under which name?"
            ),
            "missing_target": Against("built for", "the GPU's own target is in this list"),
            "out_of_memory": Against("listed the agents", "it ended before it could ask for memory"),
        },
        {
            "set_override": Against("export HSA_OVERRIDE", "it is set; compare its generation with the GPU's"),
            "reinstall_driver": Against(
                "amd-smi: driver", "the driver works; what does the layer above make of the GPU?"
            ),
            "build_for_target": Against("built for", "that target is there already"),
        },
    ),
    "03_rl_actors": Truth(
        "mask_for_each_rank",
        "show_all_gpus",
        "vllm #46895",
        ("P2P/IPC", "(Trainer pid=@) ROCR", "(Generator pid=@) ROCR"),
        {
            "network": Against("both ranks have joined", "the ranks talk to each other over the network already"),
            "masks_compose": Against(
                "(Trainer pid=@) torch", "each rank sees the one GPU that it should, so the two lists fit"
            ),
            "out_of_memory": Against("weights loaded", "the memory is nearly empty"),
        },
        {
            "disable_p2p": Against(
                "handle of the peer",
                "this would go round the failed access through the host, and leave its cause as it is",
            ),
            "raise_timeout": Against("Watchdog caught", _WATCHDOG),
            "number_within_mask": Against(
                "(Trainer pid=@) ROCR", "the numbers fit: rank 0 sees one GPU, and that is the trouble"
            ),
        },
    ),
    "04_new_node": Truth(
        "missing_target",
        "build_for_target",
        "ROCm/ROCm #5668; vllm #17170",
        ("invalid device function", "offload targets", "the traceback ends in"),
        {
            "network": Against("Watchdog caught", _WATCHDOG),
            "out_of_memory": Against("GiB allocated on each", "the memory has room left"),
            "wrong_build": Against("built for:", "torch has code for this GPU. Who has not?"),
            "foreign_override": Against("sramecc", "the GPU goes by its own name; no override is at work"),
        },
        {
            "set_override": Against(
                "offload targets",
                "machine code for these is not machine code for the GPU; another name makes it crash instead",
            ),
            "raise_timeout": Against("Watchdog caught", _WATCHDOG),
            "install_rocm_build": Against("built for:", "torch is a build for ROCm, and fits"),
        },
    ),
    "05_autotune": Truth(
        "lds_exceeded",
        "smaller_stages",
        "vllm #17744, #12498",
        ("out of resource: shared", "OutOfResources(self"),
        {
            "out_of_memory": Against(
                "GiB allocated", "two thirds of the GPU's memory are free; look at which memory is short"
            ),
            "missing_target": Against(
                "compiled in", "the kernel was compiled for this GPU; it fails when it is loaded"
            ),
            "wrong_build": Against("0.231 ms", "other configurations run on this GPU"),
        },
        {
            "smaller_batch": Against("Required", "it is a block that asks for this, whatever the batch is"),
            "opt_in_shared": Against("Required", "the limit is the hardware's: no attribute raises it"),
        },
    ),
    "06_first_step": Truth(
        "ptx_constraint",
        "branch_by_backend",
        "mamba #1018; sglang #34351",
        ("couldn't allocate output register", "inline_asm_elementwise"),
        {
            "network": Against("closed its connection", "the peer was gone by then; why did it end?"),
            "missing_target": Against(
                "_fwd_kernel for gfx942", "Triton compiles for this GPU here; what does it object to?"
            ),
            "out_of_memory": Against("LLVM ERROR", "the compiler stopped, before anything was loaded"),
            "wrong_build": Against("+rocm", "this is a build for ROCm"),
        },
        {
            "raise_timeout": Against("ended with signal", "rank 2 is dead; no timeout brings it back"),
            "build_for_target": Against("inline_asm_elementwise", "no build changes what stands in this line"),
        },
    ),
    "07_build_a": Truth(
        "mask_of_32_bits",
        "mask_of_64_bits",
        "ROCm/hip #3667; cupy #9977",
        ("static assertion failed", "expression evaluates", "in instantiation of", "value, offset)"),
        {
            "warp_size_constant": Against(
                "sizeof(MaskT)", "the assertion is about the size of a mask, not about a width"
            ),
            "missing_target": Against(
                "1 error generated", "the compiler builds for this target; it stops at an error of the source"
            ),
            "wrong_build": Against("hipcc 7", "torch and the compiler are ROCm's"),
        },
        {
            "narrowest_wave": Against("18 |", "no array is sized here; what has this call for its first argument?"),
            "build_for_target": Against("1 error generated", "it is being built for this very target"),
        },
    ),
    "08_build_b": Truth(
        "warp_size_constant",
        "narrowest_wave",
        "pytorch #156979; vllm #20330",
        ("must be initialized by", "'warpSize' cannot be used", "/ warpSize;"),
        {
            "mask_of_32_bits": Against("Wsign-conversion", "that is a warning; the errors come after it"),
            "missing_target": Against(
                "errors generated", "the compiler builds for this target; it stops at errors of the source"
            ),
            "lds_exceeded": Against("variable length array", "its size is not too large, it is not known"),
        },
        {
            "mask_of_64_bits": Against(
                "Wsign-conversion", "this removes a warning; the build still stops two lines below"
            ),
            "build_for_target": Against("errors generated", "it is being built for these very targets"),
        },
    ),
    "09_loss": Truth(
        "fp8_maximum",
        "ask_finfo",
        "pytorch/ao #4130",
        ("amax / 448", "values are NaN"),
        {
            "learning_rate": Against("in bfloat16: step 3", "the same learning rate trains well in another dtype"),
            "network": Against(
                "amax of the input", "the NaN appears inside one layer of one rank, before anything is sent"
            ),
            "wrong_build": Against("step 1 loss", "the model trains on the GPU, until a value is too large"),
        },
        {
            "lower_learning_rate": Against("in bfloat16: step 3", "the learning rate is fine, as this run shows"),
            "smaller_batch": Against(
                "amax of the input", "values are NaN right after quantising; the batch has no part in that"
            ),
        },
    ),
    "10_after_upgrade": Truth(
        "call_in_capture",
        "move_out_of_capture",
        "ROCm/rccl #2022; ROCm/hip #3876",
        ("when stream is capturing", "step_timer.stop()"),
        {
            "network": Against("ALLGATHER", _WATCHDOG),
            "missing_target": Against("not permitted when", "the call exists and is refused at this moment"),
            "wrong_build": Against("image changed", "it is a build for ROCm; what changed are ROCm's rules"),
        },
        {
            "raise_timeout": Against("ALLGATHER", _WATCHDOG),
            "disable_p2p": Against(
                "step_timer", "no access between GPUs is in this; see what this line calls, and when"
            ),
        },
    ),
    "11_fresh_env": Truth(
        "wrong_build",
        "install_rocm_build",
        "ROCm/ROCm #5668; PyTorch, HIP (ROCm) semantics",
        ("torch.version.hip None", "Successfully installed"),
        {
            "driver": Against(
                "amd-smi: driver", "AMD's driver is loaded and has found the GPUs. Whose driver is missing?"
            ),
            "masks_compose": Against("$ HIP_VISIBLE", "one list, of two GPUs that exist, and nothing composes with it"),
            "network": Against("giving up", "worker 1 waits for one that has already ended"),
            "missing_target": Against(
                "torch.version.hip None", "more than one target is missing here: read this line again"
            ),
        },
        {
            "reinstall_driver": Against(
                "torch.version.hip None", "no driver of AMD can help a torch that does not ask for one"
            ),
            "build_for_target": Against("Successfully installed", "look at which packages came along"),
            "set_override": Against("torch.version.hip None", "only ROCm reads that variable"),
        },
        (
            Against(
                "Found no NVIDIA driver",
                "a CUDA build says that on an NVIDIA machine without a driver, too; which line tells the build of "
                "torch?",
            ),
        ),
    ),
    "12_slow": Truth(
        "tuning_left_on",
        "stop_tuning",
        "pytorch #114894; comfyui-amd-go-fast #2",
        ("finding fastest", "TUNABLEOP_ENABLED=1"),
        {
            "network": Against("step 1 loss", "collectives take a fraction of a second of this step"),
            "out_of_memory": Against("GiB allocated", "half of the memory is free"),
            "wrong_build": Against("writing", "matrix products are found for this GPU, and written down"),
        },
        {
            "raise_timeout": Against("cancelling", "it would let a job go on that makes no progress"),
            "disable_p2p": Against("step 2 loss", "collectives are not what takes the time"),
            "smaller_batch": Against("step 2 loss", "look at what happens between two steps"),
        },
    ),
    "13_new_chip": Truth(
        "learning_rate",
        "lower_learning_rate",
        "facebookresearch/maskrcnn-benchmark #295",
        ("in bfloat16: step 3", "in bfloat16: step 1", "config: the one of", "a hundredth of the learning rate"),
        {
            "fp8_maximum": Against("values are NaN", "no value was lost: 448 is the largest number of this dtype"),
            "wrong_build": Against("step 0 loss", "the model trains on the GPU, for a step"),
            "network": Against("step 1 loss", "the gradient grows step by step; a network does not do that"),
            "out_of_memory": Against("step 2 loss", "it still had the memory for this step"),
        },
        {
            "ask_finfo": Against("scale = amax", "torch.finfo says 448 for this dtype, too"),
            "smaller_batch": Against("a hundredth", "the same batch trains, with another setting"),
        },
    ),
    "14_two_nodes": Truth(
        "network",
        "choose_interface",
        "NVIDIA/nccl #286, #1105",
        ("Connection refused", "NCCL_SOCKET_IFNAME set", "Bootstrap : Using", "interfaces of this node"),
        {
            "mask_for_each_rank": Against("via P2P/IPC", "inside the node GPUs do reach each other's memory"),
            "masks_compose": Against("via P2P/IPC", "the processes have their GPUs"),
            "driver": Against("via P2P/IPC", "the GPUs are at work already"),
            "out_of_memory": Against("dist.barrier", "nothing large has been allocated yet"),
        },
        {
            "raise_timeout": Against("Connection refused", "refused at once: waiting longer changes nothing"),
            "disable_p2p": Against("via P2P/IPC", "this is what works; what fails goes to the other node"),
            "show_all_gpus": Against("via P2P/IPC", "the GPUs of this node see each other"),
        },
    ),
    "15_long_context": Truth(
        "out_of_memory",
        "smaller_batch",
        "pytorch #138002",
        ("HIP out of memory", "GiB allocated"),
        {
            "lds_exceeded": Against("num_stages=3 left out", "the tuner left this one out, and went on"),
            "missing_target": Against("step 0 loss", "kernels run on this GPU"),
            "learning_rate": Against("step 0 loss", "the loss is a number, and the optimiser has made no step"),
        },
        {
            "smaller_stages": Against("is the fastest", "the depth that was chosen is the smallest one already"),
            "opt_in_shared": Against("HIP out of memory", "GiB: not the 64 KiB of a block"),
        },
    ),
    "16_first_login": Truth(
        "driver",
        "allow_device",
        "ROCm/rocminfo #34; ROCm/vllm #893",
        ("Unable to open /dev/kfd", "group render"),
        {
            "masks_compose": Against("export HIP_VISIBLE", "these numbers exist among the two GPUs that are left"),
            "foreign_override": Against("export HIP_VISIBLE", "no override is set anywhere; this is what the job sets"),
            "wrong_build": Against("+rocm", "this is a build for ROCm"),
            "mask_for_each_rank": Against("batch system has set", "the whole job has one mask"),
        },
        {
            "reinstall_driver": Against("lsmod", "the driver is loaded, and runs; who may speak to it?"),
            "number_within_mask": Against("export HIP_VISIBLE", "these numbers count within the first list already"),
            "show_all_gpus": Against("batch system has set", "this layer is the batch system's, for the whole job"),
        },
    ),
}
"""Log -> what is right and what speaks against the rest. `@` in a marker stands for a number that differs by log."""
