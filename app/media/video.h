// Frames in memory and the writers that turn them into files. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sparsereel::app {

/// Frames [F, H, W, 3], RGB, 0..1, contiguous; not owned.
struct FramesView {
  const float* data = nullptr;
  int64_t frames = 0;
  int64_t height = 0;
  int64_t width = 0;

  const float* frame(int64_t index) const { return data + index * height * width * 3; }
};

struct VideoOptions {
  double fps = 8;
  int crf = 17;               // x264's constant rate factor; other encoders take the nearest quality setting they have
  std::string codec;          // FFmpeg encoder name; empty: libx264, else the next H.264 encoder, else MPEG-4
  std::string recipe;         // JSON for the comment tag (MP4) or F.gif.json (GIF); empty: none
};

struct WrittenVideo {
  std::string encoder;        // what encoded it, e.g. "libx264"
  std::string note;           // why it is not the preferred one; empty otherwise
  uint64_t bytes = 0;
};

/// Writes frames to `path` by its extension: .mp4, .gif, .y4m, .safetensors (float [F, H, W, 3], key "frames"), or a folder of PNGs where
/// there is none. Atomic: temporary file beside it, then rename. Throws Error naming the file and the remedy (unknown extension, folder missing,
/// disk full, encoder not found, a build without media libraries).
WrittenVideo write_video(const std::filesystem::path& path, const FramesView& frames, const VideoOptions& options);

/// Throws what write_video would throw for this path and these options, before any time is spent on generating.
void check_output(const std::filesystem::path& path, const VideoOptions& options);

/// `count` evenly spaced frames in rows of at most 6, with a caption line under them, as one PNG.
void write_contact_sheet(const std::filesystem::path& path, const FramesView& frames, const std::string& caption, int64_t count = 6);

/// The recipe JSON that an MP4 or GIF of ours carries; empty where there is none. Throws Error when the file cannot be read.
std::string read_recipe(const std::filesystem::path& path);

}  // namespace sparsereel::app
