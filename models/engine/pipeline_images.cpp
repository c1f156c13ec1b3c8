// Encodes the images of a request: to latents, to tokens of an image encoder, or to pictures in the text.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "models/engine/components.h"
#include "models/engine/image_stage.h"
#include "models/engine/memory_policy.h"
#include "models/engine/pipeline.h"
#include "models/engine/text_stage.h"
#include "models/engine/tile_retry.h"
#include "models/engine/unless_cancelled.h"
#include "models/engine/whole_files.h"
#include "models/image/images.h"
#include "models/image/keyframes.h"
#include "models/image/processor_config.h"
#include "models/image/resize.h"
#include "models/request/resolve.h"
#include "models/request/run.h"
#include "models/vae/causal_conv3d.h"

namespace sparsereel::models {
namespace {

/// Returns the checkpoint's config of the image processor. If there is none, returns the defaults of
/// ImageProcessorConfig, with the image size that the encoder takes.
ImageProcessorConfig image_processor(const Checkpoint& folder, const ImageEncoder& encoder) {
  constexpr const char* kRole = "image_processor";
  if (std::ranges::count(folder.roles(), kRole) == 0) return {.crop_size = encoder.image_size()};
  std::string file;
  const nlohmann::json config = folder.config(kRole, &file);
  return parse_image_processor_config(config, file);
}

/// Returns a callback that reports each finished piece to the run's observer, and throws Cancelled if the run is
/// cancelled.
VaeProgress progress_of(const Run& run) {
  return [&run](int64_t done, int64_t total) {
    run.tell().encoded({.done = done, .total = total});
    if (run.is_cancelled()) throw Cancelled{};
  };
}

}  // namespace

LatentDistribution Pipeline::encode_frames(const at::Tensor& frames, const Run& run, bool& tiled) const {
  const auto vae = models::load_vae(folder_.component("vae"), device_, encoder_dtype_, VaeParts::encoder);
  const Tf32Convolutions tf32(encodes_in_tf32_);
  const VaeProgress progress = progress_of(run);
  tiled = use_tiling(VaeTiling::automatic, vae->untiled_encode_bytes(frames.size(2), frames.size(3), frames.size(4)));
  LatentDistribution latents;
  work_or_retry_tiled(
      tiled, /*may_tile=*/spec_.takes_vae_tiling,
      [&](bool in_tiles) {
        do_unless_cancelled(run.cancelled, [&] {
          read_whole(folder_, {"vae"}, device_, [&] { latents = vae->encode(frames, in_tiles, progress); });
        });
      },
      [this] { return make_room(); });
  return latents;
}

void Pipeline::add_images(Conditioning& conditioning, const Plan& plan, const Images& images,
                          std::vector<std::string>* warnings, const Run& run) const {
  const c10::InferenceMode guard;
  check_images({.first = images.first != nullptr, .last = images.last != nullptr}, plan.latent.frames, spec_);
  if (spec_.image.latents == ImageSpec::Latents::keyframes) return add_keyframes(conditioning, plan, images, run);
  if (spec_.image.has_context) {
    const auto encoder = load_image_encoder(folder_.component("image_encoder"), device_, at::kFloat);
    read_whole(folder_, {"image_encoder"}, device_,
               [&] { conditioning.context = context_of(images, *encoder, image_processor(folder_, *encoder)); });
  }
  const auto options = at::TensorOptions().device(device_).dtype(encoder_dtype_);
  bool tiled = false;
  LatentDistribution latents = encode_frames(known_frames(images, plan, spec_, options), run, tiled);
  if (tiled && warnings != nullptr)
    warnings->push_back(std::string(memory_->saves() ? "with offload," : "memory was short:") +
                        " images were encoded in tiles, which gives a slightly different video");
  latents.mean = latents.mean.to(at::kFloat);
  if (!spec_.image.drawn) latents.deviation.reset();
  add_latents(conditioning, latents, images.last != nullptr, plan, spec_);
}

/// Encodes pictures that have the video's size. Returns one tensor of latents for each.
std::vector<at::Tensor> Pipeline::encode_keyframes(const std::vector<Picture>& pictures, const Run& run) const {
  const auto vae = models::load_vae(folder_.component("vae"), device_, encoder_dtype_, VaeParts::encoder);
  const Tf32Convolutions tf32(encodes_in_tf32_);
  std::vector<at::Tensor> keyframes;
  read_whole(folder_, {"vae"}, device_, [&] {
    for (const Picture& picture : pictures)
      keyframes.push_back(vae->encode_keyframe(frame_of(picture).to(device_), progress_of(run)));
  });
  return keyframes;
}

void Pipeline::add_keyframes(Conditioning& conditioning, const Plan& plan, const Images& images, const Run& run) const {
  std::vector<Picture> given;
  std::vector<at::Tensor*> places;
  const auto add = [&](const std::shared_ptr<const Picture>& picture, at::Tensor& place) {
    if (!picture) return;
    given.push_back(*picture);
    places.push_back(&place);
  };
  add(images.first, conditioning.first_keyframe);
  add(images.last, conditioning.last_keyframe);
  const std::vector<Picture> pictures = keyframe_pictures(given, plan.height, plan.width);
  const auto work = [&](const std::function<void()>& part) {  // frees memory and retries if GPU memory runs out
    work_or_retry(
        "encoding images", "choose a smaller size", [&] { do_unless_cancelled(run.cancelled, part); },
        [this] { return make_room(); });
  };
  if (spec_.image.text_patches) work([&] { conditioning.seen = text_->look(pictures); });
  std::vector<at::Tensor> keyframes;
  work([&] { keyframes = encode_keyframes(pictures, run); });
  for (size_t i = 0; i < keyframes.size(); ++i) *places[i] = keyframes[i];
}

}  // namespace sparsereel::models
