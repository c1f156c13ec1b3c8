// Resamples in two passes, one for each axis, with fixed-point weights, like Pillow's Image.resize() of 8-bit pictures.
#include "models/image/resample.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

constexpr int kBits = 32 - 8 - 2;  // fraction bits of a weight: 32, less 8 for a pixel, less 2 of headroom for sums
constexpr int64_t kChannels = 3;

struct Kernel {
  double support;  // the kernel is 0 at all larger distances
  double (*value)(double x);
};

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos(double x) {
  return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

Kernel kernel_of(ResampleFilter filter) {
  return filter == ResampleFilter::lanczos ? Kernel{3, lanczos} : Kernel{2, bicubic};
}

/// The weights of the old pixels from `first` on; their weighted sum is one new pixel.
struct Taps {
  int64_t first = 0;
  std::vector<int32_t> weights;
};

/// Truncates towards 0 as Pillow does, so numbers below 0 are rounded up.
int64_t cut_off(double x) {
  return static_cast<int64_t>(x);
}

/// Returns the taps of `count` new pixels, which replace the old pixels from `begin` to `end`. `size` is the number of
/// all old pixels.
std::vector<Taps> taps_of(const Kernel& kernel, int64_t size, float begin, float end, int64_t count) {
  const double scale = static_cast<double>(end - begin) / static_cast<double>(count);
  const double widening = std::max(scale, 1.0), support = kernel.support * widening;
  std::vector<Taps> all(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const double center = begin + (static_cast<double>(i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(cut_off(center - support + 0.5), 0);
    const int64_t last = std::min(cut_off(center + support + 0.5), size);
    std::vector<double> weights;
    double sum = 0;
    for (int64_t x = first; x < last; ++x) {
      weights.push_back(kernel.value((static_cast<double>(x) - center + 0.5) * (1 / widening)));
      sum += weights.back();
    }
    Taps& taps = all[static_cast<size_t>(i)];
    taps.first = first;
    for (double weight : weights) {
      if (sum != 0) weight /= sum;
      taps.weights.push_back(static_cast<int32_t>(weight * (1 << kBits) + (weight < 0 ? -0.5 : 0.5)));
    }
  }
  return all;
}

uint8_t rounded(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255));
}

constexpr int32_t kHalf = 1 << (kBits - 1);

Picture along_x(const Picture& picture, const std::vector<Taps>& taps) {
  Picture result{.height = picture.height, .width = static_cast<int64_t>(taps.size())};
  result.pixels.resize(static_cast<size_t>(result.height * result.width * kChannels));
  uint8_t* target = result.pixels.data();
  for (int64_t y = 0; y < picture.height; ++y) {
    const uint8_t* row = picture.pixels.data() + y * picture.width * kChannels;
    for (const Taps& each : taps) {
      const uint8_t* source = row + each.first * kChannels;
      int32_t red = kHalf, green = kHalf, blue = kHalf;
      for (const int32_t weight : each.weights) {
        red += source[0] * weight;
        green += source[1] * weight;
        blue += source[2] * weight;
        source += kChannels;
      }
      *target++ = rounded(red);
      *target++ = rounded(green);
      *target++ = rounded(blue);
    }
  }
  return result;
}

Picture along_y(const Picture& picture, const std::vector<Taps>& taps) {
  const int64_t row = picture.width * kChannels;
  Picture result{.height = static_cast<int64_t>(taps.size()), .width = picture.width};
  result.pixels.resize(static_cast<size_t>(result.height * row));
  uint8_t* target = result.pixels.data();
  std::vector<int32_t> sums(static_cast<size_t>(row));
  for (const Taps& each : taps) {
    std::ranges::fill(sums, kHalf);
    const uint8_t* source = picture.pixels.data() + each.first * row;
    for (const int32_t weight : each.weights)
      for (int32_t& sum : sums) sum += *source++ * weight;
    for (const int32_t sum : sums) *target++ = rounded(sum);
  }
  return result;
}

bool changes(int64_t size, double begin, double end, int64_t count) {
  return count != size || begin != 0 || end != static_cast<double>(size);
}

/// Returns true if the height is resized before the width, which may leave less work for the second pass. This is the
/// rule of Pillow 13 and later.
bool height_goes_first(const Picture& picture, int64_t height, int64_t width) {
  const int64_t rows = picture.height - height, columns = picture.width - width;
  return rows > 0 && rows > 2 * columns;
}

}  // namespace

PictureBox whole(const Picture& picture) {
  return {0, 0, static_cast<double>(picture.width), static_cast<double>(picture.height)};
}

PictureBox center(const Picture& picture, int64_t height, int64_t width) {
  double of_x = static_cast<double>(picture.width), of_y = static_cast<double>(picture.height);
  const double all_x = of_x, all_y = of_y;
  const double here = of_x / of_y, wanted = static_cast<double>(width) / static_cast<double>(height);
  if (here > wanted) of_x = wanted * all_y;
  if (here < wanted) of_y = all_x / wanted;
  const double left = (all_x - of_x) * 0.5, top = (all_y - of_y) * 0.5;
  return {left, top, left + of_x, top + of_y};
}

Picture resample(const Picture& picture, int64_t height, int64_t width, ResampleFilter filter, const PictureBox& part) {
  if (std::min({picture.height, picture.width, height, width}) < 1)
    throw bad_input("a picture cannot have the size " + std::to_string(width) + "x" + std::to_string(height),
                    "give a size above 0");
  const Kernel kernel = kernel_of(filter);
  const auto taps = [&](int64_t size, double begin, double end, int64_t count) {
    return taps_of(kernel, size, static_cast<float>(begin), static_cast<float>(end), count);
  };
  Picture result = picture;
  const auto change_width = [&] {
    if (changes(picture.width, part.left, part.right, width))
      result = along_x(result, taps(picture.width, part.left, part.right, width));
  };
  const auto change_height = [&] {
    if (changes(picture.height, part.top, part.bottom, height))
      result = along_y(result, taps(picture.height, part.top, part.bottom, height));
  };
  const bool height_first = height_goes_first(picture, height, width);
  if (height_first) change_height();
  change_width();
  if (!height_first) change_height();
  return result;
}

}  // namespace sparsereel::models
