// Passes each call on to the workers.
#include "app/serve/workers.h"

#include <algorithm>
#include <iostream>

#include "models/engine/failure.h"

namespace sparsereel::app::serve {

Workers::Workers(const WorkerParts& parts, const std::vector<Worker::StartMaker>& start_makers)
    : told_(start_makers.size()) {
  for (const Worker::StartMaker& start_maker : start_makers)
    all_.push_back(std::make_unique<Worker>(parts, start_maker, [this] { wake(); }));
}

void Workers::start() {
  for (const auto& worker : all_) worker->start();
}

bool Workers::is_ready() const {
  return std::ranges::all_of(all_, [](const auto& worker) { return worker->is_ready(); });
}

std::exception_ptr Workers::failure() const {
  std::exception_ptr last;
  size_t failed = 0;
  for (const auto& worker : all_) {
    const std::exception_ptr failure = worker->failure();
    if (!failure) continue;
    if (!worker->is_ready()) return failure;
    last = failure;
    ++failed;
  }
  return failed == all_.size() ? last : nullptr;
}

void Workers::warn_of_failures() {
  for (size_t i = 0; i < all_.size(); ++i) {
    const std::exception_ptr failure = told_[i] ? nullptr : all_[i]->failure();
    if (!failure) continue;
    told_[i] = true;
    std::cerr << "warning: " + std::string(models::as_error(failure).what()) + "; the other GPUs go on\n";
  }
}

std::string Workers::preview(const std::string& id) const {
  for (const auto& worker : all_)
    if (std::string png = worker->preview(id); !png.empty()) return png;
  return {};
}

void Workers::wake() {
  for (const auto& worker : all_) worker->wake();
}

bool Workers::cancel(const std::string& id) {
  return std::ranges::any_of(all_, [&](const auto& worker) { return worker->cancel(id); });
}

void Workers::stop() {
  for (const auto& worker : all_) worker->begin_stop();
  for (const auto& worker : all_) worker->stop();
}

}  // namespace sparsereel::app::serve
