// Tests which configs of Qwen3-VL's vision model are accepted.
#include "models/text/encoder/qwen3_vision_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;
using test::throws_error;

json published_vision() {
  return {{"vision_start_token_id", 151652},
          {"image_token_id", 151655},
          {"vision_config",
           {{"depth", 27},
            {"hidden_size", 1152},
            {"num_heads", 16},
            {"out_hidden_size", 5120},
            {"num_position_embeddings", 2304},
            {"deepstack_visual_indexes", {8, 16, 24}}}}};
}

TEST(Qwen3VisionConfig, ReadsThePublishedOne) {
  const Qwen3VisionConfig config = parse_qwen3_vision_config(published_vision(), "config.json");
  EXPECT_EQ(config.out_hidden_size, 5120);
  EXPECT_EQ(config.positions_edge(), 48);
  EXPECT_EQ(config.head_dim(), 72);
  EXPECT_EQ(config.patch_elements(), 1536);
  EXPECT_EQ(config.patches_a_token(), 4);
  EXPECT_EQ(config.vision_end_token, 151653) << "the default";
}

TEST(Qwen3VisionConfig, RefusesWhatItCannotRun) {
  for (const auto& [field, value] : {std::pair{"depth", json(0)},
                                     {"hidden_size", json(1153)},
                                     {"num_heads", json("many")},
                                     {"hidden_act", json("silu")},
                                     {"in_channels", json(4)},
                                     {"num_position_embeddings", json(2305)},
                                     {"deepstack_visual_indexes", json({8, 27})},
                                     {"deepstack_visual_indexes", json({16, 8})}}) {
    json changed = published_vision();
    changed["vision_config"][field] = value;
    EXPECT_TRUE(throws_error([&] { parse_qwen3_vision_config(changed, "a/config.json"); }, {"a/config.json", field}))
        << field;
  }
  EXPECT_TRUE(throws_error([] { parse_qwen3_vision_config(json::object(), "a/config.json"); },
                           {"a/config.json", "vision_config"}));
}

}  // namespace
}  // namespace sparsereel::models
