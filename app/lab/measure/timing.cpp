// Implements the timer, the rounds of turns, and the statistics.
#include "app/lab/measure/timing.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "hilbert/error.h"
#include "models/store/weights/device.h"

namespace sparsereel::app {
namespace {

double quantile_of(const std::vector<double>& sorted, double share) {
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - std::floor(position));
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// How many calls the contender's next turn has, and how many the contender has done in this round.
struct Turn {
  size_t calls = 1;
  size_t done = 0;
};

/// For each turn, returns the median of the later half of its times; 0 if the turn has no calls. `times` holds the
/// times of the calls of all turns, one turn after the other.
std::vector<double> turn_times(const std::vector<double>& times, const std::vector<Turn>& turns) {
  std::vector<double> medians;
  auto first = times.begin();
  for (const Turn& turn : turns) {
    const auto end = first + static_cast<std::ptrdiff_t>(turn.done);
    medians.push_back(turn.done == 0 ? 0 : spread({first + static_cast<std::ptrdiff_t>(turn.done / 2), end}).median);
    first = end;
  }
  return medians;
}

size_t calls_of(double turn_ms, double call_ms) {
  constexpr double kMost = 10000;
  return static_cast<size_t>(std::clamp(std::ceil(turn_ms / std::max(call_ms, 1e-6)), 1.0, kMost));
}

}  // namespace

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return quantile_of(values, share);
}

Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {.median = quantile_of(values, 0.5),
          .lower_quartile = quantile_of(values, 0.25),
          .upper_quartile = quantile_of(values, 0.75),
          .least = values.front(),
          .most = values.back()};
}

double Timer::now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Timer::time(const std::function<void()>& call) {
  if (device_.is_cpu()) {
    const double start = clock_();
    call();
    times_.push_back(clock_() - start);
    return;
  }
  // Use c10's virtual interface for streams and events, because libtorch's CUDA library is loaded only at run time.
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  c10::Event before(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event after(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  after.record(stream);  // the first record() creates the event; that time must not count
  before.record(stream);
  call();
  after.record(stream);
  pending_.emplace_back(std::move(before), std::move(after));
}

std::vector<double> Timer::finish() {
  std::vector<double> times = std::exchange(times_, {});
  for (const auto& [before, after] : pending_) {
    after.synchronize();
    times.push_back(before.elapsedTime(after));
  }
  pending_.clear();
  return times;
}

double milliseconds_of(c10::Device device, const std::function<void()>& call) {
  models::synchronize(device);
  const double start = Timer::now();
  call();
  models::synchronize(device);
  return Timer::now() - start;
}

std::vector<Measurement> alternate(const std::vector<TimedCall>& contenders, const Rounds& rounds, Timer& timer,
                                   const std::function<void(int64_t done)>& before_round) {
  std::vector<Measurement> measurements(contenders.size());
  std::vector<Turn> turns(contenders.size());
  int64_t calls = 0;
  for (int64_t round = 0; round < rounds.warmup + rounds.repetitions; ++round) {
    before_round(round);
    for (size_t i = 0; i < contenders.size(); ++i) {
      turns[i].done = 0;
      while (turns[i].done < turns[i].calls && measurements[i].failure.empty()) {
        const int64_t buffer = calls++ % rounds.buffers;
        measurements[i].failure = failure_of([&] { timer.time([&] { contenders[i](buffer); }); });
        if (measurements[i].failure.empty()) ++turns[i].done;
      }
    }
    const std::vector<double> times = turn_times(timer.finish(), turns);
    for (size_t i = 0; i < contenders.size(); ++i) {
      if (turns[i].done == 0) continue;
      turns[i].calls = calls_of(rounds.turn_ms, times[i]);
      if (round >= rounds.warmup && measurements[i].failure.empty()) measurements[i].milliseconds.push_back(times[i]);
    }
  }
  return measurements;
}

std::string failure_of(const std::function<void()>& call) {
  try {
    call();
    return {};
  } catch (const Error& error) {
    return first_line(error.what()) + "; " + error.remedy();
  } catch (const c10::Error& error) {
    return "libtorch: " + first_line(error.what_without_backtrace());
  }
}

}  // namespace sparsereel::app
