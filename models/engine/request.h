// What a request for a video resolves to, and what is impossible: one place for the command line and the library.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hilbert/error.h"
#include "models/engine/pipeline.h"
#include "models/video/spec.h"

namespace sparsereel::models {

/// The longest prompt and negative prompt: no text encoder reads a hundredth of it, and both travel with the video.
constexpr uint64_t kMostPromptBytes = 1 << 20;

/// What the model alone decides of it: all but Plan's members of the pipeline and the attention's mode. Throws as
/// Pipeline::resolve().
Plan resolve_request(const Request& request, const ModelSpec& spec);

/// Which images there are.
struct GivenImages {
  bool first = false, last = false;
};

/// Throws Error (field image or last_image) where the model cannot use them in a video of so many latent frames, or
/// lacks one.
void check_images(const GivenImages& images, int64_t latent_frames, const ModelSpec& spec);

/// How many steps it has: one for each of the sigmas where its sampler takes some, else those asked for or the model's.
int64_t steps_of(const Request& request, const ModelSpec& spec);

/// What the run's sampler is made with.
SchedulerConfig scheduler_config(const Plan& plan, const ModelSpec& spec);

/// That of a run which takes the weights as they are: bf16 where one of `files`, which were put in place of the
/// checkpoint's, holds packed ones, since the halves beside them say nothing of the model; else the first
/// transformer's.
at::ScalarType stored_dtype(const Checkpoint& model, const ModelSpec& spec,
                            const std::map<std::string, std::string>& files);

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
/// For what samplers of flow matching take.
std::string why_no_flow(const Request& request, const ModelSpec& spec);
/// For a cache.
std::string why_idle_cache(const Request& request, const ModelSpec& spec);
/// For the bits of attention's arithmetic.
std::string why_idle_arithmetic(at::Device device);
/// For offloading.
std::string why_idle_offload(at::Device device);

}  // namespace sparsereel::models
