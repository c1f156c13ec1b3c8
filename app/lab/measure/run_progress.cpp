// Implements what the benchmarks share: progress, the machine's name, checks, and the text stage.
#include "app/lab/measure/run_progress.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "app/called_program.h"
#include "app/jobs/image.h"
#include "app/jobs/interrupt.h"
#include "app/jobs/write.h"
#include "app/machine.h"
#include "app/options/options.h"
#include "app/options/tiny_model.h"
#include "attention/attention.h"
#include "hilbert/error.h"
#include "models/engine/frames.h"
#include "models/engine/text_stage.h"
#include "models/request/request.h"
#include "models/request/run.h"

namespace sparsereel::app {

void RunProgress::round(int64_t done, int64_t rounds) {
  stop_if_interrupted();
  const auto now = std::chrono::steady_clock::now();
  progress_.step(done, rounds, done > 0 ? std::chrono::duration<double>(now - last_).count() : 0);
  last_ = now;
}

void RunProgress::encoded(const models::PieceProgress& pieces) {
  stop_if_interrupted();
  progress_.step(pieces.done, pieces.total, 0);
}

void RunProgress::stop_if_interrupted() {
  if (!interrupted()) return;
  report_.recovery = recovery_;
  throw models::Cancelled{};
}

std::string remedy_of_interruption(const RunReport& report, const std::string& parts) {
  const bool is_reported = report.print || !report.path.empty();
  return "run the same command again; " + (is_reported
                                               ? "the report holds the " + parts + " that were done"
                                               : "--report FILE would have kept the " + parts + " that were done");
}

std::string device_name(c10::Device device) {
  if (device.is_cpu()) return cpu_model();
  const GpuDriver driver = find_gpu_driver();
  const auto index = static_cast<size_t>(std::max<int>(device.index(), 0));
  return index < driver.gpus.size() ? driver.gpus[index] : "unknown GPU";
}

void report_run(c10::Device device, RunReport& report) {
  report.content["machine"] = {{"device", device.str()},
                               {"name", device_name(device)},
                               {"cpu", cpu_model()},
                               {"threads", at::get_num_threads()},
                               {"libtorch", SPARSEREEL_TORCH_VERSION}};
  const std::time_t now = std::time(nullptr);
  std::array<char, 32> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  std::string command = called_program();
  for (const std::string& word : called_words()) command += " " + shell_quoted(word);
  report.content.update(
      {{"date", date.data()}, {"commit", source_commit()}, {"os", operating_system()}, {"command_line", command}});
}

void report_warnings(const std::vector<std::string>& warnings, RunReport& report) {
  print_warnings(warnings);
  report.content["warnings"] = warnings;
}

void add_model_warnings(std::vector<std::string>& warnings, const Settings& settings,
                        const std::filesystem::path& model, const models::Request& request, const models::Plan& plan,
                        const models::Pipeline& pipeline) {
  for (std::string& warning : no_effect_warnings(settings, no_effect_beside_model(request, pipeline)))
    warnings.push_back(std::move(warning));
  warnings.insert(warnings.end(), pipeline.weight_warnings().begin(), pipeline.weight_warnings().end());
  const VideoShape shape = {.width = plan.width, .height = plan.height, .frames = plan.num_frames};
  for (const std::string& warning : {models::unusual_size_warning(plan, pipeline.spec()), pipeline.slow_warning(plan),
                                     unusual_shape_warning(model, {shape})})
    if (!warning.empty()) warnings.push_back(warning);
}

void check_sparse_runs(const models::Pipeline& pipeline) {
  const std::string reason =
      attention::unsupported_reason(attention::Mode::sparse, pipeline.device(), pipeline.dtype());
  if (!reason.empty())
    throw bad_input("sparse attention cannot run on " + pipeline.device().str() + ": " + reason,
                    "choose another --dtype or --device");
}

std::vector<models::Conditioning> encode_texts(models::Pipeline& pipeline, const std::vector<models::Plan>& plans,
                                               PictureFiles& pictures, RunProgress& progress,
                                               const std::function<void(int64_t done)>& before) {
  models::Run run;
  run.observer = &progress;
  ImageEncodings images;
  std::vector<models::Conditioning> texts;
  for (const models::Plan& plan : plans) {
    if (plan.has_images() && !images.has(plan)) progress.stage("image");
    texts.push_back(plan.has_images() ? images.of(plan, pipeline, pictures, run).conditioning : models::Conditioning{});
  }
  progress.stage("text");
  models::TextStage& text = pipeline.text_stage();
  text.load();
  for (size_t i = 0; i < plans.size(); ++i) {
    before(static_cast<int64_t>(i));
    models::Conditioning conditioning = text.encode(plans[i], nullptr, texts[i].seen).to(at::kCPU);
    conditioning.take_video(texts[i]);
    texts[i] = std::move(conditioning);
  }
  text.release();
  return texts;
}

void load_transformer(models::Pipeline& pipeline, const models::Plan& plan, RunProgress& progress) {
  if (pipeline.has_transformer()) return;
  progress.stage("load transformer");
  pipeline.settle_memory(plan);
  pipeline.load_transformer();
}

}  // namespace sparsereel::app
