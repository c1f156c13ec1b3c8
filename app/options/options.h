// The options of `generate` and `decode` as plain structs, read from merged settings.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/media/video.h"
#include "app/options/settings.h"
#include "models/engine/pipeline.h"
#include "models/files/temporary.h"
#include "models/request/effects.h"
#include "models/request/tuned_profile.h"

namespace sparsereel::app {

using models::idle_warnings;
using models::IdleCause;

constexpr const char* kDefaultOutput = "video.mp4";

/// Names that other runs do not choose as long as these live.
using Reservations = std::vector<std::unique_ptr<models::Temporary>>;

/// Where no output is named: video.mp4, or the first of video-2.mp4, video-3.mp4 ... that is there neither, since
/// nobody asked for a file to be replaced, nor chosen by a run that goes on; of several, none of whose `count` numbered
/// files is. A checkpoint without its video keeps no name: the run that was cut short goes on under it.
/// `reserves`: false leaves the names to any other run, and writes nothing.
Reservations choose_output(Settings& settings, int64_t count, bool reserves = true);

/// What both commands share.
struct RunOptions {
  std::filesystem::path model;               // a folder or file of weights, or the YAML of an architecture
  std::map<std::string, std::string> files;  // of weights, by role, beside it or in its place
  bool random_weights = false;               // model is such a YAML
  std::optional<bool> with_images = {};      // whether there are any, where that is known
  std::string model_name;                    // in recipes: its folder's, or "random weights of" its YAML's
  std::filesystem::path output;
  std::filesystem::path contact_sheet;  // empty: none
  VideoOptions video;                   // without the recipe, which is known at the end
  bool metadata = true;
  std::optional<int64_t> threads;
  bool quiet = false, verbose = false;
};

struct GenerateOptions {
  RunOptions run;
  models::Request request;
  bool random_seed = false;                     // the request's was drawn
  std::filesystem::path save_latents;           // empty: they are kept only until the video is written
  std::filesystem::path init_latents;           // empty: noise
  int64_t checkpoint_every = 0;                 // steps from one denoising checkpoint to the next; 0: none
  std::optional<models::TunedProfile> profile;  // where it has policies for heads, they are the request's
  std::vector<IdleCause> idle;                  // what leaves options without effect
};

/// Adds command line, then --config, then the recipe of --from, then what add_profile() does, then the configs/*.yaml
/// that fits the model with the preset that holds. Throws Error for an unreadable file or model; what was added before
/// is there for Settings::with_place().
void collect_settings(Settings& settings, const std::map<std::string, std::string>& command_line,
                      const std::string& config_file, PresetUse use = PresetUse::whole);

/// Does the same as models::add_profile(). Beside the recipe of a video that was made with a profile it adds nothing:
/// the recipe has the profile's options.
void add_profile(Settings& settings);

/// Collected settings as they would be with this preset. Throws Error (field preset) where the model has none such.
Settings with_preset(Settings settings, const std::string& preset);

/// What -m or --random-weights names, or else the transformer's file, or else the tiny model. Throws Error where there
/// is none.
std::filesystem::path model_path(const Settings& settings);

/// The folder, the files, or the architecture that stands for one.
models::Checkpoint open_model(const RunOptions& run);
models::Checkpoint open_model(const Settings& settings);

/// Nothing says what to show. Random weights understand no prompt, and need none.
bool lacks_prompt(const Settings& settings);

RunOptions read_run_options(const Settings& settings);
/// The fields of a request that the command takes, as they are given: no prompt of a file, no random seed.
models::Request read_request(const Settings& settings, Command command = Command::generate);
/// Throws Error naming the option that is out of range. `prompt_needed` is false for those who find out by themselves
/// with lacks_prompt(), and for `config show`.
GenerateOptions read_generate_options(const Settings& settings, bool prompt_needed = true);

/// Completes the options of a video with what depends on the model and the device: attention's mode, by default sparse
/// where that runs, and what is idle. Throws Error where the device cannot run the mode asked for with this dtype, and
/// for a profile that does not fit the model.
void settle_options(const Settings& settings, GenerateOptions& options, const models::Pipeline& pipeline);

/// What the model and its sampler leave without effect.
std::vector<IdleCause> idle_beside_model(const models::Request& request, const models::Pipeline& pipeline);

/// What the output leaves without effect.
std::vector<IdleCause> idle_beside_output(const Settings& settings, const RunOptions& run);

}  // namespace sparsereel::app
