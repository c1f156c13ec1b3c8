// The clock and the rounds; see timing.h.
#include "app/commands/bench/timing.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <optional>

#include "hilbert/error.h"

namespace sparsereel::app::bench {
namespace {

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

void collect(Timer& timer, const std::vector<size_t>& order, std::vector<Measurement>& measurements) {
  const std::vector<double> times = timer.finish();
  for (size_t i = 0; i < order.size(); ++i) measurements[order[i]].milliseconds.push_back(times.at(i));
}

}  // namespace

void Timer::time(const std::function<void()>& call) {
  if (device_.is_cpu()) {
    const auto start = std::chrono::steady_clock::now();
    call();
    times_.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    return;
  }
  // CUDA's library is loaded at run time, so streams and events come through c10's virtual interface.
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  c10::Event before(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event after(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  after.record(stream);  // the first record creates the event, which should not fall into the time
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

std::vector<Measurement> alternate(const std::vector<Contestant>& contestants, const Rounds& rounds, Timer& timer,
                                   const std::function<void(int64_t done)>& before_round) {
  std::vector<Measurement> measurements(contestants.size());
  int64_t calls = 0;
  for (int64_t round = 0; round < rounds.warmup + rounds.repetitions; ++round) {
    before_round(round);
    std::vector<size_t> order;
    for (size_t i = 0; i < contestants.size(); ++i) {
      if (!measurements[i].failure.empty()) continue;
      const int64_t buffer = calls++ % rounds.buffers;
      measurements[i].failure = failure_of([&] { timer.time([&] { contestants[i](buffer); }); });
      if (measurements[i].failure.empty()) order.push_back(i);
    }
    if (round < rounds.warmup) {
      timer.finish();
    } else {
      collect(timer, order, measurements);
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

}  // namespace sparsereel::app::bench
