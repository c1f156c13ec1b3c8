// Reads sizes from headers of weight files, and measures a copy and a matrix product on the GPU.
#include "models/engine/memory_facts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "models/engine/components.h"
#include "models/engine/cpu_time.h"
#include "models/engine/device_choices.h"
#include "models/engine/video_bytes.h"
#include "models/store/weights/cgroup.h"
#include "models/store/weights/device.h"
#include "models/vae/vae.h"

namespace sparsereel::models {
namespace {

/// Calls `work` a few times and returns the seconds of the fastest call.
double best_seconds(c10::Device device, const std::function<void()>& work) {
  constexpr int kTries = 3;
  work();  // the first call loads kernels
  double best = 1e9;
  for (int i = 0; i < kTries; ++i) {
    synchronize(device);
    const auto start = std::chrono::steady_clock::now();
    work();
    synchronize(device);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

/// Returns the bytes per second of a copy from page-locked memory to the GPU.
double measure_copy(c10::Device device) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  const auto options = at::TensorOptions().dtype(at::kByte);
  const at::Tensor from = at::empty({kBytes}, options.pinned_memory(true));
  const at::Tensor to = at::empty({kBytes}, options.device(device));
  return static_cast<double>(kBytes) / best_seconds(device, [&] { to.copy_(from, /*non_blocking=*/true); });
}

/// Returns the operations per second of a large matrix product.
double measure_product(c10::Device device, c10::ScalarType dtype) {
  constexpr int64_t kSize = 4096;
  const at::Tensor a = at::full({kSize, kSize}, 0.5, at::TensorOptions().dtype(dtype).device(device));
  at::Tensor out = at::empty_like(a);
  const double operations = 2.0 * kSize * kSize * kSize;
  return operations / best_seconds(device, [&] { at::mm_out(out, a, a); });
}

struct Rates {
  double copy = 0, product = 0;
};

Rates measured_rates(c10::Device device, c10::ScalarType dtype) {
  static std::mutex mutex;
  static std::map<std::pair<c10::DeviceIndex, c10::ScalarType>, Rates> all;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = all.try_emplace({device.index(), dtype});
  if (!is_new) return found->second;
  try {
    found->second = {.copy = measure_copy(device), .product = measure_product(device, dtype)};
  } catch (const c10::Error&) {  // NOLINT(bugprone-empty-catch): too little memory; the rates stay unknown
  }
  return found->second;
}

/// Returns the share of a step's attention that is computed: topk if it chooses the blocks, else 1.
double attention_share(const Plan& plan) {
  const attention::HeadPolicy& head = plan.attention_policy.defaults;
  const bool drops = attention::drops_blocks(plan.attention_mode);
  return drops && head.selection == attention::Selection::topk ? head.topk : 1;
}

}  // namespace

ModelFacts model_facts(const Checkpoint& checkpoint, const ModelSpec& spec, const RunFormat& format) {
  const WeightFormat& weights = format.transformer.format;
  const c10::Device device = format.transformer.device;
  const c10::ScalarType vae = described_vae_dtype(spec, format.vae, device);
  ModelFacts facts = {.text = static_cast<double>(likely_weight_bytes(checkpoint, "text_encoder", format.text)),
                      .decoder = describe_vae(checkpoint, vae),
                      .element = c10::elementSize(weights.dtype)};
  facts.vae = static_cast<double>(vae_bytes(*facts.decoder, vae, device));
  for (const ExpertSpec& expert : spec.experts) {
    const BlockWeights bytes = likely_block_weights(checkpoint, expert.role, weights);
    facts.block = std::max(facts.block, static_cast<double>(bytes.block));
    facts.rest = std::max(facts.rest, static_cast<double>(bytes.rest));
  }
  return facts;
}

MemoryFacts video_facts(const ModelFacts& model, const ModelSpec& spec, const Plan& plan, int64_t ranks) {
  const int64_t pieces = plan.vae_tiling == VaeTiling::on ? 1 : std::min(ranks, plan.latent.height);
  return {.blocks = spec.layers,
          .block = model.block,
          .rest = model.rest,
          .experts = std::ssize(spec.experts),
          .step = step_bytes(plan, spec, model.element) / static_cast<double>(ranks),
          .text = model.text,
          .vae = model.vae,
          .decode = untiled_decoding(*model.decoder, spec, plan.latent, pieces),
          .has_tiles = spec.takes_vae_tiling,
          .passes = plan.is_guided() && passes_at_once(plan) == 1 ? 2 : 1};
}

RunFormat format_on_a_gpu(const ModelSpec& spec, c10::ScalarType dtype, WeightFormat weights, WeightFormat text) {
  weights.dtype = text.dtype = dtype;
  weights.stored_int8 = !weights.fp8 && !weights.int8;  // as Pipeline::transformer_format() does
  return {.transformer = {.device = c10::Device(c10::kCUDA, 0), .format = weights},
          .text = text,
          .vae = spec.vae == Precision::fp32 ? at::kFloat : dtype,
          .encoder = at::kFloat};
}

void add_host(MemoryFacts& facts, int64_t ranks) {
  const auto share = static_cast<double>(std::max<int64_t>(ranks, 1) * processes_on_host());
  // Memory that libtorch has page-locked before counts as free, because libtorch uses it again.
  facts.host_free = static_cast<double>(free_memory(c10::kCPU) + page_locked_memory()) / share;
  facts.host_total = static_cast<double>(total_host_memory()) / share;
}

void add_rates(MemoryFacts& facts, const Plan& plan, const ModelSpec& spec, double parameters, c10::Device device,
               c10::ScalarType dtype, int64_t ranks) {
  const Rates rates = measured_rates(device, dtype);
  facts.pinned_rate = rates.copy;
  if (rates.product <= 0) return;
  const double operations = step_operations(plan, spec, parameters, attention_share(plan));
  facts.compute = operations / rates.product / static_cast<double>(ranks);
}

MemoryPlan plan_for_defaults(const Checkpoint& checkpoint, const ModelSpec& spec, const LatentSize& size,
                             double gibibytes, c10::Device device) {
  Plan plan;
  plan.latent = size;
  plan.text_tokens = spec.text_length;
  plan.guidance_scale = spec.defaults.guidance;
  const c10::ScalarType dtype =
      resolve_dtype("auto", c10::Device(c10::kCUDA, 0), stored_dtype(checkpoint, spec, /*files=*/{}));
  MemoryFacts facts =
      video_facts(model_facts(checkpoint, spec, format_on_a_gpu(spec, dtype, dtype, dtype)), spec, plan);
  add_host(facts);
  facts.gpu = device.is_cpu() ? gibibytes * kBytesOfGibibyte : static_cast<double>(free_memory(device));
  if (device.is_cpu()) return decide(facts);
  double parameters = 0;
  for (const ExpertSpec& expert : spec.experts)
    parameters = std::max(parameters, weight_count(checkpoint, expert.role));
  plan.attention_mode = choose_attention_mode({}, device, dtype);
  add_rates(facts, plan, spec, parameters, device, dtype);
  return decide(facts);
}

}  // namespace sparsereel::models
