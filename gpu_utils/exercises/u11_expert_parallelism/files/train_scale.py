"""Unit 10's model over expert-parallel ranks: the same script on two processes and on hundreds of GPUs.

torchrun --nproc-per-node=2 train_scale.py --steps 3
"""

import argparse
import os
import time

import torch
import torch.distributed as dist

from gpu_utils.lesson import ModelOnRanks


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--sequences", type=int, default=2, help="of 32 tokens, for each rank")
    parser.add_argument("--expert-ranks", type=int, help="of a replica; as many as divide ranks and experts")
    options = parser.parse_args()

    gpu = torch.cuda.is_available()  # True for ROCm as well
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo")  # "nccl" is RCCL where torch is built for ROCm

    world, rank = dist.get_world_size(), dist.get_rank()
    ranks = ModelOnRanks(options.expert_ranks, device=device)
    for step, (tokens, targets) in enumerate(ranks.batches(options.steps, options.sequences * world)):
        began = time.perf_counter()
        loss = ranks.step(tokens, targets)
        if rank == 0:
            seconds = time.perf_counter() - began
            print(f"step {step}: loss {loss:.6f} over {world} ranks, {seconds:.3f} s", flush=True)
    if rank == 0:
        print(f"a rank holds {ranks.held['all']} weights, {ranks.held['experts']} of them in experts", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
