// Sorts a file's tensors into layers.
#include "models/store/checkpoint/lora_file.h"

#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>

#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "hilbert/half.h"
#include "models/files/config_fields.h"
#include "models/files/json_text.h"
#include "models/request/lora_choice.h"
#include "models/store/checkpoint/foreign_model.h"
#include "models/store/checkpoint/lora_names.h"
#include "models/store/checkpoint/lora_settings.h"

namespace sparsereel::models {
namespace {

constexpr const char* kExportAgain =
    "export the LoRA again: each layer needs lora_A and lora_B, or lora_down and lora_up, and may have an alpha";
constexpr const char* kUsePlain = "use a plain LoRA, or a checkpoint into which this one was merged";
constexpr std::string_view kPeftPrefix = "base_model.model.";

bool is_floating(Dtype dtype) {
  return dtype == Dtype::f64 || dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

template <typename Number>
Number number_at(std::span<const std::byte> data) {
  Number value;
  std::memcpy(&value, data.data(), sizeof value);
  return value;
}

/// Returns the number in a tensor of one element; nullopt if the dtype is not supported for alphas.
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
  explicit Reader(const std::filesystem::path& path)
      : path_(path.string()), file_(std::make_shared<TensorFile>(path)), settings_(path, file_->metadata()) {
    result_.file = file_;
  }

  LoraFile read() {
    for (const TensorEntry& entry : file_->entries()) sort(entry);
    if (layers_.empty()) refuse();
    for (auto& [key, layer] : layers_) {
      finish(layer);
      result_.layers.push_back(layer);
    }
    result_.guesses_alpha = peft_names_ && !says_alpha_;
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

  void sort(const TensorEntry& entry) {
    if (const std::string_view kind = other_adapter(entry.name); !kind.empty())
      fail(in_quotes(entry.name) + " marks it as " + std::string(kind) + ", which is not supported", kUsePlain);
    const auto name = lora_name(entry.name);
    if (!name) return result_.strangers.push_back(in_quotes(entry.name));
    peft_names_ = peft_names_ || entry.name.find(kPeftPrefix) != std::string::npos;
    result_.numbers_transformers = result_.numbers_transformers || name->numbered;
    LoraLayer& layer = layers_[{name->part, name->layer, name->underscores}];
    layer.part = name->part;
    layer.name = name->layer;
    layer.underscores = name->underscores;
    layer.has_adapter = layer.has_adapter || name->has_adapter;
    if (name->piece == LoraPiece::alpha) return read_alpha(entry, layer);
    if (!is_floating(entry.dtype))
      fail(entry, "is stored as " + std::string(models::name(entry.dtype)) + ", not as F32, F16 or BF16");
    const std::map<LoraPiece, const TensorEntry* LoraLayer::*> kMembers = {
        {LoraPiece::down, &LoraLayer::down},
        {LoraPiece::up, &LoraLayer::up},
        {LoraPiece::bias, &LoraLayer::bias},
        {LoraPiece::diff, &LoraLayer::diff},
        {LoraPiece::diff_bias, &LoraLayer::diff_bias}};
    const TensorEntry*& member = layer.*kMembers.at(name->piece);
    if (member != nullptr) fail(entry, "appears beside " + in_quotes(member->name) + ", which means the same");
    member = &entry;
  }

  void read_alpha(const TensorEntry& entry, const LoraLayer& layer) {
    const bool one = entry.bytes == size_of(entry.dtype);
    const std::optional<double> value = one ? scalar(*file_, entry) : std::nullopt;
    if (!value) fail(entry, "is not a single finite number");
    if (!fits_float(*value)) fail(entry, "is " + exact_text(*value) + ", not a finite 32-bit number");
    alphas_[{layer.part, layer.name, layer.underscores}] = *value;
  }

  [[noreturn]] void refuse() const {
    if (result_.strangers.empty()) fail("holds no layer", kExportAgain);
    if (const std::string what = foreign_model(path_); !what.empty()) throw foreign_file(path_, what);
    const std::string count = std::to_string(result_.strangers.size());
    fail("none of the " + count + " tensors is part of a LoRA: " + first_of(result_.strangers),
         "give a LoRA file, whose tensors end in lora_A.weight and lora_B.weight, or lora_down and lora_up");
  }

  void finish(LoraLayer& layer) {
    if (layer.down == nullptr && layer.up == nullptr) {
      if (layer.diff == nullptr && layer.diff_bias == nullptr)
        fail("the layer " + in_quotes(layer.name) + " has only an alpha or a bias", kExportAgain);
      return;
    }
    if (layer.down == nullptr) fail(*layer.up, "has no A (lora_A, lora_down) beside it");
    if (layer.up == nullptr) fail(*layer.down, "has no B (lora_B, lora_up) beside it");
    if (layer.diff != nullptr) fail(*layer.diff, "appears beside " + in_quotes(layer.up->name));
    for (const TensorEntry* matrix : {layer.down, layer.up})
      if (matrix->shape.size() < 2)
        fail(*matrix, "has " + std::to_string(matrix->shape.size()) + " dimensions, not two or more");
    if (layer.rank() < 1 || layer.up->shape[1] != layer.rank())
      fail(*layer.up, "has rank " + std::to_string(layer.up->shape[1]) + ", but " + in_quotes(layer.down->name) +
                          " has " + std::to_string(layer.rank()));
    if (const std::string file = settings_.file_with_dora(layer.part); !file.empty())
      throw bad_file(file, "sets use_dora, which is not supported", kUsePlain);
    const auto rank = static_cast<double>(layer.rank());
    const std::optional<double> alpha = alpha_of(layer);
    says_alpha_ = says_alpha_ || alpha;
    layer.alpha = alpha.value_or(rank);
    layer.strength = layer.alpha / (settings_.uses_rslora(layer.part) ? std::sqrt(rank) : rank);
  }

  /// Returns the alpha from the layer's tensor, or else from the settings.
  std::optional<double> alpha_of(const LoraLayer& layer) const {
    const auto found = alphas_.find({layer.part, layer.name, layer.underscores});
    return found != alphas_.end() ? found->second : settings_.alpha(layer.part, layer.name);
  }

  std::string path_;
  std::shared_ptr<const TensorFile> file_;
  LoraSettings settings_;
  LoraFile result_;
  std::map<Key, LoraLayer> layers_;
  std::map<Key, double> alphas_;
  bool peft_names_ = false, says_alpha_ = false;
};

}  // namespace

LoraFile read_lora(const std::filesystem::path& path) {
  return Reader(path).read();
}

}  // namespace sparsereel::models
