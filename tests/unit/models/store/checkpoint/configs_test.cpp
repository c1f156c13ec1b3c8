// Tests that config parsers read published configs, and that errors about wrong configs name the file and the field.
#include "models/text/encoder/t5_config.h"

#include <nlohmann/json.hpp>

#include "models/families/cogvideox/config.h"
#include "models/families/cogvideox/family.h"
#include "models/families/cogvideox/vae_config.h"
#include "models/families/wan/vae_config.h"
#include "models/samplers/flow_config.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/describe.h"
#include "tests/support/temporary_folder.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;
using test::throws_error;

json t5() {
  return {{"model_type", "t5"}, {"feed_forward_proj", "gated-gelu"},
          {"d_model", 4096},    {"num_layers", 24},
          {"num_heads", 64},    {"d_ff", 10240}};
}
json transformer() {
  return {{"_class_name", "CogVideoXTransformer3DModel"}};
}
json vae() {
  return {{"_class_name", "AutoencoderKLCogVideoX"}};
}
json wan_vae() {
  return {{"_class_name", "AutoencoderKLWan"}};
}
json unipc() {
  return {{"prediction_type", "flow_prediction"}, {"use_flow_sigmas", true}};
}
json flow_euler() {
  return json::object();
}

void parse(const std::string& kind, const json& config) {
  if (kind == "t5") parse_t5_config(config, "some/config.json");
  if (kind == "transformer") parse_cogvideox_config(config, "some/config.json");
  if (kind == "vae") parse_cogvideox_vae_config(config, "some/config.json");
  if (kind == "scheduler") parse_cogvideox_scheduler_config(config, "some/config.json");
  if (kind == "unipc") parse_unipc_config(config, "some/config.json");
  if (kind == "flow_euler") parse_flow_euler_config(config, "some/config.json");
  if (kind == "wan_vae") parse_wan_vae_config(config, "some/config.json");
}

json valid(const std::string& kind) {
  if (kind == "t5") return t5();
  if (kind == "transformer") return transformer();
  if (kind == "wan_vae") return wan_vae();
  if (kind == "unipc") return unipc();
  if (kind == "flow_euler") return flow_euler();
  return kind == "vae" ? vae() : json::object();
}

struct Bad {
  std::string kind, field;
  json value;
  std::string part;  // text that the error's cause must contain
};

void PrintTo(const Bad& bad, std::ostream* out) {
  *out << bad.kind << " " << bad.field << " " << bad.value;
}

class InvalidConfigField : public ::testing::TestWithParam<Bad> {};

TEST_P(InvalidConfigField, IsRefusedWithFileAndField) {
  const Bad& bad = GetParam();
  json config = valid(bad.kind);
  ASSERT_NO_THROW(parse(bad.kind, config));
  config[bad.field] = bad.value;
  EXPECT_TRUE(throws_error([&] { parse(bad.kind, config); }, {"some/config.json", bad.field, bad.part}));
}

