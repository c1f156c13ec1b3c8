// The inputs that guide denoising: texts, images, and parts of the video that are known beforehand.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace sparsereel::models {

class ContextKeys;

/// Consecutive tokens of a text.
struct TextSpan {
  int64_t first = 0, count = 0;
};

struct Conditioning {
  // One row for each guidance pass: the negative prompt, if guidance runs, then the prompt.
  at::Tensor text{};                    // [B, L, C]
  std::vector<int64_t> text_lengths{};  // tokens of each row before its padding; empty for all L
  at::Tensor pooled{};                  // [B, C], embedding of the whole text; undefined if there is none
  std::vector<TextSpan> pictures{};     // tokens of each text that stand for pictures
  // Shared by all passes.
  at::Tensor context{};  // [1, L, C], image tokens; undefined if there are none
  at::Tensor latents{};  // [1, ..] in the model's layout and at its latents' scale; undefined if there are none
  /// [1, ..], broadcast over the latents: 0 where `latents` give the video and stay fixed, else 1. If undefined, the
  /// latents are channels of the transformer's input, after the noise channels.
  at::Tensor mask{};
  /// [1, ..]: standard deviation for the first frames of `latents`, which hold a mean until a run draws them. If
  /// undefined, the latents are final.
  at::Tensor deviation{};
  /// [1, C, 1, h, w] in fp32: latents of the pictures that the video begins and ends with, for models that take them as
  /// tokens of their own. They have no noise until a run adds it. Undefined if there are none.
  at::Tensor first_keyframe{}, last_keyframe{};
  /// [P, 1 + layers, rows, columns, C]: P pictures as the text encoder sees them, its tokens first, then what is added
  /// after each of its first layers. Undefined once the text is encoded, or if the encoder does not look at pictures.
  at::Tensor seen{};
  /// Keys and values of the context, kept over all forward passes of one denoising by one transformer. If null, each
  /// forward pass computes its own.
  std::shared_ptr<ContextKeys> keys{};

  /// Returns all tensor members, always in the same order.
  static std::span<at::Tensor Conditioning::*const> tensors();
  bool defined() const { return text.defined(); }
  bool has_images() const { return latents.defined() || first_keyframe.defined() || last_keyframe.defined(); }
  int64_t passes() const { return text.size(0); }
  std::pair<int64_t, int64_t> shortest_and_longest_text() const;
  Conditioning pass(int64_t index) const;
  Conditioning to(const at::TensorOptions& options) const;
  /// Copies what images gave the video: context, latents, mask, deviation and keyframes.
  void take_video(const Conditioning& other);
  uint64_t nbytes() const;
};

/// Joins passes with the same parts into one batch. Shared members come from the first pass.
Conditioning join(const std::vector<Conditioning>& passes);

}  // namespace sparsereel::models
