// bench_image_encoder DEVICE DTYPE IMAGES REPETITIONS: runs IMAGES pictures at a time through CLIP's ViT-H (random
// weights), as Wan 2.1's image to video uses it. Prints the median in milliseconds.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <string>
#include <vector>

#include "models/image/clip_encoder.h"
#include "models/store/weights/device.h"
#include "tests/bench/median.h"
#include "tests/bench/program.h"

namespace {

using namespace sparsereel;

models::Component random_clip() {
  models::Component component;
  component.class_name = "CLIPVisionModel";
  component.config = {{"hidden_act", "gelu"}};  // the defaults of all other fields are those of ViT-H
  component.config_file = "config of ViT-H";
  component.random_seed = 0;
  return component;
}

int run(const std::vector<std::string>& arguments) {
  const c10::InferenceMode inference;
  const auto device = models::resolve_device(arguments[0]);
  const auto dtype = models::resolve_dtype(arguments[1], device, at::kBFloat16);
  const int64_t images = std::stol(arguments[2]), repetitions = std::stol(arguments[3]);
  const auto encoder = models::load_clip_encoder(random_clip(), device, dtype);
  const int64_t side = encoder->image_size();
  const at::Tensor pixels = at::randn({images, 3, side, side}).to(device, dtype);
  const double ms = bench::median_ms([&] { encoder->forward(pixels); }, repetitions, device);
  std::printf("%s, %ld of %ld x %ld: %.2f ms\n", arguments[1].c_str(), images, side, side, ms);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 4) {
    std::fprintf(stderr, "usage: %s DEVICE DTYPE IMAGES REPETITIONS\n", argv[0]);
    return 2;
  }
  return bench::guarded([&] { return run(arguments); });
}
