// Reads tensors. If dtype and device allow it, a tensor uses the mapped file's memory; otherwise it is copied and
// converted once. Random tensors are drawn again at each read.
#include "models/store/weights/tensor_source.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <span>

#include "models/layers/unpack.h"
#include "models/store/checkpoint/joined_rows.h"
#include "models/store/weights/random_weights.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kJoinedByThread = int64_t{1} << 20;  // minimum bytes

/// Returns a tensor whose memory is the mapped file itself, which is read-only. The tensor keeps the mapping alive.
at::Tensor alias(const TensorFile& file, const TensorEntry& entry, at::IntArrayRef shape, at::ScalarType stored) {
  void* data = const_cast<std::byte*>(file.covered(entry).data());
  const auto keep = [mapping = file.mapping()](void*) {};
  const at::TensorOptions options = at::TensorOptions().dtype(stored);
  if (entry.strides.empty()) return at::from_blob(data, shape, keep, options);
  return at::from_blob(data, shape, entry.strides, keep, options);
}

at::Tensor halves_in_order(const TensorEntry& entry, const at::Tensor& bytes) {
  if (!entry.halves_swapped) return bytes;
  const int64_t half = bytes.numel() / 2;
  return at::cat({bytes.narrow(0, half, half), bytes.narrow(0, 0, half)});
}

/// Returns the bytes of a tensor whose rows are in groups (TensorEntry::group_rows), without the rows between the
/// groups.
at::Tensor joined_groups(const TensorFile& file, const TensorEntry& entry) {
  const auto row = static_cast<int64_t>(bytes_of_row(entry));
  const at::Tensor all = alias(file, entry, {static_cast<int64_t>(entry.bytes)}, at::kByte);
  const int64_t groups = entry.shape.front() / entry.group_rows;
  return all.as_strided({groups, entry.group_rows * row}, {entry.group_step * row, 1}).contiguous().view(-1);
}

/// Returns true if the file has the tensor's elements in torch's order, without gaps.
bool lies_in_order(const TensorEntry& entry) {
  return !entry.halves_swapped && entry.strides.empty() && entry.group_rows == 0;
}

/// Reads a tensor without gaps from its file into `to`: uint8, contiguous, on a GPU.
void upload(const TensorFile& file, const TensorEntry& entry, const at::Tensor& to, Uploader& uploader) {
  uploader.upload([&](int64_t first, std::span<std::byte> part) { file.read(entry, static_cast<size_t>(first), part); },
                  to);
}

/// Does the same with a new tensor.
at::Tensor uploaded(const TensorFile& file, const TensorEntry& entry, at::Device device, Uploader& uploader) {
  const at::Tensor bytes =
      at::empty({static_cast<int64_t>(entry.bytes)}, at::TensorOptions().dtype(at::kByte).device(device));
  upload(file, entry, bytes, uploader);
  return bytes;
}

at::Tensor bytes_of(const TensorFile& file, const TensorEntry& entry, at::Device device, Uploader& uploader) {
  const bool has_gaps = !entry.strides.empty() || entry.group_rows > 0;
  if (!device.is_cpu() && !has_gaps) return halves_in_order(entry, uploaded(file, entry, device, uploader));
  file.prefetch(entry);
  if (entry.group_rows > 0) {
    const at::Tensor rows = joined_groups(file, entry);
    file.release(entry);
    return rows.to(device);
  }
  if (!entry.strides.empty()) {
    const at::Tensor contiguous = alias(file, entry, entry.shape, *scalar_type(entry.dtype)).contiguous();
    file.release(entry);
    return halves_in_order(entry, contiguous.view(-1).view(at::kByte).to(device));
  }
  return halves_in_order(entry, alias(file, entry, {static_cast<int64_t>(entry.bytes)}, at::kByte));
}

/// Returns the size of the innermost dimension.
int64_t last_of(at::IntArrayRef shape) {
  return shape.empty() ? 1 : shape.back();
}

int64_t padded(int64_t size, int64_t unit) {
  return (size + unit - 1) / unit * unit;
}

class MappedTensors final : public TensorSource {
 public:
  MappedTensors(const Component& component, at::Device device)
      : component_(component), device_(device), uploader_(device) {}

