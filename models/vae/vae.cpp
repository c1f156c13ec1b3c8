// Checks and defaults that all VAEs share.
#include "models/vae/vae.h"

#include <ATen/ATen.h>

#include <sstream>
#include <string>

#include "hilbert/error.h"
#include "models/store/weights/weights.h"

namespace sparsereel::models {

void ignore_other_parts(WeightReader& reader, VaeParts parts) {
  if (!has_decoder(parts)) {
    for (const char* prefix : {"decoder.", "post_quant_conv."}) reader.ignore_prefix(prefix);
  }
  if (!has_encoder(parts)) {
    for (const char* prefix : {"encoder.", "quant_conv."}) reader.ignore_prefix(prefix);
  }
}

void refuse_to_decode() {
  throw bad_input("only the encoder of this VAE was loaded", "load its decoder too");
}

void refuse_to_encode() {
  throw bad_input("this model's VAE cannot encode images",
                  "leave image and last_image out, or use a model that takes them");
}

void check_latents(const at::Tensor& latents, int64_t channels) {
  if (latents.dim() == 5 && latents.size(0) == 1 && latents.size(1) == channels && latents.numel() > 0) return;
  std::ostringstream cause;
  cause << "the VAE cannot decode latents of shape " << latents.sizes() << ": it needs [1, " << channels
        << ", frames, height, width]";
  throw bad_input(cause.str(), "give the latents that this model's transformer made");
}

void check_frames(const at::Tensor& frames, const VaeStride& stride) {
  const auto refuse = [&](const std::string& needed, const std::string& remedy) {
    std::ostringstream cause;
    cause << "the VAE cannot encode frames of shape " << frames.sizes() << ": " << needed;
    throw bad_input(cause.str(), remedy);
  };
  if (frames.dim() != 5 || frames.size(0) != 1 || frames.size(1) != 3 || frames.numel() == 0)
    refuse("the shape must be [1, 3, frames, height, width]", "give the red, green and blue of one video");
  const std::string r = std::to_string(stride.frames), s = std::to_string(stride.pixels);
  if ((frames.size(2) - 1) % stride.frames != 0)
    refuse(
        "their number must be one more than a multiple of " + r,
        "give 1, " + std::to_string(stride.frames + 1) + ", " + std::to_string(2 * stride.frames + 1) + ", ... frames");
  if (frames.size(3) % stride.pixels != 0 || frames.size(4) % stride.pixels != 0)
    refuse("height and width must be multiples of " + s, "crop or resize them");
}

at::Tensor Vae::decode(const at::Tensor& latents, bool tiled, const VaeProgress& progress) {
  at::Tensor video;
  int64_t taken = 0;
  const auto take = [&](const at::Tensor& frames) {
    if (!video.defined())
      video = at::empty({1, frames.size(1), frames_of(latents.size(2)), frames.size(3), frames.size(4)},
                        frames.options(), at::MemoryFormat::Contiguous);
    video.narrow(2, taken, frames.size(2)).copy_(frames);
    taken += frames.size(2);
  };
  decode(latents, {.tiled = tiled}, take, progress);
  return video;
}

LatentDistribution Vae::encode(const at::Tensor&, bool, const VaeProgress&) {
  refuse_to_encode();
}

at::Tensor Vae::encode_keyframe(const at::Tensor& frame, const VaeProgress& progress) {
  return encode(frame, /*tiled=*/false, progress).mean.to(at::kFloat);
}

uint64_t Vae::untiled_encode_bytes(int64_t, int64_t, int64_t) const {
  refuse_to_encode();
}

}  // namespace sparsereel::models
