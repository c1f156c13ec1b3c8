// A thread for each other rank and video; sockets between them, and NCCL where they have GPUs.
#include "models/engine/rank_threads.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <future>
#include <optional>
#include <thread>
#include <utility>

#include "hilbert/error.h"
#include "models/engine/failure.h"
#include "models/layers/cpu_threads.h"
#include "models/parallel/nccl_group.h"
#include "models/parallel/socket_group.h"
#include "models/request/outcome.h"
#include "models/request/run.h"
#include "models/store/weights/device.h"
#include "models/store/weights/stoppable_work.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kMostRanks = 64;

/// So many CPU threads for what this thread does, while one lives.
class ThreadsHere {
 public:
  explicit ThreadsHere(int threads) : before_(at::get_num_threads()) { set_threads(threads); }
  ~ThreadsHere() { set_threads(before_); }
  ThreadsHere(const ThreadsHere&) = delete;
  ThreadsHere& operator=(const ThreadsHere&) = delete;

 private:
  int before_;
};

/// For guards: of a GPU.
std::optional<at::Device> device_of(const Pipeline& pipeline) {
  return pipeline.device().is_cpu() ? std::nullopt : std::optional(pipeline.device());
}

}  // namespace

std::vector<std::string> devices_of_threads(int64_t ranks, const std::string& device) {
  const std::string text = std::to_string(ranks);
  if (ranks < 1 || ranks > kMostRanks)
    throw bad_option("gpus", text + " is no number of cards from 1 to " + std::to_string(kMostRanks),
                     "give that of this machine");
  if (ranks == 1) return {device};
  if (device == "cpu") return std::vector<std::string>(static_cast<size_t>(ranks), device);
  if (device != "auto" && device != "cuda")
    throw bad_option("device", device + " is one card, but gpus " + text + " are asked for",
                     "leave it open, and choose cards with CUDA_VISIBLE_DEVICES");
  const int64_t cards = cuda_available() ? at::detail::getCUDAHooks().deviceCount() : 0;
  if (ranks > cards)
    throw bad_option("gpus", text + " is more than this machine has: " + std::to_string(cards), "give at most so many");
  std::vector<std::string> devices;
  for (int64_t rank = 0; rank < ranks; ++rank) devices.push_back("cuda:" + std::to_string(rank));
  return devices;
}

/// One video by all ranks.
class RankThreads::Video {
 public:
  Video(RankThreads& ranks, const Plan& plan, const Inputs& inputs, const Run& given)
      : ranks_(ranks),
        plan_(plan),
        inputs_(inputs),
        given_(given),
        threads_(std::max(1, at::get_num_threads() / size())) {}
  ~Video() { join(); }
  Video(const Video&) = delete;
  Video& operator=(const Video&) = delete;

  /// By the caller's thread.
  Outcome lead() {
    bool told = false;
    try {
      for (int rank = 1; rank < size(); ++rank) others_.emplace_back([this, rank] { follow(rank); });
      Outcome begun;
      Inputs inputs = inputs_;
      pipeline(0).check_weights(inputs.images.first != nullptr);
      if (!inputs.conditioning.defined())
        inputs.conditioning = pipeline(0).encode(plan_, inputs, given_, begun).to(at::kCPU);
      told_.set_value(inputs.conditioning);
      told = true;
      return made(inputs, std::move(begun));
    } catch (...) {
      if (told) {
        give_up(0);
      } else {
        nothing_to_make_ = true;
        told_.set_exception(std::current_exception());
      }
      throw;
    }
  }

 private:
  int size() const { return static_cast<int>(ranks_.pipelines_.size()); }
  Pipeline& pipeline(int rank) const { return *ranks_.pipelines_[static_cast<size_t>(rank)]; }
  SocketGroup& control(int rank) const { return *ranks_.controls_[static_cast<size_t>(rank)]; }
  bool on_cpu() const { return pipeline(0).device().is_cpu(); }

  void join() {
    for (std::thread& other : others_) other.join();
    others_.clear();
  }

  /// Of what is being caught. After all were cancelled together, which other ranks always are, none waits for another.
  void give_up(int rank) const noexcept {
    try {
      throw;
    } catch (const Cancelled&) {
      if (rank == 0 && !cancelled_together_) control(rank).end(as_error(std::current_exception()));
    } catch (...) {
      control(rank).end(as_error(std::current_exception()));
    }
  }

  Group& group(int rank) {
    std::shared_ptr<Group>& own = ranks_.groups_[static_cast<size_t>(rank)];
    if (own) return *own;
    const auto& control = ranks_.controls_[static_cast<size_t>(rank)];
    if (on_cpu())
      own = control;
    else
      own = NcclGroup::connect(control, pipeline(rank).device());
    return *own;
  }

