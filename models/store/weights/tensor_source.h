// Where a component's tensors come from: files, or a generator. WeightReader, which knows what a module wants, asks
// one.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/store/checkpoint/checkpoint.h"
#include "models/store/weights/upload.h"

namespace sparsereel::models {

/// A tensor as its source has it.
struct StoredTensor {
  std::string name;
  std::vector<int64_t> shape;
  Dtype dtype = Dtype::f32;
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// All that there are; none of a source that makes whatever is asked for.
  virtual std::vector<StoredTensor> list() const = 0;
  /// Nothing where there is none of this name. `wanted`: the shape that is asked for, which a source that makes tensors
  /// takes; any other has its own.
  virtual std::optional<StoredTensor> find(const std::string& name, const std::vector<int64_t>& wanted) const = 0;
  /// One that find() knows, on the source's device, in its shape and this dtype. On a CPU one that is stored in it is
  /// the file's mapping itself: read-only memory, kept alive by the tensor.
  virtual at::Tensor read(const StoredTensor& tensor, at::ScalarType dtype) = 0;
  /// One that find() knows as its file has it: uint8, on the source's device.
  virtual at::Tensor bytes(const StoredTensor& tensor) = 0;
  /// The same into `to`, uint8 there and contiguous: of several that make one, none is in memory twice.
  virtual void copy_bytes(const StoredTensor& tensor, const at::Tensor& to) = 0;
  /// Hint: it will not be read again soon.
  virtual void release(const StoredTensor& /*tensor*/) {}
};

/// The component must outlive it. `run`: the dtype of those that are made.
std::unique_ptr<TensorSource> open_source(const Component& component, at::Device device, at::ScalarType run);

/// Torch's name of a dtype that weights may be stored in; nothing for any other, such as packed ones.
std::optional<at::ScalarType> scalar_type(Dtype dtype);
/// Whether TensorSource::read() can make numbers of it: of packed ones whole blocks.
bool is_readable(const StoredTensor& tensor);
/// Whether it takes less than 16 bits a number.
bool is_small(Dtype dtype);

/// Whether all that is added to the tensor, nothing included, is a product of two matrices: packed rows stay packed
/// then, and it is added to what they become.
bool has_only_low_rank(const Component& component, const std::string& name);

/// Whether weights are stored in 8 bits or packed.
bool has_small(const Component& component);

/// The dtype of a run that takes the weights as they are: that of most files' first tensor; bf16 where any of them is
/// of 8 bits or packed, whatever the others, and where nothing is stored, as published weights mostly are.
at::ScalarType stored_dtype(const Component& component);

/// A tensor of a mapped file on `device`: TensorSource::read() of it. The uploader is that device's.
at::Tensor read_tensor(const TensorFile& file, const TensorEntry& entry, at::ScalarType dtype, at::Device device,
                       Uploader& uploader);

}  // namespace sparsereel::models
