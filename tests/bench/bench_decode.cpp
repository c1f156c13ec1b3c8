// bench_decode VAE DTYPE CUDNN_BENCHMARK REPETITIONS: times how a published VAE (random weights) decodes a video of a
// typical size on a GPU, untiled and in tiles. Also times the pieces of the untiled decode one by one. Prints
// milliseconds, TFLOPS and GB/s. VAE is a name in published_vaes.h. With CUDNN_BENCHMARK 1 cuDNN tries its algorithms
// instead of guessing, and the first decode shows the cost of these trials.
#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <string>
#include <vector>

#include "app/lab/measure/timing.h"
#include "models/engine/components.h"
#include "models/store/weights/device.h"
#include "models/vae/causal_conv3d.h"
#include "models/vae/rms_norm.h"
#include "models/vae/spatial_norm.h"
#include "tests/bench/median.h"
#include "tests/bench/program.h"
#include "tests/bench/published_vaes.h"

namespace {

using namespace sparsereel;

void time_decodes(const models::Component& component, at::IntArrayRef latents_shape, const at::TensorOptions& options,
                  int64_t repetitions) {
  const auto vae = models::load_vae(component, options.device(), options.dtype().toScalarType());
  const at::Tensor latents = at::randn(latents_shape, options);
  auto* allocator = c10::getDeviceAllocator(at::kCUDA);
  for (const bool tiled : {false, true}) {
    allocator->emptyCache();
    allocator->resetPeakStats(0);
    const auto decode = [&] { vae->decode(latents, tiled); };
    app::Timer timer(options.device());
    timer.time(decode);
    const double first = timer.finish()[0];
    const double rest = bench::median_ms(decode, repetitions, options.device());
    const auto stats = allocator->getDeviceStats(0);
    std::printf("decode %s: %.0f ms, the first one %.0f ms, peak %.1f GiB (%.1f reserved)\n", tiled ? "tiled" : "whole",
                rest, first, static_cast<double>(stats.allocated_bytes[0].peak) / (1 << 30),
                static_cast<double>(stats.reserved_bytes[0].peak) / (1 << 30));
  }
  allocator->emptyCache();
}

/// Times operations of the decoder on one batch of frames, and prints a row for each operation. A video has `batches`
/// batches of frames.
class Pieces {
 public:
  Pieces(const at::TensorOptions& options, int64_t repetitions, double batches)
      : options_(options), repetitions_(repetitions), batches_(batches) {
    std::printf("| piece | calls a batch | ms | TFLOPS | GB/s | ms a decode |\n|---|---|---|---|---|---|\n");
  }