  std::vector<StoredTensor> list() const override {
    std::vector<StoredTensor> all;
    for (const auto& [name, place] : component_.tensors) all.push_back(stored(name, *place.second));
    return all;
  }
  std::optional<StoredTensor> find(const std::string& name, const std::vector<int64_t>& wanted) const override {
    const auto found = component_.tensors.find(name);
    if (found == component_.tensors.end()) return std::nullopt;
    StoredTensor tensor = stored(name, *found->second.second);
    if (!is_joined(tensor) || wanted.size() != 2) return tensor;
    const QuantizedFormat& format = *tensor.quantized->format;
    const auto fits = [&](size_t axis, int64_t unit) {
      return wanted[axis] == tensor.shape[axis] || padded(wanted[axis], unit) == tensor.shape[axis];
    };
    if (fits(0, format.padding_rows) && fits(1, format.padding_columns)) tensor.shape = wanted;
    // If rows without padding are not whole blocks, they cannot stay packed, so they are read as fp32 numbers.
    if (!is_readable(tensor)) tensor.dtype = Dtype::f32;
    return tensor;
  }
  at::Tensor read(const StoredTensor& tensor, at::ScalarType dtype) override {
    const auto& [file, entry] = component_.tensors.at(tensor.name);
    if (!is_joined(tensor)) return read_tensor(*component_.files[file], *entry, dtype, device_, uploader_);
    const at::Tensor rows = bytes(tensor);
    if (const auto stored = scalar_type(tensor.dtype)) return rows.view(*stored).view(tensor.shape).to(dtype);
    return unpack(rows, {{tensor.dtype, tensor.shape[0], tensor.shape[1], 0}}, {}, dtype);
  }
  at::Tensor bytes(const StoredTensor& tensor) override {
    const auto& [file, entry] = component_.tensors.at(tensor.name);
    if (!is_joined(tensor)) return bytes_of(*component_.files[file], *entry, device_, uploader_);
    if (is_expanded(tensor)) return expanded(tensor).view(-1).view(at::kByte).to(device_);
    const int64_t size = tensor.shape[0] * packed_bytes(tensor.dtype, tensor.shape[1]);
    at::Tensor all = at::empty({size}, at::TensorOptions().dtype(at::kByte).device(device_));
    join(tensor, all);
    return all;
  }
  void copy_bytes(const StoredTensor& tensor, const at::Tensor& to) override {
    const auto& [index, entry] = component_.tensors.at(tensor.name);
    const TensorFile& file = *component_.files[index];
    if (is_joined(tensor) && !is_expanded(tensor)) return join(tensor, to);
    if (!is_joined(tensor) && !device_.is_cpu() && lies_in_order(*entry)) return upload(file, *entry, to, uploader_);
    to.copy_(bytes(tensor).view(to.sizes()));
    file.release(*entry);
  }
  at::Tensor row_scales(const StoredTensor& tensor) override {
    if (!is_joined(tensor) || is_expanded(tensor)) return {};
    return factors(joined_row_scales({*tensor.quantized, component_.files}, tensor.shape[0]));
  }
  at::Tensor column_scales(const StoredTensor& tensor) override {
    if (tensor.quantized == nullptr || is_expanded(tensor)) return {};
    return factors(models::column_scales({*tensor.quantized, component_.files}, tensor.shape.back()));
  }
  void release(const StoredTensor& tensor) override {
    const auto& [file, entry] = component_.tensors.at(tensor.name);
    component_.files[file]->release(*entry);
  }

