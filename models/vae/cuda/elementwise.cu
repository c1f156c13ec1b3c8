// The kernels that run between a decoder's convolutions. Each takes one pass over the activations.
#include "attention/cuda/launched.cuh"
#include "attention/cuda/packed.cuh"
#include "models/vae/cuda/launch.h"
#include "models/vae/cuda/of_type.cuh"

namespace sparsereel::models::cuda {
namespace {

using attention::cuda::kLaneElements;
using attention::cuda::load_packed;
using attention::cuda::pack;
using attention::cuda::Packed;
using attention::cuda::store_packed;
using attention::cuda::unpack;

constexpr int kThreads = 256;

/// Returns this thread's index among `count` pieces of work, or -1 past the end.
__device__ inline int64_t piece_of(int64_t count) {
  const int64_t piece = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  return piece < count ? piece : -1;
}

unsigned grid_of(int64_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

/// Loads eight values of a vector, or zeros if it is null.
template <typename T>
__device__ void load_or_zero(const void* vector, int channel, float (&x)[kLaneElements]) {
  if (vector != nullptr) return unpack(load_packed(static_cast<const T*>(vector) + channel), x);
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) x[i] = 0;
}

__device__ inline float silu(float x) {
  return __fdividef(x, 1.0F + __expf(-x));
}

/// Does what latent_frame_of() (vae/norm_layers.h) does.
__device__ inline int latent_frame(const ModulateSilu& p, int t) {
  if (p.frames == 1) return 0;
  if (p.frames % 2 == 0) return t * p.latent_frames / p.frames;
  return t == 0 ? 0 : 1 + (t - 1) * (p.latent_frames - 1) / (p.frames - 1);
}

/// Computes ModulateSilu. A thread computes eight channels of the neighboring pixels of a row that belong to one latent
/// pixel.
template <typename T>
__global__ void __launch_bounds__(kThreads) modulate_kernel(const __grid_constant__ ModulateSilu p) {
  const int columns = p.channels / kLaneElements, repeat = p.width / p.latent_width;
  const int64_t piece = piece_of(static_cast<int64_t>(p.frames) * p.height * p.latent_width * columns);
  if (piece < 0) return;
  const int channel = static_cast<int>(piece % columns) * kLaneElements;
  const int64_t group = piece / columns;  // (frame, row, latent column)
  const int latent_x = static_cast<int>(group % p.latent_width);
  const int64_t row = group / p.latent_width;
  const int latent_y = static_cast<int>(row % p.height) / (p.height / p.latent_height);
  const int latent_t = latent_frame(p, static_cast<int>(row / p.height));
  const int64_t latent =
      ((static_cast<int64_t>(latent_t) * p.latent_height + latent_y) * p.latent_width + latent_x) * p.channels +
      channel;
  float factor[kLaneElements], term[kLaneElements], added[kLaneElements];
  unpack(load_packed(static_cast<const T*>(p.y) + latent), factor);
  unpack(load_packed(static_cast<const T*>(p.b) + latent), added);
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    term[i] = p.shift[channel + i] * factor[i] + added[i];
    factor[i] *= p.scale[channel + i];
  }
  const int64_t first = group * repeat * p.channels + channel;
  const T* x = static_cast<const T*>(p.x) + first;
  T* out = static_cast<T*>(p.out) + first;
#pragma unroll 4
  for (int i = 0; i < repeat; ++i) {
    float value[kLaneElements];
    unpack(load_packed(x + i * p.channels), value);
#pragma unroll
    for (int j = 0; j < kLaneElements; ++j) {
      const float v = value[j] * factor[j] + term[j];
      value[j] = silu(v);
    }
    store_packed(out + i * p.channels, pack<T>(value));
  }
}

// A thread loads kPixelsAtOnce pixels together, and does so kPixelRounds times.
constexpr int kPixelsAtOnce = 4, kPixelRounds = 2;

/// Computes ScaleSilu. A thread computes eight channels of a few pixels of a frame. The threads of a block have
/// neighboring pixels. The grid is (pixels, frames).
template <typename T>
__global__ void __launch_bounds__(kThreads) scale_silu_kernel(const __grid_constant__ ScaleSilu p) {
  const int columns = p.channels / kLaneElements, at_once = kThreads / columns;
  const int place = static_cast<int>(threadIdx.x) / columns, frame = static_cast<int>(blockIdx.y);
  if (place >= at_once) return;
  const int channel = static_cast<int>(threadIdx.x) % columns * kLaneElements, pixels = p.height * p.width;
  const int64_t at_scale = static_cast<int64_t>(frame) * p.channels + channel;
  float scale[kLaneElements], shift[kLaneElements];
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    scale[i] = __ldg(p.scale + at_scale + i);
    shift[i] = __ldg(p.shift + at_scale + i);
  }
  const T* x = static_cast<const T*>(p.x) + static_cast<int64_t>(frame) * pixels * p.channels + channel;
  T* out = static_cast<T*>(p.out) + frame * p.out_frame + channel;
  int pixel = static_cast<int>(blockIdx.x) * at_once * kPixelsAtOnce * kPixelRounds + place;
  for (int round = 0; round < kPixelRounds; ++round, pixel += kPixelsAtOnce * at_once) {
    Packed<T> packed[kPixelsAtOnce];
#pragma unroll
    for (int i = 0; i < kPixelsAtOnce; ++i)
      packed[i] = load_packed(x + static_cast<int64_t>(min(pixel + i * at_once, pixels - 1)) * p.channels);
#pragma unroll
    for (int i = 0; i < kPixelsAtOnce; ++i) {
      const int at = pixel + i * at_once;
      if (at >= pixels) return;
      float value[kLaneElements];
      unpack(packed[i], value);
#pragma unroll
      for (int j = 0; j < kLaneElements; ++j) value[j] = silu(value[j] * scale[j] + shift[j]);
      store_packed(out + at / p.width * p.out_row + at % p.width * p.channels, pack<T>(value));
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) residual_kernel(const __grid_constant__ AddResidual p) {
  const int64_t piece = piece_of(p.pixels * (p.channels / kLaneElements));
  if (piece < 0) return;
  float x[kLaneElements], residual[kLaneElements], bias[kLaneElements];
  T* to = static_cast<T*>(p.x) + piece * kLaneElements;
  unpack(load_packed(to), x);
  unpack(load_packed(static_cast<const T*>(p.residual) + piece * kLaneElements), residual);
  load_or_zero<T>(p.bias, static_cast<int>(piece % (p.channels / kLaneElements)) * kLaneElements, bias);
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) x[i] += residual[i] + bias[i];
  store_packed(to, pack<T>(x));
}

/// Computes Repeat. A thread reads eight channels of a pixel of x, and writes them to all their places in out.
template <typename T>
__global__ void __launch_bounds__(kThreads) repeat_kernel(const __grid_constant__ Repeat p) {
  const int columns = p.channels / kLaneElements;
  const int64_t piece = piece_of(static_cast<int64_t>(p.frames) * p.height * p.width * columns);
  if (piece < 0) return;
  const int channel = static_cast<int>(piece % columns) * kLaneElements;
  const int64_t pixel = piece / columns, row = pixel / p.width;
  const int x = static_cast<int>(pixel % p.width), y = static_cast<int>(row % p.height);
  const int t = static_cast<int>(row / p.height);
  const bool alone = !p.twice || (p.frames % 2 == 1 && t == 0);
  const int first = !p.twice ? t : p.frames % 2 == 0 ? 2 * t : max(2 * t - 1, 0);
  Packed<T> value = load_packed(static_cast<const T*>(p.x) + piece * kLaneElements);
  if (p.bias != nullptr) {
    float sum[kLaneElements], bias[kLaneElements];
    unpack(value, sum);
    load_or_zero<T>(p.bias, channel, bias);
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) sum[i] += bias[i];
    value = pack<T>(sum);
  }
  const int64_t width = static_cast<int64_t>(p.space) * p.width, height = static_cast<int64_t>(p.space) * p.height;
  for (int frame = first; frame < first + (alone ? 1 : 2); ++frame) {
    for (int i = 0; i < p.space * p.space; ++i) {
      const int64_t to_y = p.space * y + i / p.space, to_x = p.space * x + i % p.space;
      store_packed(static_cast<T*>(p.out) + ((frame * height + to_y) * width + to_x) * p.channels + channel, value);
    }
  }
}

