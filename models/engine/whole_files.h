// Guards work on weights that are mapped files on a CPU.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// Calls work(), which computes with the weights of these roles. Throws Error naming a file that was truncated
/// meanwhile: the truncation explains any other error and makes the result worthless. On a GPU nothing is checked,
/// because loading has checked the copies.
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
