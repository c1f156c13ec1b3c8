// Tests which checkpoints and requests a pipeline refuses, its warnings, and that runs do not affect each other.
#include "models/engine/pipeline.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "models/engine/components.h"
#include "models/engine/denoising.h"
#include "models/engine/text_stage.h"
#include "models/request/denoising_state.h"
#include "models/request/outcome.h"
#include "models/request/run.h"
#include "models/store/checkpoint/checkpoint.h"
#include "tests/support/callback_observer.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;
using test::throws_error;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::shared_ptr<Pipeline> open(const json& transformer, const json& vae) {
  const json architecture = {{"transformer", transformer},
                             {"vae", vae},
                             {"text_encoder", {{"d_model", 4096}, {"feed_forward_proj", "gated-gelu"}}},
                             {"scheduler", {{"_class_name", "CogVideoXDDIMScheduler"}}}};
  return Pipeline::open(Checkpoint::with_random_weights("some.yaml", "CogVideoXTransformer3DModel", architecture),
                        {.device = "cpu"});
}

TEST(Pipeline, RefusesAVaeWithAnotherTemporalCompression) {
  const json halves = {{"temporal_compression_ratio", 2}}, quarters = {{"temporal_compression_ratio", 4}};
  EXPECT_TRUE(throws_error([&] { open(quarters, halves); },
                           {"architecture.vae", "temporal_compression_ratio 2 does not fit the transformer's"}));
  EXPECT_NO_THROW(open(quarters, quarters));
  EXPECT_NO_THROW(open(json::object(), halves));
}

TEST(Pipeline, ExplainsWhichFrameCountsArePossible) {
  const json halves = {{"temporal_compression_ratio", 2}};
  Request request;
  request.num_frames = 6;
  EXPECT_TRUE(throws_error(
      [&] { open(halves, halves)->resolve(request); },
      {"frames 6 is impossible for this model: it must be 1 more than a multiple of 4, or a multiple of 4"}));
}

TEST(Pipeline, NamesTheTwoNearestPossibleSizes) {
  const auto pipeline = Pipeline::open(std::string(SPARSEREEL_TEST_DATA) + "/pipeline", "cpu", "fp32");
  const auto message = [&](auto change) {
    Request request;
    change(request);
    try {
      pipeline->resolve(request);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      return std::string(error.what()) + " | " + error.remedy();
    }
    return std::string("no error");
  };
  EXPECT_THAT(message([](auto& r) { r.width = 100; }), AllOf(HasSubstr("width 100"), HasSubstr("96 or 112")));
  EXPECT_THAT(message([](auto& r) { r.height = 8; }), HasSubstr("16 or 32"));
  EXPECT_THAT(message([](auto& r) { r.num_frames = 10; }), AllOf(HasSubstr("frames 10"), HasSubstr("9 or 16")));
  EXPECT_THAT(message([](auto& r) { r.num_frames = 0; }), HasSubstr("1 or 8"));
  EXPECT_THAT(message([](auto& r) { r.num_inference_steps = 2000; }), HasSubstr("steps 2000"));
  EXPECT_THAT(message([](auto& r) { r.max_sequence_length = 300; }), HasSubstr("at most 16"));
  EXPECT_THAT(message([](auto& r) { r.scheduler = "euler"; }), HasSubstr("scheduler euler"));
}

TEST(Pipeline, WarnsAboutEachTruncatedPrompt) {
  Request request;
  request.prompt = "a red circle moves to the right";
  request.negative_prompt = std::string(59, 'a') + "\u20ac and more";  // the 60th byte is in the middle of a character
  request.max_sequence_length = 2;
  std::vector<std::string> warnings;
  const auto pipeline = Pipeline::open(SPARSEREEL_TINY_MODEL, "cpu", "auto");
  pipeline->text_stage().encode(pipeline->resolve(request), &warnings);
  EXPECT_THAT(warnings, ElementsAre("the negative prompt was cut to 2 tokens: \"" + std::string(59, 'a') + "...\"",
                                    StartsWith("the prompt was cut to 2 tokens: \"a red circle")));
}

