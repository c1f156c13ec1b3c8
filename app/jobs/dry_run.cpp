// Describes a run by the headers and sizes of files alone.
#include "app/jobs/dry_run.h"

#include <algorithm>
#include <utility>

#include "app/counted.h"
#include "app/jobs/denoising_checkpoint.h"
#include "app/jobs/preset_lines.h"
#include "app/jobs/report.h"
#include "app/terminal.h"
#include "hilbert/exact_text.h"
#include "models/engine/memory_need.h"

namespace sparsereel::app {
namespace {

/// Returns the beginning of a line of the table: "  text      ".
std::string indented(std::string name) {
  name.insert(0, "  ");
  name.resize(std::max<size_t>(name.size() + 1, 12), ' ');
  return name;
}

nlohmann::json stage_report(const models::StageEstimate& stage) {
  nlohmann::json report = {{"stage", stage.stage},     {"bytes", stage.total()},       {"weights_bytes", stage.weights},
                           {"host_bytes", stage.host}, {"in_pieces", stage.in_pieces}, {"fits", stage.remedy.empty()}};
  if (!stage.remedy.empty()) report["remedy"] = stage.remedy;
  return report;
}

/// Returns "9.6 GiB, fits" for a stage from stage_report().
std::string stage_text(const nlohmann::json& stage) {
  const auto bytes = [&](const char* key) { return human_bytes(stage.at(key).get<uint64_t>()); };
  std::string text = bytes("bytes");
  if (stage.at("weights_bytes") > 0) text += " (weights " + bytes("weights_bytes") + ")";
  if (stage.at("host_bytes") > 0) text += " and " + bytes("host_bytes") + " of host memory";
  if (stage.at("in_pieces")) {
    text +=
        stage.at("stage") == "text" ? ", at once; layer by layer it takes less" : ", at once; in tiles it takes less";
  }
  return text + (stage.at("fits") ? ", fits" : ", may not fit: " + stage.at("remedy").get<std::string>());
}

}  // namespace

std::optional<Error> foresee(VideoTask& video, const models::Pipeline& pipeline, LoadedFiles& files, int64_t ranks) {
  try {
    resolve_video(video, pipeline, files, ranks);
    if (ranks > 1) pipeline.check_ranks(video.plan, ranks);
    pipeline.check_weights(video.plan.has_images());  // reads only their headers
    const OwnCheckpoint checkpoint = find_checkpoint(video.options.run.output, video.identity, video.plan.cache);
    if (checkpoint.state) video.resumed_at_step = checkpoint.state->step;
    return {};
  } catch (const Error& error) {
    video.plan = pipeline.resolve_anywhere(video.options.request);
    return error;
  }
}

nlohmann::json expected_video(const VideoTask& video) {
  const models::Plan& plan = video.plan;
  const RunOptions& run = video.options.run;
  nlohmann::json report = {{"output", run.output.string()},
                           {"width", plan.width},
                           {"height", plan.height},
                           {"frames", plan.decoded_frames},
                           {"fps", run.video.fps},
                           {"steps", plan.asked_steps},
                           {"attention", attention::name(plan.attention_mode)},
                           {"preset", video.settings.preset().name}};
  if (video.resumed_at_step > 0) report["resumed_at_step"] = video.resumed_at_step;
  if (plan.cache.on()) report["cache"] = models::name(plan.cache);
  if (!video.options.random_seed) report["seed"] = plan.seed;
  if (const std::string choice = chosen_text(video); !choice.empty()) report["choice"] = choice;
  return report;
}

nlohmann::json expected_memory(const models::Plan& plan, const models::Pipeline& pipeline, int64_t ranks) {
  nlohmann::json stages = nlohmann::json::array();
  bool fits = true;
  for (const models::StageEstimate& stage : pipeline.likely_stages(plan, ranks)) {
    stages.push_back(stage_report(stage));
    fits = fits && stage.remedy.empty();
  }
  nlohmann::json report = {{"device", pipeline.device().str()},
                           {"obtainable_bytes", models::obtainable_memory(pipeline.device())},
                           {"stages", stages},
                           {"fits", fits}};
  if (const auto foreseen = pipeline.foreseen_memory(plan, ranks)) report["plan"] = plan_report(*foreseen);
  return report;
}

nlohmann::json expected_model(const RunOptions& run, const models::Pipeline& pipeline, const models::Plan& plan) {
  nlohmann::json report = {
      {"path", run.model.string()},        {"family", pipeline.family()}, {"variant", pipeline.spec().variant},
      {"device", pipeline.device().str()}, {"dtype", plan.dtype},         {"weights", plan.weights}};
  if (!pipeline.part_files().empty()) report["files"] = models::shown(pipeline.part_files());
  return report;
}

std::string model_text(const nlohmann::json& model) {
  const auto text = [&](const char* key) { return model.at(key).get<std::string>(); };
  std::string lines = "model " + one_line(text("path")) + ": " + text("family") + " " + text("variant") + ", in " +
                      text("dtype") +
                      (text("weights") == "fp8"    ? " with 8-bit weights"
                       : text("weights") == "int8" ? " with int8 weights"
                                                   : "") +
                      " on " + text("device") + "\n";
  const auto files = model.find("files");
  if (files == model.end()) return lines;
  for (const auto& [role, file] : files->items())
    lines += indented(role) + one_line(file.at("path").get<std::string>()) + ", " +
             human_bytes(file.at("bytes").get<uint64_t>()) + "\n";
  return lines;
}

std::string video_text(const nlohmann::json& video) {
  const auto frames = video.at("frames").get<int64_t>();
  const double fps = video.at("fps");
  std::string text = counted(frames, "frame") + " " + video.at("width").dump() + "x" + video.at("height").dump();
  text += ", " + fixed(static_cast<double>(frames) / fps, 1) + " s at " + exact_text(fps) + " frames a second, " +
          counted(video.at("steps").get<int64_t>(), "step");
  if (video.contains("seed")) text += ", seed " + video.at("seed").dump();
  if (video.contains("resumed_at_step")) text += ", goes on from step " + video.at("resumed_at_step").dump();
  return text;
}

std::string memory_text(const nlohmann::json& memory) {
  std::string text = "memory: " + human_bytes(memory.at("obtainable_bytes").get<uint64_t>()) + " on " +
                     memory.at("device").get<std::string>() + "\n";
  for (const nlohmann::json& stage : memory.at("stages"))
    text += indented(stage.at("stage").get<std::string>()) + stage_text(stage) + "\n";
  if (memory.contains("plan")) text += indented("plan") + memory.at("plan").at("text").get<std::string>() + "\n";
  return text;
}

}  // namespace sparsereel::app
