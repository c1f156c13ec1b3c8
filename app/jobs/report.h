// Describes a run as JSON: the recipe stored with a video, and the report of --report and --json.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "app/options/options.h"
#include "models/request/attention_run.h"
#include "models/request/memory_plan.h"
#include "models/request/outcome.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {

class PictureFiles;

/// The report of a command, filled while the command runs. At the end, main() adds the outcome, writes the report to
/// `path`, and prints it on stdout if the user asked for that.
struct RunReport {
  nlohmann::json content = nlohmann::json::object();
  std::filesystem::path path;  // --report; empty if none
  bool print = false;          // --json
  std::string last_line;       // for stdout, if the report is not printed
  std::string recovery;        // how to resume from what a failed run saved; empty if it saved nothing
};

/// Begins the report of a command. `path` is the file of --report; throws Error if it cannot be written. Call it once
/// the files of the run are known to be distinct, because failed runs write the report too.
void start_report(const std::filesystem::path& path, bool print, const char* command, RunReport& report);

/// Prints a line for each file on stdout, after `start`: "vae: /models/vae.safetensors, 242.1 MiB, BF16 194".
void print_part_files(const std::vector<models::PartFile>& files, const std::string& start);

/// Returns the JSON as valid UTF-8, whatever the strings hold.
std::string dump(const nlohmann::json& json, int indent = -1);

/// Returns everything that is needed to make the video again, by option name, and the program's version. Files are
/// recorded by hashes of their content, so call it once, before the files may change. `pictures` holds the plan's
/// images.
nlohmann::json make_recipe(const GenerateOptions& options, const models::Plan& plan, const models::Pipeline& pipeline,
                           PictureFiles& pictures);
void set_tiling(nlohmann::json& recipe, bool tiled);
/// Adds the hashes of the images that the recipe names, under the keys "image_sha256" and "last_image_sha256". Throws
/// Error naming the file.
void add_image_hashes(nlohmann::json& recipe, const models::Plan& plan, PictureFiles& pictures);
/// Adds facts that only the run itself shows: the chosen tiling and the achieved sparsity.
void add_outcome(nlohmann::json& recipe, const models::Outcome& result);

/// Adds how frames become the output file: the frame rate, and crf and codec if an encoder is used.
void set_encoding(nlohmann::json& recipe, const RunOptions& run);
/// Names the model in the recipe if the terms of its weights require that.
void set_attribution(nlohmann::json& recipe, const models::ModelSpec& spec);
/// If `no_audio`, says in the recipe that the video has no sound.
void set_no_audio(nlohmann::json& recipe, bool no_audio);
/// Returns the SHA-256 of a recipe that was resolved before the run, and of how the video is encoded. Two runs with the
/// same identity make the same video.
std::string recipe_identity(nlohmann::json recipe, const models::Plan& plan, const RunOptions& run);

/// Returns the attention part of a report: mode, kernel, and sparsity of blocks (without means) in total, per layer,
/// and per step and layer. In check mode it also holds the error, in the same detail. Also holds what replaces dropped
/// blocks, its cost and its predicted error, and the steps that were redone with full attention.
nlohmann::json attention_report(const models::AttentionRun& run, at::Device device);

/// Returns how much a video resembles its first image. `first_frame_psnr` (dB) and `first_frame_difference` (mean
/// absolute difference) compare its first frame with the image as the VAE reproduces it. `colour_drift` is how far the
/// mean red, green and blue of the last frame are from those of the first frame. `colour_drift_most` is the largest
/// drift of any color and frame. Differences and drifts are in levels of 0 to 255. `result` must have an image
/// (Outcome::image).
nlohmann::json image_report(const models::Outcome& result);

/// Returns the cache's rule, the number of steps that ran all transformer blocks, and the indices (from 0) of the
/// reused steps.
nlohmann::json cache_report(const models::CacheRule& rule, const models::AttentionRun& run);

/// Returns the process's peak resident memory (VmHWM) and, with a GPU, its peak allocated memory in total and by stage.
/// All in bytes.
nlohmann::json memory_report(at::Device device, const models::StageMemory& stages);

/// Returns where the weights of a run stay: the counts of blocks, the bytes, and the sentence under the key "text".
nlohmann::json plan_report(const models::MemoryPlan& plan);

/// Adds exit code, state ("done", "failed", "interrupted"), cause and remedy. Then writes and prints the report, as far
/// as the user asked for that. Returns exit_code. Throws Error if the report cannot be written; another call then
/// prints it, but does not try to write it again.
int finish(RunReport& report, int exit_code, const std::string& cause = {}, const std::string& remedy = {});

/// Prints the last line now instead of at the end, because later work may fail.
void show_last_line(RunReport& report);

using models::human_bytes;
std::string shell_quoted(const std::filesystem::path& path);

}  // namespace sparsereel::app
