// Tests that the estimate of the least memory for a video is never above the memory that making the video takes. Also
// tests that the estimate stays right for sizes that would overflow integers.
#include "models/engine/memory_need.h"

#include <ATen/ATen.h>

#include <limits>

#include "models/engine/components.h"
#include "models/engine/pipeline.h"
#include "models/files/json_text.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/describe.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/lora.h"
#include "models/store/configs/config_file.h"
#include "models/store/weights/device.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tensor_memory.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;
using test::throws_error;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
const char* const kRemedy = "choose a smaller width or height, or fewer frames";

ModelSpec spec_of(int64_t heads) {
  ModelSpec spec;
  spec.heads = heads;
  spec.head_dim = 64;
  spec.patch = {1, 2, 2};
  spec.stride = {4, 8, 8};
  return spec;
}

Plan plan_of(int64_t width, int64_t height, int64_t num_frames) {
  Plan plan;
  plan.guidance_scale = 6;
  plan.text_tokens = 226;
  plan.width = width;
  plan.height = height;
  plan.num_frames = num_frames;
  plan.latent = latent_size(spec_of(30), num_frames, height, width);
  return plan;
}

MemoryNeed need(Plan plan, bool decode, const ModelSpec& spec, at::Device device, at::ScalarType dtype,
                const std::string& cache = "0") {
  plan.cache = parse_cache_rule(cache);
  return least_memory(plan, decode, spec, device, dtype);
}

MemoryNeed cpu_need(const Plan& plan, bool decode = true) {
  return need(plan, decode, spec_of(30), at::kCPU, at::kFloat);
}

Request request_of(int64_t side, int64_t num_frames) {
  Request request;
  request.prompt = "a red circle";
  request.attention_mode = attention::Mode::full;
  request.num_inference_steps = 1;
  request.width = request.height = side;
  request.num_frames = num_frames;
  return request;
}

TEST(MemoryNeed, CountsVideoFramesOrTransformerTensors) {
  const Plan plan = plan_of(720, 480, 49);
  const double video = 49.0 * 480 * 720 * 3, block = 5.0 * 2 * (13 * 30 * 45 + 226) * 1920;
  EXPECT_EQ(cpu_need(plan).host, block * 4);
  EXPECT_EQ(cpu_need(plan).device, 0);
  Plan without_guidance = plan_of(7200, 4800, 1);
  without_guidance.guidance_scale = 1;
  EXPECT_EQ(cpu_need(without_guidance, /*decode=*/false).host, 5.0 * (300 * 450 + 226) * 1920 * 4);
  Plan in_turn = plan;
  in_turn.guidance_passes = GuidancePasses::in_turn;
  EXPECT_EQ(cpu_need(in_turn, /*decode=*/false).host, block / 2 * 4);
  const MemoryNeed on_gpu = need(plan, true, spec_of(30), at::Device(at::kCUDA, 0), at::kBFloat16);
  EXPECT_EQ(on_gpu.host, video * 4);
  EXPECT_EQ(on_gpu.device, block * 2);
  const ModelSpec narrow = spec_of(1);
  EXPECT_EQ(need(plan, true, narrow, at::kCPU, at::kFloat).host, video * 8);
  EXPECT_EQ(need(plan, true, narrow, at::kCPU, at::kBFloat16).host, video * 6);
}

