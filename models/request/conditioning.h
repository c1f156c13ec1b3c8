// What a video is denoised towards: texts, images, and what of the video is known beforehand.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace sparsereel::models {

class ContextKeys;

struct Conditioning {
  // A row for each pass of guidance: of the negative prompt, where guidance runs, and of the prompt.
  at::Tensor text{};                    // [B, L, C]
  std::vector<int64_t> text_lengths{};  // tokens of each row, behind which there is padding; empty: all L
  at::Tensor pooled{};                  // [B, C], of the whole text; undefined: none
  // Of the video, whatever the pass.
  at::Tensor context{};  // [1, L, C], tokens of images; undefined: none
  at::Tensor latents{};  // [1, ..] in the model's layout, at the scale of its latents; undefined: none
  at::Tensor mask{};     // [1, ..], spread over the latents: 0 where they are the video's and stay, else 1; undefined:
                         // they go into the transformer as channels behind the video's, as many as they have
  at::Tensor deviation{};  // [1, ..], of the first frames of `latents`, which are a mean until a run draws them;
                           // undefined: they are what they are
  std::shared_ptr<ContextKeys> keys{};  // of the context, kept over the forwards of one denoising by one transformer;
                                        // null: each forward makes its own

  /// All of them, in an order that stays.
  static std::span<at::Tensor Conditioning::*const> tensors();
  bool defined() const { return text.defined(); }
  int64_t passes() const { return text.size(0); }
  /// Tokens of the shortest text and of the longest one.
  std::pair<int64_t, int64_t> shortest_and_longest_text() const;
  /// Of one pass.
  Conditioning pass(int64_t index) const;
  Conditioning to(const at::TensorOptions& options) const;
  /// Takes what is the video's, whatever the pass, from another one.
  void take_video(const Conditioning& other);
  uint64_t nbytes() const;
};

/// The passes, which have the same parts, as one; what is the video's is the first one's.
Conditioning join(const std::vector<Conditioning>& passes);

}  // namespace sparsereel::models
