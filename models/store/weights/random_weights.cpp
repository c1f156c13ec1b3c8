// Draws each tensor from a separate generator on the device.
#include "models/store/weights/random_weights.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>

namespace sparsereel::models {
namespace {

constexpr double kBiasDeviation = 0.02;

at::Generator generator_of(at::Device device, uint64_t seed) {
  if (device.is_cpu()) return at::make_generator<at::CPUGeneratorImpl>(seed);
  at::Generator generator =
      at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
  generator.set_current_seed(seed);
  return generator;
}

}  // namespace

uint64_t seed_of_name(const std::string& name, uint64_t seed) {
  // FNV-1a, because the standard library's hash may differ between machines.
  uint64_t hash = 0xcbf29ce484222325U ^ seed;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

at::Tensor random_weight(const std::string& name, const std::vector<int64_t>& shape, at::Device device,
                         at::ScalarType dtype, uint64_t seed) {
  const auto options = at::TensorOptions().dtype(dtype).device(device);
  if (device.is_meta()) return at::empty(shape, options);
  const bool bias = name.ends_with("bias");
  if (shape.size() < 2 && !bias) return at::ones(shape, options);
  const at::Tensor tensor = at::empty(shape, options);
  const double inputs = static_cast<double>(tensor.numel()) / static_cast<double>(std::max<int64_t>(shape.at(0), 1));
  const double deviation = shape.size() < 2 ? kBiasDeviation : 1 / std::sqrt(std::max(inputs, 1.0));
  return tensor.normal_(0, deviation, generator_of(device, seed_of_name(name, seed)));
}

at::Tensor random_token_ids(const std::string& text, int64_t length, int64_t vocab_size) {
  return at::randint(vocab_size, {length}, generator_of(at::kCPU, seed_of_name(text, 0)),
                     at::TensorOptions().dtype(at::kLong));
}

int64_t random_token_count(const std::string& text, int64_t length) {
  return std::min(length, static_cast<int64_t>(text.size()) / 4 + 1);
}

}  // namespace sparsereel::models
