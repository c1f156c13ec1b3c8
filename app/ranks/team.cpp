// A world for as long as no video fails.
#include "app/ranks/team.h"

#include <utility>

#include "app/ranks/shared_video.h"
#include "models/weights/device.h"

namespace sparsereel::app {

Team::Team(std::vector<std::string> devices, int threads) : devices_(std::move(devices)), threads_(threads) {
  if (size() > 1) meet();
}

void Team::meet() {
  world_ = World::start(devices_);
  models::start_device(world_->device());
  world_->connect();
}

void Team::use(const GenerateOptions& model) {
  model_ = &model;
  if (size() == 1) return;
  if (!world_) meet();
  world_->need_others(true);
  tell_model(*world_, model, threads_);
}

World* Team::ready() {
  if (size() > 1 && !world_) use(*model_);
  return world_.get();
}

void Team::after_failure() {
  if (!world_ || !world_->ended()) return;
  if (!world_->failed_here()) world_->control().check();
  world_.reset();
}

void Team::finish() {
  if (world_) world_->finish();
}

}  // namespace sparsereel::app
