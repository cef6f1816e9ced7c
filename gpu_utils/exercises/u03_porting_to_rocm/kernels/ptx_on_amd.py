import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def exp2_kernel(x_ptr, out_ptr):
    lanes = tl.arange(0, 64)
    x = tl.load(x_ptr + lanes)
    y = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out_ptr + lanes, y)


source = ASTSource(exp2_kernel, {"x_ptr": "*fp32", "out_ptr": "*fp32"})
for target in (GPUTarget("cuda", 80, 32), GPUTarget("hip", "gfx942", 64)):
    try:
        triton.compile(source, target=target)
        print(target.arch, "compiled", flush=True)
    except Exception as problem:
        print(target.arch, "raised", problem, flush=True)
print("the end of the script")
