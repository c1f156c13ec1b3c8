// Mathematical functions whose results are the same on every processor, to the last bit.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace sparsereel::models {

/// Applies a function to fp32 or fp64 numbers, and computes in fp64. In fp32, libtorch's functions use oneMKL, whose
/// last bit depends on the processor. Schedules subtract such numbers from each other, so that an error of 1e-7 becomes
/// 1e-4 in a video.
template <typename Function>
at::Tensor in_double(Function function, const at::Tensor& x) {
  return function(x.to(at::kDouble)).to(x.scalar_type());
}

inline at::Tensor rounded_sqrt(const at::Tensor& x) {
  return in_double([](const at::Tensor& y) { return y.sqrt(); }, x);
}
inline at::Tensor rounded_log(const at::Tensor& x) {
  return in_double([](const at::Tensor& y) { return y.log(); }, x);
}
inline at::Tensor rounded_exp(const at::Tensor& x) {
  return in_double([](const at::Tensor& y) { return y.exp(); }, x);
}
inline at::Tensor rounded_expm1(const at::Tensor& x) {
  return in_double([](const at::Tensor& y) { return y.expm1(); }, x);
}

/// Returns `count` values from `first` to `last`, rounded as by numpy's linspace.
inline std::vector<double> linspace(double first, double last, int64_t count) {
  std::vector<double> values(count, first);
  if (count == 1) return values;
  const double step = (last - first) / static_cast<double>(count - 1);
  for (int64_t i = 0; i < count; ++i) values[i] = first + static_cast<double>(i) * step;
  values.back() = last;
  return values;
}

}  // namespace sparsereel::models
