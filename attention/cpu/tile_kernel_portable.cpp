// The tile kernel for every other machine: vectors of four floats, which each 64-bit processor has.
#include <cstdint>

#define SPARSEREEL_ISA portable
namespace sparsereel::attention::cpu::portable {
constexpr int64_t kLanes = 4;
constexpr int kColumns = 2;
}  // namespace sparsereel::attention::cpu::portable

#include "attention/cpu/tile_kernel_body.h"
