// The description of a model, in the same form for every family, and the arithmetic of its sizes. The family's
// describe() fills it in when a checkpoint is opened. No torch.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hilbert/token_order.h"
#include "models/request/patch_config.h"
#include "models/samplers/scheduler_config.h"

namespace sparsereel::models {

enum class Precision { run, fp32 };  // run: the dtype of the run

/// Order of axes of latents; noise is drawn in the same order.
enum class LatentLayout {
  frames_first,    // [1, F, C, H, W]
  channels_first,  // [1, C, F, H, W]
};

struct SamplerSpec {
  std::string name, class_name;  // "ddim", and its class in diffusers
  SamplerKind kind = SamplerKind::ddim;
  /// Reads the scheduler_config.json of a checkpoint with this sampler. Does not fill in the kind.
  SchedulerConfig (*parse)(const nlohmann::json& json, const std::string& file) = nullptr;
  /// For flow matching: returns the family's noise levels before the shift, one for each step. Null if they are evenly
  /// spaced.
  std::vector<double> (*sigmas)(int64_t steps) = nullptr;
  /// true: the user's number of steps includes the clean end, at noise level 0. n steps are then n - 1 denoising steps.
  bool counts_clean_end = false;
};

/// A transformer that denoises some of the timesteps.
struct ExpertSpec {
  std::string role = "transformer";  // the checkpoint's component that holds its weights
  std::string name = {};             // "high" or "low" (noise) if the model has several transformers, else empty
  double from_share = 0;             // lowest timestep that this expert denoises, as a share of the training timesteps
  std::optional<double> guidance{};  // default guidance scale; if unset, that of ModelSpec::defaults
};

/// The rules by which a prompt becomes the text that the transformer attends to.
struct PromptRules {
  bool cleaned = false;  // clean_prompt() is applied before tokenizing
  /// true: the encoder attends to padding as it does to text. false: the encoder gets only the prompt's tokens, and its
  /// output is padded with zeros.
  bool encodes_padding = true;
  /// lower_prompt() and without_stray_full_stops() are applied to the prompt together with `before` and `after`.
  bool lowered = false;
  /// Texts that are put before and after the prompt. The negative prompt gets neither.
  std::string before = {}, after = {};
  /// true: prompts are cut to a length, and padded to it. false: prompts are neither cut nor padded.
  bool has_length = true;
};

struct AreaShift {
  int64_t pixels = 0;  // the shift applies to frames of more pixels than this
  double shift = 0;
};

/// Values of options that neither the request nor a file sets.
struct Defaults {
  int64_t width = 0, height = 0, frames = 0;  // pixels and frames: the size that the checkpoint was made for
  int64_t steps = 0;
  double guidance = 0;
  double fps = 0;
  std::string sampler = {};  // class name
  std::string negative_prompt = {};
  std::optional<AreaShift> shift_above = {};  // replaces the checkpoint's shift
};

/// The sizes and lengths that a model was made for. Other sizes and lengths are possible, but cause a warning.
struct UsualSizes {
  int64_t least_edge = 0, most_edge = 0;  // bounds for the shorter side, in pixels
  double most_ratio = 0;                  // largest ratio of the longer side to the shorter one
  int64_t least_frames = 0, most_frames = 0;

  bool any() const { return most_frames > 0; }
};

/// A model's use of images.
struct ImageSpec {
  /// The place of the image's latents in the transformer's input.
  enum class Latents {
    none,               // nowhere: text to video only
    first_frame_stays,  // the latents are the first frame, which is not denoised
    beside_noise,       // the latents are extra input channels of the transformer, after the noise channels
    keyframes,          // the latents of each image are additional tokens, behind those of the video
  };
  Latents latents = Latents::none;
  bool needed = false;      // a first image is required
  bool takes_last = false;  // a last image is allowed
  bool needs_last = false;  // a last image is required
  bool last_alone = false;  // a last image is allowed without a first one
  /// true: the latents encode a whole video, which is the images with gray frames between them. false: only the first
  /// image is encoded, and the latents of all other frames are zeros.
  bool encodes_video = false;
  bool tells_frames = false;  // stride[0] channels come before the image's latents; they are 1 at given frames, else 0
  /// true: the image's latents are drawn from the VAE encoder's distribution, in the run's dtype. The run's generator
  /// draws them before it draws the noise. false: the latents are the distribution's mean.
  bool drawn = false;
  bool has_context = false;  // the transformer also attends to tokens of an image encoder
  bool fixed_size = false;   // only the default size and number of frames are possible
  /// For videos that take the shape of an image. true: the video's shorter side is that of the default size, or less if
  /// its area would exceed the default size's. If the request asks for another area, the shorter side is scaled with
  /// it. false: the video has the default size's area, or the area that the request asks for.
  bool keeps_short_edge = false;
  /// For keyframes: the weight of an image's latents in its tokens. The rest, 1 - keyframe_time, is the weight of
  /// noise. The run's generator draws this noise in fp32, for the first image, then for the last one, then for the
  /// video.
  double keyframe_time = 1;
  /// How the text encoder cuts the images into tokens of the text. Unset for models whose text encoder does not look at
  /// the images.
  std::optional<PatchConfig> text_patches = {};

