// Reads golden tensors and compares results with them. The scripts in tests/parity made these tensors with the models'
// reference code. All parity tests use this file.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::test {

/// The tensors of one golden file, tests/parity/data/<name>.safetensors.
class Golden {
 public:
  explicit Golden(const std::string& name) : file_(std::string(SPARSEREEL_TEST_DATA) + "/" + name + ".safetensors") {}

  bool contains(const std::string& key) const { return file_.find(key) != nullptr; }
  at::Tensor operator[](const std::string& key) const {
    const models::TensorEntry* entry = file_.find(key);
    if (entry == nullptr) throw std::runtime_error(file_.path().string() + " holds no tensor " + key);
    const auto dtype = entry->dtype == models::Dtype::i64   ? at::kLong
                       : entry->dtype == models::Dtype::u8  ? at::kByte
                       : entry->dtype == models::Dtype::f16 ? at::kHalf
                                                            : at::kFloat;
    return at::from_blob(const_cast<std::byte*>(file_.data(*entry).data()), entry->shape,
                         at::TensorOptions().dtype(dtype))
        .clone();
  }

 private:
  models::TensorFile file_;
};

/// Passes if max|actual - expected| <= tolerance * max|expected| (the output's scale) and numbers that are not finite
/// are in the same places.
inline ::testing::AssertionResult close_to(const at::Tensor& actual, const at::Tensor& expected, double tolerance) {
  if (actual.sizes() != expected.sizes()) {
    std::ostringstream text;
    text << "shape " << actual.sizes() << ", expected " << expected.sizes();
    return ::testing::AssertionFailure() << text.str();
  }
  const at::Tensor a = actual.to(at::kCPU, at::kDouble), e = expected.to(at::kCPU, at::kDouble);
  if (!at::isfinite(a).equal(at::isfinite(e)))
    return ::testing::AssertionFailure() << "NaN or Inf at other places than expected";
  const at::Tensor difference = at::where(at::isfinite(e), (a - e).abs(), at::zeros_like(e)).flatten();
  const double scale = at::where(at::isfinite(e), e.abs(), at::zeros_like(e)).max().item<double>();
  const double worst = difference.max().item<double>();
  const int64_t index = difference.argmax().item<int64_t>();
  if (worst <= tolerance * scale) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "max abs error " << worst << " = " << worst / scale
                                       << " of the output's scale " << scale << " at flat index " << index << ": "
                                       << a.flatten()[index].item<double>() << ", expected "
                                       << e.flatten()[index].item<double>();
}

}  // namespace sparsereel::test
