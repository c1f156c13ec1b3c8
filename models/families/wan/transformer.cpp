// Wan 2.1 and 2.2 (Wan Team, arXiv 2503.20314): blocks of self-attention over the video, cross-attention to the text
// and to images if the model takes them, and feed-forward.
#include "models/families/wan/loaders.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "hilbert/error.h"
#include "models/families/wan/transformer_weights.h"
#include "models/transformer/attend.h"
#include "models/transformer/layered_transformer.h"
#include "models/transformer/patches.h"
#include "models/transformer/text_padding.h"

namespace sparsereel::models {
namespace {

// Returns a norm's weight and bias [C] in the form of modulation. The norm then runs as a modulated norm without
// weights, which uses fp32 and is fused with the addition before it.
JointModulation modulation_of(const Norm& norm, int64_t entries, const Tokens& tokens) {
  const Modulation video = {
      .shift = norm.bias.expand({entries, -1}), .scale = (norm.weight - 1).expand({entries, -1}), .gate = {}};
  return {.video = video, .text = {}, .row_of_token = tokens.row_of_token};
}

// Returns each timestep followed by 0. If some tokens are known (an image's), each batch entry needs two rows of
// everything that depends on time: one for its own timestep and one for timestep 0, which is that of known tokens.
at::Tensor with_zeros(const at::Tensor& timesteps) {
  return at::stack({timesteps, at::zeros_like(timesteps)}, 1).flatten();
}

// Returns int64 [B, N]: for each token, the index of its row in everything that depends on time. `known` [N] is 1 for
// known tokens, else 0.
at::Tensor rows_of(const at::Tensor& known, int64_t batch) {
  return 2 * at::arange(batch, known.options()).unsqueeze(1) + known;
}

constexpr double kImageNormEps = 1e-5;  // torch's default; the reference ignores the config's eps here

// Computes in fp32 and rounds the result once to the dtype of x.
at::Tensor wide_norm(const at::Tensor& x, const Norm& norm) {
  return layer_norm(x.to(at::kFloat), norm, kImageNormEps).to(x.scalar_type());
}

attention::Prologue norms_of(const at::Tensor& q_weight, const at::Tensor& k_weight, double eps) {
  attention::Prologue prologue;
  prologue.norm = attention::Prologue::Norm::rms;
  prologue.across_heads = true;
  prologue.eps = eps;
  prologue.q_weight = q_weight;
  prologue.k_weight = k_weight;
  return prologue;
}

PatchSize patch_of(const WanConfig& config) {
  const auto& [t, h, w] = config.patch_size;
  return {.frames = t, .height = h, .width = w};
}

class Wan final : public LayeredTransformer<WanConfig, WanEnds, WanBlock> {
 public:
  explicit Wan(const Component& component) : LayeredTransformer(component, parse_wan_config, "blocks.") {}

  hilbert::Grid grid_of(const TransformerInput& input) const override;
  TokenTables tables(const hilbert::Grid& grid) const override;
  Tokens embed(const TransformerInput& input, const TokenPlan& plan) const override;
  void block(size_t layer, Tokens& tokens, Attend& attend) const override;
  at::Tensor head(Tokens& tokens, const TokenPlan& plan) const override;

