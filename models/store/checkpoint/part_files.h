// The files of a model whose parts are one file each, or one file in shards: paths, formats and hashes. No torch.
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
  uint64_t bytes = 0;          // bytes of all shards
  std::string format;          // "F8_E4M3 with scales 406, F16 689": how many tensors of each type
  std::string sha256;          // weights_hash()
};

/// Returns the files in the order of the roles, without parts in diffusers' folders. Reads headers and small tensors.
std::vector<PartFile> part_files(const Checkpoint& checkpoint);

/// Counts the tensors of each format, the most frequent first: "F8_E4M3 with scales 406, F16 689", "int8_convrot 200".
std::string types_of(const TensorTable& tensors, const QuantizedLayers& layers);

/// Return JSON objects by role. Those of shown(), for reports, have the keys "path", "bytes" and "format". Those of
/// remembered(), for recipes, have the keys "name", "bytes" and "sha256".
nlohmann::json shown(const std::vector<PartFile>& files);
nlohmann::json remembered(const std::vector<PartFile>& files);

}  // namespace sparsereel::models
