// Reads and checks ComfyUI's descriptions of quantized layers, and recognizes layers without a description.
#include "models/store/checkpoint/quantization.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "hilbert/error.h"
#include "models/files/json_text.h"
#include "models/store/checkpoint/quantized_format.h"
#include "models/store/checkpoint/wrapped_name.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;

constexpr std::string_view kQuantMark = ".comfy_quant", kWeight = ".weight";
constexpr const char *kQuantMetadata = "_quantization_metadata", *kInt8 = "int8_tensorwise";
// Both are numbers of columns in a group.
constexpr int64_t kUsualRotation = 256, kMostColumns = int64_t{1} << 30;

/// Keys of a description that do not change the meaning of the weights.
constexpr std::string_view kNoEffectKeys[] = {"full_precision_matrix_mult", "orig_dtype", "orig_shape", "per_row"};
/// The last parts of names that may occur beside the weight of every format.
constexpr std::string_view kCompanions[] = {"weight",       "bias",        "input_scale",    "scale_input",
                                            "output_scale", "comfy_quant", "pre_quant_scale"};
/// The ends of Quanto's names for a weight's numbers and for their scales, and what replaces these ends.
constexpr std::pair<std::string_view, std::string_view> kQuanto[] = {{".weight._data", ".weight"},
                                                                     {".weight._scale", ".weight_scale"}};

/// The format of a layer, from its description or from its tensors.
struct Described {
  const QuantizedFormat* format = nullptr;
  int64_t rotation = 0, group = 0;
  bool is_marked = false;  // true if a description names the format, false if it was recognized by tensors
};
/// The format of each layer as far as it is known, by the layer's name in the files.
using DescribedLayers = std::map<std::string, Described>;

constexpr const char* kQuantizedRemedy = "use a variant in fp8 (fp8_scaled), in 16 bits or a GGUF";

[[noreturn]] void refuse(const TensorFile& file, const std::string& layer, const std::string& format) {
  throw bad_file(file.path().string(), in_quotes(layer) + " is quantized as " + format + ", which is not supported",
                 kQuantizedRemedy);
}

/// Returns "q" for "q.weight_scale".
std::string layer_of(std::string_view name) {
  return std::string(name.substr(0, name.rfind('.')));
}

std::string file_layer_of(const TensorEntry& entry) {
  return layer_of(without_quanto(entry.name));
}

/// Returns the layer's name without the prefixes that programs write, and without ".weight".
std::string bare_layer(const std::string& name) {
  std::string bare = without_wrappers(name);
  for (bool goes_on = true; goes_on;) {
    const auto begins = [&](const std::string& prefix) { return bare.starts_with(prefix); };
    const auto prefix = std::ranges::find_if(transformer_prefixes(), begins);
    goes_on = prefix != transformer_prefixes().end();
    if (goes_on) bare.erase(0, prefix->size());
  }
  return bare.ends_with(kWeight) ? layer_of(bare) : bare;
}

/// Reads one layer's description: {"format": "nvfp4", ...}. Some programs write only the format, as a string.
class Description {
 public:
  Description(const TensorFile& file, const std::string& layer, const json& keys, bool is_int8)
      : file_(file), layer_(layer), keys_(keys.is_object() ? keys : json{{"format", keys}}) {
    const json format = keys_.value("format", json());
    // Some converters leave out "format" if it is int8.
    const bool unnamed = format.is_null() && is_int8 && (keys_.contains("convrot") || keys_.contains("per_row"));
    if (!format.is_string() && !unnamed)
      throw bad_file(file.path().string(), in_quotes(layer) + ": its comfy_quant names no format", kQuantizedRemedy);
    name_ = unnamed ? kInt8 : format.get<std::string>();
    described_.format = format_named(name_);
    if (described_.format == nullptr) refuse(file, layer, name_);
    check_keys(keys_);
    if (const json params = keys_.value("params", json()); params.is_object()) params_ = params;
    check_keys(params_);
  }

  Described read() {
    const QuantizedFormat& format = *described_.format;
    const json turned = value("convrot");
    if (turned == true || (format.must_rotate && turned.is_null()))
      described_.rotation = number("convrot_groupsize").value_or(kUsualRotation);
    described_.group = number("group_size").value_or(0);
    described_.is_marked = true;
    return described_;
  }

