// The tile kernel for avx2 machines; CMakeLists.txt sets the instruction set.
#include <cstdint>

#define SPARSEREEL_ISA avx2
namespace sparsereel::attention::cpu::avx2 {
constexpr int64_t kLanes = 8;
constexpr int kColumns = 2;
}  // namespace sparsereel::attention::cpu::avx2

#include "attention/cpu/tile_kernel_body.h"
