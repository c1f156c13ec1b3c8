// The options of `generate` and `decode` as plain structs, which are read from the merged settings.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/media/video.h"
#include "app/options/option_table.h"
#include "models/engine/pipeline.h"
#include "models/files/temporary.h"
#include "models/request/effects.h"
#include "models/request/tuned_profile.h"

namespace sparsereel::app {

using models::no_effect_warnings;
using models::NoEffectCause;

constexpr const char* kDefaultOutput = "video.mp4";

/// Reserved file names. Other runs do not choose them while these objects live.
using Reservations = std::vector<std::unique_ptr<models::Temporary>>;

/// If the user named no output, sets the output to video.mp4, or to the first of video-2.mp4, video-3.mp4 ... that is
/// free. An existing file is not replaced, because nobody asked for that. A name is free if its file does not exist and
/// no running process has reserved it. With several videos, all `count` numbered files must be free. A denoising
/// checkpoint without its video does not occupy a name: the interrupted run resumes under it. If `reserves` is false,
/// reserves nothing and writes nothing.
Reservations choose_output(Settings& settings, int64_t count, bool reserves = true);

/// The options that `generate` and `decode` share.
struct RunOptions {
  std::filesystem::path model;               // a folder or file of weights, or the YAML of an architecture
  std::map<std::string, std::string> files;  // files of weights by role, in addition to the model or in its place
  bool random_weights = false;               // true if `model` is the YAML of an architecture
  std::optional<bool> with_images = {};      // true if images are given; unset if that is not yet known
  std::string model_name;  // the name in recipes: the folder's, or "random weights of " and the YAML's
  std::filesystem::path output;
  std::filesystem::path contact_sheet;  // empty if none is asked for
  std::filesystem::path thumbnail;      // the first frame as a PNG, for a server; empty if none is asked for
  std::filesystem::path preview;        // picture that is rewritten during denoising; empty if none is asked for
  VideoOptions video;                   // without the recipe, which is known only at the end
  bool metadata = true;
  bool no_audio = false;  // true if the video is written without its sound
  std::optional<int64_t> threads;
  bool quiet = false, verbose = false;
};

struct GenerateOptions {
  RunOptions run;
  models::Request request;
  bool random_seed = false;                     // true if the request's seed was drawn
  std::filesystem::path save_latents;           // empty if latents are kept only until the video is written
  std::filesystem::path init_latents;           // empty if denoising begins with noise
  int64_t checkpoint_every = 0;                 // steps between denoising checkpoints; 0 for none
  std::optional<models::TunedProfile> profile;  // its policies for heads, if any, replace the policy of the request
  std::vector<NoEffectCause> no_effect;         // causes that leave options without effect
};

/// Returns the paths of the video, the sound beside it, the contact sheet, the preview and the saved latents, in no
/// particular order. The path of a file that the run does not write is empty.
std::vector<std::filesystem::path> files_written(const GenerateOptions& options);

/// Adds the values of these sources to the settings, in this order: command line, --config, the recipe of --from,
/// add_profile() (only for PresetUse::whole), and the matching configs/*.yaml with its preset. Throws Error if a file
/// or the model cannot be read. After an error, the sources that were already added stay, so that
/// Settings::with_place() can use them.
void collect_settings(Settings& settings, const std::map<std::string, std::string>& command_line,
                      const std::string& config_file, PresetUse use = PresetUse::whole);

/// Calls models::add_profile(), unless --from names a video that was made with a profile: its recipe already holds the
/// profile's options.
void add_profile(Settings& settings);

/// Returns a copy of the collected settings in which this preset replaces the present one. Throws Error (field preset)
/// if the model does not have it.
Settings with_preset(Settings settings, const std::string& preset);

/// Returns the path of -m or --random-weights; without them, the file of --transformer or --transformer-2; without any
/// of these, the tiny model. Throws Error if -m is empty, or if the tiny model is needed but missing.
std::filesystem::path model_path(const Settings& settings);

/// Opens the model: its folder, its files, or random weights of the architecture in a YAML.
models::Checkpoint open_model(const RunOptions& run);
models::Checkpoint open_model(const Settings& settings);

/// Returns true if no option says what to show. Random weights understand no prompt and need none.
bool lacks_prompt(const Settings& settings);

RunOptions read_run_options(const Settings& settings);
/// Returns a request with those given settings that `command` takes. Does not read prompt files or draw random seeds.
models::Request read_request(const Settings& settings, Command command = Command::generate);
/// Reads and checks the options. Throws Error naming an option that is out of range, or if `prompt_needed` and there is
/// no prompt. Callers that check lacks_prompt() themselves, and `config show`, need none.
GenerateOptions read_generate_options(const Settings& settings, bool prompt_needed = true);

/// Completes `options` once the model is open: adds the causes that leave options without effect, drops a profile that
/// has no effect because attention is full, and sets the frame rate if the model has a fixed one. Throws Error if the
/// pipeline's device cannot run the request's attention mode in the pipeline's dtype, or if the profile does not fit
/// the model.
void settle_options(const Settings& settings, GenerateOptions& options, const models::Pipeline& pipeline);

/// Returns the causes in the model and its sampler that leave options without effect.
std::vector<NoEffectCause> no_effect_beside_model(const models::Request& request, const models::Pipeline& pipeline);

/// Returns the causes in the output that leave options without effect.
std::vector<NoEffectCause> no_effect_beside_output(const Settings& settings, const RunOptions& run);

/// Returns how many videos are made of each prompt. Throws Error if that is out of range.
int64_t video_count(const Settings& settings);

/// Returns the file of video `index` (from 0) of `count`. For "clip.mp4" it is "clip-3.mp4", or "clip-03.mp4" if there
/// are ten or more; for "frames/" it is "frames-3/". Returns `file` itself if count is 1.
std::filesystem::path numbered(const std::filesystem::path& file, int64_t index, int64_t count);

/// Returns the settings of each video: seeds s, s + 1, ..., and numbered files.
std::vector<Settings> settings_of_videos(const Settings& settings);

}  // namespace sparsereel::app