INSTANTIATE_TEST_SUITE_P(
    Configs, InvalidConfigField,
    ::testing::Values(
        Bad{"t5", "d_model", "4096", "\"4096\", not a whole number"},
        Bad{"t5", "d_model", 0, "not a whole number from 1"}, Bad{"t5", "num_layers", nullptr, "null"},
        Bad{"t5", "num_heads", 64.5, "64.5"}, Bad{"t5", "num_heads", true, "true"},
        Bad{"t5", "d_kv", json::array(), "an array"}, Bad{"t5", "vocab_size", -1, "-1"},
        Bad{"t5", "vocab_size", uint64_t{18446744073709551615U}, "18446744073709551615"},
        Bad{"t5", "d_kv", 1 << 20, "above"}, Bad{"t5", "layer_norm_epsilon", "1e-6", "not a number"},
        Bad{"t5", "layer_norm_epsilon", -1, "not a number from 0"},
        Bad{"t5", "feed_forward_proj", "relu", "\"relu\" is not supported"},
        Bad{"t5", "feed_forward_proj", 1, "not a string"}, Bad{"t5", "is_gated_act", false, "not supported"},
        Bad{"t5", "dense_act_fn", "relu", "\"relu\" is not supported"},
        Bad{"t5", "model_type", "byt5", "\"byt5\" is not supported"},
        Bad{"t5", "relative_attention_num_buckets", 5, "multiple of 2"},
        Bad{"t5", "relative_attention_max_distance", 8, "quarter"},

        Bad{"transformer", "_class_name", "WanTransformer3DModel", "not supported"},
        Bad{"transformer", "activation_fn", "geglu", "\"geglu\" is not supported"},
        Bad{"transformer", "timestep_activation_fn", "gelu", "not supported"},
        Bad{"transformer", "num_attention_heads", 0, "not a whole number"},
        Bad{"transformer", "num_attention_heads", 1 << 20, "above"},
        Bad{"transformer", "patch_size", 65, "from 1 to 64"}, Bad{"transformer", "patch_size_t", 0, "from 1 to 64"},
        Bad{"transformer", "patch_size_t", 2, "not supported"},
        Bad{"transformer", "ofs_embed_dim", "512", "not a whole number"},
        Bad{"transformer", "ofs_embed_dim", 256, "channels of time_embed_dim"},
        Bad{"transformer", "flip_sin_to_cos", 1, "not true or false"},
        Bad{"transformer", "in_channels", 24, "not supported"}, Bad{"transformer", "freq_shift", 7, "from 0 to 1"},
        Bad{"transformer", "spatial_interpolation_scale", 0, "positive"},
        Bad{"transformer", "use_learned_positional_embeddings", true, "not supported"},
        Bad{"transformer", "attention_head_dim", 7, "multiple of"},
        Bad{"transformer", "num_layers", 1e9, "not a whole number"},
        Bad{"transformer", "norm_eps", json::object(), "an object"},

        Bad{"vae", "_class_name", "AutoencoderKL", "not supported"}, Bad{"vae", "act_fn", "mish", "not supported"},
        Bad{"vae", "latents_mean", json::array({0.0}), "not supported"},
        Bad{"vae", "latents_std", json::array({1.0}), "not supported"},
        Bad{"vae", "shift_factor", 0.1, "not supported"}, Bad{"vae", "block_out_channels", json::array(), "0 entries"},
        Bad{"vae", "block_out_channels", json::array({128, 256, 256, 500}), "multiple of 32"},
        Bad{"vae", "block_out_channels", json::array({128, 256, 256, "512"}), "not a whole number"},
        Bad{"vae", "block_out_channels", 128, "not an array"},
        Bad{"vae", "up_block_types", json::array({"CogVideoXUpBlock3D"}), "1 entries"},
        Bad{"vae", "up_block_types", json::array({1, 2, 3, 4}), "not a string"},
        Bad{"vae", "up_block_types", json::array({"UpBlock3D", "UpBlock3D", "UpBlock3D", "UpBlock3D"}),
            "not supported"},
        Bad{"vae", "temporal_compression_ratio", 3, "power of two"},
        Bad{"vae", "temporal_compression_ratio", 16, "power of two"}, Bad{"vae", "scaling_factor", 0, "positive"},
        Bad{"vae", "scaling_factor", nullptr, "null"}, Bad{"vae", "use_post_quant_conv", true, "not supported"},
        Bad{"vae", "norm_num_groups", 0, "not a whole number"},

        Bad{"scheduler", "beta_schedule", "sigmoid", "\"sigmoid\" is not supported"},
        Bad{"scheduler", "beta_schedule", 1, "not a string"},
        Bad{"scheduler", "prediction_type", "flow_prediction", "not supported"},
        Bad{"scheduler", "timestep_spacing", "karras", "not supported"},
        Bad{"scheduler", "num_train_timesteps", 0, "not a whole number"},
        Bad{"scheduler", "beta_end", 2, "from 0 to 1"}, Bad{"scheduler", "beta_start", 0.5, "above beta_end"},
        Bad{"scheduler", "trained_betas", json::array({0.1, 0.2}), "2 entries"},
        Bad{"scheduler", "trained_betas", json::array({"0.1"}), "not a number"},
        Bad{"scheduler", "trained_betas", 0.1, "not an array"},
        Bad{"scheduler", "steps_offset", -1, "not a whole number"},
        Bad{"scheduler", "set_alpha_to_one", "no", "not true or false"},
        Bad{"scheduler", "snr_shift_scale", 0, "positive"}));

