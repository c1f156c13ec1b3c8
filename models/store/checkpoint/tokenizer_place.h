// Finds the files or tensors that a tokenizer is read from. No torch.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

/// The tensor in ComfyUI's text encoders whose bytes are a spiece.model.
inline constexpr const char* kSpieceTensor = "spiece_model";

struct TokenizerPlace {
  std::filesystem::path path;  // a folder, a spiece.model, tokenizer.json or vocab.json, or the file of `weights`
  std::shared_ptr<const TensorFile> weights = nullptr;  // the file that contains the tokenizer, or null
  const TensorEntry* spiece = nullptr;  // the tensor that holds the tokenizer; null for the key-values of a GGUF
};

/// Returns the tokenizer in a file of weights, if it is complete. GGUFs of older programs lack the normalizer's table.
std::optional<TokenizerPlace> tokenizer_in(const std::shared_ptr<const TensorFile>& weights);
/// Returns the tokenizer beside a file of weights, perhaps in a folder named like its repository ("google/umt5-xxl").
std::optional<TokenizerPlace> tokenizer_beside(const std::filesystem::path& weights, const std::string& repository);
/// Returns true if the folder contains spiece.model, vocab.json with merges.txt, or tokenizer.json.
bool holds_tokenizer(const std::filesystem::path& folder);

/// Returns the file with the vocabulary: in a folder spiece.model, else vocab.json if merges.txt is beside it, else
/// tokenizer.json.
std::filesystem::path file_of(const TokenizerPlace& place);
/// Returns every file that tells how text is split: file_of(), and for a vocab.json or merges.txt both of these.
std::vector<std::filesystem::path> files_of(const TokenizerPlace& place);

}  // namespace sparsereel::models
