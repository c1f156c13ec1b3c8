// Tests libsparsereel as other programs use it: linked only to the shared library, through its one header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <sstream>
#include <thread>

#include "tests/library/small_requests.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel {
namespace {

using test::failure_of;
using test::kModel;
using test::small;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pointwise;
using ::testing::StartsWith;

TEST(Library, TakesATransformerFileInsteadOfTheFolders) {
  const std::string model = std::string(SPARSEREEL_TEST_DATA) + "/wan/pipeline";
  const std::string file = model + "/vae/diffusion_pytorch_model.safetensors";
  const Failure wrong = failure_of([&] { TextToVideo(model, {.device = "cpu", .transformer = file}); });
  EXPECT_EQ(wrong.code(), 2);
  EXPECT_THAT(wrong.cause(), StartsWith(file + ": holds no WanTransformer3DModel"));
  const Failure none = failure_of([&] { TextToVideo(model, {.device = "cpu", .transformer_2 = file}); });
  EXPECT_EQ(none.field(), "transformer_2");
}

/// Writes a YAML file like those in configs/. It describes the architecture of the diffusers folder `model`.
void describe(const std::filesystem::path& model, const std::filesystem::path& yaml) {
  std::string text =
      "match: {class: WanTransformer3DModel, layers: 2, heads: 2, boundary_ratio: null}\narchitecture:\n";
  for (const char* role : {"transformer", "vae", "text_encoder", "scheduler"}) {
    std::ifstream config(model / role / (role == std::string("scheduler") ? "scheduler_config.json" : "config.json"));
    std::stringstream json;
    json << config.rdbuf();
    text += std::string("  ") + role + ": " + std::regex_replace(json.str(), std::regex("\n"), "\n    ") + "\n";
  }
  test::write_text(yaml, text);
}

TEST(Library, OpensAModelFromSeparateFiles) {
  const test::TemporaryFolder folder;
  const std::filesystem::path model = SPARSEREEL_TEST_DATA "/wan/pipeline";
  describe(model, folder / "small.yaml");
  ModelOptions options = {.device = "cpu", .configs = folder.path()};
  options.transformer = model / "transformer" / "diffusion_pytorch_model.safetensors.index.json";
  options.text_encoder = model / "text_encoder" / "model.safetensors";
  const Failure lacking = failure_of([&] { TextToVideo("", options); });
  EXPECT_THAT(lacking.cause(), HasSubstr("is the transformer of small, but the model's vae is missing"));
  options.vae = model / "vae" / "diffusion_pytorch_model.safetensors";
  options.tokenizer = model / "tokenizer";
  VideoRequest request = small();
  request.height = 32;
  request.frames = 5;
  EXPECT_EQ(TextToVideo("", options).generate(request).pixels,
            TextToVideo(model, {.device = "cpu", .configs = folder.path()}).generate(request).pixels);
}

TEST(Library, TakesTextEncoderAndTokenizerFilesInsteadOfTheFolders) {
  const std::string model = std::string(SPARSEREEL_TEST_DATA) + "/wan/pipeline";
  const std::string encoder = model + "/text_encoder/model.safetensors", tokenizer = model + "/tokenizer/spiece.model";
  const VideoRequest request = {.prompt = "a red circle", .steps = 1, .width = 32, .height = 32, .frames = 1};
  const Video usual = TextToVideo(model, {.device = "cpu"}).generate(request);
  const Video same =
      TextToVideo(model, {.device = "cpu", .text_encoder = encoder, .tokenizer = tokenizer}).generate(request);
  EXPECT_EQ(same.pixels, usual.pixels);
  const Failure wrong = failure_of([&] { TextToVideo(kModel, {.device = "cpu", .text_encoder = encoder}); });
  EXPECT_THAT(wrong.cause(), StartsWith(encoder + ": does not fit"));
  const Failure none = failure_of([&] { TextToVideo(model, {.device = "cpu", .tokenizer = "none"}); });
  EXPECT_THAT(none.cause(), StartsWith("none: no such file"));
}

TEST(Library, MakesTheSameVideoForTheSameRequest) {
  TextToVideo model(kModel, {.device = "cpu"});
  const Video a = model.generate(small()), b = model.generate(small());
  EXPECT_EQ((std::vector{a.frames, a.height, a.width}), (std::vector<int64_t>{9, 64, 32}));
  ASSERT_EQ(a.pixels.size(), 9U * 64 * 32 * 3);
  EXPECT_EQ(a.pixels, b.pixels);
  EXPECT_GE(*std::min_element(a.pixels.begin(), a.pixels.end()), 0);
  EXPECT_LE(*std::max_element(a.pixels.begin(), a.pixels.end()), 1);
  VideoRequest other = small();
  other.seed = 43;
  EXPECT_NE(model.generate(other).pixels, a.pixels);
  EXPECT_TRUE(a.warnings.empty());
}

TEST(Library, ReportsStepsAndStopsOnRequest) {
  TextToVideo model(kModel, {.device = "cpu"});
  std::vector<int64_t> steps;
  model.generate(small(), [&](int64_t step, int64_t all) {
    EXPECT_EQ(all, 2);
    steps.push_back(step);
    return true;
  });
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2}));
  for (const int64_t last : {1, 2}) {
    int64_t calls = 0;
    const Failure failure = failure_of([&] {
      model.generate(small(), [&](int64_t step, int64_t) {
        ++calls;
        return step < last;
      });
    });
    EXPECT_EQ(failure.code(), 130);
    EXPECT_EQ(calls, last);
  }
  EXPECT_EQ(model.generate(small()).frames, 9);  // the model can still be used
}