INSTANTIATE_TEST_SUITE_P(
    WanVae, InvalidConfigField,
    ::testing::Values(
        Bad{"wan_vae", "_class_name", "AutoencoderKL", "not supported"},
        Bad{"wan_vae", "z_dim", 48, "latents_mean has 16 entries, but z_dim is 48"},
        Bad{"wan_vae", "z_dim", "16", "not a whole number"},
        Bad{"wan_vae", "latents_mean", json::array({0.0, 0.5}), "2 entries, but z_dim is 16"},
        Bad{"wan_vae", "latents_std", json::array({1.0}), "1 entries, but z_dim is 16"},
        Bad{"wan_vae", "latents_std", json::array({0.0}), "is 0.0, not a number from"},
        Bad{"wan_vae", "latents_std", 1.0, "not an array"}, Bad{"wan_vae", "base_dim", 0, "not a whole number from 1"},
        Bad{"wan_vae", "base_dim", nullptr, "null"}, Bad{"wan_vae", "base_dim", 1 << 19, "decoder_base_dim x dim_mult"},
        Bad{"wan_vae", "decoder_base_dim", -4, "not a whole number from 1"},
        Bad{"wan_vae", "dim_mult", json::array(), "0 entries"}, Bad{"wan_vae", "dim_mult", 4, "not an array"},
        Bad{"wan_vae", "dim_mult", json::array({1, 2, 4, 0}), "not a whole number from 1"},
        Bad{"wan_vae", "dim_mult", json::array({1, 2, 4}), "temperal_downsample has 3 entries"},
        Bad{"wan_vae", "dim_mult", std::vector<int>(80, 1), "80 entries"},
        Bad{"wan_vae", "num_res_blocks", 0, "not a whole number from 1"},
        Bad{"wan_vae", "temperal_downsample", json::array({true, true}), "but dim_mult has 4"},
        Bad{"wan_vae", "temperal_downsample", json::array({0, 1, 1}), "not true or false"},
        Bad{"wan_vae", "temperal_downsample", json::array({true, true, true}),
            "scale_factor_temporal is 4, but must be 8 because of temperal_downsample"},
        Bad{"wan_vae", "temperal_downsample", true, "not an array"},
        Bad{"wan_vae", "is_residual", 1, "not true or false"}, Bad{"wan_vae", "out_channels", 0, "not a whole number"},
        Bad{"wan_vae", "patch_size", 2, "is 3, not a multiple of 4"},
        Bad{"wan_vae", "patch_size", json::array({2}), "an array, not a whole number"},
        Bad{"wan_vae", "scale_factor_spatial", 16, "is 16, but must be 8 because of dim_mult and patch_size"},
        Bad{"wan_vae", "scale_factor_temporal", 8, "is 8, but must be 4 because of temperal_downsample"}));

TEST(Configs, RefusesAWanVaeWhoseShortcutsDoNotFit) {
  json config = wan_vae();
  config["dim_mult"] = {1, 2, 3, 4};
  EXPECT_NO_THROW(parse_wan_vae_config(config, "f"));
  config["is_residual"] = true;
  config["dim_mult"] = {1, 1, 1, 3};
  EXPECT_TRUE(throws_error([&] { parse_wan_vae_config(config, "f"); },
                           {"f", "dim_mult", "makes a shortcut repeat 288 channels to"}));
  config["is_residual"] = false;
  config["base_dim"] = 3;
  EXPECT_TRUE(throws_error([&] { parse_wan_vae_config(config, "f"); }, {"f", "decoder_base_dim", "multiple of 2"}));
}

TEST(Configs, ReadsThePublishedWanVaes) {
  const json published = read_json(SPARSEREEL_TEST_DATA "/wan/vae_names.json");
  const WanVaeConfig first = parse_wan_vae_config(published["2.1"]["config"], "2.1");
  EXPECT_EQ(first.pixels_a_latent(), 8);
  EXPECT_EQ(first.frames_a_latent(), 4);
  EXPECT_EQ(first.decoder_base_dim, 96);
  const WanVaeConfig defaults = parse_wan_vae_config(wan_vae(), "defaults");
  EXPECT_EQ(defaults.latents_mean, first.latents_mean);
  EXPECT_EQ(defaults.latents_std, first.latents_std);
  EXPECT_EQ(defaults.dim_mult, first.dim_mult);

  const WanVaeConfig second = parse_wan_vae_config(published["2.2 5b"]["config"], "2.2");
  EXPECT_EQ(second.pixels_a_latent(), 16);
  EXPECT_EQ(second.decoder_base_dim, 256);
  EXPECT_EQ(second.patch_size, 2);
  EXPECT_TRUE(second.is_residual);
}

