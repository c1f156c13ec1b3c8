// The largest tensors of the two stages that grow with the video; see memory_need.h.
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

/// Elements of the denoiser while a block's attention runs: q, k and v, what they were projected from, and the tokens
/// that the block's result is added to.
double block_elements(const GenerateSettings& settings, const ModelSpec& spec) {
  const double tokens = token_count(spec, settings.latent, settings.max_sequence_length);
  const auto channels = static_cast<double>(spec.heads * spec.head_dim);
  const bool batched = settings.guidance_scale > 1 && settings.guidance_passes == GuidancePasses::batched;
  const double batch = batched ? 2 : 1;
  return 5 * batch * tokens * channels;
}

void check(const GenerateSettings& settings, double needed, c10::Device device) {
  const uint64_t obtainable = obtainable_memory(device);
  if (needed <= static_cast<double>(obtainable)) return;
  throw bad_input("a video of " + std::to_string(settings.width) + " x " + std::to_string(settings.height) +
                      " pixels and " + std::to_string(settings.num_frames) + " frames needs at least " +
                      human_bytes(static_cast<uint64_t>(std::min(needed, 1e18))) + " of memory, there are " +
                      human_bytes(obtainable) + " on " + device.str(),
                  "choose a smaller width or height, or fewer frames");
}

}  // namespace

MemoryNeed least_memory(const GenerateSettings& settings, bool decode, const ModelSpec& spec, c10::Device device,
                        c10::ScalarType dtype) {
  const auto element = static_cast<double>(c10::elementSize(dtype));
  const double denoising = block_elements(settings, spec) * element;
  // The decoder's video, in tiles or not, and the frames that it is turned into.
  const double video = decode ? pixels(settings) * element : 0;
  const double frames = decode ? pixels(settings) * static_cast<double>(sizeof(float)) : 0;
  if (device.is_cpu()) return {.host = std::max(denoising, video + frames)};
  return {.host = frames, .device = std::max(denoising, video)};
}

void check_memory(const GenerateSettings& settings, const MemoryNeed& need, c10::Device device) {
  check(settings, need.host, c10::kCPU);
  if (!device.is_cpu()) check(settings, need.device, device);
}

}  // namespace sparsereel::models
