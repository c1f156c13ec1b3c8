// Tests that prefixes and endings which training programs and torch.compile add to tensors' names are removed.
#include "models/store/checkpoint/wrapped_name.h"

#include <gtest/gtest.h>

namespace sparsereel::models {
namespace {

TEST(WrappedName, LosesWrappersOfModelsAndLayers) {
  for (const char* name :
       {"blocks.0.attn1.to_q", "module.blocks.0.attn1.to_q", "_orig_mod.blocks.0.attn1.to_q",
        "module._orig_mod.blocks.0.attn1.to_q", "_fsdp_wrapped_module.blocks.0._fsdp_wrapped_module.attn1.to_q",
        "blocks.0._checkpoint_wrapped_module.attn1._orig_mod.to_q", "_forward_module.module.blocks.0.attn1.to_q",
        "base_model.model.blocks.0.attn1.to_q"})
    EXPECT_EQ(without_wrappers(name), "blocks.0.attn1.to_q") << name;
  EXPECT_EQ(without_wrappers("transformer.base_model.model.blocks.0"), "transformer.blocks.0");
}

TEST(WrappedName, LosesWrappersBetweenUnderscores) {
  EXPECT_EQ(without_wrappers("_orig_mod_blocks_0_self_attn_q", '_'), "blocks_0_self_attn_q");
  EXPECT_EQ(without_wrappers("blocks_0__orig_mod_self_attn_q", '_'), "blocks_0_self_attn_q");
  EXPECT_EQ(without_wrappers("base_model_model_blocks_0", '_'), "blocks_0");
}

TEST(WrappedName, KeepsOtherNames) {
  for (const char* name : {"", "module", "my_module.weight", "submodule.weight", "blocks.0.modulation", "a..b", "a.",
                           "motion_modules.0.w", "base_model.weight", "_orig_mod"})
    EXPECT_EQ(without_wrappers(name), name) << name;
  EXPECT_EQ(without_wrappers("module.modulation"), "modulation");
  EXPECT_EQ(without_wrappers("a__b_", '_'), "a__b_");
}

}  // namespace
}  // namespace sparsereel::models
