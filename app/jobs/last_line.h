// The last line that a run prints.
#pragma once

#include <string>

#include "app/options/options.h"
#include "models/request/video_shape.h"

namespace sparsereel::app {

/// Returns "4.2 s", "16 s", "4 min 12 s" or "1 h 5 min".
std::string duration_text(double seconds);

/// Returns "clip.mp4: 4.1 s of video, 256x256". For a single frame, and for outputs without a frame rate (.safetensors,
/// PNGs), it gives the number of frames instead: "clip: 33 frames, 256x256".
std::string video_text(const RunOptions& run, const models::VideoShape& shape);

/// Returns ", 5.2 s of stereo sound at 32 kHz", with the sound's own file if it has one. Empty if there is no sound.
std::string sound_text(const WrittenSound& sound);

}  // namespace sparsereel::app
