// The writers behind open_video(), one per file, and their shared code. Internal to app/media.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/media/video.h"

namespace sparsereel::app {

/// Returns values of 0..1 as bytes, rounded to nearest. Values outside are clamped; NaN becomes 0.
std::vector<uint8_t> rgb8(std::span<const float> values);

/// Frames per second as a fraction in lowest terms, exact to a thousandth. 23.976, 29.97 and 59.94 become N * 1000 /
/// 1001.
struct FrameRate {
  int numerator = 8;
  int denominator = 1;
};
FrameRate frame_rate(double fps);

std::unique_ptr<VideoWriter> open_encoded(const std::filesystem::path& path, const models::VideoShape& shape,
                                          const VideoOptions& options);
std::unique_ptr<VideoWriter> open_gif(const std::filesystem::path& path, const models::VideoShape& shape,
                                      const VideoOptions& options);
std::unique_ptr<VideoWriter> open_y4m(const std::filesystem::path& path, const models::VideoShape& shape,
                                      const VideoOptions& options);
std::unique_ptr<VideoWriter> open_png_folder(const std::filesystem::path& path, const models::VideoShape& shape);

/// Throws Error, naming this file, if this build has no media libraries and there is no ffmpeg program.
void require_media(const std::filesystem::path& path);

/// Throws Error if `options` name an encoder that this FFmpeg lacks, or that cannot make yuv420p video for the path's
/// container. Also throws if FFmpeg has no encoder for the file at all.
void check_encoder(const std::filesystem::path& path, const VideoOptions& options);

/// Throws Error unless an encoder opens for frames of this size and the container can hold its stream.
void check_frame_size(const std::filesystem::path& path, int64_t width, int64_t height, const VideoOptions& options);

/// Returns the encoder of the sound of a video file. Throws Error if FFmpeg has no encoder that takes this sound.
std::string choose_sound_encoder(const std::filesystem::path& path, const SoundFormat& sound);

/// Throws Error unless a folder of PNGs can be written there.
void check_png_folder(const std::filesystem::path& path);

/// Returns the encoders of every format that FFmpeg writes.
std::vector<FormatEncoders> format_encoders();

/// Returns the comment tag of any container that FFmpeg reads.
std::string read_comment(const std::filesystem::path& path);

}  // namespace sparsereel::app
