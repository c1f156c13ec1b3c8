// Fair timing: contenders take turns, input buffers rotate, medians. Device time on a GPU, wall time on a CPU.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace sparsereel::app {

/// Of repeated measurements.
struct Spread {
  double median = 0;
  double lower_quartile = 0;
  double upper_quartile = 0;
  double least = 0;
  double most = 0;
};

/// The value below which this share of the others lies, interpolated linearly between neighbours; at least one value.
double quantile(std::vector<double> values, double share);
/// The same for each member. At least one value is needed.
Spread spread(std::vector<double> values);

/// Times calls on a device, milliseconds each. On a GPU it brackets the call with events on the current stream, so that
/// host time counts only where the device waits for the host.
class Timer {
 public:
  /// Milliseconds of a CPU's clock; where it begins does not matter.
  using Clock = std::function<double()>;
  static double now();

  explicit Timer(c10::Device device, Clock clock = now) : device_(device), clock_(std::move(clock)) {}

  /// Runs the call; a call that throws leaves no time behind.
  void time(const std::function<void()>& call);
  /// Waits for the device; the times since the last finish(), in the order of the calls.
  std::vector<double> finish();

 private:
  c10::Device device_;
  Clock clock_;
  std::vector<double> times_;                               // CPU
  std::vector<std::pair<c10::Event, c10::Event>> pending_;  // GPU: before and after each call
};

/// Milliseconds of one call that waits for nothing by itself: the device is idle before it and after it.
double milliseconds_of(c10::Device device, const std::function<void()>& call);

struct Rounds {
  int64_t warmup = 1;
  int64_t repetitions = 5;
  int64_t buffers = 1;  // copies of the inputs
  double turn_ms = 0;   // how long a contender runs in its turn; 0: one call
};

/// A contender's call: runs once on the inputs of copy `buffer`.
using TimedCall = std::function<void(int64_t buffer)>;

struct Measurement {
  std::vector<double> milliseconds;  // one a repetition: a call, or the median of a turn's later half
  std::string failure;               // why it has none; the others go on
};

/// Each round gives every contender one turn (A B C, A B C, ...), each call on the next buffer. A turn is one call, or
/// as many as take `turn_ms` by the round before; of those the later half counts, when a GPU that is held to a power
/// limit has left its neighbour's clock for the contender's own. `before_round` is called with the number of rounds
/// done and may throw to end the run.
std::vector<Measurement> alternate(const std::vector<TimedCall>& contenders, const Rounds& rounds, Timer& timer,
                                   const std::function<void(int64_t done)>& before_round);

/// Runs the call and returns why it failed (and the remedy) on one line; empty where it did not. What one
/// contender of a benchmark cannot do is a result.
std::string failure_of(const std::function<void()>& call);

}  // namespace sparsereel::app
