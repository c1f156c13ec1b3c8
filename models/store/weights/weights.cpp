// Loads the parameters of a module in the forms that their plans give (load_plan.h).
#include "models/store/weights/weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "hilbert/error.h"
#include "models/files/config_fields.h"
#include "models/files/json_text.h"
#include "models/layers/fp8.h"
#include "models/layers/int8.h"
#include "models/layers/rotation.h"
#include "models/layers/unpack.h"
#include "models/store/checkpoint/quantization.h"
#include "models/store/weights/known_names.h"
#include "models/store/weights/stoppable_work.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kMergedAtOnce = 1 << 21;  // elements that are merged at a time: 8 MiB of fp32

/// Returns a placeholder with the dtypes and shapes of quantize_rows()'s result.
Activation stand_in_fp8(const at::Tensor& like) {
  const auto stand_in = [&](at::ScalarType dtype, const std::vector<int64_t>& shape) {
    return like.is_meta() ? at::empty(shape, like.options().dtype(dtype))
                          : at::zeros({}, like.options().dtype(dtype)).expand(shape);
  };
  return {stand_in(at::kFloat8_e4m3fn, like.sizes().vec()), stand_in(at::kFloat, {like.size(0), 1}),
          like.scalar_type()};
}

at::Tensor in_order(const at::Tensor& tensor, const at::Tensor& order) {
  if (is_stand_in(tensor)) return tensor;
  // Torch has no index_select() for e4m3, so the tensor is viewed as bytes.
  const bool is_fp8 = tensor.scalar_type() == at::kFloat8_e4m3fn;
  const at::Tensor rows = (is_fp8 ? tensor.view(at::kByte) : tensor).index_select(0, order.to(tensor.device()));
  return is_fp8 ? rows.view(at::kFloat8_e4m3fn) : rows;
}

/// Reorders packed rows and their weight deltas. The order must keep each row within its part.
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

/// Returns true if reading takes more than a conversion of numbers: the tensor is packed, or its columns are rotated or
/// have scales.
bool is_unpacked(const StoredTensor& stored) {
  const QuantizedLayer* layer = stored.quantized;
  return layer != nullptr && stored.dtype == layer->format->packed &&
         (!scalar_type(stored.dtype) || layer->rotation > 0 || layer->find("pre_quant_scale") != nullptr);
}

void append_list(std::string& text, const char* kind, const std::vector<std::string>& names) {
  if (names.empty()) return;
  text += text.empty() ? "" : "; ";
  text += std::to_string(names.size()) + " " + kind + ": " + first_of(names);
}

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
      deltas_(component, device) {
  check_quantization(component.files);
  check_layers(component.quantized, component.files);
}

at::Tensor WeightReader::tensor(const std::string& name, const std::vector<int64_t>& shape) {
  return read(parameter(name, shape));
}

at::Tensor WeightReader::read(Parameter parameter) {
  parameter.fp8 = false;
  parameter.scale = nullptr;
  parameter.rows = nullptr;
  at::Tensor tensor;
  load(tensor, parameter);
  return tensor;
}

void WeightReader::expect(const Parameter& parameter) {
  const LoadPlan plan = plan_load(*source_, component_, parameter, format_);
  if (!note(plan.parts)) return;
  for (const StoredPart& part : plan.parts)
    if (has_scale(part.stored->dtype)) row_scales(part, parameter.stored.at(0));
}

uint64_t WeightReader::bytes(const Parameter& parameter) const {
  return plan_load(*source_, component_, parameter, format_).bytes;
}

bool WeightReader::rounds_again(const Parameter& parameter) const {
  return plan_load(*source_, component_, parameter, format_).rounds_again;
}

bool WeightReader::contains(const std::string& name) const {
  return source_->find(name, {}).has_value();
}

void WeightReader::ignore_prefix(const std::string& prefix) {
  ignored_prefixes_.push_back(prefix);
}

void WeightReader::load(at::Tensor& tensor, const Parameter& parameter) {
  StoppableWork::throw_if_stopped();
  const LoadPlan plan = plan_load(*source_, component_, parameter, format_);
  if (parameter.rows != nullptr) parameter.rows->clear();
  switch (plan.form) {
    case LoadForm::numbers:
      tensor = numbers(plan.parts, parameter, plan.dtype);
      break;
    case LoadForm::quantized:
      load_quantized(tensor, parameter, plan);
      break;
    case LoadForm::e4m3:
      load_e4m3(tensor, parameter, plan);
      break;
    case LoadForm::packed:
      load_packed(tensor, parameter, plan);
      break;
    case LoadForm::int8:
      load_int8(tensor, parameter, plan);
      break;
  }
  if (parameter.row_order.defined() && !device_.is_meta()) reorder(tensor, parameter);
}

