// Makes a server's videos in this process.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "app/jobs/job.h"
#include "app/jobs/kept_texts.h"
#include "app/jobs/preview.h"
#include "app/ranks/team.h"
#include "app/serve/maker.h"
#include "app/serve/planner.h"

namespace sparsereel::app::serve {

class LocalMaker final : public Maker, private JobUser, private models::RunObserver {
 public:
  /// `folder` holds the videos. `device` replaces the device of the settings, unless it is empty. `team` makes each
  /// video together with other processes; null if this process makes it alone. `model` and `team` must outlive this
  /// object.
  LocalMaker(const ServedModel& model, std::filesystem::path folder, std::string device = {}, Team* team = nullptr)
      : model_(model),
        folder_(std::move(folder)),
        device_(std::move(device)),
        team_(team),
        job_(
            *this, [this] { return cancelled_(); }, policy()) {}

  void open(MakingObserver& observer) override;
  /// After a failure, also throws if the GPU or another process of the team is broken.
  void make(const VideoRecord& record, const std::function<bool()>& cancelled) override;
  bool collect(const std::function<bool()>& enough) override;
  bool is_alive() override { return true; }

 private:
  JobPolicy policy();
  void make_video(const VideoRecord& record);
  models::Pipeline& pipeline_for(const VideoTask& video);
  void use_device(VideoTask& video) const;
  int64_t ranks() const { return team_ == nullptr ? 1 : team_->size(); }
  void resolve(VideoTask& video, models::Pipeline& pipeline);
  std::unique_ptr<Previews> previews_of(const models::Pipeline& pipeline);
  void check_machine();

  models::RunObserver& observer() override { return *this; }
  void warn(const VideoTask& video, const std::string& warning) override;
  void written(const VideoTask& video, const Made& made) override;
  void ended(const VideoTask& video, const std::exception_ptr& failure, std::vector<std::string>& warnings) override;
  void failed(const VideoTask& video) override;
  void stage(const std::string& name) override;
  void step(const models::StepDone& step) override;
  void decoded(const models::PieceProgress& pieces) override;

  const ServedModel& model_;
  const std::filesystem::path folder_;
  const std::string device_;
  Team* const team_;
  GenerateOptions team_model_;  // the model that the team uses
  KeptTexts texts_;
  OpenPipeline pipeline_;
  MakingObserver* heard_ = nullptr;
  std::function<bool()> cancelled_;    // of the video that is being made
  Previews* previews_ = nullptr;       // of the video that is being made; null if the colors of its latents are unknown
  MadeVideo written_;                  // used only in the thread that writes
  const VideoTask* failed_ = nullptr;  // the last video for which failed() was called
  std::unique_ptr<VideoTask> writing_;  // the video that is being written, or was written last
  Job job_;  // last member: its destructor waits for the thread that writes, which uses the others
};

}  // namespace sparsereel::app::serve
