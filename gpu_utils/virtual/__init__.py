"""Virtual GPUs: the compiled machine code of both vendors, executed on a CPU."""
