// Turns what a client asked for into a video that a job can make.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

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

/// A pipeline that stays open as long as it can make the next video.
class OpenPipeline {
 public:
  /// Returns true if the pipeline can make the video. In a folder of several models, videos with images and videos
  /// without them may choose different files. They need different pipelines only if the chosen files differ.
  bool serves(const VideoTask& video);
  /// Opens the pipeline of a video. Loads no weights.
  models::Pipeline& open(const VideoTask& video);
  void close();
  /// Returns the open pipeline; null if there is none.
  models::Pipeline* get() const { return pipeline_.get(); }

 private:
  std::string key_;  // names everything that decides which pipeline a video needs, except its images
  std::vector<std::filesystem::path> places_;   // files and folders from which the model is read
  std::map<std::optional<bool>, bool> served_;  // result of serves() by RunOptions::with_images
  std::shared_ptr<models::Pipeline> pipeline_;
};

/// Checks requests before they enter the queue, with its own pipeline, which never loads weights. Safe for threads.
class RequestCheck {
 public:
  /// Checks the video's values and makes its plan, but does not check the memory. Throws Error naming the field.
  void settle(VideoTask& video);
  /// Returns the plan of a video with the server's own settings, with a made-up image if the model needs one.
  models::Plan default_plan(const ServedModel& model);
  /// Describes the model.
  models::ModelSpec spec(const ServedModel& model);
  /// Returns true if previews of the model's videos can be made. Asks the model once.
  bool has_previews(const ServedModel& model);

 private:
  models::Pipeline& pipeline_for(const VideoTask& video);

  std::mutex mutex_;
  OpenPipeline pipeline_;  // pipeline of the last video that was checked
  std::optional<bool> has_previews_;
};

}  // namespace sparsereel::app::serve
