// A layer whose weight is quantized in several tensors of a .safetensors file. No torch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

struct QuantizedLayer;
class LayerTensors;

/// A format, and how its tensors become rows in memory. Functions are null where a format has nothing to do.
struct QuantizedFormat {
  std::string_view name;               // in descriptions
  Dtype stored;                        // the weight in files
  Dtype packed;                        // the weight in memory
  int64_t codes = 1;                   // columns in one byte of the file; 0 if a tensor beside the weight tells
  std::vector<std::string> own = {};   // the last parts of the names of tensors that must lie beside the weight
  std::vector<std::string> more = {};  // those that may lie there
  bool may_rotate = false, must_rotate = false;  // ConvRot
  /// Says what is wrong with the tensors beside the weight; empty if nothing is.
  std::string (*problem)(const QuantizedLayer& layer) = nullptr;
  /// Returns packed rows, joined from codes and scales. `rows` and `columns` may be fewer than the file's, which pads.
  std::vector<std::byte> (*join)(const LayerTensors& tensors, int64_t rows, int64_t columns) = nullptr;
  /// Returns a factor for each row; none for a format whose blocks have them all.
  std::vector<float> (*row_scales)(const LayerTensors& tensors, int64_t rows) = nullptr;
  int64_t padding_rows = 1, padding_columns = 1;  // the file's sizes are multiples of these
};

/// A layer whose weight is quantized, and the tensors of the file that belong to it.
struct QuantizedLayer {
  const QuantizedFormat* format = nullptr;
  int64_t rotation = 0;           // columns of a group of ConvRot; 0 if the weight is not rotated
  int64_t group = 0;              // columns that share a scale as the description says; 0 if it does not say
  bool is_marked = false;         // a description names the format
  int64_t rows = 0, columns = 0;  // including the file's padding
  /// By the last part of the name: "weight", "weight_scale".
  std::map<std::string, std::pair<size_t, const TensorEntry*>> tensors = {};

  const TensorEntry* find(const std::string& part) const {
    const auto found = tensors.find(part);
    return found == tensors.end() ? nullptr : found->second.second;
  }
  /// Returns true if the low four bits of a byte of nvfp4 hold the even column, and the high four bits the odd column.
  /// Only ComfyUI, whose files describe their formats, stores them the other way round.
  bool low_first() const { return !is_marked; }
  bool is_joined() const { return format->join != nullptr; }
  /// Returns the format's usual name: "int8_convrot", "nvfp4".
  std::string label() const {
    if (format->name != "int8_tensorwise") return std::string(format->name);
    return rotation > 0 ? "int8_convrot" : "int8";
  }
};

}  // namespace sparsereel::models
