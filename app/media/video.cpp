// Chooses the writer by the path's extension, and checks paths and options before any work is done.
#include "app/media/video.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "app/media/kind_beside.h"
#include "app/media/writers.h"
#include "app/options/nearest.h"
#include "hilbert/error.h"
#include "hilbert/lower_case.h"
#include "models/files/atomic_file.h"
#include "models/files/json_text.h"
#include "models/files/regular_file.h"
#include "models/store/checkpoint/safetensors.h"
#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKnown =
    ".mp4, .gif, .webm, .mov, .mkv, .y4m, .safetensors, or no extension for a folder of PNGs";

std::string extension(const fs::path& path) {
  return lower_case(path.extension().string());
}

void check_writable(const fs::path& path) {
  const models::AtomicFile probe(path);
}

void check_timing(const VideoOptions& options, OutputKind kind) {
  // A GIF gives the time of each frame in hundredths of a second, and players slow down frames of less than 2
  // hundredths.
  const double most = kind == OutputKind::gif ? 50 : 240;
  if (std::isfinite(options.fps) && options.fps >= 0.1 && options.fps <= most) return;
  throw bad_option("fps",
                   nlohmann::json(options.fps).dump() + " is outside 0.1 to " + std::to_string(static_cast<int>(most)) +
                       (kind == OutputKind::gif ? " (GIF)" : ""),
                   "give a rate in that range");
}

class FloatWriter final : public VideoWriter {
 public:
  FloatWriter(const fs::path& path, const models::VideoShape& shape)
      : file_(path, "frames", models::Dtype::f32, {shape.frames, shape.height, shape.width, 3}) {}

  void add(std::span<const uint8_t> frame) override { file_.append(std::as_bytes(frame)); }
  WrittenVideo complete() override { return {.encoder = "safetensors", .note = {}, .bytes = file_.complete()}; }
  void place() override { file_.commit(); }

 private:
  models::SafetensorsWriter file_;
};

// Two prompts of the greatest length fit, even if every character is escaped.
constexpr uint64_t kMostRecipeBytes = 16 << 20;

bool holds_recipe(const fs::path& place) {
  std::error_code ignored;
  if (!fs::is_regular_file(place, ignored) || fs::file_size(place, ignored) > kMostRecipeBytes) return false;
  return is_recipe(models::parse_json_if_valid(models::read_regular_file(place, kMostRecipeBytes, "")));
}

constexpr KindBeside kRecipeBeside = {.content = "recipe", .without = "--no-metadata", .is_own = holds_recipe};

/// The paths of the recipe and the sound beside a video that cannot hold them.
struct PathsBeside {
  fs::path recipe, sound;
};

/// Writes a whole file under a temporary name, so that placing it needs no room on the disk.
void write_whole(std::optional<models::AtomicFile>& file, const fs::path& path, const auto& bytes) {
  file.emplace(path);
  file->write(bytes.data(), bytes.size());
  file->complete();
}

/// Writes a video, and its recipe and sound in files beside it. All of them appear, or none.
class WriterWithFilesBeside final : public VideoWriter {
 public:
  WriterWithFilesBeside(std::unique_ptr<VideoWriter> video, PathsBeside beside, const VideoOptions& options)
      : video_(std::move(video)), beside_(std::move(beside)), recipe_(options.recipe) {
    if (!options.sound.any()) return;
    // Written before the frames, so that a full disk stops the run early.
    write_whole(sound_file_, beside_.sound, wav_of(options.sound, beside_.sound));
    written_sound_ = written_sound(options.sound, "pcm_s24le");
    written_sound_.file = beside_.sound;
  }

  void add(std::span<const uint8_t> frame) override { video_->add(frame); }
  WrittenVideo complete() override {
    WrittenVideo written = video_->complete();
    if (!beside_.recipe.empty() && !recipe_.empty()) write_whole(recipe_file_, beside_.recipe, recipe_);
    written.sound = written_sound_;
    return written;
  }
  void place() override {
    try {
      if (sound_file_) kSoundBeside.place(*sound_file_);
      if (recipe_file_) kRecipeBeside.place(*recipe_file_);
      video_->place();  // last, so that a video never lacks the files beside it, even if the program is killed
    } catch (...) {
      if (sound_file_) sound_file_->take_back();
      if (recipe_file_) recipe_file_->take_back();
      throw;
    }
    if (!sound_file_) kSoundBeside.remove(beside_.sound);
    if (!recipe_file_) kRecipeBeside.remove(beside_.recipe);
  }

