// Writes the warnings about 8-bit weights.
#include "models/engine/weight_warnings.h"

#include <map>

#include "models/store/checkpoint/quantization.h"
#include "models/store/weights/load_plan.h"

namespace sparsereel::models {

std::string kept_warning(const Component& component, const std::string& field, const std::string& asked,
                         const std::string& role) {
  if (asked != "fp8") return {};
  std::map<std::string, size_t> kept;  // number of weights in each packed format that fp8 leaves as they are
  for (const auto& [name, place] : component.tensors) {
    const TensorEntry& entry = *place.second;
    const auto layer = component.quantized.find(name);
    if (entry.shape.size() != 2 || !has_scale(entry.dtype) || entry.dtype == Dtype::f8_e4m3 || is_beside_weight(name))
      continue;
    ++kept[layer == component.quantized.end() ? std::string(models::name(entry.dtype)) : layer->second.label()];
  }
  std::string all;
  for (const auto& [format, count] : kept)
    all +=
        (all.empty() ? "" : " and ") + std::to_string(count) + (count == 1 ? " weight in " : " weights in ") + format;
  if (all.empty()) return {};
  return field + " fp8 has no effect for " + all + " of " + role +
         ": they stay as their file stores them, and are not multiplied in 8 bits";
}

}  // namespace sparsereel::models
