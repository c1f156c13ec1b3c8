// MiniMax-H3's transformer (MiniMax, 2026). Tokens of video, keyframes, sound and text form one sequence and attend to
// each other. All pass through the same layers; only their modulation differs. Modulation depends only on a token's
// kind and timestep, so it is computed once for all steps.
#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "hilbert/error.h"
#include "models/families/minimax_h3/loaders.h"
#include "models/families/minimax_h3/token_rows.h"
#include "models/families/minimax_h3/transformer_weights.h"
#include "models/transformer/layered_transformer.h"
#include "models/transformer/patches.h"

namespace sparsereel::models {
namespace {

PatchSize patch_of(const MiniMaxH3Config& config) {
  const auto& [t, h, w] = config.patch_size;
  return {.frames = t, .height = h, .width = w};
}

attention::Prologue norms_of(const MiniMaxH3Layer& layer, double eps) {
  attention::Prologue prologue;
  prologue.norm = attention::Prologue::Norm::rms;
  prologue.eps = eps;
  prologue.q_weight = layer.norm_q;
  prologue.k_weight = layer.norm_k;
  return prologue;
}

/// Computes in fp32 and rounds the result once to the dtype of x.
at::Tensor rms_normed(const at::Tensor& x, const Norm& norm, double eps) {
  return rms_norm(x, norm.weight, eps).to(x.scalar_type());
}

class MiniMaxH3 final : public LayeredTransformer<MiniMaxH3Config, MiniMaxH3Ends, MiniMaxH3Block> {
 public:
  explicit MiniMaxH3(const Component& component)
      : LayeredTransformer(component, parse_minimax_h3_config, "transformer_blocks.") {
    ends_.time_form = minimax_h3_time_form(component, config_);
  }

  bool reads_wide_latents() const override { return true; }
  hilbert::Grid grid_of(const TransformerInput& input) const override;
  TokenTables tables(const hilbert::Grid& grid) const override;
  TokenTables tables_of(const TransformerInput& input, const hilbert::Grid& grid) const override {
    return minimax_h3_tables(config_, input, grid);
  }
  std::vector<int64_t> positions_key(const TransformerInput& input) const override;

  void modulation_weights(size_t layer, const Visit& visit) override {
    blocks_[layer].modulation_weights(visit, blocks_name_ + std::to_string(layer), config_, ends_.time_form);
  }
  bool lacks_modulation(const StepTimes& times) const override;
  void begin_modulation(const StepTimes& times) override;
  void make_modulation(size_t layer) override;

  Tokens embed(const TransformerInput& input, const TokenPlan& plan) const override;
  void block(size_t layer, Tokens& tokens, Attend& attend) const override;
  at::Tensor head(Tokens& tokens, const TokenPlan& plan) const override;
  at::Tensor sound_head(Tokens& tokens) const override;

 private:
  void check_sound(const TransformerInput& input) const;
  void check_pictures(const TransformerInput& input) const;
  at::Tensor embed_text(const at::Tensor& text) const;
  at::Tensor refined(const MiniMaxH3Layer& layer, const at::Tensor& x) const;
  at::Tensor embed_patches(const at::Tensor& latents, const TokenPlan& plan) const;
  at::Tensor place_of(const std::vector<ModulationRow>& rows) const;
  at::Tensor embed_times(const at::Tensor& times) const;
  at::Tensor modulation_of(const Linear& projection) const;
  at::Tensor final_norm(Tokens& tokens) const;

