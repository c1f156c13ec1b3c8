// The decoder of MiniMax-H3's autoencoder of sound: BigVGAN (Lee et al., arXiv 2206.04658). It always computes in fp32,
// because lower precision is audible.
#include "models/vae/sound_vae.h"

#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hilbert/error.h"
#include "models/families/minimax_h3/loaders.h"
#include "models/families/minimax_h3/sound_config.h"
#include "models/layers/host_memory.h"
#include "models/store/weights/weights.h"
#include "models/transformer/shape_text.h"
#include "models/vae/sound_convolution.h"

namespace sparsereel::models {
namespace {

constexpr int64_t kEdgeKernel = 7;   // kernel size of the first and the last convolution
constexpr int64_t kFilterTaps = 12;  // length of the filters around activations
constexpr int64_t kStereo = 2;

/// A convolution whose weight is stored as lengths and directions of its rows (Salimans and Kingma, arXiv 1602.07868).
struct SoundConvolution {
  at::Tensor weight;   // fp32 [rows, .., kernel]: the weight after finish(); before, the rows' directions
  at::Tensor lengths;  // [rows, 1, 1]; undefined after finish(), or if the file holds the weights themselves
  at::Tensor bias;     // [out]; undefined if there is none
  int64_t padding_a_dilation = 0;

  void weights(const Visit& visit, const std::string& name, const std::vector<int64_t>& shape, int64_t biases) {
    visit(lengths, parameter(name + ".weight_g", {shape[0], 1, 1}, /*fp32=*/true));
    visit(weight, parameter(name + ".weight_v", shape, /*fp32=*/true));
    if (biases > 0) visit(bias, parameter(name + ".bias", {biases}, /*fp32=*/true));
    padding_a_dilation = (shape[2] - 1) / 2;
  }
  void finish() {
    if (!lengths.defined()) return;  // the file holds the weight itself
    weight = weight * (lengths / weight.square().sum({1, 2}, /*keepdim=*/true).sqrt());
    lengths.reset();
  }
  /// Convolves without changing the length.
  at::Tensor operator()(const at::Tensor& x, int64_t dilation = 1) const {
    return convolve_sound(x, weight, bias, {.padding = padding_a_dilation * dilation, .dilation = dilation});
  }
};

/// Adds sin^2(a x) / b to x, for each channel. This happens at twice the sampling rate, between two filters, which
/// prevent aliasing.
struct SoundActivation {
  at::Tensor frequency, divisor;  // a and b [channels, 1]; before finish(), their logarithms [channels]
  at::Tensor up, down;            // filters [1, 1, kFilterTaps]

  void weights(const Visit& visit, const std::string& name, int64_t channels) {
    visit(frequency, parameter(name + ".act.alpha", {channels}, /*fp32=*/true));
    visit(divisor, parameter(name + ".act.beta", {channels}, /*fp32=*/true));
    visit(up, parameter(name + ".upsample.filter", {1, 1, kFilterTaps}, /*fp32=*/true));
    visit(down, parameter(name + ".downsample.lowpass.filter", {1, 1, kFilterTaps}, /*fp32=*/true));
  }
  void finish() {
    frequency = frequency.exp().unsqueeze(1);
    divisor = (divisor.exp() + 1e-9).unsqueeze(1);
    up = up * 2;  // makes up for the zeros between samples
  }
  at::Tensor operator()(const at::Tensor& x) const {
    constexpr int64_t kEdge = kFilterTaps / 2 - 1;               // copies of the first sample that are put before it
    constexpr int64_t kCut = 2 * kEdge + (kFilterTaps - 2) / 2;  // samples of the result that come from the copies
    const at::Tensor rows = at::replication_pad1d(x.flatten(0, 1).unsqueeze(1), {kEdge, kEdge});
    const at::Tensor dense =
        spread_sound(rows, up, {}, {.padding = kCut, .stride = 2}).view({x.size(0), x.size(1), -1});
    const at::Tensor bent = dense + (dense * frequency).sin().square() / divisor;
    const at::Tensor bordered = at::replication_pad1d(bent.flatten(0, 1).unsqueeze(1), {kEdge, kEdge + 1});
    return convolve_sound(bordered, down, {}, {.stride = 2}).view_as(x);
  }
};

/// A chain of residual updates. Each applies an activation, a dilated convolution, another activation and a plain
/// convolution.
struct SoundBlock {
  struct Update {
    SoundActivation before_dilated, before_plain;
    SoundConvolution dilated, plain;
    int64_t dilation;
  };
  std::vector<Update> updates;

  void weights(const Visit& visit, const std::string& name, int64_t channels, int64_t kernel,
               const std::vector<int64_t>& dilations) {
    updates.resize(dilations.size());
    for (size_t i = 0; i < updates.size(); ++i) {
      Update& update = updates[i];
      update.dilation = dilations[i];
      update.before_dilated.weights(visit, name + ".activations." + std::to_string(2 * i), channels);
      update.before_plain.weights(visit, name + ".activations." + std::to_string(2 * i + 1), channels);
      update.dilated.weights(visit, name + ".convs1." + std::to_string(i), {channels, channels, kernel}, channels);
      update.plain.weights(visit, name + ".convs2." + std::to_string(i), {channels, channels, kernel}, channels);
    }
  }
  void finish() {
    for (Update& update : updates) {
      update.before_dilated.finish();
      update.before_plain.finish();
      update.dilated.finish();
      update.plain.finish();
    }
  }
  at::Tensor operator()(at::Tensor x) const {
    for (const Update& update : updates)
      x = x + update.plain(update.before_plain(update.dilated(update.before_dilated(x), update.dilation)));
    return x;
  }
};

/// Lengthens the sound by `rate` and halves its channels, then averages the results of several blocks.
struct SoundStage {
  SoundConvolution lengthens;
  int64_t rate = 1;
  std::vector<SoundBlock> blocks;

  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor longer = spread_sound(x, lengthens.weight, lengthens.bias,
                                           {.padding = (lengthens.weight.size(2) - rate) / 2, .stride = rate});
    at::Tensor sum = blocks.front()(longer);
    for (size_t i = 1; i < blocks.size(); ++i) sum = sum + blocks[i](longer);
    return sum / static_cast<double>(blocks.size());
  }
};

/// Returns the parameter that ComfyUI's files have in place of this one; nothing if they have none. They hold the
/// weight of a convolution in place of its direction (weight_v), and no length (weight_g).
std::optional<Parameter> in_whole_weights(Parameter parameter) {
  std::string& name = parameter.names.front();
  if (name.ends_with(".weight_g")) return std::nullopt;
  if (name.ends_with(".weight_v")) name.resize(name.size() - std::string_view("_v").size());
  return parameter;
}

class MiniMaxH3SoundVae final : public SoundVae {
 public:
  MiniMaxH3SoundVae(const Component& component, at::Device device);

