// ComfyUI's descriptions of quantised layers.
#include "models/checkpoint/quantization.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hilbert/error.h"
#include "models/files/json_text.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;

constexpr std::string_view kQuantMark = ".comfy_quant", kSecondScale = ".weight_scale_2";
constexpr const char* kQuantMetadata = "_quantization_metadata";
constexpr std::string_view kReadFormats[] = {"float8_e4m3fn", "float8_e5m2", "int8_tensorwise"};

[[noreturn]] void refuse(const TensorFile& file, const std::string& layer, const std::string& format) {
  throw bad_file(file.path().string(), in_quotes(layer) + " is quantised as " + format + ", which is not supported",
                 "use a variant in fp8 (fp8_scaled), in 16 bits or a GGUF");
}

/// {"format": "float8_e4m3fn", ...}; some programs write the format alone.
void check_description(const TensorFile& file, const std::string& layer, const json& description) {
  const json format = description.is_object() ? description.value("format", json()) : description;
  if (!format.is_string()) refuse(file, layer, "something that it does not name");
  const auto& name = format.get_ref<const std::string&>();
  const json rotated = description.is_object() ? description.value("convrot", json()) : json();
  if (rotated.is_boolean() && rotated.get<bool>()) refuse(file, layer, name + " with convrot");
  if (std::ranges::find(kReadFormats, name) == std::end(kReadFormats)) refuse(file, layer, name);
}

json parsed_description(const TensorFile& file, std::string_view text, const std::string& place) {
  return parse_json(text, file.path().string() + ": " + place, "download the file again");
}

}  // namespace

void check_quantization(const TensorFile& file) {
  const auto described = file.metadata().find(kQuantMetadata);
  if (described != file.metadata().end()) {
    const json all = parsed_description(file, described->second, kQuantMetadata);
    const json layers = all.is_object() ? all.value("layers", json::object()) : json::object();
    for (const auto& [layer, description] : layers.items()) check_description(file, layer, description);
  }
  for (const TensorEntry& entry : file.entries()) {
    const std::string_view name = entry.name;
    if (name.ends_with(kSecondScale)) refuse(file, entry.name, "nvfp4");
    if (!name.ends_with(kQuantMark) || entry.dtype != Dtype::u8) continue;
    const std::span<const std::byte> data = file.data(entry);
    check_description(file, std::string(name.substr(0, name.size() - kQuantMark.size())),
                      parsed_description(file, {reinterpret_cast<const char*>(data.data()), data.size()}, entry.name));
  }
}

std::vector<std::string> scale_names(const std::string& name) {
  constexpr std::string_view kWeight = ".weight";
  if (!name.ends_with(kWeight)) return {};
  const std::string stem = name.substr(0, name.size() - kWeight.size());
  return {stem + ".scale_weight", stem + ".weight_scale"};
}

bool is_about_quantization(const std::string& name) {
  return name.ends_with(".scale_input") || name.ends_with(".input_scale") || name.ends_with(kQuantMark) ||
         name == "scaled_fp8";
}

}  // namespace sparsereel::models