/// Expands one element to the whole shape. So a wrong config, with huge shapes, takes no memory before check_complete()
/// reports it.
at::Tensor WeightReader::placeholder(const Parameter& parameter, at::ScalarType dtype) const {
  return at::zeros({}, at::TensorOptions().dtype(dtype).device(device_)).expand(parameter.shape);
}

/// Notes, for check_complete(), that the parts' names were asked for, and the complaints about parts. Returns false if
/// a part does not fit.
bool WeightReader::note(const std::vector<StoredPart>& parts) {
  for (const StoredPart& part : parts) {
    const bool is_new = used_.insert(part.name).second;
    if (part.fits() || !is_new) continue;
    const std::string text = in_quotes(component_.name_in_file(part.name)) + " " + part.complaint;
    (part.stored ? misshaped_ : missing_).push_back(text);
  }
  return std::ranges::all_of(parts, &StoredPart::fits);
}

/// Reads the parts of a stacked tensor directly into the result. If they were read first and then joined, the freed
/// parts would leave gaps that are too small for later tensors. On a GPU, this would waste a twentieth of a model's
/// memory.
at::Tensor WeightReader::numbers(const std::vector<StoredPart>& parts, const Parameter& parameter,
                                 at::ScalarType dtype) {
  if (!note(parts)) return placeholder(parameter, dtype);
  if (parts.size() == 1) return part_numbers(parts[0], parameter, dtype).view(parameter.shape);
  at::Tensor whole = at::empty(parameter.shape, at::TensorOptions().dtype(dtype).device(device_));
  const at::Tensor rows = whole.view({std::ssize(parts), -1});
  for (size_t i = 0; i < parts.size(); ++i) {
    const StoredPart& part = parts[i];
    const at::Tensor to = rows[static_cast<int64_t>(i)];
    const bool as_stored =
        scalar_type(part.stored->dtype) == dtype && part.deltas->empty() && !has_scale(part.stored->dtype);
    if (as_stored && !device_.is_meta()) {
      source_->copy_bytes(*part.stored, to.view(at::kByte));
    } else {
      to.copy_(part_numbers(part, parameter, dtype).view(-1));
    }
  }
  return whole;
}

at::Tensor WeightReader::part_numbers(const StoredPart& part, const Parameter& parameter, at::ScalarType dtype) {
  const std::vector<int64_t>& shape = parameter.stored;
  at::Tensor scales;
  if (has_scale(part.stored->dtype)) scales = row_scales(part, shape.empty() ? 1 : shape[0]);
  if (device_.is_meta()) return at::empty(shape, at::TensorOptions().dtype(dtype).device(device_));
  if (!scales.defined() && part.deltas->empty() && !is_unpacked(*part.stored))
    return source_->read(*part.stored, dtype).view(shape);
  return merged(part, shape, scales, dtype);
}

/// Adds in fp32, because bf16 would lose some of the small changes. Works on a few rows at a time: on a CPU, new memory
/// for a whole fp32 tensor takes longer than the products.
at::Tensor WeightReader::merged(const StoredPart& part, const std::vector<int64_t>& shape, at::Tensor scales,
                                at::ScalarType dtype) {
  const std::vector<LowRank> deltas = deltas_.in_fp32(*part.deltas);
  at::Tensor weight;
  if (is_unpacked(*part.stored)) {
    weight = unpacked(part, shape[0], std::exchange(scales, {})).view(shape);
  } else {
    weight = source_->read(*part.stored, scalar_type(part.stored->dtype).value_or(at::kFloat)).view(shape);
  }
  at::Tensor result = at::empty(weight.sizes(), weight.options().dtype(dtype));
  const int64_t rows = weight.size(0), step = std::max<int64_t>(1, kMergedAtOnce * rows / weight.numel());
  const at::Tensor from = weight.view({rows, -1}), to = result.view({rows, -1});
  // This flag is a tensor on the device, so that the loop does not wait for the GPU.
  at::Tensor are_numbers = at::ones({}, weight.options().dtype(at::kBool));
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t count = std::min(step, rows - row);
    at::Tensor sum = from.narrow(0, row, count).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    if (scales.defined()) sum.mul_(scales.narrow(0, row, count).unsqueeze(1));
    for (const LowRank& each : deltas) add_delta(each, sum, row);
    to.narrow(0, row, count).copy_(sum);
    if (!deltas.empty()) are_numbers.logical_and_(at::isfinite(to.narrow(0, row, count)).all());
  }
  if (!deltas.empty() && !are_numbers.item<bool>() && holds_numbers(weight))
    deltas_.blame(*part.stored, *part.deltas, dtype);
  source_->release(*part.stored);
  return result;
}

