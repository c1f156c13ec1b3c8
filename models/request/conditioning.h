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
  // text, text_lengths and pooled have one row for each guidance pass (B rows): the negative prompt if guidance runs,
  // then the prompt.
  at::Tensor text{};                    // [B, L, C]
  std::vector<int64_t> text_lengths{};  // tokens of each row before its padding; empty if no row is padded
  at::Tensor pooled{};                  // [B, C], embedding of the whole text; undefined if there is none
  std::vector<TextSpan> pictures{};     // tokens of the text that stand for pictures; the same in each row
  // All passes share the members below.
  at::Tensor context{};  // [1, L, C], image tokens; undefined if there are none
  /// [1, ..]: latents of the given images, in the model's layout and scale; undefined if there are none
  at::Tensor latents{};
  /// [1, ..], broadcast over the video's latents: 0 where the video takes `latents` and keeps them, 1 where it is
  /// denoised. If undefined, `latents` are further channels of the transformer's input, after the noise channels.
  at::Tensor mask{};
  /// [1, ..]: standard deviation of the first frames of `latents`. Until a run draws these frames from the
  /// distribution, they hold its mean. If undefined, `latents` are final.
  at::Tensor deviation{};
  /// [1, C, 1, h, w] in fp32: latents of the pictures that the video begins and ends with, for models that take them as
  /// additional tokens. They have no noise until a run adds it. Undefined if there are none.
  at::Tensor first_keyframe{}, last_keyframe{};
  /// [P, 1 + layers, rows, columns, C]: the output of the text encoder's vision tower for P pictures. Index 0 of the
  /// second axis holds the tokens that stand for the picture in the text. Index i holds what is added to these tokens
  /// after the text encoder's layer i - 1. Undefined once the text is encoded, or if the encoder does not look at
  /// pictures.
  at::Tensor seen{};
  /// The attention's keys and values of `context`, which stay the same in all forward passes of one denoising by one
  /// transformer. If null, each forward pass computes its own.
  std::shared_ptr<ContextKeys> keys{};

  /// Returns pointers to all tensor members, always in the same order.
  static std::span<at::Tensor Conditioning::*const> tensors();
  bool defined() const { return text.defined(); }
  bool has_images() const { return latents.defined() || first_keyframe.defined() || last_keyframe.defined(); }
  int64_t passes() const { return text.size(0); }
  std::pair<int64_t, int64_t> shortest_and_longest_text() const;
  Conditioning pass(int64_t index) const;
  Conditioning to(const at::TensorOptions& options) const;
  /// Copies from `other` the members that hold images: context, latents, mask, deviation and keyframes.
  void take_video(const Conditioning& other);
  uint64_t nbytes() const;
};

/// Joins passes that define the same members into one batch. Members that all passes share come from the first pass.
Conditioning join(const std::vector<Conditioning>& passes);

}  // namespace sparsereel::models
