// Stores the parts of a denoising state in a safetensors file with a checksum.
#include "app/jobs/denoising_checkpoint.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "app/jobs/report.h"
#include "app/tensor_file.h"
#include "hilbert/error.h"
#include "models/engine/state_parts.h"
#include "models/files/json_text.h"
#include "models/request/denoising_state.h"
#include "models/store/checkpoint/safetensors.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKind = "checkpoint";                                            // part of the file's name
constexpr const char *kIdentity = "identity", *kRun = "run", *kChecksum = "checksum";  // keys of the metadata

constexpr const char* kBeginAnew = "remove the file: the run then begins at its first step";

/// Returns a metadata value; empty if missing.
std::string metadata_text(const models::TensorFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? "" : found->second;
}

uint64_t mix(uint64_t sum, uint64_t word) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
  return std::rotl((sum ^ word) * kOdd, 29);
}

/// Mixes bytes into the sum; any word that differs changes the sum.
uint64_t mix(uint64_t sum, std::span<const std::byte> bytes) {
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), sizeof(uint64_t)))) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), std::min(bytes.size(), sizeof(word)));
    sum = mix(sum, word);
  }
  return sum;
}

uint64_t mix(uint64_t sum, const std::string& text) {
  return mix(mix(sum, text.size()), std::as_bytes(std::span(text)));
}

/// Returns a checksum over everything in a checkpoint, so that no run resumes from a damaged file. It does not depend
/// on the order of the tensors. It is not models::sha256(), which takes 20 times as long: with a cache, gigabytes may
/// be saved every few steps, and nobody has a reason to forge a checkpoint.
std::string checksum(const std::vector<models::TensorView>& tensors, const std::string& run) {
  uint64_t sum = mix(tensors.size(), run);
  for (const models::TensorView& tensor : tensors) {
    uint64_t own = mix(static_cast<uint64_t>(tensor.dtype), tensor.name);
    for (const int64_t size : tensor.shape) own = mix(own, static_cast<uint64_t>(size));
    sum += mix(own, tensor.data);
  }
  return std::to_string(sum);
}

std::string checksum(const models::TensorFile& file) {
  std::vector<models::TensorView> views;
  for (const models::TensorEntry& entry : file.entries())
    views.push_back({entry.name, entry.dtype, entry.shape, file.data(entry)});
  return checksum(views, metadata_text(file, kRun));
}

/// Throws Error if save_checkpoint() did not write the file for a run with this cache. Throws other exceptions if the
/// content is damaged or made up.
std::shared_ptr<const models::DenoisingState> read_state(const models::TensorFile& file,
                                                         const models::CacheRule& cache) {
  if (checksum(file) != metadata_text(file, kChecksum)) throw bad_input("it is damaged", kBeginAnew);
  models::StateParts parts{.tensors = {},
                           .run = models::parse_json(metadata_text(file, kRun), file.path().string(), kBeginAnew)};
  for (const models::TensorEntry& entry : file.entries()) {
    at::Tensor copy = copy_of(file, entry);
    if (!copy.defined())
      throw bad_input("the tensor " + entry.name + " has a dtype that our checkpoints never have", kBeginAnew);
    parts.tensors[entry.name] = std::move(copy);
  }
  return std::make_shared<models::DenoisingState>(models::state_of(parts, cache));
}

/// Returns the identity; empty if the file is no denoising checkpoint.
std::string identity_of(const models::TensorFile& file) {
  return metadata_text(file, kRun).empty() || file.find(models::kStateLatents) == nullptr
             ? ""
             : metadata_text(file, kIdentity);
}

std::string identity_of(const fs::path& path) {
  try {
    return identity_of(models::TensorFile(path));
  } catch (const Error&) {  // the file is no checkpoint, in spite of its name
    return {};
  }
}

}  // namespace

std::shared_ptr<const models::DenoisingState> load_checkpoint(const fs::path& path, const std::string& identity,
                                                              const models::CacheRule& cache) {
  const models::TensorFile file(path);
  const std::string found = identity_of(file);
  if (found.empty()) throw bad_input("it is not a denoising checkpoint", kBeginAnew);
  if (found != identity) throw bad_input("it belongs to a run with other settings", kBeginAnew);
  try {
    return read_state(file, cache);
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {  // thrown by JSON or libtorch, or for lack of memory
    throw bad_input("it is damaged", kBeginAnew);
  }
}

void save_checkpoint(const fs::path& path, const models::DenoisingState& state, const std::string& identity) {
  const models::StateParts parts = models::parts_of(state);
  std::vector<models::TensorView> views;
  for (const auto& [name, tensor] : parts.tensors) views.push_back(view_of(name, tensor));
  const std::string text = dump(parts.run);
  models::write_safetensors(path, views, {{kIdentity, identity}, {kRun, text}, {kChecksum, checksum(views, text)}});
}

OwnCheckpoint find_checkpoint(const fs::path& output, const std::string& identity, const models::CacheRule& cache) {
  OwnCheckpoint own;
  for (const fs::path& path : files_beside(output, {kKind})) {
    try {
      own.state = load_checkpoint(path, identity, cache);
      own.path = path;
      return own;
    } catch (const Error& error) {
      own.passed_over.push_back(path.string() + " is not used: " + error.what());
    }
  }
  own.path = free_beside(output, {kKind});
  return own;
}

bool may_have_checkpoint(const fs::path& output) {
  return !files_beside(output, {kKind}).empty();
}

std::vector<FileBeside> checkpoints_in(const fs::path& folder) {
  std::vector<FileBeside> files = files_beside_outputs(folder, {kKind});
  std::erase_if(files, [](const FileBeside& file) { return identity_of(file.path).empty(); });
  return files;
}

void remove_checkpoints(const Identities& made) {
  std::map<fs::path, Identities> by_folder;  // so that each folder is read once
  for (const auto& [output, identity] : made) {
    const fs::path name = output.has_filename() ? output : output.parent_path();
    by_folder[name.parent_path()][name] = identity;
  }
  std::error_code ignored;
  for (const auto& [folder, identities] : by_folder) {
    for (const FileBeside& file : files_beside_outputs(folder, {kKind})) {
      const auto own = identities.find(file.output);
      if (own == identities.end()) continue;
      const std::string found = identity_of(file.path);
      if (!found.empty() && found == own->second) fs::remove(file.path, ignored);
    }
  }
}

}  // namespace sparsereel::app