at::Tensor WeightReader::unpacked(const StoredPart& part, int64_t rows, const at::Tensor& scales) {
  const StoredTensor& stored = *part.stored;
  const int64_t columns = c10::multiply_integers(stored.shape) / rows;
  StoredRows layout = {stored.dtype, rows, columns, 0};
  layout.rotation = stored.quantized->rotation;
  layout.column_scale = source_->column_scales(stored);
  if (can_unpack(stored.dtype, columns)) return unpack(source_->bytes(stored), {layout}, scales, at::kFloat);
  at::Tensor numbers = source_->read(stored, at::kFloat).view({rows, columns});
  if (layout.rotation > 0) rotate_(numbers, layout.rotation);
  if (scales.defined()) numbers.mul_(scales.unsqueeze(1));
  if (layout.column_scale.defined()) numbers.mul_(layout.column_scale);
  return numbers;
}

void WeightReader::load_quantized(at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan) {
  const at::Tensor whole = numbers(plan.parts, parameter, at::kFloat);
  const Activation rows = is_stand_in(whole) || whole.is_meta() ? stand_in_fp8(whole) : quantize_rows(whole);
  tensor = rows.values;
  *parameter.scale = rows.scale.view({parameter.shape[0]});
}

void WeightReader::load_int8(at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan) {
  const at::Tensor whole = numbers(plan.parts, parameter, at::kFloat);
  if (is_stand_in(whole)) {
    tensor = placeholder(parameter, plan.dtype);
    return;
  }
  *parameter.rows = plan.rows;
  if (whole.is_meta()) {
    tensor = at::empty({whole.numel()}, whole.options().dtype(at::kByte));
    *parameter.scale = at::empty({parameter.shape[0]}, whole.options());
    return;
  }
  const Int8Rows rows = quantize_int8_weight(whole);
  parameter.rows->front().rotation = rows.rotation;
  tensor = rows.values.view(-1).view(at::kByte).to(device_);
  *parameter.scale = rows.scale.to(device_);
}

void WeightReader::load_e4m3(at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan) {
  note(plan.parts);
  const int64_t rows = parameter.shape[0] / std::ssize(plan.parts);
  tensor = at::empty(parameter.shape, at::TensorOptions().dtype(at::kFloat8_e4m3fn).device(device_));
  std::vector<at::Tensor> scales;
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    scales.push_back(row_scales(plan.parts[i], rows));
    if (device_.is_meta()) continue;
    const at::Tensor part = tensor.narrow(0, static_cast<int64_t>(i) * rows, rows);
    source_->copy_bytes(*plan.parts[i].stored, part.view(at::kByte).view(-1));
  }
  *parameter.scale = at::cat(scales);
}

void WeightReader::load_packed(at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan) {
  if (!note(plan.parts)) {
    tensor = placeholder(parameter, plan.dtype);
    return;
  }
  const at::TensorOptions options = at::TensorOptions().dtype(at::kByte).device(device_);
  const bool is_one = plan.parts.size() == 1 && !device_.is_meta();
  tensor = is_one ? source_->bytes(*plan.parts[0].stored) : at::empty({end_of(plan.rows.back())}, options);
  std::vector<at::Tensor> scales;
  *parameter.rows = plan.rows;
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const StoredPart& part = plan.parts[i];
    StoredRows& rows = parameter.rows->at(i);
    scales.push_back(has_scale(rows.dtype) ? row_scales(part, rows.rows)
                                           : at::ones({rows.rows}, options.dtype(at::kFloat)));
    if (device_.is_meta()) continue;
    rows.column_scale = source_->column_scales(*part.stored);
    const int64_t size = rows.rows * packed_bytes(rows.dtype, rows.columns);
    if (!is_one) source_->copy_bytes(*part.stored, tensor.narrow(0, rows.offset, size));
    for (const WeightDelta& delta : *part.deltas) rows.deltas.push_back(deltas_.beside_packed(delta, format_.dtype));
  }
  if (std::ranges::any_of(plan.rows, has_scale, &StoredRows::dtype)) *parameter.scale = at::cat(scales);
  check_sums(tensor, parameter, plan);
}

