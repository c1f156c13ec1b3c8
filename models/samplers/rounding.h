// The last bit of a schedule's numbers.
#pragma once

#include <ATen/core/Tensor.h>

namespace sparsereel::models {

/// A function of fp32 or fp64 numbers, computed in fp64: what lies behind libtorch's own in fp32 is oneMKL, whose last
/// bit depends on the processor. Schedules subtract such numbers from each other, and 1e-7 becomes 1e-4 of a video.
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

}  // namespace sparsereel::models
