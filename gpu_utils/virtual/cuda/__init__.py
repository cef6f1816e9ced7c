"""Code that says "cuda" on a virtual GPU: `virtual_gpu(target, cuda=True)`. Imported only when that is asked for.

Tensors stay where the virtual GPUs read them, in the memory of the process. Which of them count as being on the GPU is
a mark on their storage (`marks`), that every operation hands on (`mode`). `tensor_methods` and `factories` let the
Python side of a tensor say so, and the other modules are what `torch.cuda` answers. `door` puts all of it in
place and takes it away again.
"""
