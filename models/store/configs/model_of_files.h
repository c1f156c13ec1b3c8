// Opens a model that is a set of files for its parts instead of a folder in diffusers' layout. The config of a part is
// the config.json beside the file if _class_name fits the part, and otherwise comes from the YAML of the recognized
// model. No torch.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// Opens `model`: a folder in diffusers' layout, another folder with files or such folders in it, or one file that
/// holds some or all parts. `files` (by role, "vae") replace what is found; for a folder in diffusers' layout the
/// caller applies them with Checkpoint::replace(). `configs` is the folder of the known models' YAML. `with_images`
/// says whether an image is given, if known: models that need one, or take none, are then passed over.
///
/// If `model` or `files` name one of two experts, the other is found by its name. If several files fit a part,
/// choices() of the checkpoint say so. Throws Error if parts are missing, and if several models could run; its choices
/// name each.
Checkpoint open_model(const std::filesystem::path& model, const std::map<std::string, std::string>& files,
                      const std::filesystem::path& configs, std::optional<bool> with_images = {});

/// Returns true if open_model() would search the folder because it is not in diffusers' layout.
bool is_searched(const std::filesystem::path& model);

/// Returns each role that a file fills, with the YAML files (in `configs`) of the models in which it fills this role.
/// There are several such models if they differ only in other parts, or if one of them has the file as one of two
/// experts. Returns nothing for an unrelated file. Throws Error if the file is damaged.
std::map<std::string, std::vector<std::filesystem::path>> models_of_file(const std::filesystem::path& configs,
                                                                         const std::filesystem::path& file);

}  // namespace sparsereel::models
