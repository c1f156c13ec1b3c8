// States as tensors of a safetensors file.
#include "app/jobs/denoising_checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "app/jobs/report.h"
#include "app/tensor_file.h"
#include "hilbert/error.h"
#include "models/files/json_text.h"
#include "models/request/denoising_state.h"
#include "models/store/checkpoint/safetensors.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKind = "checkpoint";                                            // in its name
constexpr const char *kIdentity = "identity", *kRun = "run", *kChecksum = "checksum";  // of its metadata
constexpr const char* kLatents = "latents";
constexpr const char* kGenerator = "generator";
constexpr const char* kHistory = "scheduler.";  // and the name that the sampler gives it
constexpr const char* kCache = "cache.";        // and the name that the cache gives it
constexpr const char* kBlocks = "attention.blocks";
constexpr const char* kMeasured = "attention.measured";

constexpr const char* kBeginAnew = "remove the file: the run then begins at its first step";

/// Of the metadata; empty where there is none.
std::string metadata_text(const models::TensorFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? "" : found->second;
}

at::Tensor tensor(const models::TensorFile& file, const models::TensorEntry& entry) {
  at::Tensor copy = copy_of(file, entry);
  if (copy.defined()) return copy;
  throw bad_input("the tensor " + entry.name + " has a dtype that no checkpoint of ours has", kBeginAnew);
}

at::Tensor tensor(const models::TensorFile& file, const std::string& name, at::ScalarType dtype, int64_t rank) {
  const models::TensorEntry* entry = file.find(name);
  at::Tensor found = entry == nullptr ? at::Tensor() : tensor(file, *entry);
  if (found.defined() && found.scalar_type() == dtype && found.dim() == rank) return found;
  throw bad_input("the tensor " + name + " is missing or of another kind", kBeginAnew);
}

/// Of each layer in each step, [steps, layers, counts] and [steps, layers, measures].
std::pair<at::Tensor, at::Tensor> statistics_tensors(const std::vector<std::vector<attention::Statistics>>& per_step) {
  const auto steps = static_cast<int64_t>(per_step.size());
  const auto layers = per_step.empty() ? 0 : static_cast<int64_t>(per_step.front().size());
  at::Tensor blocks = at::empty({steps, layers, std::ssize(attention::kStatisticsCounts)}, at::kLong);
  at::Tensor measured = at::empty({steps, layers, std::ssize(attention::kStatisticsMeasures)}, at::kDouble);
  auto* block = blocks.mutable_data_ptr<int64_t>();
  auto* measure = measured.mutable_data_ptr<double>();
  for (const std::vector<attention::Statistics>& step : per_step) {
    for (const attention::Statistics& layer : step) {
      for (const auto count : attention::kStatisticsCounts) *block++ = layer.*count;
      for (const auto each : attention::kStatisticsMeasures) *measure++ = layer.*each;
    }
  }
  return {blocks, measured};
}

std::vector<std::vector<attention::Statistics>> statistics(const models::TensorFile& file) {
  const at::Tensor blocks = tensor(file, kBlocks, at::kLong, 3), measured = tensor(file, kMeasured, at::kDouble, 3);
  // A step without layers has no bytes in the file, so nothing but this check bounds the number of such steps.
  const bool has_layers = blocks.size(0) == 0 || blocks.size(1) > 0;
  if (blocks.size(2) != std::ssize(attention::kStatisticsCounts) ||
      measured.size(2) != std::ssize(attention::kStatisticsMeasures) || blocks.size(0) != measured.size(0) ||
      blocks.size(1) != measured.size(1) || !has_layers)
    throw bad_input("the statistics of attention have an impossible shape", kBeginAnew);
  const auto* block = blocks.const_data_ptr<int64_t>();
  const auto* measure = measured.const_data_ptr<double>();
  std::vector<std::vector<attention::Statistics>> per_step(static_cast<size_t>(blocks.size(0)));
  for (std::vector<attention::Statistics>& step : per_step) {
    step.resize(static_cast<size_t>(blocks.size(1)));
    for (attention::Statistics& layer : step) {
      for (const auto count : attention::kStatisticsCounts) layer.*count = *block++;
      for (const auto each : attention::kStatisticsMeasures) layer.*each = *measure++;
    }
  }
  return per_step;
}

