// Implements `generate --dry-run`: shows which videos and files a run would make, and how much memory it would need.
#include "app/commands/dry_run.h"

#include <iostream>

#include "app/called_program.h"
#include "app/jobs/dry_run.h"
#include "app/jobs/outputs.h"
#include "app/jobs/write.h"
#include "app/ranks/asked_ranks.h"
#include "models/layers/cpu_threads.h"

namespace sparsereel::app {
namespace {

std::vector<VideoTask> checked_videos(const std::vector<Settings>& settings) {
  std::vector<VideoTask> videos;
  for (const Settings& each : settings) {
    VideoTask& video = videos.emplace_back();
    video.settings = each;
    video.options = read_generate_options(each);
    check_outputs(each, video.options.run);
  }
  return videos;
}

std::string text_of_videos(const nlohmann::json& videos) {
  std::string text;
  for (const nlohmann::json& video : videos) {
    text += "video " + video.at("output").get<std::string>() + ": " + video_text(video) + "\n";
    const bool chosen = video.contains("choice") && (&video == &videos.front());
    if (chosen) text += "  " + video.at("choice").get<std::string>() + "\n";
  }
  return text;
}

}  // namespace

void show_generation(const std::vector<Settings>& settings, RunReport& report) {
  std::vector<VideoTask> videos = checked_videos(settings);
  const GenerateOptions& options = videos.front().options;
  if (options.run.threads) models::set_threads(static_cast<int>(*options.run.threads));
  models::start_device(options.request.device);
  const auto pipeline = models::Pipeline::open(open_model(options.run), options.request);
  const int64_t ranks = ranks_of_video(settings.front(), process_environment);
  LoadedFiles files;
  std::optional<Error> failure;
  nlohmann::json& content = report.content;
  std::vector<VideoTask*> all;
  for (VideoTask& video : videos) {
    const std::optional<Error> own = foresee(video, *pipeline, files, ranks);
    if (own && !failure) failure = video.settings.with_place(*own);
    content["videos"].push_back(expected_video(video));
    all.push_back(&video);
  }
  content["dry_run"] = true;
  content["model"] = expected_model(options.run, *pipeline, videos.front().plan);
  content["memory"] = expected_memory(videos.front().plan, *pipeline, ranks);
  content["warnings"] = early_warnings(all);
  print_warnings(content["warnings"]);
  end_dry_run(kDryRunHead + model_text(content["model"]) + text_of_videos(content["videos"]) +
                  memory_text(content["memory"]) + as_called(kNoTime),
              failure, report);
}

void end_dry_run(std::string text, const std::optional<Error>& failure, RunReport& report) {
  text.pop_back();  // the report adds the final newline
  if (!failure) {
    report.last_line = std::move(text);
    return;
  }
  if (!report.print) std::cout << text << std::endl;
  throw *failure;
}

}  // namespace sparsereel::app
