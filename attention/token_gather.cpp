// Gathers tokens by our CUDA kernel if it supports the tensors, otherwise by torch.
#include "attention/token_gather.h"

#include <ATen/ATen.h>

#ifdef SPARSEREEL_CUDA
#include "attention/cuda_call.h"
#endif

namespace sparsereel::attention {

at::Tensor gather_tokens(const at::Tensor& x, const at::Tensor& index) {
#ifdef SPARSEREEL_CUDA
  if (x.is_cuda() && x.stride(2) == 1 && x.element_size() % 2 == 0 && index.is_contiguous())
    return gather_on_cuda(x, index);
#endif
  return x.index_select(1, index);
}

}  // namespace sparsereel::attention