TEST(Library, RefusesACallThatOverlapsAnother) {
  TextToVideo model(kModel, {.device = "cpu"});
  const Video expected = model.generate(small());
  Failure in_callback(0, "", ""), in_thread(0, "", "");
  const Video made = model.generate(small(), [&](int64_t step, int64_t) {
    if (step > 1) return true;
    in_callback = failure_of([&] { model.generate(small()); });
    std::thread([&] { in_thread = failure_of([&] { model.generate(small()); }); }).join();
    return true;
  });
  for (const Failure& failure : {in_callback, in_thread}) {
    EXPECT_EQ(failure.code(), 2);
    EXPECT_THAT(failure.cause(), HasSubstr("this TextToVideo is making another video"));
  }
  EXPECT_EQ(made.pixels, expected.pixels);
  EXPECT_EQ(model.generate(small()).pixels, expected.pixels);
}

TEST(Library, ReportsUseOfAMovedFromObject) {
  TextToVideo model(kModel, {.device = "cpu"});
  const TextToVideo other = std::move(model);
  // NOLINTNEXTLINE(bugprone-use-after-move): this test checks the error after a move
  EXPECT_THAT(failure_of([&] { model.generate(small()); }).cause(), HasSubstr("moved from"));
}

TEST(Library, PassesExceptionsOfTheCallbackToTheCaller) {
  TextToVideo model(kModel, {.device = "cpu"});
  EXPECT_THROW(model.generate(small(), [](int64_t, int64_t) -> bool { throw std::out_of_range("mine"); }),
               std::out_of_range);
}

TEST(Library, ReportsTheErrorsOfTheCommandLine) {
  const Failure missing = failure_of([] { TextToVideo("nowhere"); });
  EXPECT_EQ(missing.code(), 2);
  EXPECT_THAT(missing.cause(), HasSubstr("nowhere"));
  EXPECT_EQ(missing.what(), missing.cause() + "\n  remedy: " + missing.remedy());
  EXPECT_THAT(failure_of([] { TextToVideo(kModel, {.device = "tpu"}); }).cause(), StartsWith("device tpu"));
  EXPECT_THAT(failure_of([] { TextToVideo(kModel, {.device = "cuda:-1"}); }).cause(), StartsWith("device cuda:-1"));
  EXPECT_EQ(failure_of([] { TextToVideo(kModel, {.device = "cpu", .dtype = "int8"}); }).cause(),
            "dtype int8: one of auto, fp32, bf16, fp16 is needed");
  const Failure weights = failure_of([] { TextToVideo(kModel, {.device = "cpu", .text_weights = "int4"}); });
  EXPECT_EQ(weights.cause(), "text_weights int4: auto, fp8 or int8 is needed");
  EXPECT_EQ(weights.field(), "text_weights");
  EXPECT_THAT(failure_of([] { TextToVideo(kModel, {.threads = -1}); }).cause(), StartsWith("threads -1 is outside 1"));
  EXPECT_THAT(failure_of([] { TextToVideo(kModel, {.threads = 5000000}); }).cause(),
              StartsWith("threads 5000000 is outside 1 to "));
}

