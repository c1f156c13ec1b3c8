// The base class of all families' VAEs: a convolutional decoder and, for most, a convolutional encoder.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "models/layers/host_memory.h"
#include "models/store/weights/weights.h"
#include "models/vae/tiling.h"
#include "models/vae/vae.h"

namespace sparsereel::models {

/// Returns a visitor that loads the tensors of a decoder or encoder as numbers in the reader's dtype. Weights of
/// convolutions become channels-last. The visitor refers to `reader`, which must outlive it.
Visit loads_of_coder(WeightReader& reader);

/// Wraps a visitor that loads tensors, and adds the size of each to `weights`, which must outlive the result.
Visit counted(Visit load, VaeWeights& weights);

/// Returns one value per channel as fp32 [1, channels, 1, 1, 1], on the device of `latents`.
at::Tensor channel_values(const std::vector<double>& values, const at::Tensor& latents);

/// Returns factor * latents * deviation + mean, where mean and deviation have a value for each channel. Computes in
/// fp32, and rounds once to the dtype of `latents`.
at::Tensor denormalized(const at::Tensor& latents, const std::vector<double>& mean,
                        const std::vector<double>& deviation, double factor = 1);

/// The type of the encoder for families that have none.
struct NoEncoder {};

/// A VAE made of a decoder and an encoder. Config must have frames_a_latent(). Decoder and Encoder must have
/// weights(visit, config), which lists their tensors, and finish(), which is called after all tensors are loaded.
template <typename Config, typename Decoder, typename Encoder = NoEncoder>
class CoderVae : public Vae {
 public:
  bool decodes_in_pieces() const override { return true; }
  bool encodes() const override { return encoder_.has_value(); }
  VaeWeights weights() const override { return weights_; }
  int64_t frames_of(int64_t latent_frames) const override {
    return config_.frames_a_latent() * (latent_frames - 1) + 1;
  }

 protected:
  /// Loads the weights of `parts`. `ignored` lists prefixes of unused tensors that the file may have. Throws Error if
  /// the weights do not fit the config.
  CoderVae(Config config, const Component& component, at::Device device, at::ScalarType dtype, VaeParts parts,
           const std::vector<std::string>& ignored = {})
      : config_(std::move(config)), device_(device), dtype_(dtype) {
    if (device.is_cpu()) keep_freed_host_memory();
    WeightReader reader(component, device, dtype);
    ignore_other_parts(reader, parts);
    for (const std::string& prefix : ignored) reader.ignore_prefix(prefix);
    const Visit load = counted(loads_of_coder(reader), weights_);
    if (has_decoder(parts)) decoder_.emplace().weights(load, config_);
    if constexpr (!std::is_same_v<Encoder, NoEncoder>)
      if (has_encoder(parts)) encoder_.emplace().weights(load, config_);
    reader.check_complete();
    if (decoder_) decoder_->finish();
    if constexpr (!std::is_same_v<Encoder, NoEncoder>)
      if (encoder_) encoder_->finish();
  }

  int64_t bytes_of_element() const { return static_cast<int64_t>(c10::elementSize(dtype_)); }

  const Config config_;
  const at::Device device_;
  const at::ScalarType dtype_;
  std::optional<Decoder> decoder_;
  std::optional<Encoder> encoder_;
  VaeWeights weights_;
  TilePlan tiles_;
};

}  // namespace sparsereel::models