 private:
  /// Returns the value of a key beside "format", or else under "params".
  json value(const char* key) const {
    const json root = keys_.value(key, json());
    return root.is_null() ? params_.value(key, json()) : root;
  }

  std::optional<int64_t> number(const char* key) const {
    const json found = value(key);
    if (found.is_null()) return std::nullopt;
    if (!found.is_number_integer() || found < 1 || found > kMostColumns)
      refuse(file_, layer_, name_ + " with " + in_quotes(key) + " " + found.dump());
    return found.get<int64_t>();
  }

  /// Throws Error for keys that are unknown, or that the format does not have.
  void check_keys(const json& keys) const {
    const QuantizedFormat& format = *described_.format;
    for (const auto& [key, value] : keys.items()) {
      const bool turned = value.is_boolean() && (value == true ? format.may_rotate : !format.must_rotate);
      const bool grouped = format.join != nullptr && value.is_number_integer();
      const bool idle = key == "format" || key == "convrot_groupsize" ||
                        (key == "params" && (value.is_object() || value.is_null())) ||
                        (key == "convrot" && (value.is_null() || turned)) || (key == "group_size" && grouped) ||
                        (key == "linear_dtype" && format.must_rotate) ||
                        std::ranges::find(kNoEffectKeys, key) != std::end(kNoEffectKeys);
      if (!idle) refuse(file_, layer_, name_ + " with " + (key == "convrot" ? key : in_quotes(key)));
    }
  }

  const TensorFile& file_;
  const std::string& layer_;
  json keys_, params_ = json::object();
  std::string name_;
  Described described_;
};

json parsed_description(const TensorFile& file, std::string_view text, const std::string& place) {
  const size_t end = text.find_last_not_of(std::string_view("\0 \n", 3));  // some programs pad the text
  return parse_json(text.substr(0, end == std::string_view::npos ? 0 : end + 1), file.path().string() + ": " + place,
                    "download the file again");
}

/// Recognizes the format of a weight without a description by its dtype and by the tensors beside it. Returns null if
/// it is not quantized in a known format.
const QuantizedFormat* recognized(const TensorEntry& weight, const std::map<std::string, Dtype>& beside) {
  const auto has = [&](const char* part) { return beside.contains(part); };
  switch (weight.dtype) {
    case Dtype::f8_e5m2:
      return format_named("float8_e5m2");
    case Dtype::f8_e4m3: {
      const auto scale = beside.find("weight_scale");
      const bool is_power = scale != beside.end() && (scale->second == Dtype::f8_e8m0 || scale->second == Dtype::u8);
      return format_named(is_power && weight.shape.size() == 2 ? "mxfp8" : "float8_e4m3fn");
    }
    case Dtype::i8:
      return format_named(has("weight_s_rel") ? "asym_w4a8_int8" : has("weight_zeros") ? "awq_w4a16" : kInt8);
    case Dtype::u8:
      return has("weight_scale_2") || has("alpha") ? format_named("nvfp4") : nullptr;
    default:
      return nullptr;
  }
}

/// Returns what is known about a layer without a description. If the format always rotates, the groups are taken to
/// have the usual size.
Described undescribed(const QuantizedFormat* format) {
  return {.format = format, .rotation = format != nullptr && format->must_rotate ? kUsualRotation : 0};
}

bool is_of_8_bits(Dtype dtype) {
  return dtype == Dtype::i8 || dtype == Dtype::u8 || dtype == Dtype::f8_e4m3 || dtype == Dtype::f8_e5m2;
}

/// Finds out which rows of the stored weight belong to the layer.
void find_rows(QuantizedLayer& layer, const TensorEntry& stored) {
  layer.stored_rows = stored.shape.empty() ? 1 : stored.shape.front();
  if (stored.elements() == 0 || !stored.strides.empty()) return;
  layer.first_row = static_cast<int64_t>((layer.find("weight")->offset - stored.offset) / bytes_of_row(stored));
}

