// Where a tokenizer is read from: files of its own, or the file of a text encoder's weights. No torch.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

/// The tensor of bytes that ComfyUI's text encoders have: a spiece.model.
inline constexpr const char* kSpieceTensor = "spiece_model";

struct TokenizerPlace {
  std::filesystem::path path;                           // a folder, a spiece.model or tokenizer.json, or `weights`
  std::shared_ptr<const TensorFile> weights = nullptr;  // it is in this file
  const TensorEntry* spiece = nullptr;                  // as this tensor; null: in the keys of a GGUF
};

/// In a file of weights, where it is whole: a GGUF lacks the normaliser's table where an older program wrote it.
std::optional<TokenizerPlace> tokenizer_in(const std::shared_ptr<const TensorFile>& weights);
/// Beside a file of weights. `repository`: where it is published, "google/umt5-xxl", which authors keep as a folder.
std::optional<TokenizerPlace> tokenizer_beside(const std::filesystem::path& weights, const std::string& repository);
/// Whether spiece.model or tokenizer.json is in the folder.
bool holds_tokenizer(const std::filesystem::path& folder);

/// The file of its pieces: in a folder spiece.model, or tokenizer.json where there is none.
std::filesystem::path file_of(const TokenizerPlace& place);

/// "google/umt5-xxl's spiece.model", for errors.
std::string spiece_of(const std::string& repository);

/// The same as a remedy, with the command that downloads it where the repository is known.
std::string tokenizer_remedy(const std::string& repository);

}  // namespace sparsereel::models
