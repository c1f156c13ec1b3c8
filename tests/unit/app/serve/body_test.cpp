#include "app/serve/body.h"

#include <gmock/gmock.h>

#include "hilbert/error.h"

namespace sparsereel::app::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

/// Calls `parse` and returns the field that its error names; empty if it accepts the body.
template <typename Parse>
std::string field_at_fault(const Parse& parse) {
  try {
    parse();
  } catch (const Error& error) {
    EXPECT_FALSE(error.remedy().empty());
    return error.field();
  }
  return {};
}

std::string field_of_json(const std::string& text) {
  return field_at_fault([&] { parse_json_body(text); });
}

TEST(Body, ReadsJsonAsOptionValues) {
  const AskedVideo asked = parse_json_body(
      R"({"model": "tiny", "prompt": "a \u00e9", "steps": 3, "cfg-scale": 4.5, "dynamic_cfg": true, "sigmas": [1, 0.5],
          "num_inference_steps": null, "input_reference": {"image_url": "data:image/png;base64,AQID/w=="}})");
  EXPECT_EQ(asked.model, "tiny");
  EXPECT_THAT(asked.values, ElementsAre(Pair("cfg_scale", "4.5"), Pair("dynamic_cfg", "true"),
                                        Pair("prompt", "a \u00e9"), Pair("sigmas", "1,0.5"), Pair("steps", "3")));
  EXPECT_THAT(asked.pictures, ElementsAre(Pair("image", "\x01\x02\x03\xff")));
}

TEST(Body, ReadsFormsAsOptionValues) {
  const AskedVideo asked = parse_form({{.name = "prompt", .content = "a"},
                                       {.name = "sigmas[]", .content = "1"},
                                       {.name = "sigmas[]", .content = "0.5"},
                                       {.name = "last_frame", .content = "bytes", .is_file = true}});
  EXPECT_THAT(asked.values, ElementsAre(Pair("prompt", "a"), Pair("sigmas", "1,0.5")));
  EXPECT_THAT(asked.pictures, ElementsAre(Pair("last_image", "bytes")));
}

TEST(Body, NamesTheFieldAtFault) {
  EXPECT_EQ(field_of_json(R"({"promt": "a"})"), "promt");
  EXPECT_EQ(field_of_json(R"({"a\nb": "a"})"), R"("a\nb")");
  EXPECT_EQ(field_of_json(R"({"steps": "many"})"), "steps");
  EXPECT_EQ(field_of_json(R"({"num_inference_steps": 1, "steps": 2})"), "steps");
  EXPECT_EQ(field_of_json(R"({"prompt": {}})"), "prompt");
  EXPECT_EQ(field_of_json(R"({"input_reference": "https://example.org/a.png"})"), "input_reference");
  EXPECT_EQ(field_of_json(R"({"input_reference": "data:image/png;base64,?"})"), "input_reference");
  EXPECT_EQ(field_of_json(R"({"last_frame": {"file_id": "x"}})"), "last_frame");
  EXPECT_EQ(field_at_fault([] { parse_form({{.name = "prompt", .content = "a", .is_file = true}}); }), "prompt");
  EXPECT_THROW(parse_json_body("[]"), Error);
  EXPECT_THAT(parse_json_body("{}").values, IsEmpty());
}

TEST(Body, TakesNoOptionThatNamesAFileOrTheMachine) {
  for (const OptionSpec& option : option_table()) {
    const bool names_file = option.kind() == ValueKind::file || option.kind() == ValueKind::folder;
    if (names_file && option.key() != "profile") {
      EXPECT_FALSE(is_request_field(option)) << option.key();
    }
  }
  for (const char* key : {"device", "offload", "max_vram", "gpus", "threads", "from", "report", "quiet", "batch_count"})
    EXPECT_FALSE(is_request_field(*find_option(key))) << key;
  for (const char* key : {"prompt", "size", "seconds", "seed", "preset", "distilled", "fps", "crf", "topk", "lora"})
    EXPECT_TRUE(is_request_field(*find_option(key))) << key;
}

}  // namespace
}  // namespace sparsereel::app::serve
