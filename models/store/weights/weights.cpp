// What a module asks for becomes what it holds: merged, scaled and in 8 bits as far as that is asked for.
#include "models/store/weights/weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "models/files/config_fields.h"
#include "models/files/json_text.h"
#include "models/layers/fp8.h"
#include "models/layers/unpack.h"
#include "models/store/checkpoint/quantization.h"
#include "models/store/weights/device.h"
#include "models/store/weights/stoppable_work.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kMergedAtOnce = 1 << 21;  // elements: 8 MiB of fp32

std::string text_of(const std::vector<int64_t>& shape) {
  std::ostringstream text;
  text << at::IntArrayRef(shape);
  return text.str();
}

/// What quantize_rows() would give, without memory.
Activation stand_in_fp8(const at::Tensor& like) {
  const auto stand_in = [&](at::ScalarType dtype, const std::vector<int64_t>& shape) {
    return like.is_meta() ? at::empty(shape, like.options().dtype(dtype))
                          : at::zeros({}, like.options().dtype(dtype)).expand(shape);
  };
  return {stand_in(at::kFloat8_e4m3fn, like.sizes().vec()), stand_in(at::kFloat, {like.size(0), 1}),
          like.scalar_type()};
}

int64_t count(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

/// Where the next rows may begin: on 16 bytes.
int64_t end_of(const StoredRows& rows) {
  return (rows.offset + rows.rows * packed_bytes(rows.dtype, rows.columns) + 15) / 16 * 16;
}

/// Of 8-bit numbers, which may have scales beside them.
bool has_scale(Dtype dtype) {
  return dtype == Dtype::f8_e4m3 || dtype == Dtype::f8_e5m2 || dtype == Dtype::i8;
}

/// In which a delta is kept beside packed rows: as its file has it, if a product takes it so.
at::ScalarType kept_dtype(const WeightDelta& delta) {
  const at::ScalarType dtype = *scalar_type(delta.up->dtype);
  const bool is_half = dtype == at::kHalf || dtype == at::kBFloat16;
  return is_half && delta.down->dtype == delta.up->dtype ? dtype : at::kFloat;
}

/// What a delta beside packed rows takes at most: in fp32 on a GPU 6 for each number (in_bf16()).
uint64_t kept_bytes(const WeightDelta& delta, at::ScalarType run) {
  const at::ScalarType kept = kept_dtype(delta);
  const size_t each = kept != at::kFloat ? c10::elementSize(kept) : run == at::kFloat ? 4 : 6;
  return each * (delta.up->elements() + delta.down->elements());
}

bool holds_numbers(const at::Tensor& tensor) {
  return at::isfinite(tensor.to(at::kFloat)).all().item<bool>();
}

at::Tensor in_order(const at::Tensor& tensor, const at::Tensor& order) {
  if (is_stand_in(tensor)) return tensor;
  const bool is_fp8 = tensor.scalar_type() == at::kFloat8_e4m3fn;  // which torch has few operators for
  const at::Tensor rows = (is_fp8 ? tensor.view(at::kByte) : tensor).index_select(0, order.to(tensor.device()));
  return is_fp8 ? rows.view(at::kFloat8_e4m3fn) : rows;
}

/// Packed rows stay where they are and change places, with what is added to them: none leaves the part under its name.
void reorder_stored(at::Tensor& bytes, const Parameter& parameter) {
  const at::Tensor before = bytes;
  bytes = before.clone();
  int64_t first = 0;
  for (StoredRows& part : *parameter.rows) {
    const at::Tensor order = parameter.row_order.narrow(0, first, part.rows) - first;
    const int64_t size = part.rows * packed_bytes(part.dtype, part.columns);
    const auto rows = [&](const at::Tensor& all) { return all.narrow(0, part.offset, size).view({part.rows, -1}); };
    rows(bytes).copy_(in_order(rows(before), order));
    for (LowRank& delta : part.deltas) delta.up = in_order(delta.up, order);
    first += part.rows;
  }
}

void reorder(at::Tensor& tensor, const Parameter& parameter) {
  const at::Tensor& order = parameter.row_order;
  if (parameter.rows != nullptr && !parameter.rows->empty())
    reorder_stored(tensor, parameter);
  else
    tensor = in_order(tensor, order);
  if (parameter.scale != nullptr && parameter.scale->defined()) *parameter.scale = in_order(*parameter.scale, order);
}

void append_list(std::string& text, const char* kind, const std::vector<std::string>& names) {
  if (names.empty()) return;
  text += text.empty() ? "" : "; ";
  text += std::to_string(names.size()) + " " + kind + ": " + first_of(names);
}

/// Names that the module asked for tell which others are its own: those of a layer that the config leaves out, or of
/// one more block, make another model. A counter or a marker that a trainer left does not.
class KnownNames {
 public:
  explicit KnownNames(const std::set<std::string>& used) {
    for (const std::string& name : used) {
      last_.insert(last_of(name));
      layers_.insert(layer_of(name));
      if (const std::string list = list_of(name); !list.empty()) layers_.insert(list);
    }
  }

  bool has_place_for(const std::string& name) const {
    const std::string layer = layer_of(name), list = list_of(name);
    const auto is_known = [&](const std::string& place) { return !place.empty() && layers_.contains(place); };
    return last_.contains(last_of(name)) && (is_known(layer) || is_known(list));
  }

 private:
  static std::string last_of(const std::string& name) { return name.substr(name.rfind('.') + 1); }
  static std::string layer_of(const std::string& name) { return name.substr(0, name.rfind('.') + 1); }
  /// "blocks." of "blocks.0.attn1.to_q.weight"; empty where no part is a number.
  static std::string list_of(const std::string& name) {
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      const size_t end = name.find_first_not_of("0123456789", dot + 1);
      if (end != dot + 1 && end != std::string::npos && name[end] == '.') return name.substr(0, dot + 1);
    }
    return {};
  }

  std::set<std::string> last_, layers_;
};

}  // namespace

