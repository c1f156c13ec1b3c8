// Loads the components of the toy family. Its VAE decodes each latent to a block of pixels with one linear layer.
#include "models/store/weights/weights.h"
#include "tests/toy/toy.h"
#include "tests/toy/toy_transformer.h"

namespace sparsereel::test {
namespace {

using namespace models;

class ToyVae final : public Vae {
 public:
  ToyVae(const ToyVaeConfig& config, WeightReader& reader, VaeParts parts) : config_(config) {
    const auto& [t, h, w] = config.stride;
    if (has_decoder(parts))
      block_.weights(reader.loads(), "decoder.block", 3 * t * h * w, config.channels);
    else
      reader.ignore_prefix("decoder.");
    if (has_encoder(parts))
      encoder_.weights(reader.loads(), "encoder.block", config.channels, 3 * t * h * w);
    else
      reader.ignore_prefix("encoder.");
  }

  // Ignores the mode, because each pixel depends on one latent only: tiled and untiled decoding give the same frames.
  void decode(const at::Tensor& latents, const DecodeMode& /*mode*/, const TakeFrames& take,
              const VaeProgress& progress) override {
    const auto& [t, h, w] = config_.stride;
    const at::Tensor blocks = at::tanh(linear(latents.permute({0, 2, 3, 4, 1}), block_))  // [1, F, H, W, 3 t h w]
                                  .unflatten(4, {3, t, h, w})
                                  .permute({0, 4, 1, 5, 2, 6, 3, 7});
    const at::Tensor video = blocks.flatten(6, 7).flatten(4, 5).flatten(2, 3);
    for (const at::Tensor& frame : video.narrow(2, t - 1, frames_of(latents.size(2))).split(1, 2)) take(frame);
    if (progress) progress(1, 1);
  }
  bool encodes() const override { return encoder_.weight.defined(); }
  LatentDistribution encode(const at::Tensor& frames, bool /*tiled*/, const VaeProgress& progress) override {
    const auto& [t, h, w] = config_.stride;
    const at::Tensor first = frames.narrow(2, 0, 1).expand(
        {-1, -1, t - 1, -1, -1});  // repeats the first frame, so that the first latent has t frames, too
    const at::Tensor blocks = at::cat({first, frames}, 2)
                                  .unflatten(4, {-1, w})
                                  .unflatten(3, {-1, h})
                                  .unflatten(2, {-1, t})  // [1, 3, F, t, H, h, W, w]
                                  .permute({0, 2, 4, 6, 1, 3, 5, 7})
                                  .flatten(4);
    const at::Tensor mean = linear(blocks, encoder_).permute({0, 4, 1, 2, 3}).contiguous();
    if (progress) progress(1, 1);
    return {.mean = mean, .deviation = {}};
  }
  VaeWeights weights() const override {
    VaeWeights all;
    for (const Linear* layer : {&block_, &encoder_})
      for (const at::Tensor& tensor : {layer->weight, layer->bias})
        if (tensor.defined()) all = {all.count + static_cast<uint64_t>(tensor.numel()), all.bytes + tensor.nbytes()};
    return all;
  }
  int64_t frames_of(int64_t latent_frames) const override { return config_.stride[0] * (latent_frames - 1) + 1; }
  uint64_t untiled_bytes(int64_t frames, int64_t height, int64_t width) const override {
    const auto& [t, h, w] = config_.stride;
    return static_cast<uint64_t>(4 * 3 * frames * t * height * h * width * w);
  }
  uint64_t untiled_encode_bytes(int64_t frames, int64_t height, int64_t width) const override {
    return static_cast<uint64_t>(4 * 3 * frames * height * width);
  }

 private:
  ToyVaeConfig config_;
  Linear block_, encoder_;
};

std::unique_ptr<LoadedTransformer> load_toy_transformer(const Component& component, at::Device device,
                                                        WeightFormat format, const Streaming& streaming) {
  const ToyConfig config = parse_toy_config(component.config, component.config_file);
  return loaded_transformer(std::make_unique<ToyTransformer>(config), component, device, format, streaming);
}

std::unique_ptr<Vae> load_toy_vae(const Component& component, at::Device device, at::ScalarType dtype, VaeParts parts) {
  WeightReader reader(component, device, dtype);
  auto vae = std::make_unique<ToyVae>(parse_toy_vae_config(component.config, component.config_file), reader, parts);
  reader.check_complete();
  return vae;
}

}  // namespace

ComponentLoaders toy_loaders() {
  return {.transformers = {{"ToyTransformer3DModel", load_toy_transformer}},
          .vaes = {{"AutoencoderKLToy", load_toy_vae}}};
}

}  // namespace sparsereel::test
