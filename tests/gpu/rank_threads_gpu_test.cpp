// Tests videos that several GPUs of one process make together, as in the C++ library. Skipped without two GPUs.
#include "models/engine/rank_threads.h"

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>

#include "models/engine/failure.h"
#include "models/request/run.h"
#include "models/store/weights/device.h"
#include "tests/support/callback_observer.h"
#include "tests/support/golden.h"
#include "tests/support/rank_pipelines.h"

namespace sparsereel::models {
namespace {

Request short_video() {
  Request request;
  request.prompt = "a red circle";
  request.num_inference_steps = 3;
  request.attention_mode = attention::Mode::full;
  request.width = request.height = 192;
  request.num_frames = 9;
  request.vae_tiling = VaeTiling::off;
  return request;
}

TEST(RankThreadsOnGpus, MakeTheVideoOfOneGpuAndEndTogether) {
  const int64_t gpus = cuda_available() ? at::detail::getCUDAHooks().deviceCount() : 0;
  if (gpus < 2) GTEST_SKIP() << "there are no two GPUs here";
  const auto one = test::pipelines_of(1, "auto").front();
  const Request request = short_video();
  const Plan plan = one->resolve(request);
  const at::Tensor alone = one->generate(plan).frames;
  for (const int64_t count : {int64_t{2}, std::min<int64_t>(gpus, 4)}) {
    RankThreads ranks(test::pipelines_of(count, "auto"));
    EXPECT_TRUE(test::close_to(ranks.generate(request, plan, {}, {}).frames, alone, 2e-3)) << count;
    test::CallbackObserver observer;
    models::Run run;
    run.observer = &observer;
    observer.on_step = [](const StepDone&) { throw Cancelled{}; };
    EXPECT_THROW(ranks.generate(request, plan, {}, run), Cancelled);
    observer.on_step = [](const StepDone&) { throw run_failure("no more", "begin again"); };
    EXPECT_THROW(ranks.generate(request, plan, {}, run), Error);
    EXPECT_TRUE(test::close_to(ranks.generate(request, plan, {}, {}).frames, alone, 2e-3))
        << count << " after a failure";
  }
}

}  // namespace
}  // namespace sparsereel::models
