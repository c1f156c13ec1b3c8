// Sorts a file's tensors into layers.
#include "models/checkpoint/lora_file.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>

#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "hilbert/half.h"
#include "models/checkpoint/family.h"
#include "models/checkpoint/foreign_model.h"
#include "models/files/config_fields.h"
#include "models/files/json_text.h"
#include "models/video/lora_choice.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;

constexpr const char* kMetadata = "lora_adapter_metadata";  // diffusers' key
/// A trainer's key, of the arguments that its layers are made with; an alpha for each kind of them, by the start of
/// their last name.
constexpr const char* kArguments = "kwargs";
constexpr std::pair<const char*, std::string_view> kAlphasOfKinds[] = {{"qkv_proj_lora_alpha", "qkv_"},
                                                                       {"out_proj_lora_alpha", "proj_"}};
constexpr std::string_view kPeftPrefix = "base_model.model.";
constexpr const char* kExportAgain =
    "export the LoRA again: each layer has lora_A and lora_B, or lora_down and lora_up, and may have an alpha";

enum class Piece { down, up, bias, alpha, diff, diff_bias };

struct Suffix {
  std::string_view text;
  Piece piece;
  std::string_view instead = {};  // what the layer's name has in its place
};
constexpr Suffix kSuffixes[] = {{".lora_A.weight", Piece::down},
                                {".lora_B.weight", Piece::up},
                                {".lora_B.bias", Piece::bias},
                                {".lora_A.default.weight", Piece::down},
                                {".lora_B.default.weight", Piece::up},
                                {".lora_B.default.bias", Piece::bias},
                                {".lora_down.weight", Piece::down},
                                {".lora_up.weight", Piece::up},
                                {".lora.down.weight", Piece::down},
                                {".lora.up.weight", Piece::up},
                                {"_lora.down.weight", Piece::down},
                                {"_lora.up.weight", Piece::up},
                                {".lora_linear_layer.down.weight", Piece::down},
                                {".lora_linear_layer.up.weight", Piece::up},
                                {".lora_A", Piece::down},
                                {".lora_B", Piece::up},
                                {".lora_down", Piece::down},
                                {".lora_up", Piece::up},
                                {".alpha", Piece::alpha},
                                {".diff", Piece::diff},
                                {".diff_b", Piece::diff_bias},
                                {".diff_m", Piece::diff, ".modulation"}};

/// What else is trained and published under the same name.
constexpr std::pair<std::string_view, const char*> kOthers[] = {{"lycoris_", "LyCORIS"},
                                                                {"dora_scale", "DoRA"},
                                                                {"lora_magnitude_vector", "DoRA"},
                                                                {"hada_w", "LoHa"},
                                                                {"lokr_w", "LoKr"},
                                                                {"oft_blocks", "OFT"},
                                                                {"oft_R", "OFT"},
                                                                {"oft_diag", "OFT"},
                                                                {"lora_mid", "LoCon, a LoRA of convolutions"},
                                                                {"lora_embedding_", "a LoRA of an embedding"}};

/// Where a tensor belongs.
struct Place {
  std::string part, layer;
  bool underscores = false;
  Piece piece = Piece::down;
};

bool take_prefix(std::string& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.erase(0, prefix.size());
  return true;
}

/// Strips what says which part of the model the layer is of.
void take_part(Place& place) {
  take_prefix(place.layer, kPeftPrefix);
  for (const char* prefix : {"pipe.dit.", "model.diffusion_model.", "diffusion_model."})
    if (take_prefix(place.layer, prefix)) return;
  const std::pair<const char*, const char*> kUnderscored[] = {
      {"lora_unet_", ""}, {"lora_transformer_", ""}, {"lora_te_", "text_encoder"}, {"lora_te1_", "text_encoder"}};
  for (const auto& [prefix, part] : kUnderscored) {
    if (!take_prefix(place.layer, prefix)) continue;
    place.layer.erase(0, place.layer.find_first_not_of('_'));  // some write two
    place.part = part;
    place.underscores = true;
    return;
  }
  for (const Family& family : families())
    for (const Part& part : family.parts)
      if (take_prefix(place.layer, part.role + ".")) {
        place.part = part.role;
        return;
      }
}

std::optional<Place> place_of(const std::string& tensor) {
  for (const Suffix& suffix : kSuffixes) {
    if (!tensor.ends_with(suffix.text)) continue;
    Place place;
    place.layer = tensor.substr(0, tensor.size() - suffix.text.size()).append(suffix.instead);
    place.piece = suffix.piece;
    take_part(place);
    return place;
  }
  return std::nullopt;
}