TEST(Library, RefusesAVideoThatExceedsMemory) {
  TextToVideo model(kModel, {.device = "cpu"});
  VideoRequest request = small();
  request.width = 16000000;
  const Failure failure = failure_of([&] { model.generate(request); });
  EXPECT_EQ(failure.code(), 2);
  EXPECT_THAT(failure.cause(), StartsWith("a video of 16000000 x "));
  EXPECT_EQ(failure.remedy(), "choose a smaller width or height, or fewer frames");
}

struct Refused {
  std::function<void(VideoRequest&)> change;
  std::string cause;
};

// tests/cli/failures_test.py tests the same on the command line.
TEST(Library, RefusesTheSameValuesAsTheCommandLine) {
  const double nan = std::nan("");
  const std::vector<Refused> cases = {
      {[](auto& r) { r.prompt = " \t"; }, "prompt is empty"},
      {[](auto& r) { r.steps = 0; }, "steps 0 is below 1"},
      {[](auto& r) { r.steps = 1001; }, "steps 1001 exceeds the scheduler's num_train_timesteps"},
      {[](auto& r) { r.width = 250; }, "width 250 is impossible for this model: it must be a multiple of 16"},
      {[](auto& r) { r.height = 33; }, "height 33 is impossible for this model: it must be a multiple of 16"},
      {[](auto& r) { r.width = 0; }, "width 0 is impossible for this model: it must be a multiple of 16"},
      {[](auto& r) { r.frames = 30; },
       "frames 30 is impossible for this model: it must be 1 more than a multiple of 8, or a multiple of 8"},
      {[](auto& r) { r.frames = -3; },
       "frames -3 is impossible for this model: it must be 1 more than a multiple of 8, or a multiple of 8"},
      {[](auto& r) { r.frames = 9, r.seconds = 1; }, "seconds and frames exclude each other"},
      {[](auto& r) { r.frames = {}, r.seconds = 0; }, "seconds 0 is not a number above 0 and at most 86400"},
      {[](auto& r) { r.max_sequence_length = 17; }, "max_sequence_length 17 exceeds the model's max_text_seq_length"},
      {[=](auto& r) { r.cfg_scale = nan; }, "cfg_scale nan is not a number from 0 to 1000"},
      {[](auto& r) { r.cfg_scale = -1; }, "cfg_scale -1 is not a number from 0 to 1000"},
      {[](auto& r) { r.cfg_scale = 1e30; }, "cfg_scale 1e+30 is not a number from 0 to 1000"},
      {[](auto& r) { r.cfg_scale_2 = 1e30; }, "cfg_scale_2 1e+30 is not a number from 0 to 1000"},
      {[](auto& r) { r.flow_shift = 1e300; }, "flow_shift 1e+300 is not a number above 0 and at most 1e+09"},
      {[](auto& r) { r.flow_shift = -1; }, "flow_shift -1 is not a number above 0 and at most 1e+09"},
      {[](auto& r) { r.guidance_passes = "both"; }, "guidance_passes both: one of batched, in-turn is needed"},
      {[](auto& r) { r.scheduler = "euler"; }, "scheduler euler is not a sampler of this model"},
      {[](auto& r) { r.topk = 0; }, "topk is 0"},
      {[](auto& r) { r.topk = 1.5; }, "topk is 1.5"},
      {[](auto& r) { r.topk = 1.0000001; }, "topk is 1.0000001"},
      {[=](auto& r) { r.topk = nan; }, "topk is nan"},
      {[](auto& r) { r.cdf = 2; }, "cdf is 2"},
      {[](auto& r) { r.similarity = -2; }, "similarity is -2"},
      {[=](auto& r) { r.pv_threshold = nan; }, "pv_threshold is nan"},
      {[](auto& r) { r.dense_steps = "-1"; },
       "dense_steps -1 is neither a count of steps nor a percentage from 0 to 100%"},
      {[](auto& r) { r.topk = r.cdf = 0.5; }, "topk and cdf exclude each other"},
      {[](auto& r) { r.topk = 0.5, r.error = 0.1; }, "topk and error exclude each other"},
      {[](auto& r) { r.cdf = 0.5, r.error = 0.1; }, "cdf and error exclude each other"},
      {[](auto& r) { r.error = 0; }, "error is 0"},
      {[](auto& r) { r.topk = 0.5, r.block_error = 0.1; }, "topk and block_error exclude each other"},
      {[](auto& r) { r.block_error = 0; }, "block_error is 0"},
      {[](auto& r) { r.dropped = "median"; }, "dropped median: one of mean, none is needed"},
      {[](auto& r) { r.select = "topk"; }, "select topk: one of error, mass is needed"},
      {[](auto& r) { r.dropped = "none", r.select = "error"; }, "dropped none and select error exclude each other"},
      {[](auto& r) { r.dropped = "none", r.error = 0.1; }, "dropped none and error exclude each other"},
      {[](auto& r) { r.select = "mass", r.error = 0.1; }, "select mass and error exclude each other"},
      {[](auto& r) { r.select = "mass", r.block_error = 0.1; }, "select mass and block_error exclude each other"},
      {[](auto& r) { r.dropped = "mean", r.cell = 48; }, "cell is 48"},
      {[](auto& r) { r.arithmetic = 32; }, "arithmetic is 32"},
      {[](auto& r) { r.arithmetic = 16, r.attention = "quantized"; },
       "arithmetic 16 and attention quantized exclude each other"},
      {[](auto& r) { r.attention = "dense"; }, "attention dense: one of full, quantized, sparse, check is needed"},
      {[](auto& r) { r.token_order = "peano"; },
       "token_order peano: one of hilbert, native, time-major, morton, random is needed"},
      {[](auto& r) { r.cache = "teacache:0.1"; }, "cache teacache:0.1: teacache is not a kind of cache"},
      {[](auto& r) { r.cache = "forecast:-1"; },
       "cache forecast:-1: the threshold must be a finite number of at least 0"},
      {[](auto& r) { r.cache = "steps:1.5"; },
       "cache steps:1.5: the number of steps must be a whole number of at least 1"},
      {[](auto& r) { r.vae_tiling = "maybe"; }, "vae_tiling maybe: one of auto, on, off is needed"},
  };
  TextToVideo model(kModel, {.device = "cpu"});
  for (const Refused& each : cases) {
    VideoRequest request = small();
    each.change(request);
    bool ran = false;
    const Failure failure = failure_of([&] { model.generate(request, [&](int64_t, int64_t) { return ran = true; }); });
    EXPECT_EQ(failure.cause(), each.cause);
    const bool of_two = each.cause.find("exclude each other") != std::string::npos;
    EXPECT_EQ(failure.field(), of_two ? "" : each.cause.substr(0, each.cause.find(' ')));
    EXPECT_EQ(failure.code(), 2) << each.cause;
    EXPECT_THAT(failure.remedy(), ::testing::Not(IsEmpty())) << each.cause;
    EXPECT_FALSE(ran) << each.cause;
  }
}

