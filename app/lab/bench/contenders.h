// The contenders of `bench attention`: torch's full attention with each of its backends, and attention::attend() in the
// modes that were asked for. Also holds the limits of GPUs' tensor cores from the vendor's data sheets.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/lab/bench/options.h"
#include "app/lab/measure/inputs.h"
#include "attention/attention.h"

namespace sparsereel::app::bench {

struct AttentionResult {
  at::Tensor out;  // [B, N, H, D]
  attention::Statistics statistics;
  std::string kernel;  // the kernel that ran
};

struct Contender {
  attention::Mode mode = attention::Mode::full;
  std::string kernel;                       // the kernel that was asked for; AttentionResult says which one ran
  std::optional<attention::Policy> policy;  // for mode sparse
  /// Computes attention. Throws Error or c10::Error if the contender cannot run on these inputs.
  std::function<AttentionResult(const Inputs&)> run;
  /// Runs only the pre-pass (quantizing and choosing blocks) of this project's attention on a GPU. Empty for other
  /// contenders.
  std::function<void(const Inputs&)> run_prepass{};
};

/// Returns the contenders in the order of the rows. Torch's backends come first. On a GPU these are FlashAttention and
/// cuDNN. Neither supports fp32, so for fp32 the memory-efficient backend is added. On a CPU there is only the backend
/// that torch chooses. Mode quantized follows, and then mode sparse with each policy. The workspace must outlive the
/// contenders.
std::vector<Contender> make_contenders(const AttentionPlan& plan, const Workload& workload, at::Device device,
                                       at::ScalarType dtype, attention::Workspace& workspace);

/// The limit of a GPU in 10^12 operations per second on dense matrices. (The larger figures in data sheets are for
/// matrices with 2:4 sparsity.)
struct HardwareLimit {
  double bits8 = 0;   // int8 and fp8
  double bits16 = 0;  // fp16 and bf16
};

/// Returns the limit of a GPU. `gpu` is the name that the driver gives it, such as "NVIDIA H200". Returns nothing for
/// an unknown GPU.
std::optional<HardwareLimit> hardware_limit(std::string_view gpu);

}  // namespace sparsereel::app::bench
