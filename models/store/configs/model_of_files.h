// A model that is no folder of diffusers': files for its parts, with the config.json beside a part's where its
// _class_name is that part's, and the rest from the YAML of the model that they are. No torch.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// What `model` names: a folder in diffusers' layout, or another folder with files or such folders in it, or one file
/// that holds some or all parts. `files`: by role ("vae"), what stands in place of what is found there; those of a
/// folder of diffusers' are left to Checkpoint::replace(). `configs`: folder of the known models' YAML. `with_images`:
/// whether an image is given, where that is known: models that need one, or take none, are then passed over.
///
/// Of one of two experts the other is found by its name. Where several files fit, choices() of the checkpoint say so.
/// Throws Error where parts are missing, and where several models could run: its choices name each.
Checkpoint open_model(const std::filesystem::path& model, const std::map<std::string, std::string>& files,
                      const std::filesystem::path& configs, std::optional<bool> with_images = {});

/// Returns true if open_model() would search the folder, since it does not have the layout of diffusers.
bool is_searched(const std::filesystem::path& model);

/// By names and shapes of the file's tensors: which roles it has in which models, each by its YAML in `configs`.
/// Several where they differ in their other components, or as two experts do; none for a file of something else. Throws
/// Error where the file is damaged.
std::map<std::string, std::vector<std::filesystem::path>> models_of_file(const std::filesystem::path& configs,
                                                                         const std::filesystem::path& file);

}  // namespace sparsereel::models
