// Tests SHA-256 and HMAC with the standards' examples, and which changes of a model change its hash.
#include "models/store/checkpoint/model_hash.h"

#include <nlohmann/json.hpp>

#include "models/files/sha256.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

TEST(Sha256, MatchesTheExamplesOfTheStandard) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowInputIsSplit) {
  const std::string text(300, 'x');
  for (const size_t piece : {1, 63, 64, 65, 299}) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += piece) hash.update(text.substr(at, piece));
    EXPECT_EQ(hash.hex(), sha256(text)) << piece;
  }
}

/// The examples are test cases 2 and 6 of RFC 4231.
TEST(Hmac, MatchesTheExamplesOfTheStandard) {
  const auto hex = [](const Sha256Digest& digest) {
    std::string text;
    for (const uint8_t byte : digest) {
      text += "0123456789abcdef"[byte >> 4];
      text += "0123456789abcdef"[byte & 15];
    }
    return text;
  };
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

class ModelHash : public ::testing::Test {
 protected:
  ModelHash() { fs::copy(std::string(SPARSEREEL_TEST_DATA) + "/pipeline", model_, fs::copy_options::recursive); }
  std::string hash() const { return model_hash(Checkpoint::open(model_)); }

  test::TemporaryFolder folder_;
  fs::path model_ = folder_ / "model";
};

TEST_F(ModelHash, IsTheSameForACopyAndReformattedConfigs) {
  const std::string original = model_hash(Checkpoint::open(std::string(SPARSEREEL_TEST_DATA) + "/pipeline"));
  EXPECT_EQ(original.size(), 64U);
  EXPECT_EQ(hash(), original);
  const fs::path config = model_ / "transformer" / "config.json";
  test::write_text(config, read_json(config).dump());
  EXPECT_EQ(hash(), original);
}

/// The hash must never change, because recipes and profiles identify their model by it.
TEST_F(ModelHash, IsStableAcrossVersions) {
  EXPECT_EQ(hash(), "686884aaf7977dd1adf7d4907c04343aedb0af38a816b162152172978d165298");
  EXPECT_EQ(model_hash(Checkpoint::open(std::string(SPARSEREEL_TEST_DATA) + "/wan/pipeline_two_experts")),
            "22471451d8219f2dfa145de82e38496a98199d98c4e7e2e98dac01406e86820a");
}

TEST_F(ModelHash, ChangesWithAConfig) {
  const std::string original = hash();
  for (const char* file : {"transformer/config.json", "scheduler/scheduler_config.json", "vae/config.json"}) {
    auto config = read_json(model_ / file);
    config["new_field"] = 1;
    test::write_text(model_ / file, config.dump());
    EXPECT_NE(hash(), original) << file;
    config.erase("new_field");
    test::write_text(model_ / file, config.dump());
  }
  EXPECT_EQ(hash(), original);
}

TEST_F(ModelHash, ChangesWithTheHeaderOfAWeightFile) {
  const std::string original = hash();
  const fs::path weights = model_ / "vae" / "diffusion_pytorch_model.safetensors";
  std::string bytes = test::read_text(weights);
  const size_t dtype = bytes.find("\"F16\"");
  ASSERT_NE(dtype, std::string::npos);
  bytes.replace(dtype, 5, "\"I16\"");
  test::write_text(weights, bytes);
  EXPECT_NE(hash(), original);
}

/// The headers of these files differ only in the description of the quantized layers.
TEST(WeightsHash, ChangesWithTheDescriptionOfQuantizedLayers) {
  const test::TemporaryFolder folder;
  const std::string codes(128, '\1'), scale(8, '\0');
  const auto hash = [&](const std::string& description) {
    const fs::path file = folder / "wan.safetensors";
    write_safetensors(
        file,
        {{"q.weight", Dtype::i8, {2, 64}, std::as_bytes(std::span(codes))},
         {"q.weight_scale", Dtype::f32, {2}, std::as_bytes(std::span(scale))}},
        {{"_quantization_metadata", R"({"layers":{"q":{"format":"int8_tensorwise",)" + description + "}}}"}});
    return weights_hash(component_of(open_weights(file), {.role = "transformer", .classes = {"Model"}}));
  };
  const std::string of_16 = hash(R"("convrot":true,"convrot_groupsize":16)");
  EXPECT_EQ(hash(R"("convrot_groupsize":16,"convrot":true)"), of_16);
  EXPECT_NE(hash(R"("convrot":true,"convrot_groupsize":64)"), of_16);
  EXPECT_EQ(hash(R"("orig_dtype":"F16","orig_shape":[10,10])"), hash(R"("orig_dtype":"F32","orig_shape":[20,20])"));
}

}  // namespace
}  // namespace sparsereel::models
