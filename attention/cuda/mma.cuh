// One function for each PTX instruction of sm_80 and sm_89 that the kernels with mma.sync use. The Hopper kernel uses
// some of them too.
// K is the dimension over which a matrix product sums. A lane holds these fragments, with g = lane / 4 and t = lane % 4
// (PTX ISA, "Matrix fragments for mma"):
// - A, 16 rows: registers 0 to 3 hold (row g, first half of K), (row g + 8, first half), (row g, second half), (row g +
// 8, second half).
// - B, 8 columns: registers 0 and 1 hold (column g, first half of K) and (column g, second half).
// - In A and B, a register holds 4 bytes, or 2 fp16 or bf16 values, along K: the t-th group of that half of K.
// - C: (row g, columns 2 t and 2 t + 1), then (row g + 8, the same columns).
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace sparsereel::attention::cuda {

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Starts a copy of 16 bytes to shared memory. The copy bypasses L1.
__device__ inline void copy_async(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/// Makes one group of the copies that were started since the last call.
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most kPending groups of this thread's copies are unfinished.
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Loads four matrices of 8 rows of 16 bytes each. Lane l passes the address of row l % 8 of matrix l / 8. x[i]
/// receives bytes 4 t to 4 t + 3 of row g of matrix i.
__device__ inline void load_matrices(uint32_t (&x)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}

/// Loads four 8 x 8 matrices of 16-bit values and transposes each: x[i] holds rows 2 t and 2 t + 1 of column g.
__device__ inline void load_matrices_transposed(uint32_t (&x)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}

/// Computes c += a b, with K = 32 int8 values.
__device__ inline void multiply_int8(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Computes c += a b, with K = 16 fp16 values.
__device__ inline void multiply_half(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Computes c += a b, with K = 16 bf16 values.
__device__ inline void multiply_bfloat16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Computes c = start + a b, with K = 32 values: uint8 in a, int8 in b.
__device__ inline void multiply_weights(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                        const int32_t (&start)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, "
      "%13};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start[0]), "r"(start[1]), "r"(start[2]),
        "r"(start[3]));
}

/// Packs four numbers as e4m3, a in the lowest byte (sm_89 and newer).
__device__ inline uint32_t pack_e4m3(float a, float b, float c, float d) {
  uint16_t low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  return low | static_cast<uint32_t>(high) << 16;
}

/// The numbers of the barriers that threads of a CTA use. Each group of 64 query rows votes at a barrier of its own:
/// kVotes + the group's index.
enum NamedBarrier : int { kWholeCta /* __syncthreads() */, kVotes };

/// Returns true if `flag` is true in any of the `threads` threads that meet at barrier `id`, a NamedBarrier.
__device__ inline bool any_of_group(int id, int threads, bool flag) {
  int any;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.s32 p, %3, 0;\n"
      "barrier.cta.red.or.pred q, %1, %2, p;\n"
      "selp.s32 %0, 1, 0, q;\n"
      "}\n"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"(static_cast<int>(flag))
      : "memory");
  return any != 0;
}

}  // namespace sparsereel::attention::cuda