  at::Tensor decode(const at::Tensor& latents) override;
  int64_t samples_a_latent() const override { return config_.samples_a_latent(); }
  int64_t sampling_rate() const override { return config_.sampling_rate; }

 private:
  void weights(const Visit& visit);
  void finish();
  at::Tensor channel_numbers(const std::vector<double>& values) const;

  const MiniMaxH3SoundConfig config_;
  const at::Device device_;
  at::Tensor in_weight_, in_bias_;  // [latent_dim, latent_channels, 1], [latent_dim]
  SoundConvolution first_, last_;
  std::vector<SoundStage> stages_;
  SoundActivation last_activation_;
};

MiniMaxH3SoundVae::MiniMaxH3SoundVae(const Component& component, at::Device device)
    : config_(parse_minimax_h3_sound_config(component.config, component.config_file)), device_(device) {
  if (device.is_cpu()) keep_freed_host_memory();
  WeightReader reader(component, device, at::kFloat);
  for (const char* prefix : {"encoder.", "pre_block.", "mean_proj.", "logs_proj."}) reader.ignore_prefix(prefix);
  const bool is_whole = reader.contains("decoder.conv_pre.weight");
  weights([&](at::Tensor& tensor, const Parameter& parameter) {
    const auto stored = is_whole ? in_whole_weights(parameter) : std::optional(parameter);
    if (stored) tensor = reader.read(*stored);
  });
  reader.check_complete();
  finish();
}

void MiniMaxH3SoundVae::weights(const Visit& visit) {
  const std::string name = "decoder.";
  visit(in_weight_, parameter("dec_in_proj.weight", {config_.latent_dim, config_.latent_channels, 1}, /*fp32=*/true));
  visit(in_bias_, parameter("dec_in_proj.bias", {config_.latent_dim}, /*fp32=*/true));
  int64_t channels = config_.decoder_dim;
  first_.weights(visit, name + "conv_pre", {channels, config_.latent_dim, kEdgeKernel}, channels);
  stages_.resize(config_.decoder_rates.size());
  const size_t kernels = config_.resblock_kernel_sizes.size();
  for (size_t i = 0; i < stages_.size(); ++i) {
    SoundStage& stage = stages_[i];
    stage.rate = config_.decoder_rates[i];
    stage.lengthens.weights(visit, name + "ups." + std::to_string(i) + ".0",
                            {channels, channels / 2, config_.decoder_kernel_sizes[i]}, channels / 2);
    channels /= 2;
    stage.blocks.resize(kernels);
    for (size_t j = 0; j < kernels; ++j)
      stage.blocks[j].weights(visit, name + "resblocks." + std::to_string(i * kernels + j), channels,
                              config_.resblock_kernel_sizes[j], config_.resblock_dilation_sizes[j]);
  }
  last_activation_.weights(visit, name + "activation_post", channels);
  last_.weights(visit, name + "conv_post", {1, channels, kEdgeKernel}, /*biases=*/0);
}

void MiniMaxH3SoundVae::finish() {
  first_.finish();
  for (SoundStage& stage : stages_) {
    stage.lengthens.finish();
    for (SoundBlock& block : stage.blocks) block.finish();
  }
  last_activation_.finish();
  last_.finish();
}

at::Tensor MiniMaxH3SoundVae::channel_numbers(const std::vector<double>& values) const {
  return at::tensor(values, at::kFloat).to(device_).unsqueeze(1);
}

at::Tensor MiniMaxH3SoundVae::decode(const at::Tensor& latents) {
  if (latents.dim() != 3 || latents.size(0) != 1 || latents.size(1) == 0 || latents.size(1) % kStereo != 0 ||
      latents.size(2) != config_.latent_channels)
    throw bad_input("the autoencoder of sound cannot decode latents of shape " + shape_of(latents) +
                        ": it needs [1, 2 x length, " + std::to_string(config_.latent_channels) + "]",
                    "give the sound's latents that this model's transformer made");
  const at::Tensor rows = latents.to(device_, at::kFloat).view({kStereo, -1, config_.latent_channels}).transpose(1, 2);
  const at::Tensor scaled = rows * channel_numbers(config_.latents_std) + channel_numbers(config_.latents_mean);
  at::Tensor x = first_(convolve_sound(scaled, in_weight_, in_bias_, {}));
  for (const SoundStage& stage : stages_) x = stage(x);
  return last_(last_activation_(x)).squeeze(1).clamp(-1, 1);
}

}  // namespace

std::unique_ptr<SoundVae> load_minimax_h3_sound_vae(const Component& component, at::Device device) {
  return std::make_unique<MiniMaxH3SoundVae>(component, device);
}

}  // namespace sparsereel::models
