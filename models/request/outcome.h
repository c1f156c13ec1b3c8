// What comes of a run: frames, latents, and what it took.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "models/request/attention_run.h"
#include "models/request/video_shape.h"

namespace sparsereel::models {

/// What is known of a video's frames, wherever they went.
struct FrameFacts {
  VideoShape shape;
  float largest = 0;   // value; NaN where any is
  at::Tensor colours;  // fp32 CPU [F, 3]: each frame's mean red, green and blue, in 0..1
  at::Tensor first;    // fp32 CPU [1, H, W, 3] in 0..1
};

struct StageSeconds {
  double load_text_encoder = 0, text = 0;  // a streamed encoder's loading is part of text
  double load_transformer = 0, denoise = 0;
  double switch_transformer = 0;  // loading one between steps, where a model has several; no part of denoise
  double load_vae = 0, decode = 0;
  double check = 0;           // of the checkpoint's headers
  double keep = 0;            // saving latents and checkpoints; no part of denoise
  std::vector<double> steps;  // each denoising step

  double load() const { return load_text_encoder + load_transformer + switch_transformer + load_vae; }
};

/// Most bytes of a GPU in use during a stage and the loading before it; 0 on a CPU. The transformer may load beside the
/// text encoder, and is part of text then.
struct StageMemory {
  uint64_t text = 0, denoise = 0, decode = 0;

  uint64_t largest() const { return std::max({text, denoise, decode}); }
};

struct Outcome {
  at::Tensor frames;       // fp32 CPU [F, H, W, 3] in 0..1; undefined where an observer takes them, or there are none
  FrameFacts facts;        // of them, wherever they are
  at::Tensor latents;      // CPU, in the model's layout and dtype of latents, diffusers' scale
  bool vae_tiled = false;  // of frames
  at::Tensor image;        // the first image as encoding and decoding leave it, fp32 CPU [1, H, W, 3]; undefined where
                           // there is none, or nothing was decoded
  StageSeconds seconds;
  StageMemory memory;
  AttentionRun attention;
  std::vector<std::string> warnings;  // truncated prompt, redone steps, a decode that was done again in tiles
};

struct Decoded {
  at::Tensor frames;  // here and below: as in Outcome
  FrameFacts facts;
  bool tiled = false;
  std::string warning;  // empty: none
};

}  // namespace sparsereel::models
