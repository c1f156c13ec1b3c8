// Chooses the encoder of a video file, and its settings. Internal to app/media.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/media/writers.h"

namespace sparsereel::app {

/// A file extension, FFmpeg's name of the format, and its encoders, best first. FFmpeg also lists encoders of hardware
/// (nvenc, vaapi, omx) on machines without that hardware. They are therefore not in this list, and are used only if the
/// user names them.
struct Container {
  std::string_view extension;
  const char* format;
  std::array<const char*, 3> encoders;
  const char* options;                                          // the value of FFmpeg's option movflags; null for none
  std::array<const char*, 2> sound_encoders = {"aac", "alac"};  // ALAC takes sampling rates that AAC does not
};

/// Returns the container for the path's extension.
const Container& container_of(const std::filesystem::path& path);

struct Stream {
  const Container& container;
  int width, height;
  const VideoOptions& options;
};

/// The settings of an encoder that come nearest to the quality of an x264 crf. Unset values stay FFmpeg's defaults.
struct Quality {
  std::optional<int> crf = {};
  std::optional<double> quantizer = {};
  std::optional<int64_t> bit_rate = {};  // bits per second
};
Quality quality_of(std::string_view encoder, const Stream& stream);

/// Settings of an encoder of sound. The sound is never resampled: an encoder that does not support its sampling rate is
/// not used.
struct SoundQuality {
  std::optional<int64_t> bit_rate = {};  // bits per second
  std::optional<int> quality = {};       // Vorbis's own scale, -1 to 10
  bool is_experimental = false;          // FFmpeg opens it only on request
};
SoundQuality sound_quality_of(std::string_view encoder, const SoundFormat& sound);

/// The number of threads of encoders that would otherwise start one for each CPU. It is fixed, because the encoded
/// bytes depend on it.
inline constexpr int kEncoderThreads = 4;

/// An option of the encoder, as FFmpeg names it, without which equal frames could give different files. `name` is null
/// if the encoder needs none.
struct EncoderOption {
  const char *name = nullptr, *value = nullptr;
};
EncoderOption repeatable_option(std::string_view encoder);

struct ChosenEncoder {
  std::string name;
  std::string note;  // see WrittenVideo::note
};

/// Chooses the encoder that --codec names, or else the container's best one that works. Throws Error if there is none.
ChosenEncoder choose_encoder(const std::filesystem::path& path, const Stream& stream);

// The functions below ask FFmpeg about its encoders: in with_libraries/ the libraries, in without_libraries/ the
// program.

/// Returns true if FFmpeg has a video encoder of this name.
bool has_encoder(const std::string& name);

/// Returns false if the encoder takes no yuv420p frames, or if the container cannot hold its codec.
bool may_make_yuv420p(const std::string& name, const Container& container);

/// Returns true if FFmpeg has an encoder of sound of this name.
bool has_sound_encoder(const std::string& name);

/// Tries an encoder of sound. Returns the reason why it fails; empty if it works.
std::string sound_encoder_failure(const std::string& name, const SoundFormat& sound);

/// Tries an encoder for frames of this size in this container. Returns the reason why it fails; empty if it works.
std::string encoder_failure(const std::string& name, const Stream& stream);

}  // namespace sparsereel::app
