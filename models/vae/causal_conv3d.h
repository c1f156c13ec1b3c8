// Causal convolutions over three frames: an output frame depends on its own and the two earlier input frames. The video
// arrives a few frames at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <unordered_map>

#include "models/store/weights/weights.h"

namespace sparsereel::models {

/// Activations of encoders and decoders are [frames, height, width, channels], contiguous. In this layout, the
/// remembered frames can be written in front of the new frames without moving the new ones, and oneDNN and cuDNN accept
/// the layout as channels-last.
inline constexpr int64_t kHistoryFrames = 2;  // frames that a convolution remembers

/// The maximum number of input elements per call, because cuDNN's convolutions index with 32 bits.
inline constexpr int64_t kMaxElementsPerCall = int64_t{1} << 30;

class RowSplit;

/// The number of extra pixels around each frame in a convolution's buffer: rows above and below, columns on either
/// side.
struct Border {
  int64_t rows = 0, columns = 0;
};

struct CausalConv3d {
  at::Tensor weight;  // [out, in, 3, side, side], channels-last
  at::Tensor bias;    // [out]
  // If true, the buffer has a border that repeats the frame's edge. If false, zeros surround the frames.
  bool repeats_edges = false;

  /// Returns the buffer's border. If frames are bands of rows (ConvHistory::rows), the border holds rows of the
  /// neighboring bands.
  Border border(const RowSplit* rows = nullptr) const;
  /// Lists `name`.weight and `name`.bias, with a kernel of 3 x side x side. `visit` chooses the memory format.
  void weights(const Visit& visit, const std::string& name, int64_t out, int64_t in, int64_t side = 3);
};

/// The memory of an encoder's or decoder's convolutions from one batch of frames to the next: the last kHistoryFrames
/// input frames [2, height, width, in] of each convolution.
struct ConvHistory {
  // If true, zeros precede a video's first frame; if false, copies of that frame.
  bool starts_on_zeros = false;
  bool ends = false;  // true if the next frames are the video's last, which need not be remembered
  // True if a convolution's remembered frames have changed since the caller set this to false; nullopt if frames are
  // not compared.
  std::optional<bool> changed{};
  const RowSplit* rows = nullptr;  // how ranks split the frames into bands of rows; null if frames are whole
  std::unordered_map<const CausalConv3d*, at::Tensor> frames{};

  /// If `changed` is false and the frames `next` differ from `now`, sets `changed` to true.
  void compare(const at::Tensor& now, const at::Tensor& next);
};

/// While an object with on = true exists, fp32 convolutions of its thread on a GPU may round their inputs to TF32 (10
/// bits of mantissa). Otherwise they compute in fp32, whatever libtorch's process-wide setting says.
class Tf32Convolutions {
 public:
  explicit Tf32Convolutions(bool on);
  ~Tf32Convolutions();
  Tf32Convolutions(const Tf32Convolutions&) = delete;
  Tf32Convolutions& operator=(const Tf32Convolutions&) = delete;

 private:
  const bool before_;
};

/// Calls at::convolution; an empty stride means 1. fp32 on a CPU always uses oneDNN, because at::conv3d is slow if
/// there are few channels. fp32 on a GPU uses cuDNN (see Tf32Convolutions).
at::Tensor convolve(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, at::IntArrayRef padding,
                    at::IntArrayRef stride = {});

/// Adds output channels of zeros to a half-precision convolution on a GPU, so that their number is a multiple of eight,
/// as tensor cores need. Returns other convolutions as they are.
CausalConv3d with_padded_outputs(CausalConv3d conv);

/// Allocates a convolution's input without initializing it: [2 + frames, height, width, channels], where height and
/// width get the border on either side. The caller fills new_frames().
at::Tensor causal_buffer(int64_t frames, int64_t height, int64_t width, int64_t channels,
                         const at::TensorOptions& options, const Border& border = {});
/// Returns a view of a causal_buffer() without history and border: [frames, height, width, channels].
at::Tensor new_frames(const at::Tensor& buffer, const Border& border = {});

/// Convolves a causal_buffer(). Returns [frames, height, width, out]. First fills the buffer's history frames with the
/// remembered frames, or with what precedes a video's first frame. Fills the border with zeros, the frame's own edge,
/// or rows of neighboring bands. Then remembers the buffer's last frames. If a video's first frame comes alone, a 2D
/// convolution suffices, because only zeros or copies of the frame precede it. If with_bias is false, the bias is left
/// out, and the next operation must add it.
at::Tensor causal_conv3d(const CausalConv3d& conv, const at::Tensor& buffer, ConvHistory& history,
                         bool with_bias = true);

/// Copies frames [frames, height, width, in] of any layout into a buffer, then calls causal_conv3d().
at::Tensor convolve_copied(const CausalConv3d& conv, const at::Tensor& frames, ConvHistory& history);

}  // namespace sparsereel::models
