// Files of quantised weights are taken or refused by what they say of themselves.
#include "models/checkpoint/quantization.h"

#include <optional>

#include "models/checkpoint/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using test::TemporaryFolder;
using test::throws_error;

class Quantization : public ::testing::Test {
 protected:
  void write(const std::string& description, const std::map<std::string, std::string>& metadata = {},
             const std::string& other = "q.weight_scale") {
    const std::string eight(8, '\1');
    write_safetensors(path_,
                      {{"q.weight", Dtype::u8, {8}, std::as_bytes(std::span(eight))},
                       {other, Dtype::u8, {8}, std::as_bytes(std::span(eight))},
                       {"q.comfy_quant",
                        Dtype::u8,
                        {static_cast<int64_t>(description.size())},
                        std::as_bytes(std::span(description))}},
                      metadata);
  }
  testing::AssertionResult is_refused(const std::vector<std::string>& parts) const {
    return throws_error([&] { check_quantization(TensorFile(path_)); }, parts);
  }

  const TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_ / "wan.safetensors";
};

TEST_F(Quantization, EightBitsWithScalesAreTaken) {
  for (const char* format : {"float8_e4m3fn", "float8_e5m2", "int8_tensorwise"}) {
    const std::string description = R"({"format":")" + std::string(format) + R"(","full_precision_matrix_mult":true})";
    write(description, {{"_quantization_metadata",
                         R"({"format_version":"1.0","layers":{"q":)" + description + R"(,"k":")" + format + "\"}}"}});
    EXPECT_NO_THROW(check_quantization(TensorFile(path_))) << format;
  }
}

TEST_F(Quantization, OthersAreRefusedByTheirNames) {
  for (const char* format : {"nvfp4", "mxfp8", "int8_blockwise"}) {
    write(R"({"format":")" + std::string(format) + "\"}");
    EXPECT_TRUE(is_refused({"wan.safetensors", "\"q\"", format, "not supported"}));
    write(R"({"format":"float8_e4m3fn"})",
          {{"_quantization_metadata", R"({"layers":{"k":{"format":")" + std::string(format) + "\"}}}"}});
    EXPECT_TRUE(is_refused({"wan.safetensors", "\"k\"", format, "not supported"}));
  }
  write(R"({"format":"int8_tensorwise","convrot":true})");
  EXPECT_TRUE(is_refused({"\"q\"", "convrot"}));
  write(R"({"format":"float8_e4m3fn"})", {}, "q.weight_scale_2");
  EXPECT_TRUE(is_refused({"\"q.weight_scale_2\"", "nvfp4"}));
}

TEST_F(Quantization, DescriptionsThatSayNothingAreRefused) {
  for (const char* description : {"{}", R"({"format":8})", "[]", "null"}) {
    write(description);
    EXPECT_TRUE(is_refused({"\"q\"", "does not name"})) << description;
  }
  write("not json");
  EXPECT_TRUE(is_refused({"wan.safetensors: q.comfy_quant", "not valid JSON"}));
}

}  // namespace
}  // namespace sparsereel::models
