// Reads weight deltas from LoRA files, and finds the delta that turns a weight into NaN or Inf.
#include "models/store/weights/delta_reader.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "models/files/json_text.h"
#include "models/layers/unpack.h"
#include "models/store/weights/device.h"
#include "models/store/weights/load_plan.h"

namespace sparsereel::models {

bool holds_numbers(const at::Tensor& tensor) {
  return at::isfinite(tensor.to(at::kFloat)).all().item<bool>();
}

void add_delta(const LowRank& delta, at::Tensor& rows, int64_t first) {
  const at::Tensor up = delta.up.narrow(0, first, rows.size(0));
  delta.down.defined() ? rows.addmm_(up, delta.down, 1, delta.scale) : rows.add_(up.view_as(rows), delta.scale);
}

at::Tensor DeltaReader::read(const WeightDelta& delta, const TensorEntry* entry, at::ScalarType dtype) {
  return entry == nullptr ? at::Tensor() : read_tensor(*delta.file, *entry, dtype, device_, uploader_);
}

std::vector<LowRank> DeltaReader::in_fp32(const std::vector<WeightDelta>& deltas) {
  std::vector<LowRank> all;
  for (const WeightDelta& delta : deltas)
    all.push_back({read(delta, delta.up, at::kFloat), read(delta, delta.down, at::kFloat), delta.scale});
  return all;
}

LowRank DeltaReader::beside_packed(const WeightDelta& delta, at::ScalarType run) {
  const at::ScalarType dtype = kept_dtype(delta);
  const LowRank kept = {read(delta, delta.up, dtype), read(delta, delta.down, dtype), delta.scale};
  return dtype == at::kFloat && run != at::kFloat && !device_.is_cpu() ? in_bf16(kept) : kept;
}

void DeltaReader::blame(const StoredTensor& stored, const std::vector<WeightDelta>& deltas, at::ScalarType dtype) {
  for (const WeightDelta& delta : deltas) {
    for (const TensorEntry* entry : {delta.up, delta.down})
      if (entry != nullptr && !holds_numbers(read(delta, entry, at::kFloat)))
        throw bad_file(delta.file->path().string(), in_quotes(entry->name) + " holds NaN or Inf",
                       "download or export the LoRA again");
  }
  const WeightDelta& largest =
      *std::ranges::max_element(deltas, {}, [](const WeightDelta& delta) { return std::abs(delta.scale); });
  throw bad_file(largest.file->path().string(),
                 "with the scale " + exact_text(largest.scale) + ", which includes alpha over rank, it makes " +
                     in_quotes(component_.name_in_file(stored.name)) + " larger than " + dtype_name(dtype) + " holds",
                 "give the LoRA a smaller scale");
}

}  // namespace sparsereel::models
