// Adds waiting videos to a server's store, and replaces the server's video makers by ones that tests control.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "app/serve/maker.h"
#include "app/serve/random_name.h"
#include "app/serve/store.h"

namespace sparsereel::test {

/// Adds `count` videos of the model "toy" to the queue and returns their ids.
inline std::vector<std::string> add_videos(app::serve::VideoStore& store, size_t count) {
  std::vector<std::string> ids;
  for (size_t i = 0; i < count; ++i) {
    ids.push_back("video_" + app::serve::random_name());
    app::serve::VideoRecord record;
    record.id = ids.back();
    record.model = "toy";
    record.values["prompt"] = "a circle";
    store.add(std::move(record), 1000);
  }
  return ids;
}

/// A Maker whose make() calls a function of the test. The maker is dead once that function throws MakerLost.
class FakeMaker final : public app::serve::Maker {
 public:
  using Make = std::function<app::serve::MadeVideo(const app::serve::VideoRecord&, app::serve::MakingObserver&,
                                                   const std::function<bool()>& cancelled)>;

  explicit FakeMaker(Make make) : make_(std::move(make)) {}
  void open(app::serve::MakingObserver& observer) override { observer_ = &observer; }
  void make(const app::serve::VideoRecord& record, const std::function<bool()>& cancelled) override {
    try {
      observer_->ended(record.id, make_(record, *observer_, cancelled));
    } catch (const app::serve::MakerLost&) {
      is_alive_ = false;
      throw;
    }
  }
  bool collect(const std::function<bool()>& /*enough*/) override { return true; }
  bool is_alive() override { return is_alive_; }

 private:
  const Make make_;
  app::serve::MakingObserver* observer_ = nullptr;
  bool is_alive_ = true;
};

/// A latch that is closed at first: threads wait until a test opens it.
class Door {
 public:
  void open() {
    {
      const std::lock_guard lock(mutex_);
      is_open_ = true;
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

}  // namespace sparsereel::test
