// Runs calls on one device, with what they share there.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "attention/call.h"

namespace sparsereel::attention {

/// What is known of a call when it returns; a GPU counts in Call::counts instead.
struct Outcome {
  cpu::Counts counts{};
  double sum_predicted_error = 0;  // over query tiles, of what HeadPolicy::error bounds
  int64_t predicted_tiles = 0;     // how many these are
};

class Executor {
 public:
  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;

  virtual bool is_gpu() const = 0;
  /// Of any alignment.
  virtual size_t workspace_bytes(const Call& call) const = 0;
  /// Throws Refusal for what the device cannot do. A GPU's call is enqueued in `stream`, a cudaStream_t.
  virtual Outcome run(const Call& call, void* workspace, size_t bytes, void* stream) = 0;
  /// What would run.
  virtual std::string describe(const Call& call) const = 0;

 protected:
  /// `workspace` to the next multiple of `alignment`. Throws Refusal where it is null or holds less than
  /// workspace_bytes().
  void* aligned(const Call& call, void* workspace, size_t bytes, size_t alignment) const;
};

class CpuExecutor final : public Executor {
 public:
  explicit CpuExecutor(cpu::ParallelFor parallel) : parallel_(std::move(parallel)) {}

  bool is_gpu() const override { return false; }
  size_t workspace_bytes(const Call& call) const override;
  Outcome run(const Call& call, void* workspace, size_t bytes, void* stream) override;
  std::string describe(const Call& call) const override;

  /// For the calls from now on.
  void set_parallel(cpu::ParallelFor parallel) {
    const std::lock_guard lock(mutex_);
    parallel_ = std::move(parallel);
  }

 private:
  std::mutex mutex_;
  cpu::ParallelFor parallel_;
};

/// Whether this build has kernels for GPUs.
bool has_cuda_executor();

/// Throws Refusal where there is no such GPU that could run calls; so does every build without CUDA.
std::unique_ptr<Executor> make_cuda_executor(int device);

/// Whether a call on a GPU may write its output as e4m3.
bool writes_e4m3(const Call& call, int device);

/// Whether a call of that GPU asks to drop blocks where dense attention in 16 bits takes less time.
bool is_too_short(const Call& call);

}  // namespace sparsereel::attention
