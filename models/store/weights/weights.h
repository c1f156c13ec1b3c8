// Loads a component's weights into a module's tensors. One error lists all weights that are missing, unexpected or of
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

/// Returns true for a placeholder of a tensor that is missing or misshaped. A placeholder of any shape has the memory
/// of one element, and must not be copied.
bool is_stand_in(const at::Tensor& tensor);
/// Returns the tensor in this memory format. Returns a placeholder as it is.
at::Tensor laid_out(const at::Tensor& tensor, at::MemoryFormat format);

/// Reads a component's weights. Ask for every tensor by name and shape, then call check_complete(). For a missing or
/// misshaped tensor, the reader returns a placeholder of the requested shape and remembers the name, so that one error
/// can list them all.
class WeightReader {
 public:
  /// Reads tensors onto `device` in the format's dtype. The component's weight deltas are added in fp32 before the
  /// conversion. The conversion needs no second copy on the host. On a CPU, if the file stores a tensor in that dtype
  /// and it has no deltas, the result is the mapped file itself: read-only memory that the tensor keeps alive. On the
  /// meta device, only headers are read, to check names and shapes. `component` must outlive the reader. NAME.weight
  /// may be stored as F8_E4M3, F8_E5M2 or I8, with its scale in NAME.weight_scale or NAME.scale_weight (one scale for
  /// the tensor, or one per row). F8 without a scale has scale 1; I8 needs a scale. Throws Error if a file is quantized
  /// in an unsupported way (check_quantization()).
  WeightReader(const Component& component, at::Device device, WeightFormat format);

  at::Tensor tensor(const std::string& name, const std::vector<int64_t>& shape);
  /// Reads a parameter in fp32 or the format's dtype, never in 8 bits and never packed.
  at::Tensor read(Parameter parameter);
  /// Loads a parameter in the form that the format asks for (plan_load()). Scales of 8-bit weights go to
  /// parameter.scale. Weights that are packed, or in an 8-bit format that matrix products do not accept, stay as stored
  /// if parameter.rows is not null; their low-rank deltas are then kept in parameter.rows. Rows get the order
  /// parameter.row_order. Throws WorkStopped if the thread's work was told to stop (StoppableWork).
  void load(at::Tensor& tensor, const Parameter& parameter);
  /// Checks that a parameter exists and fits, like load(), but reads nothing. Use it for weights that are read later,
  /// or by another reader.
  void expect(const Parameter& parameter);
  /// Returns a visitor that loads every tensor that a module lists. The visitor refers to this reader, which must
  /// outlive it.
  Visit loads() {
    return [this](at::Tensor& tensor, const Parameter& parameter) { load(tensor, parameter); };
  }
  /// Returns the bytes that the parameter takes after load().
  uint64_t bytes(const Parameter& parameter) const;
  /// Returns true if load() quantizes numbers that the file already holds packed or in 8 bits, so that they are rounded
  /// a second time.
  bool rounds_again(const Parameter& parameter) const;
  bool contains(const std::string& name) const;
  /// Ignores unused tensors with this prefix, for example the VAE's encoder if a run only decodes.
  void ignore_prefix(const std::string& prefix);
  /// Throws one Error listing every missing, unexpected and misshaped tensor by name (the first 20 of each kind, and
  /// the count). A tensor is unexpected if it was not asked for, but seems to belong to the module (KnownNames). Other
  /// tensors that were not asked for are only noted in Component::left_out. Also throws Error if a file became shorter
  /// while it was read.
  void check_complete() const;

  at::Device device() const { return device_; }
  at::ScalarType dtype() const { return format_.dtype; }

 private:
  at::Tensor placeholder(const Parameter& parameter, at::ScalarType dtype) const;
  bool note(const std::vector<StoredPart>& parts);
  at::Tensor numbers(const std::vector<StoredPart>& parts, const Parameter& parameter, at::ScalarType dtype);
  at::Tensor part_numbers(const StoredPart& part, const Parameter& parameter, at::ScalarType dtype);
  /// Returns the stored tensor in this shape, times the scales of its rows (1 if `scales` is undefined), plus the
  /// weight deltas.
  at::Tensor merged(const StoredPart& part, const std::vector<int64_t>& shape, at::Tensor scales, at::ScalarType dtype);
  void load_quantized(at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan);
  void load_int8(at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan);
  void load_e4m3(at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan);
  void load_packed(at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan);
  /// Throws Error if the weight deltas make any number of the unpacked rows NaN or Inf.
  void check_sums(const at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan);
  /// Returns fp32 [rows]: the scales of the rows, which another tensor holds.
  at::Tensor row_scales(const StoredPart& part, int64_t rows);
  at::Tensor scales_at(const std::string& place, const StoredTensor& found, const StoredPart& part, int64_t rows);
  std::filesystem::path file_of(const std::string& name) const;
  /// Returns fp32 [rows, columns]: the numbers of a tensor that is packed, is rotated or has scales of columns. The
  /// scales of columns and rows are applied.
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
