// What a GPU's tensor cores can do at most, by the vendor's data sheet. No torch.
#pragma once

#include <optional>
#include <string_view>

namespace sparsereel::app::bench {

/// Tera operations a second, dense (the data sheets' larger figures count 2:4 sparsity).
struct HardwareLimit {
  double bits8 = 0;   // int8 and fp8
  double bits16 = 0;  // fp16 and bf16
};

/// gpu: the driver's name, "NVIDIA H200". Nothing where it is not in the table.
std::optional<HardwareLimit> hardware_limit(std::string_view gpu);

}  // namespace sparsereel::app::bench
