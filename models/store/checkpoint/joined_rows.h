// Joins the codes and scales of a quantized layer to packed rows in memory. No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/store/checkpoint/quantized_layer.h"

namespace sparsereel::models {

/// Reads the numbers of a layer's tensors. Throws Error naming file, tensor and format if a number is NaN or infinite.
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
  const QuantizedLayer& layer_;
  const std::vector<std::shared_ptr<TensorFile>>& files_;
};

/// Returns the layer's rows as they are kept in memory: [rows, columns], packed as layer.format->packed.
std::vector<std::byte> joined_rows(const LayerTensors& tensors, int64_t rows, int64_t columns);
/// Returns the factor of each row; none if the format has no such factors.
std::vector<float> joined_row_scales(const LayerTensors& tensors, int64_t rows);
/// Returns the factors of the columns, pre_quant_scale; none if there are no such factors.
std::vector<float> column_scales(const LayerTensors& tensors, int64_t columns);

/// The formats' own functions (QuantizedFormat). Rows of asym_w4a8_int8 become the int8 levels that its codes stand
/// for.
std::vector<std::byte> join_mxfp8(const LayerTensors& tensors, int64_t rows, int64_t columns);
std::vector<std::byte> join_nvfp4(const LayerTensors& tensors, int64_t rows, int64_t columns);
std::vector<std::byte> join_w4a4(const LayerTensors& tensors, int64_t rows, int64_t columns);
std::vector<std::byte> join_w4a8(const LayerTensors& tensors, int64_t rows, int64_t columns);
std::vector<std::byte> join_awq(const LayerTensors& tensors, int64_t rows, int64_t columns);
std::vector<float> scales_of_nvfp4(const LayerTensors& tensors, int64_t rows);
std::vector<float> scales_of_w4a4(const LayerTensors& tensors, int64_t rows);
std::vector<float> scales_of_w4a8(const LayerTensors& tensors, int64_t rows);

/// Returns the shape of scales of blocks that lie as cuBLAS wants them: in tiles of 128 rows and 4 blocks.
std::vector<int64_t> tiled_shape(int64_t rows, int64_t blocks);
/// Returns the bits of a code of asym_w4a8_int8: its rows have half as many bytes as columns, or three quarters.
int bits_of_w4a8(const QuantizedLayer& layer);
/// Returns the columns of asym_w4a8_int8 that share a scale.
int64_t group_of_w4a8(const QuantizedLayer& layer);

}  // namespace sparsereel::models
