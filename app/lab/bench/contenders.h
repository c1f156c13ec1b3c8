// Who runs: torch's dense attention on each of its backends, and attend() in the modes asked for; and what a GPU's
// tensor cores can do at most, by the vendor's data sheet.
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

/// Tera operations a second, dense (the data sheets' larger figures count 2:4 sparsity).
struct HardwareLimit {
  double bits8 = 0;   // int8 and fp8
  double bits16 = 0;  // fp16 and bf16
};

/// gpu: the driver's name, "NVIDIA H200". Nothing where it is not in the table.
std::optional<HardwareLimit> hardware_limit(std::string_view gpu);

}  // namespace sparsereel::app::bench