void WeightReader::check_sums(const at::Tensor& tensor, const Parameter& parameter, const LoadPlan& plan) {
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    StoredRows part = parameter.rows->at(i);
    if (part.deltas.empty()) continue;
    const auto first = static_cast<int64_t>(i) * part.rows;
    const at::Tensor& scale = *parameter.scale;
    const at::Tensor scales = scale.defined() ? scale.narrow(0, first, part.rows) : scale;
    const auto [low, high] = at::aminmax(unpack(tensor, {part}, scales, plan.dtype));
    if (holds_numbers(low) && holds_numbers(high)) continue;
    part.deltas.clear();
    if (!holds_numbers(unpack(tensor, {part}, scales, at::kFloat))) continue;
    deltas_.blame(*plan.parts[i].stored, *plan.parts[i].deltas, plan.dtype);
  }
}

/// Returns the file of a tensor, for errors.
std::filesystem::path WeightReader::file_of(const std::string& name) const {
  const auto found = component_.tensors.find(name);
  return found == component_.tensors.end() ? component_.origin : component_.files[found->second.first]->path();
}

at::Tensor WeightReader::row_scales(const StoredPart& part, int64_t rows) {
  const at::Tensor ones = at::ones({rows}, at::TensorOptions().dtype(at::kFloat).device(device_));
  if (part.stored->quantized != nullptr && part.stored->quantized->is_joined()) {
    const at::Tensor own = device_.is_meta() ? at::Tensor() : source_->row_scales(*part.stored);
    return own.defined() ? own : ones;
  }
  for (const std::string& place : scale_names(part.name))
    if (const auto found = source_->find(place, {rows})) return ones * scales_at(place, *found, part, rows);
  return ones;
}

/// Returns the scales: fp32 [rows] or [1]. If they do not fit, returns a 1 and notes the complaint for
/// check_complete().
at::Tensor WeightReader::scales_at(const std::string& place, const StoredTensor& found, const StoredPart& part,
                                   int64_t rows) {
  const at::Tensor one = at::ones({1}, at::TensorOptions().dtype(at::kFloat).device(device_));
  const std::string format = part.stored->quantized == nullptr ? std::string(models::name(part.stored->dtype))
                                                               : part.stored->quantized->label();
  const int64_t count = c10::multiply_integers(found.shape);
  if (found.shape.size() > 1 && found.shape.front() == rows && count > rows)
    throw bad_file(file_of(place),
                   in_quotes(component_.name_in_file(part.name)) + " has a scale for each block of a row (" +
                       in_quotes(component_.name_in_file(place)) + "), which is not supported in " + format,
                   "use a variant with one scale for each layer or row (fp8_scaled), or a variant in 16 bits");
  const bool is_one = found.shape.empty() || found.shape == std::vector<int64_t>{1};
  Parameter wanted = parameter(place, is_one ? found.shape : std::vector<int64_t>{rows});
  if (found.shape == std::vector<int64_t>{rows, 1}) wanted.reshaped = true;
  StoredPart scale = find_part(*source_, component_, place, wanted);
  if (!scale.fits()) scale.complaint += " (scale of a weight in " + format + ", " + file_of(place).string() + ")";
  if (!note({scale}) || device_.is_meta()) return one;
  // Reads to the host and checks there: a check on the device would wait until all copies before it are done.
  const at::Tensor numbers =
      open_source(component_, at::kCPU, format_.dtype)->read(*scale.stored, at::kFloat).view({-1});
  if (!holds_numbers(numbers))
    throw bad_file(
        file_of(place),
        in_quotes(component_.name_in_file(place)) + ", a scale of a weight in " + format + ", holds NaN or infinity",
        "download or export the file again");
  return numbers.to(device_, /*non_blocking=*/true);
}

void WeightReader::check_complete() const {
  component_.check_whole();
  // Names that were asked for, in diffusers' spelling and in the file's spelling. The names of unused tensors are known
  // only in the file's spelling.
  std::set<std::string> names = used_;
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
