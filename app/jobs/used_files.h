// Which files a run uses, where several could have been used.
#pragma once

#include <string>
#include <vector>

#include "app/options/options.h"

namespace sparsereel::app {

/// "Uses a.safetensors; b.safetensors (2 text encoders were found; --text-encoder names another)". Paths below `model`
/// are shown without it. Empty where there was nothing to choose.
std::string used_files_line(const std::vector<models::ChosenFile>& files, const std::filesystem::path& model);

/// open_model(), and a line on stderr about the files that it chose, unless the run is quiet.
models::Checkpoint open_and_say(const RunOptions& run);

}  // namespace sparsereel::app