INSTANTIATE_TEST_SUITE_P(
    FlowSchedulers, InvalidConfigField,
    ::testing::Values(
        Bad{"unipc", "prediction_type", "epsilon", "\"epsilon\" is not supported"},
        Bad{"unipc", "use_flow_sigmas", false, "false is not supported"},
        Bad{"unipc", "predict_x0", false, "false is not supported"},
        Bad{"unipc", "lower_order_final", false, "false is not supported"},
        Bad{"unipc", "thresholding", true, "true is not supported"},
        Bad{"unipc", "solver_order", 3, "3 is not supported"}, Bad{"unipc", "solver_order", "2", "not a whole number"},
        Bad{"unipc", "solver_type", "bh1", "\"bh1\" is not supported"},
        Bad{"unipc", "solver_p", json::object(), "not supported"},
        Bad{"unipc", "final_sigmas_type", "sigma_min", "not supported"},
        Bad{"unipc", "flow_shift", 0, "not a positive number"}, Bad{"unipc", "flow_shift", nullptr, "null"},
        Bad{"unipc", "disable_corrector", json::array({-1}), "not a whole number from 0"},
        Bad{"unipc", "disable_corrector", 1, "not an array"}, Bad{"unipc", "num_train_timesteps", 0, "from 1"},
        Bad{"unipc", "use_dynamic_shifting", true, "true is not supported"},
        Bad{"unipc", "use_karras_sigmas", true, "true is not supported"},
        Bad{"unipc", "use_exponential_sigmas", true, "true is not supported"},
        Bad{"unipc", "use_beta_sigmas", true, "true is not supported"},
        Bad{"unipc", "shift_terminal", 0.1, "not supported"}, Bad{"flow_euler", "shift", -1, "not a number from 0"},
        Bad{"flow_euler", "shift", "3", "not a number"},
        Bad{"flow_euler", "use_dynamic_shifting", true, "true is not supported"},
        Bad{"flow_euler", "use_karras_sigmas", true, "true is not supported"},
        Bad{"flow_euler", "use_exponential_sigmas", true, "true is not supported"},
        Bad{"flow_euler", "use_beta_sigmas", 1, "not true or false"},
        Bad{"flow_euler", "invert_sigmas", 1, "not true or false"},
        Bad{"flow_euler", "stochastic_sampling", true, "true is not supported"},
        Bad{"flow_euler", "shift_terminal", 0.1, "not supported"}));

TEST(Configs, UsesTheReferenceDefaultsForFlowSchedulers) {
  EXPECT_EQ(parse_unipc_config(unipc(), "f").flow_shift, 1);
  EXPECT_EQ(parse_flow_euler_config(flow_euler(), "f").flow_shift, 1);
  EXPECT_FALSE(parse_flow_euler_config(flow_euler(), "f").invert_sigmas);
  EXPECT_TRUE(throws_error([] { parse_unipc_config(json::object(), "some/file.json"); },
                           {"some/file.json", "prediction_type", "epsilon"}));
}

// A published scheduler config holds every argument of its class, also those that the parser ignores.
TEST(Configs, ReadsPublishedFlowSchedulers) {
  json published = unipc();
  published.update({{"_diffusers_version", "0.33.0.dev0"},
                    {"flow_shift", 3.0},
                    {"solver_order", 2},
                    {"solver_type", "bh2"},
                    {"solver_p", nullptr},
                    {"predict_x0", true},
                    {"lower_order_final", true},
                    {"thresholding", false},
                    {"disable_corrector", json::array()},
                    {"final_sigmas_type", "zero"},
                    {"beta_schedule", "linear"},
                    {"timestep_spacing", "linspace"},
                    {"use_karras_sigmas", false},
                    {"shift_terminal", nullptr},
                    {"rescale_betas_zero_snr", false}});
  EXPECT_EQ(parse_unipc_config(published, "f").flow_shift, 3);
  published["disable_corrector"] = {0, 2};
  EXPECT_EQ(parse_unipc_config(published, "f").disable_corrector, (std::vector<int64_t>{0, 2}));

  json euler = flow_euler();
  euler.update({{"shift", 5.0}, {"num_train_timesteps", 500}, {"base_shift", 0.5}, {"time_shift_type", "exponential"}});
  EXPECT_EQ(parse_flow_euler_config(euler, "f").flow_shift, 5);
  EXPECT_EQ(parse_flow_euler_config(euler, "f").num_train_timesteps, 500);
}

