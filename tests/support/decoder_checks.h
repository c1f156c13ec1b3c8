// The checks that the tests of all VAE decoders and encoders share.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/vae/vae.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::test {

/// Tracks the bytes that torch's CPU allocator holds at present, and their peak.
class AllocatedBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    live += bytes;
    peak = std::max(peak, live);
  }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t live = 0, peak = 0;
};

/// Expects latents of a wrong shape to be refused. `vae` takes four channels.
inline void expect_other_latents_refused(models::Vae& vae) {
  for (const at::Tensor& latents :
       {at::zeros({1, 16, 2, 4, 4}), at::zeros({2, 4, 2, 4, 4}), at::zeros({4, 2, 4, 4}), at::zeros({1, 4, 0, 4, 4})})
    EXPECT_TRUE(throws_error([&] { vae.decode(latents, false); }, {"[1, 4, frames, height, width]"}));
}

/// Decodes the latents and returns the number of frames of each piece that the decoder hands out. Expects the pieces
/// together to equal the whole video. Without tiling, also expects each piece before the progress report about it.
inline std::vector<int64_t> pieces_of(models::Vae& vae, const at::Tensor& latents, bool tiled) {
  std::vector<at::Tensor> pieces;
  std::vector<int64_t> sizes;
  int64_t steps = 0;
  const auto take = [&](const at::Tensor& frames) {
    if (!tiled) {
      EXPECT_EQ(std::ssize(pieces), steps);
    }
    pieces.push_back(frames.clone());
    sizes.push_back(frames.size(2));
  };
  vae.decode(latents, {.tiled = tiled}, take, [&](int64_t done, int64_t) { steps = done; });
  EXPECT_TRUE(at::cat(pieces, 2).equal(vae.decode(latents, tiled)));
  return sizes;
}

/// Expects frames of a wrong shape to be refused. A latent of `vae` holds four frames of eight by eight pixels.
inline void expect_other_frames_refused(models::Vae& vae) {
  const auto refused = [&](const std::vector<int64_t>& shape, const std::string& why) {
    EXPECT_TRUE(throws_error([&] { vae.encode(at::zeros(shape), false); }, {"the VAE cannot encode", why}));
  };
  refused({1, 4, 5, 16, 16}, "[1, 3, frames, height, width]");
  refused({2, 3, 5, 16, 16}, "[1, 3, frames, height, width]");
  refused({3, 5, 16, 16}, "[1, 3, frames, height, width]");
  refused({1, 3, 0, 16, 16}, "[1, 3, frames, height, width]");
  for (const int64_t frames : {2, 4, 6, 8}) refused({1, 3, frames, 16, 16}, "one more than a multiple of 4");
  refused({1, 3, 1, 12, 16}, "height and width must be multiples of 8");
  refused({1, 3, 1, 16, 17}, "height and width must be multiples of 8");
}

/// Expects the VAE's estimate `said`, in bytes, to be close to the peak memory of `work`: the peak must be 0.8 to 1.1
/// times the estimate.
inline void expect_peak_memory(const std::function<void()>& work, uint64_t said, at::IntArrayRef shape) {
  const auto allocated = std::make_shared<AllocatedBytes>();
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, allocated);
    work();
  }
  const auto estimate = static_cast<double>(said);
  EXPECT_GT(static_cast<double>(allocated->peak), 0.8 * estimate) << shape;
  EXPECT_LT(static_cast<double>(allocated->peak), 1.1 * estimate) << shape;
}

inline void expect_peak_memory(models::Vae& vae, const at::Tensor& latents) {
  expect_peak_memory([&] { vae.decode(latents, false); },
                     vae.untiled_bytes(latents.size(2), latents.size(3), latents.size(4)), latents.sizes());
}

inline void expect_peak_memory_of_encoding(models::Vae& vae, const at::Tensor& frames) {
  expect_peak_memory([&] { vae.encode(frames, false); },
                     vae.untiled_encode_bytes(frames.size(2), frames.size(3), frames.size(4)), frames.sizes());
}

}  // namespace sparsereel::test
