// Says which files a run uses if there was a choice.
#pragma once

#include <string>
#include <vector>

#include "app/options/options.h"

namespace sparsereel::app {

/// Returns "Uses a.safetensors; b.safetensors (2 text encoders were found; --text-encoder names another)". Paths below
/// `model` are relative to it. Empty if there was no choice.
std::string used_files_line(const std::vector<models::ChosenFile>& files, const std::filesystem::path& model);

/// Calls open_model(). Prints the files that it chose on stderr unless the run is quiet.
models::Checkpoint open_and_say(const RunOptions& run);

/// Prints where to read the terms of the model's weights, if they have terms that people must look at.
void say_terms(const RunOptions& run, const models::ModelSpec& spec);

}  // namespace sparsereel::app
