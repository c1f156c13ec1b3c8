// Hands a component's weights to a model as tensors, and lists everything that does not fit in one error.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "models/layers/parameters.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/weights/tensor_source.h"
#include "models/store/weights/upload.h"

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
  /// In fp32 or the format's dtype.
  at::Tensor read(const Parameter& parameter);
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
  struct Addend;  // a WeightDelta on the device, in fp32

  at::Tensor read(const Parameter& parameter, at::ScalarType dtype);
  /// One of the parameter's names.
  at::Tensor read_named(const std::string& name, const Parameter& parameter, at::ScalarType dtype);
  /// Nothing, after a note for check_complete(), where it is missing or does not fit.
  std::optional<StoredTensor> find(const std::string& name, const Parameter& parameter);
  bool is_stored_fp8(const Parameter& parameter) const;
  /// How its rows lie in memory where it stays as the file has it until its products; empty: it does not.
  std::vector<StoredRows> stored_rows(const Parameter& parameter) const;
  void load_in_stored_order(at::Tensor& tensor, const Parameter& parameter);
  void load_stored(at::Tensor& tensor, const Parameter& parameter, std::vector<StoredRows> layout);
  void load_stored_fp8(at::Tensor& tensor, const Parameter& parameter);
  const std::vector<WeightDelta>& deltas_of(const std::string& name) const;
  LowRank low_rank(const WeightDelta& delta);
  /// Throws Error where deltas make numbers of packed rows NaN or Inf.
  void check_sums(const at::Tensor& tensor, const Parameter& parameter);
  at::Tensor row_scales(const std::string& name, int64_t rows);
  at::Tensor in_fp32(const WeightDelta& delta, const TensorEntry* entry);
  Addend addend(const WeightDelta& delta);
  /// Returns the stored tensor in this shape, times the scale of its row (undefined: 1), plus the deltas.
  at::Tensor merged(const StoredTensor& stored, const std::vector<int64_t>& shape, const at::Tensor& scales,
                    const std::vector<WeightDelta>& deltas, at::ScalarType dtype);
  [[noreturn]] void blame(const StoredTensor& stored, const std::vector<WeightDelta>& deltas, at::ScalarType dtype);

  const Component& component_;
  at::Device device_;
  WeightFormat format_;
  std::unique_ptr<TensorSource> source_;
  Uploader uploader_;  // of deltas
  std::set<std::string> used_;
  std::vector<std::string> ignored_prefixes_;
  std::vector<std::string> missing_;
  std::vector<std::string> misshaped_;
};

}  // namespace sparsereel::models
