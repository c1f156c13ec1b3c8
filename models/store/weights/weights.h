// Hands a component's weights to a model as tensors, and lists everything that does not fit in one error.
#pragma once

#include <ATen/core/Tensor.h>

#include <set>
#include <string>
#include <vector>

#include "models/layers/parameters.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/weights/delta_reader.h"
#include "models/store/weights/load_plan.h"
#include "models/store/weights/tensor_source.h"

namespace sparsereel::models {

/// True for the placeholder of a tensor that is missing or misshaped: it takes no memory whatever its shape, and must
/// be given none.
bool is_stand_in(const at::Tensor& tensor);
/// The tensor in this memory format; a stand-in as it is.
at::Tensor laid_out(const at::Tensor& tensor, at::MemoryFormat format);

/// Usage: ask for every tensor by name and shape, then call check_complete(). Missing and misshaped tensors come back
/// as empty placeholders of the asked shape and are remembered, so that one error can list them all.
class WeightReader {
 public:
  /// Tensors come back on `device` in the format's dtype (converted from fp32, fp16 or bf16 while they are copied; no
  /// second host copy), the component's deltas added in fp32 before. On a CPU a tensor that is stored in that dtype and
  /// not changed is the file's mapping itself: read-only memory, kept alive by the tensor. On the meta device nothing
  /// is read but the headers: what a check of names and shapes needs. `component` must outlive this.
  ///
  /// NAME.weight may be stored as F8_E4M3, F8_E5M2 or I8, its scale beside it as NAME.weight_scale or NAME.scale_weight
  /// (one for all, or one a row); without a scale, which is 1 then, as F8. Throws Error where a file says that it is
  /// quantised in another way (quantization.h).
  WeightReader(const Component& component, at::Device device, WeightFormat format);

  at::Tensor tensor(const std::string& name, const std::vector<int64_t>& shape);
  /// The same of a parameter: in fp32 or the format's dtype, never in 8 bits and never packed.
  at::Tensor read(Parameter parameter);
  /// As the format says: what is in 8 bits has its scales at parameter.scale. What the file has packed or in 8 bits,
  /// and the product does not take so, stays as it is where the parameter has a place for its rows, and deltas of low
  /// rank with it.
  /// Rows come in the parameter's order. Throws WorkStopped in a thread whose work is to stop.
  void load(at::Tensor& tensor, const Parameter& parameter);
  /// Fills in what a module lists. Refers to this.
  Visit loads() {
    return [this](at::Tensor& tensor, const Parameter& parameter) { load(tensor, parameter); };
  }
  /// What load() makes of it takes.
  uint64_t bytes(const Parameter& parameter) const;
  /// Whether load() makes 8 bits of what its file has packed or in 8 bits already: a second rounding.
  bool rounds_again(const Parameter& parameter) const;
  bool contains(const std::string& name) const;
  /// Names that are allowed to be present though nobody asks for them (the VAE's encoder when only decoding).
  void ignore_prefix(const std::string& prefix);
  /// Throws one Error listing every missing, unexpected and misshaped tensor by name (the first 20 of each kind, and
  /// the count). A tensor is unexpected if it is called like a weight of the module and belongs to one of its layers or
  /// lists of blocks. Throws Error likewise where a file got shorter while it was read. Any other one that nobody asked
  /// for is left out, and added to Component::left_out.
  void check_complete() const;

  at::Device device() const { return device_; }
  at::ScalarType dtype() const { return format_.dtype; }

 private:
  at::Tensor placeholder(const Parameter& parameter, at::ScalarType dtype) const;
  bool note(const std::vector<StoredPart>& parts);
  at::Tensor numbers(const std::vector<StoredPart>& parts, const Parameter& parameter, at::ScalarType dtype);
  at::Tensor part_numbers(const StoredPart& part, const Parameter& parameter, at::ScalarType dtype);
  /// Returns the stored tensor in this shape, times the scale of its row (undefined: 1), plus the deltas.
  at::Tensor merged(const StoredPart& part, const std::vector<int64_t>& shape, const at::Tensor& scales,
                    at::ScalarType dtype);
  void load_quantized(at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan);
  void load_e4m3(at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan);
  void load_packed(at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan);
  /// Throws Error where deltas make numbers of packed rows NaN or Inf.
  void check_sums(const at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan);
  at::Tensor row_scales(const std::string& name, int64_t rows);

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
