// The options of `generate` and `decode` as plain structs, read from merged settings.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "app/media/video.h"
#include "app/settings.h"
#include "models/pipeline.h"

namespace sparsereel::app {

/// What both commands share.
struct RunOptions {
  std::filesystem::path model;
  std::filesystem::path output;
  std::filesystem::path contact_sheet;  // empty: none
  VideoOptions video;                   // without the recipe, which is known at the end
  bool metadata = true;
  std::string device = "auto";
  std::string dtype = "auto";
  models::VaeTiling vae_tiling = models::VaeTiling::automatic;
  std::optional<int64_t> threads;
  bool quiet = false;
};

struct GenerateOptions {
  RunOptions run;
  models::GenerateRequest request;                // its attention mode is not set yet: that depends on the device
  std::optional<attention::Mode> attention_mode;  // unset: sparse where that runs
  std::filesystem::path save_latents;             // empty: they are kept only until the video is written
  std::filesystem::path init_latents;             // empty: noise
};

/// Command line, then --config, then the configs/*.yaml that fits the model. Throws Error for an unreadable file or
/// model.
Settings collect_settings(const std::map<std::string, std::string>& command_line, const std::string& config_file);

/// -m, or the tiny model. Throws Error where there is neither.
std::filesystem::path model_folder(const Settings& settings);

RunOptions read_run_options(const Settings& settings);
/// Throws Error naming the option that is out of range or would have no effect. `prompt_needed` is false for `config
/// show`.
GenerateOptions read_generate_options(const Settings& settings, bool prompt_needed = true);

/// Attention's mode on this device, by default sparse where that runs. Throws Error where the device cannot run the
/// mode asked for with this dtype, or where options of the block selection are given to a mode without one.
attention::Mode choose_attention_mode(const Settings& settings, const GenerateOptions& options, at::Device device,
                                      at::ScalarType dtype);

/// Throws Error when an output cannot be written: before any time is spent.
void check_outputs(const Settings& settings, const RunOptions& run);

/// "clip.mp4" -> "clip.mp4.latents.safetensors", where the latents wait until the video is written.
std::filesystem::path latents_beside(const std::filesystem::path& output);

}  // namespace sparsereel::app
