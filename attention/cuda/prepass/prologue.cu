// Runs the prologue alone, for modes that pass q and k to another library. Rows are normalized and rotated in fp32, and
// rounded once.
#include "attention/cuda/kernels.h"
#include "attention/cuda/launch.h"
#include "attention/cuda/launched.cuh"
#include "attention/cuda/rows.cuh"

namespace sparsereel::attention::cuda {
namespace {

constexpr int kThreads = 256;
/// D / 8 lanes hold one row at a time. They handle this many rows, one after the other. The rows that a CTA handles at
/// the same time are neighbors in memory, such as the heads of a token.
constexpr int kTokens = 8;

__host__ __device__ inline bool heads_apart(const PrologueRows& p) {
  return p.norm.moments != nullptr || p.prologue.rotary_frequencies != nullptr;
}

/// Applies the prologue to rows. kSteps is RowSteps::by_part for prologues that differ by token or head, and
/// RowSteps::any for all others.
template <typename T, int D, RowSteps kSteps>
__global__ void __launch_bounds__(kThreads) prologue_kernel(const __grid_constant__ PrologueRows p) {
  constexpr int kRowLanes = D / kLaneElements, kRows = kThreads / kRowLanes;
  const int column = static_cast<int>(threadIdx.x) % kRowLanes * kLaneElements;
  const int b = static_cast<int>(blockIdx.y), first = static_cast<int>(blockIdx.x) * kRows * kTokens;
  // If heads have different weights or angles, a CTA has rows of one head.
  const bool across = p.norm.moments != nullptr, apart = heads_apart(p);
  const int rows = apart ? p.tokens : p.tokens * p.heads, heads = apart ? 1 : p.heads;
  const int own_head = static_cast<int>(blockIdx.z);
  const float* moments = across ? p.norm.moments + 2 * static_cast<int64_t>(b) * p.tokens : nullptr;
  const RowPrologue<D, kSteps> prologue(p.prologue, p.norm, moments, own_head, p.head_dim, column);
#pragma unroll 2
  for (int i = 0; i < kTokens; ++i) {
    const int row = first + i * kRows + static_cast<int>(threadIdx.x) / kRowLanes;
    const int token = min(row, rows - 1) / heads, h = own_head + min(row, rows - 1) % heads;
    const TokenPart part = prologue.load(token);
    float x[kLaneElements];
    unpack(Rows<T>(p.in, b, h, p.head_dim, column).load(token), x);
    prologue.apply(token, part, x);
    if (row >= rows || column >= p.head_dim) continue;
    T* to = static_cast<T*>(p.out.data) + b * p.out.batch_stride + token * p.out.token_stride + h * p.out.head_stride;
    store_packed(to + column, pack<T>(x));
  }
}

template <typename T, int D>
void launch(const PrologueRows& p, Stream stream) {
  constexpr int each = kThreads / (D / kLaneElements) * kTokens;
  const bool apart = heads_apart(p);
  const int rows = apart ? p.tokens : p.tokens * p.heads;
  const dim3 grid(static_cast<unsigned>((rows + each - 1) / each), static_cast<unsigned>(p.batch),
                  static_cast<unsigned>(apart ? p.heads : 1));
  const bool by_part = p.norm.text_weight != nullptr || p.prologue.rotary_frequencies != nullptr;
  start(by_part ? prologue_kernel<T, D, RowSteps::by_part> : prologue_kernel<T, D, RowSteps::any>, grid, kThreads, 0,
        stream, p);
}

template <typename T>
void launch_type(const PrologueRows& p, Stream stream) {
  if (p.head_dim <= 64) return launch<T, 64>(p, stream);
  if (p.head_dim <= 128) return launch<T, 128>(p, stream);
  launch<T, 256>(p, stream);
}

}  // namespace

void launch_prologue(const PrologueRows& p, Stream stream) {
  p.element == Element::fp16 ? launch_type<__half>(p, stream) : launch_type<__nv_bfloat16>(p, stream);
}

const char* apply_prologue(PrologueRows p, Stream stream) {
  return launched([&] {
    if (p.moments != nullptr) {
      launch_moments({p, p.prologue.norm == Prologue::Norm::layer, p.prologue.eps, p.moments}, stream);
      p.norm.moments = p.moments;
    }
    launch_prologue(p, stream);
  });
}

}  // namespace sparsereel::attention::cuda
