// Frames in memory and the writers that turn them into files. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "models/request/video_shape.h"

namespace sparsereel::app {

/// Frames [F, H, W, 3], RGB, 0..1, contiguous; not owned.
struct FramesView {
  const float* data = nullptr;
  int64_t frames = 0;
  int64_t height = 0;
  int64_t width = 0;

  const float* frame(int64_t index) const { return data + index * height * width * 3; }
  std::span<const float> values(int64_t index) const { return {frame(index), static_cast<size_t>(height * width * 3)}; }
  models::VideoShape shape() const { return {.frames = frames, .height = height, .width = width}; }
};

struct VideoOptions {
  double fps = 8;
  int crf = 17;  // x264's constant rate factor, 0 to 51; other encoders take the nearest quality setting they have
  std::string codec = {};   // FFmpeg encoder name; empty: the first of the container's encoders that is there
  std::string recipe = {};  // JSON, see open_video(); empty: none
};

struct WrittenVideo {
  std::string encoder = {};  // what encoded it, e.g. "libx264"
  std::string note = {};     // why it is not the preferred one; empty otherwise
  uint64_t bytes = 0;
};

/// What a path's extension asks for; no extension, or a trailing slash, means a folder of PNGs.
enum class OutputKind { encoded, gif, y4m, safetensors, png_folder };

/// Whether the path's extension is that of a video file, one that this program writes or another.
bool is_video(const std::filesystem::path& path);

/// Throws Error naming the nearest known extension and listing all of them, and for a folder with the name of a file.
OutputKind output_kind(const std::filesystem::path& path);

/// A video's file in the making. Whatever happens before finish() leaves the target as it was and nothing behind.
class VideoWriter {
 public:
  virtual ~VideoWriter() = default;
  /// The next frame, RGB [H, W, 3]: bytes, or those of floats in 0..1 where takes_floats(). Throws as open_video().
  virtual void add(std::span<const uint8_t> frame) = 0;
  /// After the last frame: the file is there. Throws as open_video().
  virtual WrittenVideo finish() = 0;
};

/// Whether a file of this name holds floats, not bytes.
bool takes_floats(const std::filesystem::path& path);

/// Begins a video at `path` by its extension:
///   .mp4 .mov     H.264, yuv420p, BT.709 limited range with all four colour tags, the index in front (faststart)
///   .mkv          likewise
///   .webm         VP9 or AV1
///   .gif          one palette for the whole clip, endless loop
///   .y4m          8-bit 4:4:4, BT.601 limited range, which is what readers take it for
///   .safetensors  float [F, H, W, 3], key "frames"
///   a folder      000000.png, 000001.png, ... 8-bit RGB; the folder must not exist yet, or be empty
/// The recipe goes into the comment tag or a file beside the video: recipe_beside(); a .safetensors has none.
/// Atomic: written under a temporary name beside the target, then renamed. Throws Error naming the file and the remedy
/// (unknown extension, folder missing, disk full, encoder not found, a build without media libraries).
std::unique_ptr<VideoWriter> open_video(const std::filesystem::path& path, const models::VideoShape& shape,
                                        const VideoOptions& options);

/// All of it at once.
WrittenVideo write_video(const std::filesystem::path& path, const FramesView& frames, const VideoOptions& options);

/// Where the recipe goes of what cannot carry it: F.gif.json, F.y4m.json, or FOLDER.json beside a folder of PNGs. Empty
/// for all others.
std::filesystem::path recipe_beside(const std::filesystem::path& video);

/// As a VideoWriter does it at recipe_beside() its path: where that or the recipe is empty, it only removes the recipe
/// of a video that is gone from there, and no other file. Throws as open_video().
void write_recipe(const std::filesystem::path& place, const std::string& recipe);

/// Throws what open_video would throw for this path and these options, before any time is spent on generating.
void check_output(const std::filesystem::path& path, const VideoOptions& options);

/// The same once the size of the frames is known: throws Error where no encoder opens for it, or the container refuses
/// what the encoder makes.
void check_encoding(const std::filesystem::path& path, int64_t width, int64_t height, const VideoOptions& options);

/// Which frames a contact sheet of `count` shows, evenly spaced.
std::vector<int64_t> frames_on_sheet(int64_t frames, int64_t count = 6);

/// Frames of that shape, 8-bit RGB, in rows of at most 6, with as many lines of the caption under them as there is room
/// for, as one PNG. The font knows Latin letters, without accents: "?" stands for what is in another script. Atomic.
void write_contact_sheet(const std::filesystem::path& path, const models::VideoShape& shape,
                         const std::vector<std::vector<uint8_t>>& frames, const std::string& caption);
/// Of `count` of all frames.
void write_contact_sheet(const std::filesystem::path& path, const FramesView& frames, const std::string& caption,
                         int64_t count = 6);

/// Throws what write_contact_sheet would throw for this path.
void check_contact_sheet(const std::filesystem::path& path);

/// Whether this program made it, of whatever version: a tag or file of somebody else's may be JSON too.
bool is_recipe(const nlohmann::json& json);

/// Returns false for a file whose ending says that it neither is a video nor has a recipe beside it.
bool may_hold_recipe(const std::filesystem::path& path);

/// The recipe JSON of a video of ours, of saved latents, or of a .json: a recipe itself, or a report that holds one.
/// Empty where there is none. Throws Error when the file cannot be read.
std::string read_recipe(const std::filesystem::path& path);

/// The encoders that a format can use.
struct FormatEncoders {
  std::string ending;                   // ".mp4"
  std::string best;                     // the preferred encoder
  std::vector<std::string> found = {};  // those that this FFmpeg has, in the order of preference
};

/// What this build writes video with, for `doctor`.
struct MediaReport {
  std::string libraries;  // "FFmpeg 5.1.9, OpenCV 4.6.0"; empty in a build without them
  std::vector<FormatEncoders> formats = {};
};
MediaReport media_report();

}  // namespace sparsereel::app
