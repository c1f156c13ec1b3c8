// Describes layers whose weight is stored quantized, in several tensors of a .safetensors file. No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::models {

struct QuantizedLayer;
class LayerTensors;

/// Writes a layer's row to `to`, packed. Any number of threads may call it.
using JoinRow = std::function<void(int64_t row, std::span<std::byte> to)>;

/// A format, and how its tensors become packed rows in memory (StoredRows). A function is null if the format does not
/// need it.
struct QuantizedFormat {
  std::string_view name;  // the name in files' descriptions
  Dtype stored;           // dtype of the weight in files
  Dtype packed;           // dtype of the weight in memory
  // How many columns of the weight one byte of the file holds; 0 if a tensor beside the weight determines the number.
  int64_t codes = 1;
  std::vector<std::string> own = {};   // last parts of the names of tensors that must be beside the weight
  std::vector<std::string> more = {};  // last parts of the names of tensors that may be there
  // Tells whether columns may be rotated, and whether they always are (layers/rotation.h).
  bool may_rotate = false, must_rotate = false;
  /// Says what is wrong with the tensors beside the weight; empty if nothing is.
  std::string (*problem)(const QuantizedLayer& layer) = nullptr;
  /// Returns a function that joins the codes and scales of a row, in the file's order of rows. `columns` may be fewer
  /// than the file's, which includes padding.
  JoinRow (*join)(const LayerTensors& tensors, int64_t columns) = nullptr;
  /// Returns a scale for each row. Null if the format has scales only in its blocks.
  std::vector<float> (*row_scales)(const LayerTensors& tensors, int64_t rows) = nullptr;
  int64_t padding_rows = 1, padding_columns = 1;  // the file's sizes are multiples of these
};

/// A layer whose weight is quantized, and the tensors of the file that belong to it.
struct QuantizedLayer {
  const QuantizedFormat* format = nullptr;
  int64_t rotation = 0;           // columns of each rotated group (layers/rotation.h); 0 if the weight is not rotated
  int64_t group = 0;              // columns that share a scale according to the description; 0 if it does not say
  bool is_marked = false;         // true if the file has a description that names the format
  int64_t rows = 0, columns = 0;  // as stored, with the file's padding
  // The layer may be a part of a stored weight, which has this many rows. The part begins with row first_row.
  int64_t stored_rows = 0, first_row = 0;
  /// The layer's tensors, each with the index of its file, by the last part of the name: "weight", "weight_scale".
  std::map<std::string, std::pair<size_t, const TensorEntry*>> tensors = {};

  const TensorEntry* find(const std::string& part) const {
    const auto found = tensors.find(part);
    return found == tensors.end() ? nullptr : found->second.second;
  }
  /// Returns the row of the stored weight that is the layer's row `row`.
  int64_t row_in_file(int64_t row) const {
    const TensorEntry& weight = *find("weight");
    const int64_t of_group = weight.group_rows;
    return first_row + (of_group > 0 ? row / of_group * weight.group_step + row % of_group : row);
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
