// Builds recipes and reports.
#include "app/jobs/report.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iostream>
#include <utility>

#include "app/jobs/image.h"
#include "app/lab/measure/quality.h"
#include "app/terminal.h"
#include "models/engine/denoising.h"
#include "models/files/atomic_file.h"
#include "models/files/sha256.h"
#include "models/request/attention_run.h"
#include "models/request/fields.h"
#include "models/request/outcome.h"

namespace sparsereel::app {
namespace {

const char* exit_state(int exit_code) {
  if (exit_code == 0) return "done";
  return exit_code == 130 ? "interrupted" : "failed";
}

uint64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  return 0;
}

/// Returns which arithmetic a mode really uses, if it differs from the mode's name.
std::string arithmetic_note(attention::Mode mode, at::Device device) {
  if (!device.is_cpu()) return {};
  if (attention::drops_blocks(mode))
    return "on a CPU the kept blocks are computed in fp32: 8-bit arithmetic saves nothing there";
  if (mode == attention::Mode::quantized) return "on a CPU the 8-bit arithmetic is emulated";
  return {};
}

/// Returns by option name what represents dropped blocks, how they are chosen and, if it has 16 bits, the arithmetic.
nlohmann::json means_report(const attention::Policy& policy) {
  nlohmann::json report = {{"dropped", attention::name(policy.dropped)}, {"select", attention::name(policy.ranking)}};
  if (policy.dropped == attention::Dropped::mean) report["cell"] = policy.cell;
  if (policy.arithmetic == 16) report["arithmetic"] = policy.arithmetic;
  return report;
}

using Figure = std::function<double(const attention::Statistics&)>;

nlohmann::json of_layers(const std::vector<attention::Statistics>& layers, const Figure& figure) {
  nlohmann::json numbers = nlohmann::json::array();
  for (const attention::Statistics& layer : layers) numbers.push_back(figure(layer));
  return numbers;
}

nlohmann::json of_steps(const std::vector<std::vector<attention::Statistics>>& steps, const Figure& figure) {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& layers : steps) rows.push_back(of_layers(layers, figure));
  return rows;
}

}  // namespace

void start_report(const std::filesystem::path& path, bool print, const char* command, RunReport& report) {
  if (path == "-")
    throw bad_option("report", "-: the report cannot be written to standard output",
                     "print the report there with --json");
  if (!path.empty()) {
    const models::AtomicFile probe(path);
    report.path = path;
  }
  report.print = print;
  report.content["version"] = SPARSEREEL_VERSION;
  report.content["command"] = command;
}

void print_part_files(const std::vector<models::PartFile>& files, const std::string& start) {
  for (const models::PartFile& file : files)
    std::cout << start << file.role << ": " << one_line(file.path.string()) << ", " << human_bytes(file.bytes) << ", "
              << file.format << "\n";
}