 private:
  std::unique_ptr<VideoWriter> video_;
  PathsBeside beside_;
  std::string recipe_;
  std::optional<models::AtomicFile> sound_file_, recipe_file_;
  WrittenSound written_sound_;
};

/// Returns true for a folder of PNGs, even if it does not exist yet.
bool is_folder(const fs::path& video) {
  std::error_code ignored;
  return !video.has_filename() || fs::is_directory(video, ignored) ||
         (extension(video).empty() && !fs::is_regular_file(video, ignored));
}

fs::path beside(const fs::path& video, const char* ending) {
  return (video.has_filename() ? video : video.parent_path()).string() + ending;
}

std::string text_in(const fs::path& path) {
  return models::read_regular_file(path, kMostRecipeBytes, "name a video, a recipe or a report of this program");
}

/// Returns the recipe in a report, or the whole text if the file is no report. Throws Error for a report of several
/// videos.
std::string recipe_in(const fs::path& path) {
  const std::string text = text_in(path);
  const nlohmann::json json = models::parse_json_if_valid(text);
  if (!json.is_object()) return text;
  if (const auto recipe = json.find("recipe"); recipe != json.end()) return recipe->dump();
  if (const auto videos = json.find("videos"); videos != json.end() && videos->is_array() && !videos->empty()) {
    const nlohmann::json::json_pointer name("/output/path");
    const nlohmann::json& first = videos->front();
    if (first.contains(name) && first.at(name).is_string())
      throw bad_input(path.string() + " is the report of several videos",
                      "name one of them, such as " + first.at(name).get<std::string>());
  }
  return text;
}

}  // namespace

fs::path recipe_beside(const fs::path& video) {
  const std::string kind = extension(video);
  return is_folder(video) || kind == ".gif" || kind == ".y4m" ? beside(video, ".json") : fs::path();
}

fs::path sound_beside(const fs::path& video) {
  const std::string kind = extension(video);
  const bool is_silent = is_folder(video) || kind == ".gif" || kind == ".y4m" || kind == ".safetensors";
  return is_silent ? beside(video, ".wav") : fs::path();
}

void write_recipe(const fs::path& place, const std::string& recipe) {
  if (place.empty()) return;
  if (recipe.empty()) return kRecipeBeside.remove(place);
  std::optional<models::AtomicFile> file;
  write_whole(file, place, recipe);
  kRecipeBeside.place(*file);
}

bool is_video(const fs::path& path) {
  static const std::set<std::string> extensions = {".mp4", ".gif", ".y4m", ".webm", ".mov", ".mkv", ".avi"};
  return extensions.contains(extension(path));
}

OutputKind output_kind(const fs::path& path) {
  if (path.empty()) throw bad_option("output", "is empty", std::string("name a file: ") + kKnown);
  if (path == "-")
    throw bad_option("output", "-: no video is written to standard output", std::string("name a file: ") + kKnown);
  std::error_code ignored;  // an error of the checks for a folder, such as a name that is too long
  const std::string text = extension(path);
  const fs::path named = "video" + path.filename().string();
  if (text.empty() && (is_video(named) || extension(named) == ".safetensors"))
    throw bad_option("output", path.string() + " has no name before its ending", "give it a name, such as video.mp4");
  if (path.has_filename() && is_video(path) && fs::is_directory(path, ignored))
    throw bad_input(path.string() + " is a folder",
                    "choose another name, or put PNGs into it with -o " + path.string() + "/");
  if (!path.has_filename() || fs::is_directory(path, ignored)) return OutputKind::png_folder;
  if (text == ".mp4" || text == ".mov" || text == ".mkv" || text == ".webm") return OutputKind::encoded;
  if (text == ".gif") return OutputKind::gif;
  if (text == ".y4m") return OutputKind::y4m;
  if (text == ".safetensors") return OutputKind::safetensors;
  if (text.empty()) return OutputKind::png_folder;
  throw bad_file(path, "the extension " + text + " is unknown",
                 did_you_mean(text, {".mp4", ".gif", ".webm", ".mov", ".mkv", ".y4m", ".safetensors"},
                              std::string("use ") + kKnown));
}

void check_output(const fs::path& path, const VideoOptions& options) {
  const OutputKind kind = output_kind(path);
  check_timing(options, kind);
  if (options.crf < 0 || options.crf > 51)
    throw bad_option("crf", std::to_string(options.crf) + " is outside 0 to 51",
                     "17 is visually lossless, 23 is x264's usual");
  const fs::path beside = recipe_beside(path);
  if (kind == OutputKind::encoded || kind == OutputKind::gif) require_media(path);
  if (kind == OutputKind::encoded) check_encoder(path, options);
  if (kind == OutputKind::png_folder)
    check_png_folder(path);
  else
    check_writable(path);
  if (!beside.empty() && !options.recipe.empty()) kRecipeBeside.check(beside);
}

