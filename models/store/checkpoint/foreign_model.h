// Recognises files that this program does not run: image models, other video models, their LoRAs, encoders, VAEs.
// Told by the names of its tensors, so that an error or `inspect` needs one line for it. No torch.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "hilbert/error.h"

namespace sparsereel::models {

/// "an SDXL checkpoint", "a Flux LoRA": what a file is, or the index of shards. Empty where no row of the table fits,
/// where the file cannot be read, and where it is a part of a family's model and nothing more.
std::string foreign_model(const std::filesystem::path& file);

/// "A, B and C": the families that this program runs.
std::string supported_families();

/// `error`, or the one that says what `model`, a file, or one of `files`, by role, is where it holds no part of a model
/// and the table knows it. To be asked where a model does not open.
Error or_foreign(const Error& error, const std::filesystem::path& model,
                 const std::map<std::string, std::string>& files);

/// That `file`, named for a field of the request, is such a model. `what`: of foreign_model().
Error foreign_file(const std::filesystem::path& file, const std::string& what);

}  // namespace sparsereel::models
