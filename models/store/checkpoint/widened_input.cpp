// Widens the weight before LoRAs are added, so that add_loras() treats them all alike.
#include "models/store/checkpoint/widened_input.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>

#include "hilbert/error.h"
#include "models/files/json_text.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/lora_file.h"
#include "models/store/checkpoint/lora_names.h"

namespace sparsereel::models {
namespace {

using Shape = std::vector<int64_t>;

constexpr const char* kRole = "transformer";

int64_t columns(const Shape& shape) {
  return std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies<>());
}

/// Returns the LoRA's tensor for this layer that has a column for each of the layer's inputs: A, or the whole change.
/// Null if the LoRA does not change the layer.
const TensorEntry* change_of(const LoraFile& lora, const std::string& layer) {
  for (const LoraLayer& each : lora.layers) {
    const bool is_of_transformer = each.part.empty() || each.part == kRole;
    if (!is_of_transformer || each.name != (each.underscores ? underscored(layer) : layer)) continue;
    return each.down != nullptr ? each.down : each.diff;
  }
  return nullptr;
}

/// Returns true if the change is for a weight of the shape `wider`. It may be a matrix although the weight is a
/// convolution's.
bool fits(const TensorEntry& change, const Shape& wider) {
  if (change.shape.size() < 2) return false;
  const bool same_kernel = change.shape.size() == wider.size() &&
                           std::equal(change.shape.begin() + 1, change.shape.end(), wider.begin() + 1);
  return same_kernel || (change.shape.size() == 2 && change.shape[1] == columns(wider));
}

bool is_plain(Dtype dtype) {
  return dtype == Dtype::f64 || dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

/// Throws Error if the weight is quantized, because zeros cannot be appended to its rows then.
void check_plain(const Component& component, const std::string& tensor, const LoraFile& lora,
                 const TensorEntry& change) {
  const auto& [file, entry] = component.tensors.at(tensor);
  if (is_plain(entry->dtype) && !component.quantized.contains(tensor)) return;
  throw bad_file(component.files[file]->path(),
                 "stores " + in_quotes(entry->name) + " as " + std::string(name(entry->dtype)) + ", but " +
                     in_quotes(change.name) + " in " + lora.file->path().string() + " gives it more input channels",
                 "use a file that keeps this tensor in 16 or 32 bits, or leave the LoRA out");
}

}  // namespace

bool widen_input(Checkpoint& checkpoint, const std::vector<LoraChoice>& loras) {
  const LoraNames& names = find_family(checkpoint.pipeline_class())->lora;
  if (names.input.empty() || loras.empty() || checkpoint.component(kRole).random_seed) return false;
  std::string config_file;
  nlohmann::json config = checkpoint.config(kRole, &config_file);
  const int64_t factor = names.take_image(config, config_file);
  if (factor <= 1) return false;
  const Component& component = checkpoint.component(kRole);
  const std::string tensor = names.input + ".weight";
  if (!component.tensors.contains(tensor)) return false;  // loading the model reports the missing tensor
  Shape wider = component.shape_of(tensor);
  if (wider.size() < 2) return false;
  wider[1] *= factor;
  for (const LoraChoice& choice : loras) {
    const LoraFile lora = read_lora(choice.file);
    const TensorEntry* change = change_of(lora, names.input);
    if (change == nullptr || !fits(*change, wider)) continue;
    check_plain(component, tensor, lora, *change);
    checkpoint.widen(kRole, tensor, wider, std::move(config));
    return true;
  }
  return false;
}

}  // namespace sparsereel::models
