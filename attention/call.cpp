// The masks of a call, the text that describes a call, and the test whether a call is so short that full attention is
// faster.
#include "attention/call.h"

#include <cmath>

namespace sparsereel::attention {

cpu::KernelParams masks_of(const Call& call, const int64_t* key_lengths) {
  cpu::KernelParams params{call, call};
  params.key_lengths = key_lengths;
  params.mean_cell = call.mean_cell();
  return params;
}

std::string means_text(const Call& call) {
  const int64_t cell = call.mean_cell();
  return cell > 0 ? ", means of " + std::to_string(cell) + " tokens for dropped blocks" : "";
}

std::string blocks_text(const Call& call) {
  if (call.map != nullptr) return ", the caller's block map";
  return !call.quantized && call.is_dense() ? ", every block" : "";
}

bool is_too_short(const Call& call) {
  if (call.quantized || call.map != nullptr || !forced_kernel().empty()) return false;
  const double rows = static_cast<double>(call.batch * call.all_heads()) * static_cast<double>(call.queries);
  return 4.0 * rows * static_cast<double>(call.head_dim) * static_cast<double>(call.keys) <
         call.policy.dense_operations;
}

}  // namespace sparsereel::attention
