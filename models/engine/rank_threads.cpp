// Every rank except rank 0 has a worker thread. Sockets connect the ranks; ranks with GPUs also use NCCL.
#include "models/engine/rank_threads.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "hilbert/error.h"
#include "models/engine/failure.h"
#include "models/engine/worker.h"
#include "models/layers/cpu_threads.h"
#include "models/parallel/devices_of_ranks.h"
#include "models/parallel/nccl_group.h"
#include "models/parallel/socket_group.h"
#include "models/store/weights/device.h"
#include "models/store/weights/stoppable_work.h"

namespace sparsereel::models {
namespace {

/// Sets the number of CPU threads that libtorch uses for this thread's work. The destructor restores the number.
class ThreadsHere {
 public:
  explicit ThreadsHere(int threads) : before_(at::get_num_threads()) { set_threads(threads); }
  ~ThreadsHere() { set_threads(before_); }
  ThreadsHere(const ThreadsHere&) = delete;
  ThreadsHere& operator=(const ThreadsHere&) = delete;

 private:
  int before_;
};

/// Returns the pipeline's GPU; nothing on a CPU.
std::optional<at::Device> gpu_of(const Pipeline& pipeline) {
  return pipeline.device().is_cpu() ? std::nullopt : std::optional(pipeline.device());
}

}  // namespace

std::vector<std::string> devices_of_threads(int64_t ranks, const std::string& device) {
  if (ranks == 1) return {device};
  const bool asks_for_gpus = device != "cpu" && cuda_available();
  return devices_of_ranks(ranks, device, asks_for_gpus ? at::detail::getCUDAHooks().deviceCount() : 0);
}

/// One rank. Rank 0 runs in the caller's thread.
class RankThreads::ThreadRank final : public Rank {
 public:
  ThreadRank(std::shared_ptr<Pipeline> pipeline, std::shared_ptr<SocketGroup> control)
      : pipeline_(std::move(pipeline)), control_(std::move(control)) {}
  ~ThreadRank() override { join(); }
  ThreadRank(const ThreadRank&) = delete;
  ThreadRank& operator=(const ThreadRank&) = delete;

  void start() {
    thread_ = std::thread([this] { follow(); });
  }
  /// Tells the thread to end soon, because nobody waits for its result.
  void leave() { leaving_ = true; }
  void join() {
    leave();
    if (thread_.joinable()) thread_.join();
  }

  SocketGroup& control() override { return *control_; }
  Group& group() override {
    if (!group_)
      group_ = on_cpu() ? std::shared_ptr<Group>(control_) : NcclGroup::connect(control_, pipeline_->device());
    return *group_;
  }
  void check() const override { control_->check(); }
  void end(const Error& error) noexcept override { control_->end(error); }
  bool on_cpu() const { return pipeline_->device().is_cpu(); }

 private:
  void follow() noexcept {
    try {
      const c10::InferenceMode mode;
      const c10::OptionalDeviceGuard device(gpu_of(*pipeline_));
      const AllThreads threads;
      const StoppableWork stoppable(leaving_);
      work(*this, {.device = pipeline_->device().str(), .open = [this](const nlohmann::json& model) {
                     if (on_cpu()) set_threads(static_cast<int>(told_number(model, "threads", 1, 4096)));
                     pipeline_->check_weights();
                     pipeline_->load_transformer();
                     return pipeline_;
                   }});
    } catch (const WorkStopped&) {  // nobody waits for the result
    } catch (...) {
      end(as_error(std::current_exception()));
    }
  }

  std::shared_ptr<Pipeline> pipeline_;
  std::shared_ptr<SocketGroup> control_;
  std::shared_ptr<Group> group_;  // null until it is first needed
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};

RankThreads::RankThreads(std::vector<std::shared_ptr<Pipeline>> pipelines) : pipelines_(std::move(pipelines)) {}

RankThreads::~RankThreads() {
  stop();
}

void RankThreads::start() {
  if (!pipelines_.front()->device().is_cpu()) NcclGroup::set_environment();
  auto links = local_links(size());
  std::vector<std::future<std::unique_ptr<ThreadRank>>> all;
  for (size_t rank = 0; rank < pipelines_.size(); ++rank)
    all.push_back(std::async(std::launch::async, [this, rank, own = std::move(links[rank])] {
      const std::shared_ptr<Pipeline>& pipeline = pipelines_[rank];
      return std::make_unique<ThreadRank>(
          pipeline, SocketGroup::connect(static_cast<int64_t>(rank), own, pipeline->device().str()));
    }));
  std::vector<std::unique_ptr<ThreadRank>> members;
  for (auto& each : all) members.push_back(each.get());
  members_ = std::move(members);
  try {
    for (size_t rank = 1; rank < members_.size(); ++rank) members_[rank]->start();
  } catch (...) {
    members_.front()->control().abort("left before the end");
    stop();
    throw;
  }
}

void RankThreads::stop() noexcept {
  if (members_.empty()) return;
  for (const auto& member : members_) member->leave();
  try {
    send_end(*members_.front());
  } catch (...) {  // most likely the other ranks have already ended
    members_.front()->control().abort("left before the end");
  }
  for (const auto& member : members_) member->join();
  members_.clear();
}

Outcome RankThreads::generate(const Request& request, const Plan& plan, const Inputs& inputs, const Run& run) {
  const c10::InferenceMode mode;
  Pipeline& pipeline = *pipelines_.front();
  pipeline.check_ranks(plan, size());
  pipeline.check_init_latents(plan, inputs.init_latents);
  // If one rank has ended, stop all of them: the others may not know it yet.
  if (std::ranges::any_of(members_, [](const auto& member) { return member->control().ended(); })) stop();
  if (members_.empty()) start();
  const c10::OptionalDeviceGuard device(gpu_of(pipeline));
  ThreadRank& leader = *members_.front();
  const int threads = std::max(1, at::get_num_threads() / static_cast<int>(size()));  // CPU threads of each rank
  send_model(leader, {{"threads", threads}});
  Outcome begun;
  Inputs told = inputs;
  told.keep_transformer = true;
  pipeline.check_weights(inputs.images.any());
  if (!told.conditioning.defined()) told.conditioning = pipeline.encode(plan, inputs, run, begun).to(at::kCPU);
  const ThreadsHere threads_here(leader.on_cpu() ? threads : at::get_num_threads());
  return lead_video(leader, pipeline, request, plan, told, run, std::move(begun));
}

}  // namespace sparsereel::models
