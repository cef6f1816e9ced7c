"""Profiles of both vendors' tools, and of virtual GPUs, as one table of kernels.

    profile = read("trace.json", "counters.csv")     # torch.profiler, ncu, nsys, rocprofv3, rocprof: told by content
    profile.table()                                  # a pandas DataFrame, one row for each launch of a kernel
    profile.figures()                                # the same in long form: value, unit, and where the figure is from

`files` opens, `reading` tells the formats apart, each reader knows one of them; `busy`, `limits` and `comparing` answer
the three questions: is the GPU busy, which kernel, what limits it.
"""
