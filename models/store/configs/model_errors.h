// Errors for files that make no model, or several: each says what was found and what would decide. No torch.
#pragma once

#include <filesystem>
#include <vector>

#include "hilbert/error.h"
#include "models/store/configs/candidates.h"

namespace sparsereel::models {

/// Returns the error if no candidate is complete. `all` are the incomplete ones.
Error no_model(const std::filesystem::path& model, const Offered& offered, const std::vector<Candidate>& all);

/// Returns the error if several candidates could run. Its choices name each candidate by model, format and size. `all`
/// includes candidates that could not run.
Error several_models(const std::filesystem::path& model, const std::vector<Candidate>& candidates,
                     const std::vector<Candidate>& all);

/// Returns the error if several candidates lack only a tokenizer.
Error no_tokenizer(const std::filesystem::path& model, const std::vector<Candidate>& candidates);

Error several_tokenizers(const std::vector<std::filesystem::path>& folders);

Error one_file_for_two(const std::filesystem::path& file);

/// Returns choices for these candidates, grouped by model. If candidates have the same model and format, the title
/// includes the file name.
std::vector<ErrorChoice> choices_among(const std::vector<Candidate>& candidates);

/// Joins names: "text_encoder and vae".
std::string every(const std::vector<std::string>& names);

}  // namespace sparsereel::models
