// Maps libtorch's dtypes to the dtypes of safetensors.
#include "app/tensor_file.h"

#include <ATen/ATen.h>

#include <array>
#include <utility>

#include "hilbert/error.h"

namespace sparsereel::app {
namespace {

constexpr std::array<std::pair<at::ScalarType, models::Dtype>, 6> kDtypes = {{{at::kDouble, models::Dtype::f64},
                                                                              {at::kFloat, models::Dtype::f32},
                                                                              {at::kHalf, models::Dtype::f16},
                                                                              {at::kBFloat16, models::Dtype::bf16},
                                                                              {at::kLong, models::Dtype::i64},
                                                                              {at::kByte, models::Dtype::u8}}};

}  // namespace

models::TensorView view_of(const std::string& name, const at::Tensor& tensor) {
  for (const auto& [scalar, dtype] : kDtypes) {
    if (scalar == tensor.scalar_type())
      return {.name = name,
              .dtype = dtype,
              .shape = tensor.sizes().vec(),
              .data = {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
  }
  throw run_failure("the tensor " + name + " has a dtype that cannot be saved", "try another --dtype");
}

at::Tensor copy_of(const models::TensorFile& file, const models::TensorEntry& entry) {
  for (const auto& [scalar, dtype] : kDtypes) {
    if (dtype != entry.dtype) continue;
    // from_blob() takes no const pointer; clone() only reads.
    void* data = const_cast<std::byte*>(file.covered(entry).data());
    const auto options = at::TensorOptions().dtype(scalar);
    if (entry.strides.empty()) return at::from_blob(data, entry.shape, options).clone();
    return at::from_blob(data, entry.shape, entry.strides, options).clone(at::MemoryFormat::Contiguous);
  }
  return {};
}

}  // namespace sparsereel::app
