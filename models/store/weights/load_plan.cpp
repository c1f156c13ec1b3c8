// Chooses the form in which a parameter is loaded.
#include "models/store/weights/load_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <sstream>

#include "models/layers/unpack.h"
#include "models/store/checkpoint/quantization.h"

namespace sparsereel::models {
namespace {

int64_t count(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

const std::vector<WeightDelta>* deltas_of(const Component& component, const std::string& name) {
  static const std::vector<WeightDelta> kNone;
  const auto changed = component.deltas.find(name);
  return changed == component.deltas.end() ? &kNone : &changed->second;
}

/// Says why the stored tensor does not fit the parameter; empty if it fits.
std::string complaint_of(const TensorSource& source, const StoredTensor& stored, const Parameter& parameter) {
  const bool fits =
      parameter.reshaped ? count(stored.shape) == count(parameter.stored) : stored.shape == parameter.stored;
  if (!fits) return "is " + text_of(stored.shape) + ", expected " + text_of(parameter.stored);
  if (!is_readable(stored))
    return "is stored as " + std::string(name(stored.dtype)) + ", which cannot be read into a weight of this shape";
  const auto is_there = [&](const std::string& place) { return source.find(place, {}).has_value(); };
  const bool has_own_scales = stored.quantized != nullptr && stored.quantized->is_joined();
  if (stored.dtype == Dtype::i8 && !has_own_scales && std::ranges::none_of(scale_names(stored.name), is_there))
    return "is stored as I8 without a scale";
  return {};
}

/// Returns true if another tensor has scales for this tensor's columns.
bool has_column_scales(const StoredTensor& stored) {
  return stored.quantized != nullptr && stored.quantized->find("pre_quant_scale") != nullptr;
}

bool is_e4m3_as_stored(const StoredPart& part, const Parameter& parameter) {
  return part.stored && part.stored->dtype == Dtype::f8_e4m3 && part.stored->shape == parameter.stored &&
         part.deltas->empty() && !has_column_scales(*part.stored);
}

/// Returns the memory layout of parts that stay packed until their matrix products; empty if the parts are unpacked.
std::vector<StoredRows> packed_rows(const std::vector<StoredPart>& parts, const Component& component,
                                    const Parameter& parameter, bool is_fp8) {
  if (parameter.rows == nullptr) return {};
  const int64_t rows = parameter.shape[0] / std::ssize(parts), columns = parameter.shape[1];
  std::vector<StoredRows> layout;
  for (const StoredPart& part : parts) {
    const bool stays = part.stored && has_only_low_rank(component, part.name) &&
                       count(part.stored->shape) == count(parameter.stored) &&
                       can_unpack(part.stored->dtype, columns) && (!is_fp8 || has_scale(part.stored->dtype));
    if (!stays) return {};
    layout.push_back({.dtype = part.stored->dtype,
                      .rows = rows,
                      .columns = columns,
                      .offset = layout.empty() ? 0 : end_of(layout.back()),
                      .rotation = part.stored->quantized == nullptr ? 0 : part.stored->quantized->rotation});
  }
  const auto is_e4m3 = [](Dtype dtype) { return dtype == Dtype::f8_e4m3; };
  if (is_fp8 && std::ranges::all_of(layout, is_e4m3, &StoredRows::dtype)) return {};
  if (std::ranges::none_of(layout, is_small, &StoredRows::dtype)) return {};
  return layout;
}

/// Returns an upper bound of the bytes of a weight delta that is kept apart from packed rows. An fp32 delta in a 16-bit
/// run takes 6 bytes per number on a GPU (in_bf16()), and fewer on a CPU.
uint64_t kept_bytes(const WeightDelta& delta, at::ScalarType run) {
  const at::ScalarType kept = kept_dtype(delta);
  const size_t each = kept != at::kFloat ? c10::elementSize(kept) : run == at::kFloat ? 4 : 6;
  return each * (delta.up->elements() + delta.down->elements());
}

bool is_all_int8(const std::vector<StoredRows>& rows) {
  return !rows.empty() && std::ranges::all_of(rows, [](const StoredRows& r) { return r.dtype == Dtype::i8; });
}

/// Plans a parameter whose products are computed in integers. If all of it is stored as int8, it stays as stored;
/// otherwise it is quantized to int8.
void plan_int8(LoadPlan& plan, const Parameter& parameter) {
  if (!is_all_int8(plan.rows)) {
    plan.form = LoadForm::int8;
    plan.rows = {{Dtype::i8, parameter.shape[0], parameter.shape[1], 0}};
  }
  for (StoredRows& rows : plan.rows) rows.multiplies = true;
}

uint64_t bytes_of_plan(const LoadPlan& plan, const Parameter& parameter, at::ScalarType run) {
  const auto elements = static_cast<uint64_t>(count(parameter.shape));
  const uint64_t scales = sizeof(float) * static_cast<uint64_t>(parameter.shape.empty() ? 1 : parameter.shape[0]);
  if (plan.form == LoadForm::numbers) return elements * c10::elementSize(plan.dtype);
  // One byte per element; int8 rows need no padding, because their widths are multiples of 16.
  if (plan.form != LoadForm::packed) return elements + scales;
  const bool scaled = std::ranges::any_of(plan.rows, has_scale, &StoredRows::dtype);
  uint64_t sum = static_cast<uint64_t>(end_of(plan.rows.back())) + (scaled ? scales : 0);
  for (const StoredPart& part : plan.parts)
    if (has_column_scales(*part.stored)) sum += sizeof(float) * static_cast<uint64_t>(parameter.shape[1]);
  for (const StoredPart& part : plan.parts)
    for (const WeightDelta& delta : *part.deltas) sum += kept_bytes(delta, run);
  return sum;
}

}  // namespace

std::string text_of(const std::vector<int64_t>& shape) {
  std::ostringstream text;
  text << at::IntArrayRef(shape);
  return text.str();
}

int64_t end_of(const StoredRows& rows) {
  return (rows.offset + rows.rows * packed_bytes(rows.dtype, rows.columns) + 15) / 16 * 16;
}

bool has_scale(Dtype dtype) {
  return dtype == Dtype::f8_e4m3 || dtype == Dtype::f8_e5m2 || dtype == Dtype::i8 || dtype == Dtype::nvfp4 ||
         dtype == Dtype::int4;
}

at::ScalarType kept_dtype(const WeightDelta& delta) {
  const at::ScalarType dtype = *scalar_type(delta.up->dtype);
  const bool is_half = dtype == at::kHalf || dtype == at::kBFloat16;
  return is_half && delta.down->dtype == delta.up->dtype ? dtype : at::kFloat;
}

bool LoadPlan::fits() const {
  return std::ranges::all_of(parts, &StoredPart::fits);
}

StoredPart find_part(const TensorSource& source, const Component& component, const std::string& name,
                     const Parameter& parameter) {
  StoredPart part = {.name = name, .stored = source.find(name, parameter.stored), .deltas = deltas_of(component, name)};
  part.complaint = part.stored ? complaint_of(source, *part.stored, parameter) : text_of(parameter.stored);
  return part;
}

LoadPlan plan_load(const TensorSource& source, const Component& component, const Parameter& parameter,
                   const WeightFormat& format) {
  const bool is_fp8 = parameter.is_fp8(format);
  LoadPlan plan = {.dtype = parameter.fp32 ? at::kFloat : format.dtype};
  for (const std::string& name : parameter.names) plan.parts.push_back(find_part(source, component, name, parameter));
  plan.rows = packed_rows(plan.parts, component, parameter, is_fp8);
  const auto is_e4m3 = [&](const StoredPart& part) { return is_e4m3_as_stored(part, parameter); };
  if (is_fp8 && std::ranges::all_of(plan.parts, is_e4m3)) {
    plan.form = LoadForm::e4m3;
  } else if (!plan.rows.empty()) {
    plan.form = LoadForm::packed;
  } else if (is_fp8) {
    plan.form = LoadForm::quantized;
  }
  const bool is_stored_int8 = parameter.fp8 && format.stored_int8 && is_all_int8(plan.rows);
  if (parameter.is_int8(format) || is_stored_int8) plan_int8(plan, parameter);
  plan.bytes = bytes_of_plan(plan, parameter, format.dtype);
  const auto is_stored_small = [](const StoredPart& part) { return part.stored && is_small(part.stored->dtype); };
  const bool is_quantized = plan.form == LoadForm::quantized || plan.form == LoadForm::int8;
  plan.rounds_again = is_quantized && std::ranges::any_of(plan.parts, is_stored_small);
  return plan;
}

}  // namespace sparsereel::models
