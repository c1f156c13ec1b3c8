// Tests the ModelSpec of a MiniMax-H3 folder, and that an error about an unsupported config names the file and the
// field.
#include "models/families/minimax_h3/family.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "hilbert/error.h"
#include "models/engine/frames.h"
#include "models/engine/pipeline.h"
#include "models/engine/text_stage.h"
#include "models/files/json_text.h"
#include "models/request/fields.h"
#include "models/request/frame_area.h"
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

/// Returns the cause and the remedy of the error that a call throws, joined; empty if it throws none.
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

TEST_F(MiniMaxH3Family, ReadsHowImagesBecomePatches) {
  const auto least = [this] { return spec().image.text_patches->least_pixels; };
  constexpr int64_t kDefault = 65536;
  EXPECT_EQ(least(), kDefault) << "no processor";
  set("model_index.json", "processor", {"transformers", "Qwen3VLProcessor"});
  EXPECT_EQ(least(), kDefault) << "a processor without files";
  fs::create_directory(folder_ / "processor");
  const fs::path joint = folder_ / "processor/processor_config.json",
                 own = folder_ / "processor/preprocessor_config.json";
  write_text(joint, R"({"image_processor": {"size": {"shortest_edge": 1024, "longest_edge": 4096}}})");
  EXPECT_EQ(least(), 1024) << "transformers 5";
  write_text(joint, R"({"image_processor": {"image_mean": [0.5]}})");
  EXPECT_TRUE(fails({"processor/processor_config.json: image_processor", "image_mean"}));
  write_text(own, R"({"size": {"shortest_edge": 2048, "longest_edge": 4096}, "image_std": [0.1, 0.2, 0.3]})");
  EXPECT_EQ(least(), 2048);
  EXPECT_EQ(spec().image.text_patches->image_std[2], 0.3);
  set("model_index.json", "processor", {"transformers", "AutoProcessor"});
  EXPECT_EQ(least(), 2048) << "the config counts, not the class that joins it with a tokenizer";
  write_text(own, R"({"patch_size": "big"})");
  EXPECT_TRUE(fails({"processor/preprocessor_config.json", "patch_size"}));
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
  EXPECT_FALSE(plan.max_sequence_length);
  EXPECT_GT(plan.text_tokens, 3);
  EXPECT_EQ(plan.num_frames, 56) << "2 seconds at 24 frames a second";
}

TEST_F(MiniMaxH3Family, TakesAFirstAndALastImageOrOneOfThem) {
  Request request;
  request.width = request.height = 64;
  request.num_frames = 22;
  const int64_t text = resolve_request(request, spec()).text_tokens;
  for (const auto& [first, last, count] : {std::tuple{"a", "", 1}, {"", "b", 1}, {"a", "b", 2}}) {
    request.image = first;
    request.last_image = last;
    const Plan plan = resolve_request(request, spec());
    EXPECT_EQ(plan.images(), count);
    // A keyframe has a token for each patch of a latent frame, and the text one for each square of 32 pixels of the
    // picture, which grows to 256 x 256.
    EXPECT_EQ(plan.text_tokens, text + count * (2 * 2 + 8 * 8));
    EXPECT_FALSE(plan.resize) << "the model has a rule of its own";
    const json recipe = recipe_of(plan);
    EXPECT_FALSE(recipe.contains("resize") || recipe.contains("max_sequence_length")) << recipe;
    EXPECT_EQ(recipe.value("last_image", ""), last);
  }
}

/// The reference keeps the length of the shorter side, unless the area would then exceed that of 1344x768.
TEST_F(MiniMaxH3Family, GivesAVideoTheShapeOfItsFirstGivenImage) {
  const auto size_for = [this](int64_t height, int64_t width, const std::string& area = "") {
    Request request;
    request.last_image = "b";
    request.image_size = {.height = height, .width = width};
    if (!area.empty()) request.size = find_frame_area(area);
    const Plan plan = resolve_request(request, spec());
    return std::pair(plan.width, plan.height);
  };
  using Size = std::pair<int64_t, int64_t>;
  EXPECT_EQ(size_for(1080, 1920), Size(1344, 768));
  EXPECT_EQ(size_for(300, 400), Size(1024, 768));
  EXPECT_EQ(size_for(400, 300), Size(768, 1024));
  EXPECT_EQ(size_for(500, 500), Size(768, 768));
  EXPECT_EQ(size_for(100, 300), Size(1760, 576));
  EXPECT_EQ(size_for(1080, 1920, "480p"), Size(832, 480));
}

TEST_F(MiniMaxH3Family, WarnsOfSizesAndLengthsThatItWasNotMadeFor) {
  const auto warning = [this](int64_t width, int64_t height, int64_t frames) {
    Request request;
    request.width = width;
    request.height = height;
    request.num_frames = frames;
    const ModelSpec found = spec();
    return unusual_size_warning(resolve_request(request, found), found);
  };
  for (const int64_t frames : {124, 345}) EXPECT_EQ(warning(1344, 768, frames), "");
  EXPECT_EQ(warning(480, 864, 124), "");
  EXPECT_THAT(warning(1344, 768, 107), AllOf(HasSubstr("not made for 107 frames"), HasSubstr("124 to 345 frames")));
  EXPECT_THAT(warning(64, 64, 124), AllOf(HasSubstr("64x64,"), HasSubstr("480 to 768 pixels")));
  EXPECT_THAT(warning(2080, 480, 362),
              AllOf(HasSubstr("2080x480 and 362 frames"), HasSubstr("at most 4 times that, and for 124")));
}

TEST_F(MiniMaxH3Family, NamesTheFileThatDoesNotLookAtImages) {
  const fs::path file = folder_ / "text_encoder" / "model.safetensors";
  std::string bytes = test::read_text(file);
  const std::string vision = "model.visual.", ignored = "lm_head.vis2.";  // equally long, so that offsets stay
  for (size_t at = bytes.find(vision); at != std::string::npos; at = bytes.find(vision))
    bytes.replace(at, vision.size(), ignored);
  write_text(file, bytes);
  const auto pipeline = Pipeline::open(folder_.path().string(), "cpu", "fp32");
  EXPECT_NO_THROW(pipeline->check_weights());
  EXPECT_THAT(error_of([&] { pipeline->check_weights(/*with_images=*/true); }),
              AllOf(HasSubstr("text_encoder"), HasSubstr("model.visual.*"), HasSubstr("leave the images out")));
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