 private:
  static bool is_joined(const StoredTensor& tensor) {
    return tensor.quantized != nullptr && tensor.quantized->is_joined();
  }
  /// Returns true if the tensor is read as fp32 numbers with all scales applied, because its rows are not whole blocks
  /// (find()).
  static bool is_expanded(const StoredTensor& tensor) {
    return is_joined(tensor) && tensor.dtype != tensor.quantized->format->packed;
  }
  StoredTensor stored(const std::string& name, const TensorEntry& entry) const {
    const auto layer = component_.quantized.find(name);
    return {name, entry.shape, entry.dtype, layer == component_.quantized.end() ? nullptr : &layer->second};
  }
  /// Joins the rows into `to`: uint8, contiguous, on the device.
  void join(const StoredTensor& tensor, const at::Tensor& to) {
    const auto& [file, entry] = component_.tensors.at(tensor.name);
    const LayerTensors tensors(*tensor.quantized, component_.files);
    const JoinedRows rows(tensors, tensor.shape[0], tensor.shape[1]);
    const auto read = [&](int64_t first, std::span<std::byte> part) { rows.read(static_cast<size_t>(first), part); };
    component_.files[file]->prefetch(*entry);
    if (device_.is_cpu()) {
      auto* memory = reinterpret_cast<std::byte*>(to.mutable_data_ptr());
      at::parallel_for(0, to.numel(), kJoinedByThread, [&](int64_t begin, int64_t end) {
        read(begin, {memory + begin, static_cast<size_t>(end - begin)});
      });
    } else {
      uploader_.upload(read, to);
    }
    component_.files[file]->release(*entry);
  }
  /// Returns the tensor as fp32 numbers on the CPU. Unpacks whole rows with the file's padding, which are whole blocks,
  /// and then drops the padding.
  at::Tensor expanded(const StoredTensor& tensor) const {
    StoredTensor whole = stored(tensor.name, *component_.tensors.at(tensor.name).second);
    whole.shape[0] = tensor.shape[0];
    MappedTensors source(component_, at::kCPU);
    const at::Tensor rows = unpack(source.bytes(whole), {{whole.dtype, whole.shape[0], whole.shape[1], 0}},
                                   source.row_scales(whole), at::kFloat);
    const at::Tensor columns = rows.narrow(1, 0, tensor.shape[1]), scales = source.column_scales(whole);
    return scales.defined() ? columns * scales.narrow(0, 0, tensor.shape[1]) : columns.contiguous();
  }
  at::Tensor factors(const std::vector<float>& numbers) const {
    return numbers.empty() ? at::Tensor() : at::tensor(numbers, at::kFloat).to(device_, /*non_blocking=*/true);
  }

  const Component& component_;
  at::Device device_;
  Uploader uploader_;
};

/// Random tensors. They count as stored in the run's dtype: reading a tensor in another dtype converts
/// these numbers and draws no others.
class RandomTensors final : public TensorSource {
 public:
  RandomTensors(const Component& component, at::Device device, at::ScalarType dtype)
      : seed_(*component.random_seed), counted_(component.counted), device_(device), dtype_(dtype) {}

  std::vector<StoredTensor> list() const override { return {}; }
  std::optional<StoredTensor> find(const std::string& name, const std::vector<int64_t>& wanted) const override {
    if (counted_ != nullptr && !wanted.empty())
      (*counted_)[name] = static_cast<uint64_t>(c10::multiply_integers(wanted));
    const Dtype dtype = dtype_ == at::kFloat ? Dtype::f32 : dtype_ == at::kHalf ? Dtype::f16 : Dtype::bf16;
    return StoredTensor{name, wanted, dtype};
  }
  at::Tensor read(const StoredTensor& tensor, at::ScalarType dtype) override {
    return random_weight(tensor.name, tensor.shape, device_, dtype_, seed_).to(dtype);
  }

  at::Tensor bytes(const StoredTensor& tensor) override {
    return random_weight(tensor.name, tensor.shape, device_, dtype_, seed_).view(-1).view(at::kByte);
  }
  void copy_bytes(const StoredTensor& tensor, const at::Tensor& to) override { to.copy_(bytes(tensor)); }
  at::Tensor row_scales(const StoredTensor& /*tensor*/) override { return {}; }
  at::Tensor column_scales(const StoredTensor& /*tensor*/) override { return {}; }

 private:
  uint64_t seed_;
  std::shared_ptr<std::map<std::string, uint64_t>> counted_;
  at::Device device_;
  at::ScalarType dtype_;
};

/// Appends columns of zeros to the tensors in Component::widened. These tensors are never quantized.
class WidenedTensors final : public TensorSource {
 public:
  WidenedTensors(const Component& component, std::unique_ptr<TensorSource> stored)
      : component_(component), stored_(std::move(stored)) {}

  std::vector<StoredTensor> list() const override {
    std::vector<StoredTensor> all = stored_->list();
    for (StoredTensor& tensor : all)
      if (is_wider(tensor)) tensor.shape = component_.shape_of(tensor.name);
    return all;
  }
  std::optional<StoredTensor> find(const std::string& name, const std::vector<int64_t>& wanted) const override {
    std::optional<StoredTensor> tensor = stored_->find(name, wanted);
    if (tensor && is_wider(*tensor)) tensor->shape = component_.shape_of(name);
    return tensor;
  }
  at::Tensor read(const StoredTensor& tensor, at::ScalarType dtype) override {
    if (!is_wider(tensor)) return stored_->read(tensor, dtype);
    StoredTensor narrow = tensor;
    narrow.shape = component_.tensors.at(tensor.name).second->shape;
    const at::Tensor numbers = stored_->read(narrow, dtype);
    at::Tensor wider = at::zeros(tensor.shape, numbers.options());
    wider.narrow(1, 0, narrow.shape[1]).copy_(numbers);
    return wider;
  }
  at::Tensor bytes(const StoredTensor& tensor) override {
    if (!is_wider(tensor)) return stored_->bytes(tensor);
    return read(tensor, *scalar_type(tensor.dtype)).view(-1).view(at::kByte);
  }
  void copy_bytes(const StoredTensor& tensor, const at::Tensor& to) override {
    if (!is_wider(tensor)) return stored_->copy_bytes(tensor, to);
    to.copy_(bytes(tensor).view(to.sizes()));
  }
  at::Tensor row_scales(const StoredTensor& tensor) override { return stored_->row_scales(tensor); }
  at::Tensor column_scales(const StoredTensor& tensor) override { return stored_->column_scales(tensor); }
  void release(const StoredTensor& tensor) override { stored_->release(tensor); }