  std::vector<ModulationRow> rows_;   // the R modulations that the steps need
  at::Tensor times_, times_of_rows_;  // embedded timesteps [times, T or K]; int64 [R], each modulation's index in them
  at::Tensor kinds_of_rows_;          // int64 [R], each modulation's TokenKind
  at::Tensor out_modulation_;         // [R, 2, C]: shift, scale
};

/// Returns all modulations that any step needs, without duplicates.
std::vector<ModulationRow> rows_of(const StepTimes& times) {
  std::vector<ModulationRow> rows;
  for (size_t step = 0; step < times.video.size(); ++step)
    for (const ModulationRow& row : modulation_rows_at(times.video[step], times.sound.at(step), times.has_keyframes))
      if (std::ranges::find(rows, row) == rows.end()) rows.push_back(row);
  return rows;
}

hilbert::Grid MiniMaxH3::grid_of(const TransformerInput& input) const {
  const hilbert::Grid grid = grid_of_patches(input.latents, config_.in_channels, patch_of(config_), config_file_);
  check_conditions(input, config_.text_dim, "text_dim", config_file_);
  check_text_alone(input, config_file_);
  if (input.latents.size(0) != 1)
    throw bad_input(config_file_ + " belongs to a model that predicts one video at a time, but latents of " +
                        std::to_string(input.latents.size(0)) + " are given",
                    "call it once for each video");
  check_sound(input);
  check_pictures(input);
  return grid;
}

void MiniMaxH3::check_sound(const TransformerInput& input) const {
  const at::Tensor& sound = input.sound;
  const bool fits = sound.dim() == 3 && sound.size(0) == 1 && sound.size(1) > 0 &&
                    sound.size(1) % MiniMaxH3Config::kSoundChannels == 0 && sound.size(2) == config_.audio_in_channels;
  if (fits && input.sound_timesteps.dim() == 1 && input.sound_timesteps.size(0) == 1) return;
  throw bad_input("latents of a sound of shape " + shape_of(sound) + " and timesteps of shape " +
                      shape_of(input.sound_timesteps) + " do not fit " + config_file_ +
                      ", which needs [1, 2 x length, " + std::to_string(config_.audio_in_channels) +
                      "] and one timestep",
                  "give the latents of a sound as long as the video, and its timestep");
}

void MiniMaxH3::check_pictures(const TransformerInput& input) const {
  std::vector<int64_t> wanted = input.latents.sizes().vec();
  wanted[2] = 1;
  for (const Keyframe& keyframe : input.keyframes)
    if (keyframe.latents.sizes() != wanted)
      throw bad_input("latents of a keyframe of shape " + shape_of(keyframe.latents) + " do not fit latents of shape " +
                          shape_of(input.latents),
                      "encode the picture in the size of the video");
  const int64_t length = text_of(input).size(1);
  for (const TextSpan& span : input.conditioning.pictures)
    if (span.first < 0 || span.count < 0 || span.first > length - span.count)
      throw bad_input("tokens " + std::to_string(span.first) + " to " + std::to_string(span.first + span.count - 1) +
                          " stand for a picture, but the text has " + std::to_string(length) + " tokens",
                      "mark only tokens of the text");
}

TokenTables MiniMaxH3::tables(const hilbert::Grid&) const {
  throw bad_input(config_file_ + " belongs to a model that makes video and sound, but no sound is given",
                  "give the latents of the sound, too");
}

std::vector<int64_t> MiniMaxH3::positions_key(const TransformerInput& input) const {
  std::vector<int64_t> key = {text_of(input).size(1), input.sound.size(1)};
  for (const Keyframe& keyframe : input.keyframes) key.push_back(keyframe.last ? 1 : 0);
  return key;
}

bool MiniMaxH3::lacks_modulation(const StepTimes& times) const {
  return std::ranges::any_of(rows_of(times),
                             [&](const ModulationRow& row) { return std::ranges::find(rows_, row) == rows_.end(); });
}

void MiniMaxH3::begin_modulation(const StepTimes& times) {
  rows_ = rows_of(times);
  const at::Device device = ends_.text.bias.device();
  std::vector<float> distinct;
  std::vector<int64_t> time_of_row, kind_of_row;
  for (const ModulationRow& row : rows_) {
    const auto found = std::ranges::find(distinct, row.time);
    time_of_row.push_back(found - distinct.begin());
    kind_of_row.push_back(static_cast<int64_t>(row.kind));
    if (found == distinct.end()) distinct.push_back(row.time);
  }
  times_ = embed_times(at::tensor(distinct).to(device));
  times_of_rows_ = at::tensor(time_of_row).to(device);
  kinds_of_rows_ = at::tensor(kind_of_row).to(device);
  out_modulation_ = modulation_of(ends_.norm_out_modulation).unflatten(1, {2, -1}).index_select(0, times_of_rows_);
}

/// Returns [times, T or K] for fp32 [times], in the dtype of the layers that compute modulation.
at::Tensor MiniMaxH3::embed_times(const at::Tensor& times) const {
  if (ends_.time_form.kind == MiniMaxH3TimeForm::Kind::table) {
    const at::Tensor place = times.clamp(0, 1) * static_cast<double>(ends_.time_form.rows - 1);
    const at::Tensor before = place.floor().clamp_max(static_cast<double>(ends_.time_form.rows - 2));
    const at::Tensor row = before.to(at::kLong);
    const at::Tensor low = ends_.time_table.index_select(0, row), high = ends_.time_table.index_select(0, row + 1);
    return at::lerp(low, high, (place - before).unsqueeze(1));
  }
  const at::Tensor sinusoids = timestep_sinusoids(times, config_.freq_dim, /*flip_sin_to_cos=*/true, /*freq_shift=*/0);
  // The silu is computed in fp32: rounding its input would shift the modulation of all blocks and steps in the same
  // direction.
  const at::Tensor embedded = at::silu(embed_timesteps(sinusoids, ends_.time_embedding));
  if (ends_.time_basis.defined()) return at::linear(embedded, ends_.time_basis);
  return embedded.to(ends_.norm_out_modulation.bias.scalar_type());
}

/// Returns [times, outputs] in the dtype in which the tokens are modulated.
at::Tensor MiniMaxH3::modulation_of(const Linear& projection) const {
  return linear(times_, projection).to(ends_.text.bias.scalar_type());
}

void MiniMaxH3::make_modulation(size_t layer) {
  MiniMaxH3Block& block = blocks_[layer];
  const at::Tensor all = modulation_of(block.modulation_projection).unflatten(1, {3, 6, -1}).flatten(0, 1);
  block.modulation = all.index_select(0, times_of_rows_ * 3 + kinds_of_rows_);
}

/// Returns int64 [rows] on the device: the indices of these modulations in rows_.
at::Tensor MiniMaxH3::place_of(const std::vector<ModulationRow>& rows) const {
  std::vector<int64_t> places;
  for (const ModulationRow& row : rows) places.push_back(std::ranges::find(rows_, row) - rows_.begin());
  return at::tensor(places).to(times_.device());
}

at::Tensor MiniMaxH3::refined(const MiniMaxH3Layer& layer, const at::Tensor& x) const {
  const at::Tensor qkv = split_heads(linear(rms_normed(x, layer.norm_attention, config_.norm_eps), layer.qkv));
  attention::Workspace workspace;
  const attention::Context context = {.prologue = norms_of(layer, config_.qk_norm_eps)};
  const at::Tensor heads =
      attention::attend(qkv.select(2, 0), qkv.select(2, 1), qkv.select(2, 2), context, workspace).out;
  const at::Tensor attended = x + linear(heads.flatten(2), layer.to_out);
  return attended + feed_forward_swiglu(rms_normed(attended, layer.norm_feed_forward, config_.norm_eps),
                                        layer.feed_forward_in, layer.feed_forward_out);
}

at::Tensor MiniMaxH3::embed_text(const at::Tensor& text) const {
  if (text.size(1) == 0) return at::empty({1, 0, config_.hidden_size}, text.options());
  at::Tensor x = linear(text, ends_.text);
  for (const MiniMaxH3Layer& layer : ends_.refiner) x = refined(layer, x);
  return rms_normed(x, ends_.refiner_norm, config_.final_norm_eps);
}

/// Embeds the patches of latents [1, C, F, H, W], in fp32.
at::Tensor MiniMaxH3::embed_patches(const at::Tensor& latents, const TokenPlan& plan) const {
  return linear(patchify(latents.transpose(1, 2), patch_of(config_), plan), ends_.patch);
}

Tokens MiniMaxH3::embed(const TransformerInput& input, const TokenPlan& plan) const {
  const at::Tensor text = text_of(input);
  const auto dtype = text.scalar_type();
  const TokensBehindVideo behind = tokens_behind_video(input, plan.grid);
  std::vector<at::Tensor> parts = {embed_patches(input.latents, plan).to(dtype)};
  const int64_t video_tokens = parts.front().size(1), patches = plan.grid.height * plan.grid.width;
  TokenPlan one_frame;
  one_frame.grid = {1, plan.grid.height, plan.grid.width};
  one_frame.slice = {.first = 0, .count = patches};
  for (const Keyframe& keyframe : input.keyframes)
    parts.push_back(embed_patches(keyframe.latents, one_frame).to(dtype));
  parts.push_back(linear(input.sound, ends_.sound).to(dtype));
  parts.push_back(embed_text(text));
  const auto rows = modulation_rows_at(input.timesteps[0].item<double>(), input.sound_timesteps[0].item<double>(),
                                       !input.keyframes.empty());
  return {.hidden = Residual(at::cat(parts, 1), video_tokens),
          .text_tokens = behind.all(),
          .time = {},
          .row_of_token = modulation_of_tokens(video_tokens, behind, input.conditioning.pictures).to(text.device()),
          .modulation_rows = place_of(rows)};
}

/// Returns a modulation with the same vectors for the text as for the video, so that row_of_token alone decides which
/// vectors a token uses.
JointModulation for_all(JointModulation modulation) {
  modulation.text = modulation.video;
  return modulation;
}

void MiniMaxH3::block(size_t layer, Tokens& tokens, Attend& attend) const {
  const MiniMaxH3Block& block = blocks_[layer];
  const at::Tensor table = block.modulation.index_select(0, tokens.modulation_rows);
  const JointModulation first = for_all(modulation_rows(table, 0, 3, tokens.row_of_token)),
                        second = for_all(modulation_rows(table, 3, 3, tokens.row_of_token));
  Activation x = tokens.hidden.norm_modulate(block.norm_attention, config_.norm_eps, first, block.qkv);
  const Activation attended =
      attend({.x = std::move(x), .qkv = &block.qkv}, heads(), norms_of(block, config_.qk_norm_eps), block.to_out);
  tokens.hidden.add(linear(attended, block.to_out), first);
  x = tokens.hidden.norm_modulate(block.norm_feed_forward, config_.norm_eps, second, block.feed_forward_in);
  tokens.hidden.add(feed_forward_swiglu(x, block.feed_forward_in, block.feed_forward_out), second);
}

at::Tensor MiniMaxH3::final_norm(Tokens& tokens) const {
  const at::Tensor table = out_modulation_.index_select(0, tokens.modulation_rows);
  return tokens.hidden.norm_modulate(ends_.norm_out, config_.final_norm_eps,
                                     for_all(modulation_rows(table, 0, 2, tokens.row_of_token)));
}

at::Tensor MiniMaxH3::head(Tokens& tokens, const TokenPlan& plan) const {
  const at::Tensor video = final_norm(tokens).narrow(1, 0, plan.slice.count);
  return unpatchify(linear(video.to(at::kFloat), ends_.out), patch_of(config_), plan).transpose(1, 2).contiguous();
}

at::Tensor MiniMaxH3::sound_head(Tokens& tokens) const {
  const at::Tensor normed = final_norm(tokens), is_sound = tokens.row_of_token[0].eq(2);
  return linear(normed.index({at::indexing::Slice(), is_sound}).to(at::kFloat), ends_.sound_out);
}

}  // namespace

std::unique_ptr<LoadedTransformer> load_minimax_h3_transformer(const Component& component, at::Device device,
                                                               WeightFormat format, const Streaming& streaming) {
  return loaded_transformer(std::make_unique<MiniMaxH3>(component), component, device, format, streaming);
}

}  // namespace sparsereel::models
