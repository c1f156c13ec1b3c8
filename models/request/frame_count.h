// How many frames a model makes: the numbers that it keeps exactly, the nearest of them, and that of a duration. No
// torch.
#pragma once

#include <cstdint>
#include <string>

#include "models/request/spec.h"

namespace sparsereel::models {

/// Returns true if a video of so many frames has exactly so many once it is decoded.
bool makes_exactly(const ModelSpec& spec, int64_t frames);

/// Whether a request may name so many frames. Beside those of makes_exactly() these are the numbers that the reference
/// takes and makes longer: frame_count_warning() tells of it.
bool takes_frames(const ModelSpec& spec, int64_t frames);

/// Two numbers for which makes_exactly() holds.
struct NearestFrames {
  int64_t below = 0, above = 0;
};

/// The largest number up to `frames` and the smallest above it; the two smallest from `least` on where `frames` is
/// below them.
NearestFrames nearest_frames(const ModelSpec& spec, int64_t frames, int64_t least = 1);

/// The number that makes_exactly() and whose video is nearest to so many seconds; the shorter one of two that are
/// equally near. `fps`: frames a second. `least`: the video has no fewer frames.
int64_t frames_of_seconds(const ModelSpec& spec, double seconds, double fps, int64_t least = 1);

/// "it must be 1 more than a multiple of 4": what takes_frames() wants, for an error.
std::string frames_rule(const ModelSpec& spec);

}  // namespace sparsereel::models