bool is_stand_in(const at::Tensor& tensor) {
  return tensor.storage().nbytes() < tensor.nbytes();
}

at::Tensor laid_out(const at::Tensor& tensor, at::MemoryFormat format) {
  return is_stand_in(tensor) ? tensor : tensor.contiguous(format);
}

WeightReader::WeightReader(const Component& component, at::Device device, WeightFormat format)
    : component_(component),
      device_(device),
      format_(format),
      source_(open_source(component, device, format.dtype)),
      uploader_(device) {
  check_quantization(component.files);
}

at::Tensor WeightReader::tensor(const std::string& name, const std::vector<int64_t>& shape) {
  return read_named(name, parameter(name, shape), format_.dtype);
}

at::Tensor WeightReader::read(const Parameter& parameter) {
  return read(parameter, parameter.fp32 ? at::kFloat : format_.dtype);
}

void WeightReader::load(at::Tensor& tensor, const Parameter& parameter) {
  StoppableWork::throw_if_stopped();
  load_in_stored_order(tensor, parameter);
  if (parameter.row_order.defined() && !device_.is_meta()) reorder(tensor, parameter);
}

/// Here a tensor that was read becomes what the module holds.
void WeightReader::load_in_stored_order(at::Tensor& tensor, const Parameter& parameter) {
  const bool fp8 = parameter.is_fp8(format_);
  if (fp8 && is_stored_fp8(parameter)) return load_stored_fp8(tensor, parameter);
  if (auto layout = stored_rows(parameter); !layout.empty()) return load_stored(tensor, parameter, std::move(layout));
  if (!fp8) {
    tensor = read(parameter);
    return;
  }
  const at::Tensor whole = read(parameter, at::kFloat);
  const Activation rows = is_stand_in(whole) || whole.is_meta() ? stand_in_fp8(whole) : quantize_rows(whole);
  tensor = rows.values;
  *parameter.scale = rows.scale.view({parameter.shape[0]});
}

