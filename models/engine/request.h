// What a request for a video resolves to, and what is impossible: one place for the command line and the library.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hilbert/error.h"
#include "models/engine/pipeline.h"
#include "models/video/spec.h"

namespace sparsereel::models {

/// The longest prompt and negative prompt: no text encoder reads a hundredth of it, and both travel with the video.
constexpr uint64_t kMostPromptBytes = 1 << 20;

/// Fills in what is unset, as GenerateRequest says. Throws as Pipeline::resolve().
GenerateSettings resolve_request(const GenerateRequest& request, const ModelSpec& spec);

/// How many steps it has: one for each of the sigmas where its sampler takes some, else those asked for or the model's.
int64_t steps_of(const GenerateRequest& request, const ModelSpec& spec);

/// What the run's sampler is made with.
SchedulerConfig scheduler_config(const GenerateSettings& settings, const ModelSpec& spec);

/// The options of these names; unset ones keep the policy's defaults.
struct PolicyOptions {
  std::optional<double> topk = {}, cdf = {}, error = {}, similarity = {}, pv_threshold = {};
  std::optional<attention::Dropped> dropped = {};
  std::optional<attention::Ranking> ranking = {};  // the option select
  std::optional<int64_t> cell = {};
  std::optional<int64_t> dense_steps = {}, dense_layers = {};
};

/// Options, or single values of theirs (empty: any), that cannot be given beside each other.
struct Exclusion {
  std::string_view first, first_value, second, second_value;
};
/// Those of a video's request. The command line's table has them too, and more.
std::span<const Exclusion> exclusions();

/// What asks for means (an error, a ranking by it) brings them, and what stands for dropped blocks brings its usual
/// ranking. Throws Error for values out of their range, and for options that exclude each other.
attention::Policy make_policy(const PolicyOptions& options);

/// auto, on, off
VaeTiling parse_vae_tiling(const std::string& text);

/// The mode asked for, else sparse where that runs, else full. Throws Error where it cannot run.
attention::Mode choose_attention_mode(std::optional<attention::Mode> asked, at::Device device, at::ScalarType dtype);

/// Why options have no effect beside a choice, to follow "topk 0.5 has no effect"; empty where they have one. `given`:
/// how the message names the choice, "--attention full" on the command line.
///
/// For the options of the block selection, with profile, dense steps and dense layers.
std::string why_idle(attention::Mode mode, const std::string& given);
/// For --cell, the size of the means.
std::string why_idle(const attention::Policy& policy, const std::string& given);
/// For the options of guidance, the negative prompt among them.
std::string why_idle_without_guidance(double guidance_scale, const std::string& given);
/// For a second guidance scale.
std::string why_idle_second_scale(const ModelSpec& spec);
/// For flow_shift and sigmas.
std::string why_idle_flow_shift(const GenerateRequest& request, const ModelSpec& spec);
/// For a cache.
std::string why_idle_cache(const GenerateRequest& request, const ModelSpec& spec);
/// For offloading.
std::string why_idle_offload(at::Device device);

}  // namespace sparsereel::models
