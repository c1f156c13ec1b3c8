// A request for one video and for the model that makes it, and the plan in which every value of the request is decided
// for one model. No torch, and no tensors.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/policies/policy.h"
#include "hilbert/token_order.h"
#include "models/request/cache_rule.h"
#include "models/request/first_steps.h"
#include "models/request/frame_area.h"
#include "models/request/lora_choice.h"
#include "models/request/memory_plan.h"
#include "models/request/spec.h"

namespace sparsereel::models {

enum class GuidancePasses {
  batched,  // one forward pass over both prompts
  in_turn,  // one pass after the other, which needs half the memory for activations
};
/// Returns "batched" or "in-turn".
std::string_view name(GuidancePasses passes);
/// Parses the texts that name() returns. Throws Error for any other text.
GuidancePasses parse_guidance_passes(const std::string& text);

/// Decides if frames are decoded in tiles, which need less memory.
enum class VaeTiling { automatic, on, off };
/// Returns "auto", "on" or "off".
std::string_view name(VaeTiling tiling);
/// Parses the texts that name() returns. Throws Error for any other text.
VaeTiling parse_vae_tiling(const std::string& text);

enum class ResizeRule {
  cover,    // scaled until it covers the frame, then center-cropped
  stretch,  // each axis scaled separately
};
/// Returns "cover" or "stretch".
std::string_view name(ResizeRule rule);
/// Parses the texts that name() returns. Throws Error for any other text.
ResizeRule parse_resize_rule(const std::string& text);

/// In place of an image's file name, this asks for a generated image. It suffices for models with random weights,
/// because their videos show nothing of the image.
constexpr std::string_view kMadeUpImage = "<made up>";

struct PixelSize {
  int64_t height = 0, width = 0;
  bool operator==(const PixelSize&) const = default;
};

/// One video that a user requests. Unset members take the model's or the program's default. Pipeline::resolve() turns a
/// request into a Plan.
struct Request {
  // Members that decide the pipeline.
  std::string device = "auto";  // models/store/weights/device.h lists the values of device and dtypes
  std::string dtype = "auto";
  /// auto: the dtype that the model prescribes for its VAE, or else the dtype of the run.
  std::string vae_dtype = "auto";
  /// auto: weights have the run's dtype. Matrices that the transformer's file holds as int8 are an exception: a GPU
  /// multiplies them as integers. fp8: the large matrices of the transformer's blocks (`weights`) or of the text
  /// encoder (`text_weights`) are converted to 8-bit floating point when they are loaded, and are multiplied in that
  /// format. On a CPU, fp8 is emulated and slow. int8: the same with 8-bit integers, whose products are exact.
  std::string weights = "auto", text_weights = "auto";
  /// on: weights stay in host memory and are copied while the GPU computes. The GPU then holds one layer of the text
  /// encoder and two blocks of the transformer, and automatic tiling always tiles. automatic: a MemoryPlan decides. Has
  /// no effect on a CPU.
  Offload offload = Offload::automatic;
  std::optional<double> max_vram = {};  // GiB of GPU memory that the run may use; all that is free if unset
  /// Files that replace the checkpoint's weights or tokenizer, by role ("transformer"); see Checkpoint::replace().
  std::map<std::string, std::string> files = {};
  std::vector<LoraChoice> loras = {};  // added to the weights in this order
  bool strict_lora = false;            // refuse a LoRA if some of its layers would be left out

  std::string prompt = {};  // UTF-8, like the negative prompt
  std::optional<std::string> negative_prompt = {};
  std::optional<int64_t> max_sequence_length = {};                  // longer prompts are cut to this many tokens
  std::optional<int64_t> width = {}, height = {}, num_frames = {};  // pixels, frames
  std::optional<double> seconds = {};  // length in place of num_frames; see frames_of_seconds()
  std::optional<double> fps = {};      // frames per second, to convert `seconds`; the model's if unset
  std::optional<FrameArea> size = {};  // area in place of width and height; the shape is that of the image, or 16:9
  std::string image = {}, last_image = {};  // files of first and last picture; empty if not given
  ResizeRule resize = ResizeRule::cover;    // for both images
  /// Size, after rotation to upright, of the first image (or of the last one if there is no first), if the video takes
  /// its shape. The video then has the area that `size`, or width and height, or the model's defaults give.
  std::optional<PixelSize> image_size = {};
  uint64_t seed = 42;
  std::optional<int64_t> num_inference_steps = {};
  /// Flow matching's noise levels before the shift, one for each step. If empty, they are evenly spaced.
  std::vector<double> sigmas = {};
  std::optional<double> guidance_scale = {};
  /// Guidance scale of the second expert. If unset, it is guidance_scale; if that is unset too, the model's default.
  std::optional<double> guidance_scale_2 = {};
  bool use_dynamic_cfg = false;
  GuidancePasses guidance_passes = GuidancePasses::batched;
  std::string scheduler = {};                          // class or name of a sampler; the checkpoint's if empty
  std::optional<double> flow_shift = {};               // for samplers with a shift; the checkpoint's if unset
  CacheRule cache = {};                                // decides which steps skip their later blocks
  std::optional<attention::Mode> attention_mode = {};  // if unset, sparse if the device supports it, else full
  // Block selection: see make_policy().
  std::optional<double> topk = {}, cdf = {}, error = {}, block_error = {}, similarity = {}, pv_threshold = {};
  std::optional<attention::Dropped> dropped = {};
  std::optional<attention::Ranking> ranking = {};
  std::optional<int64_t> cell = {};
  std::optional<int64_t> arithmetic = {};  // bits; overrides a profile's policy too
  std::optional<int64_t> dense_layers = {};
  std::optional<attention::Policy> policy = {};  // a profile's policy; replaces the block selection above
  std::string policy_file = {};                  // the profile that `policy` comes from
  std::optional<FirstSteps> dense_steps = {};    // overrides the dense steps of the policy
  std::optional<FirstSteps> exact_steps = {};    // first steps with full attention
  hilbert::TokenOrder token_order = hilbert::TokenOrder::hilbert;
  VaeTiling vae_tiling = VaeTiling::automatic;
  bool no_audio = false;  // the sound is neither decoded nor written; the model still makes it with the video