 private:
  bool is_wider(const StoredTensor& tensor) const { return component_.widened.contains(tensor.name); }

  const Component& component_;
  std::unique_ptr<TensorSource> stored_;
};

}  // namespace

std::unique_ptr<TensorSource> open_source(const Component& component, at::Device device, at::ScalarType run) {
  if (component.random_seed) return std::make_unique<RandomTensors>(component, device, run);
  auto stored = std::make_unique<MappedTensors>(component, device);
  if (component.widened.empty()) return stored;
  return std::make_unique<WidenedTensors>(component, std::move(stored));
}

std::optional<at::ScalarType> scalar_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return at::kDouble;
    case Dtype::f32:
      return at::kFloat;
    case Dtype::f16:
      return at::kHalf;
    case Dtype::bf16:
      return at::kBFloat16;
    case Dtype::f8_e4m3:
      return at::kFloat8_e4m3fn;
    case Dtype::f8_e5m2:
      return at::kFloat8_e5m2;
    case Dtype::i8:
      return at::kChar;
    default:
      return std::nullopt;
  }
}

bool is_readable(const StoredTensor& tensor) {
  return scalar_type(tensor.dtype).has_value() || can_unpack(tensor.dtype, last_of(tensor.shape));
}

bool is_small(Dtype dtype) {
  const auto type = scalar_type(dtype);
  return !type || c10::elementSize(*type) == 1;
}

bool has_only_low_rank(const Component& component, const std::string& name) {
  const auto changed = component.deltas.find(name);
  return changed == component.deltas.end() ||
         std::ranges::all_of(changed->second, [](const WeightDelta& delta) { return delta.down != nullptr; });
}

bool has_small(const Component& component) {
  return std::ranges::any_of(component.tensors, [](const auto& tensor) {
    const TensorEntry& entry = *tensor.second.second;
    return is_small(entry.dtype) && is_readable({tensor.first, entry.shape, entry.dtype});
  });
}

at::ScalarType stored_dtype(const Component& component) {
  at::ScalarType stored = at::kBFloat16;
  if (has_small(component)) return stored;
  for (const auto& [name, place] : component.tensors) {
    const auto dtype = scalar_type(place.second->dtype);
    if (dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kFloat) return *dtype;
    if (dtype == at::kDouble) stored = at::kFloat;
  }
  return stored;
}

/// Converts to `dtype` on the device. Converting on the host would need a second copy there.
at::Tensor read_tensor(const TensorFile& file, const TensorEntry& entry, at::ScalarType dtype, at::Device device,
                       Uploader& uploader) {
  if (!scalar_type(entry.dtype)) {
    const at::Tensor bytes = bytes_of(file, entry, device, uploader);
    const int64_t columns = last_of(entry.shape), rows = c10::multiply_integers(entry.shape) / columns;
    return unpack(bytes, {{entry.dtype, rows, columns, 0}}, {}, dtype).view(entry.shape);
  }
  const at::ScalarType stored = *scalar_type(entry.dtype);
  if (!lies_in_order(entry)) return bytes_of(file, entry, device, uploader).view(stored).view(entry.shape).to(dtype);
  if (!device.is_cpu()) return uploaded(file, entry, device, uploader).view(stored).view(entry.shape).to(dtype);
  const at::Tensor source = alias(file, entry, entry.shape, stored);
  const bool aligned = reinterpret_cast<uintptr_t>(source.const_data_ptr()) % size_of(entry.dtype) == 0;
  file.prefetch(entry);
  if (stored == dtype && aligned) return source;
  at::Tensor result = at::empty(entry.shape, dtype).copy_(source);
  file.release(entry);
  return result;
}

}  // namespace sparsereel::models
