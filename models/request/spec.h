// What general code knows of a model, whatever its family, and the arithmetic of its sizes. Filled in once, by the
// family's describe(). No torch.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hilbert/token_order.h"
#include "models/samplers/scheduler_config.h"

namespace sparsereel::models {

enum class Precision { run, fp32 };  // run: the dtype that the run was asked for

/// Axes of latents, which are also those in which noise is drawn.
enum class LatentLayout {
  frames_first,    // [1, F, C, H, W]
  channels_first,  // [1, C, F, H, W]
};

/// A sampler that a family runs.
struct SamplerSpec {
  std::string name, class_name;  // "ddim", and its class in diffusers
  SamplerKind kind = SamplerKind::ddim;
  /// Reads the scheduler_config.json of a checkpoint whose sampler this is; the kind is not among what it fills in.
  SchedulerConfig (*parse)(const nlohmann::json& json, const std::string& file) = nullptr;
  /// Of flow matching: the family's own noise levels before the shift, one a step; null: evenly spaced.
  std::vector<double> (*sigmas)(int64_t steps) = nullptr;
};

/// A transformer that denoises some of the timesteps.
struct ExpertSpec {
  std::string role = "transformer";  // of its part
  std::string name = {};             // where there are several: "high" or "low", the noise that it is for
  double from_share = 0;             // of the timesteps of training: where its own end, coming from the noisiest
  std::optional<double> guidance{};  // its default scale; unset: the first's
};

/// How a prompt becomes what the transformer attends to.
struct PromptRules {
  bool cleaned = false;  // clean_prompt() goes over it before it becomes tokens
  /// Padding passes through the encoder like text. Else only the prompt's tokens do, and zeros fill up what comes out.
  bool encodes_padding = true;
  bool lowered = false;  // lower_prompt() and without_stray_full_stops() go over it and the words around it
  /// What stands before and behind the prompt, but not the negative one.
  std::string before = {}, after = {};
};

/// A shift of flow matching for large videos.
struct AreaShift {
  int64_t pixels = 0;  // of a frame: above so many
  double shift = 0;
};

/// What a request gets where neither it nor a file says otherwise.
struct Defaults {
  int64_t width = 0, height = 0, frames = 0;  // pixels, frames: what the checkpoint was made for
  int64_t steps = 0;
  double guidance = 0;
  double fps = 0;
  std::string sampler = {};  // class
  std::string negative_prompt = {};
  std::optional<AreaShift> shift_above = {};  // in place of the checkpoint's
};

/// What a model makes of images.
struct ImageSpec {
  /// Where their latents go.
  enum class Latents {
    none,               // text to video alone
    first_frame_stays,  // the first frame's, which are not denoised
    beside_noise,       // more channels of the transformer's input, behind the noise's
  };
  Latents latents = Latents::none;
  bool needed = false;         // no video without a first image
  bool takes_last = false;     // may have one for the last frame, too
  bool needs_last = false;     // no video without that
  bool encodes_video = false;  // the latents are a whole video's: the images, and grey between; else the first image's
                               // alone, and zeros behind
  bool tells_frames = false;   // stride[0] channels before them say which frames are given (1)
  bool drawn = false;          // from the encoder's distribution, in the run's dtype, by the run's generator before the
                               // noise; else they are its mean
  bool has_context = false;    // an image encoder's tokens are attended to as well
  bool fixed_size = false;     // only the default size and number of frames

  bool any() const { return latents != Latents::none; }
};

/// Sizes of latents.
struct LatentSize {
  int64_t frames = 0, height = 0, width = 0;
};

/// How many layers and heads of attention a denoiser has.
struct HeadCount {
  int64_t layers = 0, heads = 0;
  bool operator==(const HeadCount&) const = default;
};

struct ModelSpec {
  std::string transformer_class;  // "SomeTransformer3DModel"
  std::string variant;            // of its family, for people: "5b layout (rotary positions)"
  /// Fields of the transformer's config, as YAML writes them, by which configs/ tell checkpoints of a class apart that
  /// layers and heads do not.
  std::map<std::string, std::string> marks;
  int64_t layers = 0, heads = 0, head_dim = 0;
  int64_t latent_channels = 0;             // of the noise and of what is decoded
  int64_t text_length = 0;                 // most tokens of a prompt
  bool joint_text = true;                  // these stand behind the video's in one sequence; else they are attended to
  std::array<int64_t, 3> patch{1, 1, 1};   // t, h, w of a token, in latents
  std::array<int64_t, 3> stride{1, 1, 1};  // t, h, w of a latent, in frames and pixels: frames = stride[0] k + 1
  std::array<int64_t, 2> largest{0, 0};    // h, w in pixels, where positions end; 0: nowhere
  ImageSpec image;
  bool decodes_pairs = false;  // an even number of latent frames decodes to stride[0] frames each
  LatentLayout layout = LatentLayout::frames_first;
  Precision noise = Precision::run, latents = Precision::run, vae = Precision::run;
  std::vector<ExpertSpec> experts = {ExpertSpec{}};  // that of the noisiest timesteps first, the last one from 0 on
  std::vector<SamplerSpec> samplers;                 // that the family runs
  PromptRules prompt;
  bool empty_prompt_has_no_tokens = false;  // not even that of its end
  SchedulerConfig scheduler;                // the checkpoint's, whichever of them a run takes
  Defaults defaults;
};

/// Frames and pixels as resolve_request() lets them through.
inline LatentSize latent_size(const ModelSpec& spec, int64_t frames, int64_t height, int64_t width) {
  return {(frames - 1) / spec.stride[0] + 1, height / spec.stride[1], width / spec.stride[2]};
}

/// Frames that latents of so many frames decode to.
inline int64_t decoded_frames(const ModelSpec& spec, int64_t latent_frames) {
  const bool pairs = spec.decodes_pairs && latent_frames % 2 == 0;
  return spec.stride[0] * (latent_frames - 1) + (pairs ? spec.stride[0] : 1);
}

/// The latent frames that a sampler steps: whole groups of patch[0] latent frames. The surplus stands first and is
/// dropped before decoding.
inline int64_t padded_frames(const ModelSpec& spec, int64_t latent_frames) {
  return (latent_frames + spec.patch[0] - 1) / spec.patch[0] * spec.patch[0];
}

inline std::vector<int64_t> latents_shape(const ModelSpec& spec, const LatentSize& size) {
  const int64_t frames = padded_frames(spec, size.frames);
  if (spec.layout == LatentLayout::frames_first) return {1, frames, spec.latent_channels, size.height, size.width};
  return {1, spec.latent_channels, frames, size.height, size.width};
}

/// Axis of the frames in latents.
inline int64_t frames_axis(LatentLayout layout) {
  return layout == LatentLayout::frames_first ? 1 : 2;
}

inline int64_t channels_axis(LatentLayout layout) {
  return 3 - frames_axis(layout);
}

inline hilbert::Grid token_grid(const ModelSpec& spec, const LatentSize& size) {
  return {padded_frames(spec, size.frames) / spec.patch[0], size.height / spec.patch[1], size.width / spec.patch[2]};
}

/// Tokens in the sequence of one guidance pass, text included where it is part of it. A double, which no size
/// overflows.
inline double token_count(const ModelSpec& spec, const LatentSize& size, int64_t text_tokens) {
  const hilbert::Grid grid = token_grid(spec, size);
  return static_cast<double>(grid.frames) * static_cast<double>(grid.height) * static_cast<double>(grid.width) +
         (spec.joint_text ? static_cast<double>(text_tokens) : 0.0);
}

}  // namespace sparsereel::models