void check_encoding(const fs::path& path, int64_t width, int64_t height, const VideoOptions& options,
                    const SoundFormat& sound) {
  const bool is_encoded = output_kind(path) == OutputKind::encoded;
  if (is_encoded) check_frame_size(path, width, height, options);
  if (!sound.any()) return;
  if (is_encoded)
    choose_sound_encoder(path, sound);
  else
    kSoundBeside.check(sound_beside(path));
}

bool takes_floats(const fs::path& path) {
  return output_kind(path) == OutputKind::safetensors;
}

std::unique_ptr<VideoWriter> open_video(const fs::path& path, const models::VideoShape& shape,
                                        const VideoOptions& options) {
  if (shape.frames < 1 || shape.height < 1 || shape.width < 1)
    throw run_failure(path.string() + ": there are no frames to write", "generate at least one frame");
  const OutputKind kind = output_kind(path);
  check_timing(options, kind);
  if (kind == OutputKind::encoded) return open_encoded(path, shape, options);
  // Compute the paths before open_png_folder(), because they depend on whether a folder of that name exists.
  PathsBeside files = {recipe_beside(path), sound_beside(path)};
  auto video = kind == OutputKind::y4m           ? open_y4m(path, shape, options)
               : kind == OutputKind::gif         ? open_gif(path, shape, options)
               : kind == OutputKind::safetensors ? std::make_unique<FloatWriter>(path, shape)
                                                 : open_png_folder(path, shape);
  return std::make_unique<WriterWithFilesBeside>(std::move(video), std::move(files), options);
}

WrittenVideo write_video(const fs::path& path, const FramesView& frames, const VideoOptions& options) {
  const auto writer = open_video(path, frames.shape(), options);
  const bool floats = takes_floats(path);
  for (int64_t i = 0; i < frames.frames; ++i) {
    const std::span<const float> values = frames.values(i);
    if (floats)
      writer->add({reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()});
    else
      writer->add(rgb8(values));
  }
  return writer->finish();
}

std::vector<int64_t> frames_on_sheet(int64_t frames, int64_t count) {
  std::vector<int64_t> shown(static_cast<size_t>(std::clamp<int64_t>(count, 1, frames)), 0);
  const int64_t last = std::ssize(shown) - 1;
  for (int64_t i = 1; i <= last; ++i) shown[static_cast<size_t>(i)] = i * (frames - 1) / last;
  return shown;
}

void write_contact_sheet(const fs::path& path, const FramesView& frames, const std::string& caption, int64_t count) {
  std::vector<std::vector<uint8_t>> shown;
  for (const int64_t index : frames_on_sheet(frames.frames, count)) shown.push_back(rgb8(frames.values(index)));
  write_contact_sheet(path, frames.shape(), shown, caption);
}

void check_contact_sheet(const fs::path& path) {
  if (extension(path) != ".png")
    throw Error(ErrorKind::bad_input, "--contact-sheet " + path.string() + " is not a .png",
                "name a file that ends in .png", {.file = path.string()});
  check_writable(path);
}

bool is_recipe(const nlohmann::json& json) {
  const auto version = json.find("version"), rate = json.find("fps");
  return json.is_object() && version != json.end() && version->is_string() && *version != "" && rate != json.end() &&
         rate->is_number();
}

bool may_hold_recipe(const fs::path& path) {
  const std::string ending = extension(path);
  return ending.empty() || ending == ".json" || is_video(path) || !recipe_beside(path).empty();
}

std::string read_recipe(const fs::path& path) {
  if (!fs::exists(path)) throw bad_file(path, "no such file", "check the path");
  if (const fs::path beside = recipe_beside(path); !beside.empty()) return fs::exists(beside) ? text_in(beside) : "";
  if (!fs::is_regular_file(path)) throw bad_file(path, "is not an ordinary file", "name a video or a recipe");
  if (extension(path) == ".json") return recipe_in(path);
  if (extension(path) != ".safetensors") return read_comment(path);
  const models::TensorFile file(path);
  const auto recipe = file.metadata().find("recipe");
  return recipe == file.metadata().end() ? "" : recipe->second;
}

}  // namespace sparsereel::app