TEST(MemoryNeed, CountsTheFramesThatTheEncoderReads) {
  const at::Device gpu(at::kCUDA, 0);
  Plan plan = plan_of(7200, 4800, 49);
  const double video = 49.0 * 4800 * 7200 * 3;
  ModelSpec spec = spec_of(1);
  spec.image.encodes_video = true;
  const auto on_gpu = [&] { return need(plan, /*decode=*/true, spec, gpu, at::kBFloat16).device; };
  EXPECT_EQ(on_gpu(), video * 2) << "without an image";
  plan.image = "a.png";
  EXPECT_EQ(on_gpu(), video * 4) << "in fp32";
  EXPECT_EQ(need(plan, /*decode=*/false, spec, at::kCPU, at::kFloat).host, video * 4);
  plan.encodes_in_vae_dtype = true;
  plan.vae_dtype = "bf16";
  EXPECT_EQ(need(plan, /*decode=*/false, spec, gpu, at::kBFloat16).device, video * 2);
  spec.image.encodes_video = false;
  plan.vae_dtype = "fp32";
  EXPECT_EQ(on_gpu(), video * 2) << "one frame is less than decoding";
}

TEST(MemoryNeed, CountsImagesInTheEstimate) {
  const std::string data = SPARSEREEL_TEST_DATA;
  const Checkpoint model = Checkpoint::open(data + "/wan_i2v/pipeline");
  const ModelSpec spec = describe(model);
  const LatentSize size = latent_size(spec, 5, 64, 96);
  const uint64_t encoding = describe_vae(model, at::kFloat)->untiled_encode_bytes(5, 64, 96);
  ModelSpec of_text = spec;
  of_text.image = {};
  const MemoryEstimate with = likely_memory(model, spec, size).front(),
                       without = likely_memory(model, of_text, size).front();
  EXPECT_EQ(with.activations, encoding + 5 * 64 * 96 * 3 * sizeof(float));
  EXPECT_LT(without.total(), with.total());
}

TEST(MemoryNeed, CountsCachedTensors) {
  Plan plan = plan_of(720, 480, 49);
  plan.num_inference_steps = 50;
  const double video = 13 * 30 * 45, tokens = video + 226, both = (2 * video + 2 * tokens) * 1920 * 4;
  const auto of_cache = [&](const std::string& cache) {
    const MemoryNeed with = need(plan, /*decode=*/false, spec_of(30), at::kCPU, at::kFloat, cache);
    EXPECT_EQ(with.host - cpu_need(plan, /*decode=*/false).host, with.cache) << cache;
    return with.cache;
  };
  EXPECT_EQ(of_cache("0"), 0);
  EXPECT_EQ(of_cache("0.1"), 2 * both);
  EXPECT_EQ(of_cache("forecast:0.1"), 3 * both);
  EXPECT_EQ(of_cache("steps:20"), 3 * both);
  EXPECT_EQ(of_cache("steps:1"), both);
  plan.guidance_passes = GuidancePasses::in_turn;
  EXPECT_EQ(of_cache("0.1"), 2 * (video + 2 * tokens) * 1920 * 4);
  plan.guidance_scale = 1;
  EXPECT_EQ(of_cache("0.1"), 2 * (video + tokens) * 1920 * 4);
  plan.num_inference_steps = 1;
  EXPECT_EQ(of_cache("forecast:0.1"), (video + tokens) * 1920 * 4);
  plan.num_inference_steps = 50;
  // The cache adds nothing, because decoding needs more memory than the steps.
  EXPECT_EQ(need(plan, /*decode=*/true, spec_of(1), at::kCPU, at::kFloat, "0.1").cache, 0);
  const MemoryNeed on_gpu = need(plan, false, spec_of(30), at::Device(at::kCUDA, 0), at::kBFloat16, "0.1");
  EXPECT_EQ(on_gpu.host, 0);
  EXPECT_EQ(on_gpu.cache, 2 * (video + tokens) * 1920 * 2);
}

TEST(MemoryNeed, SuggestsOmittingACacheThatDoesNotFit) {
  const Plan plan = plan_of(64, 64, 9);
  const auto there_is = static_cast<double>(obtainable_memory(at::kCPU));
  for (const auto& [cache, first_word] : {std::pair(1.5 * there_is, "leave"), std::pair(there_is / 2, "choose")}) {
    try {
      check_memory(plan, {.host = there_is * 2, .cache = cache}, at::kCPU);
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.remedy().substr(0, error.remedy().find(' ')), first_word);
      EXPECT_TRUE(error.remedy().ends_with(kRemedy));
    }
  }
}