  bool has_images() const { return !image.empty() || !last_image.empty(); }
};

/// The fields that choose the blocks that all heads compute, in the order of attention::kSelections. A request sets at
/// most one of them.
inline constexpr std::array<std::optional<double> Request::*, 4> kSelectionFields = {
    &Request::topk, &Request::cdf, &Request::error, &Request::block_error};
static_assert(kSelectionFields.size() == attention::kSelections.size());
inline constexpr auto kSelectionNames = [] {
  std::array<const char*, attention::kSelections.size()> names{};
  std::ranges::transform(attention::kSelections, names.begin(), &attention::SelectionField::name);
  return names;
}();

/// One video for which every value is decided; see resolve_request() and Pipeline::resolve().
struct Plan {
  // Members that decide the pipeline.
  std::string device;            // "cpu", "cuda"
  std::string dtype, vae_dtype;  // "fp32", "bf16", "fp16"
  /// true if the request asks to encode images in vae_dtype; otherwise they are encoded in fp32, in TF32 on a GPU
  bool encodes_in_vae_dtype = false;
  std::string weights = "auto", text_weights = "auto";  // as in the request, but auto where they have no effect
  std::map<std::string, std::string> files;             // files of weights by role, as in the request
  std::vector<LoraChoice> loras;

  std::string prompt, negative_prompt;
  std::optional<int64_t> max_sequence_length;  // unset for a model that reads the whole prompt
  /// Largest number of tokens of the text, plus the tokens that images add to the transformer's sequence, in the text
  /// and as keyframes. An estimate if prompts have no maximum.
  int64_t text_tokens = 0;
  int64_t width = 0, height = 0, num_frames = 0;
  LatentSize latent;
  int64_t decoded_frames = 0;                            // frame_count_warning() warns if this differs from num_frames
  std::string image, last_image;                         // as in the request
  std::optional<ResizeRule> resize = ResizeRule::cover;  // unset if the model itself fixes how images are resized
  std::optional<PixelSize> image_size;  // size of first_given() if the video takes its shape; else unset
  uint64_t seed = 42;
  int64_t num_inference_steps = 0;  // denoising steps of the run
  /// Number of steps as a request gives it. It is one more than num_inference_steps if the sampler counts the clean end
  /// as a step.
  int64_t asked_steps = 0;
  std::vector<double> sigmas;              // as in the request; empty if the sampler takes none
  double guidance_scale = 0;               // guidance runs if this is above 1
  std::optional<double> guidance_scale_2;  // guidance scale of the second expert, if there is one
  bool use_dynamic_cfg = false;
  GuidancePasses guidance_passes = GuidancePasses::batched;
  std::string scheduler;             // class name
  std::optional<double> flow_shift;  // unset if the sampler has none
  CacheRule cache;                   // off if the cache could not reuse any step
  attention::Mode attention_mode = attention::Mode::full;
  attention::Policy attention_policy;
  int64_t exact_steps = 0;  // number of first steps that use mode full in place of attention_mode
  hilbert::TokenOrder token_order = hilbert::TokenOrder::hilbert;
  VaeTiling vae_tiling = VaeTiling::automatic;
  bool no_audio = false;  // true: the model's sound is not decoded. Always false for a model that makes no sound

  bool is_guided() const { return guidance_scale > 1; }
  bool has_images() const { return !image.empty() || !last_image.empty(); }
  int64_t images() const { return (image.empty() ? 0 : 1) + (last_image.empty() ? 0 : 1); }
  /// Returns the path of the first image, or of the last one if there is no first. image_size is the size of this
  /// image.
  const std::string& first_given() const { return image.empty() ? last_image : image; }
};

/// Largest size of a prompt in bytes. The limit keeps files small, because both prompts are stored with the video. Text
/// encoders read less than a hundredth of it.
constexpr uint64_t kMostPromptBytes = 1 << 20;

}  // namespace sparsereel::models
