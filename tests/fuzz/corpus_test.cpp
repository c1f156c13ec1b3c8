// Tests that parsers accept each input of the fuzzers' corpus or refuse it with an Error. This test runs in every
// build, also without libFuzzer.
#include "tests/fuzz/targets.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel {
namespace {

class FuzzCorpus : public ::testing::TestWithParam<std::string> {};

TEST_P(FuzzCorpus, IsAcceptedOrRefusedWithAnError) {
  size_t inputs = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(SPARSEREEL_FUZZ_CORPUS) + "/" + GetParam())) {
    SCOPED_TRACE(entry.path().string());
    const std::string bytes = test::read_text(entry.path());
    if (GetParam() == "safetensors") test::fuzz_safetensors(std::as_bytes(std::span(bytes)));
    if (GetParam() == "gguf") test::fuzz_gguf(std::as_bytes(std::span(bytes)));
    if (GetParam() == "torch_zip") test::fuzz_torch_zip(std::as_bytes(std::span(bytes)));
    if (GetParam() == "config") test::fuzz_config(std::as_bytes(std::span(bytes)));
    if (GetParam() == "profile") test::fuzz_profile(std::as_bytes(std::span(bytes)));
    if (GetParam() == "tokenizer") test::fuzz_tokenizer(std::as_bytes(std::span(bytes)));
    if (GetParam() == "prompt_set") test::fuzz_prompt_set(std::as_bytes(std::span(bytes)));
    if (GetParam() == "request") test::fuzz_request(std::as_bytes(std::span(bytes)));
    if (GetParam() == "manifest") test::fuzz_manifest(std::as_bytes(std::span(bytes)));
    ++inputs;
  }
  EXPECT_GT(inputs, 20U);
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, FuzzCorpus,
                         ::testing::Values("safetensors", "gguf", "torch_zip", "config", "tokenizer", "prompt_set",
                                           "manifest", "profile", "request"),
                         [](const auto& each) { return each.param; });

TEST(FuzzCorpusFiles, ValidInputsAreAccepted) {
  const std::string folder = std::string(SPARSEREEL_FUZZ_CORPUS) + "/";
  EXPECT_NO_THROW(attention::parse_profile(test::read_text(folder + "profile/valid.yaml"), "valid.yaml"));
  for (const char* name : {"valid", "valid_empty", "valid_padding", "valid_zero_size"})
    EXPECT_NO_THROW(models::TensorFile(folder + "safetensors/" + name + ".safetensors")) << name;
  for (const char* name :
       {"valid", "valid_empty", "valid_version_2", "valid_alignment", "valid_zero_size", "valid_scalar"})
    EXPECT_NO_THROW(models::TensorFile(folder + "gguf/" + name + ".gguf")) << name;
  const models::TensorFile with_tokenizer(folder + "gguf/valid_tokenizer.gguf");
  EXPECT_NO_THROW(models::Tokenizer(models::parse_gguf_tokenizer(with_tokenizer.metadata(), "gguf"), {}, "gguf"));
  for (const char* name : {"valid", "valid_no_table", "valid_white_space", "valid_word_starts"}) {
    const std::string file = folder + "tokenizer/" + name + ".model";
    EXPECT_NO_THROW(models::Tokenizer(models::read_spiece(file), {}, file)) << name;
  }
  const auto config = [&](const std::string& name) { return models::read_json(folder + "config/" + name + ".json"); };
  EXPECT_NO_THROW(models::parse_t5_config(config("t5"), "t5"));
  EXPECT_NO_THROW(models::parse_cogvideox_config(config("transformer"), "transformer"));
  EXPECT_NO_THROW(models::parse_cogvideox_vae_config(config("vae"), "vae"));
  EXPECT_NO_THROW(models::parse_cogvideox_scheduler_config(config("scheduler"), "scheduler"));
  EXPECT_NO_THROW(models::parse_wan_vae_config(config("wan_vae"), "wan_vae"));
  EXPECT_NO_THROW(models::check_model_index(config("model_index"), "model_index"));
  models::TokenizerConfig tokenizer_config;
  EXPECT_NO_THROW(models::parse_tokenizer_json(config("tokenizer"), tokenizer_config, "tokenizer"));
  EXPECT_NO_THROW(models::parse_weight_map(config("shards"), "shards"));
}

}  // namespace
}  // namespace sparsereel
