// Finds the files or tensors from which a tokenizer is read. No torch.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

/// The tensor in ComfyUI's files of text encoders that holds the bytes of a spiece.model.
inline constexpr const char* kSpieceTensor = "spiece_model";

struct TokenizerPlace {
  std::filesystem::path path;  // a folder, a spiece.model, tokenizer.json or vocab.json, or the file of `weights`
  std::shared_ptr<const TensorFile> weights = nullptr;  // the file that contains the tokenizer, or null
  const TensorEntry* spiece = nullptr;  // kSpieceTensor in `weights`; null if the tokenizer is in a GGUF's key-values
};

/// Returns the tokenizer in a file of weights; nullopt if there is none, or if it is incomplete, as in GGUFs of older
/// programs, which lack the normalizer's table.
std::optional<TokenizerPlace> tokenizer_in(const std::shared_ptr<const TensorFile>& weights);
/// Returns the tokenizer in the folder of a file of weights, in its subfolder "tokenizer", or in a subfolder named like
/// `repository` ("google/umt5-xxl").
std::optional<TokenizerPlace> tokenizer_beside(const std::filesystem::path& weights, const std::string& repository);
/// Returns true if the folder contains spiece.model, vocab.json with merges.txt, or tokenizer.json.
bool holds_tokenizer(const std::filesystem::path& folder);

/// Returns the file with the vocabulary. In a folder this is spiece.model, or else vocab.json if merges.txt is beside
/// it, or else tokenizer.json.
std::filesystem::path file_of(const TokenizerPlace& place);
/// Returns every file that tells how text is split. This is file_of(), but if that is vocab.json or merges.txt, both of
/// these files.
std::vector<std::filesystem::path> files_of(const TokenizerPlace& place);

}  // namespace sparsereel::models
