// Names and shapes of the weights of MiniMax-H3's transformer (diffusers' MiniMaxH3Transformer3DModel).
#include "models/families/minimax_h3/transformer_weights.h"

#include "hilbert/error.h"
#include "models/families/minimax_h3/rotary_order.h"
#include "models/files/json_text.h"

namespace sparsereel::models {
namespace {

constexpr const char *kTimeTable = "adaln_t_table", *kTimeBasis = "adaln_basis.weight";

}  // namespace

void MiniMaxH3Layer::weights(const Visit& visit, const std::string& name, const MiniMaxH3Config& config, bool rotates) {
  const int64_t channels = config.hidden_size, width = config.heads_width();
  const std::string attention = name + ".attn.";
  const RotatedHeads heads = {
      .count = config.num_attention_heads, .dim = config.attention_head_dim, .rotated = 6 * config.rope_freq_dim};
  const Visit of_qkv = rotates ? in_row_order(visit, heads.row_order()) : visit;
  const Visit of_norms = rotates ? in_row_order(visit, heads.channel_order()) : visit;
  norm_attention.weights(visit, name + ".norm1", channels, /*fp32=*/true);
  qkv.packed_weights(in_fp8(of_qkv), {attention + "to_q", attention + "to_k", attention + "to_v"}, width, channels,
                     /*has_bias=*/false);
  of_norms(norm_q, parameter(attention + "norm_q.weight", {config.attention_head_dim}, /*fp32=*/true));
  of_norms(norm_k, parameter(attention + "norm_k.weight", {config.attention_head_dim}, /*fp32=*/true));
  to_out.weights(in_fp8(visit), attention + "to_out.0", channels, width, /*has_bias=*/false);
  norm_feed_forward.weights(visit, name + ".norm2", channels, /*fp32=*/true);
  feed_forward_in.weights(in_fp8(visit), name + ".ff.net.0.proj", 2 * config.ffn_dim, channels, /*has_bias=*/false);
  feed_forward_out.weights(in_fp8(visit), name + ".ff.net.2", channels, config.ffn_dim, /*has_bias=*/false);
}

MiniMaxH3TimeForm minimax_h3_time_form(const Component& component, const MiniMaxH3Config& config) {
  using Kind = MiniMaxH3TimeForm::Kind;
  const auto shape = [&](const char* name, size_t axis) -> int64_t {
    const auto found = component.tensors.find(name);
    if (found == component.tensors.end()) return 0;
    const std::vector<int64_t>& sizes = found->second.second->shape;
    return sizes.size() == 2 ? sizes[axis] : 0;
  };
  if (const int64_t width = shape(kTimeTable, 1); width > 0) {
    const int64_t rows = shape(kTimeTable, 0);
    if (rows < 2)
      throw bad_file(component.origin,
                     in_quotes(kTimeTable) + " has " + std::to_string(rows) + " row, but needs two or more",
                     "download the file again");
    return {.kind = Kind::table, .width = width, .rows = rows};
  }
  if (const int64_t width = shape(kTimeBasis, 0); width > 0) return {.kind = Kind::coordinates, .width = width};
  return {.kind = Kind::embedding, .width = config.time_embed_dim};
}

void MiniMaxH3Block::modulation_weights(const Visit& visit, const std::string& name, const MiniMaxH3Config& config,
                                        const MiniMaxH3TimeForm& form) {
  modulation_projection.weights(form.is_pruned() ? in_fp32(visit) : visit, name + ".adaln_proj.linear",
                                18 * config.hidden_size, form.width);
}

void MiniMaxH3Ends::time_weights(const Visit& visit, const MiniMaxH3Config& config) {
  using Kind = MiniMaxH3TimeForm::Kind;
  if (time_form.kind == Kind::table) {
    visit(time_table, parameter(kTimeTable, {time_form.rows, time_form.width}, /*fp32=*/true));
    return;
  }
  const Visit wide = in_fp32(visit);
  time_embedding.linear_1.weights(wide, "time_embedder.linear_1", config.time_embed_hidden_dim, config.freq_dim);
  time_embedding.linear_2.weights(wide, "time_embedder.linear_2", config.time_embed_dim, config.time_embed_hidden_dim);
  if (time_form.kind == Kind::coordinates)
    visit(time_basis, parameter(kTimeBasis, {time_form.width, config.time_embed_dim}, /*fp32=*/true));
}

void MiniMaxH3Ends::weights(const Visit& visit, const MiniMaxH3Config& config) {
  const int64_t channels = config.hidden_size;
  const Visit wide = in_fp32(visit);
  patch.weights(wide, "proj_in", channels, config.patch_elements());
  sound.weights(wide, "audio_proj_in", channels, config.audio_in_channels);
  text.weights(visit, "context_embedder", channels, config.text_dim);
  time_weights(visit, config);
  refiner.resize(static_cast<size_t>(config.num_refiner_layers));
  for (size_t i = 0; i < refiner.size(); ++i)
    refiner[i].weights(visit, "token_refiner.refiner_blocks." + std::to_string(i), config, /*rotates=*/false);
  refiner_norm.weights(visit, "token_refiner.final_norm", channels, /*fp32=*/true);
  norm_out.weights(visit, "norm_out.norm", channels, /*fp32=*/true);
  norm_out_modulation.weights(time_form.is_pruned() ? wide : visit, "norm_out.linear", 2 * channels, time_form.width);
  out.weights(wide, "proj_out", config.patch_elements(), channels);
  sound_out.weights(wide, "audio_proj_out", config.audio_in_channels, channels);
}

}  // namespace sparsereel::models