TEST(Configs, RefusesTemporalPatchesWithLearnedPositions) {
  json config = transformer();
  config.update({{"use_rotary_positional_embeddings", true}, {"use_learned_positional_embeddings", true}});
  EXPECT_NO_THROW(parse("transformer", config));
  config["patch_size_t"] = 2;
  EXPECT_TRUE(
      throws_error([&] { parse("transformer", config); }, {"use_learned_positional_embeddings", "patch_size_t"}));
}

TEST(Configs, RequiresHeadsThatSplitIntoThreeForRotaryPositions) {
  json config = transformer();
  config["use_rotary_positional_embeddings"] = true;
  config["attention_head_dim"] = 24;
  EXPECT_TRUE(throws_error([&] { parse("transformer", config); }, {"attention_head_dim", "multiple of 16"}));
}

TEST(Configs, RefusesNonObjects) {
  for (const char* kind : {"t5", "transformer", "vae", "wan_vae", "scheduler", "unipc", "flow_euler"})
    EXPECT_TRUE(throws_error([&] { parse(kind, json::array()); }, {"some/config.json", "not a JSON object"})) << kind;
}

TEST(Configs, UsesTheReferenceDefaultsForMissingFields) {
  const T5Config text = parse_t5_config({{"feed_forward_proj", "gated-gelu"}}, "f");
  EXPECT_EQ(text.d_model, 512);
  EXPECT_EQ(text.d_ff, 2048);
  EXPECT_TRUE(throws_error([] { parse_t5_config(json::object(), "f"); }, {"feed_forward_proj", "relu"}))
      << "T5's own default";
  const SchedulerConfig sampler = parse_cogvideox_scheduler_config(json::object(), "f");
  EXPECT_EQ(sampler.prediction_type, "epsilon");
  EXPECT_EQ(sampler.timestep_spacing, "leading");
  EXPECT_FALSE(sampler.rescale_betas_zero_snr);
  EXPECT_EQ(parse_cogvideox_config(transformer(), "f").num_layers, 30);
  EXPECT_EQ(parse_cogvideox_vae_config(vae(), "f").layers_per_block, 3);
}

// Sets the fields in which published checkpoints differ from the defaults, and keys that the parser ignores.
TEST(Configs, ReadsTheThreePublishedLayouts) {
  json small = transformer();
  small["_diffusers_version"] = "0.30.0.dev0";
  small["dropout"] = 0.0;
  EXPECT_FALSE(parse_cogvideox_config(small, "2b").use_rotary_positional_embeddings);

  json large = transformer();
  large.update({{"num_attention_heads", 48}, {"num_layers", 42}, {"use_rotary_positional_embeddings", true}});
  EXPECT_EQ(parse_cogvideox_config(large, "5b").num_attention_heads, 48);

  large.update({{"patch_size_t", 2},
                {"patch_bias", false},
                {"ofs_embed_dim", nullptr},
                {"sample_height", 300},
                {"sample_width", 300},
                {"sample_frames", 81}});
  const CogVideoXConfig newest = parse_cogvideox_config(large, "1.5");
  EXPECT_EQ(newest.patch_size_t, 2);
  EXPECT_FALSE(newest.patch_bias);
  EXPECT_EQ(newest.sample_frames, 81);
  EXPECT_FALSE(newest.takes_image());

  large.update({{"in_channels", 32}, {"ofs_embed_dim", 512}});
  const CogVideoXConfig of_images = parse_cogvideox_config(large, "1.5 I2V");
  EXPECT_EQ(of_images.ofs_embed_dim, 512);
  EXPECT_TRUE(of_images.takes_image());
}

TEST(Configs, ReadsTheTestPipelinesConfigs) {
  const auto folder = Checkpoint::open(std::string(SPARSEREEL_TEST_DATA) + "/pipeline");
  std::string file;
  const json text = folder.config("text_encoder", &file);
  EXPECT_EQ(parse_t5_config(text, file).d_model, 32);
  EXPECT_TRUE(file.ends_with("text_encoder/config.json"));
  EXPECT_NO_THROW(parse_cogvideox_config(folder.config("transformer", &file), file));
  EXPECT_NO_THROW(parse_cogvideox_vae_config(folder.config("vae", &file), file));
  const ModelSpec spec = describe(folder);
  EXPECT_EQ(spec.defaults.sampler, "CogVideoXDDIMScheduler");
  EXPECT_EQ(spec.scheduler.num_train_timesteps, 1000);
}

}  // namespace
}  // namespace sparsereel::models