/// Parts of one tensor are read into it, not joined: what is freed between tensors that stay is of no use to larger
/// ones, which cost a GPU a twentieth of a model's memory.
at::Tensor WeightReader::read(const Parameter& parameter, at::ScalarType dtype) {
  if (parameter.names.size() == 1) return read_named(parameter.names[0], parameter, dtype).view(parameter.shape);
  const at::TensorOptions options = at::TensorOptions().dtype(dtype).device(device_);
  std::vector<std::optional<StoredTensor>> parts;
  for (const std::string& name : parameter.names) parts.push_back(find(name, parameter));
  if (std::ranges::any_of(parts, [](const auto& part) { return !part; }))
    return at::zeros({}, options).expand(parameter.shape);
  at::Tensor whole = at::empty(parameter.shape, options);
  const at::Tensor rows = whole.view({std::ssize(parts), -1});
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string& name = parameter.names[i];
    const at::Tensor to = rows[static_cast<int64_t>(i)];
    const bool as_stored =
        scalar_type(parts[i]->dtype) == dtype && deltas_of(name).empty() && !has_scale(parts[i]->dtype);
    if (as_stored && !device_.is_meta()) {
      source_->copy_bytes(*parts[i], to.view(at::kByte));
    } else {
      to.copy_(read_named(name, parameter, dtype).view(-1));
    }
  }
  return whole;
}

uint64_t WeightReader::bytes(const Parameter& parameter) const {
  const auto elements = static_cast<uint64_t>(count(parameter.shape));
  const uint64_t scales = sizeof(float) * static_cast<uint64_t>(parameter.shape.empty() ? 1 : parameter.shape[0]);
  if (const auto layout = stored_rows(parameter); !layout.empty()) {
    const bool scaled = std::ranges::any_of(layout, has_scale, &StoredRows::dtype);
    uint64_t sum = static_cast<uint64_t>(end_of(layout.back())) + (scaled ? scales : 0);
    for (const std::string& name : parameter.names)
      for (const WeightDelta& delta : deltas_of(name)) sum += kept_bytes(delta, format_.dtype);
    return sum;
  }
  if (parameter.is_fp8(format_)) return elements + scales;
  return elements * c10::elementSize(parameter.fp32 ? at::kFloat : format_.dtype);
}

bool WeightReader::rounds_again(const Parameter& parameter) const {
  const auto is_stored_small = [&](const std::string& name) {
    const auto stored = source_->find(name, parameter.stored);
    return stored && is_small(stored->dtype);
  };
  return parameter.is_fp8(format_) && std::ranges::any_of(parameter.names, is_stored_small) &&
         !is_stored_fp8(parameter) && stored_rows(parameter).empty();
}

bool WeightReader::contains(const std::string& name) const {
  return source_->find(name, {}).has_value();
}

void WeightReader::ignore_prefix(const std::string& prefix) {
  ignored_prefixes_.push_back(prefix);
}

std::optional<StoredTensor> WeightReader::find(const std::string& name, const Parameter& parameter) {
  const bool first_time = used_.insert(name).second;
  const auto unusable = [&](std::vector<std::string>& list, const std::string& complaint) {
    if (first_time) list.push_back(in_quotes(component_.name_in_file(name)) + " " + complaint);
    return std::nullopt;
  };
  const auto stored = source_->find(name, parameter.stored);
  if (!stored) return unusable(missing_, text_of(parameter.stored));
  const bool fits =
      parameter.reshaped ? count(stored->shape) == count(parameter.stored) : stored->shape == parameter.stored;
  if (!fits) return unusable(misshaped_, "is " + text_of(stored->shape) + ", expected " + text_of(parameter.stored));
  if (!is_readable(*stored))
    return unusable(misshaped_, "is stored as " + std::string(models::name(stored->dtype)) +
                                    ", which no weight of its shape can be read from");
  const auto is_there = [&](const std::string& place) { return contains(place); };
  if (stored->dtype == Dtype::i8 && std::ranges::none_of(scale_names(name), is_there))
    return unusable(misshaped_, "is stored as I8 without a scale");
  return stored;
}

