// Settles every value of a request for one model, and refuses what the model cannot make. This header needs no torch.
#pragma once

#include <cstdint>

#include "models/request/plan.h"
#include "models/request/request.h"
#include "models/request/spec.h"

namespace sparsereel::models {

/// Returns what the model alone decides: every member of Plan but those of the pipeline and the attention's mode.
/// Throws Error naming the field that the model cannot take.
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

}  // namespace sparsereel::models
