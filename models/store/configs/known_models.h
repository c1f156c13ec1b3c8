// The models that configs/ describes, and which parts in files could be theirs. No torch.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "models/request/spec.h"
#include "models/store/checkpoint/found_parts.h"
#include "models/store/configs/config_file.h"

namespace sparsereel::models {

/// A model of configs/, and what its parts' tensors would show.
struct KnownModel {
  Architecture architecture;
  const Family* family = nullptr;
  std::map<std::string, Sizes> sizes = {};  // by role, of those with weights

  std::string name() const { return architecture.config.file.stem().string(); }
  /// True if it has two transformers, for high and for low noise.
  bool has_experts() const { return sizes.contains("transformer_2"); }
  /// Whether the part's tensors have the sizes that the YAML says. Both experts have those of "transformer".
  bool fits(const FoundPart& part) const;
  /// How the model uses images.
  ImageSpec images() const;
};

std::vector<KnownModel> known_models(const std::filesystem::path& configs);

}  // namespace sparsereel::models