TEST(MemoryNeed, DoesNotOverflowForHugeSizes) {
  const double frames = 16e6 * 16e6 * 4001;
  EXPECT_GE(cpu_need(plan_of(16000000, 16000000, 4001)).host, frames * 24);
  EXPECT_GE(cpu_need(plan_of(kMost, kMost, kMost)).host, 1e57);
  for (const Plan& plan : {plan_of(16000000, 16000000, 4001), plan_of(kMost, 16, 1), plan_of(16, kMost, 1),
                           plan_of(16, 16, kMost), plan_of(kMost, kMost, kMost)})
    EXPECT_TRUE(throws_error([&] { check_memory(plan, cpu_need(plan), at::kCPU); },
                             {std::to_string(plan.width) + " x " + std::to_string(plan.height) + " pixels and " +
                                  std::to_string(plan.num_frames) + " frames needs at least ",
                              " GiB of memory, but only ", " are available on cpu"}));
}

TEST(MemoryNeed, RefusesOnlyWhatExceedsObtainableMemory) {
  const Plan plan = plan_of(64, 64, 9);
  const auto there_is = static_cast<double>(obtainable_memory(at::kCPU));
  EXPECT_NO_THROW(check_memory(plan, {.host = there_is / 2}, at::kCPU));
  try {
    check_memory(plan, {.host = there_is * 2}, at::kCPU);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_EQ(error.remedy(), kRemedy);
  }
}

TEST(MemoryNeed, CountsFreeMemoryAndMemoryOfThisProcessAsObtainable) {
  const at::Tensor held = at::ones({64 << 20});  // 256 MiB, in use because they are written
  EXPECT_GE(obtainable_memory(at::kCPU), static_cast<uint64_t>(held.nbytes()));
  const uint64_t free = free_memory(at::kCPU), obtainable = obtainable_memory(at::kCPU);
  EXPECT_GT(static_cast<double>(obtainable), static_cast<double>(free) + 0.5 * static_cast<double>(held.nbytes()));
}

Checkpoint random_model(const std::string& name) {
  const auto architecture = read_architecture(fs::path(SPARSEREEL_SOURCE_DIR) / "configs" / name);
  return Checkpoint::with_random_weights(architecture.config.file, architecture.transformer_class,
                                         architecture.components);
}

TEST(MemoryNeed, CountsWeightsOfTheLargestTransformer) {
  const Checkpoint folder = random_model("wan-2.1-14b.yaml");
  const ModelSpec spec = describe(folder);
  const auto need = [&](at::Device device, const WeightFormat& format, bool offload) {
    return weight_need(folder, spec, {.device = device, .format = format, .offload = offload});
  };
  const at::Device gpu(at::kCUDA, 0);
  const WeightNeed fp32 = need(at::kCPU, at::kFloat, false), bf16 = need(gpu, at::kBFloat16, false);
  EXPECT_NEAR(fp32.parameters, 14.3e9, 0.2e9);
  EXPECT_EQ(fp32.host, 4 * fp32.parameters);
  EXPECT_EQ(fp32.device, 0);
  EXPECT_NEAR(bf16.device, 2 * fp32.parameters, 0.1e9);  // not exactly, because some tensors stay in fp32
  EXPECT_EQ(bf16.host, 0);
  EXPECT_EQ(need(gpu, at::kBFloat16, true).host, bf16.device);
  EXPECT_EQ(need(gpu, at::kBFloat16, true).device, 0);
  EXPECT_LT(need(gpu, {at::kBFloat16, true}, false).device, 0.6 * bf16.device);
}

