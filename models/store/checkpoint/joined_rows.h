// Joins the codes and scales of a quantized layer into packed rows in memory. No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/store/checkpoint/quantized_layer.h"

namespace sparsereel::models {

/// Reads the tensors of a quantized layer. The spans that it returns stay valid as long as the object exists. numbers()
/// throws Error naming file, tensor and format if a number is NaN or infinite.
class LayerTensors {
 public:
  LayerTensors(const QuantizedLayer& layer, const std::vector<std::shared_ptr<TensorFile>>& files)
      : layer_(layer), files_(files) {}

  const QuantizedLayer& layer() const { return layer_; }
  std::span<const std::byte> bytes(const std::string& part) const;
  std::vector<float> numbers(const std::string& part) const;
  bool has(const std::string& part) const { return layer_.find(part) != nullptr; }
  [[noreturn]] void refuse(const std::string& part, const std::string& why) const;

 private:
  std::span<const std::byte> joined_groups(const std::string& part) const;

  const QuantizedLayer& layer_;
  const std::vector<std::shared_ptr<TensorFile>>& files_;
  mutable std::map<std::string, std::vector<std::byte>> joined_groups_;  // by the part's name
};

/// A layer's rows in the form in which memory holds them: [rows, columns], packed as layer.format->packed. They are
/// joined when they are read.
class JoinedRows {
 public:
  /// Takes the first `columns` columns of each row; `columns` must be a multiple of the packed block's elements.
  /// `tensors` must outlive this object. Throws Error naming file and tensor if a scale is NaN or infinite.
  JoinedRows(const LayerTensors& tensors, int64_t rows, int64_t columns);

  size_t bytes() const { return rows_ * row_bytes_; }
  /// Writes the bytes from `first` on into `to`. Any number of threads may call this. Throws Error naming file and
  /// tensor if a scale of a block is NaN or infinite.
  void read(size_t first, std::span<std::byte> to) const;

 private:
  JoinRow join_;
  size_t rows_, row_bytes_;
  bool halves_swapped_;
};

/// Returns the scale of each row; empty if the format has no scales of rows.
std::vector<float> joined_row_scales(const LayerTensors& tensors, int64_t rows);
/// Returns the scale of each column (pre_quant_scale); empty if the layer has none.
std::vector<float> column_scales(const LayerTensors& tensors, int64_t columns);

/// The functions QuantizedFormat::join and row_scales of each format. join_w4a8() makes int8 numbers: it replaces each
/// code of asym_w4a8_int8 by the number that the code stands for.
JoinRow join_mxfp8(const LayerTensors& tensors, int64_t columns);
JoinRow join_nvfp4(const LayerTensors& tensors, int64_t columns);
JoinRow join_w4a4(const LayerTensors& tensors, int64_t columns);
JoinRow join_w4a8(const LayerTensors& tensors, int64_t columns);
JoinRow join_awq(const LayerTensors& tensors, int64_t columns);
std::vector<float> scales_of_nvfp4(const LayerTensors& tensors, int64_t rows);
std::vector<float> scales_of_w4a4(const LayerTensors& tensors, int64_t rows);
std::vector<float> scales_of_w4a8(const LayerTensors& tensors, int64_t rows);

/// Returns the shape of the scales of `rows` rows of `blocks` blocks in cuBLAS's layout: tiles of 128 rows and 4
/// blocks.
std::vector<int64_t> tiled_shape(int64_t rows, int64_t blocks);
/// Returns the number of bits of a code of asym_w4a8_int8: 4 if a row has half as many bytes as columns, 6 if it has
/// three quarters.
int bits_of_w4a8(const QuantizedLayer& layer);
/// Returns how many columns of asym_w4a8_int8 share a scale.
int64_t group_of_w4a8(const QuantizedLayer& layer);

}  // namespace sparsereel::models
