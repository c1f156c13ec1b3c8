// The interface of the part of a text encoder that looks at pictures.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/image/resample.h"

namespace sparsereel::models {

/// A picture as a text encoder sees it: a grid of tokens, which replace the embeddings of as many tokens of the text.
struct TextPicture {
  int64_t rows = 0, columns = 0;        // size of the grid in tokens
  at::Tensor tokens{};                  // [rows x columns, C], row by row
  std::vector<at::Tensor> of_layers{};  // [rows x columns, C]; the text encoder adds entry i after its layer i
  int64_t first = 0;                    // index of the first of the text's tokens that stand for the picture
};

/// The ids of the tokens before and after a picture, and the id that all tokens of a picture have.
struct PictureMarks {
  int64_t begin = 0, picture = 0, end = 0;
};

class TextVision {
 public:
  virtual ~TextVision() = default;

  /// Returns what the text encoder gets of a picture of any size, in the run's dtype on its device. Throws Error for a
  /// picture that is too narrow.
  virtual TextPicture look(const Picture& picture) const = 0;
  virtual PictureMarks marks() const = 0;
  virtual uint64_t weight_bytes() const = 0;
  /// Estimates the peak bytes of look() in addition to the weights, for a picture of this size in pixels. Throws Error
  /// as look() does.
  virtual uint64_t look_bytes(int64_t height, int64_t width) const = 0;
};

}  // namespace sparsereel::models