template <typename Parameters>
const char* launch(void (*kernel)(Parameters), const Parameters& p, int64_t pieces, Stream stream) {
  if (pieces == 0) return nullptr;
  return attention::cuda::launched([&] { attention::cuda::start(kernel, grid_of(pieces), kThreads, 0, stream, p); });
}

}  // namespace

const char* modulate_silu(const ModulateSilu& p, Stream stream) {
  const int64_t pieces = static_cast<int64_t>(p.frames) * p.height * p.latent_width * (p.channels / kLaneElements);
  return launch(of_type(p.element, modulate_kernel<float>, modulate_kernel<__half>, modulate_kernel<__nv_bfloat16>), p,
                pieces, stream);
}

const char* scale_silu(const ScaleSilu& p, Stream stream) {
  if (p.frames == 0) return nullptr;
  const int pixels = kThreads / (p.channels / kLaneElements) * kPixelsAtOnce * kPixelRounds;  // pixels per thread block
  const dim3 grid(static_cast<unsigned>((p.height * p.width + pixels - 1) / pixels), static_cast<unsigned>(p.frames));
  return attention::cuda::launched([&] {
    attention::cuda::start(
        of_type(p.element, scale_silu_kernel<float>, scale_silu_kernel<__half>, scale_silu_kernel<__nv_bfloat16>), grid,
        kThreads, 0, stream, p);
  });
}

const char* add_residual(const AddResidual& p, Stream stream) {
  return launch(of_type(p.element, residual_kernel<float>, residual_kernel<__half>, residual_kernel<__nv_bfloat16>), p,
                p.pixels * (p.channels / kLaneElements), stream);
}

const char* repeat(const Repeat& p, Stream stream) {
  const int64_t pieces = static_cast<int64_t>(p.frames) * p.height * p.width * (p.channels / kLaneElements);
  return launch(of_type(p.element, repeat_kernel<float>, repeat_kernel<__half>, repeat_kernel<__nv_bfloat16>), p,
                pieces, stream);
}

}  // namespace sparsereel::models::cuda
