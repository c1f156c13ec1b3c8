// Derives the format's name from dtypes, scales and the file's name.
#include "models/store/checkpoint/format_name.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <regex>

#include "models/store/checkpoint/quantization.h"

namespace sparsereel::models {
namespace {

/// Finds "Q4_K_M" in "video-14b-q4_k_m.gguf"; empty if the name has no such word.
std::string mixture_in(const std::filesystem::path& file) {
  static const std::regex kMixture("[-_.](q[2-8]_(k(_[sml])?|[01])|iq4_(nl|xs))[-_.]", std::regex::icase);
  std::smatch found;
  const std::string name = file.filename().string();
  if (!std::regex_search(name, found, kMixture)) return {};
  std::string mixture = found[1];
  std::ranges::transform(mixture, mixture.begin(), [](unsigned char c) { return std::toupper(c); });
  return mixture;
}

std::string usual_name(Dtype dtype, bool scaled, const std::filesystem::path& file) {
  switch (dtype) {
    case Dtype::f32:
      return "fp32";
    case Dtype::f16:
      return "fp16";
    case Dtype::bf16:
      return "bf16";
    case Dtype::f8_e4m3:
      return scaled ? "fp8_scaled" : "fp8_e4m3fn";
    case Dtype::f8_e5m2:
      return scaled ? "fp8_scaled" : "fp8_e5m2";
    case Dtype::i8:
    case Dtype::u8:
      return "int8";
    default:
      break;
  }
  const std::string mixture = is_packed(dtype) ? mixture_in(file) : "";
  return mixture.empty() ? std::string(name(dtype)) : mixture;
}

}  // namespace

std::string label_of(const QuantizedLayers& layers, const std::string& weight) {
  const auto found = layers.find(weight);
  if (found == layers.end()) return {};
  return found->second.is_joined() || found->second.rotation > 0 ? found->second.label() : std::string();
}

bool is_scale(const std::string& name) {
  return is_beside_weight(name);
}

bool has_scale(const TensorTable& tensors, const std::string& name) {
  constexpr std::string_view kQuantoNumbers = ".weight._data";
  if (name.ends_with(kQuantoNumbers)) return tensors.contains(name.substr(0, name.rfind('.')) + "._scale");
  return std::ranges::any_of(scale_names(name), [&](const std::string& scale) { return tensors.contains(scale); });
}

WeightsFormat format_of(const Component& component) {
  std::map<std::pair<Dtype, std::string>, uint64_t> bytes;  // by dtype and label_of()
  uint64_t all_bytes = 0, elements = 0;
  bool scaled = false;
  for (const auto& [tensor, place] : component.tensors) {
    if (is_scale(tensor)) continue;
    const TensorEntry& entry = *place.second;
    bytes[{entry.dtype, label_of(component.quantized, tensor)}] += own_bytes(entry);
    all_bytes += own_bytes(entry);
    elements += entry.elements();
    scaled = scaled || (size_of(entry.dtype) == 1 && has_scale(component.tensors, tensor));
  }
  if (elements == 0) return {};
  const auto most = std::ranges::max_element(bytes, {}, [](const auto& each) { return each.second; });
  const auto& [dtype, label] = most->first;
  return {.name = label.empty() ? usual_name(dtype, scaled, component.origin) : label,
          .bits = 8 * static_cast<double>(all_bytes) / static_cast<double>(elements)};
}

}  // namespace sparsereel::models
