// Constants of the 8-bit formats. They are not in quantize.h, because some sources must not include inline functions
// (see tile_kernel_body.h).
#pragma once

namespace sparsereel::attention::cpu {

constexpr double kInt8Max = 127;
constexpr double kInt8MinScale = 1e-7;              // added to max|x| / 127, so that a row of zeros has a valid scale
constexpr double kLeastBalanced = 1.0 / (1 << 20);  // see balance_channels()
constexpr float kLeastInt8Value = 1e-30F;           // if no |v| of a channel is above this, int8 stores zeros
constexpr float kUint8Max = 255;
constexpr float kUint8MaxLog2 = 7.994353437F;  // log2(255)
constexpr double kE4m3Max = 448;
constexpr double kE4m3MaxLog2 = 8.807354922057604;  // log2(448)

}  // namespace sparsereel::attention::cpu
