// What every decoder promises.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "models/vae/vae.h"
#include "tests/support/temporary_folder.h"

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

/// `vae` takes four channels.
inline void expect_other_latents_refused(models::Vae& vae) {
  for (const at::Tensor& latents :
       {at::zeros({1, 16, 2, 4, 4}), at::zeros({2, 4, 2, 4, 4}), at::zeros({4, 2, 4, 4}), at::zeros({1, 4, 0, 4, 4})})
    EXPECT_TRUE(throws_error([&] { vae.decode(latents, false); }, {"[1, 4, frames, height, width]"}));
}

/// Beside what the decoder says beforehand.
inline void expect_peak_memory(models::Vae& vae, const at::Tensor& latents) {
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
