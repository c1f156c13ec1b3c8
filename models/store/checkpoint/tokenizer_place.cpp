// Looks for tokenizers in files and folders.
#include "models/store/checkpoint/tokenizer_place.h"

#include <algorithm>
#include <system_error>

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

constexpr const char *kVocabulary = "vocab.json", *kMerges = "merges.txt";

bool is_spiece(const TensorEntry& entry) {
  return entry.dtype == Dtype::u8 &&
         (entry.name == kSpieceTensor || entry.name.ends_with(std::string(".") + kSpieceTensor));
}

}  // namespace

std::optional<TokenizerPlace> tokenizer_in(const std::shared_ptr<const TensorFile>& weights) {
  const auto spiece = std::ranges::find_if(weights->entries(), is_spiece);
  if (spiece != weights->entries().end()) return TokenizerPlace{weights->path(), weights, &*spiece};
  const auto& keys = weights->metadata();
  const auto model = keys.find("tokenizer.ggml.model");
  if (model == keys.end() || model->second != "t5" || !keys.contains("tokenizer.ggml.precompiled_charsmap"))
    return std::nullopt;
  return TokenizerPlace{weights->path(), weights};
}

std::optional<TokenizerPlace> tokenizer_beside(const fs::path& weights, const std::string& repository) {
  const fs::path folder = weights.parent_path();
  for (const fs::path& each : {folder, folder / "tokenizer", folder / repository})
    if (holds_tokenizer(each)) return TokenizerPlace{each};
  return std::nullopt;
}

bool holds_tokenizer(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(file_of({folder}), ignored);
}

fs::path file_of(const TokenizerPlace& place) {
  std::error_code ignored;
  if (fs::is_regular_file(place.path, ignored)) return place.path;
  const auto holds = [&](const char* name) { return fs::exists(place.path / name, ignored); };
  if (holds("spiece.model")) return place.path / "spiece.model";
  if (holds(kVocabulary) && holds(kMerges)) return place.path / kVocabulary;
  return place.path / (holds("tokenizer.json") ? "tokenizer.json" : "spiece.model");
}

std::vector<fs::path> files_of(const TokenizerPlace& place) {
  const fs::path file = file_of(place), name = file.filename();
  if (name != kVocabulary && name != kMerges) return {file};
  return {file.parent_path() / kVocabulary, file.parent_path() / kMerges};
}

}  // namespace sparsereel::models