/// Finds the quantized layers of files. Names are the files' names.
class FileLayers {
 public:
  explicit FileLayers(const std::vector<std::shared_ptr<TensorFile>>& files) : files_(files) {
    for (const auto& file : files)
      for (const TensorEntry& entry : file->entries()) {
        const std::string name = without_quanto(entry.name), layer = layer_of(name);
        if (layer == name) continue;  // a name without a dot belongs to no layer
        beside_[layer][name.substr(layer.size() + 1)] = entry.dtype;
        if (name.ends_with(kWeight) && is_of_8_bits(entry.dtype)) weights_[layer] = &entry;
      }
    for (const auto& [layer, parts] : beside_)
      if (parts.contains("weight")) bare_.emplace_back(bare_layer(layer), layer);
    for (const auto& file : files) add_described(*file);
    for (const auto& [layer, weight] : weights_)
      if (!layers_.contains(layer)) layers_[layer] = undescribed(recognized(*weight, beside_.at(layer)));
  }

  const DescribedLayers& all() const { return layers_; }

  void check() const {
    for (const auto& file : files_)
      for (const TensorEntry& entry : file->entries()) check(*file, entry);
  }

 private:
  bool is_int8(const std::string& layer) const {
    const auto found = weights_.find(layer);
    return found != weights_.end() && found->second->dtype == Dtype::i8;
  }

  bool has_weight(const std::string& layer) const {
    const auto found = beside_.find(layer);
    return found != beside_.end() && found->second.contains("weight");
  }

  /// Returns the layers with weights that the name in a description may mean. That name may lack the prefix of the
  /// file's names, have another prefix, or end in ".weight".
  std::vector<std::string> meant(const std::string& name) const {
    if (has_weight(name)) return {name};
    const std::string bare = bare_layer(name);
    std::vector<std::string> found;
    for (const auto& [other, layer] : bare_)
      if (other == bare || other.ends_with("." + bare) || bare.ends_with("." + other)) found.push_back(layer);
    return found;
  }

  /// Adds a description. If no layer has its name, nobody can tell which weight is meant. Then throws Error if the
  /// description would change how a weight is read, and otherwise ignores it.
  void add(const TensorFile& file, const std::string& name, const json& keys) {
    const std::vector<std::string> layers = meant(name);
    for (const std::string& layer : layers) layers_[layer] = Description(file, layer, keys, is_int8(layer)).read();
    if (!layers.empty()) return;
    const Described unused = Description(file, name, keys, true).read();
    if (unused.rotation > 0 || unused.format->join != nullptr)
      refuse(file, name,
             QuantizedLayer{.format = unused.format, .rotation = unused.rotation}.label() +
                 " without a weight of this name");
  }

  void add_described(const TensorFile& file) {
    const auto described = file.metadata().find(kQuantMetadata);
    if (described != file.metadata().end()) {
      const json all = parsed_description(file, described->second, kQuantMetadata);
      const json named = all.is_object() && !all.empty() ? all.value("layers", json()) : all;
      if (!named.is_object())
        throw bad_file(file.path().string(), std::string(kQuantMetadata) + " has no object \"layers\"",
                       "download the file again");
      for (const auto& [name, keys] : named.items()) add(file, name, keys);
    }
    for (const TensorEntry& entry : file.entries()) {
      if (!entry.name.ends_with(kQuantMark)) continue;
      const std::string layer = layer_of(entry.name);
      if (entry.dtype != Dtype::u8)
        refuse(file, layer,
               "a format that " + in_quotes(entry.name) + " describes in " + std::string(models::name(entry.dtype)));
      const std::span<const std::byte> data = file.data(entry);
      const json keys = parsed_description(file, {reinterpret_cast<const char*>(data.data()), data.size()}, entry.name);
      add(file, layer, keys);
    }
  }

  void check(const TensorFile& file, const TensorEntry& entry) const {
    const std::string layer = file_layer_of(entry), name = without_quanto(entry.name);
    const auto found = layers_.find(layer);
    if (found == layers_.end() || layer == name) return;
    const std::string last = name.substr(layer.size() + 1);
    const QuantizedFormat* format = found->second.format;
    const bool known =
        std::ranges::find(kCompanions, last) != std::end(kCompanions) ||
        (format != nullptr && (std::ranges::count(format->own, last) + std::ranges::count(format->more, last)) > 0) ||
        (format == nullptr && (last == "weight_scale" || last == "scale_weight"));
    if (!known)
      refuse(file, layer,
             (found->second.is_marked ? std::string(format->name) : "8 bits") + " with " + in_quotes(last));
    if (last == "weight" && found->second.is_marked && entry.dtype != format->stored)
      refuse(file, layer,
             std::string(models::name(format->stored)) + " but stored as " + std::string(models::name(entry.dtype)));
  }

