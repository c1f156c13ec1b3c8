// bench_preview DEVICE COUNT: times COUNT previews of latents of 81 frames of 1280x720 in bf16, each from the latents
// to bytes in the host's memory. Prints one JSON object with the seconds of each, and with the seconds for which the
// thread that denoises waits.
#include <c10/core/InferenceMode.h>

#include <chrono>

#include "models/store/weights/device.h"
#include "models/vae/latent_preview.h"
#include "tests/bench/program.h"

namespace {

using namespace sparsereel;
using Clock = std::chrono::steady_clock;

nlohmann::json run(const std::vector<std::string>& arguments) {
  const c10::InferenceMode inference;
  models::start_device(arguments[0]);
  constexpr int64_t kChannels = 16, kFrames = 21, kHeight = 90, kWidth = 160;
  const std::vector<models::LinearColor> colors(kChannels, {0.1F, 0.2F, 0.3F});
  const models::LatentPreview preview({.channels = colors}, models::LatentLayout::channels_first);
  const at::Device device(arguments[0]);
  const at::Tensor latents = at::randn({1, kChannels, kFrames, kHeight, kWidth}, at::kFloat).to(device, at::kBFloat16);
  std::vector<double> whole, waiting;
  for (int i = 0; i <= std::stoi(arguments[1]); ++i) {
    models::synchronize(device);
    const auto start = Clock::now();
    const at::Tensor drawn = preview.draw(latents);
    const auto queued = Clock::now();
    const at::Tensor bytes = drawn.cpu();
    const std::chrono::duration<double> seconds = Clock::now() - start, queue_seconds = queued - start;
    if (i == 0) continue;  // the first preview also loads kernels
    whole.push_back(seconds.count());
    waiting.push_back(queue_seconds.count());
  }
  return {{"seconds", whole}, {"waiting_seconds", waiting}};
}

}  // namespace

int main(int argc, char** argv) {
  return bench::print_json({argv, static_cast<size_t>(argc)}, {"DEVICE", "COUNT"}, run);
}
