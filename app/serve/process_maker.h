// Makes a server's videos on one GPU, or on a group of GPUs, in a process of its own: if a GPU fails, only its process
// ends. The server's process receives {"ready": true} once the model is open, or {"failed": ..}. It sends
// {"gpus": [..]} first, then {"video": record}, and {"cancel": true} while the video is made. It receives the calls of
// a MakingObserver, and {"free": true} once the next video may begin. The processes of a group talk to the server
// through that of its first GPU.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "app/jobs/batch/gpu_line.h"
#include "app/ranks/asked_ranks.h"
#include "app/ranks/children.h"
#include "app/serve/maker.h"
#include "app/serve/planner.h"
#include "models/parallel/links.h"
#include "models/parallel/patience.h"

namespace sparsereel::app::serve {

class ProcessMaker final : public Maker {
 public:
  /// Starts the process, with this process's command line. The thread that calls this must outlive the object, because
  /// the process ends with that thread.
  explicit ProcessMaker(GpusOfAVideo gpus);
  /// Ends the process.
  ~ProcessMaker() override;
  ProcessMaker(const ProcessMaker&) = delete;
  ProcessMaker& operator=(const ProcessMaker&) = delete;

  void open(MakingObserver& observer) override;
  void make(const VideoRecord& record, const std::function<bool()>& cancelled) override;
  bool collect(const std::function<bool()>& enough) override;
  bool is_alive() override;

 private:
  nlohmann::json next(const std::function<bool()>& enough);
  void hear(const nlohmann::json& message);
  [[noreturn]] void lose(const std::string& why);

  const GpusOfAVideo gpus_;
  const models::GroupLimits limits_;
  models::Link link_;
  sets::LineSocket line_;
  models::Patience patience_;
  MakingObserver* observer_ = nullptr;
  int unfinished_ = 0;  // videos that have not ended
  bool lost_ = false;
  std::string how_;   // how the process ended
  std::mutex mutex_;  // guards how_
  std::unique_ptr<Children> children_;
};

/// Runs in the process of a GPU: makes the videos that the server's process sends. `folder` holds the videos.
void make_for_server(const ServedModel& model, const std::filesystem::path& folder, const StartedRank& gpu);

}  // namespace sparsereel::app::serve
