// Checks ComfyUI's descriptions of quantized layers.
#include "models/store/checkpoint/quantization.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "hilbert/error.h"
#include "models/files/json_text.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;

constexpr std::string_view kQuantMark = ".comfy_quant", kSecondScale = ".weight_scale_2", kWeight = ".weight";
constexpr const char* kQuantMetadata = "_quantization_metadata";

struct ReadFormat {
  std::string_view name;
  Dtype dtype;
};
constexpr ReadFormat kReadFormats[] = {
    {"float8_e4m3fn", Dtype::f8_e4m3}, {"float8_e5m2", Dtype::f8_e5m2}, {"int8_tensorwise", Dtype::i8}};
/// Keys of a description that do not change the meaning of the weights. A format's own parameters stand under "params"
/// or beside it.
constexpr std::string_view kNoEffectKeys[] = {"full_precision_matrix_mult", "orig_dtype", "orig_shape", "per_row"};
/// The last parts of names that may occur beside a quantized layer's weight.
constexpr std::string_view kCompanions[] = {"weight",      "bias",        "weight_scale", "scale_weight",
                                            "input_scale", "scale_input", "comfy_quant"};

[[noreturn]] void refuse(const TensorFile& file, const std::string& layer, const std::string& format) {
  throw bad_file(file.path().string(), in_quotes(layer) + " is quantized as " + format + ", which is not supported",
                 "use a variant in fp8 (fp8_scaled), in 16 bits or a GGUF");
}

bool is_off(const json& value) {
  return value.is_null() || value == false;
}

/// Refuses unknown keys and rotated weights. A rotation group's size alone means no rotation.
void check_keys(const TensorFile& file, const std::string& layer, const std::string& format, const json& keys) {
  for (const auto& [key, value] : keys.items()) {
    const bool idle = key == "format" || key == "convrot_groupsize" || (key == "convrot" && is_off(value)) ||
                      std::ranges::find(kNoEffectKeys, key) != std::end(kNoEffectKeys);
    if (key == "params" && value.is_object())
      check_keys(file, layer, format, value);
    else if (!idle && !(key == "params" && value.is_null()))
      refuse(file, layer, format + " with " + (key == "convrot" ? key : in_quotes(key)));
  }
}

/// Checks {"format": "float8_e4m3fn", ...}; some programs write only the format. Returns the dtype of the layer's
/// weight.
Dtype check_description(const TensorFile& file, const std::string& layer, const json& description) {
  const json format = description.is_object() ? description.value("format", json()) : description;
  if (!format.is_string()) refuse(file, layer, "an unnamed format");
  const auto& name = format.get_ref<const std::string&>();
  const auto* found = std::ranges::find(kReadFormats, name, &ReadFormat::name);
  if (found == std::end(kReadFormats)) refuse(file, layer, name);
  if (description.is_object()) check_keys(file, layer, name, description);
  return found->dtype;
}

json parsed_description(const TensorFile& file, std::string_view text, const std::string& place) {
  return parse_json(text, file.path().string() + ": " + place, "download the file again");
}

/// Returns "q" for "q.weight_scale".
std::string layer_of(std::string_view name) {
  return std::string(name.substr(0, name.rfind('.')));
}

/// The layers that are in 8 bits or are described so, with the described dtype; nothing if only the weight tells.
using QuantizedLayers = std::map<std::string, std::optional<Dtype>>;

void add_described(QuantizedLayers& layers, const TensorFile& file) {
  const auto described = file.metadata().find(kQuantMetadata);
  if (described != file.metadata().end()) {
    const json all = parsed_description(file, described->second, kQuantMetadata);
    const json named = all.is_object() ? all.value("layers", json::object()) : json::object();
    for (const auto& [layer, description] : named.items()) layers[layer] = check_description(file, layer, description);
  }
  for (const TensorEntry& entry : file.entries()) {
    const std::string_view name = entry.name;
    if (!name.ends_with(kQuantMark) || entry.dtype != Dtype::u8) continue;
    const std::span<const std::byte> data = file.data(entry);
    const json description =
        parsed_description(file, {reinterpret_cast<const char*>(data.data()), data.size()}, entry.name);
    const std::string layer = layer_of(name);
    layers[layer] = check_description(file, layer, description);
  }
}

bool is_of_8_bits(Dtype dtype) {
  return dtype == Dtype::i8 || dtype == Dtype::u8 || dtype == Dtype::f8_e4m3 || dtype == Dtype::f8_e5m2;
}

void check_companions(const QuantizedLayers& layers, const TensorFile& file) {
  for (const TensorEntry& entry : file.entries()) {
    const auto found = layers.find(layer_of(entry.name));
    if (found == layers.end() || found->first == entry.name) continue;  // a name without a dot belongs to no layer
    const auto& [layer, said] = *found;
    const std::string last = entry.name.substr(layer.size() + 1);
    if (std::ranges::find(kCompanions, last) == std::end(kCompanions))
      refuse(file, layer, "8 bits with " + in_quotes(last));
    if (last == "weight" && said && entry.dtype != *said)
      refuse(file, layer, std::string(name(*said)) + " but stored as " + std::string(name(entry.dtype)));
  }
}

}  // namespace

void check_quantization(const std::vector<std::shared_ptr<TensorFile>>& files) {
  QuantizedLayers layers;
  for (const auto& file : files) {
    for (const TensorEntry& entry : file->entries()) {
      if (entry.name.ends_with(kSecondScale)) refuse(*file, entry.name, "nvfp4");
      if (entry.name.ends_with(kWeight) && is_of_8_bits(entry.dtype)) layers[layer_of(entry.name)];
    }
    add_described(layers, *file);
  }
  for (const auto& file : files) check_companions(layers, *file);
}

std::vector<std::string> scale_names(const std::string& name) {
  if (!name.ends_with(kWeight)) return {};
  const std::string stem = name.substr(0, name.size() - kWeight.size());
  return {stem + ".scale_weight", stem + ".weight_scale"};
}

bool is_about_quantization(const std::string& name) {
  return name.ends_with(".scale_input") || name.ends_with(".input_scale") || name.ends_with(kQuantMark) ||
         name == "scaled_fp8";
}

}  // namespace sparsereel::models
