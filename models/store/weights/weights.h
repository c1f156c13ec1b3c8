// Hands a component's weights to a module as tensors. One error lists all weights that are missing, unexpected or of
// another shape.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "models/layers/parameters.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/weights/delta_reader.h"
#include "models/store/weights/load_plan.h"
#include "models/store/weights/tensor_source.h"

namespace sparsereel::models {

/// Returns true for the placeholder of a tensor that is missing or misshaped. It takes no memory, whatever its shape,
/// and must not be copied.
bool is_stand_in(const at::Tensor& tensor);
/// Returns the tensor in this memory format; a placeholder is returned as it is.
at::Tensor laid_out(const at::Tensor& tensor, at::MemoryFormat format);

/// Reads a component's weights. Ask for every tensor by name and shape, then call check_complete(). For missing and
/// misshaped tensors, the reader returns empty placeholders of the asked shape and remembers them, so that one error
/// can list them all.
class WeightReader {
 public:
  /// Reads tensors onto `device` in the format's dtype. They are converted while they are copied (no second host copy),
  /// after the component's weight deltas were added in fp32. On a CPU, an unchanged tensor stored in that dtype is the
  /// file's mapping itself: read-only memory, kept alive by the tensor. On the meta device only headers are read, to
  /// check names and shapes. `component` must outlive the reader.
  /// NAME.weight may be stored as F8_E4M3, F8_E5M2 or I8, with its scale in NAME.weight_scale or NAME.scale_weight (one
  /// scale for the tensor, or one per row). F8 without a scale has scale 1; I8 needs a scale. Throws Error if a file
  /// says that it is quantized in an unsupported way (quantization.h).
  WeightReader(const Component& component, at::Device device, WeightFormat format);

  at::Tensor tensor(const std::string& name, const std::vector<int64_t>& shape);
  /// Reads a parameter in fp32 or the format's dtype, never in 8 bits and never packed.
  at::Tensor read(Parameter parameter);
  /// Loads a parameter as the format says. Scales of 8-bit weights go to parameter.scale. Weights that are packed, or
  /// in another 8-bit format that matrix products do not accept, stay as stored if the parameter has a place for their
  /// rows. Low-rank deltas then stay beside them. Rows come in the parameter's order. Throws WorkStopped in a thread
  /// whose work is to stop.
  void load(at::Tensor& tensor, const Parameter& parameter);
  /// Checks that a parameter is there and fits, like load(), but reads nothing. It is for weights that are read later
  /// or by another reader.
  void expect(const Parameter& parameter);
  /// Returns a visitor that loads what a module lists. The visitor refers to this reader.
  Visit loads() {
    return [this](at::Tensor& tensor, const Parameter& parameter) { load(tensor, parameter); };
  }
  /// Returns the bytes of the parameter after load().
  uint64_t bytes(const Parameter& parameter) const;
  /// Returns true if load() quantizes numbers that the file already has packed or in 8 bits: a second rounding.
  bool rounds_again(const Parameter& parameter) const;
  bool contains(const std::string& name) const;
  /// Allows names with this prefix to be present though nobody asks for them (the VAE's encoder when only decoding).
  void ignore_prefix(const std::string& prefix);
  /// Throws one Error listing every missing, unexpected and misshaped tensor by name (the first 20 of each kind, and
  /// the count). A tensor is unexpected if its name ends like a weight of the module and belongs to one of its layers
  /// or lists of blocks. Any other tensor that nobody asked for is left out and added to Component::left_out. Throws
  /// Error also if a file became shorter while it was read.
  void check_complete() const;

  at::Device device() const { return device_; }
  at::ScalarType dtype() const { return format_.dtype; }

 private:
  at::Tensor placeholder(const Parameter& parameter, at::ScalarType dtype) const;
  bool note(const std::vector<StoredPart>& parts);
  at::Tensor numbers(const std::vector<StoredPart>& parts, const Parameter& parameter, at::ScalarType dtype);
  at::Tensor part_numbers(const StoredPart& part, const Parameter& parameter, at::ScalarType dtype);
  /// Returns the stored tensor in this shape, times the scale of each row (1 if `scales` is undefined), plus the weight
  /// deltas.
  at::Tensor merged(const StoredPart& part, const std::vector<int64_t>& shape, at::Tensor scales, at::ScalarType dtype);
  void load_quantized(at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan);
  void load_int8(at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan);
  void load_e4m3(at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan);
  void load_packed(at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan);
  /// Throws Error if weight deltas make numbers of packed rows NaN or Inf.
  void check_sums(const at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan);
  /// Returns fp32 [rows]: the scales of a tensor whose rows have scales in another tensor.
  at::Tensor row_scales(const StoredPart& part, int64_t rows);
  at::Tensor scales_at(const std::string& place, const StoredTensor& found, const StoredPart& part, int64_t rows);
  std::filesystem::path file_of(const std::string& name) const;
  /// Returns fp32 [rows, columns]: the numbers of a tensor that is packed, rotated or has factors of columns, times
  /// these factors and the scales of rows.
  at::Tensor unpacked(const StoredPart& part, int64_t rows, const at::Tensor& scales);

  const Component& component_;
  at::Device device_;
  WeightFormat format_;
  std::unique_ptr<TensorSource> source_;
  DeltaReader deltas_;
  std::set<std::string> used_;
  std::vector<std::string> ignored_prefixes_;
  std::vector<std::string> missing_;
  std::vector<std::string> misshaped_;
};

}  // namespace sparsereel::models
