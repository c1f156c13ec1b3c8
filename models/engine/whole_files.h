// Work on weights that are the files' own memory on a CPU.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {

/// work(), which computes with the weights of these roles. Throws Error naming the file where one got shorter
/// meanwhile: that explains any other error, and makes the result worthless. A GPU has copies, which loading has
/// checked.
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
