// Compares videos that several ranks make, each with its own pipeline, with videos of one rank, for every family.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "hilbert/error.h"
#include "models/engine/components.h"
#include "models/engine/denoising.h"
#include "models/parallel/thread_group.h"
#include "models/request/denoising_state.h"
#include "models/request/frame_sink.h"
#include "models/request/outcome.h"
#include "models/request/run.h"
#include "models/store/checkpoint/checkpoint.h"
#include "tests/support/callback_observer.h"
#include "tests/support/golden.h"
#include "tests/support/pipeline_cases.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

/// Changes the arguments of generate() on one rank. run.group is null if there is only one rank.
using Change =
    std::function<void(Request& request, Inputs& inputs, models::Run& run, test::CallbackObserver& observer)>;

class VideosOverRanks : public ::testing::TestWithParam<test::ParityCase> {
 protected:
  static Outcome make(Group* group, const Change& change) {
    const test::ParityCase& one = GetParam();
    at::set_num_threads(1);
    Request request = test::request_of(one.content);
    Inputs inputs = test::inputs_of(*one.family, one.content);
    inputs.decode = false;
    test::CallbackObserver observer;
    models::Run run;
    run.group = group;
    run.observer = &observer;
    if (change) change(request, inputs, run, observer);
    return test::open(*one.family, one.content)->generate(request, inputs, run);
  }
  /// Makes a video on `ranks` ranks. Returns the outcome of each rank.
  static std::vector<Outcome> over(int64_t ranks, const Change& change = {}) {
    std::vector<Outcome> all(static_cast<size_t>(ranks));
    run_in_threads(ranks, [&](Group& group) { all[static_cast<size_t>(group.rank())] = make(&group, change); });
    return all;
  }
  static bool guided() {
    return test::open(*GetParam().family, GetParam().content)->spec().takes_guidance &&
           test::request_of(GetParam().content).guidance_scale.value_or(2) > 1;
  }
  /// Returns the numbers of ranks to try. The small models have two heads, so at most two ranks can share a guidance
  /// pass.
  static std::vector<int64_t> rank_counts() { return guided() ? std::vector<int64_t>{2, 4} : std::vector<int64_t>{2}; }
  /// Returns false if rank 0 decodes alone.
  static bool decodes_in_pieces() {
    const std::string folder = std::string(SPARSEREEL_TEST_DATA) + "/" + GetParam().family->folder;
    return describe_vae(Checkpoint::open(folder + GetParam().content.value("folder", "pipeline")), at::kFloat)
        ->decodes_in_pieces();
  }
};

