// Moves position tables to the device and into the run's token order.
#include "models/transformer/token_plan.h"

#include <ATen/ATen.h>

#include <vector>

#include "attention/attention.h"

namespace sparsereel::models {
namespace {

at::Tensor index_tensor(const std::vector<int64_t>& indices, at::Device device) {
  return at::from_blob(const_cast<int64_t*>(indices.data()), {static_cast<int64_t>(indices.size())}, at::kLong)
      .to(device, at::kLong, false, true);
}

}  // namespace

TokenPlan make_token_plan(const TokenTables& tables, const hilbert::Grid& grid, hilbert::TokenOrder order,
                          const at::TensorOptions& options, Group* group) {
  const at::Device device = options.device();
  const at::ScalarType dtype = options.dtype().toScalarType();
  TokenPlan plan;
  plan.grid = grid;
  plan.group = group;
  plan.slice = slice_of(grid.size(), group);
  at::Tensor whole;  // the order of all tokens
  if (order != hilbert::TokenOrder::native) {
    const hilbert::Permutation& permutation = hilbert::permutation(order, grid);
    whole = index_tensor(permutation.order, device);
    plan.order = whole.narrow(0, plan.slice.first, plan.slice.count);
    plan.inverse = index_tensor(permutation.inverse, device);
  }
  const auto placed = [&](const at::Tensor& table, at::ScalarType wanted) {
    if (!table.defined()) return at::Tensor();
    const at::Tensor there = table.to(device, wanted);
    return whole.defined() ? there.index_select(0, whole) : there;
  };
  plan.video_positions = placed(tables.video_positions, dtype);
  if (plan.video_positions.defined())
    plan.video_positions = plan.video_positions.narrow(0, plan.slice.first, plan.slice.count);
  if (tables.text_positions.defined()) plan.text_positions = tables.text_positions.to(device, dtype);
  plan.rotary = {.cos = placed(tables.rotary.cos, at::kFloat), .sin = placed(tables.rotary.sin, at::kFloat)};
  if (const auto& [cos, sin] = tables.text_rotary; cos.defined()) {
    plan.rotates_text = true;
    plan.rotary = {.cos = at::cat({plan.rotary.cos, cos.to(device, at::kFloat)}),
                   .sin = at::cat({plan.rotary.sin, sin.to(device, at::kFloat)})};
  }
  if (const auto& [positions, frequencies] = tables.rotary_by_head; frequencies.defined())
    plan.rotary_by_head = {.positions = placed(positions, at::kFloat), .frequencies = frequencies.to(device)};
  if (plan.rotary.cos.defined() && device.is_cuda()) {
    attention::Prologue prologue;
    prologue.rotary_cos = plan.rotary.cos;
    prologue.rotary_sin = plan.rotary.sin;
    plan.rotary_pairs = attention::rotary_pairs(prologue);
  }
  return plan;
}

}  // namespace sparsereel::models
