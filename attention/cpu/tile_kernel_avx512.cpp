// The tile kernel for avx512 machines; CMakeLists.txt sets the instruction set.
#include <cstdint>

#define SPARSEREEL_ISA avx512
namespace sparsereel::attention::cpu::avx512 {
constexpr int64_t kLanes = 16;
constexpr int kColumns = 4;
}  // namespace sparsereel::attention::cpu::avx512

#include "attention/cpu/tile_kernel_body.h"
