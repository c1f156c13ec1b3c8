// The files that are a model's parts by themselves, in no folder of diffusers': which, in which format, and what they
// are known by. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

struct PartFile {
  std::string role;            // "vae"
  std::filesystem::path path;  // the file, or the index of its shards
  uint64_t bytes = 0;          // of all shards
  std::string format;          // "F8_E4M3 with scales 406, F16 689": how many tensors of each type
  std::string sha256;          // weights_hash()
};

/// In the order of the roles; none of a folder in diffusers' layout. Reads headers and small tensors.
std::vector<PartFile> part_files(const Checkpoint& checkpoint);

/// How many tensors are stored in which way, the most frequent first: "F8_E4M3 with scales 406, F16 689".
std::string types_of(const TensorTable& tensors);

/// By role: "path", "bytes", "format", as reports show them; and "name", "bytes", "sha256", as recipes know them.
nlohmann::json shown(const std::vector<PartFile>& files);
nlohmann::json remembered(const std::vector<PartFile>& files);

}  // namespace sparsereel::models
