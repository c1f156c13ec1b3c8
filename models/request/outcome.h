// The results of a run: frames, latents, and the time and memory it took.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/request/attention_run.h"
#include "models/request/latents.h"
#include "models/request/memory_plan.h"
#include "models/request/sound.h"
#include "models/request/video_shape.h"

namespace sparsereel::models {

/// Facts about a video's frames. They are known even if an observer took the frames.
struct FrameFacts {
  VideoShape shape;
  float largest = 0;  // largest value; NaN if any value is NaN
  at::Tensor colors;  // fp32 CPU [F, 3]: each frame's mean red, green and blue, in 0..1
  at::Tensor first;   // fp32 CPU [1, H, W, 3] in 0..1
};

struct StageSeconds {
  double load_text_encoder = 0, text = 0;  // `text` includes loading a streamed encoder while it runs
  double load_transformer = 0, denoise = 0;
  double switch_transformer = 0;  // loading between steps, for models with several transformers; not part of denoise
  double load_vae = 0, decode = 0;
  double decode_sound = 0;    // includes loading the sound's decoder; not part of decode
  double check = 0;           // checking the checkpoint's headers
  double keep = 0;            // saving latents and checkpoints; not part of denoise
  std::vector<double> steps;  // one for each denoising step

  double load() const { return load_text_encoder + load_transformer + switch_transformer + load_vae; }
};

/// Peak bytes of GPU memory in use during a stage and the loading before it; 0 on a CPU. `text` includes the memory of
/// a transformer that loads while the text encoder is in memory.
struct StageMemory {
  uint64_t text = 0, denoise = 0, decode = 0;

  uint64_t largest() const { return std::max({text, denoise, decode}); }
};

struct Outcome {
  /// fp32 CPU [F, H, W, 3] in 0..1; undefined if an observer took the frames, or nothing was decoded.
  at::Tensor frames;
  FrameFacts facts;  // facts of the frames, even if an observer took them
  Sound sound;       // none if the model makes none, or nothing was decoded
  /// On the CPU. The video's latents have the model's dtype for latents, and diffusers' scale; the sound's latents are
  /// in fp32.
  Latents latents;
  bool vae_tiled = false;  // frames were decoded in tiles
  /// The request's first image after the VAE has encoded and decoded it, fp32 CPU [1, H, W, 3]. Undefined if the
  /// request has no image, the image is a keyframe, nothing was decoded, or GPU memory ran out.
  at::Tensor image;
  StageSeconds seconds;
  StageMemory memory;
  std::optional<MemoryPlan> memory_plan = {};  // where weights stayed in the last step; unset on a CPU
  AttentionRun attention;
  std::vector<std::string> warnings;  // such as a cut prompt, redone steps, a decode that was redone in tiles
};

struct Decoded {
  at::Tensor frames;  // as in Outcome, like the members below
  FrameFacts facts;
  Sound sound;
  double sound_seconds = 0;  // seconds to load the sound's decoder and to decode the sound
  bool tiled = false;
  std::string warning;  // empty if there is none
};

}  // namespace sparsereel::models
