// CogVideoX 2b, 5b and 1.5 (Yang et al., arXiv 2408.06072): patches in, blocks over [video | text] tokens, patches out.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include "attention/token_gather.h"
#include "hilbert/error.h"
#include "models/dit/cogvideox_tokens.h"
#include "models/dit/cogvideox_weights.h"
#include "models/dit/dit.h"
#include "models/layers/host_memory.h"
#include "models/layers/linear.h"
#include "models/layers/norm.h"
#include "models/layers/residual.h"
#include "models/weights/layer_weights.h"

namespace sparsereel::models {
namespace {

// The reference fixes the epsilon of q's and k's norms; norm_eps is that of the others.
constexpr double kQkNormEps = 1e-6;

// The result of an adaptive norm's linear layer -> its vectors [B, C]: shift, scale and gate of video, then of text.
JointModulation joint_modulation(const at::Tensor& projected) {
  const std::vector<at::Tensor> v = projected.chunk(6, 1);
  return {.video = {v[0], v[1], v[2]}, .text = {v[3], v[4], v[5]}};
}

std::string shape_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

class CogVideoX final : public Dit {
 public:
  CogVideoX(const Component& component, at::Device device, at::ScalarType dtype, Residence residence);

  at::Tensor forward(const at::Tensor& latents, const at::Tensor& text, const at::Tensor& timesteps,
                     AttentionRun& run) override;
  void collect(AttentionRun& run) override;

  hilbert::Grid token_grid(int64_t latent_frames, int64_t latent_height, int64_t latent_width) const override {
    return {latent_frames / config_.patch_size_t.value_or(1), latent_height / config_.patch_size,
            latent_width / config_.patch_size};
  }

 private:
  void check_inputs(const at::Tensor& latents, const at::Tensor& text, const at::Tensor& timesteps) const;
  const TokenPlan& plan(const hilbert::Grid& grid, hilbert::TokenOrder order);
  at::Tensor embed_time(const at::Tensor& timesteps) const;
  at::Tensor embed_tokens(const at::Tensor& latents, const at::Tensor& text, const TokenPlan& plan) const;
  void run_block(const CogVideoXBlock& block, Residual& hidden, const at::Tensor& activated_time,
                 attention::Context& context, const hilbert::Grid& grid, AttentionRun& run);
  at::Tensor attend(const CogVideoXBlock& block, const at::Tensor& x, attention::Context& context,
                    const hilbert::Grid& grid, AttentionRun& run);
  at::Tensor head(const at::Tensor& video, const at::Tensor& activated_time) const;

