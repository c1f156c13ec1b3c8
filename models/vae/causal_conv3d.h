// Convolutions over three frames that look back in time only, for a video that arrives a few frames at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <unordered_map>

#include "models/store/weights/weights.h"

namespace sparsereel::models {

/// Activations of encoders and decoders are [frames, height, width, channels], contiguous. In this layout the frames
/// that a convolution remembers precede the new ones without moving any, and oneDNN and cuDNN accept it as
/// channels-last.
inline constexpr int64_t kHistoryFrames = 2;

/// The maximum number of input elements per call, because cuDNN's convolutions index with 32 bits.
inline constexpr int64_t kMaxElementsPerCall = int64_t{1} << 30;

class RowSplit;

/// Pixels around each frame in a convolution's buffer: above and below, and on either side.
struct Border {
  int64_t rows = 0, columns = 0;
};

struct CausalConv3d {
  at::Tensor weight;           // [out, in, 3, side, side], channels-last
  at::Tensor bias;             // [out]
  bool repeats_edges = false;  // each frame's border repeats the frame's edge, stored in the buffer; else zeros

  /// Returns the buffer's border. If frames are bands of rows (ConvHistory::rows), the border also holds rows of the
  /// neighboring bands.
  Border border(const RowSplit* rows = nullptr) const;
  /// Calls `visit` for `name`.weight and `name`.bias. `visit` chooses their memory format.
  void weights(const Visit& visit, const std::string& name, int64_t out, int64_t in, int64_t side = 3);
};

/// The last kHistoryFrames input frames [2, height, width, in] of every convolution, kept from one batch of frames to
/// the next.
struct ConvHistory {
  bool starts_on_zeros = false;    // before the first frame of a video come zeros; otherwise that frame repeated
  bool ends = false;               // the next frames are the last, so they are not remembered
  std::optional<bool> changed{};   // false until a convolution remembers other frames than before; empty: not compared
  const RowSplit* rows = nullptr;  // how ranks split the frames into bands of rows; null if frames are whole
  std::unordered_map<const CausalConv3d*, at::Tensor> frames{};

  /// Sets `changed` if it has a value and the frames that are remembered next differ from those remembered now.
  void compare(const at::Tensor& now, const at::Tensor& next);
};

/// While it exists, fp32 convolutions of its thread on a GPU may round their inputs to TF32's 10 bits. Otherwise fp32
/// means fp32, regardless of libtorch's process-wide setting.
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

/// Pads the outputs of a half-precision convolution on a GPU with unused channels to a multiple of eight, as tensor
/// cores need.
CausalConv3d with_padded_outputs(CausalConv3d conv);

/// Allocates a convolution's input without initializing it: [2 + frames, height, width, channels], with the border
/// added to height and width on either side. The caller fills new_frames().
at::Tensor causal_buffer(int64_t frames, int64_t height, int64_t width, int64_t channels,
                         const at::TensorOptions& options, const Border& border = {});
/// Returns a view of a causal_buffer() without history and border: [frames, height, width, channels].
at::Tensor new_frames(const at::Tensor& buffer, const Border& border = {});

/// Convolves a buffer: [frames, height, width, out]. Fills its history first (with the video's start, if there is none
/// yet), and remembers its last frames. Also fills the border with zeros, the frame's own edge, or the rows of
/// neighboring bands. There is no border in time. A video's first frame, if it comes alone, is convolved in two
/// dimensions, since only zeros or itself precede it. Without with_bias, the next operation must add the bias.
at::Tensor causal_conv3d(const CausalConv3d& conv, const at::Tensor& buffer, ConvHistory& history,
                         bool with_bias = true);

/// Copies frames [frames, height, width, in] of any layout into a buffer, then calls causal_conv3d().
at::Tensor convolve_copied(const CausalConv3d& conv, const at::Tensor& frames, ConvHistory& history);

}  // namespace sparsereel::models
