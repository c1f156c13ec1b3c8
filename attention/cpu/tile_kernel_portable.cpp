// The tile kernel for all other machines: vectors of four floats, which every 64-bit CPU has.
#include <cstdint>

#define SPARSEREEL_ISA portable
namespace sparsereel::attention::cpu::portable {
constexpr int64_t kLanes = 4;
constexpr int kColumns = 2;
}  // namespace sparsereel::attention::cpu::portable

#include "attention/cpu/tile_kernel_body.h"