  bool any() const { return latents != Latents::none; }
  /// Returns true if images are fitted to the video by the rule of the reference implementation: the first given image
  /// is stretched, and the other image is scaled and cropped.
  bool has_own_fit() const { return latents == Latents::keyframes; }
};

/// The sound that a model makes together with the video.
struct SoundSpec {
  int64_t latent_channels = 0;  // channels of one latent of the sound; 0 if the model makes no sound
  int64_t channels = 2;         // channels of the sound itself: left and right
  int64_t sampling_rate = 0;    // samples per second of each channel
  int64_t samples_a_latent = 0;
  double latents_a_second = 0;     // latents per second of each channel
  SchedulerConfig scheduler = {};  // the sound's own scheduler; it makes the same number of steps as the video's

  bool any() const { return latent_channels > 0; }
};

/// The clips of a model that makes a video of overlapping clips. n clips have n x frames + more_frames frames, and n x
/// latents + more_latents latent frames.
struct ClipSpec {
  int64_t frames = 0;  // 0 if the model does not work in clips
  int64_t latents = 0, more_frames = 0, more_latents = 0;

  bool any() const { return frames > 0; }
};

/// The numbers of latents of a video along each axis, and of its sound.
struct LatentSize {
  int64_t frames = 0, height = 0, width = 0;
  int64_t sound = 0;  // latents of each channel of the sound; 0 for a model without sound
};

struct HeadCount {
  int64_t layers = 0, heads = 0;
  bool operator==(const HeadCount&) const = default;
};

struct ModelSpec {
  std::string transformer_class;  // "SomeTransformer3DModel"
  std::string variant;            // variant within the family, for people: "5b layout (rotary positions)"
  /// Fields of the transformer's config, as YAML writes them. The files of configs/ use them to tell apart checkpoints
  /// that have the same class, layers and heads.
  std::map<std::string, std::string> fingerprint;
  int64_t layers = 0, heads = 0, head_dim = 0;
  int64_t latent_channels = 0;  // channels of the noise and of the decoded latents
  /// Largest number of tokens of a prompt; an estimate if PromptRules::has_length is false.
  int64_t text_length = 0;
  /// true: one sequence holds the video's tokens, then the text's. false: text has its own cross attention.
  bool joint_text = true;
  std::array<int64_t, 3> patch{1, 1, 1};  // t, h, w of a token, in latents
  /// t, h, w of a latent, in frames and pixels. k + 1 latent frames are stride[0] * k + 1 frames.
  std::array<int64_t, 3> stride{1, 1, 1};
  std::array<int64_t, 2> largest{0, 0};  // largest h, w in pixels that position embeddings cover; 0 for no limit
  ClipSpec clips;
  UsualSizes usual_sizes;  // if they are known
  ImageSpec image;
  SoundSpec sound;
  bool takes_guidance = true;      // false: guidance was distilled into the weights, and a step is one forward pass
  bool takes_scheduler = true;     // false: only the checkpoint's scheduler fits the model
  bool takes_frame_rate = true;    // false: motion and sound fit only the frame rate of `defaults`
  bool takes_vae_tiling = true;    // false: the VAE always works in tiles of one size
  bool takes_vae_dtype = true;     // false: the VAE chooses the number formats of its products and sums
  bool overflows_in_fp16 = false;  // activations exceed the range of fp16
  std::string license = {};        // where to read the license terms of the weights; empty if users need not read them
  std::string attribution = {};    // the name that the license requires in every video; empty if it requires none
  bool decodes_pairs = false;      // true: an even number n of latent frames decodes to stride[0] * n frames
  LatentLayout layout = LatentLayout::frames_first;
  Precision noise = Precision::run, latents = Precision::run, vae = Precision::run;
  /// The expert of the noisiest timesteps first; the last expert's from_share is 0.
  std::vector<ExpertSpec> experts = {ExpertSpec{}};
  std::vector<SamplerSpec> samplers;  // samplers that the family supports
  PromptRules prompt;
  bool empty_prompt_has_no_tokens = false;  // an empty prompt does not even have the end token
  SchedulerConfig scheduler;                // config of the checkpoint's scheduler, whichever sampler a run uses
  Defaults defaults;
};

/// Returns the line that tells the user where to read the weights' license terms; empty if users need not read them.
inline std::string terms_line(const ModelSpec& spec) {
  return spec.license.empty() ? "" : "These weights have terms of their own. " + spec.license;
}

/// Returns the size of a video's latents. Frames and pixels must have passed resolve_request().
inline LatentSize latent_size(const ModelSpec& spec, int64_t frames, int64_t height, int64_t width) {
  LatentSize size = {
      .frames = (frames - 1) / spec.stride[0] + 1, .height = height / spec.stride[1], .width = width / spec.stride[2]};
  if (const ClipSpec& clips = spec.clips; clips.any())
    size.frames =
        std::max<int64_t>((frames - clips.more_frames) / clips.frames, 1) * clips.latents + clips.more_latents;
  if (spec.sound.any())
    size.sound = std::llround(static_cast<double>(frames) / spec.defaults.fps * spec.sound.latents_a_second);
  return size;
}

inline int64_t decoded_frames(const ModelSpec& spec, int64_t latent_frames) {
  if (const ClipSpec& clips = spec.clips; clips.any())
    return (latent_frames - clips.more_latents) / clips.latents * clips.frames + clips.more_frames;
  const bool pairs = spec.decodes_pairs && latent_frames % 2 == 0;
  return spec.stride[0] * (latent_frames - 1) + (pairs ? spec.stride[0] : 1);
}

/// Returns the number of latent frames that a sampler computes: the next multiple of patch[0]. The extra frames come
/// first and are dropped before decoding.
inline int64_t padded_frames(const ModelSpec& spec, int64_t latent_frames) {
  return (latent_frames + spec.patch[0] - 1) / spec.patch[0] * spec.patch[0];
}

inline std::vector<int64_t> latents_shape(const ModelSpec& spec, const LatentSize& size) {
  const int64_t frames = padded_frames(spec, size.frames);
  if (spec.layout == LatentLayout::frames_first) return {1, frames, spec.latent_channels, size.height, size.width};
  return {1, spec.latent_channels, frames, size.height, size.width};
}

/// Returns the shape of the sound's latents: [1, rows, C], with the rows of the left channel first.
inline std::vector<int64_t> sound_latents_shape(const ModelSpec& spec, const LatentSize& size) {
  return {1, spec.sound.channels * size.sound, spec.sound.latent_channels};
}

inline int64_t frames_axis(LatentLayout layout) {
  return layout == LatentLayout::frames_first ? 1 : 2;
}

inline int64_t channels_axis(LatentLayout layout) {
  return 3 - frames_axis(layout);
}

inline hilbert::Grid token_grid(const ModelSpec& spec, const LatentSize& size) {
  return {padded_frames(spec, size.frames) / spec.patch[0], size.height / spec.patch[1], size.width / spec.patch[2]};
}

/// Returns the number of tokens in the sequence of one guidance pass, with sound, and with text if the sequence
/// includes it. It is a double, so that it cannot overflow.
inline double token_count(const ModelSpec& spec, const LatentSize& size, int64_t text_tokens) {
  const hilbert::Grid grid = token_grid(spec, size);
  return static_cast<double>(grid.frames) * static_cast<double>(grid.height) * static_cast<double>(grid.width) +
         static_cast<double>(size.sound * spec.sound.channels) +
         (spec.joint_text ? static_cast<double>(text_tokens) : 0.0);
}

}  // namespace sparsereel::models
