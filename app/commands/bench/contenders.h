// Who runs: torch's dense attention on each of its backends, and attend() in the modes asked for.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "app/commands/bench/options.h"
#include "app/measure/inputs.h"
#include "attention/attention.h"

namespace sparsereel::app::bench {

struct Outcome {
  at::Tensor out;  // [B, N, H, D]
  attention::Statistics statistics;
  std::string kernel;  // what ran
};

struct Contender {
  attention::Mode mode = attention::Mode::full;
  std::string kernel;                       // what is asked for, until an outcome says what ran
  std::optional<attention::Policy> policy;  // of mode sparse
  /// Throws Error or c10::Error where it cannot run the case.
  std::function<Outcome(const Inputs&)> run;
  /// On a GPU: the steps of ours before attention itself; empty for others.
  std::function<void(const Inputs&)> run_prepass{};
};

/// In the order of the rows: dense backends first (FlashAttention and cuDNN on a GPU, also the memory-efficient one for
/// fp32, which those two lack; torch's own choice on a CPU), then quantized, then sparse with each policy. The
/// workspace must outlive the contenders.
std::vector<Contender> make_contenders(const AttentionPlan& plan, const Workload& workload, at::Device device,
                                       at::ScalarType dtype, attention::Workspace& workspace);

}  // namespace sparsereel::app::bench