TEST(Pipeline, ExecutesAPlanWithoutResolvingItAgain) {
  const auto pipeline = Pipeline::open(std::string(SPARSEREEL_TEST_DATA) + "/pipeline", "cpu", "fp32");
  Request request;
  request.num_inference_steps = 1;
  const Plan plan = pipeline->resolve(request);
  request.width = request.height = request.num_frames = 1'000'000'001;  // too large for any model and memory
  EXPECT_THROW(pipeline->generate(request), Error);
  const Outcome result = pipeline->generate(plan, {.decode = false});
  EXPECT_EQ(result.latents.video.sizes(), at::IntArrayRef(latents_shape(pipeline->spec(), plan.latent)));
}

/// Runs two pipelines in two threads and cancels the run of the second one after `steps` steps. Returns the latents of
/// the first.
at::Tensor beside_a_cancelled_run(Pipeline& first, Pipeline& second, const Request& request, int64_t steps) {
  std::thread other([&] {
    int64_t done = 0;
    test::CallbackObserver observer;
    observer.on_step = [&](const StepDone&) { ++done; };
    Run run;
    run.cancelled = [&] { return done == steps; };
    run.observer = &observer;
    EXPECT_THROW(second.generate(request, {.decode = false}, run), Cancelled);
    EXPECT_EQ(done, steps);
  });
  const at::Tensor latents = first.generate(request, {.decode = false}).latents.video;
  other.join();
  return latents;
}

TEST(Pipeline, CancelsOneRunWithoutAffectingOthers) {
  const auto open_one = [] { return Pipeline::open(std::string(SPARSEREEL_TEST_DATA) + "/pipeline", "cpu", "fp32"); };
  const auto one = open_one(), two = open_one();
  Request request;
  request.num_inference_steps = 4;
  const at::Tensor alone = one->generate(request, {.decode = false}).latents.video;
  EXPECT_TRUE(beside_a_cancelled_run(*one, *two, request, 2).equal(alone));
  EXPECT_TRUE(beside_a_cancelled_run(*two, *one, request, 0).equal(alone));
}

/// Sets the observer so that a run calls `cut` while it uses the component whose weights are in `file`.
void watch(test::CallbackObserver& observer, const std::string& file, const std::function<void()>& cut) {
  if (file.starts_with("text_encoder/"))
    observer.on_stage = [cut](const std::string& stage) {
      if (stage == "text") cut();
    };
  else if (file.starts_with("transformer/"))
    observer.on_step = [cut](const StepDone& step) {
      if (step.step == 1) cut();
    };
  else
    observer.on_decoded = [cut](const PieceProgress&) { cut(); };
}

/// Makes a video, and truncates the weight file `file` during the run. The run's dtype is that of the file, so the CPU
/// computes directly on the mapped file.
Outcome made_while_cut(const std::filesystem::path& model, const std::string& file, const Request& request) {
  const auto pipeline = Pipeline::open(model.string(), "cpu", "fp16");
  test::CallbackObserver observer;
  Run run;
  run.observer = &observer;
  watch(observer, file, [&] { std::filesystem::resize_file(model / file, 4096); });
  return pipeline->generate(request, {}, run);
}

TEST(Pipeline, EndsOnlyTheRunWhoseFileIsTruncated) {
  const std::string data = std::string(SPARSEREEL_TEST_DATA) + "/pipeline";
  const auto other = Pipeline::open(data, "cpu", "fp16");
  Request request;
  request.num_inference_steps = 2;
  for (const char* file :
       {"text_encoder/model.safetensors", "transformer/diffusion_pytorch_model-00001-of-00002.safetensors",
        "vae/diffusion_pytorch_model.safetensors"}) {
    const test::TemporaryFolder folder;
    std::filesystem::copy(data, folder / "model", std::filesystem::copy_options::recursive);
    EXPECT_TRUE(throws_error([&] { made_while_cut(folder / "model", file, request); }, {file, "became shorter"}));
    EXPECT_NO_THROW(other->generate(request));
  }
}

