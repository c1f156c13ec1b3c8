// Resizes pictures with Pillow's arithmetic, byte for byte. No torch.
#pragma once

#include <cstdint>
#include <vector>

namespace sparsereel::models {

/// An 8-bit RGB picture [height, width, 3].
struct Picture {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> pixels = {};
};

/// The largest number of pixels of a picture that is accepted; as RGB it takes 300 MB.
constexpr int64_t kMostImagePixels = 100'000'000;

enum class ResampleFilter { lanczos, bicubic };

/// A part of a picture, in pixels; its edges need not be whole numbers.
struct PictureBox {
  double left = 0, top = 0, right = 0, bottom = 0;
};

PictureBox whole(const Picture& picture);
/// Returns the largest centered part of the picture with the aspect ratio width : height.
PictureBox center(const Picture& picture, int64_t height, int64_t width);

/// Resizes a part of a picture to height x width, one axis after the other, and rounds to 8 bits after each. When it
/// shrinks the picture, it widens the filter by the scale to avoid aliasing. Throws Error if a size is below 1.
Picture resample(const Picture& picture, int64_t height, int64_t width, ResampleFilter filter, const PictureBox& part);

}  // namespace sparsereel::models
