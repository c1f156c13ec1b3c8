// Measures the time and the GPU memory that the stages of a video take.
#pragma once

#include <chrono>
#include <cstdint>

#include "models/store/weights/device.h"

namespace sparsereel::models {

/// Measures seconds and peak memory of consecutive stages. Waits for the device at the end of each stage.
class StageMeter {
 public:
  explicit StageMeter(at::Device device) : device_(device) { reset_peak_memory(device); }

  double lap() {
    synchronize(device_);
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return seconds;
  }
  uint64_t take_peak() const {
    const uint64_t peak = peak_memory(device_);
    reset_peak_memory(device_);
    return peak;
  }

 private:
  at::Device device_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace sparsereel::models
