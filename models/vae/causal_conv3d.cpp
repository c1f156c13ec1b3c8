// Computes a causal convolution with conv3d, without padding in time, because the remembered frames lie before the new
// ones. A video's first frame, if it comes alone, takes a conv2d instead.
#include "models/vae/causal_conv3d.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "models/store/weights/stoppable_work.h"
#include "models/vae/row_split.h"

namespace sparsereel::models {
namespace {

// Fills the border of `border` pixels at both ends of an axis of frames [frames, height, width, in] with the outermost
// pixels inside it.
void repeat_edges(const at::Tensor& frames, int64_t axis, int64_t border) {
  const int64_t last = frames.size(axis) - border;
  for (const auto& [to, from] : {std::pair{int64_t{0}, border}, std::pair{last, last - 1}}) {
    at::Tensor strip = frames.narrow(axis, to, border);
    strip.copy_(frames.narrow(axis, from, 1).expand_as(strip));
  }
}

void fill_border(const CausalConv3d& conv, const at::Tensor& buffer, const RowSplit* rows) {
  const Border border = conv.border(rows);
  const at::Tensor frames = new_frames(buffer);
  if (border.rows > 0 && rows != nullptr)
    rows->fill_ends(frames, conv.repeats_edges ? RowSplit::Outside::its_edge : RowSplit::Outside::zeros);
  else if (border.rows > 0)
    repeat_edges(frames, 1, border.rows);
  // This fills the corners too, because the rows above and below are part of `frames`.
  if (border.columns > 0) repeat_edges(frames, 2, border.columns);
}

// Zeros that the convolution adds around frames, beyond the buffer's border.
struct Padding {
  int64_t rows, columns;
};

Padding zeros_around(const CausalConv3d& conv, const RowSplit* rows) {
  const int64_t around = conv.weight.size(3) / 2;
  const Border border = conv.border(rows);
  return {.rows = around - border.rows, .columns = around - border.columns};
}

// Convolves a buffer [2 + frames, H, W, in]. Returns [frames, H, W, out].
at::Tensor convolve_frames(const CausalConv3d& conv, const at::Tensor& buffer, const Padding& padding, bool with_bias) {
  const at::Tensor bias = with_bias ? conv.bias : at::Tensor();
  const at::Tensor output =
      convolve(buffer.permute({3, 0, 1, 2}).unsqueeze(0), conv.weight, bias, {0, padding.rows, padding.columns});
  return output.squeeze(0).permute({1, 2, 3, 0}).contiguous();
}

// Convolves the first frame of a video, which is the last frame of the buffer. Returns [1, H, W, out].
at::Tensor convolve_picture(const CausalConv3d& conv, const at::Tensor& buffer, const Padding& padding,
                            bool starts_on_zeros, bool with_bias) {
  const at::Tensor weight = starts_on_zeros ? conv.weight.select(2, kHistoryFrames) : conv.weight.sum(2);
  const at::Tensor frame = buffer.narrow(0, kHistoryFrames, 1).permute({0, 3, 1, 2});
  return convolve(frame, weight.contiguous(at::MemoryFormat::ChannelsLast), with_bias ? conv.bias : at::Tensor(),
                  {padding.rows, padding.columns})
      .permute({0, 2, 3, 1})
      .contiguous();
}

void fill_history(const at::Tensor& buffer, const at::Tensor& remembered, bool starts_on_zeros) {
  at::Tensor front = buffer.narrow(0, 0, kHistoryFrames);
  if (remembered.defined()) {
    front.copy_(remembered);
  } else if (starts_on_zeros) {
    front.zero_();
  } else {
    front.copy_(buffer.narrow(0, kHistoryFrames, 1).expand_as(front));
  }
}

thread_local bool allows_tf32 = false;

// Calls cuDNN's operator, which takes the permission for TF32 as an argument. at::convolution would read it from a
// process-wide setting that other threads use too.
at::Tensor convolve_by_cudnn(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                             at::IntArrayRef padding, at::IntArrayRef stride, at::IntArrayRef dilation) {
  const at::Context& settings = at::globalContext();
  at::Tensor output = at::cudnn_convolution(input, weight, padding, stride, dilation, /*groups=*/1,
                                            settings.benchmarkCuDNN(), settings.deterministicCuDNN(), allows_tf32);
  if (!bias.defined()) return output;
  std::vector<int64_t> shape(static_cast<size_t>(output.dim()), 1);
  shape[1] = bias.numel();
  return output.add_(bias.view(shape));
}

}  // namespace

Tf32Convolutions::Tf32Convolutions(bool on) : before_(std::exchange(allows_tf32, on)) {}
Tf32Convolutions::~Tf32Convolutions() {
  allows_tf32 = before_;
}

void ConvHistory::compare(const at::Tensor& now, const at::Tensor& next) {
  if (changed && !*changed) changed = !now.defined() || !at::equal(now, next);
}

Border CausalConv3d::border(const RowSplit* rows) const {
  const int64_t around = weight.size(3) / 2;
  return {.rows = repeats_edges || rows != nullptr ? around : 0, .columns = repeats_edges ? around : 0};
}

void CausalConv3d::weights(const Visit& visit, const std::string& name, int64_t out, int64_t in, int64_t side) {
  visit(weight, parameter(name + ".weight", {out, in, kHistoryFrames + 1, side, side}));
  visit(bias, parameter(name + ".bias", {out}));
}

at::Tensor convolve(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, at::IntArrayRef padding,
                    at::IntArrayRef stride) {
  StoppableWork::throw_if_stopped();
  const std::vector<int64_t> ones(padding.size(), 1);
  if (stride.empty()) stride = ones;
  if (input.is_cpu() && input.scalar_type() == at::kFloat && at::globalContext().userEnabledMkldnn() && at::hasMKLDNN())
    return at::mkldnn_convolution(input, weight, bias, padding, stride, /*dilation=*/ones, /*groups=*/1);
  if (input.is_cuda() && input.scalar_type() == at::kFloat && at::globalContext().userEnabledCuDNN() &&
      at::Context::hasCuDNN())
    return convolve_by_cudnn(input, weight, bias, padding, stride, ones);
  return at::convolution(input, weight, bias, stride, padding, /*dilation=*/ones, /*transposed=*/false,
                         /*output_padding=*/std::vector<int64_t>(padding.size(), 0), /*groups=*/1);
}

CausalConv3d with_padded_outputs(CausalConv3d conv) {
  const int64_t out = conv.weight.size(0), missing = (8 - out % 8) % 8;
  const bool half = conv.weight.scalar_type() == at::kHalf || conv.weight.scalar_type() == at::kBFloat16;
  if (!conv.weight.is_cuda() || !half || missing == 0 || is_stand_in(conv.weight)) return conv;
  conv.weight = at::constant_pad_nd(conv.weight, {0, 0, 0, 0, 0, 0, 0, 0, 0, missing})
                    .contiguous(at::MemoryFormat::ChannelsLast3d);
  conv.bias = at::constant_pad_nd(conv.bias, {0, missing});
  return conv;
}

at::Tensor causal_buffer(int64_t frames, int64_t height, int64_t width, int64_t channels,
                         const at::TensorOptions& options, const Border& border) {
  return at::empty({kHistoryFrames + frames, height + 2 * border.rows, width + 2 * border.columns, channels}, options);
}

at::Tensor new_frames(const at::Tensor& buffer, const Border& border) {
  return buffer.narrow(0, kHistoryFrames, buffer.size(0) - kHistoryFrames)
      .narrow(1, border.rows, buffer.size(1) - 2 * border.rows)
      .narrow(2, border.columns, buffer.size(2) - 2 * border.columns);
}

at::Tensor causal_conv3d(const CausalConv3d& conv, const at::Tensor& buffer, ConvHistory& history, bool with_bias) {
  fill_border(conv, buffer, history.rows);
  at::Tensor& remembered = history.frames[&conv];
  const bool is_picture = !remembered.defined() && buffer.size(0) == kHistoryFrames + 1;
  fill_history(buffer, remembered, history.starts_on_zeros);
  const at::Tensor last = buffer.narrow(0, buffer.size(0) - kHistoryFrames, kHistoryFrames);
  history.compare(remembered, last);
  if (history.ends) {
    remembered.reset();
  } else if (remembered.defined()) {
    remembered.copy_(last);
  } else {
    remembered = last.clone();
  }

  const Padding padding = zeros_around(conv, history.rows);
  if (is_picture) return convolve_picture(conv, buffer, padding, history.starts_on_zeros, with_bias);
  const int64_t frames = buffer.size(0) - kHistoryFrames;
  const int64_t per_call = std::max<int64_t>(1, kMaxElementsPerCall / buffer[0].numel() - kHistoryFrames);
  if (frames <= per_call) return convolve_frames(conv, buffer, padding, with_bias);
  std::vector<at::Tensor> parts;
  for (int64_t start = 0; start < frames; start += per_call) {
    const int64_t count = std::min(per_call, frames - start) + kHistoryFrames;
    parts.push_back(convolve_frames(conv, buffer.narrow(0, start, count), padding, with_bias));
  }
  return at::cat(parts);
}

at::Tensor convolve_copied(const CausalConv3d& conv, const at::Tensor& frames, ConvHistory& history) {
  const Border border = conv.border(history.rows);
  const at::Tensor buffer =
      causal_buffer(frames.size(0), frames.size(1), frames.size(2), frames.size(3), frames.options(), border);
  new_frames(buffer, border).copy_(frames);
  return causal_conv3d(conv, buffer, history);
}

}  // namespace sparsereel::models
