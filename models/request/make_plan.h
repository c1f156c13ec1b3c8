// Settles every value of a request for one model, and refuses what the model cannot make. No torch is needed.
#pragma once

#include <cstdint>

#include "models/request/plan.h"
#include "models/request/request.h"
#include "models/request/spec.h"

namespace sparsereel::models {

/// Returns a plan with every member that depends on the model alone: all except the members that decide the pipeline
/// and the attention mode. Throws Error naming the field that the model does not accept.
Plan resolve_request(const Request& request, const ModelSpec& spec);

struct GivenImages {
  bool first = false, last = false;
};

/// Throws Error (field image or last_image) if the model cannot use an image in a video of `latent_frames`, or needs an
/// image that is missing.
void check_images(const GivenImages& images, int64_t latent_frames, const ModelSpec& spec);

SchedulerConfig scheduler_config(const Plan& plan, const ModelSpec& spec);

}  // namespace sparsereel::models
