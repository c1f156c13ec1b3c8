// Why files are no model, or several: each error says what is there and what decides. No torch.
#pragma once

#include <filesystem>
#include <vector>

#include "hilbert/error.h"
#include "models/store/configs/candidates.h"

namespace sparsereel::models {

/// No candidate is complete. `all`: those that are not.
Error no_model(const std::filesystem::path& model, const Offered& offered, const std::vector<Candidate>& all);

/// Several could run. The error's choices name each, by model and format, with its size. `all`: these, and those that
/// could not.
Error several_models(const std::filesystem::path& model, const std::vector<Candidate>& candidates,
                     const std::vector<Candidate>& all);

/// Several could run but for a tokenizer, which none of them has.
Error no_tokenizer(const std::filesystem::path& model, const std::vector<Candidate>& candidates);

Error several_tokenizers(const std::vector<std::filesystem::path>& folders);

Error one_file_for_two(const std::filesystem::path& file);

/// Choices for these candidates, those of one model together. Where model and format are the same the file's name
/// stands beside them.
std::vector<ErrorChoice> choices_among(const std::vector<Candidate>& candidates);

/// "text_encoder and vae".
std::string every(const std::vector<std::string>& names);

}  // namespace sparsereel::models
