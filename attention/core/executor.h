// Runs calls on one device and owns the resources that these calls share.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "attention/call.h"

namespace sparsereel::attention {

/// Results that a call returns. A GPU call sets only predicted_tiles; its kernels add the other counts to Call::counts
/// later.
struct RunCounts {
  cpu::Counts counts{};
  double sum_predicted_error = 0;  // sum over query tiles of the predicted error that HeadPolicy::error bounds
  int64_t predicted_tiles = 0;     // number of these query tiles
};

class Executor {
 public:
  Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  virtual ~Executor() = default;

  virtual bool is_gpu() const = 0;
  /// Returns the bytes of workspace that the call needs. The workspace may have any alignment.
  virtual size_t workspace_bytes(const Call& call) const = 0;
  /// Runs the call, or on a GPU enqueues it in `stream`, a cudaStream_t. Throws Refusal if the device cannot run the
  /// call.
  virtual RunCounts run(const Call& call, void* workspace, size_t bytes, void* stream) = 0;
  /// Describes the kernel that would run the call.
  virtual std::string describe(const Call& call) const = 0;

 protected:
  /// Returns `workspace`, moved up to the next multiple of `alignment`. Throws Refusal if it is null or holds less than
  /// workspace_bytes().
  void* aligned(const Call& call, void* workspace, size_t bytes, size_t alignment) const;
};

class CpuExecutor final : public Executor {
 public:
  explicit CpuExecutor(cpu::ParallelFor parallel) : parallel_(std::move(parallel)) {}

  bool is_gpu() const override { return false; }
  size_t workspace_bytes(const Call& call) const override;
  RunCounts run(const Call& call, void* workspace, size_t bytes, void* stream) override;
  std::string describe(const Call& call) const override;

  void set_parallel(cpu::ParallelFor parallel) {
    const std::lock_guard lock(mutex_);
    parallel_ = std::move(parallel);
  }

 private:
  std::mutex mutex_;
  cpu::ParallelFor parallel_;
};

/// Returns true if this build has GPU kernels.
bool has_cuda_executor();

/// Throws Refusal if the GPU cannot run calls. In a build without CUDA it always throws.
std::unique_ptr<Executor> make_cuda_executor(int device);

/// Returns true if the kernel that runs this call on the GPU can write its output as e4m3.
bool writes_e4m3(const Call& call, int device);

/// Returns true if a GPU call is so short that full attention in 16 bits is faster. Always false for a quantized call,
/// for a call with a map, and if the environment names a kernel (forced_kernel()).
bool is_too_short(const Call& call);

}  // namespace sparsereel::attention
