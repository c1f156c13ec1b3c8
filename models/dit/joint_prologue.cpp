// Each part by attention's prologue, then the rotation as a product of complex numbers.
#include "models/dit/joint_prologue.h"

#include <ATen/ATen.h>

namespace sparsereel::models {
namespace {

/// In fp32, rounded once.
at::Tensor turned(const at::Tensor& x, const at::Tensor& rotary_by_head) {
  if (!rotary_by_head.defined()) return x;
  const at::Tensor pairs = at::view_as_complex(x.to(at::kFloat).contiguous().unflatten(3, {-1, 2}));
  return at::view_as_real(pairs * rotary_by_head).flatten(3).to(x.scalar_type());
}

}  // namespace

attention::QueriesAndKeys joint_prologue(const at::Tensor& q, const at::Tensor& k, const attention::Prologue& prologue,
                                         const TextNorms& text, const at::Tensor& rotary_by_head, int64_t text_tokens) {
  attention::Prologue of_text = prologue;
  if (text.defined()) {
    of_text.q_weight = text.q_weight;
    of_text.k_weight = text.k_weight;
  }
  const auto part = [&](const attention::Prologue& norms, int64_t first, int64_t count) {
    return attention::apply_prologue(norms, q.narrow(1, first, count), k.narrow(1, first, count));
  };
  const int64_t video_tokens = q.size(1) - text_tokens;
  attention::QueriesAndKeys video = part(prologue, 0, video_tokens);
  video = {.q = turned(video.q, rotary_by_head), .k = turned(video.k, rotary_by_head)};
  if (text_tokens == 0) return video;
  const attention::QueriesAndKeys behind = part(of_text, video_tokens, text_tokens);
  return {.q = at::cat({video.q, behind.q}, 1), .k = at::cat({video.k, behind.k}, 1)};
}

}  // namespace sparsereel::models
