// Detects weight files that are truncated while a CPU computes with their mapped weights.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// Calls work(), which computes with the weights of these roles. Throws Error naming a file that was truncated
/// meanwhile, even if work() itself threw: the truncation explains other errors and makes the result worthless. On a
/// GPU nothing is checked, because weights were checked when they were copied there.
template <typename Work>
void read_whole(const Checkpoint& checkpoint, const std::vector<std::string>& roles, c10::Device device,
                const Work& work) {
  const auto check = [&] {
    if (!device.is_cpu()) return;
    for (const std::string& role : roles) checkpoint.component(role).check_whole();
  };
  try {
    work();
  } catch (const std::exception&) {
    check();
    throw;
  }
  check();
}

}  // namespace sparsereel::models
