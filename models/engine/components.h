// Loads text and image encoders, denoisers and VAEs by the class that model_index.json names.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "models/image/image_encoder.h"
#include "models/store/weights/load_layers.h"
#include "models/text/encoder/text_encoder.h"
#include "models/transformer/denoiser.h"
#include "models/vae/vae.h"

namespace sparsereel::models {

/// By class.
struct ComponentLoaders {
  template <typename Kind, typename... How>
  using Map = std::map<std::string, std::unique_ptr<Kind> (*)(const Component&, at::Device, How...)>;

  Map<TextEncoder, WeightFormat, Residence> text_encoders = {};
  Map<ImageEncoder, at::ScalarType> image_encoders = {};
  Map<Denoiser, WeightFormat, bool> transformers = {};
  Map<Vae, at::ScalarType, VaeParts> vaes = {};
};

/// Loaders for classes of a family that a program adds (add_family()).
void add_loaders(ComponentLoaders more);

/// Those of the published families, which families/loaders.cpp lists.
ComponentLoaders published_loaders();

/// Residence::file, for an encoder that is used once: its layers are read while it runs, and the component must outlive
/// it.
std::unique_ptr<TextEncoder> load_text_encoder(const Component& component, at::Device device, WeightFormat format,
                                               Residence residence = Residence::device);

std::unique_ptr<ImageEncoder> load_image_encoder(const Component& component, at::Device device, at::ScalarType dtype);

/// offload: the blocks stay in page-locked host memory, two of them are on the GPU at a time.
std::unique_ptr<Denoiser> load_transformer(const Component& component, at::Device device, WeightFormat format,
                                           bool offload = false);

/// Bytes of the weights of a transformer or an encoder of text or images that is loaded in this format: of what stays
/// packed, those of its files. Throws as loading does.
uint64_t weight_bytes(const Checkpoint& checkpoint, const std::string& role, WeightFormat format);

/// The same of whatever checkpoint: where its files do not fit, by the config alone.
uint64_t likely_weight_bytes(const Checkpoint& checkpoint, const std::string& role, WeightFormat format);

/// Whether it rounds weights to 8 bits that its files have packed or in 8 bits already. Throws as loading does.
bool rounds_again(const Checkpoint& checkpoint, const std::string& role, WeightFormat format);

/// "FILE: 2 tensors that CLASS does not have are left out: ..."; empty where there are none, and where loading throws.
std::string left_out_warning(const Checkpoint& checkpoint, const std::string& role, WeightFormat format);

/// By its config alone: how many weights it has, and whether any of them can be in 8 bits.
double weight_count(const Checkpoint& checkpoint, const std::string& role);
bool has_fp8_layers(const Checkpoint& checkpoint, const std::string& role);

/// The same of the VAE: encoder and decoder, or the decoder alone where no encoder is supported.
uint64_t vae_weight_count(const Checkpoint& checkpoint);

/// The VAE without weights, to ask what its decoder needs.
std::unique_ptr<Vae> describe_vae(const Checkpoint& checkpoint, at::ScalarType dtype);

/// Throws Error where the encoder is asked for and there is none.
std::unique_ptr<Vae> load_vae(const Component& component, at::Device device, at::ScalarType dtype,
                              VaeParts parts = VaeParts::decoder);

}  // namespace sparsereel::models
