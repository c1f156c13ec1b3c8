// Weights from the mapping onto the device: aliased where dtype and device allow it, copied and converted once
// otherwise.
#include "models/weights/weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "hilbert/error.h"
#include "models/checkpoint/json_text.h"
#include "models/weights/random_weights.h"

namespace sparsereel::models {
namespace {

constexpr size_t kListed = 20;

/// Parameters are floating point; 8-bit floats need scales that diffusers' layout does not carry.
std::optional<at::ScalarType> readable(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return at::kDouble;
    case Dtype::f32:
      return at::kFloat;
    case Dtype::f16:
      return at::kHalf;
    case Dtype::bf16:
      return at::kBFloat16;
    default:
      return std::nullopt;
  }
}

std::string text_of(const std::vector<int64_t>& shape) {
  std::ostringstream text;
  text << at::IntArrayRef(shape);
  return text.str();
}

/// A tensor over the mapping's own bytes; it keeps the mapping alive. Read-only memory.
at::Tensor alias(const SafetensorsFile& file, const TensorEntry& entry, at::ScalarType stored) {
  void* data = const_cast<std::byte*>(file.data(entry).data());
  return at::from_blob(
      data, entry.shape, [mapping = file.mapping()](void*) {}, at::TensorOptions().dtype(stored));
}

void append_list(std::string& text, const char* kind, const std::vector<std::string>& names) {
  if (names.empty()) return;
  text += text.empty() ? "" : "; ";
  text += std::to_string(names.size()) + " " + kind + ": ";
  for (size_t i = 0; i < std::min(names.size(), kListed); ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kListed) text += ", ...";
}

}  // namespace

bool is_stand_in(const at::Tensor& tensor) {
  return tensor.storage().nbytes() < tensor.nbytes();
}

at::Tensor laid_out(const at::Tensor& tensor, at::MemoryFormat format) {
  return is_stand_in(tensor) ? tensor : tensor.contiguous(format);
}

WeightReader::WeightReader(const Component& component, at::Device device, at::ScalarType dtype)
    : component_(component), device_(device), dtype_(dtype), uploader_(device) {}

at::Tensor WeightReader::tensor(const std::string& name, const std::vector<int64_t>& shape) {
  return read_named(name, shape, dtype_);
}

at::Tensor WeightReader::read(const Parameter& parameter) {
  const at::ScalarType dtype = parameter.fp32 ? at::kFloat : dtype_;
  std::vector<at::Tensor> parts;
  for (const std::string& name : parameter.names) parts.push_back(read_named(name, parameter.stored, dtype));
  if (parts.size() == 1) return parts[0].view(parameter.shape);
  if (std::any_of(parts.begin(), parts.end(), is_stand_in))
    return at::zeros({}, parts[0].options()).expand(parameter.shape);
  return at::cat(parts).view(parameter.shape);
}

bool WeightReader::contains(const std::string& name) const {
  return component_.random_seed.has_value() || component_.tensors.contains(name);
}

void WeightReader::ignore_prefix(const std::string& prefix) {
  ignored_prefixes_.push_back(prefix);
}

at::Tensor WeightReader::read_named(const std::string& name, const std::vector<int64_t>& shape, at::ScalarType dtype) {
  if (component_.random_seed) return random_weight(name, shape, device_, dtype, *component_.random_seed);
  const bool first_time = used_.insert(name).second;
  // One element seen as the whole shape: a wrong config must not cost memory before check_complete() reports it.
  const auto unusable = [&](std::vector<std::string>& list, const std::string& complaint) {
    if (first_time) list.push_back(complaint);
    return at::zeros({}, at::TensorOptions().dtype(dtype).device(device_)).expand(shape);
  };
  const auto found = component_.tensors.find(name);
  if (found == component_.tensors.end()) return unusable(missing_, in_quotes(name) + " " + text_of(shape));
  const SafetensorsFile& file = *component_.files[found->second.first];
  const TensorEntry& entry = *found->second.second;
  if (entry.shape != shape)
    return unusable(misshaped_, in_quotes(name) + " is " + text_of(entry.shape) + ", expected " + text_of(shape));
  const auto stored = readable(entry.dtype);
  if (!stored)
    return unusable(misshaped_, in_quotes(name) + " is stored as " + std::string(models::name(entry.dtype)) +
                                    ", not as F32, F16 or BF16");

  if (device_.is_meta()) return at::empty(shape, at::TensorOptions().dtype(dtype).device(device_));
  file.prefetch(entry);
  if (const auto changed = component_.deltas.find(name); changed != component_.deltas.end()) {
    at::Tensor weight = copied(file, entry, at::kFloat);
    add(changed->second, weight);
    return weight.to(dtype);
  }
  at::Tensor source = alias(file, entry, *stored);
  const bool aligned = reinterpret_cast<uintptr_t>(source.const_data_ptr()) % size_of(entry.dtype) == 0;
  return device_.is_cpu() && *stored == dtype && aligned ? source : copied(file, entry, dtype);
}

at::Tensor WeightReader::copied(const SafetensorsFile& file, const TensorEntry& entry, at::ScalarType dtype) {
  const at::ScalarType stored = *readable(entry.dtype);
  // To a GPU the stored bytes travel and are converted there: converting first would make a second copy on the host.
  at::Tensor result = device_.is_cpu() ? at::empty(entry.shape, dtype).copy_(alias(file, entry, stored))
                                       : uploader_.upload(file.data(entry)).view(stored).view(entry.shape).to(dtype);
  file.release(entry);
  return result;
}

/// In fp32, which `weight` is in: of many small changes bf16 would lose some.
void WeightReader::add(const std::vector<WeightDelta>& deltas, at::Tensor& weight) {
  for (const WeightDelta& delta : deltas) {
    const at::Tensor up = copied(*delta.file, *delta.up, at::kFloat);
    if (delta.down == nullptr)
      weight.add_(up, delta.scale);
    else
      weight.addmm_(up, copied(*delta.file, *delta.down, at::kFloat), 1, delta.scale);
  }
}

void WeightReader::check_complete() const {
  std::vector<std::string> unexpected;
  for (const auto& [name, place] : component_.tensors) {
    const bool ignored = std::any_of(ignored_prefixes_.begin(), ignored_prefixes_.end(),
                                     [&name = name](const std::string& prefix) { return name.starts_with(prefix); });
    if (!ignored && !used_.contains(name)) unexpected.push_back(in_quotes(name) + " " + text_of(place.second->shape));
  }
  std::string lists;
  append_list(lists, "missing", missing_);
  append_list(lists, "unexpected", unexpected);
  append_list(lists, "misshaped", misshaped_);
  if (lists.empty()) return;
  throw bad_file(component_.folder,
                 "the weights do not fit " + component_.config_file + " (" + component_.class_name + "): " + lists,
                 "use weights and config.json of one checkpoint; 'sparsereel inspect' lists what a folder holds");
}

}  // namespace sparsereel::models