at::Tensor WeightReader::read_named(const std::string& name, const Parameter& parameter, at::ScalarType dtype) {
  const std::vector<int64_t>& shape = parameter.stored;
  const auto stored = find(name, parameter);
  // One element seen as the whole shape: a wrong config must not cost memory before check_complete() reports it.
  if (!stored) return at::zeros({}, at::TensorOptions().dtype(dtype).device(device_)).expand(shape);
  at::Tensor scales;
  if (has_scale(stored->dtype)) scales = row_scales(name, shape.empty() ? 1 : shape[0]);
  if (device_.is_meta()) return at::empty(shape, at::TensorOptions().dtype(dtype).device(device_));
  const std::vector<WeightDelta>& deltas = deltas_of(name);
  if (!scales.defined() && deltas.empty()) return source_->read(*stored, dtype).view(shape);
  return merged(*stored, shape, scales, deltas, dtype);
}

const std::vector<WeightDelta>& WeightReader::deltas_of(const std::string& name) const {
  static const std::vector<WeightDelta> kNone;
  const auto changed = component_.deltas.find(name);
  return changed == component_.deltas.end() ? kNone : changed->second;
}

struct WeightReader::Addend {
  at::Tensor up, down;
  double scale;

  /// sum: rows of the weight, from this one on.
  void add_to(at::Tensor& sum, int64_t row) const {
    const at::Tensor rows = up.narrow(0, row, sum.size(0));
    down.defined() ? sum.addmm_(rows, down, 1, scale) : sum.add_(rows.view_as(sum), scale);
  }
};

/// In fp32: of many small changes bf16 would lose some. A few rows at a time: on a CPU a whole tensor in fp32 costs
/// more in fresh memory than the products do.
at::Tensor WeightReader::merged(const StoredTensor& stored, const std::vector<int64_t>& shape, const at::Tensor& scales,
                                const std::vector<WeightDelta>& deltas, at::ScalarType dtype) {
  std::vector<Addend> addends;
  for (const WeightDelta& delta : deltas) addends.push_back(addend(delta));
  const at::Tensor weight = source_->read(stored, scalar_type(stored.dtype).value_or(at::kFloat)).view(shape);
  at::Tensor result = at::empty(weight.sizes(), weight.options().dtype(dtype));
  const int64_t rows = weight.size(0), step = std::max<int64_t>(1, kMergedAtOnce * rows / weight.numel());
  const at::Tensor from = weight.view({rows, -1}), to = result.view({rows, -1});
  at::Tensor are_numbers = at::ones({}, weight.options().dtype(at::kBool));  // on the device: nothing waits for it
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t count = std::min(step, rows - row);
    at::Tensor sum = from.narrow(0, row, count).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    if (scales.defined()) sum.mul_(scales.narrow(0, row, count).unsqueeze(1));
    for (const Addend& each : addends) each.add_to(sum, row);
    to.narrow(0, row, count).copy_(sum);
    if (!deltas.empty()) are_numbers.logical_and_(at::isfinite(to.narrow(0, row, count)).all());
  }
  if (!deltas.empty() && !are_numbers.item<bool>() && holds_numbers(weight)) blame(stored, deltas, dtype);
  source_->release(stored);
  return result;
}

/// Throws Error of the deltas that make a good weight NaN or Inf: one that holds such numbers itself, else the one of
/// the largest scale.
void WeightReader::blame(const StoredTensor& stored, const std::vector<WeightDelta>& deltas, at::ScalarType dtype) {
  for (const WeightDelta& delta : deltas) {
    for (const TensorEntry* entry : {delta.up, delta.down})
      if (entry != nullptr && !holds_numbers(in_fp32(delta, entry)))
        throw bad_file(delta.file->path().string(), in_quotes(entry->name) + " holds NaN or Inf",
                       "download or export the LoRA again");
  }
  const WeightDelta& largest =
      *std::ranges::max_element(deltas, {}, [](const WeightDelta& delta) { return std::abs(delta.scale); });
  throw bad_file(largest.file->path().string(),
                 "with the scale " + exact_text(largest.scale) + " (alpha over rank is part of it) it makes " +
                     in_quotes(component_.name_in_file(stored.name)) + " larger than " + dtype_name(dtype) + " holds",
                 "give the LoRA a smaller scale");
}

at::Tensor WeightReader::in_fp32(const WeightDelta& delta, const TensorEntry* entry) {
  return entry == nullptr ? at::Tensor() : read_tensor(*delta.file, *entry, at::kFloat, device_, uploader_);
}

