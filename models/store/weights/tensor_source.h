// Sources of a component's tensors: files, or a random generator. WeightReader reads the tensors that a module needs
// from a source.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/store/checkpoint/checkpoint.h"
#include "models/store/weights/upload.h"

namespace sparsereel::models {

/// A tensor as its source describes it.
struct StoredTensor {
  std::string name;
  std::vector<int64_t> shape;
  Dtype dtype = Dtype::f32;                   // if quantized in several tensors: the dtype after they are joined
  const QuantizedLayer* quantized = nullptr;  // null if dtype and one tensor of scales suffice to read it
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// Lists all tensors of the source; empty for a source that makes any tensor on demand.
  virtual std::vector<StoredTensor> list() const = 0;
  /// Finds a tensor; returns nullopt if the source has none of this name. The result has the shape `wanted` if the
  /// tensor is made on demand, or if a file stores it with padding; otherwise `wanted` is ignored.
  virtual std::optional<StoredTensor> find(const std::string& name, const std::vector<int64_t>& wanted) const = 0;
  /// Reads a tensor that find() returned onto the source's device, in its shape and in `dtype`. Scales in other tensors
  /// are not applied. On a CPU, if the file stores the tensor in `dtype`, the result is the mapped file itself:
  /// read-only memory that the tensor keeps alive.
  virtual at::Tensor read(const StoredTensor& tensor, at::ScalarType dtype) = 0;
  /// Reads the stored bytes of a tensor that find() returned: uint8, on the source's device.
  virtual at::Tensor bytes(const StoredTensor& tensor) = 0;
  /// Reads the same bytes into `to`, which is uint8, contiguous and on the source's device. This needs no second copy
  /// of the bytes in the device's memory.
  virtual void copy_bytes(const StoredTensor& tensor, const at::Tensor& to) = 0;
  /// Return the scales of the rows, fp32 [rows], and of the columns, fp32 [columns], of a tensor that is quantized in
  /// several tensors; undefined if it has none.
  virtual at::Tensor row_scales(const StoredTensor& tensor) = 0;
  virtual at::Tensor column_scales(const StoredTensor& tensor) = 0;
  /// Hints that the tensor will not be read again soon.
  virtual void release(const StoredTensor& /*tensor*/) {}
};

/// Opens a component's source. The component must outlive the source. `run` is the run's dtype, which random tensors
/// have as if they were stored in it.
std::unique_ptr<TensorSource> open_source(const Component& component, at::Device device, at::ScalarType run);

/// Returns torch's dtype for a stored dtype; nullopt if torch has none, for example for packed dtypes.
std::optional<at::ScalarType> scalar_type(Dtype dtype);
/// Returns true if TensorSource::read() can convert the tensor to numbers. For a packed tensor, rows must be whole
/// blocks.
bool is_readable(const StoredTensor& tensor);
/// Returns true if the dtype takes less than 16 bits per number.
bool is_small(Dtype dtype);

/// Returns true if every delta of the tensor is a product of two matrices (or there is no delta). Then a packed tensor
/// can stay packed, and products apply the deltas in addition.
bool has_only_low_rank(const Component& component, const std::string& name);

/// Returns true if any weight is stored in 8 bits or packed.
bool has_small(const Component& component);

/// Returns the best dtype for a run that should not convert the weights: the dtype of the first tensor in fp16, bf16 or
/// fp32. Returns bf16, the dtype of most published models, if any weight is 8-bit or packed. If no tensor has one of
/// these dtypes, returns fp32 if any is fp64, or else bf16.
at::ScalarType stored_dtype(const Component& component);

/// Reads a tensor of a mapped file onto `device`, like TensorSource::read(). `uploader` must be of that device.
at::Tensor read_tensor(const TensorFile& file, const TensorEntry& entry, at::ScalarType dtype, at::Device device,
                       Uploader& uploader);

}  // namespace sparsereel::models