/// Cancels a run after the first attention call in step `step` (from 0). Returns the states that the run passed to its
/// observer for checkpoints.
std::vector<std::shared_ptr<DenoisingState>> cancelled_within(Pipeline& pipeline, const Request& request, int64_t step,
                                                              const CheckpointTimes& times) {
  std::vector<std::shared_ptr<DenoisingState>> kept;
  int64_t calls = 0;
  test::CallbackObserver observer;
  observer.on_within_step = [&](const WithinStep& now) { calls += now.step == step ? 1 : 0; };
  observer.on_checkpoint = [&](const DenoisingState& state) {
    kept.push_back(std::make_shared<DenoisingState>(state));
  };
  Run run;
  run.cancelled = [&] { return calls > 0; };
  run.observer = &observer;
  run.checkpoints = times;
  EXPECT_THROW(pipeline.generate(request, {.decode = false}, run), Cancelled);
  EXPECT_EQ(calls, 1) << "the step went on";
  return kept;
}

TEST(Pipeline, ResumesFromTheLastWholeStepAfterCancellationWithinAStep) {
  const auto pipeline = Pipeline::open(std::string(SPARSEREEL_TEST_DATA) + "/pipeline", "cpu", "fp32");
  for (const CacheRule& cache : {CacheRule{}, parse_cache_rule("forecast:0.5")}) {
    Request request;
    request.num_inference_steps = 6;
    request.cache = cache;
    const at::Tensor whole = pipeline->generate(request, {.decode = false}).latents.video;
    EXPECT_TRUE(cancelled_within(*pipeline, request, 0, {.cancelled = true}).empty()) << "there is no whole step";
    EXPECT_TRUE(cancelled_within(*pipeline, request, 2, {}).empty()) << "nobody wants it";
    const auto kept = cancelled_within(*pipeline, request, 2, {.last = true, .cancelled = true});
    ASSERT_EQ(kept.size(), 1U);
    EXPECT_EQ(kept.front()->step, 2);
    const Outcome rest = pipeline->generate(request, {.resume = kept.front(), .decode = false});
    EXPECT_TRUE(rest.latents.video.equal(whole)) << name(cache);
    EXPECT_EQ(rest.attention.per_step.size(), 6U);
  }
}

/// With each of these samplers, the last step must end at the final latents that the sampler predicted before it.
TEST(Pipeline, PredictsTheFinalLatentsAtEachStep) {
  const std::string data = SPARSEREEL_TEST_DATA;
  for (const auto& [folder, sampler] : {std::pair("/pipeline", "ddim"), std::pair("/wan/pipeline", "unipc"),
                                        std::pair("/wan/pipeline", "euler"), std::pair("/mochi/pipeline", "")}) {
    const auto pipeline = Pipeline::open(data + folder, "cpu", "fp32");
    const Request request{.num_inference_steps = 3, .scheduler = sampler};
    std::vector<at::Tensor> predicted;
    test::CallbackObserver observer;
    observer.on_step = [&](const StepDone& step) { predicted.push_back(step.predicted_latents()); };
    models::Run run;
    run.observer = &observer;
    const at::Tensor latents = pipeline->generate(request, {.decode = false}, run).latents.video;
    ASSERT_EQ(predicted.size(), 3U) << folder;
    EXPECT_TRUE(test::close_to(predicted.back(), latents, 1e-5)) << folder << " " << sampler;
    EXPECT_FALSE(test::close_to(predicted.front(), latents, 1e-5)) << folder << " " << sampler;
    EXPECT_EQ(predicted.front().sizes(), latents.sizes());
  }
}

TEST(Pipeline, SavesTheLastStateOnlyOnRequest) {
  const auto pipeline = Pipeline::open(std::string(SPARSEREEL_TEST_DATA) + "/pipeline", "cpu", "fp32");
  Request request;
  request.num_inference_steps = 2;
  for (const bool last : {false, true}) {
    std::vector<int64_t> steps;
    test::CallbackObserver observer;
    observer.on_checkpoint = [&](const DenoisingState& state) { steps.push_back(state.step); };
    models::Run run;
    run.observer = &observer;
    run.checkpoints = {.last = last, .cancelled = true};
    pipeline->generate(request, {.decode = false}, run);
    EXPECT_EQ(steps, last ? std::vector<int64_t>{2} : std::vector<int64_t>{});
  }
}

