// Gives text and pictures their positions, one after the other.
#include "models/text/encoder/picture_positions.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace sparsereel::models {

at::Tensor picture_positions(int64_t length, const std::vector<TextPicture>& pictures) {
  std::vector<at::Tensor> parts;
  int64_t token = 0, time = 0;
  const auto add_text = [&](int64_t end) {
    parts.push_back(at::arange(time, time + end - token, at::kFloat).expand({3, -1}));
    time += end - token;
    token = end;
  };
  for (const TextPicture& picture : pictures) {
    add_text(picture.first);
    const std::vector<int64_t> shape = {picture.rows, picture.columns};
    const at::Tensor rows = at::arange(picture.rows, at::kFloat).unsqueeze(1).expand(shape),
                     columns = at::arange(picture.columns, at::kFloat).unsqueeze(0).expand(shape);
    parts.push_back(at::stack({at::zeros(shape, at::kFloat), rows, columns}).flatten(1) + static_cast<double>(time));
    token += picture.rows * picture.columns;
    time += std::max(picture.rows, picture.columns);
  }
  add_text(length);
  return at::cat(parts, 1);
}

at::Tensor interleaved_angles(const at::Tensor& positions, const at::Tensor& frequencies,
                              const std::array<int64_t, 3>& section) {
  at::Tensor angles = positions[0].unsqueeze(1) * frequencies;
  for (int64_t axis = 1; axis < 3; ++axis) {
    const int64_t end = std::min(3 * section[static_cast<size_t>(axis)], frequencies.size(0));
    if (end <= axis) continue;
    angles.slice(1, axis, end, 3).copy_(positions[axis].unsqueeze(1) * frequencies.slice(0, axis, end, 3));
  }
  return angles;
}

}  // namespace sparsereel::models
