// Lists the weights of linear layers.
#include "models/layers/linear_layer.h"

#include <algorithm>
#include <utility>

#include "models/layers/unpack.h"

namespace sparsereel::models {

void Linear::weights(const Visit& visit, const std::string& name, int64_t out, int64_t in, bool has_bias,
                     std::vector<int64_t> stored_weight) {
  const std::vector<int64_t> shape = {out, in};
  if (stored_weight.empty()) stored_weight = shape;
  visit(weight, {.names = {name + ".weight"},
                 .stored = std::move(stored_weight),
                 .shape = shape,
                 .scale = &scale,
                 .rows = &rows});
  if (has_bias) visit(bias, parameter(name + ".bias", {out}));
}

void Linear::packed_weights(const Visit& visit, const std::vector<std::string>& names, int64_t out, int64_t in,
                            bool has_bias) {
  const int64_t all = static_cast<int64_t>(names.size()) * out;
  const auto named = [&](const char* part) {
    std::vector<std::string> parts;
    for (const std::string& name : names) parts.push_back(name + part);
    return parts;
  };
  visit(weight, {.names = named(".weight"), .stored = {out, in}, .shape = {all, in}, .scale = &scale, .rows = &rows});
  if (has_bias) visit(bias, {.names = named(".bias"), .stored = {out}, .shape = {all}});
}

Linear Linear::in(at::ScalarType dtype) const {
  if (rows.empty()) return *this;
  return {.weight = unpack(weight, rows, scale, dtype), .bias = bias};
}

Linear Linear::outputs(int64_t first, int64_t count) const {
  const auto some = [&](const at::Tensor& x) { return x.defined() ? x.narrow(0, first, count) : x; };
  Linear part = {.weight = rows.empty() ? some(weight) : weight, .bias = some(bias), .scale = some(scale)};
  int64_t start = 0;
  for (StoredRows of : rows) {
    const int64_t begin = std::max(first, start), end = std::min(first + count, start + of.rows);
    start += of.rows;
    if (begin >= end) continue;
    of.offset += (begin - (start - of.rows)) * of.columns;
    of.rows = end - begin;
    part.rows.push_back(std::move(of));
  }
  return part;
}

}  // namespace sparsereel::models
