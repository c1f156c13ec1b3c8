// What a run did, as JSON: the recipe that travels with a video, and the report of --report and --json.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "app/options/options.h"
#include "models/request/attention_run.h"
#include "models/request/outcome.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {

class PictureFiles;

/// Filled while a command runs; main() adds how it ended, writes it to `path` and prints it on stdout, where asked for.
struct RunReport {
  nlohmann::json content = nlohmann::json::object();
  std::filesystem::path path;  // --report; empty: none
  bool print = false;          // --json
  std::string last_line;       // stdout, where the report is not printed
  std::string recovery;        // how to go on with what a failed run has saved; empty: nothing was
};

/// Begins the report of a command. `path`: of --report; a report that cannot be written ends the run before it begins.
/// Comes once the files of the run are known to be distinct, since failed runs write the report too.
void start_report(const std::filesystem::path& path, bool print, const char* command, RunReport& report);

/// A line on stdout for each, behind `start`: "vae: /models/vae.safetensors, 254 MB, BF16 194".
void print_part_files(const std::vector<models::PartFile>& files, const std::string& start);

/// Valid UTF-8 whatever the strings hold.
std::string dump(const nlohmann::json& json, int indent = -1);

/// Everything that makes the same video again; keys are option names, with the version added. It names files by their
/// content: make it once, before they may change. `pictures`: of the plan's images.
nlohmann::json make_recipe(const GenerateOptions& options, const models::Plan& plan, const models::Pipeline& pipeline,
                           PictureFiles& pictures);
void set_tiling(nlohmann::json& recipe, bool tiled);
/// Adds "image_sha256" to a recipe that names an image, and likewise the last one's. Throws Error naming the file.
void add_image_hashes(nlohmann::json& recipe, const models::Plan& plan, PictureFiles& pictures);
/// Adds what only the run itself shows: the tiling that was chosen and the achieved sparsity.
void add_outcome(nlohmann::json& recipe, const models::Outcome& result);

/// How the frames become this run's file: the frame rate, and crf and codec where an encoder makes it.
void set_encoding(nlohmann::json& recipe, const RunOptions& run);
/// Names the video that a recipe resolved before the run stands for: SHA-256 over it and how it is
/// encoded. Two runs with one identity make the same video.
std::string recipe_identity(nlohmann::json recipe, const models::Plan& plan, const RunOptions& run);

/// The attention part of a report: mode, kernel, sparsity (of blocks, means left aside) in all, per layer and per step
/// and layer; the error of check mode likewise; what stands for dropped blocks, its cost and the error predicted of it;
/// the steps that were redone with full attention.
nlohmann::json attention_report(const models::AttentionRun& run, at::Device device);

/// How a video keeps to the image that it begins with. Of its first frame against the image as the VAE leaves it:
/// first_frame_psnr in dB, and first_frame_difference, the mean over the pixels' values of 255. By how much of 255 mean
/// red, green and blue differ from the first frame's: colour_drift of the last frame, and colour_drift_most, the
/// largest of any colour and frame. `result`: of an image.
nlohmann::json image_report(const models::Outcome& result);

/// How many steps ran all blocks, and which ones did without.
nlohmann::json cache_report(const models::CacheRule& rule, const models::AttentionRun& run);

/// Bytes: the process's peak resident memory (VmHWM), and where there is a GPU its peak of allocated memory, over all
/// and by stage.
nlohmann::json memory_report(at::Device device, const models::StageMemory& stages);

/// Adds exit code and state ("done", "failed", "interrupted"), cause and remedy; writes and prints the report as asked.
/// Returns exit_code. Throws Error when the report cannot be written; the next call only prints it.
int finish(RunReport& report, int exit_code, const std::string& cause = {}, const std::string& remedy = {});

/// Prints the last line now, where people read it, and not again at the end: what follows may fail.
void show_last_line(RunReport& report);

using models::human_bytes;
std::string shell_quoted(const std::filesystem::path& path);

}  // namespace sparsereel::app
