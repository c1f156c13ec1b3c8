// Pictures of another size by Pillow's arithmetic, byte for byte. No torch.
#pragma once

#include <cstdint>
#include <vector>

namespace sparsereel::models {

/// 8-bit RGB [height, width, 3].
struct Picture {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> pixels = {};
};

/// Larger pictures are refused: 300 MB of RGB.
constexpr int64_t kMostImagePixels = 100'000'000;

enum class ResampleFilter { lanczos, bicubic };

/// A part of a picture, in its pixels; its edges may lie within some.
struct PictureBox {
  double left = 0, top = 0, right = 0, bottom = 0;
};

/// All of it.
PictureBox whole(const Picture& picture);
/// The largest part at the centre that has the shape of height x width.
PictureBox centre(const Picture& picture, int64_t height, int64_t width);

/// The part as height x width. Widened by the scale, the filter lets nothing through that the new size cannot show.
/// One axis after the other, each rounded to 8 bits. Throws Error where a size is below 1.
Picture resample(const Picture& picture, int64_t height, int64_t width, ResampleFilter filter, const PictureBox& part);

}  // namespace sparsereel::models
