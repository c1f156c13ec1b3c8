// On a CPU, a rotation takes one step for each factor of 4 in the group's size. On a GPU, it is a product with matrices
// of up to 256 columns.
#include "models/layers/rotation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace sparsereel::models {
namespace {

/// Rotates groups of 4 elements that lie `stride` apart. Each element becomes half of the sum of all four, minus its
/// opposite. Opposites are the first and the last element, and the second and the third.
void rotate_fours(float* x, int64_t columns, int64_t stride) {
  for (int64_t first = 0; first < columns; first += 4 * stride) {
    for (int64_t i = first; i < first + stride; ++i) {
      float &a = x[i], &b = x[i + stride], &c = x[i + 2 * stride], &d = x[i + 3 * stride];
      const float half = 0.5F * ((a + b) + (c + d)), y[] = {half - d, half - c, half - b, half - a};
      a = y[0], b = y[1], c = y[2], d = y[3];
    }
  }
}

/// Returns the matrix, fp32 [group, group]. Rows and columns are numbered in base 4. Two base-4 digits are opposite if
/// both of their bits differ. An element is negative if its row and column have opposite digits at an odd number of
/// places.
at::Tensor matrix_of(int64_t group, at::Device device) {
  const auto size = static_cast<uint64_t>(group);
  const float value = 1 / static_cast<float>(uint64_t{1} << std::countr_zero(size) / 2);
  at::Tensor matrix = at::empty({group, group}, at::kFloat);
  auto* to = matrix.mutable_data_ptr<float>();
  for (uint64_t i = 0; i < size; ++i)
    for (uint64_t j = 0; j < size; ++j) {
      const uint64_t differ = i ^ j, opposite = differ & (differ >> 1) & 0x5555555555555555U;
      to[i * size + j] = std::popcount(opposite) % 2 == 1 ? -value : value;
    }
  return matrix.to(device);
}

/// Returns matrix_of(), which is computed once for each group size and device. The matrices are never freed: when
/// static objects are destroyed, CUDA may already have shut down.
at::Tensor kept_matrix(int64_t group, at::Device device) {
  static std::mutex mutex;
  static auto* const kept = new std::map<std::pair<int64_t, std::string>, at::Tensor>;
  const std::scoped_lock lock(mutex);
  at::Tensor& matrix = (*kept)[{group, device.str()}];
  if (!matrix.defined()) matrix = matrix_of(group, device);
  return matrix;
}

}  // namespace

void rotate_by_products_(const at::Tensor& rows, int64_t group) {
  constexpr int64_t kLargest = 256;
  const int64_t first = std::min(group, kLargest);
  const at::Tensor groups = rows.view({-1, first});
  groups.copy_(at::matmul(groups, kept_matrix(first, rows.device())));
  for (int64_t stride = first; stride < group; stride *= kLargest) {
    const int64_t size = std::min(group / stride, kLargest);
    const at::Tensor apart = rows.view({-1, size, stride});
    apart.copy_(at::matmul(kept_matrix(size, rows.device()), apart));
  }
}

void rotate_(const at::Tensor& rows, int64_t group) {
  if (!rows.is_cpu()) return rotate_by_products_(rows, group);
  const int64_t columns = rows.size(1);
  auto* data = rows.mutable_data_ptr<float>();
  for (int64_t row = 0; row < rows.size(0); ++row)
    for (int64_t stride = 1; stride < group; stride *= 4) rotate_fours(data + row * columns, columns, stride);
}

}  // namespace sparsereel::models
