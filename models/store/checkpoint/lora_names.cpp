// Splits names by tables of suffixes and prefixes.
#include "models/store/checkpoint/lora_names.h"

#include <algorithm>

#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/wrapped_name.h"

namespace sparsereel::models {
namespace {

struct Suffix {
  std::string_view text;
  LoraPiece piece;
  std::string_view instead = {};  // what replaces the suffix at the end of the layer's name
};
constexpr Suffix kSuffixes[] = {{".lora_A.weight", LoraPiece::down},
                                {".lora_B.weight", LoraPiece::up},
                                {".lora_B.bias", LoraPiece::bias},
                                {".lora_down.weight", LoraPiece::down},
                                {".lora_up.weight", LoraPiece::up},
                                {".lora.down.weight", LoraPiece::down},
                                {".lora.up.weight", LoraPiece::up},
                                {"_lora.down.weight", LoraPiece::down},
                                {"_lora.up.weight", LoraPiece::up},
                                {".lora_linear_layer.down.weight", LoraPiece::down},
                                {".lora_linear_layer.up.weight", LoraPiece::up},
                                {".lora_A", LoraPiece::down},
                                {".lora_B", LoraPiece::up},
                                {".lora_down", LoraPiece::down},
                                {".lora_up", LoraPiece::up},
                                {".alpha", LoraPiece::alpha},
                                {".diff", LoraPiece::diff},
                                {".diff_b", LoraPiece::diff_bias},
                                {".diff_m", LoraPiece::diff, ".modulation"}};

/// A piece of a tensor's name, and the adapter that has it. These adapters are published as LoRAs.
constexpr std::pair<std::string_view, std::string_view> kOthers[] = {{"lycoris_", "LyCORIS"},
                                                                     {"dora_scale", "DoRA"},
                                                                     {"lora_magnitude_vector", "DoRA"},
                                                                     {"hada_w", "LoHa"},
                                                                     {"lokr_w", "LoKr"},
                                                                     {"oft_blocks", "OFT"},
                                                                     {"oft_R", "OFT"},
                                                                     {"oft_diag", "OFT"},
                                                                     {"lora_mid", "LoCon, a LoRA of convolutions"},
                                                                     {"lora_embedding_", "a LoRA of an embedding"}};

constexpr const char *kTransformer = "transformer", *kEncoderOfText = "text_encoder";
constexpr const char* kFirstTransformer = "transformer_1.";  // what some trainers call the first of two transformers
constexpr std::pair<std::string_view, const char*> kUnderscored[] = {
    {"lora_unet_", ""}, {"lora_transformer_", ""}, {"lora_te_", kEncoderOfText}, {"lora_te1_", kEncoderOfText}};

bool take_prefix(std::string& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.erase(0, prefix.size());
  return true;
}

bool take_one_of(std::string& name, const std::vector<std::string>& prefixes) {
  return std::ranges::any_of(prefixes, [&](const std::string& prefix) { return take_prefix(name, prefix); });
}

/// Removes the adapter's name that PEFT inserts: "x.lora_A.style.weight" becomes "x.lora_A.weight".
std::string without_adapter(const std::string& tensor) {
  for (const std::string_view mark : {".lora_A.", ".lora_B."}) {
    const size_t at = tensor.rfind(mark);
    if (at == std::string::npos) continue;
    const size_t begin = at + mark.size(), end = tensor.find('.', begin);
    if (end == std::string::npos || end == begin || tensor.find('.', end + 1) != std::string::npos) continue;
    return tensor.substr(0, begin) + tensor.substr(end + 1);
  }
  return tensor;
}

const Suffix* suffix_of(std::string_view tensor) {
  const auto* const found =
      std::ranges::find_if(kSuffixes, [&](const Suffix& suffix) { return tensor.ends_with(suffix.text); });
  return found == std::end(kSuffixes) ? nullptr : found;
}

/// Removes the model's part from the front of name.layer and sets name.part. Returns false if the name has no part.
bool take_part(LoraName& name) {
  if (take_prefix(name.layer, kFirstTransformer)) {
    name.part = kTransformer;
    name.numbered = true;
    return true;
  }
  for (const Family& family : families()) {
    for (const Part& part : family.parts) {
      const auto& prefixes = part.names.prefixes;
      const bool is_text = part.role == kEncoderOfText;
      // "transformer." at the front of a name means the transformer. It is also a prefix of text encoders, but there
      // only after another of their prefixes.
      const bool takes = take_prefix(name.layer, part.role + ".") ||
                         (is_text && !name.layer.starts_with("transformer.") && take_one_of(name.layer, prefixes));
      if (!takes) continue;
      name.part = part.role;
      return true;
    }
  }
  return false;
}

/// Returns the prefixes that may follow the name of the part.
const std::vector<std::string>& prefixes_behind(const std::string& part) {
  if (part.empty() || part == kTransformer) return transformer_prefixes();
  for (const Family& family : families())
    for (const Part& each : family.parts)
      if (each.role == part) return each.names.prefixes;
  return transformer_prefixes();
}

void take_prefixes(LoraName& name) {
  for (size_t i = 0; i < kMostPrefixes; ++i)
    if (!(name.part.empty() && take_part(name)) && !take_one_of(name.layer, prefixes_behind(name.part))) return;
}

bool take_underscored(LoraName& name) {
  for (const auto& [prefix, part] : kUnderscored) {
    if (!take_prefix(name.layer, prefix)) continue;
    name.part = part;
    name.underscores = true;
    name.layer = without_wrappers(underscored(name.layer), '_');  // some programs leave dots in the name
    name.layer.erase(0, name.layer.find_first_not_of('_'));       // some programs write two underscores
    return true;
  }
  return false;
}

}  // namespace

std::optional<LoraName> lora_name(const std::string& tensor) {
  const std::string plain = without_adapter(tensor);
  const Suffix* suffix = suffix_of(plain);
  if (suffix == nullptr) return std::nullopt;
  LoraName name;
  name.layer = without_wrappers(plain.substr(0, plain.size() - suffix->text.size()).append(suffix->instead));
  name.piece = suffix->piece;
  name.has_adapter = plain.size() != tensor.size();
  if (!take_underscored(name)) take_prefixes(name);
  return name;
}

std::string underscored(std::string name) {
  std::ranges::replace(name, '.', '_');
  return name;
}

std::string_view other_adapter(std::string_view tensor) {
  for (const auto& [mark, kind] : kOthers)
    if (tensor.find(mark) != std::string_view::npos) return kind;
  return {};
}

bool is_lora(const TensorTable& tensors) {
  const auto is_of_one = [](const auto& tensor) {
    return suffix_of(without_adapter(tensor.first)) != nullptr || !other_adapter(tensor.first).empty() ||
           tensor.first.starts_with("lora_");
  };
  return !tensors.empty() && 2 * std::ranges::count_if(tensors, is_of_one) >= std::ssize(tensors);
}

}  // namespace sparsereel::models
