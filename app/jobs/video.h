// One video on its way from the user's settings to its file.
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

namespace sparsereel::app {

/// What encoding a text took; all 0 where another video of the job has the same one.
struct TextCost {
  double check = 0;             // seconds: of the checkpoint, for all videos
  double load = 0, encode = 0;  // likewise; a streamed encoder's loading is part of the encoding
  uint64_t bytes = 0;           // most of a GPU's memory in use
};

/// Asked for, then resolved, then made: each stage fills in its part.
struct Video {
  int64_t index = 0;       // of the videos that were asked for, from 0
  std::string set, place;  // the file it stands in, and where: "set.csv:3"; empty: on the command line
  Settings settings;
  GenerateOptions options;
  std::optional<int64_t> seed_offset;  // of a set's row: what its place adds to the seed that is given for all

  // By resolve_video().
  models::Plan plan;
  at::Tensor init_latents;                 // of --init-latents; undefined: noise
  std::shared_ptr<PictureFiles> pictures;  // of its images, until they are encoded
  nlohmann::json recipe;                   // with what came of it, once it is made
  std::string identity;                    // of the recipe before that
  std::vector<std::string> told;           // warnings that come before the work

  // By its Job.
  models::Conditioning conditioning;  // on the CPU, while it waits for its turn
  TextCost text_cost;
  std::vector<std::string> warnings;  // of the work
  std::filesystem::path checkpoint;   // where its denoising is kept while it runs; empty: nowhere
  int64_t resumed_at_step = 0;
  std::optional<Error> failure;  // why there is no video: names its place, or that of the value at fault

  /// `latents`: where those that were denoised are; empty where there are none.
  void fail(const Error& error, const std::filesystem::path& latents = {});
};

/// The files of --init-latents, and images, that were read: videos that begin with the same one share it.
struct LoadedFiles {
  std::map<std::filesystem::path, at::Tensor> latents;
  std::shared_ptr<PictureFiles> pictures = std::make_shared<PictureFiles>();
};

/// Checks the options against the model, once for all that follows, and fills in what they leave open. Throws Error.
/// ranks: that make it together.
void resolve_video(Video& video, const models::Pipeline& pipeline, LoadedFiles& loaded, int64_t ranks = 1);

/// What to say before the work: what several videos share once, with the place of the first.
std::vector<std::string> early_warnings(const std::vector<Video*>& videos);

}  // namespace sparsereel::app
