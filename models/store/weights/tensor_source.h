// Sources of a component's tensors: files, or a random generator. A WeightReader, which knows what a module needs,
// reads from a source.
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
  Dtype dtype = Dtype::f32;                   // after reading, if it is quantized in several tensors
  const QuantizedLayer* quantized = nullptr;  // null if its dtype and one scale tell everything
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// Lists all tensors of the source; empty for a source that makes any tensor on demand.
  virtual std::vector<StoredTensor> list() const = 0;
  /// Finds a tensor; returns nothing if the source has none of this name. `wanted` is the shape of a tensor that is
  /// made on demand, or that a file stores with padding; other sources ignore it.
  virtual std::optional<StoredTensor> find(const std::string& name, const std::vector<int64_t>& wanted) const = 0;
  /// Reads a tensor that find() returned, on the source's device, in its shape and this dtype, without scales that lie
  /// in other tensors. On a CPU, a tensor
  /// stored in this dtype is the file's mapping itself: read-only memory, kept alive by the tensor.
  virtual at::Tensor read(const StoredTensor& tensor, at::ScalarType dtype) = 0;
  /// Reads the stored bytes of a tensor that find() returned: uint8, on the source's device.
  virtual at::Tensor bytes(const StoredTensor& tensor) = 0;
  /// Reads the same bytes into `to`: uint8, contiguous, on the source's device. Joined tensors are then never in memory
  /// twice.
  virtual void copy_bytes(const StoredTensor& tensor, const at::Tensor& to) = 0;
  /// Return the factors of rows, fp32 [rows], and of columns, fp32 [columns], of a tensor that is quantized in several
  /// tensors; undefined if it has none.
  virtual at::Tensor row_scales(const StoredTensor& tensor) = 0;
  virtual at::Tensor column_scales(const StoredTensor& tensor) = 0;
  /// Hints that the tensor will not be read again soon.
  virtual void release(const StoredTensor& /*tensor*/) {}
};

/// Opens a component's source. The component must outlive it. `run` is the dtype of random tensors.
std::unique_ptr<TensorSource> open_source(const Component& component, at::Device device, at::ScalarType run);

/// Returns torch's dtype for a stored dtype; nothing if torch has none, as for packed dtypes.
std::optional<at::ScalarType> scalar_type(Dtype dtype);
/// Returns true if TensorSource::read() can convert the tensor to numbers. Rows of packed tensors must be whole blocks.
bool is_readable(const StoredTensor& tensor);
/// Returns true if the dtype takes less than 16 bits per number.
bool is_small(Dtype dtype);

/// Returns true if every delta of the tensor is a product of two matrices (or there is no delta). A packed tensor can
/// then stay packed, and the deltas are applied beside it.
bool has_only_low_rank(const Component& component, const std::string& name);

/// Returns true if weights are stored in 8 bits or packed.
bool has_small(const Component& component);

/// Returns the dtype of a run that does not convert the weights: the dtype of the first tensor in fp16, bf16 or fp32.
/// If any weight is 8-bit or packed, or nothing is stored, returns bf16, the dtype of most published models.
at::ScalarType stored_dtype(const Component& component);

/// Reads a tensor of a mapped file onto `device`, like TensorSource::read(). `uploader` must be of that device.
at::Tensor read_tensor(const TensorFile& file, const TensorEntry& entry, at::ScalarType dtype, at::Device device,
                       Uploader& uploader);

}  // namespace sparsereel::models
