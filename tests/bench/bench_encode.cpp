// bench_encode VAE DEVICE DTYPE FRAMES HEIGHT WIDTH REPETITIONS: times a published VAE (random weights). It encodes a
// video of FRAMES x HEIGHT x WIDTH pixels untiled and in tiles, encodes its first frame, and decodes the video's
// latents untiled. Prints milliseconds and, for a GPU, peak memory. VAE is a name in published_vaes.h. DTYPE may be
// tf32.
#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/store/weights/device.h"
#include "models/vae/causal_conv3d.h"
#include "tests/bench/median.h"
#include "tests/bench/program.h"
#include "tests/bench/published_vaes.h"

namespace {

using namespace sparsereel;

constexpr double kGiB = 1 << 30;

/// Times `work` and prints a line about it. `estimate` is the VAE's estimate of the memory that the work needs, in
/// bytes; 0 if there is none.
void time_work(const std::string& name, const std::function<void()>& work, uint64_t estimate, int64_t repetitions,
               at::Device device) {
  c10::DeviceAllocator* allocator = device.is_cuda() ? c10::getDeviceAllocator(at::kCUDA) : nullptr;
  int64_t before = 0;
  if (allocator != nullptr) {
    allocator->emptyCache();
    allocator->resetPeakStats(0);
    before = allocator->getDeviceStats(0).allocated_bytes[0].current;
  }
  std::printf("%s: %.1f ms", name.c_str(), bench::median_ms(work, repetitions, device));
  if (allocator != nullptr)
    std::printf(", peak %.2f GiB",
                static_cast<double>(allocator->getDeviceStats(0).allocated_bytes[0].peak - before) / kGiB);
  if (estimate > 0) std::printf(", estimate %.2f GiB", static_cast<double>(estimate) / kGiB);
  std::printf("\n");
  std::fflush(stdout);  // shows the line at once, because the next one may take a minute
}

int run(const std::vector<std::string>& arguments) {
  const c10::InferenceMode inference;
  const auto device = models::resolve_device(arguments[1]);
  const bool tf32 = arguments[2] == "tf32";
  const auto dtype = models::resolve_dtype(tf32 ? "fp32" : arguments[2], device, at::kBFloat16);
  const int64_t frames = std::stol(arguments[3]), height = std::stol(arguments[4]), width = std::stol(arguments[5]);
  const int64_t repetitions = std::stol(arguments[6]);
  const models::Tf32Convolutions convolutions(tf32);
  at::globalContext().setAllowTF32CuBLAS(tf32);
  const auto vae =
      models::load_vae(bench::random_vae(bench::published_vae(arguments[0])), device, dtype, models::VaeParts::both);
  const at::Tensor video = (at::rand({1, 3, frames, height, width}) * 2 - 1).to(device, dtype);
  const at::Tensor picture = video.narrow(2, 0, 1);
  const at::Tensor latents = vae->encode(video, false).mean;
  time_work(
      "encode whole", [&] { vae->encode(video, false); }, vae->untiled_encode_bytes(frames, height, width), repetitions,
      device);
  time_work(
      "encode one frame", [&] { vae->encode(picture, false); }, vae->untiled_encode_bytes(1, height, width),
      repetitions, device);
  time_work(
      "encode tiled", [&] { vae->encode(video, true); }, 0, repetitions, device);
  time_work(
      "decode whole", [&] { vae->decode(latents, false); },
      vae->untiled_bytes(latents.size(2), latents.size(3), latents.size(4)), repetitions, device);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 7) {
    std::fprintf(stderr, "usage: %s VAE DEVICE DTYPE FRAMES HEIGHT WIDTH REPETITIONS\n", argv[0]);
    return 2;
  }
  return bench::guarded([&] { return run(arguments); });
}