TEST(MemoryNeed, CountsNoMemoryForMappedWeights) {
  const Checkpoint folder = Checkpoint::open(SPARSEREEL_TINY_MODEL);
  const ModelSpec spec = describe(folder);
  const auto host = [&](const WeightFormat& format) {
    return weight_need(folder, spec, {.device = at::kCPU, .format = format}).host;
  };
  EXPECT_LT(host(at::kHalf), 0.1 * host(at::kFloat));  // the file's fp16 weights are mapped
  EXPECT_GT(host({at::kHalf, /*in_fp8=*/true}), 0.2 * host(at::kFloat));
}

/// A safetensors file whose data is a hole, which takes no disk space.
class SparseFile {
 public:
  void add(const std::string& name, Dtype dtype, const std::vector<int64_t>& shape) {
    size_t bytes = size_of(dtype);
    for (const int64_t size : shape) bytes *= static_cast<size_t>(size);
    header_[name] = {{"dtype", models::name(dtype)}, {"shape", shape}, {"data_offsets", {bytes_, bytes_ + bytes}}};
    bytes_ += bytes;
  }
  uint64_t bytes() const { return bytes_; }
  void write(const fs::path& file) const {
    const std::string text = header_.dump();
    const uint64_t size = text.size();
    test::write_text(file, std::string(reinterpret_cast<const char*>(&size), sizeof size) + text);
    fs::resize_file(file, sizeof size + size + bytes_);
  }

 private:
  nlohmann::json header_ = nlohmann::json::object();
  uint64_t bytes_ = 0;
};

/// Uses Wan 14B in int8 with a LoRA of rank 64 on every matrix of its blocks.
TEST(MemoryNeed, CountsPackedWeightsAsPackedWithALora) {
  const test::TemporaryFolder folder;
  const nlohmann::json names = read_json(fs::path(SPARSEREEL_TEST_DATA) / "wan" / "dit_names.json").at("2.1 14b");
  SparseFile weights, lora;
  for (const auto& [name, shape] : names.at("rest").items()) weights.add(name, Dtype::f32, shape);
  for (int64_t block = 0; block < names.at("config").at("num_layers").get<int64_t>(); ++block)
    for (const auto& [name, shape] : names.at("block").items()) {
      const std::string full = "blocks." + std::to_string(block) + "." + name;
      const bool is_matrix = shape.size() == 2 && full.ends_with(".weight");
      weights.add(full, is_matrix ? Dtype::i8 : Dtype::f32, shape);
      if (!is_matrix) continue;
      const std::string layer = full.substr(0, full.size() - std::string(".weight").size());
      weights.add(layer + ".weight_scale", Dtype::f32, {});
      lora.add(layer + ".lora_A.weight", Dtype::bf16, {64, shape[1]});
      lora.add(layer + ".lora_B.weight", Dtype::bf16, {shape[0], 64});
    }
  weights.write(folder / "int8.safetensors");
  lora.write(folder / "lora.safetensors");
  EXPECT_NEAR(static_cast<double>(lora.bytes()), 0.61e9, 0.01e9);
  Checkpoint model = random_model("wan-2.1-14b.yaml");
  model.replace("transformer", folder / "int8.safetensors");
  const ModelSpec spec = describe(model);
  const auto need = [&](at::Device device) {
    const WeightNeed bytes = weight_need(model, spec, {.device = device, .format = at::kBFloat16});
    return device.is_cpu() ? bytes.host : bytes.device;
  };
  const double packed = need(at::Device(at::kCUDA, 0)), not_mapped = need(at::kCPU);
  EXPECT_NEAR(packed, 14.6e9, 0.2e9);
  add_loras(model, spec, {{.file = folder / "lora.safetensors"}});
  EXPECT_EQ(need(at::Device(at::kCUDA, 0)), packed + static_cast<double>(lora.bytes()));
  EXPECT_EQ(need(at::kCPU), not_mapped + static_cast<double>(lora.bytes()));
}

