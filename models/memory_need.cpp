// The largest tensors of the two stages that grow with the video.
#include "models/memory_need.h"

#include <algorithm>
#include <string>

#include "hilbert/error.h"
#include "models/device.h"

namespace sparsereel::models {
namespace {

constexpr double kColours = 3;

/// Elements of the video.
double pixels(const GenerateSettings& settings) {
  return kColours * static_cast<double>(settings.num_frames) * static_cast<double>(settings.height) *
         static_cast<double>(settings.width);
}

double channels(const ModelSpec& spec) {
  return static_cast<double>(spec.heads * spec.head_dim);
}

double passes(const GenerateSettings& settings) {
  return settings.guidance_scale > 1 ? 2 : 1;
}

/// Passes of guidance in one forward.
double batch(const GenerateSettings& settings) {
  return settings.guidance_passes == GuidancePasses::batched ? passes(settings) : 1;
}

/// Elements of the denoiser while a block's attention runs: q, k and v, what they were projected from, and the tokens
/// that the block's result is added to.
double block_elements(const GenerateSettings& settings, const ModelSpec& spec) {
  const double tokens = token_count(spec, settings.latent, settings.max_sequence_length);
  return 5 * batch(settings) * tokens * channels(spec);
}

/// Elements that a cache holds while a step is computed: of it, of the last computed step, which it is to replace, and
/// for a forecast of the one before. Each is what the first block adds to the video's tokens in the step's first
/// forward, and what the others add to all tokens in each.
double cache_elements(const GenerateSettings& settings, const CacheRule& rule, const ModelSpec& spec) {
  if (!rule.on()) return 0;
  int64_t steps = std::min<int64_t>(rule.kind == CacheKind::first_block ? 2 : 3, settings.num_inference_steps);
  if (rule.kind == CacheKind::steps) steps = std::min(steps, rule.steps);
  const double first = batch(settings) * token_count(spec, settings.latent, 0);
  const double rest = passes(settings) * token_count(spec, settings.latent, settings.max_sequence_length);
  return static_cast<double>(steps) * (first + rest) * channels(spec);
}

/// cache: what would be needed less without one.
void check(const GenerateSettings& settings, double needed, double cache, c10::Device device) {
  const auto obtainable = obtainable_memory(device);
  if (needed <= static_cast<double>(obtainable)) return;
  const bool fits_without = needed - cache <= static_cast<double>(obtainable);
  throw bad_input("a video of " + std::to_string(settings.width) + " x " + std::to_string(settings.height) +
                      " pixels and " + std::to_string(settings.num_frames) + " frames needs at least " +
                      human_bytes(static_cast<uint64_t>(std::min(needed, 1e18))) + " of memory, there are " +
                      human_bytes(obtainable) + " on " + device.str(),
                  std::string(fits_without ? "leave the cache out, or " : "") +
                      "choose a smaller width or height, or fewer frames");
}

}  // namespace

MemoryNeed least_memory(const GenerateSettings& settings, const GenerateRequest& request, const ModelSpec& spec,
                        c10::Device device, c10::ScalarType dtype) {
  const auto element = static_cast<double>(c10::elementSize(dtype));
  const double denoising = block_elements(settings, spec) * element;
  const double cache = cache_elements(settings, request.cache, spec) * element;
  // The decoder's video, in tiles or not, and the frames that it is turned into.
  const double video = request.decode ? pixels(settings) * element : 0;
  const double frames = request.decode ? pixels(settings) * static_cast<double>(sizeof(float)) : 0;
  const double decoding = device.is_cpu() ? video + frames : video;
  const double all = std::max(denoising + cache, decoding);
  const double saved = all - std::max(denoising, decoding);
  if (device.is_cpu()) return {.host = all, .cache = saved};
  return {.host = frames, .device = all, .cache = saved};
}

void check_memory(const GenerateSettings& settings, const MemoryNeed& need, c10::Device device) {
  check(settings, need.host, device.is_cpu() ? need.cache : 0, c10::kCPU);
  if (!device.is_cpu()) check(settings, need.device, need.cache, device);
}

}  // namespace sparsereel::models