// tests/cli/options_test.py tests the same on the command line.
TEST(Library, WarnsAboutMembersWithoutEffect) {
  struct NoEffect {
    std::function<void(VideoRequest&)> base, change;
    std::vector<std::string> warnings;
  };
  const auto none = [](auto&) {};
  const std::string full = " has no effect with attention full, which computes every block";
  const std::vector<NoEffect> cases = {
      {[](auto& r) { r.attention = "full"; },
       [](auto& r) { r.topk = 0.5, r.dropped = "mean", r.dense_steps = "1"; },
       {"topk 0.5" + full, "dropped mean" + full, "dense_steps 1" + full}},
      {[](auto& r) { r.attention = "full"; },
       [](auto& r) { r.dropped = "none", r.cell = 32; },
       {"dropped none" + full, "cell 32" + full}},
      {[](auto& r) { r.attention = "quantized"; },
       [](auto& r) { r.dense_layers = 1; },
       {"dense_layers 1 has no effect with attention quantized, which computes every block"}},
      {[](auto& r) { r.attention = "full"; }, [](auto& r) { r.arithmetic = 16; }, {"arithmetic 16" + full}},
      {[](auto&) {},
       [](auto& r) { r.arithmetic = 16; },
       {"arithmetic 16 has no effect on a CPU, which computes in fp32"}},
      {[](auto& r) { r.dropped = "none"; },
       [](auto& r) { r.cell = 32; },
       {"cell 32 has no effect with dropped none, which has no means"}},
      {[](auto& r) { r.cfg_scale = 0.5; },
       [](auto& r) { r.negative_prompt = "blurry", r.guidance_passes = "in-turn", r.dynamic_cfg = true; },
       {"negative_prompt blurry has no effect without guidance (cfg_scale 0.5)",
        "guidance_passes in-turn has no effect without guidance (cfg_scale 0.5)",
        "dynamic_cfg true has no effect without guidance (cfg_scale 0.5)"}},
      {[](auto& r) { r.steps.reset(); },  // because sigmas fix the number of steps
       [](auto& r) {
         r.cfg_scale_2 = 3, r.flow_shift = 5, r.sigmas = {1, 0.25};
       },
       {"cfg_scale_2 3 has no effect for a model with one transformer",
        "flow_shift 5 has no effect with a scheduler that does not use flow matching",
        "sigmas 1,0.25 has no effect with a scheduler that does not use flow matching"}},
      {[](auto& r) { r.steps = 1; },
       [](auto& r) { r.cache = "0.1"; },
       {"cache 0.1 has no effect with one step, because no later step can reuse it"}},
      {[](auto& r) { r.steps = 2; },
       [](auto& r) { r.cache = "steps:2"; },
       {"cache steps:2 has no effect with 2 steps, all of which it computes"}},
      {none, [](auto& r) { r.no_audio = true; }, {"no_audio true has no effect for a model that makes no sound"}},
      {none, none, {}},
  };
  TextToVideo model(kModel, {.device = "cpu"});
  for (const NoEffect& each : cases) {
    VideoRequest request = small();
    each.base(request);
    const Video plain = model.generate(request);
    EXPECT_THAT(plain.warnings, IsEmpty());
    each.change(request);
    const Video video = model.generate(request);
    EXPECT_EQ(video.warnings, each.warnings);
    EXPECT_EQ(video.pixels, plain.pixels);
  }
  TextToVideo offloaded(kModel, {.device = "cpu", .offload = true});
  EXPECT_THAT(offloaded.generate(small()).warnings,
              ElementsAre("offload has no effect on a CPU, whose memory is the host's"));
}

