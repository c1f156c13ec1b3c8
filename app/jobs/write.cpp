// Describes defects and outputs of a video, and builds the command that decodes kept latents again.
#include "app/jobs/write.h"

#include <ATen/ATen.h>

#include <iostream>
#include <set>

#include "app/called_program.h"
#include "app/counted.h"
#include "app/terminal.h"
#include "models/engine/frames.h"
#include "models/request/outcome.h"

namespace sparsereel::app {

FramesView frames_view(const at::Tensor& frames) {
  return {.data = frames.const_data_ptr<float>(),
          .frames = frames.size(0),
          .height = frames.size(1),
          .width = frames.size(2)};
}

std::string defect_warning(const models::FrameFacts& frames, KeptLatents& kept) {
  const std::string wrong = models::defect(frames);
  if (!wrong.empty())
    return "the video " + wrong + (kept.saved().empty() ? "" : "; its latents are in " + kept.saved().string());
  kept.let_go();
  return {};
}

std::string decode_command(const Settings& settings, const RunOptions& run, const std::filesystem::path& latents) {
  std::string command = called_program() + " decode " + shell_quoted(latents) + " -o " + shell_quoted(run.output) +
                        (run.random_weights ? " --random-weights " : " -m ") + shell_quoted(run.model);
  // Leave out options that are already in the command, options that only control reports, and values that come from the
  // model's file in configs/.
  static const std::set<std::string> left_out = {"model", "random_weights", "output", "report",
                                                 "quiet", "verbose",        "json"};
  const bool encoded = output_kind(run.output) == OutputKind::encoded;
  for (const OptionSpec& option : option_table()) {
    const std::string& key = option.key();
    const Setting* setting = takes(Command::decode, option) ? settings.find(key) : nullptr;
    if (setting == nullptr || setting->source == Source::matched_config || left_out.contains(key)) continue;
    if (!encoded && (key == "crf" || key == "codec")) continue;  // the output is not encoded
    if (key == "no_metadata" && !settings.flag(key)) continue;
    command.append(" ").append(option_name(key));
    if (key != "no_metadata") command.append(" ").append(shell_quoted(setting->value));
  }
  return command;
}

void add_output_report(nlohmann::json& report, const RunOptions& run, const models::VideoShape& shape,
                       const WrittenVideo& written) {
  report["output"] = {{"path", run.output.string()}, {"encoder", written.encoder}, {"bytes", written.bytes},
                      {"frames", shape.frames},      {"height", shape.height},     {"width", shape.width},
                      {"fps", run.video.fps}};
  if (!written.note.empty()) report["output"]["note"] = written.note;
  if (!run.contact_sheet.empty()) report["output"]["contact_sheet"] = run.contact_sheet.string();
  if (!run.preview.empty()) report["output"]["preview"] = run.preview.string();
}

std::string memory_summary(const nlohmann::json& memory) {
  std::string text = "peak memory " + human_bytes(memory.at("host_bytes").get<uint64_t>());
  if (memory.contains("device_bytes")) text += ", GPU " + human_bytes(memory.at("device_bytes").get<uint64_t>());
  return text;
}

void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) std::cerr << "warning: " << one_line(warning) << "\n";
}

}  // namespace sparsereel::app
