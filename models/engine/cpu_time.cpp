// Counts the operations of matrix products, and measures how fast this CPU computes one.
#include "models/engine/cpu_time.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "models/request/request.h"

namespace sparsereel::models {
namespace {

constexpr double kMultiplyAdd = 2;

/// Returns operations per second, the best of a few tries, because other processes may use the CPU.
double measure_rate(at::ScalarType dtype) {
  constexpr int64_t kSize = 768;
  constexpr int kTries = 4;
  const at::Tensor a = at::full({kSize, kSize}, 0.5, at::TensorOptions().dtype(dtype));
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const at::Tensor product = at::mm(a, a);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::max(best, kMultiplyAdd * kSize * kSize * kSize / taken.count());
  }
  return best;
}

double measured_rate(at::ScalarType dtype) {
  static std::mutex mutex;
  static std::map<std::pair<at::ScalarType, int>, double> rates;
  const std::lock_guard lock(mutex);
  double& rate = rates[{dtype, at::get_num_threads()}];
  if (rate == 0) rate = measure_rate(dtype);
  return rate;
}

/// Returns "45 minutes", "31 hours" or "12 days".
std::string duration_text(double seconds) {
  constexpr double kMinute = 60, kHour = 3600, kDay = 24 * kHour;
  const auto text = [&](double unit, const char* name) {
    return std::to_string(std::llround(std::min(seconds / unit, 1e15))) + " " + name;
  };
  return seconds < 2 * kHour  ? text(kMinute, "minutes")
         : seconds < 2 * kDay ? text(kHour, "hours")
                              : text(kDay, "days");
}

}  // namespace

double step_operations(const Plan& plan, const ModelSpec& spec, double parameters, double share) {
  const double passes = plan.is_guided() ? 2 : 1;
  const double tokens = token_count(spec, plan.latent, plan.text_tokens);
  const auto width = static_cast<double>(spec.layers * spec.heads * spec.head_dim);
  const double attention = 2 * kMultiplyAdd * tokens * tokens * width;  // queries by keys, then probabilities by values
  return passes * (kMultiplyAdd * tokens * parameters + share * attention);
}

std::string slow_warning(const std::string& what, double operations, c10::ScalarType dtype) {
  constexpr double kLong = 30 * 60, kSlowest = 4e9;  // seconds, operations per second
  if (operations < kLong * kSlowest) return {};
  const double rate = measured_rate(dtype), seconds = operations / rate;
  if (seconds < kLong) return {};
  return what + " will take about " + duration_text(seconds) + " on this CPU (" +
         std::to_string(std::llround(rate / 1e9)) +
         " GFLOP/s were measured; the estimate assumes full attention and no cache): use a GPU";
}

}  // namespace sparsereel::models
