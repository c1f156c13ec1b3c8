// Tests the description of a MiniMax-H3 folder, and that each config that does not fit is named with its field.
#include "models/families/minimax_h3/family.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "hilbert/error.h"
#include "models/engine/pipeline.h"
#include "models/engine/text_stage.h"
#include "models/files/json_text.h"
#include "models/request/outcome.h"
#include "models/request/resolve.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/describe.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::throws_error;
using test::write_text;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kFolder = SPARSEREEL_TEST_DATA "/minimax_h3/pipeline";

/// Returns cause and remedy of the error that a call throws; empty if it throws none.
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(error.what()) + "; " + error.remedy();
  }
  return {};
}

class MiniMaxH3Family : public ::testing::Test {
 protected:
  MiniMaxH3Family() { fs::copy(kFolder, folder_.path(), fs::copy_options::recursive); }

  void set(const std::string& file, const std::string& field, const json& value) const {
    json content = read_json(folder_ / file);
    content[field] = value;
    write_text(folder_ / file, content.dump());
  }
  ModelSpec spec() const { return describe(Checkpoint::open(folder_.path())); }
  ::testing::AssertionResult fails(const std::vector<std::string>& parts) const {
    return throws_error([&] { spec(); }, parts);
  }

  test::TemporaryFolder folder_;
};

TEST_F(MiniMaxH3Family, DescribesAFolderWhoseIndexHasTriples) {
  const ModelSpec found = spec();
  EXPECT_EQ(found.transformer_class, "MiniMaxH3Transformer3DModel");
  EXPECT_EQ(found.scheduler.flow_shift, 12);
  EXPECT_EQ(found.sound.scheduler.flow_shift, 3);
  EXPECT_EQ(found.sound.scheduler.kind, SamplerKind::flow_to_data);
  EXPECT_EQ(found.sound.samples_a_latent, 20);
  EXPECT_EQ(found.clips.frames, 17);
  EXPECT_EQ(found.clips.latents, 5);
  EXPECT_EQ(found.clips.more_frames, 5);
  EXPECT_EQ(found.clips.more_latents, 2);
  EXPECT_THAT(found.license, HasSubstr("https://"));
  EXPECT_EQ(found.attribution, "MiniMax H3");
}

TEST_F(MiniMaxH3Family, NamesTheConfigThatDoesNotFit) {
  set("audio_vae/config.json", "latents_mean", std::vector<double>(7, 0.0));
  set("audio_vae/config.json", "latents_std", std::vector<double>(7, 1.0));
  set("audio_vae/config.json", "latent_channels", 7);
  EXPECT_TRUE(fails({"audio_vae/config.json: latent_channels 7", "audio_in_channels 5"}));
  set("transformer/config.json", "text_dim", 24);
  EXPECT_TRUE(fails({"text_encoder/config.json: hidden_size 16", "text_dim 24"}));
  set("transformer/config.json", "in_channels", 8);
  set("transformer/config.json", "text_dim", 16);
  EXPECT_TRUE(fails({"vae/config.json: latent_channels 6", "in_channels 8"}));
}

TEST_F(MiniMaxH3Family, NamesTheSchedulerThatIsWrong) {
  set("audio_scheduler/scheduler_config.json", "shift", -1);
  EXPECT_TRUE(fails({"audio_scheduler/scheduler_config.json: shift"}));
}

TEST_F(MiniMaxH3Family, IsRefusedInFp16) {
  EXPECT_THAT(error_of([&] { Pipeline::open(kFolder, "cpu", "fp16"); }),
              AllOf(HasSubstr("dtype fp16"), HasSubstr("use bf16 or fp32")));
  EXPECT_NO_THROW(Pipeline::open(kFolder, "cpu", "bf16"));
}

