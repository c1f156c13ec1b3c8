// Convolutions over three frames that look back in time only, over a video that arrives a few frames at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>

#include "models/store/weights/weights.h"

namespace sparsereel::models {

/// Activations of encoders and decoders are [frames, height, width, channels], contiguous: in this layout the frames
/// that a convolution remembers stand in front of the new ones without moving any of them, and oneDNN and cuDNN take it
/// as channels-last.
inline constexpr int64_t kHistoryFrames = 2;

/// cuDNN's convolutions index with 32 bits: no more than this many input elements a call.
inline constexpr int64_t kMaxElementsPerCall = int64_t{1} << 30;

class RowSplit;

/// Pixels around each frame in a convolution's buffer, above and below and on either side.
struct Border {
  int64_t rows = 0, columns = 0;
};

struct CausalConv3d {
  at::Tensor weight;           // [out, in, 3, side, side], channels-last
  at::Tensor bias;             // [out]
  bool repeats_edges = false;  // what stands around each frame: its own edge, in the buffer, or zeros

  /// rows: as in ConvHistory, whose neighbours stand in the buffer as well.
  Border border(const RowSplit* rows = nullptr) const;
  /// Stored as `name`.weight and `name`.bias; the visitor lays the weight out.
  void weights(const Visit& visit, const std::string& name, int64_t out, int64_t in, int64_t side = 3);
};

/// The last kHistoryFrames input frames [2, height, width, in] of every convolution, from one batch of frames to the
/// next.
struct ConvHistory {
  bool starts_on_zeros = false;    // what stands before a video's first frame: zeros, or that frame repeated
  bool ends = false;               // no frames come behind the next ones, of which none are remembered
  const RowSplit* rows = nullptr;  // of whose pictures each frame is a piece; null: a picture of its own
  std::unordered_map<const CausalConv3d*, at::Tensor> frames{};
};

/// While one lives, fp32 convolutions that its thread runs on a GPU may round their inputs to TF32's 10 bits. Without
/// one fp32 means fp32, whatever libtorch's setting for the whole process is.
class Tf32Convolutions {
 public:
  explicit Tf32Convolutions(bool on);
  ~Tf32Convolutions();
  Tf32Convolutions(const Tf32Convolutions&) = delete;
  Tf32Convolutions& operator=(const Tf32Convolutions&) = delete;

 private:
  const bool before_;
};

/// at::convolution, stride: undefined is 1. On a CPU in fp32 always oneDNN's, where at::conv3d takes a slow one for few
/// channels; on a GPU in fp32 cuDNN's, see Tf32Convolutions.
at::Tensor convolve(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, at::IntArrayRef padding,
                    at::IntArrayRef stride = {});

/// Tensor cores take channels in eights: on a GPU in half precision, outputs that mean nothing are added up to the next
/// eight.
CausalConv3d with_padded_outputs(CausalConv3d conv);

/// Room for a convolution's input, uninitialised: [2 + frames, height, width, channels], height and width with the
/// convolution's border on either side. The caller fills new_frames().
at::Tensor causal_buffer(int64_t frames, int64_t height, int64_t width, int64_t channels,
                         const at::TensorOptions& options, const Border& border = {});
/// The part of a causal_buffer behind the history and within the border: [frames, height, width, channels], a view.
at::Tensor new_frames(const at::Tensor& buffer, const Border& border = {});

/// Fills the buffer's history (as it starts where there is none yet), remembers its last frames and convolves: [frames,
/// height, width, out]. Around each frame are zeros, or its edge in the buffer's border, or the rows of the pieces
/// beside it: the border is filled here; none in time. A video's first frame, where it comes alone, is convolved in two
/// dimensions: before it are only zeros, or itself. with_bias off: what follows adds the bias.
at::Tensor causal_conv3d(const CausalConv3d& conv, const at::Tensor& buffer, ConvHistory& history,
                         bool with_bias = true);

/// The same of frames [frames, height, width, in], laid out in whatever way, that something else made.
at::Tensor convolve_copied(const CausalConv3d& conv, const at::Tensor& frames, ConvHistory& history);

}  // namespace sparsereel::models