/// Copies the model, but replaces its text encoder with an encoder of one layer of zeros. The sizes of its matrices are
/// not multiples of 16.
void copy_narrow_model(const std::filesystem::path& to) {
  struct Matrix {
    std::string name;
    size_t rows, columns;  // columns is 0 for a vector
  };
  const std::string attention = "encoder.block.0.layer.0.", feed_forward = "encoder.block.0.layer.1.";
  const std::vector<Matrix> matrices = {{"shared", 119, 32},
                                        {"encoder.final_layer_norm", 32, 0},
                                        {attention + "layer_norm", 32, 0},
                                        {attention + "SelfAttention.q", 12, 32},
                                        {attention + "SelfAttention.k", 12, 32},
                                        {attention + "SelfAttention.v", 12, 32},
                                        {attention + "SelfAttention.o", 32, 12},
                                        {attention + "SelfAttention.relative_attention_bias", 32, 3},
                                        {feed_forward + "layer_norm", 32, 0},
                                        {feed_forward + "DenseReluDense.wi_0", 40, 32},
                                        {feed_forward + "DenseReluDense.wi_1", 40, 32},
                                        {feed_forward + "DenseReluDense.wo", 32, 40}};
  std::ostringstream header;
  size_t end = 0;
  for (const Matrix& matrix : matrices) {
    header << (end == 0 ? "{" : ",") << "\"" << matrix.name << R"(.weight":{"dtype":"F16","shape":[)" << matrix.rows;
    if (matrix.columns > 0) header << "," << matrix.columns;
    header << R"(],"data_offsets":[)" << end << ",";
    end += 2 * matrix.rows * std::max<size_t>(matrix.columns, 1);
    header << end << "]}";
  }
  header << "}";
  const uint64_t length = header.str().size();
  std::string data(sizeof length, '\0');
  std::memcpy(data.data(), &length, sizeof length);
  std::filesystem::copy(kModel, to, std::filesystem::copy_options::recursive);
  test::write_text(to / "text_encoder" / "model.safetensors", data + header.str() + std::string(end, '\0'));
  test::write_text(to / "text_encoder" / "config.json",
                   R"({"d_model": 32, "d_kv": 4, "d_ff": 40, "num_layers": 1, "num_heads": 3, "vocab_size": 119,
                       "feed_forward_proj": "gated-gelu"})");
}