  void conv3d(int64_t in, int64_t out, int64_t frames, int64_t height, int64_t width, int64_t calls) {
    const at::Tensor weight = random({out, in, 3, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast3d);
    const at::Tensor x = random({2 + frames, height, width, in}).permute({3, 0, 1, 2}).unsqueeze(0);
    convolution("conv3d", weight, x, frames, calls);
  }

  void conv2d(int64_t in, int64_t out, int64_t frames, int64_t height, int64_t width, int64_t calls) {
    const at::Tensor weight = random({out, in, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
    convolution("conv2d", weight, random({frames, height, width, in}).permute({0, 3, 1, 2}), frames, calls);
  }

  /// Times two possible replacements of a conv3d: another memory layout, and a conv2d with the three frames as
  /// channels.
  void alternatives(int64_t in, int64_t out, int64_t frames, int64_t height, int64_t width) {
    convolution("conv3d, channels first", random({out, in, 3, 3, 3}), random({1, in, 2 + frames, height, width}),
                frames, 0);
    conv2d(3 * in, out, frames, height, width, 0);
  }

  void norm(int64_t channels, int64_t frames, int64_t height, int64_t width, int64_t calls) {
    const models::SpatialNorm norm{.norm = {random({channels}), random({channels})},
                                   .conv_y = {random({channels, 16}), random({channels})},
                                   .conv_b = {random({channels, 16}), random({channels})},
                                   .groups = 32};
    const at::Tensor x = random({frames, height, width, channels}), z = random({2, 60, 90, 16});
    const at::Tensor out = at::empty_like(x);
    row("norm + silu", channels, channels, frames, height, width, calls, 0, 6.0 * static_cast<double>(x.numel()),
        [&] { models::spatial_norm_silu(norm, x, z, out); });
  }

  void rms_norm(int64_t channels, int64_t frames, int64_t height, int64_t width, int64_t calls) {
    const at::Tensor x = random({frames, height, width, channels}), out = at::empty_like(x), gamma = random({channels});
    row("rms norm + silu", channels, channels, frames, height, width, calls, 0, 4.0 * static_cast<double>(x.numel()),
        [&] { models::rms_norm_silu(x, gamma, out); });
  }

  void copy(int64_t channels, int64_t frames, int64_t height, int64_t width) {
    const at::Tensor x = random({frames, height, width, channels}), out = at::empty_like(x);
    row("copy", channels, channels, frames, height, width, 0, 0, 4.0 * static_cast<double>(x.numel()),
        [&] { out.copy_(x); });
  }

  void print_sum() const { std::printf("sum of these pieces: %.0f ms a decode\n", sum_); }

 private:
  at::Tensor random(at::IntArrayRef shape) const {
    return at::randn(shape, options_.dtype(at::kFloat)).to(options_) / 8;
  }

  void convolution(const char* name, const at::Tensor& weight, const at::Tensor& x, int64_t frames, int64_t calls) {
    const int64_t out = weight.size(0), in = weight.size(1), height = x.size(-2), width = x.size(-1);
    const std::vector<int64_t> planar = {1, 1}, causal = {0, 1, 1};
    const double flops = 2.0 * static_cast<double>(weight.numel() * frames * height * width);
    row(name, in, out, frames, height, width, calls, flops, 0,
        [&] { models::convolve(x, weight, {}, weight.dim() == 5 ? causal : planar); });
  }

  void row(const char* name, int64_t in, int64_t out, int64_t frames, int64_t height, int64_t width, int64_t calls,
           double flops, double bytes, const std::function<void()>& call) {
    const double ms = bench::median_ms(call, repetitions_, options_.device());
    const double decode = ms * static_cast<double>(calls) * batches_;
    sum_ += decode;
    std::printf("| %s %ld -> %ld, %ld x %ld x %ld | %ld | %.3f | %.0f | %.0f | %.0f |\n", name, in, out, frames, height,
                width, calls, ms, flops / ms / 1e9, bytes / ms / 1e6, decode);
  }

  at::TensorOptions options_;
  int64_t repetitions_;
  double batches_;
  double sum_ = 0;
};

void cogvideox_pieces(Pieces& pieces) {
  pieces.conv3d(512, 512, 2, 60, 90, 12);
  pieces.conv2d(512, 512, 2, 120, 180, 1);
  pieces.conv3d(512, 256, 4, 120, 180, 1);
  pieces.conv3d(256, 256, 4, 120, 180, 7);
  pieces.conv2d(256, 256, 4, 240, 360, 1);
  pieces.conv3d(256, 256, 8, 240, 360, 8);
  pieces.alternatives(256, 256, 8, 240, 360);
  pieces.conv2d(256, 256, 8, 480, 720, 1);
  pieces.conv3d(256, 128, 8, 480, 720, 1);
  pieces.conv3d(128, 128, 8, 480, 720, 7);
  pieces.alternatives(128, 128, 8, 480, 720);
  pieces.conv3d(128, 3, 8, 480, 720, 0);
  pieces.conv3d(128, 8, 8, 480, 720, 1);
  pieces.copy(128, 8, 480, 720);
  pieces.norm(512, 2, 60, 90, 12);
  pieces.norm(256, 4, 120, 180, 8);
  pieces.norm(256, 8, 240, 360, 8);
  pieces.norm(256, 8, 480, 720, 1);
  pieces.norm(128, 8, 480, 720, 8);
  pieces.print_sum();
}

void wan_pieces(Pieces& pieces) {
  pieces.conv3d(384, 384, 1, 60, 104, 10);
  pieces.conv2d(384, 192, 2, 120, 208, 1);
  pieces.conv3d(192, 384, 2, 120, 208, 1);
  pieces.conv3d(384, 384, 2, 120, 208, 5);
  pieces.conv2d(384, 192, 4, 240, 416, 1);
  pieces.conv3d(192, 192, 4, 240, 416, 6);
  pieces.alternatives(192, 192, 4, 240, 416);
  pieces.conv2d(192, 96, 4, 480, 832, 1);
  pieces.conv3d(96, 96, 4, 480, 832, 6);
  pieces.alternatives(96, 96, 4, 480, 832);
  pieces.conv3d(96, 8, 4, 480, 832, 1);
  pieces.copy(96, 4, 480, 832);
  pieces.rms_norm(384, 1, 60, 104, 10);
  pieces.rms_norm(384, 2, 120, 208, 6);
  pieces.rms_norm(192, 4, 240, 416, 6);
  pieces.rms_norm(96, 4, 480, 832, 7);
  pieces.print_sum();
}

int run(const std::vector<std::string>& arguments) {
  const c10::InferenceMode inference;
  const bench::PublishedVae& one = bench::published_vae(arguments[0]);
  const auto device = models::resolve_device("cuda:0");
  const auto dtype = models::resolve_dtype(arguments[1], device, at::kBFloat16);
  const int64_t repetitions = std::stol(arguments[3]);
  at::globalContext().setBenchmarkCuDNN(arguments[2] == "1");
  const auto options = at::TensorOptions().device(device).dtype(dtype);
  time_decodes(bench::random_vae(one), one.latents, options, repetitions);
  if (one.name == "cogvideox") {
    Pieces pieces(options, repetitions, 49.0 / 8);
    cogvideox_pieces(pieces);
  } else if (one.name == "wan-2.1") {
    Pieces pieces(options, repetitions, 81.0 / 4);
    wan_pieces(pieces);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 4) {
    std::fprintf(stderr, "usage: %s VAE DTYPE CUDNN_BENCHMARK REPETITIONS\n", argv[0]);
    return 2;
  }
  return bench::guarded([&] { return run(arguments); });
}
