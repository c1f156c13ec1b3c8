// The models that configs/ describes, and which files fit their parts. No torch.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "models/request/spec.h"
#include "models/store/checkpoint/found_parts.h"
#include "models/store/configs/config_file.h"

namespace sparsereel::models {

/// A model of configs/, and the sizes that its parts' tensors must have.
struct KnownModel {
  Architecture architecture;
  const Family* family = nullptr;
  std::map<std::string, Sizes> sizes = {};  // by role, for parts with weights

  std::string name() const { return architecture.config.file.stem().string(); }
  /// Returns true if the model has two transformers, for high and for low noise.
  bool has_experts() const { return sizes.contains("transformer_2"); }
  /// Returns true if the part belongs to a supported model of this family, and its tensors have the sizes that the YAML
  /// gives for its role. FoundPart gives files of both experts the role "transformer".
  bool fits(const FoundPart& part) const;
  /// Describes how the model uses images.
  ImageSpec images() const;
};

/// Returns the models of the YAML files in `configs`. A model whose transformer no family runs is left out.
std::vector<KnownModel> known_models(const std::filesystem::path& configs);

}  // namespace sparsereel::models
