// Keeps a World until a video fails.
#include "app/ranks/team.h"

#include <utility>

#include "app/ranks/shared_model.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {

Team::Team(std::vector<std::string> devices, int threads, bool together)
    : devices_(std::move(devices)), threads_(threads), together_(together) {
  if (together_) meet();
}

void Team::meet() {
  try {
    std::unique_ptr<World> world = World::start(devices_);
    world->outlive();
    models::start_device(world->device());
    world->connect();
    world_ = std::move(world);
  } catch (...) {
    not_met_ = std::current_exception();
    throw;
  }
}

void Team::use(const GenerateOptions& model) {
  model_ = &model;
  if (!together_) return;
  if (world_ && world_->ended()) world_.reset();  // an idle rank has ended
  if (!world_) meet();
  send_model(*world_, model, threads_);
  world_->need_others(false);  // the others are not needed until there is a video
}

World* Team::ready() {
  if (together_ && (!world_ || world_->ended())) use(*model_);
  return world_.get();
}

void Team::after_failure() {
  if (not_met_) std::rethrow_exception(not_met_);
  if (!world_ || !world_->ended()) return;
  if (!world_->failed_here() && !world_->control().ended_soundly()) world_->control().check();
  world_.reset();
}

void Team::finish() {
  if (world_) world_->finish();
}

}  // namespace sparsereel::app
