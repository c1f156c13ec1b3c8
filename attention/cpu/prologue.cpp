// Runs the prologue in one pass: reads all heads of a token once, normalizes and rotates them in cache, and writes them
// once.
#include "attention/cpu/prologue.h"

#include <cmath>
#include <vector>

namespace sparsereel::attention::cpu {
namespace {

constexpr int64_t kLanes = 8;  // number of partial sums, so that the compiler may use vector instructions

template <typename F>
double sum_of(int64_t n, const F& f) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += f(i + j);
  double sum = 0;
  for (; i < n; ++i) sum += f(i);
  for (const float lane : lanes) sum += lane;
  return sum;
}

struct Moments {
  float mean, inverse;  // inverse: 1 / deviation
};

Moments moments_of(const PrologueTask& task, const float* x, int64_t n) {
  float mean = 0;
  if (task.prologue.norm == Norm::layer)
    mean = static_cast<float>(sum_of(n, [&](int64_t i) { return x[i]; }) / static_cast<double>(n));
  const double square = sum_of(n, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  return {mean, static_cast<float>(1 / std::sqrt(square / static_cast<double>(n) + task.prologue.eps))};
}

/// Computes y = norm(x) * weight + bias over n values. y may be x.
void normalize(const PrologueTask& task, const Moments& moments, const float* weight, const float* x, int64_t n,
               float* y) {
  const auto [mean, inverse] = moments;
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse;
  if (weight != nullptr)
    for (int64_t i = 0; i < n; ++i) y[i] *= weight[i];
  if (task.norm.bias != nullptr)
    for (int64_t i = 0; i < n; ++i) y[i] += task.norm.bias[i];
}

void rotate(const PrologueTask& task, const float* x, const float* cos, const float* sin, float* y) {
  const int64_t half = task.head_dim / 2;
  if (task.prologue.interleaved) {
    for (int64_t i = 0; i < 2 * half; i += 2) {
      y[i] = x[i] * cos[i] - x[i + 1] * sin[i];
      y[i + 1] = x[i + 1] * cos[i + 1] + x[i] * sin[i + 1];
    }
  } else {
    for (int64_t i = 0; i < half; ++i) {
      y[i] = x[i] * cos[i] - x[i + half] * sin[i];
      y[i + half] = x[i + half] * cos[i + half] + x[i] * sin[i + half];
    }
  }
}

void rotate_by_head(const PrologueTask& task, const float* x, const float* position, const float* frequencies,
                    float* y) {
  const int64_t half = task.head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float angle =
        position[0] * frequencies[i] + position[1] * frequencies[half + i] + position[2] * frequencies[2 * half + i];
    const float cos = std::cos(angle), sin = std::sin(angle);
    y[2 * i] = x[2 * i] * cos - x[2 * i + 1] * sin;
    y[2 * i + 1] = x[2 * i + 1] * cos + x[2 * i] * sin;
  }
}

/// Runs the prologue of one token. scratch: [heads, head_dim].
void run_token(const PrologueTask& task, int64_t b, int64_t token, float* scratch) {
  const int64_t dim = task.head_dim;
  const CallPrologue& prologue = task.prologue;
  const bool is_text = token >= task.tokens - task.text_tokens;
  const float* weight = is_text && task.norm.text_weight != nullptr ? task.norm.text_weight : task.norm.weight;
  for (int64_t h = 0; h < task.heads; ++h) {
    const float* x = task.in.row(b, token, h);
    if (prologue.norm == Norm::none || prologue.across_heads) {
      std::copy(x, x + dim, scratch + h * dim);
    } else {
      normalize(task, moments_of(task, x, dim), weight, x, dim, scratch + h * dim);
    }
  }
  if (prologue.normalizes_across_heads()) {
    const int64_t size = task.heads * dim;
    const float* given = task.norm.moments == nullptr ? nullptr : task.norm.moments + 2 * (b * task.tokens + token);
    normalize(task, given == nullptr ? moments_of(task, scratch, size) : Moments{given[0], given[1]}, weight, scratch,
              size, scratch);
  }
  for (int64_t h = 0; h < task.heads; ++h) {
    const float* x = scratch + h * dim;
    if (token >= prologue.rotary_tokens) {
      std::copy(x, x + dim, task.out.row(b, token, h));
    } else if (prologue.rotary_frequencies != nullptr) {
      rotate_by_head(task, x, prologue.rotary_positions + token * 4, prologue.rotary_frequencies + h * 3 * (dim / 2),
                     task.out.row(b, token, h));
    } else {
      rotate(task, x, prologue.rotary_cos + token * dim, prologue.rotary_sin + token * dim, task.out.row(b, token, h));
    }
  }
}

}  // namespace

void run_prologue(const PrologueTask& task, const ParallelFor& parallel) {
  parallel(task.batch * task.tokens, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch(static_cast<size_t>(task.heads * task.head_dim));
    for (int64_t i = begin; i < end; ++i) run_token(task, i / task.tokens, i % task.tokens, scratch.data());
  });
}

void find_moments(const PrologueTask& task, float* moments, const ParallelFor& parallel) {
  const int64_t dim = task.head_dim, size = task.heads * dim;
  parallel(task.batch * task.tokens, [&](int64_t begin, int64_t end) {
    std::vector<float> token(static_cast<size_t>(size));
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t h = 0; h < task.heads; ++h) {
        const float* x = task.in.row(i / task.tokens, i % task.tokens, h);
        std::copy(x, x + dim, token.data() + h * dim);
      }
      const auto [mean, inverse] = moments_of(task, token.data(), size);
      moments[2 * i] = mean;
      moments[2 * i + 1] = inverse;
    }
  });
}

}  // namespace sparsereel::attention::cpu