std::string dump(const nlohmann::json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

void add_image_hashes(nlohmann::json& recipe, const models::Plan& plan, PictureFiles& pictures) {
  for (const auto& [key, file] : {std::pair("image", plan.image), std::pair("last_image", plan.last_image)})
    if (recipe.contains(key)) recipe[std::string(key) + "_sha256"] = pictures.sha256(file);
}

nlohmann::json make_recipe(const GenerateOptions& options, const models::Plan& plan, const models::Pipeline& pipeline,
                           PictureFiles& pictures) {
  nlohmann::json recipe = models::recipe_of(plan);
  recipe["version"] = SPARSEREEL_VERSION;
  recipe["model"] = options.run.model_name;
  recipe["model_sha256"] = pipeline.model_hash();
  set_attribution(recipe, pipeline.spec());
  if (!pipeline.part_files().empty()) recipe["files"] = models::remembered(pipeline.part_files());
  if (!plan.loras.empty()) recipe["lora_sha256"] = pipeline.lora_hash();
  add_image_hashes(recipe, plan, pictures);
  if (!options.init_latents.empty()) {
    recipe["init_latents"] = options.init_latents.filename().string();
    recipe["init_latents_sha256"] = models::sha256_of_file(options.init_latents);
  }
  if (options.profile && options.profile->by_head()) {  // the recipe holds all values of other profiles
    recipe["profile"] = options.profile->file.filename().string();
    recipe["profile_sha256"] = options.profile->sha256;
  }
  set_encoding(recipe, options.run);
  return recipe;
}

void set_tiling(nlohmann::json& recipe, bool tiled) {
  recipe["vae_tiling"] = tiled ? "on" : "off";
}

void add_outcome(nlohmann::json& recipe, const models::Outcome& result) {
  set_tiling(recipe, result.vae_tiled);
  const attention::Statistics& statistics = result.attention.statistics;
  if (statistics.calls > 0) recipe["sparsity"] = statistics.sparsity();
}

void set_encoding(nlohmann::json& recipe, const RunOptions& run) {
  recipe["fps"] = run.video.fps;
  recipe.erase("crf");
  recipe.erase("codec");
  if (output_kind(run.output) != OutputKind::encoded) return;
  recipe["crf"] = run.video.crf;
  if (!run.video.codec.empty()) recipe["codec"] = run.video.codec;
}

void set_attribution(nlohmann::json& recipe, const models::ModelSpec& spec) {
  recipe.erase("attribution");
  if (!spec.attribution.empty()) recipe["attribution"] = spec.attribution;
}

void set_no_audio(nlohmann::json& recipe, bool no_audio) {
  recipe.erase("no_audio");
  if (no_audio) recipe["no_audio"] = true;
}

std::string recipe_identity(nlohmann::json recipe, const models::Plan& plan, const RunOptions& run) {
  recipe["vae_tiling"] = models::name(plan.vae_tiling);  // the setting, because only the run shows what "auto" chooses
  if (recipe.value("dropped", "") == "none") {           // older recipes, which lack it, get the same identity
    recipe.erase("dropped");
    recipe.erase("select");
  }
  recipe.erase("attribution");  // follows from the model
  recipe["no_metadata"] = !run.metadata;
  recipe["format"] = run.output.extension().string();
  return models::sha256(dump(recipe));
}

namespace {

/// Returns how unequally the computed blocks are divided among the ranks. Ranks may compute different numbers of
/// blocks, because one budget covers the heads of all ranks.
nlohmann::json rank_report(const std::vector<int64_t>& kept) {
  double sum = 0;
  for (const int64_t blocks : kept) sum += static_cast<double>(blocks);
  return {{"ranks", kept.size()}, {"most", std::ranges::max(kept)}, {"mean", sum / static_cast<double>(kept.size())}};
}

}  // namespace

nlohmann::json attention_report(const models::AttentionRun& run, at::Device device) {
  const attention::Statistics& all = run.statistics;
  const auto sparsity = [](const attention::Statistics& statistics) { return statistics.sparsity(); };
  nlohmann::json report = {{"mode", attention::name(run.mode)},
                           {"kernel", run.kernel},
                           {"sparsity", all.sparsity()},
                           {"total_blocks", all.total_blocks},
                           {"kept_blocks", all.kept_blocks},
                           {"skipped_pv_blocks", all.skipped_pv_blocks},
                           {"calls", all.calls},
                           {"seconds", all.seconds},
                           {"layer_sparsity", of_layers(run.per_layer, sparsity)},
                           {"step_layer_sparsity", of_steps(run.per_step, sparsity)},
                           {"redone_steps", run.redone_steps}};
  if (!run.kept_by_rank.empty()) report["kept_blocks_a_rank"] = rank_report(run.kept_by_rank);
  if (attention::drops_blocks(run.mode)) report.update(means_report(run.policy));
  if (run.policy.dropped == attention::Dropped::mean && attention::drops_blocks(run.mode)) {
    report["mean_blocks"] = all.mean_blocks;
    report["mean_share"] = all.mean_share();
  }
  if (all.predicted_tiles > 0) {
    const auto predicted = [](const attention::Statistics& statistics) { return statistics.predicted_error(); };
    report["predicted_error"] = predicted(all);
    report["layer_predicted_error"] = of_layers(run.per_layer, predicted);
  }
  if (const std::string note = arithmetic_note(run.mode, device); !note.empty()) report["note"] = note;
  if (run.mode == attention::Mode::check && all.calls > 0) {
    const auto error = [](const attention::Statistics& statistics) { return statistics.mean_relative_l1(); };
    report["mean_relative_l1"] = error(all);
    report["max_relative_l1"] = all.max_relative_l1;
    report["layer_relative_l1"] = of_layers(run.per_layer, error);
    report["step_layer_relative_l1"] = of_steps(run.per_step, error);
  }
  return report;
}

nlohmann::json cache_report(const models::CacheRule& rule, const models::AttentionRun& run) {
  return {{"rule", models::name(rule)},
          {"computed_steps", models::computed_steps(run)},
          {"reused_steps", models::reused_steps(run)}};
}

nlohmann::json image_report(const models::Outcome& result) {
  const at::Tensor& first = result.facts.first;
  const at::Tensor colors = result.facts.colors.mul(255);
  const at::Tensor drift = colors - colors.narrow(0, 0, 1);
  const at::Tensor last = drift[-1].contiguous();
  const float* values = last.const_data_ptr<float>();
  return {{"first_frame_psnr", psnr(first, result.image).value_or(kEqualPsnr)},
          {"first_frame_difference", (first - result.image).abs().mean().item<double>() * 255},
          {"colour_drift", {values[0], values[1], values[2]}},
          {"colour_drift_most", drift.abs().max().item<double>()}};
}

nlohmann::json plan_report(const models::MemoryPlan& plan) {
  nlohmann::json report = {{"text", models::sentence(plan)},      {"blocks", plan.blocks},
                           {"resident_blocks", plan.resident},    {"pageable_blocks", plan.pageable},
                           {"blocks_from_file", plan.from_file},  {"transformers", plan.experts},
                           {"text_in_layers", plan.streams_text}, {"decodes_in_tiles", plan.tiles},
                           {"frees_decoder", plan.frees_vae},     {"gpu_bytes", plan.gpu_bytes},
                           {"weights_bytes", plan.weight_bytes},  {"pinned_bytes", plan.pinned_bytes},
                           {"host_bytes", plan.host_bytes},       {"fits", plan.fits}};
  if (plan.step_seconds > 0) report["step_seconds"] = plan.step_seconds;
  return report;
}

nlohmann::json memory_report(at::Device device, const models::StageMemory& stages) {
  nlohmann::json report = {{"host_bytes", peak_resident_bytes()}};
  if (device.is_cuda()) {
    report["device_bytes"] = std::max(models::peak_memory(device), stages.largest());
    report["stages"] = {{"text", stages.text}, {"denoise", stages.denoise}, {"decode", stages.decode}};
  }
  return report;
}

void show_last_line(RunReport& report) {
  const std::string line = std::exchange(report.last_line, {});
  if (!report.print && !line.empty()) std::cout << line << std::endl;
}

int finish(RunReport& report, int exit_code, const std::string& cause, const std::string& remedy) {
  report.content["exit"] = {{"code", exit_code}, {"state", exit_state(exit_code)}};
  if (!cause.empty()) report.content["exit"].update({{"cause", cause}, {"remedy", remedy}});
  if (!report.path.empty()) {
    const std::string text = dump(report.content, 2) + "\n";
    models::AtomicFile file(std::exchange(report.path, {}));
    file.write(text.data(), text.size());
    file.commit();
  }
  if (report.print) {
    std::cout << dump(report.content, 2) << std::endl;
  } else if (exit_code == 0 && !report.last_line.empty()) {
    std::cout << report.last_line << std::endl;
  }
  return exit_code;
}

std::string shell_quoted(const std::filesystem::path& path) {
  std::string text = path.string();
  const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:,@";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace sparsereel::app
