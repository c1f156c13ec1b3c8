// What is asked of one video, and of the model that makes it. No torch, and no tensors.
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

namespace sparsereel::models {

enum class GuidancePasses {
  batched,  // one forward over both
  in_turn,  // one after the other: half of the activations
};
/// "batched", "in-turn"
std::string_view name(GuidancePasses passes);
/// Throws Error for any other text.
GuidancePasses parse_guidance_passes(const std::string& text);

/// Of decoding in tiles, which need less memory.
enum class VaeTiling { automatic, on, off };
/// "auto", "on", "off"
std::string_view name(VaeTiling tiling);
/// Throws Error for any other text.
VaeTiling parse_vae_tiling(const std::string& text);

/// How an image of another shape becomes a frame.
enum class ResizeRule {
  cover,    // scaled until it covers the frame, and cropped at the centre
  stretch,  // each axis by itself
};
/// "cover", "stretch"
std::string_view name(ResizeRule rule);
/// Throws Error for any other text.
ResizeRule parse_resize_rule(const std::string& text);

/// In place of an image's file: one that is made up, for random weights, which show nothing of it.
constexpr std::string_view kMadeUpImage = "<made up>";

struct PixelSize {
  int64_t height = 0, width = 0;
  bool operator==(const PixelSize&) const = default;
};

/// Unset: the model's default, or the program's. Pipeline::resolve() makes a Plan of it.
struct Request {
  // The pipeline's: what its weights become, and where.
  std::string device = "auto";  // as in models/store/weights/device.h, like the dtypes
  std::string dtype = "auto";
  std::string vae_dtype = "auto";  // auto: the model's, which most share with the run
  /// fp8: the large matrices of the denoiser's blocks or of the text encoder in 8-bit floating point, made while they
  /// are loaded, and so the products with them. auto: in the run's dtype. Slow on a CPU, which emulates it.
  std::string weights = "auto", text_weights = "auto";
  /// The GPU holds one layer of the text encoder and two blocks of the denoiser at a time, the others come from the
  /// host while it computes; automatic tiling always tiles. No effect on a CPU.
  bool offload = false;
  /// Files of weights in place of the checkpoint's, and the tokenizer's, by role ("transformer"); see
  /// Checkpoint::replace().
  std::map<std::string, std::string> files = {};
  std::vector<LoraChoice> loras = {};  // added to the weights in this order
  bool strict_lora = false;            // refuses one of which layers would be left out

  std::string prompt = {};  // UTF-8, as the negative prompt
  std::optional<std::string> negative_prompt = {};
  std::optional<int64_t> max_sequence_length = {};                  // tokens of the prompt
  std::optional<int64_t> width = {}, height = {}, num_frames = {};  // pixels, frames
  std::optional<double> seconds = {};       // in place of num_frames: the nearest number that comes out exactly
  std::optional<double> fps = {};           // frames a second by which `seconds` counts; unset: the model's
  std::optional<FrameArea> size = {};       // in place of both sides: the shape is the image's, or 16:9
  std::string image = {}, last_image = {};  // files of pictures that the video begins and ends with; empty: none
  ResizeRule resize = ResizeRule::cover;    // of both
  /// Of the first image as it is to be seen, where the video's shape is to be the image's: its area is then that of
  /// `size`, or of width and height, or of the model's where they are unset.
  std::optional<PixelSize> image_size = {};
  uint64_t seed = 42;
  std::optional<int64_t> num_inference_steps = {};
  std::vector<double> sigmas = {};  // of flow matching: noise levels before the shift, one a step; empty: evenly spaced
  std::optional<double> guidance_scale = {};
  std::optional<double> guidance_scale_2 = {};  // of the second expert; unset: the first's where that is given
  bool use_dynamic_cfg = false;
  GuidancePasses guidance_passes = GuidancePasses::batched;
  std::string scheduler = {};             // class or name of one of the model's samplers; empty: the checkpoint's
  std::optional<double> flow_shift = {};  // of samplers that have one; unset: the checkpoint's
  CacheRule cache = {};                   // of steps whose later blocks are left out
  std::optional<attention::Mode> attention_mode = {};  // unset: sparse where that runs
  // Block selection: see make_policy().
  std::optional<double> topk = {}, cdf = {}, error = {}, block_error = {}, similarity = {}, pv_threshold = {};
  std::optional<attention::Dropped> dropped = {};
  std::optional<attention::Ranking> ranking = {};
  std::optional<int64_t> cell = {};
  std::optional<int64_t> arithmetic = {};  // bits, in which a profile's policy computes too
  std::optional<int64_t> dense_layers = {};
  std::optional<attention::Policy> policy = {};  // as a profile has it, in place of what these ten make
  std::string policy_file = {};                  // the profile that it comes from
  std::optional<FirstSteps> dense_steps = {};    // in place of the policy's
  hilbert::TokenOrder token_order = hilbert::TokenOrder::hilbert;
  VaeTiling vae_tiling = VaeTiling::automatic;
};

/// The fields that say how many blocks all heads compute, as attention::kSelections; each excludes the others.
inline constexpr std::array<std::optional<double> Request::*, 4> kHowMany = {&Request::topk, &Request::cdf,
                                                                             &Request::error, &Request::block_error};
static_assert(kHowMany.size() == attention::kSelections.size());
/// Their names.
inline constexpr auto kHowManyBlocks = [] {
  std::array<const char*, attention::kSelections.size()> names{};
  std::ranges::transform(attention::kSelections, names.begin(), &attention::SelectionField::name);
  return names;
}();

}  // namespace sparsereel::models
