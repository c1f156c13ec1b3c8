// The table of GPUs.
#include "app/commands/bench/hardware.h"

#include <array>
#include <utility>

namespace sparsereel::app::bench {

std::optional<HardwareLimit> hardware_limit(std::string_view gpu) {
  // The first name that the GPU's contains counts, so a variant stands before its family.
  static constexpr std::array<std::pair<std::string_view, HardwareLimit>, 7> table{{
      {"H100 PCIe", {1513, 756}},
      {"H100 NVL", {1671, 835}},
      {"H100", {1979, 989}},
      {"H200", {1979, 989}},
      {"A100", {624, 312}},
      {"L40S", {733, 362}},
      {"RTX 4090", {660, 330}},  // 16 bits with fp16 accumulation; half of it with fp32
  }};
  for (const auto& [name, limit] : table)
    if (gpu.find(name) != std::string_view::npos) return limit;
  return std::nullopt;
}

}  // namespace sparsereel::app::bench
