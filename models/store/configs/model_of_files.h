// Opens a model whose parts (transformer, text encoder, VAE) are given as a file each, not as a folder in diffusers'
// layout. A part's config is the config.json beside its file, if the _class_name there fits the part. Otherwise it
// comes from the YAML file in configs/ whose model the tensors of the files fit. No torch.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// Opens `model`: a folder in diffusers' layout, another folder that contains files of weights or such folders, or one
/// file with some or all parts. `files` are the user's files by role ("vae"); they replace files that are found. For a
/// folder in diffusers' layout this function ignores `files`: the caller applies them with Checkpoint::replace().
/// `configs` is the folder of the known models' YAML files. `with_images` tells whether the request has an image, if
/// that is known. Then models that need an image which the request lacks, or that take none although it has one, are
/// left out unless all models are such.
///
/// If `model` or `files` name one of two experts, the other expert is found by its file's name. If several files fit a
/// part, the checkpoint's choices() say which one was taken. Throws Error if parts are missing, or if several models
/// could run; the Error's choices list these models.
Checkpoint open_model(const std::filesystem::path& model, const std::map<std::string, std::string>& files,
                      const std::filesystem::path& configs, std::optional<bool> with_images = {});

/// Returns true if open_model() would search the folder because it is not in diffusers' layout.
bool is_searched(const std::filesystem::path& model);

/// Returns the roles that a file can fill, and for each role the YAML files in `configs` of the models in which it can.
/// A role has several models if these differ only in other parts, or if the file is one of two experts in one model and
/// the only transformer of another. Returns an empty map for a file that fits no model. Throws Error if the file is
/// damaged.
std::map<std::string, std::vector<std::filesystem::path>> models_of_file(const std::filesystem::path& configs,
                                                                         const std::filesystem::path& file);

}  // namespace sparsereel::models
