// Recognizes files of models that this program does not support (image models, other video models, their LoRAs,
// encoders and VAEs) by their tensors' names. So errors and `inspect` can say in one line what a file is. No torch.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "hilbert/error.h"

namespace sparsereel::models {

/// Says what a file is, or the shards if it is an index: "an SDXL checkpoint", "a Flux LoRA". Returns an empty string
/// if the table knows no such model, if the file cannot be read, or if the file is a part of a supported model.
std::string foreign_model(const std::filesystem::path& file);

/// Returns the families that this program runs, as a list: "A, B and C".
std::string supported_families();

/// Returns a clearer error for a model that does not open. If `model` or one of `files` (by role) is a foreign model's
/// file without any part of a supported model, the error says so. Otherwise returns `error`.
Error or_foreign(const Error& error, const std::filesystem::path& model,
                 const std::map<std::string, std::string>& files);

/// Returns the error for a file that is a foreign model. `what` comes from foreign_model().
Error foreign_file(const std::filesystem::path& file, const std::string& what);

}  // namespace sparsereel::models