/// Those whose names begin so, by the rest of their names.
std::map<std::string, at::Tensor> tensors(const models::TensorFile& file, const std::string& beginning) {
  std::map<std::string, at::Tensor> found;
  for (const models::TensorEntry& entry : file.entries())
    if (entry.name.starts_with(beginning)) found[entry.name.substr(beginning.size())] = tensor(file, entry);
  return found;
}

uint64_t mix(uint64_t sum, uint64_t word) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
  return std::rotl((sum ^ word) * kOdd, 29);
}

/// Any word that differs makes another sum.
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

/// Of all that a checkpoint says, in any order of the tensors: what a disk or an editor has damaged is not gone on
/// from. Not models::sha256(), which takes 20 times as long: with a cache's state these are gigabytes, every few steps,
/// and nobody has a reason to forge one.
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

/// Throws Error if the parts contradict each other, and c10::Error if libtorch refuses the generator's state.
void check_consistency(const models::DenoisingState& state) {
  const auto is_done = [&](int64_t step) { return step >= 0 && step < state.step; };
  if (std::ssize(state.per_step) != state.step || !std::ranges::all_of(state.redone_steps, is_done))
    throw bad_input("its steps contradict each other", kBeginAnew);
  at::make_generator<at::CPUGeneratorImpl>().set_state(state.generator);
}

/// Throws Error where the file is not one that save_checkpoint() wrote for a run with this cache, and any other
/// exception where the file's content is damaged or made up.
std::shared_ptr<const models::DenoisingState> read_state(const models::TensorFile& file,
                                                         const models::CacheRule& cache) {
  if (checksum(file) != metadata_text(file, kChecksum)) throw bad_input("it is damaged", kBeginAnew);
  models::DenoisingState state;
  state.latents = tensor(file, *file.find(kLatents));
  state.generator = tensor(file, kGenerator, at::kByte, 1);
  state.per_step = statistics(file);
  state.scheduler = tensors(file, kHistory);
  state.cache = tensors(file, kCache);
  if (cache.on()) models::StepCache(cache).restore(state.cache);
  const nlohmann::json run = models::parse_json(metadata_text(file, kRun), file.path().string(), kBeginAnew);
  state.step = run.at("step").get<int64_t>();
  state.redone_steps = run.at("redone_steps").get<std::vector<int64_t>>();
  state.kernel = run.at("kernel").get<std::string>();
  state.warnings = run.at("warnings").get<std::vector<std::string>>();
  check_consistency(state);
  return std::make_shared<models::DenoisingState>(std::move(state));
}

/// Empty where it is no denoising checkpoint.
std::string identity_of(const models::TensorFile& file) {
  return metadata_text(file, kRun).empty() || file.find(kLatents) == nullptr ? "" : metadata_text(file, kIdentity);
}

std::string identity_of(const fs::path& path) {
  try {
    return identity_of(models::TensorFile(path));
  } catch (const Error&) {  // some other file of that name
    return {};
  }
}

}  // namespace

std::shared_ptr<const models::DenoisingState> load_checkpoint(const fs::path& path, const std::string& identity,
                                                              const models::CacheRule& cache) {
  const models::TensorFile file(path);
  const std::string found = identity_of(file);
  if (found.empty()) throw bad_input("it is no denoising checkpoint", kBeginAnew);
  if (found != identity) throw bad_input("it belongs to a run with other settings", kBeginAnew);
  try {
    return read_state(file, cache);
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {  // of JSON, of libtorch, or of memory
    throw bad_input("it is damaged", kBeginAnew);
  }
}

void save_checkpoint(const fs::path& path, const models::DenoisingState& state, const std::string& identity) {
  const std::pair<at::Tensor, at::Tensor> statistics = statistics_tensors(state.per_step);
  std::vector<models::TensorView> views = {view_of(kLatents, state.latents), view_of(kGenerator, state.generator),
                                           view_of(kBlocks, statistics.first), view_of(kMeasured, statistics.second)};
  for (const auto& [name, history] : state.scheduler) views.push_back(view_of(kHistory + name, history));
  for (const auto& [name, remembered] : state.cache) views.push_back(view_of(kCache + name, remembered));
  const nlohmann::json run = {{"step", state.step},
                              {"redone_steps", state.redone_steps},
                              {"kernel", state.kernel},
                              {"warnings", state.warnings}};
  const std::string text = dump(run);
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
  std::map<fs::path, Identities> by_folder;  // each is read once
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