WeightReader::Addend WeightReader::addend(const WeightDelta& delta) {
  return {in_fp32(delta, delta.up), in_fp32(delta, delta.down), delta.scale};
}

bool WeightReader::is_stored_fp8(const Parameter& parameter) const {
  return std::ranges::all_of(parameter.names, [&](const std::string& name) {
    const auto stored = source_->find(name, parameter.stored);
    return stored && stored->dtype == Dtype::f8_e4m3 && stored->shape == parameter.stored &&
           !component_.deltas.contains(name);
  });
}

/// A product of 8 bits takes e4m3 alone: what is packed, and e4m3 that deltas change, is quantised for it.
std::vector<StoredRows> WeightReader::stored_rows(const Parameter& parameter) const {
  if (parameter.rows == nullptr) return {};
  const int64_t rows = parameter.shape[0] / std::ssize(parameter.names), columns = parameter.shape[1];
  std::vector<StoredRows> layout;
  for (const std::string& name : parameter.names) {
    const auto stored = source_->find(name, parameter.stored);
    const bool stays = stored && has_only_low_rank(component_, name) &&
                       count(stored->shape) == count(parameter.stored) && can_unpack(stored->dtype, columns) &&
                       (!parameter.is_fp8(format_) || has_scale(stored->dtype));
    if (!stays) return {};
    layout.push_back({stored->dtype, rows, columns, layout.empty() ? 0 : end_of(layout.back())});
  }
  const auto is_e4m3 = [](Dtype dtype) { return dtype == Dtype::f8_e4m3; };
  if (parameter.is_fp8(format_) && std::ranges::all_of(layout, is_e4m3, &StoredRows::dtype)) return {};
  if (std::ranges::none_of(layout, is_small, &StoredRows::dtype)) return {};
  return layout;
}

void WeightReader::load_stored(at::Tensor& tensor, const Parameter& parameter, std::vector<StoredRows> layout) {
  const at::TensorOptions options = at::TensorOptions().dtype(at::kByte).device(device_);
  std::vector<StoredTensor> parts;
  for (const std::string& name : parameter.names) {
    if (const auto stored = find(name, parameter)) parts.push_back(*stored);
  }
  if (parts.size() < layout.size()) {  // one is of another shape: check_complete() says so
    tensor = read(parameter, format_.dtype);
    return parameter.rows->clear();
  }
  const bool is_one = parts.size() == 1 && !device_.is_meta();
  tensor = is_one ? source_->bytes(parts[0]) : at::empty({end_of(layout.back())}, options);
  std::vector<at::Tensor> scales;
  for (size_t i = 0; i < layout.size(); ++i) {
    auto& [dtype, rows, columns, offset, deltas] = layout[i];
    scales.push_back(has_scale(dtype) ? row_scales(parameter.names[i], rows)
                                      : at::ones({rows}, options.dtype(at::kFloat)));
    if (device_.is_meta()) continue;
    if (!is_one) source_->copy_bytes(parts[i], tensor.narrow(0, offset, rows * packed_bytes(dtype, columns)));
    for (const WeightDelta& delta : deltas_of(parameter.names[i])) deltas.push_back(low_rank(delta));
  }
  if (std::ranges::any_of(layout, has_scale, &StoredRows::dtype)) *parameter.scale = at::cat(scales);
  *parameter.rows = std::move(layout);
  check_sums(tensor, parameter);
}

LowRank WeightReader::low_rank(const WeightDelta& delta) {
  const at::ScalarType dtype = kept_dtype(delta);
  const auto kept = [&](const TensorEntry* entry) {
    return read_tensor(*delta.file, *entry, dtype, device_, uploader_);
  };
  const LowRank read = {kept(delta.up), kept(delta.down), delta.scale};
  return dtype == at::kFloat && format_.dtype != at::kFloat && !device_.is_cpu() ? in_bf16(read) : read;
}

