// Draws normally distributed numbers by the method of Box and Muller (Ann. Math. Statist. 29, 1958), which makes them
// in pairs. Rounds where libtorch rounds.
#include "models/samplers/noise.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <numbers>
#include <vector>

namespace sparsereel::models {
namespace {

// libtorch makes eight pairs of normal numbers from 16 uniform ones. It combines the first uniform number with the
// ninth, the second with the tenth, and so on.
constexpr int64_t kTogether = 16;

/// Tables for every uniform number in [0, 1) that Scalar can have: the radius (from its logarithm), the cosine and the
/// sine.
template <typename Scalar>
struct Functions {
  static constexpr uint32_t kCount = uint32_t{1} << std::numeric_limits<Scalar>::digits;

  Functions() {
    for (uint32_t i = 0; i < kCount; ++i) {
      const float uniform = static_cast<float>(i) / static_cast<float>(kCount);
      const Scalar logarithm = std::log(1 - uniform), square = -2 * static_cast<float>(logarithm),
                   angle = static_cast<float>(2 * std::numbers::pi * static_cast<double>(uniform));
      radius.push_back(static_cast<Scalar>(std::sqrt(static_cast<float>(square))));
      cosine.push_back(static_cast<Scalar>(std::cos(static_cast<float>(angle))));
      sine.push_back(static_cast<Scalar>(std::sin(static_cast<float>(angle))));
    }
  }

  std::vector<float> radius, cosine, sine;  // rounded to Scalar
};

/// Draws kTogether normally distributed numbers into `out`.
template <typename Scalar>
void draw_together(at::mt19937& engine, const Functions<Scalar>& of, Scalar* out) {
  constexpr size_t kPairs = kTogether / 2;
  std::array<uint32_t, kTogether> uniform{};
  for (uint32_t& each : uniform) each = engine() % Functions<Scalar>::kCount;
  for (size_t i = 0; i < kPairs; ++i) {
    const float radius = of.radius[uniform[i]];
    // The reference adds a mean of zero, which turns -0 into 0.
    out[i] = static_cast<Scalar>(radius * of.cosine[uniform[i + kPairs]] + 0.0F);
    out[i + kPairs] = static_cast<Scalar>(radius * of.sine[uniform[i + kPairs]] + 0.0F);
  }
}

template <typename Scalar>
void draw_all(at::mt19937& engine, Scalar* out, int64_t count) {
  static const Functions<Scalar> functions;
  for (int64_t i = 0; i + kTogether <= count; i += kTogether) draw_together(engine, functions, out + i);
  if (count % kTogether == 0) return;
  // libtorch first draws a uniform number for each remaining element, but does not use it: it draws 16 new ones for the
  // last 16 elements.
  for (int64_t i = 0; i < count % kTogether; ++i) engine();
  draw_together(engine, functions, out + count - kTogether);
}

}  // namespace

at::Tensor draw_noise(at::IntArrayRef sizes, at::ScalarType dtype, at::Generator& generator) {
  const auto options = at::TensorOptions().dtype(dtype).device(at::kCPU);
  if ((dtype != at::kHalf && dtype != at::kBFloat16) || c10::multiply_integers(sizes) < kTogether)
    return at::randn(sizes, generator, options);
  at::Tensor noise = at::empty(sizes, options);
  auto* source = at::check_generator<at::CPUGeneratorImpl>(generator);
  const std::lock_guard lock(source->mutex_);
  at::mt19937 engine = source->engine();
  if (dtype == at::kHalf)
    draw_all(engine, noise.mutable_data_ptr<at::Half>(), noise.numel());
  else
    draw_all(engine, noise.mutable_data_ptr<at::BFloat16>(), noise.numel());
  source->set_engine(engine);
  return noise;
}

}  // namespace sparsereel::models
