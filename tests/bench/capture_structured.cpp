// capture_structured FRAMES HEIGHT WIDTH HEADS HEAD_DIM OUT.safetensors: writes q, k and v of one call on a grid of
// tokens in the file format of captured.h. The data resemble those of a trained video model, so that token orders can
// be compared at the size of any model. Heads are independent; the format is fp16, the seed 42. p = (t, y, x) is the
// position of a token in the grid:
//   q = smooth + a F(p) + mean_q            mean_q  ~ 0.5 N(0, 1) for each channel
//   k = smooth + a F(p) + mean_k            mean_k  ~ 2 N(0, 1) for each channel
//   v = smooth + mean_v                     mean_v  ~ 0.5 N(0, 1) for each channel
// smooth has variance 1. Half of it is common to the 2 x 4 x 4 tokens of a cell; each head shifts the cells at random.
// F(p) has length 1. It is the cos and sin of the angles w t, w y and w x, a third of the channels for each axis. The
// periods 2 pi / w are spaced logarithmically from 4 tokens to 4 times the length of the axis. F(p) . F(r) falls with
// the distance along each axis. At p = r, the terms a F raise the logit by 4 (a diffuse head) to 16 (a local head).
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/bench/program.h"
#include "tests/support/capture_file.h"

namespace {

using namespace sparsereel;

/// Returns `smooth` as [frames, height, width, head_dim] for one head.
at::Tensor smooth_tokens(const std::array<int64_t, 3>& size, int64_t head_dim) {
  constexpr std::array<int64_t, 3> kCell{2, 4, 4};
  std::array<int64_t, 3> cells{};
  for (size_t i = 0; i < 3; ++i) cells[i] = size[i] / kCell[i] + 2;
  at::Tensor shared = at::randn({cells[0], cells[1], cells[2], head_dim});
  for (int64_t axis = 0; axis < 3; ++axis) {
    const auto i = static_cast<size_t>(axis);
    const int64_t corner = at::randint(kCell[i], {1}).item<int64_t>();
    shared = shared.repeat_interleave(kCell[i], axis).narrow(axis, corner, size[i]);
  }
  return (shared + at::randn(shared.sizes())) * std::sqrt(0.5);
}

/// Returns F(p) as [frames, height, width, head_dim].
at::Tensor position_features(const std::array<int64_t, 3>& size, int64_t head_dim) {
  const int64_t angles = head_dim / 6;  // for each axis
  std::vector<at::Tensor> parts;
  for (int64_t axis = 0; axis < 3; ++axis) {
    const int64_t length = size[static_cast<size_t>(axis)];
    const at::Tensor periods = at::logspace(std::log10(4.0), std::log10(4.0 * static_cast<double>(length)), angles);
    const at::Tensor phase = at::arange(length, at::kFloat).unsqueeze(1) * (2 * M_PI / periods).unsqueeze(0);
    std::vector<int64_t> shape{1, 1, 1, 2 * angles};
    shape[static_cast<size_t>(axis)] = length;
    parts.push_back(at::cat({phase.cos(), phase.sin()}, 1).view(shape).expand({size[0], size[1], size[2], 2 * angles}));
  }
  const at::Tensor features = at::cat(parts, -1) / std::sqrt(3.0 * static_cast<double>(angles));
  return at::constant_pad_nd(features, {0, head_dim - features.size(3)});
}

int run(const std::vector<std::string>& arguments) {
  const c10::InferenceMode inference;
  at::manual_seed(42);
  const auto number = [&](size_t i) { return std::max<int64_t>(1, std::atoll(arguments[i].c_str())); };
  const std::array<int64_t, 3> size{number(0), number(1), number(2)};
  const int64_t heads = number(3), head_dim = std::max<int64_t>(6, number(4));
  const at::Tensor features = position_features(size, head_dim);
  std::vector<at::Tensor> q, k, v;
  for (int64_t head = 0; head < heads; ++head) {
    const double rise = 4 + 12 * at::rand({1}).item<double>();
    const at::Tensor local = features * std::sqrt(rise * std::sqrt(static_cast<double>(head_dim)));
    const auto mean = [&](double deviation) { return at::randn({head_dim}) * deviation; };
    const auto add = [&](std::vector<at::Tensor>& list, const at::Tensor& values) {
      list.push_back(values.flatten(0, 2).to(at::kHalf));
    };
    add(q, smooth_tokens(size, head_dim) + local + mean(0.5));
    add(k, smooth_tokens(size, head_dim) + local + mean(2));
    add(v, smooth_tokens(size, head_dim) + mean(0.5));
  }
  const auto together = [](const std::vector<at::Tensor>& list) { return at::stack(list, 1).unsqueeze(0); };
  const app::Capture capture{.grid = {.frames = size[0], .height = size[1], .width = size[2]},
                             .calls = {{.q = together(q), .k = together(k), .v = together(v)}}};
  app::write_capture(arguments[5], capture, {{"data", "structured"}, {"seed", "42"}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 6) {
    std::fprintf(stderr, "usage: %s FRAMES HEIGHT WIDTH HEADS HEAD_DIM OUT.safetensors\n", argv[0]);
    return 2;
  }
  return bench::guarded([&] { return run(arguments); });
}
