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
      : model_(model), folder_(std::move(folder)), device_(std::move(device)), team_(team) {}

  void open() override;
  /// After a failure, also throws if the GPU or another process of the team is broken.
  MadeVideo make(const VideoRecord& record, MakingObserver& observer, const std::function<bool()>& cancelled) override;
  bool is_alive() override { return true; }

 private:
  MadeVideo make_video(const VideoRecord& record, const std::function<bool()>& cancelled);
  models::Pipeline& pipeline_for(const VideoTask& video);
  void use_device(VideoTask& video) const;
  int64_t ranks() const { return team_ == nullptr ? 1 : team_->size(); }
  void resolve(VideoTask& video, models::Pipeline& pipeline);
  std::unique_ptr<Previews> previews_of(const models::Pipeline& pipeline);
  void check_machine();

  models::RunObserver& observer() override { return *this; }
  void warn(const VideoTask& video, const std::string& warning) override;
  void written(const VideoTask& video, const Made& made) override;
  void stage(const std::string& name) override;
  void step(const models::StepDone& step) override;
  void decoded(const models::PieceProgress& pieces) override;

  const ServedModel& model_;
  const std::filesystem::path folder_;
  const std::string device_;
  Team* const team_;
  GenerateOptions team_model_;  // the model that the team uses
  KeptTexts texts_;
  std::string pipeline_key_;
  std::shared_ptr<models::Pipeline> pipeline_;
  MakingObserver* heard_ = nullptr;  // observer of the running video
  Previews* previews_ = nullptr;     // previews of the running video; null if it has none
  double decode_seconds_ = 0;        // of the running video
};

}  // namespace sparsereel::app::serve
