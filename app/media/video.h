// Frames in memory, and the writers that turn them into video files. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "app/media/sound.h"
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
  int crf = 17;  // x264's constant rate factor, 0 to 51; other encoders use the nearest quality that they have
  std::string codec = {};   // FFmpeg encoder name; empty for the container's first available one
  std::string recipe = {};  // JSON, see open_video(); empty if none
  SoundView sound = {};     // the samples must live as long as the writer
};

struct WrittenVideo {
  std::string encoder = {};  // FFmpeg's name, such as "libx264", or "y4m"
  std::string note = {};     // why the preferred encoder was not used; empty if it was
  uint64_t bytes = 0;
  WrittenSound sound = {};
};

/// The kind of output that a path's extension asks for. No extension, or a trailing slash, means a folder of PNGs.
enum class OutputKind { encoded, gif, y4m, safetensors, png_folder };

/// Returns true if the path has the extension of a video file, whether or not this program writes it.
bool is_video(const std::filesystem::path& path);

/// Returns the kind. Throws Error for an unknown extension. The error names the nearest extension and lists all known
/// ones. Also throws Error if the path is a folder whose name has the extension of a video file.
OutputKind output_kind(const std::filesystem::path& path);

/// Writes a video file. Until finish() succeeds, the target stays as it was, and a failure leaves no file behind.
class VideoWriter {
 public:
  virtual ~VideoWriter() = default;
  /// Adds a frame, RGB [H, W, 3], as bytes, or as the bytes of floats in 0..1 if takes_floats(). Throws like
  /// open_video().
  virtual void add(std::span<const uint8_t> frame) = 0;
  /// Writes what is left after the last frame, so that place() only has to rename. Throws like open_video().
  virtual WrittenVideo complete() = 0;
  /// Puts the completed file in place. Throws like open_video().
  virtual void place() = 0;
  WrittenVideo finish() {
    WrittenVideo written = complete();
    place();
    return written;
  }
};

/// Returns true if a file of this name holds floats, not bytes.
bool takes_floats(const std::filesystem::path& path);

/// Begins a video at `path`, by its extension:
///   .mp4 .mov     H.264 (else MPEG-4), yuv420p, BT.709 limited range with its four color tags, index in front
///   .mkv          the same streams
///   .webm         VP9 (else AV1 or VP8), with the same colors
///   .gif          one palette for the whole clip, endless loop
///   .y4m          8-bit 4:4:4, BT.601 limited range, which readers assume
///   .safetensors  float [F, H, W, 3], key "frames"
///   a folder      000000.png, 000001.png, ... 8-bit RGB; the folder must not exist yet, or be empty
/// The recipe goes into the comment tag or into the file recipe_beside(); a .safetensors has none. The sound goes into
/// the video as AAC or ALAC, in a .webm as Vorbis, or into the file sound_beside(). Sound and video begin together and
/// keep their own lengths. The write is atomic: temporary files beside the targets are renamed at the end, the video
/// last. If a rename fails, the older files beside the video come back. Throws Error naming the file and the remedy
/// (unknown extension, folder missing, disk full, encoder not found, no ffmpeg program in a build without media
/// libraries).
std::unique_ptr<VideoWriter> open_video(const std::filesystem::path& path, const models::VideoShape& shape,
                                        const VideoOptions& options);

/// Writes all frames at once.
WrittenVideo write_video(const std::filesystem::path& path, const FramesView& frames, const VideoOptions& options);

/// Returns the recipe's file for outputs that cannot carry a recipe: F.gif.json, F.y4m.json, or FOLDER.json beside a
/// folder of PNGs. Empty for all others.
std::filesystem::path recipe_beside(const std::filesystem::path& video);

/// Returns the file for the sound of outputs that cannot hold sound: F.gif.wav, F.y4m.wav, F.safetensors.wav, or
/// FOLDER.wav beside a folder of PNGs. Empty for all others.
std::filesystem::path sound_beside(const std::filesystem::path& video);

/// Writes the recipe to `place`, the recipe_beside() of a video. Does nothing if `place` is empty. If `recipe` is
/// empty, removes an older video's recipe at `place`, but no other file. Throws like open_video().
void write_recipe(const std::filesystem::path& place, const std::string& recipe);

/// Throws the errors that open_video() would throw for this path and these options. Call it before any time is spent on
/// generating.
void check_output(const std::filesystem::path& path, const VideoOptions& options);

/// Runs the checks that need the size of the frames and the format of the sound. Throws Error if no encoder opens for
/// that size or sound, or if the container refuses what the encoder makes. Also throws if sound_beside() would replace
/// a file that is no sound of this program.
void check_encoding(const std::filesystem::path& path, int64_t width, int64_t height, const VideoOptions& options,
                    const SoundFormat& sound = {});

/// Returns the indices, from 0, of the `count` evenly spaced frames that a contact sheet shows, or of all frames of a
/// video with fewer.
std::vector<int64_t> frames_on_sheet(int64_t frames, int64_t count = 6);

/// Writes frames of that shape (8-bit RGB) as one PNG, in rows of at most 6, with the caption below as far as it fits.
/// The font knows Latin letters without accents; "?" stands for other scripts. The write is atomic.
void write_contact_sheet(const std::filesystem::path& path, const models::VideoShape& shape,
                         const std::vector<std::vector<uint8_t>>& frames, const std::string& caption);
/// Writes a contact sheet of `count` of the frames.
void write_contact_sheet(const std::filesystem::path& path, const FramesView& frames, const std::string& caption,
                         int64_t count = 6);

/// Throws the errors that write_contact_sheet() would throw for this path.
void check_contact_sheet(const std::filesystem::path& path);

/// Returns true if the JSON is a recipe of any version of this program. Comment tags and files of other programs may
/// hold other JSON.
bool is_recipe(const nlohmann::json& json);

/// Returns true if a file with this extension can be a recipe or a report, or a video with a recipe in it or beside it.
/// Saved latents (.safetensors) do not count, although they hold a recipe.
bool may_hold_recipe(const std::filesystem::path& path);

/// Returns the recipe JSON of a video of this program, of saved latents, or of a .json file that is a recipe or a
/// report with a recipe. Empty if there is no recipe. Throws Error if the file cannot be read.
std::string read_recipe(const std::filesystem::path& path);

/// The encoders that a format can use.
struct FormatEncoders {
  std::string ending;                   // ".mp4"
  std::string best;                     // the preferred encoder
  std::vector<std::string> found = {};  // the encoders that this FFmpeg has, best first
};

/// The libraries or the program with which this build reads and writes media files, and their encoders, for `doctor`.
struct MediaReport {
  std::string libraries;  // "FFmpeg 5.1.9, OpenCV 4.6.0", or the ffmpeg program; empty without either
  std::vector<FormatEncoders> formats = {};
};
MediaReport media_report();

}  // namespace sparsereel::app
