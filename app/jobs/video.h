// Describes a video on its way from the user's settings to its file, and resolves the settings.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/jobs/image.h"
#include "app/options/options.h"
#include "hilbert/error.h"
#include "models/request/latents.h"

namespace sparsereel::app {

/// Cost of encoding a video's text and images. `check`, `load` and `bytes` are counted at the first video of each
/// Job::load(); `encode` is almost 0 if earlier videos have the same text and images.
struct TextCost {
  double check = 0;             // seconds of checking the checkpoint, once for all videos
  double load = 0, encode = 0;  // seconds; a streamed encoder loads while it encodes
  uint64_t bytes = 0;           // peak GPU memory in use
};

/// A video. Its members are set in three stages: when it is requested, when it is resolved, and while it is made.
struct VideoTask {
  int64_t index = 0;       // position among the requested videos, from 0
  std::string set, place;  // the prompt set and the row's place: "set.csv:3"; empty on the command line
  Settings settings;
  GenerateOptions options;
  std::optional<int64_t> seed_offset;  // what a row's place adds to the common seed; only for rows of a set

  // Set by resolve_video().
  models::Plan plan;
  SoundFormat sound;             // format of the video's sound; none if the model makes no sound, or with --no-audio
  models::Latents init_latents;  // from --init-latents; undefined if denoising starts with noise
  std::shared_ptr<PictureFiles> pictures;  // images of the video, until they are encoded
  nlohmann::json recipe;                   // includes the outcome once the video is made
  std::string identity;                    // hash of the recipe before the outcome was added
  std::vector<std::string> told;           // warnings printed before the work

  // Set by its Job.
  models::Conditioning conditioning;  // on the CPU until the video is made
  TextCost text_cost;
  std::vector<std::string> warnings;  // warnings from the work
  std::filesystem::path checkpoint;   // file of the denoising checkpoint; empty if none is kept
  int64_t resumed_at_step = 0;
  std::optional<Error> failure;  // why there is no video; the error names the place of the row or of the value

  /// Sets `failure`. `latents` is the file of the denoised latents; empty if none.
  void fail(const Error& error, const std::filesystem::path& latents = {});
};

/// Files that were read. Videos with the same --init-latents or image share them.
struct LoadedFiles {
  std::map<std::filesystem::path, models::Latents> latents;
  std::shared_ptr<PictureFiles> pictures = std::make_shared<PictureFiles>();
};

/// Checks the options against the model once and fills in unset values. Throws Error. `ranks`: number of ranks that
/// make the video together.
void resolve_video(VideoTask& video, const models::Pipeline& pipeline, LoadedFiles& loaded, int64_t ranks = 1);

/// Returns the format of the sound that a model makes; none if it makes no sound or `no_audio` is true.
SoundFormat sound_format(const models::ModelSpec& spec, bool no_audio);

/// Returns the warnings to print before the work. A warning that several videos share appears once, with the place of
/// the first video.
std::vector<std::string> early_warnings(const std::vector<VideoTask*>& videos);

/// Returns the warnings to print before the work of one video, without the video's place.
std::vector<std::string> early_warnings(const VideoTask& video);

}  // namespace sparsereel::app
