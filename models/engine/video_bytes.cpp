// Computes the sizes of the largest tensors of each stage.
#include "models/engine/video_bytes.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "models/engine/components.h"
#include "models/parallel/share.h"

namespace sparsereel::models {
namespace {

constexpr double kColors = 3;

double all_passes(const Plan& plan) {
  return plan.is_guided() ? 2 : 1;
}

}  // namespace

double video_elements(const Plan& plan) {
  return kColors * static_cast<double>(plan.num_frames) * static_cast<double>(plan.height) *
         static_cast<double>(plan.width);
}

double model_width(const ModelSpec& spec) {
  return static_cast<double>(spec.heads * spec.head_dim);
}

double passes_at_once(const Plan& plan) {
  return plan.guidance_passes == GuidancePasses::batched ? all_passes(plan) : 1;
}

double cache_elements(const Plan& plan, const ModelSpec& spec) {
  const CacheRule& rule = plan.cache;
  if (!rule.on()) return 0;
  int64_t steps = std::min<int64_t>(rule.kind == CacheKind::first_block ? 2 : 3, plan.num_inference_steps);
  if (rule.kind == CacheKind::steps) steps = std::min(steps, rule.steps);
  const double first = passes_at_once(plan) * token_count(spec, plan.latent, 0);
  const double rest = all_passes(plan) * token_count(spec, plan.latent, plan.text_tokens);
  return static_cast<double>(steps) * (first + rest) * model_width(spec);
}

double widest_block(const ModelSpec& spec, double tokens, double passes, uint64_t element) {
  constexpr double kWidths = 10;
  return passes * tokens * kWidths * model_width(spec) * static_cast<double>(element);
}

double untiled_decoding(const Vae& vae, const ModelSpec& spec, const LatentSize& size, int64_t ranks) {
  const double frames = kColors * static_cast<double>(decoded_frames(spec, size.frames)) *
                        static_cast<double>(size.height * spec.stride[1] * size.width * spec.stride[2]) * sizeof(float);
  const int64_t pieces = vae.decodes_in_pieces() ? ranks : 1;
  const int64_t rows = piece_of_height(size.height, pieces);
  return static_cast<double>(vae.untiled_bytes(size.frames, rows, size.width)) + frames / static_cast<double>(pieces);
}

uint64_t whole_bytes(double bytes) {
  return static_cast<uint64_t>(std::min(bytes, 1e18));
}

c10::ScalarType described_vae_dtype(const ModelSpec& spec, c10::ScalarType dtype, c10::Device device) {
  if (spec.takes_vae_dtype) return dtype;
  return device.is_cpu() ? at::kFloat : at::kHalf;
}

uint64_t vae_bytes(const Vae& vae, c10::ScalarType dtype, c10::Device device) {
  const VaeWeights weights = vae.weights();
  const uint64_t in_dtype = weights.count * c10::elementSize(dtype);
  // A VAE that chooses its own formats chooses 16 bits only on a GPU.
  return device.is_cpu() ? std::max(weights.bytes, in_dtype) : weights.bytes;
}

double step_bytes(const Plan& plan, const ModelSpec& spec, uint64_t element) {
  const double tokens = token_count(spec, plan.latent, plan.text_tokens);
  return widest_block(spec, tokens, passes_at_once(plan), element) +
         cache_elements(plan, spec) * static_cast<double>(element);
}

}  // namespace sparsereel::models