TEST(MemoryNeed, CountsWeightsOnTheDeviceThatHoldsThem) {
  const Plan plan = plan_of(720, 480, 49);
  const WeightNeed weights{.host = 7e9, .device = 0};
  const double without = cpu_need(plan).host;
  EXPECT_EQ(least_memory(plan, true, spec_of(30), at::kCPU, at::kFloat, weights).host, 7e9 + without);
  const MemoryNeed decoding = least_memory(plan_of(7200, 4800, 49), true, spec_of(1), at::kCPU, at::kFloat, {});
  EXPECT_EQ(least_memory(plan_of(7200, 4800, 49), true, spec_of(1), at::kCPU, at::kFloat, {.host = 1e6}).host,
            decoding.host)
      << "they are gone before the video is decoded";
  const at::Device gpu(at::kCUDA, 0);
  const MemoryNeed offloaded = least_memory(plan, true, spec_of(30), gpu, at::kBFloat16, weights);
  EXPECT_EQ(offloaded.host, 7e9);
  EXPECT_EQ(offloaded.device, least_memory(plan, true, spec_of(30), gpu, at::kBFloat16).device);
}

TEST(MemoryNeed, DividesVideoMemoryButNotWeightsAmongRanks) {
  const at::Device gpu(at::kCUDA, 0);
  const Plan plan = plan_of(720, 480, 49);
  const auto device = [&](const WeightNeed& weights, int64_t ranks) {
    return least_memory(plan, true, spec_of(30), gpu, at::kBFloat16, weights, ranks).device;
  };
  EXPECT_DOUBLE_EQ(device({}, 4), device({}, 1) / 4);
  EXPECT_DOUBLE_EQ(device({.device = 7e9}, 2), 7e9 + device({}, 2));
  EXPECT_EQ(least_memory(plan, true, spec_of(30), at::kCPU, at::kFloat, {}, 4).host, cpu_need(plan).host)
      << "of the host they have the same memory";
}

TEST(MemoryNeed, EstimatesMemoryPerGpuForSeveralGpus) {
  const Checkpoint model = Checkpoint::open(SPARSEREEL_TINY_MODEL);
  const ModelSpec spec = describe(model);
  const MemoryEstimate one = likely_memory(model, spec, latent_size(spec, 33, 256, 256)).front();
  ASSERT_EQ(one.of_each.size(), 3U);
  uint64_t last = one.total();
  for (const auto& [gpus, bytes] : one.of_each) {
    EXPECT_LT(bytes, last) << gpus;
    EXPECT_GT(bytes, one.weights + one.process) << gpus;
    last = bytes;
  }
}

TEST(MemoryNeed, SuggestsRemediesForWeightsThatDoNotFit) {
  const Plan plan = plan_of(64, 64, 9);
  const auto there_is = static_cast<double>(obtainable_memory(at::kCPU));
  const auto refusal = [&](const MemoryNeed& need, const std::vector<std::string>& lighter) {
    try {
      check_memory(plan, need, at::kCPU, [&] { return lighter; });
    } catch (const Error& error) {
      return std::string(error.what()).substr(0, 20) + ": " + error.remedy();
    }
    return std::string();
  };
  const MemoryNeed weights{.host = 2.1 * there_is, .weights = {.host = 2 * there_is}};
  EXPECT_EQ(refusal(weights, {"dtype bf16"}), "the transformer's we: use dtype bf16 or a machine with more memory");
  EXPECT_EQ(refusal(weights, {}), "the transformer's we: use a machine with more memory");
  const MemoryNeed both{.host = 1.1 * there_is, .weights = {.host = 0.6 * there_is}};
  EXPECT_EQ(refusal(both, {"weights fp8"}), std::string("a video of 64 x 64 p: use weights fp8, or ") + kRemedy);
  EXPECT_EQ(refusal({.host = 0.9 * there_is, .weights = {.host = 0.8 * there_is}}, {}), "");
}

