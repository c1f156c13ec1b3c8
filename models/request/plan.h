// A video with every value settled for one model (see make_plan.h). This header needs no torch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attention/policies/policy.h"
#include "hilbert/token_order.h"
#include "models/request/cache_rule.h"
#include "models/request/request.h"
#include "models/request/spec.h"

namespace sparsereel::models {

struct Plan {
  // Members that decide the pipeline.
  std::string device;            // "cpu", "cuda"
  std::string dtype, vae_dtype;  // "fp32", "bf16", "fp16"
  /// true if the request asks to encode images in vae_dtype; otherwise they are encoded in fp32, in TF32 on a GPU
  bool encodes_in_vae_dtype = false;
  bool fp8_weights = false, fp8_text_weights = false;
  std::map<std::string, std::string> files;  // files of weights by role, as in the request
  std::vector<LoraChoice> loras;

  std::string prompt, negative_prompt;
  int64_t max_sequence_length = 0;
  int64_t width = 0, height = 0, num_frames = 0;
  LatentSize latent;
  int64_t decoded_frames = 0;     // differs from num_frames if frame_count_warning() says so
  std::string image, last_image;  // as in the request
  ResizeRule resize = ResizeRule::cover;
  std::optional<PixelSize> image_size;  // the first image's size, if the video follows its shape; else unset
  uint64_t seed = 42;
  int64_t num_inference_steps = 0;
  std::vector<double> sigmas;              // as in the request; empty if the sampler takes none
  double guidance_scale = 0;               // guidance runs if this is above 1
  std::optional<double> guidance_scale_2;  // guidance scale of the second expert, if there is one
  bool use_dynamic_cfg = false;
  GuidancePasses guidance_passes = GuidancePasses::batched;
  std::string scheduler;             // class name
  std::optional<double> flow_shift;  // unset if the sampler has none
  CacheRule cache;                   // off if it could reuse nothing
  attention::Mode attention_mode = attention::Mode::full;
  attention::Policy attention_policy;
  hilbert::TokenOrder token_order = hilbert::TokenOrder::hilbert;
  VaeTiling vae_tiling = VaeTiling::automatic;

  bool is_guided() const { return guidance_scale > 1; }
};

/// Largest size of a prompt in bytes. Text encoders read less than a hundredth of this, and both prompts are stored
/// with the video.
constexpr uint64_t kMostPromptBytes = 1 << 20;

}  // namespace sparsereel::models
