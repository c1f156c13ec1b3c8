// Converts numbers of frames to latent frames and back.
#include "models/request/frame_count.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sparsereel::models {
namespace {

int64_t latent_frames(const ModelSpec& spec, int64_t frames) {
  return latent_size(spec, frames, 0, 0).frames;
}

/// Returns the largest number of frames that is accepted. It leaves room to add a few strides and clips without
/// overflow.
int64_t last_number(const ModelSpec& spec) {
  return std::numeric_limits<int64_t>::max() - 4 * (spec.stride[0] + spec.clips.frames);
}

}  // namespace

bool makes_exactly(const ModelSpec& spec, int64_t frames) {
  return frames >= 1 && frames <= last_number(spec) && decoded_frames(spec, latent_frames(spec, frames)) == frames;
}

bool takes_frames(const ModelSpec& spec, int64_t frames) {
  const bool by_stride = !spec.clips.any() && frames >= 1 && (frames - 1) % spec.stride[0] == 0;
  return by_stride || makes_exactly(spec, frames);
}

NearestFrames nearest_frames(const ModelSpec& spec, int64_t frames, int64_t least) {
  const int64_t wanted = std::clamp(frames, least, last_number(spec) - 2 * (spec.stride[0] + spec.clips.frames));
  NearestFrames nearest = {.below = wanted};
  while (nearest.below > least && !makes_exactly(spec, nearest.below)) --nearest.below;
  while (!makes_exactly(spec, nearest.below)) ++nearest.below;
  nearest.above = std::max(nearest.below, wanted) + 1;
  while (!makes_exactly(spec, nearest.above)) ++nearest.above;
  return nearest;
}

int64_t frames_of_seconds(const ModelSpec& spec, double seconds, double fps, int64_t least) {
  constexpr double kMost = 1e15;  // a double still distinguishes whole numbers near this one
  const double wanted = std::clamp(seconds * fps, 1.0, kMost);
  const auto [below, above] = nearest_frames(spec, static_cast<int64_t>(wanted), least);
  return wanted - static_cast<double>(below) <= static_cast<double>(above) - wanted ? below : above;
}

std::string frames_rule(const ModelSpec& spec) {
  if (const ClipSpec& clips = spec.clips; clips.any())
    return "it must be " + std::to_string(clips.more_frames) + " more than a multiple of " +
           std::to_string(clips.frames);
  const int64_t step = spec.decodes_pairs ? 2 * spec.stride[0] : spec.stride[0];
  const std::string multiple = "a multiple of " + std::to_string(step);
  return "it must be 1 more than " + multiple + (spec.decodes_pairs ? ", or " + multiple : "");
}

}  // namespace sparsereel::models