 private:
  Activation self_attention(const WanBlock& block, Activation x, Attend& attend) const;
  at::Tensor cross_attention(size_t layer, Activation x, const Tokens& tokens, Attend& attend) const;
  void check_images(const Conditioning& given) const;
  at::Tensor embed_images(const at::Tensor& tokens) const;
  KeysAndValues keys_of_images(const WanBlock& block, const at::Tensor& context) const;
};

hilbert::Grid Wan::grid_of(const TransformerInput& input) const {
  const hilbert::Grid grid = grid_of_patches(input.latents, config_.in_channels, patch_of(config_), config_file_);
  check_conditions(input, config_.text_dim, "text_dim", config_file_);
  check_images(input.conditioning);
  return grid;
}

void Wan::check_images(const Conditioning& given) const {
  const at::Tensor& images = given.context;
  if (images.defined() != config_.attends_to_images())
    throw bad_input(config_file_ + (images.defined() ? ": the model takes no image, but one is given"
                                                     : ": the model needs an image, but none is given"),
                    images.defined() ? "leave image out" : "give image");
  if (given.pooled.defined())
    throw bad_input("a pooled text embedding was given, but the model of " + config_file_ + " takes none",
                    "leave the pooled text embedding out");
  if (!images.defined()) return;
  const int64_t count = config_.pos_embed_seq_len.value_or(images.size(1));
  if (images.dim() == 3 && images.size(0) == 1 && images.size(1) == count && images.size(2) == *config_.image_dim)
    return;
  throw bad_input(
      "image tokens of shape " + shape_of(images) + " do not fit " + config_file_ + ", which needs [1, " +
          (config_.pos_embed_seq_len ? std::to_string(count) : "tokens") + ", " + std::to_string(*config_.image_dim) +
          "]",
      "use the image encoder that the checkpoint was published with, and as many images as the model takes");
}

TokenTables Wan::tables(const hilbert::Grid& grid) const {
  const int64_t most = config_.rope_max_seq_len;
  if (grid.frames > most || grid.height > most || grid.width > most) {
    throw bad_input(config_file_ + ": a video of " + std::to_string(grid.frames) + " x " + std::to_string(grid.height) +
                        " x " + std::to_string(grid.width) + " patches exceeds rope_max_seq_len " +
                        std::to_string(most),
                    "ask for fewer frames or a smaller size");
  }
  const int64_t side = config_.attention_head_dim / 6 * 2;
  return {.video_positions = {},
          .text_positions = {},
          .rotary = rotary_positions_3d({.t = config_.attention_head_dim - 2 * side, .h = side, .w = side},
                                        plain_axis_positions(grid, at::kDouble))};
}

Tokens Wan::embed(const TransformerInput& input, const TokenPlan& plan) const {
  const auto dtype = input.latents.scalar_type();
  const Conditioning& given = input.conditioning;
  const at::Tensor times = given.mask.defined() ? with_zeros(input.timesteps) : input.timesteps;
  const at::Tensor sinusoids = timestep_sinusoids(times, config_.freq_dim, /*flip_sin_to_cos=*/true, /*freq_shift=*/0);
  const at::Tensor time = embed_timesteps(sinusoids, ends_.time_embedding).to(dtype);
  const at::Tensor patches = patchify(input.latents.transpose(1, 2), patch_of(config_), plan);
  const FoldedText text = fold_padding(given.text, given.text_lengths);
  Tokens tokens = {
      .hidden = Residual(linear(patches, ends_.patch), patches.size(1)),
      .text_tokens = 0,
      .time = time,
      .modulation = linear_few_rows(at::silu(time), {&ends_.time_projection})[0].to(at::kFloat).unflatten(1, {6, -1}),
      .context = feed_forward_gelu_tanh(text.rows, ends_.text_in, ends_.text_out),
      .context_bias = text.bias};
  if (given.mask.defined())
    tokens.row_of_token = rows_of(known_tokens(given.mask.transpose(1, 2), patch_of(config_), plan), patches.size(0));
  if (!given.context.defined()) return tokens;
  tokens.image_keys = given.keys ? given.keys : std::make_shared<ContextKeys>();
  if (!tokens.image_keys->complete(layers())) tokens.image_context = embed_images(given.context);
  return tokens;
}

at::Tensor Wan::embed_images(const at::Tensor& tokens) const {
  const WanImageEmbedding& image = ends_.image;
  const at::Tensor placed = image.positions.defined() ? tokens + image.positions : tokens;
  return wide_norm(linear(linear_gelu(wide_norm(placed, image.norm_in), image.in), image.out), image.norm_out);
}

KeysAndValues Wan::keys_of_images(const WanBlock& block, const at::Tensor& context) const {
  const at::Tensor kv = linear(context, block.image_kv).unflatten(2, {2, -1});
  const at::Tensor k = rms_norm(kv.select(2, 0), block.image_norm_k, config_.eps).to(kv.scalar_type());
  const auto heads = [&](const at::Tensor& x) { return split_heads(x).squeeze(2); };
  return {.k = heads(k), .v = heads(kv.select(2, 1).contiguous())};
}

Activation Wan::self_attention(const WanBlock& block, Activation x, Attend& attend) const {
  return attend({.x = std::move(x), .qkv = &block.qkv}, heads(), norms_of(block.norm_q, block.norm_k, config_.eps),
                block.to_out);
}

at::Tensor Wan::cross_attention(size_t layer, Activation x, const Tokens& tokens, Attend& attend) const {
  const WanBlock& block = blocks_[layer];
  const at::Tensor q = split_heads(linear(Activation(std::move(x)), block.cross_q)),
                   kv = split_heads(linear(tokens.context, block.cross_kv));
  const auto norms = norms_of(block.cross_norm_q, block.cross_norm_k, config_.eps);
  if (!tokens.image_keys)
    return attend.cross(q.select(2, 0), kv.select(2, 0), kv.select(2, 1), norms, tokens.context_bias, block.cross_out);
  const KeysAndValues& images =
      tokens.image_keys->of(layer, [&] { return keys_of_images(block, tokens.image_context); });
  return attend.cross(q.select(2, 0), kv.select(2, 0), kv.select(2, 1), norms, tokens.context_bias, images,
                      block.cross_out);
}

void Wan::block(size_t layer, Tokens& tokens, Attend& attend) const {
  const WanBlock& block = blocks_[layer];
  const at::Tensor table = block.modulation + tokens.modulation;
  const JointModulation first = modulation_rows(table, 0, 3, tokens.row_of_token),
                        second = modulation_rows(table, 3, 3, tokens.row_of_token);
  Activation x = tokens.hidden.norm_modulate({}, config_.eps, first, block.qkv);
  tokens.hidden.add(linear(self_attention(block, std::move(x), attend), block.to_out), first);
  x = config_.cross_attn_norm
          ? tokens.hidden.norm_modulate({}, config_.eps, modulation_of(block.cross_norm, table.size(0), tokens),
                                        block.cross_q)
          : tokens.hidden.value();
  tokens.hidden.add(cross_attention(layer, std::move(x), tokens, attend));
  tokens.hidden.add_feed_forward({}, config_.eps, second, block.feed_forward_in, block.feed_forward_out);
}

at::Tensor Wan::head(Tokens& tokens, const TokenPlan& plan) const {
  const JointModulation modulation =
      modulation_rows(ends_.modulation + tokens.time.unsqueeze(1), 0, 2, tokens.row_of_token);
  const at::Tensor patches = linear(tokens.hidden.norm_modulate({}, config_.eps, modulation), ends_.out);
  return unpatchify_channels_last(patches, config_.out_channels, config_.out_channels, patch_of(config_), plan);
}

}  // namespace

std::unique_ptr<LoadedTransformer> load_wan_transformer(const Component& component, at::Device device,
                                                        WeightFormat format, const Streaming& streaming) {
  // Published image-to-video models may have this tensor, but diffusers does not use it.
  return loaded_transformer(std::make_unique<Wan>(component), component, device, format, streaming, {".norm_added_q."});
}

}  // namespace sparsereel::models