bool is_floating(Dtype dtype) {
  return dtype == Dtype::f64 || dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

template <typename Number>
Number number_at(std::span<const std::byte> data) {
  Number value;
  std::memcpy(&value, data.data(), sizeof value);
  return value;
}

/// The number that a tensor of one element holds; nothing where its dtype is no number's.
std::optional<double> scalar(const TensorFile& file, const TensorEntry& entry) {
  const std::span<const std::byte> data = file.data(entry);
  switch (entry.dtype) {
    case Dtype::f64:
      return number_at<double>(data);
    case Dtype::f32:
      return number_at<float>(data);
    case Dtype::f16:
      return float_of_half(number_at<uint16_t>(data));
    case Dtype::bf16: {
      const uint32_t bits = static_cast<uint32_t>(number_at<uint16_t>(data)) << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    case Dtype::i64:
      return static_cast<double>(number_at<int64_t>(data));
    case Dtype::i32:
      return number_at<int32_t>(data);
    default:
      return std::nullopt;
  }
}

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : path_(path.string()) {
    result_.file = std::make_shared<TensorFile>(path);
  }

  LoraFile read() {
    read_metadata();
    for (const TensorEntry& entry : result_.file->entries()) sort(entry);
    if (!strangers_.empty()) refuse_strangers();
    for (auto& [key, layer] : layers_) {
      finish(layer);
      result_.layers.push_back(layer);
    }
    if (result_.layers.empty()) fail("holds no layer", kExportAgain);
    result_.guesses_alpha = peft_names_ && alphas_.empty() && metadata_.empty();
    return std::move(result_);
  }

 private:
  using Key = std::tuple<std::string, std::string, bool>;

  [[noreturn]] void fail(const std::string& cause, const std::string& remedy) const {
    throw bad_file(path_, cause, remedy);
  }
  [[noreturn]] void fail(const TensorEntry& entry, const std::string& cause) const {
    fail(in_quotes(entry.name) + " " + cause, kExportAgain);
  }

  void read_metadata() {
    const auto& metadata = result_.file->metadata();
    if (const auto found = metadata.find(kArguments); found != metadata.end())
      arguments_ = parse_json_if_valid(found->second);  // others may mean other things by it
    const auto found = metadata.find(kMetadata);
    if (found == metadata.end()) return;
    metadata_ = parse_json(found->second, path_ + ": " + kMetadata, kExportAgain);
    if (!metadata_.is_object()) fail(std::string(kMetadata) + " is not a JSON object", kExportAgain);
  }

  void sort(const TensorEntry& entry) {
    for (const auto& [mark, kind] : kOthers)
      if (entry.name.find(mark) != std::string::npos)
        fail(in_quotes(entry.name) + " makes it " + kind + ", which is not supported",
             "use a plain LoRA, or a checkpoint into which this was merged");
    const auto place = place_of(entry.name);
    if (!place) return strangers_.push_back(in_quotes(entry.name));
    peft_names_ = peft_names_ || entry.name.starts_with(kPeftPrefix);
    LoraLayer& layer = layers_[{place->part, place->layer, place->underscores}];
    layer.part = place->part;
    layer.name = place->layer;
    layer.underscores = place->underscores;
    if (place->piece == Piece::alpha) return read_alpha(entry, layer);
    if (!is_floating(entry.dtype))
      fail(entry, "is stored as " + std::string(models::name(entry.dtype)) + ", not as F32, F16 or BF16");
    const std::map<Piece, const TensorEntry* LoraLayer::*> kMembers = {{Piece::down, &LoraLayer::down},
                                                                       {Piece::up, &LoraLayer::up},
                                                                       {Piece::bias, &LoraLayer::bias},
                                                                       {Piece::diff, &LoraLayer::diff},
                                                                       {Piece::diff_bias, &LoraLayer::diff_bias}};
    const TensorEntry*& member = layer.*kMembers.at(place->piece);
    if (member != nullptr) fail(entry, "stands beside " + in_quotes(member->name) + ", which means the same");
    member = &entry;
  }

  void read_alpha(const TensorEntry& entry, const LoraLayer& layer) {
    const bool one = entry.bytes == size_of(entry.dtype);
    const std::optional<double> value = one ? scalar(*result_.file, entry) : std::nullopt;
    if (!value) fail(entry, "is not one finite number");
    if (!fits_float(*value)) fail(entry, "is " + exact_text(*value) + ", not one finite number that a float holds");
    alphas_[{layer.part, layer.name, layer.underscores}] = *value;
  }

  void refuse_strangers() const {
    if (const std::string what = foreign_model(path_); !what.empty()) throw foreign_file(path_, what);
    fail(std::to_string(strangers_.size()) + " of " + std::to_string(result_.file->entries().size()) +
             " tensors are no LoRA's: " + first_of(strangers_),
         "give a LoRA file, whose tensors end in lora_A.weight and lora_B.weight, or lora_down and lora_up");
  }

  void finish(LoraLayer& layer) {
    if (layer.down == nullptr && layer.up == nullptr) {
      if (layer.diff == nullptr && layer.diff_bias == nullptr)
        fail("the layer " + in_quotes(layer.name) + " has nothing but an alpha or a bias", kExportAgain);
      return;
    }
    if (layer.down == nullptr) fail(*layer.up, "has no A (lora_A, lora_down) beside it");
    if (layer.up == nullptr) fail(*layer.down, "has no B (lora_B, lora_up) beside it");
    if (layer.diff != nullptr) fail(*layer.diff, "stands beside " + in_quotes(layer.up->name));
    for (const TensorEntry* matrix : {layer.down, layer.up})
      if (matrix->shape.size() < 2)
        fail(*matrix, "has " + std::to_string(matrix->shape.size()) + " dimensions, and not two or more");
    if (layer.rank() < 1 || layer.up->shape[1] != layer.rank())
      fail(*layer.up, "has rank " + std::to_string(layer.up->shape[1]) + ", and " + in_quotes(layer.down->name) +
                          " has " + std::to_string(layer.rank()));
    layer.alpha = alpha_of(layer);
    const auto rank = static_cast<double>(layer.rank());
    layer.strength = layer.alpha / (flag(layer, "use_rslora") ? std::sqrt(rank) : rank);
    if (flag(layer, "use_dora"))
      fail(std::string(kMetadata) + " says use_dora, which is not supported",
           "use a plain LoRA, or a checkpoint into which this was merged");
  }

  /// The tensor's, else that of the metadata, else the rank.
  double alpha_of(const LoraLayer& layer) const {
    const auto found = alphas_.find({layer.part, layer.name, layer.underscores});
    if (found != alphas_.end()) return found->second;
    const json* pattern = field(layer, "alpha_pattern");
    if (pattern != nullptr && pattern->is_object()) {
      for (const auto& [name, alpha] : pattern->items()) {
        if (name.find_first_of("\\^$*+?()[]{}|") != std::string::npos)
          fail(std::string(kMetadata) + ": alpha_pattern " + in_quotes(name) + " is a regular expression",
               "write the names of the layers out");
        if (layer.name == name || layer.name.ends_with("." + name)) return number(alpha, kMetadata, "alpha_pattern");
      }
    }
    if (const json* alpha = field(layer, "lora_alpha")) return number(*alpha, kMetadata, "lora_alpha");
    const std::string last = layer.name.substr(layer.name.rfind('.') + 1);
    for (const auto& [name, kind] : kAlphasOfKinds)
      if (last.starts_with(kind) && arguments_.contains(name)) return number(arguments_[name], kArguments, name);
    return static_cast<double>(layer.rank());
  }

  double number(const json& value, const char* where, const char* name) const {
    if (!value.is_number() || !fits_float(value.get<double>()))
      fail(std::string(where) + ": " + name + " is not a finite number that a float holds", kExportAgain);
    return value.get<double>();
  }

  const json* field(const LoraLayer& layer, const char* name) const {
    const auto found = metadata_.find(layer.part.empty() ? name : layer.part + "." + name);
    return found == metadata_.end() || found->is_null() ? nullptr : &*found;
  }

  bool flag(const LoraLayer& layer, const char* name) const {
    const json* value = field(layer, name);
    return value != nullptr && value->is_boolean() && value->get<bool>();
  }

  std::string path_;
  LoraFile result_;
  json metadata_ = json::object(), arguments_;
  std::map<Key, LoraLayer> layers_;
  std::map<Key, double> alphas_;
  std::vector<std::string> strangers_;
  bool peft_names_ = false;
};

}  // namespace

LoraFile read_lora(const std::filesystem::path& path) {
  return Reader(path).read();
}

}  // namespace sparsereel::models