void WeightReader::check_sums(const at::Tensor& tensor, const Parameter& parameter) {
  const at::ScalarType dtype = parameter.fp32 ? at::kFloat : format_.dtype;
  for (size_t i = 0; i < parameter.names.size(); ++i) {
    StoredRows part = parameter.rows->at(i);
    if (part.deltas.empty()) continue;
    const auto first = static_cast<int64_t>(i) * part.rows;
    const at::Tensor& scale = *parameter.scale;
    const at::Tensor scales = scale.defined() ? scale.narrow(0, first, part.rows) : scale;
    const auto [low, high] = at::aminmax(unpack(tensor, {part}, scales, dtype));
    if (holds_numbers(low) && holds_numbers(high)) continue;
    part.deltas.clear();
    if (!holds_numbers(unpack(tensor, {part}, scales, at::kFloat))) continue;
    blame(*source_->find(parameter.names[i], parameter.stored), deltas_of(parameter.names[i]), dtype);
  }
}

void WeightReader::load_stored_fp8(at::Tensor& tensor, const Parameter& parameter) {
  const int64_t rows = parameter.shape[0] / std::ssize(parameter.names);
  tensor = at::empty(parameter.shape, at::TensorOptions().dtype(at::kFloat8_e4m3fn).device(device_));
  std::vector<at::Tensor> scales;
  for (size_t i = 0; i < parameter.names.size(); ++i) {
    const auto stored = find(parameter.names[i], parameter);
    scales.push_back(row_scales(parameter.names[i], rows));
    if (device_.is_meta()) continue;
    const at::Tensor part = tensor.narrow(0, static_cast<int64_t>(i) * rows, rows);
    source_->copy_bytes(*stored, part.view(at::kByte).view(-1));
  }
  *parameter.scale = at::cat(scales);
}

/// fp32 [rows], of a tensor that is stored in 8 bits.
at::Tensor WeightReader::row_scales(const std::string& name, int64_t rows) {
  const at::Tensor ones = at::ones({rows}, at::TensorOptions().dtype(at::kFloat).device(device_));
  for (const std::string& place : scale_names(name)) {
    const auto found = source_->find(place, {rows});
    if (!found) continue;
    if (found->shape.size() > 1 && found->shape.front() == rows && count(found->shape) > rows)
      throw bad_file(
          component_.origin,
          in_quotes(component_.name_in_file(name)) + " has a scale for each block of a row, which is not supported",
          "use a variant with one scale a layer or a row (fp8_scaled), or one in 16 bits");
    const bool is_one = found->shape.empty() || found->shape == std::vector<int64_t>{1};
    Parameter wanted = parameter(place, is_one ? found->shape : std::vector<int64_t>{rows});
    if (found->shape == std::vector<int64_t>{rows, 1}) wanted.reshaped = true;
    const auto stored = find(place, wanted);
    if (!stored || device_.is_meta()) return ones;
    return ones * source_->read(*stored, at::kFloat).view({-1});
  }
  return ones;
}

void WeightReader::check_complete() const {
  component_.check_whole();
  std::set<std::string> names = used_;  // and what the file calls them: its strangers have no other names
  for (const std::string& name : used_) names.insert(component_.name_in_file(name));
  const KnownNames known(names);
  std::vector<std::string> unexpected;
  for (const StoredTensor& tensor : source_->list()) {
    const auto begins = [&](const std::string& prefix) { return tensor.name.starts_with(prefix); };
    const bool ignored = is_about_quantization(tensor.name) || std::ranges::any_of(ignored_prefixes_, begins);
    if (ignored || used_.contains(tensor.name)) continue;
    const std::string name = component_.name_in_file(tensor.name);
    const std::string text = in_quotes(name) + " " + text_of(tensor.shape);
    if (known.has_place_for(tensor.name) || known.has_place_for(name))
      unexpected.push_back(text);
    else if (component_.left_out != nullptr)
      component_.left_out->push_back(text);
  }
  std::string lists;
  append_list(lists, "missing", missing_);
  append_list(lists, "unexpected", unexpected);
  append_list(lists, "misshaped", misshaped_);
  if (lists.empty()) return;
  throw bad_file(component_.origin,
                 "the weights do not fit " + component_.config_file + " (" + component_.class_name + "): " + lists,
                 "use weights and config.json of one checkpoint; 'sparsereel inspect' lists what a folder holds");
}

}  // namespace sparsereel::models
