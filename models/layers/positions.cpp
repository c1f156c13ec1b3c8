// Position tables. Types and order of operations follow the models' reference implementation, so that the tables agree
// to the last bits.
#include "models/layers/positions.h"

#include <ATen/ATen.h>

#include <cmath>

namespace sparsereel::models {
namespace {

// Returns the sines, then the cosines, of fp32 positions [n] at channels / 2 frequencies: fp64 [n, channels].
at::Tensor sincos_1d(const at::Tensor& positions, int64_t channels) {
  const int64_t half = channels / 2;
  const at::Tensor frequency = at::pow(10000.0, at::arange(half, at::kDouble) / static_cast<double>(half)).reciprocal();
  const at::Tensor angle = positions.to(at::kDouble).unsqueeze(1) * frequency.unsqueeze(0);
  return at::cat({angle.sin(), angle.cos()}, 1);
}

// Returns the angles of one axis for positions [n], each angle twice in a row: [n, channels], in the same dtype.
at::Tensor rotary_1d(const at::Tensor& positions, int64_t channels) {
  const at::Tensor frequency =
      at::pow(10000.0, at::arange(0, channels, 2, positions.scalar_type()) / channels).reciprocal();
  return at::outer(positions, frequency).repeat_interleave(2, 1);
}

// Combines the tables of the three axes, [positions, channels] each, to [frames * height * width, sum of channels].
at::Tensor combine(const at::Tensor& t, const at::Tensor& h, const at::Tensor& w) {
  const int64_t frames = t.size(0), height = h.size(0), width = w.size(0);
  return at::cat({t.view({frames, 1, 1, -1}).expand({frames, height, width, -1}),
                  h.view({1, height, 1, -1}).expand({frames, height, width, -1}),
                  w.view({1, 1, width, -1}).expand({frames, height, width, -1})},
                 3)
      .flatten(0, 2);
}

int64_t round_half_even(double value) {
  return static_cast<int64_t>(std::nearbyint(value));
}

// Returns `count` evenly spaced positions from `start` up to but not including `stop`.
at::Tensor spread(int64_t start, int64_t stop, int64_t count) {
  return at::linspace(start, static_cast<double>(stop * (count - 1)) / static_cast<double>(count), count, at::kFloat);
}

}  // namespace

at::Tensor sincos_positions_3d(int64_t channels, const hilbert::Grid& grid, double spatial_scale,
                               double temporal_scale) {
  const int64_t temporal = channels / 4, spatial = channels / 8 * 3;
  const at::Tensor t = sincos_1d(at::arange(grid.frames, at::kFloat) / temporal_scale, temporal);
  const at::Tensor h = sincos_1d(at::arange(grid.height, at::kFloat) / spatial_scale, spatial);
  const at::Tensor w = sincos_1d(at::arange(grid.width, at::kFloat) / spatial_scale, spatial);
  const int64_t n = grid.frames;
  return at::cat({t.view({n, 1, 1, -1}).expand({n, grid.height, grid.width, -1}),
                  w.view({1, 1, grid.width, -1}).expand({n, grid.height, grid.width, -1}),
                  h.view({1, grid.height, 1, -1}).expand({n, grid.height, grid.width, -1})},
                 3)
      .flatten(0, 2);
}

AxisPositions cropped_axis_positions(const hilbert::Grid& grid, int64_t base_height, int64_t base_width) {
  const double height = static_cast<double>(grid.height), width = static_cast<double>(grid.width);
  const double target_height = static_cast<double>(base_height), target_width = static_cast<double>(base_width);
  int64_t resized_height = base_height, resized_width = base_width;
  if (height / width > target_height / target_width) {
    resized_width = round_half_even(target_height / height * width);
  } else {
    resized_height = round_half_even(target_width / width * height);
  }
  const int64_t top = round_half_even(static_cast<double>(base_height - resized_height) / 2.0);
  const int64_t left = round_half_even(static_cast<double>(base_width - resized_width) / 2.0);
  return {spread(0, grid.frames, grid.frames), spread(top, top + resized_height, grid.height),
          spread(left, left + resized_width, grid.width)};
}

AxisPositions plain_axis_positions(const hilbert::Grid& grid, at::ScalarType dtype) {
  return {at::arange(grid.frames, dtype), at::arange(grid.height, dtype), at::arange(grid.width, dtype)};
}

RotaryTable rotary_positions_3d(const AxisChannels& channels, const AxisPositions& positions,
                                std::optional<at::ScalarType> rounded) {
  const auto angles = [&](const at::Tensor& places, int64_t count) {
    const at::Tensor exact = rotary_1d(places, count);
    return rounded ? exact.to(*rounded) : exact;
  };
  const at::Tensor t = angles(positions.t, channels.t), h = angles(positions.h, channels.h),
                   w = angles(positions.w, channels.w);
  return {combine(t.cos(), h.cos(), w.cos()).to(at::kFloat), combine(t.sin(), h.sin(), w.sin()).to(at::kFloat)};
}

}  // namespace sparsereel::models