  /// Tells what rank 0's run tells. What came of the others counts once they are known to be there, which GPUs do not
  /// tell.
  class Checked final : public Observers {
   public:
    Checked(SocketGroup& control, RunObserver& given) : Observers({&given}), control_(control) {}

    void step(const StepDone& step) override {
      control_.check();
      try {
        Observers::step(step);
      } catch (const Cancelled&) {  // the others stop with this rank, where all ask each other
        stopped_ = true;
      }
    }
    void within_step(const WithinStep& step) override {
      control_.check();
      Observers::within_step(step);
    }
    void decoded(const Pieces& pieces) override {
      control_.check();
      Observers::decoded(pieces);
    }
    void latents(const Outcome& outcome) override {
      control_.check();
      Observers::latents(outcome);
    }
    /// By whoever heard of a step.
    bool stopped() const { return stopped_; }

   private:
    SocketGroup& control_;
    bool stopped_ = false;
  };

  Outcome made(Inputs inputs, Outcome begun) {
    const ThreadsHere threads(on_cpu() ? threads_ : at::get_num_threads());
    inputs.keep_transformer = true;
    Checked observer(control(0), given_.tell());
    Run run = given_;
    run.group = &group(0);
    run.observer = &observer;
    run.cancelled = [&] {
      control(0).check();
      return cancelled_together_ = observer.stopped() || given_.is_cancelled();
    };
    Outcome outcome = pipeline(0).generate(plan_, inputs, run, std::move(begun));
    if (observer.stopped()) {  // by the last step, with nothing to decode: all are done
      cancelled_together_ = true;
      throw Cancelled{};
    }
    return outcome;
  }

  /// Another rank's thread.
  void follow(int rank) noexcept {
    try {
      const c10::InferenceMode mode;
      const c10::OptionalDeviceGuard device(device_of(pipeline(rank)));
      const AllThreads threads;
      if (on_cpu()) set_threads(threads_);
      pipeline(rank).check_weights();
      load(rank);
      make(rank);
    } catch (const WorkStopped&) {  // rank 0 says why
    } catch (...) {
      give_up(rank);
    }
  }

  void load(int rank) {
    const StoppableWork stoppable(nothing_to_make_);
    pipeline(rank).load_transformer();
  }

  void make(int rank) {
    Inputs inputs = inputs_;
    inputs.images = {};
    try {
      inputs.conditioning = std::shared_future<Conditioning>(conditioning_).get();  // a copy for this thread
    } catch (...) {                                                                 // rank 0 says why there is none
      return;
    }
    inputs.keep_transformer = true;
    Run run;
    run.group = &group(rank);
    run.cancelled = [this, rank] {
      control(rank).check();
      return false;
    };
    run.checkpoints = given_.checkpoints;  // all ranks gather the states that rank 0 keeps
    pipeline(rank).generate(plan_, inputs, run);
  }

  RankThreads& ranks_;
  const Plan& plan_;
  const Inputs& inputs_;
  const Run& given_;
  const int threads_;  // of each rank on a CPU
  std::promise<Conditioning> told_;
  std::shared_future<Conditioning> conditioning_ = told_.get_future().share();
  std::atomic<bool> nothing_to_make_{false};  // there will be no conditioning
  std::vector<std::thread> others_;
  bool cancelled_together_ = false;  // rank 0 says so where all ask each other
};

RankThreads::RankThreads(std::vector<std::shared_ptr<Pipeline>> pipelines) : pipelines_(std::move(pipelines)) {}

RankThreads::~RankThreads() = default;

void RankThreads::connect() {
  if (!pipelines_.front()->device().is_cpu()) NcclGroup::set_environment();
  groups_.clear();
  controls_.assign(pipelines_.size(), nullptr);
  auto links = local_links(static_cast<int64_t>(pipelines_.size()));
  std::vector<std::future<void>> all;
  for (size_t rank = 0; rank < pipelines_.size(); ++rank)
    all.push_back(std::async(std::launch::async, [this, rank, own = std::move(links[rank])] {
      controls_[rank] = SocketGroup::connect(static_cast<int64_t>(rank), own, pipelines_[rank]->device().str());
    }));
  for (std::future<void>& each : all) each.get();
  groups_.resize(pipelines_.size());
}

Outcome RankThreads::generate(const Plan& plan, const Inputs& inputs, const Run& run) {
  const c10::InferenceMode mode;
  pipelines_.front()->check_ranks(plan, static_cast<int64_t>(pipelines_.size()));
  pipelines_.front()->check_init_latents(plan, inputs.init_latents);
  // What ended one rank, the others may not have heard of yet.
  if (groups_.empty() || std::ranges::any_of(controls_, &SocketGroup::ended)) connect();
  const c10::OptionalDeviceGuard device(device_of(*pipelines_.front()));
  return Video(*this, plan, inputs, run).lead();
}

}  // namespace sparsereel::models