TEST(MemoryNeed, RefusesAModelThatDoesNotFitBeforeLoading) {
  const auto there_is = static_cast<double>(obtainable_memory(at::kCPU));
  if (there_is > 50e9) GTEST_SKIP() << "this machine has enough memory for it";
  const auto pipeline = Pipeline::open(random_model("wan-2.1-14b.yaml"), {.device = "cpu"});
  EXPECT_TRUE(throws_error([&] { pipeline->resolve(request_of(64, 5)); },
                           {"the transformer's weights alone need 53", "but only"}));
}

TEST(MemoryNeed, RefusesARequestWhenItIsResolved) {
  const auto pipeline = Pipeline::open(SPARSEREEL_TINY_MODEL, "cpu", "auto");
  for (const auto& [side, frames] :
       {std::pair<int64_t, int64_t>{16000000, 33}, {256, 16000001}, {kMost / 16 * 16, 1}}) {
    const Request request = request_of(side, frames);
    EXPECT_TRUE(throws_error([&] { pipeline->resolve(request); }, {"needs at least"})) << side;
    EXPECT_TRUE(throws_error([&] { pipeline->generate(request); }, {"needs at least"})) << side;
  }
  EXPECT_TRUE(throws_error([&] { pipeline->resolve(request_of(kMost, 1)); }, {"width", "multiple of 16"}));
  EXPECT_TRUE(
      throws_error([&] { pipeline->resolve(request_of(16, kMost)); }, {"frames", "1 more than a multiple of 8"}));
}

TEST(MemoryNeed, IsCheckedAfterTheTokenizer) {
  const test::TemporaryFolder folder;
  fs::copy(std::string(SPARSEREEL_TEST_DATA) + "/pipeline", folder.path(), fs::copy_options::recursive);
  fs::remove_all(folder.path() / "tokenizer" / "spiece.model");
  const auto pipeline = Pipeline::open(folder.path().string(), "cpu", "auto");
  EXPECT_TRUE(throws_error([&] { pipeline->resolve(request_of(16000000, 33)); }, {"tokenizer is needed"}));
}

TEST(MemoryNeed, IsALowerBoundOfMeasuredMemory) {
  const auto pipeline = Pipeline::open(SPARSEREEL_TINY_MODEL, "cpu", "auto");
  const ModelSpec tiny = spec_of(4);
  for (const auto& [decode, cache] : {std::pair(true, "0"), {false, "0"}, {false, "steps:3"}}) {
    Request request = request_of(decode ? 192 : 256, decode ? 9 : 33);
    request.cache = parse_cache_rule(cache);
    if (request.cache.on()) request.num_inference_steps = 4;
    const Plan plan = pipeline->resolve(request, decode);
    const test::TensorMemory memory;
    pipeline->generate(plan, {.decode = decode});
    const auto taken = static_cast<double>(memory.highest());
    const double least = least_memory(plan, decode, tiny, at::kCPU, at::kFloat).host;
    EXPECT_GT(least, 5e6);
    EXPECT_LT(least, taken);
  }
}

TEST(MemoryNeed, EstimatesMeasuredMemoryClosely) {
  for (const auto& [side, frames] : {std::pair<int64_t, int64_t>{192, 17}, {256, 9}}) {
    const auto pipeline = Pipeline::open(SPARSEREEL_TINY_MODEL, "cpu", "auto");
    const Plan plan = pipeline->resolve(request_of(side, frames));
    const test::TensorMemory memory;
    pipeline->generate(plan);
    const auto taken = static_cast<double>(memory.highest());
    const MemoryEstimate estimate =
        likely_memory(Checkpoint::open(SPARSEREEL_TINY_MODEL), pipeline->spec(), plan.latent).at(1);
    const auto expected = static_cast<double>(estimate.total() - estimate.process);
    EXPECT_LT(expected, 1.6 * taken) << side;
    EXPECT_GT(expected, taken / 1.6) << side;
  }
}

}  // namespace
}  // namespace sparsereel::models
