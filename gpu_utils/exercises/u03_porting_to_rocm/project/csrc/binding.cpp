// torch.ops: checks of shapes and dtypes, ranges for the profiler, the current stream.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <nvtx3/nvToolsExt.h>
#include <torch/extension.h>

#include "config.h"
#include "launch.h"

namespace {

struct Range {
  explicit Range(const char *name) { nvtxRangePushA(name); }
  ~Range() { nvtxRangePop(); }
};

std::tuple<at::Tensor, at::Tensor> rmsnorm_quant(at::Tensor x, at::Tensor residual, at::Tensor weight, double eps) {
  TORCH_CHECK(x.is_cuda() && x.scalar_type() == at::kFloat && x.is_contiguous(), "x: float32, on the GPU, contiguous");
  TORCH_CHECK(x.dim() == 2 && x.size(1) == normq::kHidden, "x: (tokens, ", normq::kHidden, ")");
  const c10::cuda::CUDAGuard guard(x.device());
  const Range range("rmsnorm_quant");
  const int tokens = static_cast<int>(x.size(0));
  at::Tensor out_t = at::empty({normq::kHidden, tokens}, x.options().dtype(at::kByte));
  at::Tensor scales = at::empty({tokens}, x.options());
  normq::rmsnorm_quant(x.data_ptr<float>(), residual.data_ptr<float>(), weight.data_ptr<float>(), out_t.data_ptr(),
                       scales.data_ptr<float>(), tokens, static_cast<float>(eps),
                       at::cuda::getCurrentCUDAStream().stream());
  return {out_t, scales};
}

at::Tensor gelu(at::Tensor x) {
  TORCH_CHECK(x.is_cuda() && x.scalar_type() == at::kBFloat16 && x.is_contiguous(), "x: bfloat16, on the GPU");
  const c10::cuda::CUDAGuard guard(x.device());
  const Range range("gelu");
  at::Tensor out = at::empty_like(x);
  normq::gelu(x.data_ptr(), out.data_ptr(), static_cast<int>(x.numel()), at::cuda::getCurrentCUDAStream().stream());
  return out;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("rmsnorm_quant", &rmsnorm_quant, "residual += x; RMSNorm; FP8, transposed");
  module.def("gelu", &gelu, "GELU in the tanh form, bfloat16");
}
