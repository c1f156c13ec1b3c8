// The residual stream of a transformer. The update of a sub-block (attention or feed-forward) is not added at once. The
// next norm adds it while it reads the stream, which saves a separate pass over memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "models/layers/linear.h"
#include "models/layers/norm.h"

namespace sparsereel::models {

class Residual {
 public:
  /// `hidden` [B, N, C] is changed in place. Its first video_tokens tokens are video, the rest are text.
  Residual(at::Tensor hidden, int64_t video_tokens) : hidden_(std::move(hidden)), video_tokens_(video_tokens) {}

  /// Adds gate * update to the stream, or the update itself if `gates` has none. The addition happens in the next call
  /// of any function below.
  void add(at::Tensor update, const JointModulation& gates = {}) {
    add_pending();
    update_ = std::move(update);
    gates_ = gates;
  }

  /// Adds rms_norm_modulate(update, eps, gate) to the stream, in the next call of any function below.
  void add_normed(at::Tensor update, double eps, const at::Tensor& gate) {
    add(std::move(update), {.video = {.shift = {}, .scale = {}, .gate = gate}, .text = {}});
    update_eps_ = eps;
  }

  /// Adds gate * feed_forward_gelu_tanh(norm_modulate(stream)) to the stream, in the next call of any function below.
  void add_feed_forward(const Norm& norm, double eps, const JointModulation& modulation, const Linear& in,
                        const Linear& out) {
    add(feed_forward_gelu_tanh(norm_modulate(norm, eps, modulation, in), in, out), modulation);
  }

  /// Returns rms_norm_modulate() of all tokens, in the format that the layer `reader` takes as its input.
  Activation rms_norm_modulate(double eps, const at::Tensor& factor, const Linear& reader) {
    const double update_eps = update_eps_.value_or(0);
    if (!std::exchange(update_eps_, {})) add_pending();
    return add_rms_normed_modulate_(hidden_, std::exchange(update_, {}), update_eps, gates_.video.gate, eps, factor,
                                    format_for(hidden_, reader));
  }

  at::Tensor norm_modulate(const Norm& norm, double eps, const JointModulation& modulation) {
    if (update_eps_) add_pending();
    if (!update_.defined()) return layer_norm_modulate(hidden_, norm, eps, video_tokens_, modulation);
    return add_gated_norm_modulate_(hidden_, std::exchange(update_, {}), gates_, norm, eps, video_tokens_, modulation);
  }

  /// Returns layer_norm_modulate() of all tokens, in the format that the layer `reader` takes as its input.
  Activation norm_modulate(const Norm& norm, double eps, const JointModulation& modulation, const Linear& reader) {
    const RowFormat format = format_for(hidden_, reader);
    if (format.kind == RowFormat::run_dtype) return norm_modulate(norm, eps, modulation);
    if (update_eps_) add_pending();
    return norm_modulate_quantize_(hidden_, std::exchange(update_, {}), gates_, norm, eps, video_tokens_, modulation,
                                   format);
  }

  /// Returns the stream with all updates added.
  const at::Tensor& value() {
    add_pending();
    return hidden_;
  }

  /// Returns the stream's video tokens.
  at::Tensor video() { return value().narrow(1, 0, video_tokens_); }

 private:
  void add_pending() {
    if (!update_.defined()) return;
    const at::Tensor update = std::exchange(update_, {});
    if (const auto eps = std::exchange(update_eps_, {}))
      add_rms_normed_(hidden_, update, *eps, gates_.video.gate);
    else
      add_gated_(hidden_, update, video_tokens_, gates_);
  }

  at::Tensor hidden_, update_;
  int64_t video_tokens_;
  JointModulation gates_;
  std::optional<double> update_eps_{};  // set if update_ must be normalized before it is added
};

}  // namespace sparsereel::models
