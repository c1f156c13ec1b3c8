// bench_decode DTYPE CUDNN_BENCHMARK REPETITIONS: the VAE decode of CogVideoX (49 x 480 x 720, random weights) on a
// GPU, whole and in tiles, and the pieces of the whole one: milliseconds, TFLOPS and GB/s. CUDNN_BENCHMARK 1 lets cuDNN
// try its algorithms instead of guessing; the first decode then shows what that costs.
#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/InferenceMode.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "app/measure/timing.h"
#include "models/components.h"
#include "models/device.h"
#include "models/vae/causal_conv3d.h"
#include "models/vae/spatial_norm.h"
#include "tests/bench/program.h"

namespace {

using namespace sparsereel;

constexpr double kBatches = 49.0 / 8;  // a decode runs its pieces on 2 latent frames at a time

/// The published VAE's names and shapes with random numbers in them.
class RandomVae {
 public:
  explicit RandomVae(at::ScalarType dtype) {
    const auto names = models::read_json(std::string(SPARSEREEL_SOURCE_DIR) + "/tests/parity/data/vae_names.json");
    std::vector<models::TensorView> tensors;
    int64_t largest = 0;
    for (const auto& [name, shape] : names.items()) {
      int64_t count = 1;
      for (const int64_t size : shape.get<std::vector<int64_t>>()) count *= size;
      largest = std::max(largest, count);
    }
    const at::Tensor numbers = (at::randn({largest}) * 0.02).to(dtype);
    const auto stored = dtype == at::kHalf ? models::Dtype::f16 : models::Dtype::bf16;
    for (const auto& [name, json] : names.items()) {
      const auto shape = json.get<std::vector<int64_t>>();
      int64_t count = 1;
      for (const int64_t size : shape) count *= size;
      tensors.push_back({name,
                         stored,
                         shape,
                         {static_cast<const std::byte*>(numbers.const_data_ptr()), static_cast<size_t>(2 * count)}});
    }
    models::write_safetensors(path_, tensors);
    component_.class_name = "AutoencoderKLCogVideoX";
    component_.config = {{"_class_name", component_.class_name}};
    component_.config_file = "vae/config.json";
    component_.files = {std::make_shared<models::SafetensorsFile>(path_)};
    for (const models::TensorEntry& entry : component_.files[0]->header().entries)
      component_.tensors[entry.name] = {0, &entry};
  }
  ~RandomVae() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  RandomVae(const RandomVae&) = delete;
  RandomVae& operator=(const RandomVae&) = delete;

  const models::Component& component() const { return component_; }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("bench_decode_" + std::to_string(::getpid()) + ".safetensors");
  models::Component component_;
};

double median_ms(const std::function<void()>& call, int64_t repetitions, const at::TensorOptions& options) {
  app::Timer timer(options.device());
  std::vector<double> times;
  for (int64_t i = 0; i <= repetitions; ++i) {
    timer.time(call);
    const double ms = timer.finish()[0];
    if (i > 0) times.push_back(ms);
  }
  return app::spread(times).median;
}

void time_decodes(const RandomVae& random, const at::TensorOptions& options, int64_t repetitions) {
  const auto vae = models::load_vae(random.component(), options.device(), options.dtype().toScalarType());
  const at::Tensor latents = at::randn({1, 16, 13, 60, 90}, options);
  auto* allocator = c10::getDeviceAllocator(at::kCUDA);
  for (const bool tiled : {false, true}) {
    allocator->emptyCache();
    allocator->resetPeakStats(0);
    const auto decode = [&] { vae->decode(latents, tiled); };
    app::Timer timer(options.device());
    timer.time(decode);
    const double first = timer.finish()[0];
    const double rest = median_ms(decode, repetitions, options);
    const auto stats = allocator->getDeviceStats(0);
    std::printf("decode %s: %.0f ms, the first one %.0f ms, peak %.1f GiB (%.1f reserved)\n", tiled ? "tiled" : "whole",
                rest, first, static_cast<double>(stats.allocated_bytes[0].peak) / (1 << 30),
                static_cast<double>(stats.reserved_bytes[0].peak) / (1 << 30));
  }
  allocator->emptyCache();
}

/// One kind of work of one stage: times it on eight frames' share and prints its row.
class Pieces {
 public:
  Pieces(const at::TensorOptions& options, int64_t repetitions) : options_(options), repetitions_(repetitions) {
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

  /// What could stand in for a conv3d, for comparison: other memory order; the three frames as channels of a conv2d.
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
    const double ms = median_ms(call, repetitions_, options_);
    const double decode = ms * static_cast<double>(calls) * kBatches;
    sum_ += decode;
    std::printf("| %s %ld -> %ld, %ld x %ld x %ld | %ld | %.3f | %.0f | %.0f | %.0f |\n", name, in, out, frames, height,
                width, calls, ms, flops / ms / 1e9, bytes / ms / 1e6, decode);
  }

  at::TensorOptions options_;
  int64_t repetitions_;
  double sum_ = 0;
};

void time_pieces(const at::TensorOptions& options, int64_t repetitions) {
  Pieces pieces(options, repetitions);
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

int run(const std::vector<std::string>& arguments) {
  const c10::InferenceMode inference;
  const auto device = models::resolve_device("cuda:0");
  const auto dtype = models::resolve_dtype(arguments[0], device, at::kBFloat16);
  const int64_t repetitions = std::stol(arguments[2]);
  at::globalContext().setBenchmarkCuDNN(arguments[1] == "1");
  const auto options = at::TensorOptions().device(device).dtype(dtype);
  time_decodes(RandomVae(dtype), options, repetitions);
  time_pieces(options, repetitions);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 3) {
    std::fprintf(stderr, "usage: %s DTYPE CUDNN_BENCHMARK REPETITIONS\n", argv[0]);
    return 2;
  }
  return bench::guarded([&] { return run(arguments); });
}
