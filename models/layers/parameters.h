// How a module lists its weights, once: what loads, streams and counts them all go by this list.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace sparsereel::models {

/// One tensor of a module, as a checkpoint holds it.
struct Parameter {
  std::vector<std::string> names;  // one; several lie below each other in the tensor: q, k and v of one projection
  std::vector<int64_t> stored;     // the shape under each name
  std::vector<int64_t> shape;      // the tensor's, of the same elements
  bool fp32 = false;               // in fp32 whatever the run's dtype is
};

/// Is called with each tensor that the configuration asks for, in a fixed order. The others stay undefined.
using Visit = std::function<void(at::Tensor&, const Parameter&)>;

/// Of a module that stays in fp32 whatever the run's dtype is.
inline Visit in_fp32(const Visit& visit) {
  return [&visit](at::Tensor& tensor, const Parameter& parameter) {
    Parameter kept = parameter;
    kept.fp32 = true;
    visit(tensor, kept);
  };
}

/// A parameter that is stored as the module has it.
inline Parameter parameter(std::string name, std::vector<int64_t> shape, bool fp32 = false) {
  return {.names = {std::move(name)}, .stored = shape, .shape = shape, .fp32 = fp32};
}

}  // namespace sparsereel::models
