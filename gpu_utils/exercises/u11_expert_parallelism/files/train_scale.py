"""The same script on two processes and on a thousand GPUs: who am I, which device, which backend, and some steps.

torchrun --nproc-per-node=2 train_scale.py --steps 3
"""

import argparse
import os

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--width", type=int, default=64)
options = parser.parse_args()

gpu = torch.cuda.is_available()  # True for ROCm as well
local_rank = int(os.environ["LOCAL_RANK"])
if gpu:
    torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank) if gpu else torch.device("cpu")
dist.init_process_group("nccl" if gpu else "gloo")  # "nccl" is RCCL where torch is built for ROCm

torch.manual_seed(0)  # the same weights on every rank
model = torch.nn.Linear(options.width, options.width).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(dist.get_rank())  # other tokens on every rank
for step in range(options.steps):
    x = torch.randn(32, options.width, generator=generator).to(device)
    loss = (model(x) - x).square().mean() / dist.get_world_size()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"step {step}: loss {total.item():.6f} over {dist.get_world_size()} ranks", flush=True)
dist.destroy_process_group()