  const std::vector<std::shared_ptr<TensorFile>>& files_;
  // The dtypes of each layer's tensors, by layer, then by the last part of the tensor's name.
  std::map<std::string, std::map<std::string, Dtype>> beside_;
  std::vector<std::pair<std::string, std::string>> bare_;  // bare_layer() and name of each layer that has a weight
  std::map<std::string, const TensorEntry*> weights_;      // the weights that are stored in 8 bits, by layer
  DescribedLayers layers_;
};

}  // namespace

void check_quantization(const std::vector<std::shared_ptr<TensorFile>>& files) {
  FileLayers(files).check();
}

QuantizedLayers quantized_layers(const TensorTable& tensors, const std::vector<std::shared_ptr<TensorFile>>& files) {
  QuantizedLayers layers;
  DescribedLayers described;
  try {
    described = FileLayers(files).all();
  } catch (const Error&) {
    return layers;  // check_quantization() throws this error again when the weights are read
  }
  for (const auto& [name, place] : tensors) {
    if (!name.ends_with(kWeight)) continue;
    const auto found = described.find(file_layer_of(*place.second));
    if (found == described.end() || found->second.format == nullptr) continue;
    const Described& said = found->second;
    QuantizedLayer layer = {.format = said.format, .rotation = said.rotation, .group = said.group};
    const std::string own = layer_of(name);
    layer.tensors["weight"] = place;
    const auto add = [&](const std::string& part) {
      const auto there = tensors.find(own + "." + part);
      if (there != tensors.end()) layer.tensors[part] = there->second;
    };
    for (const std::string& part : said.format->own) add(part);
    for (const std::string& part : said.format->more) add(part);
    add("pre_quant_scale");
    layer.is_marked = said.is_marked;
    set_size(layer);
    find_rows(layer, *files[place.first]->find(place.second->name));
    layers.emplace(name, std::move(layer));
  }
  return layers;
}

void check_layers(const QuantizedLayers& layers, const std::vector<std::shared_ptr<TensorFile>>& files) {
  for (const auto& [name, layer] : layers) {
    const std::string problem = problem_of(layer);
    if (problem.empty()) continue;
    const auto& [file, weight] = layer.tensors.at("weight");
    refuse(*files[file], layer_of(without_quanto(weight->name)), layer.label() + " with " + problem);
  }
}

std::string without_quanto(const std::string& name) {
  for (const auto& [theirs, ours] : kQuanto)
    if (name.ends_with(theirs)) return name.substr(0, name.size() - theirs.size()) + std::string(ours);
  return name;
}

std::vector<std::string> scale_names(const std::string& name) {
  if (!name.ends_with(kWeight)) return {};
  const std::string stem = name.substr(0, name.size() - kWeight.size());
  return {stem + ".scale_weight", stem + ".weight_scale"};
}

bool is_about_quantization(const std::string& name) {
  return name.ends_with(".scale_input") || name.ends_with(".input_scale") || name.ends_with(".output_scale") ||
         name.ends_with(kQuantMark) || name == "scaled_fp8";
}

bool is_beside_weight(const std::string& name) {
  constexpr std::string_view kScales[] = {".scale_weight",    ".weight_scale",  ".weight_scale_2",
                                          ".weight_zeros",    ".weight_s_rel",  ".weight_s_channel",
                                          ".weight_codebook", ".weight._scale", ".pre_quant_scale"};
  return is_about_quantization(name) || std::ranges::any_of(kScales, [&](auto end) { return name.ends_with(end); });
}

bool is_undivided(const std::string& name, const TensorTable& tensors) {
  const auto ends = [&](const char* part) { return name.ends_with(part); };
  return is_about_quantization(name) || ends(".pre_quant_scale") || ends(".weight_codebook") || ends(".weight_zeros") ||
         (ends(".weight_scale") && tensors.contains(layer_of(name) + ".weight_zeros"));
}

}  // namespace sparsereel::models