TEST(Library, WarnsAboutFp8ThatNoLayerSupports) {
  const test::TemporaryFolder folder;
  copy_narrow_model(folder / "model");
  const std::string narrow = (folder / "model").string();
  const Video plain = TextToVideo(narrow, {.device = "cpu"}).generate(small());
  EXPECT_THAT(plain.warnings, IsEmpty());
  const Video reduced = TextToVideo(narrow, {.device = "cpu", .text_weights = "fp8"}).generate(small());
  EXPECT_THAT(
      reduced.warnings,
      ElementsAre("text_weights fp8 has no effect for a text encoder without a layer whose sizes are multiples of 16"));
  EXPECT_EQ(reduced.pixels, plain.pixels);
  EXPECT_THAT(
      TextToVideo(kModel, {.device = "cpu", .weights = "fp8", .text_weights = "fp8"}).generate(small()).warnings,
      IsEmpty());
}

/// Copies the model and sets the bias of the decoder's last layer to the fp16 number with the bits `half`.
void copy_model(const std::filesystem::path& to, uint16_t half) {
  std::filesystem::copy(kModel, to, std::filesystem::copy_options::recursive);
  const std::filesystem::path path = to / "vae" / "diffusion_pytorch_model.safetensors";
  std::ifstream in(path, std::ios::binary);
  std::string data{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  uint64_t header = 0;
  std::memcpy(&header, data.data(), sizeof header);
  const std::string key = "\"data_offsets\":[";
  const size_t entry = data.find("\"decoder.conv_out.conv.bias\"");
  ASSERT_LT(entry, header);
  size_t begin = 0, end = 0;
  ASSERT_EQ(std::sscanf(data.c_str() + data.find(key, entry) + key.size(), "%zu,%zu", &begin, &end), 2);
  for (size_t at = begin; at < end; at += sizeof half) std::memcpy(&data[8 + header + at], &half, sizeof half);
  std::ofstream(path, std::ios::binary) << data;
}

TEST(Library, ReportsABlackVideo) {
  const test::TemporaryFolder folder;
  copy_model(folder.path() / "model", 0xF000);
  TextToVideo model((folder.path() / "model").string(), {.device = "cpu"});
  const Video video = model.generate(small());
  EXPECT_EQ(video.defect, "is black");
  EXPECT_THAT(video.warnings, ElementsAre("the video is black"));
}

TEST(Library, ReportsNaNInFrames) {
  const test::TemporaryFolder folder;
  copy_model(folder.path() / "model", 0x7E00);
  TextToVideo model((folder.path() / "model").string(), {.device = "cpu"});
  const Failure failure = failure_of([&] { model.generate(small()); });
  EXPECT_EQ(failure.code(), 1);
  EXPECT_THAT(failure.cause(), HasSubstr("frames hold NaN"));
}

TEST(Library, WarnsAboutMoreFramesThanRequested) {
  TextToVideo model(kModel, {.device = "cpu"});
  VideoRequest request = small();
  request.frames = 5;
  const Video video = model.generate(request);
  EXPECT_EQ(video.frames, 8);
  EXPECT_THAT(video.warnings, ElementsAre(HasSubstr("makes 8 frames instead of 5")));
  EXPECT_THAT(video.defect, IsEmpty());
}

TEST(Library, RunsObjectsInDifferentThreads) {
  TextToVideo first(kModel, {.device = "cpu"}), second(kModel, {.device = "cpu"});
  VideoRequest other = small();
  other.seed = 43;
  const std::vector<float> expected = first.generate(small()).pixels, expected_other = second.generate(other).pixels;
  Video video;
  std::thread thread([&] { video = first.generate(small()); });
  EXPECT_EQ(second.generate(other).pixels, expected_other);
  thread.join();
  EXPECT_EQ(video.pixels, expected);
}

TEST(Library, UsesTheRequestedGuidance) {
  TextToVideo model(std::string(SPARSEREEL_TEST_DATA) + "/wan/pipeline_two_experts", {.device = "cpu"});
  VideoRequest request = small();
  request.frames = 5;
  const std::vector<float> usual = model.generate(request).pixels;
  request.guidance_passes = "in-turn";  // the same result, except that sums have another order
  EXPECT_THAT(model.generate(request).pixels, Pointwise(FloatNear(1e-3), usual));
  for (std::optional<double> VideoRequest::*member : {&VideoRequest::cfg_scale_2, &VideoRequest::flow_shift}) {
    VideoRequest other = request;
    other.*member = 1.5;
    EXPECT_NE(model.generate(other).pixels, usual);
  }
}

TEST(Library, TakesNoiseLevelsInsteadOfSteps) {
  TextToVideo model(std::string(SPARSEREEL_TEST_DATA) + "/wan/pipeline", {.device = "cpu"});
  VideoRequest request = small();
  request.frames = 5;
  const std::vector<float> usual = model.generate(request).pixels;
  request.steps.reset();
  request.sigmas = {1, 0.75, 0.5};
  std::vector<int64_t> counts;
  const std::vector<float> pixels = model
                                        .generate(request,
                                                  [&](int64_t, int64_t steps) {
                                                    counts.push_back(steps);
                                                    return true;
                                                  })
                                        .pixels;
  EXPECT_NE(pixels, usual);
  EXPECT_THAT(counts, ElementsAre(3, 3, 3));
  request.steps = 2;
  EXPECT_EQ(failure_of([&] { model.generate(request); }).cause(), "sigmas and steps exclude each other");
  request.steps.reset();
  request.sigmas = {0.5, 1};
  const Failure failure = failure_of([&] { model.generate(request); });
  EXPECT_EQ(failure.cause(), "sigmas do not fall from each value to the next");
  EXPECT_EQ(failure.field(), "sigmas");
}

TEST(Library, UsesTheRequestedAttention) {
  TextToVideo model(kModel, {.device = "cpu"});
  VideoRequest request = small();
  request.width = request.height = 128;
  request.topk = 0.2;
  EXPECT_GT(model.generate(request).sparsity, 0.1);
  request.attention = "full";
  request.topk.reset();
  EXPECT_EQ(model.generate(request).sparsity, 0);
}

}  // namespace
}  // namespace sparsereel