TEST_P(VideosOverRanks, MatchTheLatentsOfOneRank) {
  const at::Tensor alone = make(nullptr, {}).latents.video;
  for (const int64_t ranks : rank_counts()) {
    const std::vector<Outcome> shared = over(ranks);
    for (const Outcome& outcome : shared) EXPECT_TRUE(test::close_to(outcome.latents.video, alone, 1e-4)) << ranks;
    for (const Outcome& outcome : shared)
      EXPECT_TRUE(outcome.latents.video.equal(shared.front().latents.video)) << ranks;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, VideosOverRanks, ::testing::ValuesIn(test::parity_cases("pipeline_cases.json")),
                         test::case_name);

INSTANTIATE_TEST_SUITE_P(WithLora, VideosOverRanks, ::testing::ValuesIn(test::parity_cases("lora_cases.json")),
                         test::case_name);

/// Tests that need only the first case of each family.
using FirstVideosOverRanks = VideosOverRanks;

TEST_P(FirstVideosOverRanks, CountTheSameBlocksAsOneRank) {
  const Change sparse = [](Request& request, Inputs&, models::Run&, test::CallbackObserver&) {
    request.attention_mode = attention::Mode::sparse;
    request.token_order = hilbert::TokenOrder::hilbert;
    request.topk = 0.3;
  };
  const Outcome alone = make(nullptr, sparse);
  for (const int64_t ranks : rank_counts()) {
    const Outcome shared = over(ranks, sparse).front();
    EXPECT_EQ(shared.attention.statistics.total_blocks, alone.attention.statistics.total_blocks);
    EXPECT_EQ(shared.attention.statistics.kept_blocks, alone.attention.statistics.kept_blocks);
    EXPECT_TRUE(test::close_to(shared.latents.video, alone.latents.video, 1e-3));
  }
}

TEST_P(FirstVideosOverRanks, AreCanceledOnAllRanksIfOneCancels) {
  int64_t cancelled = 0;
  std::mutex mutex;
  run_in_threads(2, [&](Group& group) {
    int64_t steps = 0;
    const auto one_wants_no_more = [&](Request&, Inputs&, models::Run& run, test::CallbackObserver& observer) {
      observer.on_step = [&](const StepDone&) { ++steps; };
      run.cancelled = [&] { return group.rank() == 1 && steps == 1; };
    };
    EXPECT_THROW(make(&group, one_wants_no_more), Cancelled);
    EXPECT_EQ(steps, 1);
    const std::lock_guard lock(mutex);
    ++cancelled;
  });
  EXPECT_EQ(cancelled, 2);
}

TEST_P(FirstVideosOverRanks, ResumeFromAStateOfAnotherNumberOfRanks) {
  std::vector<std::shared_ptr<const DenoisingState>> kept;
  const auto keeping = [&](Request&, Inputs&, models::Run& run, test::CallbackObserver& observer) {
    run.checkpoints.every = 1;
    if (run.group != nullptr && run.group->rank() > 0) return;
    observer.on_checkpoint = [&](const DenoisingState& state) {
      kept.push_back(std::make_shared<DenoisingState>(state));
    };
  };
  const int64_t most = rank_counts().back();
  const at::Tensor whole = over(most, keeping).front().latents.video;
  ASSERT_GT(kept.size(), 1U);
  const Change resume = [&](Request&, Inputs& inputs, models::Run&, test::CallbackObserver&) {
    inputs.resume = kept.front();
  };
  EXPECT_TRUE(test::close_to(make(nullptr, resume).latents.video, whole, 1e-4));
  EXPECT_TRUE(test::close_to(over(2, resume).front().latents.video, whole, 1e-4));
  kept.clear();
  make(nullptr, keeping);
  EXPECT_TRUE(test::close_to(over(most, resume).front().latents.video, whole, 1e-4));
}

TEST_P(FirstVideosOverRanks, AreDecodedByAllRanksForRank0) {
  std::vector<int64_t> pieces(4), released(4);
  const auto decoding = [&](VaeTiling tiling) {
    std::ranges::fill(pieces, 0);
    std::ranges::fill(released, 0);
    return [&, tiling](Request& request, Inputs& inputs, models::Run& run, test::CallbackObserver& observer) {
      request.vae_tiling = tiling;
      inputs.decode = true;
      const size_t rank = run.group == nullptr ? 0 : static_cast<size_t>(run.group->rank());
      observer.on_decoded = [&, rank](const PieceProgress&) { ++pieces[rank]; };
      observer.on_others_released = [&, rank] { ++released[rank]; };
    };
  };
  for (const VaeTiling tiling : {VaeTiling::off, VaeTiling::on}) {
    const Outcome whole = make(nullptr, decoding(tiling));
    const int64_t steps = pieces[0];
    EXPECT_EQ(released[0], 0);
    const int64_t ranks = rank_counts().back();
    const std::vector<Outcome> shared = over(ranks, decoding(tiling));
    EXPECT_TRUE(test::close_to(shared[0].frames, whole.frames, 1e-4));
    EXPECT_EQ(shared[0].vae_tiled, whole.vae_tiled);
    for (size_t rank = 0; rank < shared.size(); ++rank) {
      EXPECT_EQ(shared[rank].frames.defined(), rank == 0);
      EXPECT_EQ(pieces[rank], rank == 0 || (tiling == VaeTiling::off && decodes_in_pieces()) ? steps : 0);
      EXPECT_EQ(released[rank], rank == 0 ? 1 : 0);
    }
  }
}

TEST_P(FirstVideosOverRanks, AreDecodedByAtMostOneRankPerRow) {
  const test::ParityCase& one = GetParam();
  const auto decode = [&](const at::Tensor& latents, Group* group) {
    models::Run run;
    run.group = group;
    return test::open(*one.family, one.content)->decode(latents, VaeTiling::off, run).frames;
  };
  const at::Tensor latents = make(nullptr, {}).latents.video;
  for (const int64_t rows : {1, 2}) {
    const at::Tensor few = latents.narrow(3, 0, rows), alone = decode(few, nullptr);
    run_in_threads(3, [&](Group& group) {
      const at::Tensor frames = decode(few, &group);
      ASSERT_EQ(frames.defined(), group.rank() == 0);
      if (frames.defined()) {
        EXPECT_TRUE(test::close_to(frames, alone, 1e-4));
      }
    });
  }
}

TEST_P(FirstVideosOverRanks, AreCanceledOnAllRanksDuringDecoding) {
  if (!decodes_in_pieces()) GTEST_SKIP() << "rank 0 decodes alone, and the other ranks have left by then";
  int64_t cancelled = 0;
  std::mutex mutex;
  run_in_threads(2, [&](Group& group) {
    bool decodes = false;
    const auto one_wants_no_more = [&](Request& request, Inputs& inputs, models::Run& run,
                                       test::CallbackObserver& observer) {
      request.vae_tiling = VaeTiling::off;
      inputs.decode = true;
      observer.on_decoded = [&](const PieceProgress&) { decodes = true; };
      run.cancelled = [&] { return group.rank() == 1 && decodes; };
    };
    EXPECT_THROW(make(&group, one_wants_no_more), Cancelled);
    const std::lock_guard lock(mutex);
    ++cancelled;
  });
  EXPECT_EQ(cancelled, 2);
}

/// Imitates a video file on a full disk: throws when it gets frames.
class FullDiskSink final : public FrameSink {
 public:
  at::ScalarType dtype() const override { return at::kByte; }
  void begin(const VideoShape& /*shape*/, bool /*tiled*/) override {}
  void take(const at::Tensor& /*frames*/) override { throw run_failure("the disk is full", "make room"); }
};

TEST_P(FirstVideosOverRanks, EndOnAllRanksIfRank0CannotStoreFrames) {
  FullDiskSink disk;
  const Change decoding = [&](Request& request, Inputs& inputs, models::Run&, test::CallbackObserver& observer) {
    request.vae_tiling = VaeTiling::off;
    inputs.decode = true;
    observer.sink = &disk;
  };
  EXPECT_TRUE(test::throws_error([&] { over(2, decoding); }, {"the disk is full"}));
}

TEST_P(FirstVideosOverRanks, AreRefusedIfThereAreTooFewHeads) {
  EXPECT_TRUE(
      test::throws_error([] { over(6); }, {std::string("6 ranks cannot share this video: ") + (guided() ? "3" : "6") +
                                           " of them share a guidance pass, which has only 2"}));
}

std::vector<test::ParityCase> first_cases() {
  std::vector<test::ParityCase> cases;
  for (const test::ParityCase& one : test::parity_cases("pipeline_cases.json"))
    if (cases.empty() || cases.back().family != one.family) cases.push_back(one);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Families, FirstVideosOverRanks, ::testing::ValuesIn(first_cases()), test::case_name);

}  // namespace
}  // namespace sparsereel::models
