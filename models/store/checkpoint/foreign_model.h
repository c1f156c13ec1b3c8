// Recognizes, by the names of tensors, files that this program does not support: image models, other video models, and
// their LoRAs, encoders and VAEs. Errors and `inspect` then say in one line what a file is. No torch.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "hilbert/error.h"

namespace sparsereel::models {

/// Says what a file, or the index of shards, is: "an SDXL checkpoint", "a Flux LoRA". Returns an empty string if no row
/// of the table fits, the file cannot be read, or it is only a part of a supported model.
std::string foreign_model(const std::filesystem::path& file);

/// Returns the families that this program runs, as a list: "A, B and C".
std::string supported_families();

/// Returns a clearer error for a model that does not open. The error says if `model` or one of `files` (by role) is a
/// foreign model's file that holds no part of our models. Otherwise returns `error`.
Error or_foreign(const Error& error, const std::filesystem::path& model,
                 const std::map<std::string, std::string>& files);

/// Returns the error for a file that is a foreign model. `what` comes from foreign_model().
Error foreign_file(const std::filesystem::path& file, const std::string& what);

}  // namespace sparsereel::models
