// Lists the parts of a model that are single files, or sharded files, and not folders in diffusers' layout: paths,
// formats and hashes. No torch.
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

/// Returns the checkpoint's parts that are single or sharded files, in the order of the roles. Reads headers and small
/// tensors.
std::vector<PartFile> part_files(const Checkpoint& checkpoint);

/// Counts the tensors of each format, the most frequent first: "F8_E4M3 with scales 406, F16 689", "int8_convrot 200".
std::string types_of(const TensorTable& tensors, const QuantizedLayers& layers);

/// Return a JSON object with an object for each role. shown() is for reports: its objects have the keys "path", "bytes"
/// and "format". remembered() is for recipes: its objects have the keys "name", "bytes" and "sha256".
nlohmann::json shown(const std::vector<PartFile>& files);
nlohmann::json remembered(const std::vector<PartFile>& files);

}  // namespace sparsereel::models
