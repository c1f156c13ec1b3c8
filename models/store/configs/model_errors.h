// The errors of open_model() if files make no complete model, or more than one. Each says what was found, and what the
// user can do. No torch.
#pragma once

#include <filesystem>
#include <vector>

#include "hilbert/error.h"
#include "models/store/configs/candidates.h"

namespace sparsereel::models {

/// Returns the error for the case that no candidate is complete. `all` has the incomplete candidates.
Error no_model(const std::filesystem::path& model, const Offered& offered, const std::vector<Candidate>& all);

/// Returns the error for the case that several candidates could run. Its choices show the model, format and size of
/// each candidate. `all` also includes candidates that could not run.
Error several_models(const std::filesystem::path& model, const std::vector<Candidate>& candidates,
                     const std::vector<Candidate>& all);

/// Returns the error for the case that several candidates lack only a tokenizer.
Error no_tokenizer(const std::filesystem::path& model, const std::vector<Candidate>& candidates);

/// Returns the error for the case that several tokenizers fit.
Error several_tokenizers(const std::vector<std::filesystem::path>& folders);

/// Returns the error for the case that both experts have the same file.
Error one_file_for_two(const std::filesystem::path& file);

/// Returns choices for these candidates, grouped by model. If candidates have the same model and format, their titles
/// include the file names.
std::vector<ErrorChoice> choices_among(const std::vector<Candidate>& candidates);

/// Joins names: "text_encoder and vae".
std::string every(const std::vector<std::string>& names);

}  // namespace sparsereel::models
