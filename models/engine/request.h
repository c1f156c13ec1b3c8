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

/// What the run's sampler is made with.
SchedulerConfig scheduler_config(const Plan& plan, const ModelSpec& spec);

/// That of a run which takes the weights as they are: bf16 where one of `files`, which were put in place of the
/// checkpoint's, holds packed ones, since the halves beside them say nothing of the model; else the first
/// transformer's.
at::ScalarType stored_dtype(const Checkpoint& model, const ModelSpec& spec,
                            const std::map<std::string, std::string>& files);

/// The mode asked for, else sparse where that runs, else full. Throws Error where it cannot run.
attention::Mode choose_attention_mode(std::optional<attention::Mode> asked, at::Device device, at::ScalarType dtype);

}  // namespace sparsereel::models
