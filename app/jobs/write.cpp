// Warns if a finished video is black or has NaN in its sound, describes the files that were written, and builds the
// command that decodes the saved latents again.
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

SoundView sound_view(const models::Sound& sound) {
  if (!sound.samples.defined()) return {};
  return {.format = {.channels = sound.samples.size(0), .sampling_rate = sound.sampling_rate},
          .samples = sound.samples.const_data_ptr<float>(),
          .count = sound.samples.size(1)};
}

std::vector<std::string> defects(const models::FrameFacts& frames, const WrittenSound& sound) {
  std::vector<std::string> all;
  if (const std::string wrong = models::defect(frames); !wrong.empty()) all.push_back("the video " + wrong);
  if (sound.silenced > 0)
    all.push_back("the sound held NaN or infinity in " + std::to_string(sound.silenced) + " of " +
                  counted(sound.count * sound.format.channels, "sample") + "; they are silent");
  return all;
}

std::vector<std::string> defect_warnings(const models::FrameFacts& frames, const WrittenSound& sound,
                                         KeptLatents& kept) {
  std::vector<std::string> warnings = defects(frames, sound);
  if (warnings.empty()) kept.let_go();
  if (!kept.saved().empty())
    for (std::string& warning : warnings) warning += "; its latents are in " + kept.saved().string();
  return warnings;
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
    const bool is_flag = option.kind() == ValueKind::flag;
    if (is_flag && !settings.flag(key)) continue;
    command.append(" ").append(option_name(key));
    if (!is_flag) command.append(" ").append(shell_quoted(setting->value));
  }
  return command;
}

void add_output_report(nlohmann::json& report, const RunOptions& run, const models::VideoShape& shape,
                       const WrittenVideo& written) {
  report["output"] = {{"path", run.output.string()}, {"encoder", written.encoder}, {"bytes", written.bytes},
                      {"frames", shape.frames},      {"height", shape.height},     {"width", shape.width},
                      {"fps", run.video.fps}};
  if (!written.note.empty()) report["output"]["note"] = written.note;
  if (written.sound.any()) report["output"]["sound"] = sound_report(written.sound);
  if (!run.contact_sheet.empty()) report["output"]["contact_sheet"] = run.contact_sheet.string();
  if (!run.preview.empty()) report["output"]["preview"] = run.preview.string();
}

nlohmann::json sound_report(const WrittenSound& sound) {
  nlohmann::json report = {{"seconds", sound.seconds()},
                           {"sampling_rate", sound.format.sampling_rate},
                           {"channels", sound.format.channels},
                           {"encoder", sound.encoder}};
  if (!sound.file.empty()) report["path"] = sound.file.string();
  return report;
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
