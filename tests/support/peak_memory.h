// What a decode really takes, beside what the decoder says beforehand.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "models/vae/vae.h"

namespace sparsereel::test {

/// Adds up what torch's CPU allocator hands out and takes back.
class AllocatedBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    live += bytes;
    peak = std::max(peak, live);
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t live = 0, peak = 0;
};

inline void expect_peak_memory(models::VaeDecoder& vae, const at::Tensor& latents) {
  const auto allocated = std::make_shared<AllocatedBytes>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, allocated);
    vae.decode(latents, false);
  }
  const auto estimate = static_cast<double>(vae.untiled_bytes(latents.size(2), latents.size(3), latents.size(4)));
  EXPECT_GT(static_cast<double>(allocated->peak), 0.8 * estimate) << latents.sizes();
  EXPECT_LT(static_cast<double>(allocated->peak), 1.1 * estimate) << latents.sizes();
}

}  // namespace sparsereel::test
