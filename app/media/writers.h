// The writers behind write_video(), one a file, and what they share. Internal to app/media.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/media/video.h"

namespace sparsereel::app {

/// One frame as 8-bit RGB [H, W, 3], rounded to nearest; values outside 0..1 are clamped and NaN is black.
std::vector<uint8_t> rgb8(const FramesView& frames, int64_t index);

/// Frames per second as a fraction in lowest terms, exact to a thousandth; 23.976, 29.97 and 59.94 become N * 1000 /
/// 1001.
struct FrameRate {
  int numerator = 8;
  int denominator = 1;
};
FrameRate frame_rate(double fps);

WrittenVideo write_encoded(const std::filesystem::path& path, const FramesView& frames, const VideoOptions& options);
WrittenVideo write_gif(const std::filesystem::path& path, const FramesView& frames, const VideoOptions& options);
WrittenVideo write_y4m(const std::filesystem::path& path, const FramesView& frames, const VideoOptions& options);
WrittenVideo write_png_folder(const std::filesystem::path& path, const FramesView& frames);

/// Throws Error in a build without media libraries.
void require_media_libraries(const std::filesystem::path& path);

/// Throws Error when `options` name an encoder that this FFmpeg lacks or that cannot make yuv420p for such a file, or
/// when it has no encoder for one at all.
void check_encoder(const std::filesystem::path& path, const VideoOptions& options);

/// Throws Error unless an encoder opens for frames of this size and the file can hold what it makes.
void check_frame_size(const std::filesystem::path& path, int64_t width, int64_t height, const VideoOptions& options);

/// Throws Error unless a folder of PNGs can be put there.
void check_png_folder(const std::filesystem::path& path);

/// Encoders that an MP4 can use, the preferred one first.
std::vector<std::string> mp4_encoder_names();

/// The comment tag of any container that FFmpeg reads.
std::string read_comment(const std::filesystem::path& path);

}  // namespace sparsereel::app
