// Hopper's instructions as functions: barriers in shared memory, bulk copies and warpgroup matrix multiplication. See
// PTX ISA 9.0 for the formats.
#pragma once

#include <cstdint>

namespace sparsereel::attention::cuda::ptx {

/// Initializes a barrier in shared memory (mbarrier). It completes a phase when `count` threads have arrived and the
/// bytes that they announced have been copied.
__device__ inline void barrier_init(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}

__device__ inline void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;");
}

__device__ inline void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ inline void barrier_arrive_expecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ inline void barrier_wait(uint32_t barrier, int phase) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::
          "r"(barrier),
      "r"(phase)
      : "memory");
}

/// Returns threadIdx.x, and reads it anew in each call. Otherwise the compiler would compute values that depend on it
/// only once, and keep or spill them over all tiles.
__device__ inline int thread() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  __builtin_assume(index >= 0 && index < 1024);
  return index;
}

/// Copies bytes (a multiple of 16) from global memory and reports them to `barrier`.
__device__ inline void bulk_copy(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

/// Orders this thread's writes to shared memory before later bulk copies to the same place.
__device__ inline void bulk_copy_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// Waits at a NamedBarrier for `threads` threads of a CTA.
__device__ inline void named_wait(int id, int threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ inline void matrix_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void matrix_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most kPending groups of this warpgroup's matrix instructions are unfinished.
template <int kPending = 0>
__device__ inline void matrix_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps the compiler from moving work on an accumulator across this point.
__device__ inline void hold(int& x) {
  asm volatile("" : "+r"(x)::"memory");
}
__device__ inline void hold(uint32_t& x) {
  asm volatile("" : "+r"(x)::"memory");
}
__device__ inline void hold(float& x) {
  asm volatile("" : "+f"(x)::"memory");
}

/// Sets x to 0 in the register that it already has. With an assignment the compiler takes another register, and then
/// serializes the matrix instructions.
__device__ inline void clear(float& x) {
  asm volatile("mov.f32 %0, 0f00000000;" : "+f"(x));
}

/// Returns the descriptor of a K-major operand in shared memory. stride: bytes between groups of eight rows. swizzle: 1
/// for 128 bytes, 2 for 64 bytes.
__device__ inline uint64_t descriptor(uint32_t address, int stride, int swizzle) {
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | uint64_t{1} << 16 |
         static_cast<uint64_t>(stride >> 4) << 32 | static_cast<uint64_t>(swizzle) << 62;
}

#define SPARSEREEL_4(f, i) f(i), f((i) + 1), f((i) + 2), f((i) + 3)
#define SPARSEREEL_16(f, i) \
  SPARSEREEL_4(f, i), SPARSEREEL_4(f, (i) + 4), SPARSEREEL_4(f, (i) + 8), SPARSEREEL_4(f, (i) + 12)
#define SPARSEREEL_32(f, i) SPARSEREEL_16(f, i), SPARSEREEL_16(f, (i) + 16)
#define SPARSEREEL_INT(i) "+r"(d[i])
#define SPARSEREEL_FLOAT(i) "+f"(d[i])
#define SPARSEREEL_NAMES_32                                                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SPARSEREEL_NAMES_36                                                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35"
#define SPARSEREEL_NAMES_52                                                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, " \
  "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51"
#define SPARSEREEL_NAMES_64                                                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, " \
  "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
  "%62, %63"
#define SPARSEREEL_NAMES_68                                                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, " \
  "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
  "%62, %63, %64, %65, %66, %67"

/// Computes d (+)= a b for 64 rows and 32 elements of the K dimension, with a in registers and b in shared memory. int8
/// has 64 or 128 columns (Q.K); e4m3 has 72, 104 or 136 (P.V with the rows of ones).
__device__ inline void multiply(int (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 "
      "{" SPARSEREEL_NAMES_32 "}, {%32, %33, %34, %35}, %36, add;\n}"
      : SPARSEREEL_32(SPARSEREEL_INT, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}

__device__ inline void multiply(int (&d)[64], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 "
      "{" SPARSEREEL_NAMES_64 "}, {%64, %65, %66, %67}, %68, add;\n}"
      : SPARSEREEL_32(SPARSEREEL_INT, 0), SPARSEREEL_32(SPARSEREEL_INT, 32)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}

__device__ inline void multiply(float (&d)[36], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %41, 0;\nwgmma.mma_async.sync.aligned.m64n72k32.f32.e4m3.e4m3 "
      "{" SPARSEREEL_NAMES_36 "}, {%36, %37, %38, %39}, %40, add, 1, 1;\n}"
      : SPARSEREEL_32(SPARSEREEL_FLOAT, 0), SPARSEREEL_4(SPARSEREEL_FLOAT, 32)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}

__device__ inline void multiply(float (&d)[52], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %57, 0;\nwgmma.mma_async.sync.aligned.m64n104k32.f32.e4m3.e4m3 "
      "{" SPARSEREEL_NAMES_52 "}, {%52, %53, %54, %55}, %56, add, 1, 1;\n}"
      : SPARSEREEL_32(SPARSEREEL_FLOAT, 0), SPARSEREEL_16(SPARSEREEL_FLOAT, 32), SPARSEREEL_4(SPARSEREEL_FLOAT, 48)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}

__device__ inline void multiply(float (&d)[68], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %73, 0;\nwgmma.mma_async.sync.aligned.m64n136k32.f32.e4m3.e4m3 "
      "{" SPARSEREEL_NAMES_68 "}, {%68, %69, %70, %71}, %72, add, 1, 1;\n}"
      : SPARSEREEL_32(SPARSEREEL_FLOAT, 0), SPARSEREEL_32(SPARSEREEL_FLOAT, 32), SPARSEREEL_4(SPARSEREEL_FLOAT, 64)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}
#undef SPARSEREEL_4
#undef SPARSEREEL_16
#undef SPARSEREEL_32
#undef SPARSEREEL_INT
#undef SPARSEREEL_FLOAT
#undef SPARSEREEL_NAMES_32
#undef SPARSEREEL_NAMES_36
#undef SPARSEREEL_NAMES_52
#undef SPARSEREEL_NAMES_64
#undef SPARSEREEL_NAMES_68

/// Returns a word whose 32 bits all equal the sign bit of byte 0 or 1. __byte_perm() would ignore the bits of the
/// selector that select signs.
__device__ inline uint32_t sign_of_byte(uint32_t x, int byte) {
  uint32_t signs;
  if (byte == 0) {
    asm("prmt.b32 %0, %1, 0, 0x8888;" : "=r"(signs) : "r"(x));
  } else {
    asm("prmt.b32 %0, %1, 0, 0x9999;" : "=r"(signs) : "r"(x));
  }
  return signs;
}

}  // namespace sparsereel::attention::cuda::ptx
