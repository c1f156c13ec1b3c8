// The numbers of frames that a model can make: exact numbers, the nearest ones, and the number for a duration. No
// torch.
#pragma once

#include <cstdint>
#include <string>

#include "models/request/spec.h"

namespace sparsereel::models {

/// Returns true if a request for this many frames decodes to exactly this many.
bool makes_exactly(const ModelSpec& spec, int64_t frames);

/// Returns true if a request may ask for this many frames. Besides the numbers for which makes_exactly() is true, it
/// may ask for numbers for which the reference implementation makes more frames than the request asks for;
/// frame_count_warning() reports these.
bool takes_frames(const ModelSpec& spec, int64_t frames);

/// Two numbers for which makes_exactly() holds.
struct NearestFrames {
  int64_t below = 0, above = 0;
};

/// "Exact" numbers of frames are those for which makes_exactly() is true. Returns the largest exact number up to
/// `frames` and the smallest one above it. If `frames` is below `least`, returns the two smallest exact numbers from
/// `least` on.
NearestFrames nearest_frames(const ModelSpec& spec, int64_t frames, int64_t least = 1);

/// Returns the exact number of frames nearest to a duration in seconds; of two equally near numbers, the smaller. `fps`
/// is in frames per second. `least` is the smallest number allowed.
int64_t frames_of_seconds(const ModelSpec& spec, double seconds, double fps, int64_t least = 1);

/// Describes what takes_frames() accepts, for an error: "it must be 1 more than a multiple of 4".
std::string frames_rule(const ModelSpec& spec);

}  // namespace sparsereel::models