  CogVideoXConfig config_;
  std::string config_file_;
  CogVideoXEnds weights_;
  std::vector<CogVideoXBlock> blocks_;
  std::unique_ptr<LayerWeights> layers_;  // brings the weights of blocks_
  at::TensorOptions options_;
  attention::Workspace workspace_;
  std::map<std::tuple<hilbert::TokenOrder, int64_t, int64_t, int64_t>, TokenPlan> plans_;
};

CogVideoX::CogVideoX(const Component& component, at::Device device, at::ScalarType dtype, Residence residence)
    : config_(parse_cogvideox_config(component.config, component.config_file)),
      config_file_(component.config_file),
      blocks_(static_cast<size_t>(config_.num_layers)),
      options_(at::TensorOptions().device(device).dtype(dtype)) {
  const auto reader = std::make_shared<WeightReader>(component, device, dtype);
  weights_.weights(reader->loads(), config_);
  std::vector<Slots> layers;
  for (CogVideoXBlock& block : blocks_) {
    const std::string name = "transformer_blocks." + std::to_string(layers.size());
    layers.push_back(slots_of([&](const Visit& visit) { block.weights(visit, name, config_); }));
  }
  layers_ = load_layers(reader, std::move(layers), residence);
  reader->check_complete();
}

void CogVideoX::check_inputs(const at::Tensor& latents, const at::Tensor& text, const at::Tensor& timesteps) const {
  const int64_t side = config_.patch_size, depth = config_.patch_size_t.value_or(1);
  if (latents.dim() != 5 || latents.size(2) != config_.in_channels || latents.size(1) % depth != 0 ||
      latents.size(3) % side != 0 || latents.size(4) % side != 0 || latents.numel() == 0) {
    throw bad_input("latents of shape " + shape_of(latents) + " do not fit " + config_file_ + ": [B, frames in " +
                        std::to_string(depth) + "s, " + std::to_string(config_.in_channels) +
                        " channels, height and width in " + std::to_string(side) + "s] are needed",
                    "check the size of the video, and the saved latents where such are used");
  }
  if (text.dim() != 3 || text.size(0) != latents.size(0) || text.size(2) != config_.text_embed_dim ||
      timesteps.dim() != 1 || timesteps.size(0) != latents.size(0)) {
    throw bad_input("text embeddings of shape " + shape_of(text) + " or timesteps of shape " + shape_of(timesteps) +
                        " do not fit latents of shape " + shape_of(latents) + " and text_embed_dim " +
                        std::to_string(config_.text_embed_dim) + " of " + config_file_,
                    "use the text encoder that the checkpoint was published with");
  }
}

const TokenPlan& CogVideoX::plan(const hilbert::Grid& grid, hilbert::TokenOrder order) {
  const auto key = std::make_tuple(order, grid.frames, grid.height, grid.width);
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    found =
        plans_.emplace(key, make_token_plan(config_, config_file_, weights_.learned_positions, grid, order, options_))
            .first;
  }
  return found->second;
}

at::Tensor CogVideoX::embed_time(const at::Tensor& timesteps) const {
  const int64_t channels = config_.num_attention_heads * config_.attention_head_dim;
  const at::Tensor sinusoids =
      timestep_sinusoids(timesteps.to(options_.device()), channels, config_.flip_sin_to_cos, config_.freq_shift);
  return embed_timesteps(sinusoids.to(options_.dtype()), weights_.time_embedding);
}

// [B, N video + L, C]: video tokens in the run's order, then text.
at::Tensor CogVideoX::embed_tokens(const at::Tensor& latents, const at::Tensor& text, const TokenPlan& plan) const {
  at::Tensor patches = patchify(latents, config_);
  if (plan.order.defined()) patches = attention::gather_tokens(patches, plan.order);
  const int64_t video_tokens = patches.size(1), text_tokens = text.size(1);
  at::Tensor hidden = at::empty({latents.size(0), video_tokens + text_tokens, weights_.text.weight.size(0)}, options_);
  at::Tensor video_part = hidden.narrow(1, 0, video_tokens), text_part = hidden.narrow(1, video_tokens, text_tokens);
  const at::Tensor projected = linear(patches, weights_.patch);
  plan.video_positions.defined() ? at::add_out(video_part, projected, plan.video_positions)
                                 : video_part.copy_(projected);
  text_part.copy_(linear(text, weights_.text));
  if (plan.text_positions.defined()) {
    if (text_tokens != plan.text_positions.size(0)) {
      throw bad_input(config_file_ + ": learned positions need max_text_seq_length = " +
                          std::to_string(plan.text_positions.size(0)) + " text tokens, not " +
                          std::to_string(text_tokens),
                      "leave --max-sequence-length at the model's default");
    }
    text_part.add_(plan.text_positions);
  }
  return hidden;
}

// x [B, N, C] -> the heads' outputs side by side [B, N, C].
at::Tensor CogVideoX::attend(const CogVideoXBlock& block, const at::Tensor& x, attention::Context& context,
                             const hilbert::Grid& grid, AttentionRun& run) {
  const at::Tensor qkv =
      linear(x, block.qkv).view({x.size(0), x.size(1), 3, config_.num_attention_heads, config_.attention_head_dim});
  context.prologue.q_weight = block.norm_q.weight;
  context.prologue.q_bias = block.norm_q.bias;
  context.prologue.k_weight = block.norm_k.weight;
  context.prologue.k_bias = block.norm_k.bias;
  const at::Tensor q = qkv.select(2, 0), k = qkv.select(2, 1), v = qkv.select(2, 2);
  if (run.watcher) run.watcher({.q = q, .k = k, .v = v, .context = context, .grid = grid});
  const attention::Result result = attention::attend(q, k, v, context, workspace_);
  if (run.attended) run.attended();
  run.per_layer[static_cast<size_t>(context.layer)] += result.statistics;
  run.kernel = result.kernel;
  return result.out.reshape(x.sizes());
}

void CogVideoX::run_block(const CogVideoXBlock& block, Residual& hidden, const at::Tensor& activated_time,
                          attention::Context& context, const hilbert::Grid& grid, AttentionRun& run) {
  const std::vector<at::Tensor> projected =
      linear_few_rows(activated_time, {&block.norm1.modulation, &block.norm2.modulation});
  const JointModulation first = joint_modulation(projected[0]), second = joint_modulation(projected[1]);
  at::Tensor x = hidden.norm_modulate(block.norm1.norm, config_.norm_eps, first);
  hidden.add(linear(attend(block, x, context, grid, run), block.to_out), first);
  x = hidden.norm_modulate(block.norm2.norm, config_.norm_eps, second);
  hidden.add(linear(linear_gelu_tanh(x, block.feed_forward_in), block.feed_forward_out), second);
}

// video [B, N video, C] -> patches of the prediction, in the same token order.
at::Tensor CogVideoX::head(const at::Tensor& video, const at::Tensor& activated_time) const {
  const std::vector<at::Tensor> v = linear_few_rows(activated_time, {&weights_.norm_out_modulation})[0].chunk(2, 1);
  const JointModulation modulation = {.video = {.shift = v[0], .scale = v[1], .gate = {}}, .text = {}};
  const at::Tensor x = layer_norm(video, weights_.norm_final, config_.norm_eps);
  return linear(layer_norm_modulate(x, weights_.norm_out, config_.norm_eps, x.size(1), modulation), weights_.out);
}

at::Tensor CogVideoX::forward(const at::Tensor& latents, const at::Tensor& text, const at::Tensor& timesteps,
                              AttentionRun& run) {
  check_inputs(latents, text, timesteps);
  const hilbert::Grid grid = token_grid(latents.size(1), latents.size(3), latents.size(4));
  const TokenPlan& tokens = plan(grid, run.token_order);
  run.per_layer.resize(blocks_.size());

  attention::Context context;
  context.mode = run.mode;
  context.policy = run.policy;
  context.step = run.step;
  context.text_tokens = text.size(1);
  context.prologue.norm = attention::Prologue::Norm::layer;
  context.prologue.eps = kQkNormEps;
  context.prologue.rotary_cos = tokens.rotary.cos;
  context.prologue.rotary_sin = tokens.rotary.sin;
  context.prologue.rotary_pairs = tokens.rotary_pairs;

  const at::Tensor activated_time = at::silu(embed_time(timesteps));
  Residual hidden(embed_tokens(latents.to(options_), text.to(options_), tokens), grid.size());
  for (size_t layer = 0; layer < blocks_.size(); ++layer) {
    context.layer = static_cast<int64_t>(layer);
    layers_->visit(layer);
    run_block(blocks_[layer], hidden, activated_time, context, grid, run);
  }
  at::Tensor patches = head(hidden.value().narrow(1, 0, grid.size()), activated_time);
  if (tokens.inverse.defined()) patches = attention::gather_tokens(patches, tokens.inverse);
  patches = unpatchify(patches, config_, latents.sizes()).to(latents.scalar_type());
  if (run.collects) collect(run);
  return patches;
}

void CogVideoX::collect(AttentionRun& run) {
  attention::collect_counts(workspace_, run.per_layer);
  run.statistics = {};
  for (const attention::Statistics& layer : run.per_layer) run.statistics += layer;
}

}  // namespace

std::unique_ptr<Dit> load_cogvideox_dit(const Component& component, at::Device device, at::ScalarType dtype,
                                        bool offload) {
  if (device.is_cpu()) keep_freed_host_memory();
  return std::make_unique<CogVideoX>(component, device, dtype, offload ? Residence::host : Residence::device);
}

}  // namespace sparsereel::models
