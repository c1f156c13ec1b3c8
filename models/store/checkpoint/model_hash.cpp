// Hashes configs and headers of weights with SHA-256.
#include "models/store/checkpoint/model_hash.h"

#include "models/files/sha256.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/family.h"

namespace sparsereel::models {
namespace {

/// Hashes a part and a NUL byte, which no part holds. Otherwise "ab", "c" and "a", "bc" would have the same hash.
void add(Sha256& hash, const std::string& part) {
  hash.update(part);
  hash.update(std::string_view("\0", 1));
}

/// Hashes a tokenizer that is neither in the model's own folder nor in a file of weights. A tokenizer in a file of
/// weights is hashed with that file.
void add_other_tokenizer(Sha256& hash, const Checkpoint& checkpoint) {
  const auto place = checkpoint.other_tokenizer();
  if (!place || place->weights != nullptr || place->path == checkpoint.path() / "tokenizer") return;
  for (const std::filesystem::path& file : files_of(*place)) add(hash, sha256_of_file(file));
}

void add_header(Sha256& hash, const TensorFile& file) {
  add(hash, std::to_string(std::filesystem::file_size(file.path())));
  for (const TensorEntry& entry : file.entries()) {
    std::string line = entry.name + " " + std::to_string(static_cast<int>(entry.dtype)) + " " +
                       std::to_string(entry.offset) + " " + std::to_string(entry.bytes);
    for (const int64_t size : entry.shape) line += " " + std::to_string(size);
    for (const int64_t stride : entry.strides) line += " / " + std::to_string(stride);
    add(hash, line);
  }
}

// Tensors of up to this many elements are small, such as the modulation of a block, which has six rows of 5120.
constexpr uint64_t kMostElements = 1 << 15;

bool is_small(const TensorEntry& entry) {
  return entry.shape.size() <= 1 || entry.elements() <= kMostElements;
}

/// Hashes the descriptions of layers whose tensors alone do not tell how to read them. Without such layers it hashes
/// nothing, so that hashes in existing recipes stay valid.
void add_quantized(Sha256& hash, const Component& component) {
  for (const auto& [weight, layer] : component.quantized)
    if (layer.is_joined() || layer.rotation > 0)
      add(hash,
          weight + " " + layer.label() + " " + std::to_string(layer.rotation) + (layer.low_first() ? " low" : ""));
}

}  // namespace

std::string weights_hash(const Component& component) {
  Sha256 hash;
  for (const auto& file : component.files) add_header(hash, *file);
  for (const auto& [tensor, place] : component.tensors) {
    if (!is_small(*place.second)) continue;
    const std::span<const std::byte> data = component.files[place.first]->covered(*place.second);
    hash.update(data.data(), data.size());
  }
  for (const auto& [weight, layer] : component.quantized)
    for (const auto& [part, place] : layer.tensors) {
      const bool is_listed = part == "weight" || (!layer.is_joined() && part != "pre_quant_scale");
      if (is_listed || !is_small(*place.second)) continue;
      const std::span<const std::byte> data = component.files[place.first]->covered(*place.second);
      hash.update(data.data(), data.size());
    }
  add_quantized(hash, component);
  return hash.hex();
}

std::string model_hash(const Checkpoint& checkpoint) {
  Sha256 hash;
  add(hash, checkpoint.pipeline_class());
  for (const std::string& setting : find_family(checkpoint.pipeline_class())->settings) {
    const nlohmann::json value = checkpoint.setting(setting);
    if (!value.is_null()) add(hash, setting + " " + value.dump());
  }
  for (const std::string& name : checkpoint.roles()) {
    add(hash, name + " " + checkpoint.component_class(name));
    if (name == "tokenizer") {  // a tokenizer has no config.json
      add_other_tokenizer(hash, checkpoint);
      continue;
    }
    add(hash, checkpoint.config(name).dump());
    if (!has_weights(name)) continue;
    const Component component = checkpoint.component(name);
    if (component.random_seed) add(hash, "random weights of seed " + std::to_string(*component.random_seed));
    if (component.by_itself) {
      add(hash, weights_hash(component));
      continue;
    }
    for (const auto& file : component.files) {
      add(hash, file->path().filename().string());
      add_header(hash, *file);
    }
    add_quantized(hash, component);
  }
  return hash.hex();
}

}  // namespace sparsereel::models