TEST_F(MiniMaxH3Family, IgnoresWhatHasNoEffect) {
  Request request;
  request.guidance_scale = 6;
  request.negative_prompt = "blurry";
  request.scheduler = "unipc";
  request.max_sequence_length = 3;
  request.fps = 8;
  request.seconds = 2;
  const Plan plan = resolve_request(request, spec());
  EXPECT_FALSE(plan.is_guided());
  EXPECT_EQ(plan.scheduler, "MiniMaxH3Scheduler");
  EXPECT_GT(plan.max_sequence_length, 3);
  EXPECT_EQ(plan.num_frames, 56) << "2 seconds at 24 frames a second";
}

TEST_F(MiniMaxH3Family, DecodesAlikeWhateverIsAskedOfItsVae) {
  Request request;
  request.width = request.height = 64;
  request.num_frames = 22;
  request.num_inference_steps = 2;
  const Outcome usual = Pipeline::open(kFolder, "cpu", "fp32")->generate(request);
  request.vae_dtype = "bf16";
  request.vae_tiling = VaeTiling::on;
  const auto pipeline = Pipeline::open(Checkpoint::open(kFolder), request);
  EXPECT_EQ(pipeline->resolve(request).vae_dtype, "fp32");
  const Outcome asked = pipeline->generate(request);
  EXPECT_TRUE(asked.frames.equal(usual.frames));
  EXPECT_FALSE(asked.vae_tiled);
  EXPECT_GT(asked.seconds.decode_sound, 0);
}

TEST_F(MiniMaxH3Family, MakesAVideoOfAnEmptyPromptWithoutTokens) {
  const auto pipeline = Pipeline::open(kFolder, "cpu", "fp32");
  Request request;
  request.width = request.height = 64;
  request.num_frames = 22;
  request.num_inference_steps = 2;
  const Plan plan = pipeline->resolve(request);
  EXPECT_EQ(pipeline->text_stage().encode(plan).text.size(1), 0);
  const Outcome empty = pipeline->generate(plan, {.decode = false});
  EXPECT_TRUE(at::isfinite(empty.latents.video).all().item<bool>());
  request.prompt = "a";
  EXPECT_FALSE(pipeline->generate(request, {.decode = false}).latents.video.equal(empty.latents.video));
}

TEST_F(MiniMaxH3Family, MakesOneStepLessThanIsAskedFor) {
  Request request;
  request.num_inference_steps = 50;
  const Plan plan = resolve_request(request, spec());
  EXPECT_EQ(plan.num_inference_steps, 49);
  EXPECT_EQ(plan.asked_steps, 50);
  request.num_inference_steps = 1;
  EXPECT_THAT(error_of([&] { resolve_request(request, spec()); }),
              AllOf(HasSubstr("steps 1 is impossible"), HasSubstr("use at least 2")));
  request.num_inference_steps.reset();
  request.sigmas = {1, 0.75, 0.5, 0.25};
  EXPECT_EQ(resolve_request(request, spec()).num_inference_steps, 4);
}

TEST_F(MiniMaxH3Family, NamesTheNearestSizesAndLengths) {
  Request request;
  request.width = 100;
  EXPECT_THAT(error_of([&] { resolve_request(request, spec()); }),
              AllOf(HasSubstr("width 100"), HasSubstr("use 96 or 128")));
  request.width = 96;
  request.num_frames = 121;
  EXPECT_THAT(error_of([&] { resolve_request(request, spec()); }),
              AllOf(HasSubstr("frames 121"), HasSubstr("5 more than a multiple of 17"), HasSubstr("use 107 or 124")));
}

TEST_F(MiniMaxH3Family, NamesTheFilesOfAMissingTokenizer) {
  fs::remove_all(folder_ / "tokenizer");
  EXPECT_THAT(
      error_of([&] { Checkpoint::open(folder_.path()).tokenizer(); }),
      AllOf(HasSubstr("MiniMaxAI/MiniMax-H3's tokenizer/vocab.json, tokenizer/merges.txt and tokenizer/tokeni"),
            HasSubstr("hf download MiniMaxAI/MiniMax-H3 tokenizer/vocab.json tokenizer/merges.txt tokenizer/")));
}

}  // namespace
}  // namespace sparsereel::models
