// Times contenders fairly: they take turns, use copies of the inputs in rotation, and are compared by medians. On a
// GPU, device time is measured; on a CPU, wall time.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace sparsereel::app {

/// Statistics of repeated measurements.
struct Spread {
  double median = 0;
  double lower_quartile = 0;
  double upper_quartile = 0;
  double least = 0;
  double most = 0;
};

/// Returns the value below which this share of the values lies, interpolated linearly between neighbors. Needs at least
/// one value.
double quantile(std::vector<double> values, double share);
/// Returns the statistics of the values. Needs at least one value.
Spread spread(std::vector<double> values);

/// Times calls on a device, in milliseconds each. On a GPU, records events on the current stream before and after the
/// call. Host time then counts only where the device waits for the host.
class Timer {
 public:
  /// A clock for calls on a CPU, in milliseconds since any point in time. Tests give their own.
  using Clock = std::function<double()>;
  static double now();

  explicit Timer(c10::Device device, Clock clock = now) : device_(device), clock_(std::move(clock)) {}

  /// Runs and times the call. A call that throws records no time.
  void time(const std::function<void()>& call);
  /// Waits for the device. Returns the times since the last finish(), in the order of the calls.
  std::vector<double> finish();

 private:
  c10::Device device_;
  Clock clock_;
  std::vector<double> times_;                               // CPU
  std::vector<std::pair<c10::Event, c10::Event>> pending_;  // GPU: before and after each call
};

/// Returns the milliseconds of a call. Waits for the device before and after the call, so the call itself need not
/// wait.
double milliseconds_of(c10::Device device, const std::function<void()>& call);

struct Rounds {
  int64_t warmup = 1;
  int64_t repetitions = 5;
  int64_t buffers = 1;  // number of copies of the inputs
  double turn_ms = 0;   // milliseconds that a contender runs in its turn; 0 for one call
};

/// A contender's call. It runs once, on the copy of the inputs with the index `buffer`.
using TimedCall = std::function<void(int64_t buffer)>;

struct Measurement {
  std::vector<double>
      milliseconds;     // one per repetition: the time of the turn's call, or the median of its later calls
  std::string failure;  // why the contender failed; empty if it did not
};

/// Gives every contender one turn per round (A B C, A B C, ...). Each call uses the next copy of the inputs. A turn is
/// one call, or as many calls as fill `turn_ms` at the speed of the previous round. Of several calls only the later
/// half counts: by then, the clock of a GPU at its power limit has adapted to this contender. `before_round` gets the
/// number of finished rounds and may throw to end the run.
std::vector<Measurement> alternate(const std::vector<TimedCall>& contenders, const Rounds& rounds, Timer& timer,
                                   const std::function<void(int64_t done)>& before_round);

/// Runs the call. Returns its error and remedy on one line, or an empty string if it succeeded. Benchmarks use it
/// because a contender that cannot run is a result, not the end of the run.
std::string failure_of(const std::function<void()>& call);

}  // namespace sparsereel::app
