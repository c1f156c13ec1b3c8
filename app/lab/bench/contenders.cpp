// Builds the contenders, and lists the limits of known GPUs.
#include "app/lab/bench/contenders.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <array>
#include <utility>

namespace sparsereel::app::bench {
namespace {

using attention::Mode;

enum class Backend { flash, cudnn, efficient };

/// While this object lives, enables only one backend of torch's scaled_dot_product_attention. Restores the previous
/// choice at the end.
class OnlyBackend {
 public:
  explicit OnlyBackend(Backend backend) {
    set({backend == Backend::flash, backend == Backend::cudnn, backend == Backend::efficient, false});
  }
  ~OnlyBackend() { set(before_); }
  OnlyBackend(const OnlyBackend&) = delete;
  OnlyBackend& operator=(const OnlyBackend&) = delete;

 private:
  struct Enabled {
    bool flash, cudnn, efficient, math;
  };
  static Enabled current() {
    const at::Context& context = at::globalContext();
    return {context.userEnabledFlashSDP(), context.userEnabledCuDNNSDP(), context.userEnabledMemEfficientSDP(),
            context.userEnabledMathSDP()};
  }
  static void set(const Enabled& enabled) {
    at::Context& context = at::globalContext();
    context.setSDPUseFlash(enabled.flash);
    context.setSDPUseCuDNN(enabled.cudnn);
    context.setSDPUseMemEfficient(enabled.efficient);
    context.setSDPUseMath(enabled.math);
  }

  Enabled before_ = current();
};

at::Tensor sdpa(const Inputs& inputs, bool causal) {
  const auto heads_first = [](const at::Tensor& t) { return t.transpose(1, 2); };
  return at::scaled_dot_product_attention(heads_first(inputs.q), heads_first(inputs.k), heads_first(inputs.v), {}, 0.0,
                                          causal, {}, inputs.q.size(2) != inputs.k.size(2))
      .transpose(1, 2);
}

Contender dense(const std::string& kernel, bool causal, std::optional<Backend> backend) {
  Contender contender{.mode = Mode::full, .kernel = kernel, .policy = {}, .run = {}};
  contender.run = [kernel, causal, backend](const Inputs& inputs) {
    std::optional<OnlyBackend> only;
    if (backend) only.emplace(*backend);
    return AttentionResult{.out = sdpa(inputs, causal), .statistics = {}, .kernel = kernel};
  };
  return contender;
}

void add_dense(const Workload& workload, at::Device device, at::ScalarType dtype, std::vector<Contender>& contenders) {
  if (device.is_cpu()) {
    contenders.push_back(dense("torch sdpa", workload.causal, {}));
    return;
  }
  contenders.push_back(dense("torch sdpa flash", workload.causal, Backend::flash));
  contenders.push_back(dense("torch sdpa cudnn", workload.causal, Backend::cudnn));
  if (dtype == at::kFloat) contenders.push_back(dense("torch sdpa efficient", workload.causal, Backend::efficient));
}

Contender ours(Mode mode, const std::optional<attention::Policy>& policy, const Workload& workload, at::Device device,
               attention::Workspace& workspace) {
  attention::Context context;
  context.mode = mode;
  if (policy) context.policy = policy->at(0, 0);
  context.policy.dense_operations = 0;  // run sparse attention even for shapes where full attention is faster
  context.text_tokens = workload.text_tokens;
  context.causal = workload.causal;
  Contender contender{.mode = mode, .kernel = "", .policy = policy, .run = {}};
  contender.run = [context, &workspace](const Inputs& inputs) {
    attention::Result result = attention::attend(inputs.q, inputs.k, inputs.v, context, workspace);
    return AttentionResult{.out = result.out, .statistics = result.statistics, .kernel = result.kernel};
  };
  if (device.is_cpu()) return contender;
  context.only_prepass = true;
  contender.run_prepass = [context, &workspace](const Inputs& inputs) {
    attention::attend(inputs.q, inputs.k, inputs.v, context, workspace);
  };
  return contender;
}

}  // namespace

std::vector<Contender> make_contenders(const AttentionPlan& plan, const Workload& workload, at::Device device,
                                       at::ScalarType dtype, attention::Workspace& workspace) {
  std::vector<Contender> contenders;
  if (plan.has(Mode::full)) add_dense(workload, device, dtype, contenders);
  if (plan.has(Mode::quantized)) contenders.push_back(ours(Mode::quantized, {}, workload, device, workspace));
  if (plan.has(Mode::sparse))
    for (const Combination& each : plan.grid.combinations)
      contenders.push_back(ours(Mode::sparse, each.policy, workload, device, workspace));
  return contenders;
}

std::optional<HardwareLimit> hardware_limit(std::string_view gpu) {
  // The first entry whose name is a part of the GPU's name is used, so variants stand before their family.
  static constexpr std::array<std::pair<std::string_view, HardwareLimit>, 7> table{{
      {"H100 PCIe", {1513, 756}},
      {"H100 NVL", {1671, 835}},
      {"H100", {1979, 989}},
      {"H200", {1979, 989}},
      {"A100", {624, 312}},
      {"L40S", {733, 362}},
      {"RTX 4090", {660, 330}},  // 16 bits with sums in fp16; with sums in fp32 it is half
  }};
  for (const auto& [name, limit] : table)
    if (gpu.find(name) != std::string_view::npos) return limit;
  return std::nullopt;
}

}  // namespace sparsereel::app::bench