TEST(Pipeline, CancelsWithinADecodedPiece) {
  const auto pipeline = Pipeline::open(std::string(SPARSEREEL_TEST_DATA) + "/pipeline", "cpu", "fp32");
  const at::Tensor latents = pipeline->generate(Request{.num_inference_steps = 1}, {.decode = false}).latents.video;
  int64_t asked = 0, pieces = 0;
  test::CallbackObserver observer;
  observer.on_decoded = [&](const PieceProgress&) { ++pieces; };
  models::Run run;
  run.cancelled = [&] { return ++asked > 5; };
  run.observer = &observer;
  EXPECT_THROW(pipeline->decode(latents, VaeTiling::off, run), Cancelled);
  EXPECT_EQ(pieces, 0);
}

/// Opens a pipeline whose transformer and text encoder have heads of `head_dim` channels.
std::shared_ptr<Pipeline> open_in_fp8(int64_t head_dim) {
  const json architecture = {{"transformer",
                              {{"num_attention_heads", 3},
                               {"attention_head_dim", head_dim},
                               {"ffn_dim", 24},
                               {"num_layers", 1},
                               {"text_dim", 32}}},
                             {"vae", json::object()},
                             {"text_encoder",
                              {{"model_type", "umt5"},
                               {"vocab_size", 100},
                               {"d_model", 32},
                               {"d_kv", head_dim},
                               {"d_ff", 24},
                               {"num_layers", 1},
                               {"num_heads", 3},
                               {"feed_forward_proj", "gated-gelu"}}},
                             {"scheduler",
                              {{"_class_name", "UniPCMultistepScheduler"},
                               {"prediction_type", "flow_prediction"},
                               {"use_flow_sigmas", true}}}};
  return Pipeline::open(Checkpoint::with_random_weights("some.yaml", "WanTransformer3DModel", architecture),
                        {.device = "cpu", .weights = "fp8", .text_weights = "fp8"});
}

TEST(Pipeline, IgnoresFp8ThatNoLayerSupports) {
  const auto wide = open_in_fp8(/*head_dim=*/32);
  EXPECT_TRUE(wide->fp8_weights());
  EXPECT_TRUE(wide->fp8_text_weights());
  EXPECT_EQ(wide->why_weights_have_no_effect() + wide->why_text_weights_have_no_effect(), "");
  const auto narrow = open_in_fp8(/*head_dim=*/24);
  EXPECT_FALSE(narrow->fp8_weights());
  EXPECT_FALSE(narrow->fp8_text_weights());
  EXPECT_EQ(narrow->why_weights_have_no_effect(),
            "for a transformer whose blocks have no layer with sizes that are multiples of 16");
  EXPECT_EQ(narrow->why_text_weights_have_no_effect(),
            "for a text encoder without a layer whose sizes are multiples of 16");
  const auto usual = Pipeline::open(SPARSEREEL_TINY_MODEL, "cpu", "auto");
  EXPECT_EQ(usual->why_weights_have_no_effect() + usual->why_text_weights_have_no_effect(), "");
}

TEST(Pipeline, CountsWeightsInTheFormatOfTheRun) {
  const Checkpoint folder = Checkpoint::open(SPARSEREEL_TINY_MODEL);
  for (const char* role : {"transformer", "text_encoder"}) {
    const uint64_t whole = weight_bytes(folder, role, at::kFloat);
    EXPECT_EQ(whole, 2 * folder.component(role).bytes()) << role;  // twice the file's size, because the file is in fp16
    EXPECT_LT(weight_bytes(folder, role, {at::kFloat, /*in_fp8=*/true}), whole) << role;
  }
}

}  // namespace
}  // namespace sparsereel::models
