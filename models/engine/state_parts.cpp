// Stores the statistics of attention as two tensors, and the tensors of sampler and step cache under names with a
// prefix.
#include "models/engine/state_parts.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "hilbert/error.h"
#include "models/transformer/step_cache.h"

namespace sparsereel::models {
namespace {

constexpr const char* kGenerator = "generator";
constexpr const char* kHistory = "scheduler.";  // prefix of the sampler's tensors
constexpr const char* kCache = "cache.";        // prefix of the step cache's tensors
constexpr const char* kBlocks = "attention.blocks";
constexpr const char* kMeasured = "attention.measured";

Error damaged(const std::string& problem) {
  return bad_input(problem, "remove the file: the run then begins at its first step");
}

at::Tensor tensor(const StateParts& parts, const char* name, at::ScalarType dtype, int64_t rank) {
  const auto found = parts.tensors.find(name);
  if (found != parts.tensors.end() && found->second.scalar_type() == dtype && found->second.dim() == rank)
    return found->second;
  throw damaged(std::string("the tensor ") + name + " is missing, or has another dtype or number of dimensions");
}

/// Returns the integers of all statistics, int64 [steps, layers, counts], and their measurements, fp64 [steps, layers,
/// measures].
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

std::vector<std::vector<attention::Statistics>> statistics(const StateParts& parts) {
  const at::Tensor blocks = tensor(parts, kBlocks, at::kLong, 3), measured = tensor(parts, kMeasured, at::kDouble, 3);
  // A step without layers takes no bytes in the file, so a damaged file could claim any number of such steps.
  const bool has_layers = blocks.size(0) == 0 || blocks.size(1) > 0;
  if (blocks.size(2) != std::ssize(attention::kStatisticsCounts) ||
      measured.size(2) != std::ssize(attention::kStatisticsMeasures) || blocks.size(0) != measured.size(0) ||
      blocks.size(1) != measured.size(1) || !has_layers)
    throw damaged("the statistics of attention have an impossible shape");
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

/// Returns the tensors whose names start with `beginning`, by the rest of their names.
std::map<std::string, at::Tensor> tensors(const StateParts& parts, const std::string& beginning) {
  std::map<std::string, at::Tensor> found;
  for (const auto& [name, tensor] : parts.tensors)
    if (name.starts_with(beginning)) found[name.substr(beginning.size())] = tensor;
  return found;
}

/// Throws Error if the parts contradict each other, and c10::Error if libtorch refuses the generator's state.
void check_consistency(const DenoisingState& state) {
  const auto is_done = [&](int64_t step) { return step >= 0 && step < state.step; };
  if (std::ssize(state.per_step) != state.step || !std::ranges::all_of(state.redone_steps, is_done))
    throw damaged("its numbers of steps contradict each other");
  at::make_generator<at::CPUGeneratorImpl>().set_state(state.generator);
}

}  // namespace

StateParts parts_of(const DenoisingState& state) {
  auto [blocks, measured] = statistics_tensors(state.per_step);
  StateParts parts{.tensors = {{kStateLatents, state.latents},
                               {kGenerator, state.generator},
                               {kBlocks, std::move(blocks)},
                               {kMeasured, std::move(measured)}},
                   .run = {{"step", state.step},
                           {"redone_steps", state.redone_steps},
                           {"kernel", state.kernel},
                           {"warnings", state.warnings}}};
  if (state.sound.defined()) parts.tensors[kStateSound] = state.sound;
  for (const auto& [name, history] : state.scheduler) parts.tensors[kHistory + name] = history;
  for (const auto& [name, remembered] : state.cache) parts.tensors[kCache + name] = remembered;
  return parts;
}

DenoisingState state_of(const StateParts& parts, const CacheRule& cache) {
  DenoisingState state;
  state.latents = parts.tensors.at(kStateLatents);
  if (const auto sound = parts.tensors.find(kStateSound); sound != parts.tensors.end()) state.sound = sound->second;
  state.generator = tensor(parts, kGenerator, at::kByte, 1);
  state.per_step = statistics(parts);
  state.scheduler = tensors(parts, kHistory);
  state.cache = tensors(parts, kCache);
  if (cache.on()) StepCache(cache).restore(state.cache);
  state.step = parts.run.at("step").get<int64_t>();
  state.redone_steps = parts.run.at("redone_steps").get<std::vector<int64_t>>();
  state.kernel = parts.run.at("kernel").get<std::string>();
  state.warnings = parts.run.at("warnings").get<std::vector<std::string>>();
  check_consistency(state);
  return state;
}

}  // namespace sparsereel::models
