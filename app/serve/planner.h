// Turns what a client asked for into a video that a job can make.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "app/jobs/video.h"
#include "app/serve/fields.h"
#include "app/serve/hidden_paths.h"
#include "app/serve/record.h"
#include "app/serve/store.h"

namespace sparsereel::app::serve {

/// The model and the settings that the server makes its videos with.
struct ServedModel {
  Settings settings;  // merged: the command line, --config and the model's config
  std::string name;   // as clients call it
  NamedFolders folders;
  HiddenPaths hidden;
};

/// Returns the name by which clients call the settings' model: that of its folder or file.
std::string name_of_model(const Settings& settings);

/// Returns a video with the server's own settings and no prompt.
VideoTask plan_defaults(const ServedModel& model);

/// Merges a record's values over the server's settings, as a row of a prompt set is merged. `folder` holds the videos.
/// Throws Error naming the field.
VideoTask plan_video(const VideoRecord& record, const ServedModel& model, const std::filesystem::path& folder);

/// Opens the pipeline of a video. Loads no weights.
std::shared_ptr<models::Pipeline> open_pipeline(const VideoTask& video);

/// Checks requests before they wait, with a pipeline of its own that never loads weights. Safe for threads.
class RequestCheck {
 public:
  /// Settles the video's plan, except for the check of memory. Throws Error naming the field.
  void settle(VideoTask& video);
  /// Returns the plan of a video with the server's own settings, with a made-up image if the model needs one.
  models::Plan default_plan(const ServedModel& model);
  /// Describes the model.
  models::ModelSpec spec(const ServedModel& model);
  /// Returns true if previews of the model's videos can be made.
  bool has_previews(const ServedModel& model);

 private:
  models::Pipeline& pipeline_for(const VideoTask& video);

  std::mutex mutex_;
  std::string key_;
  std::shared_ptr<models::Pipeline> pipeline_;  // of the last video
};

}  // namespace sparsereel::app::serve
