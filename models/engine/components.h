// Loads text encoders, image encoders, transformers and VAEs by the class that model_index.json names.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "models/image/image_encoder.h"
#include "models/request/patch_config.h"
#include "models/store/weights/layer_weights.h"
#include "models/text/encoder/text_encoder.h"
#include "models/text/encoder/text_vision.h"
#include "models/transformer/loaded_transformer.h"
#include "models/vae/latent_preview.h"
#include "models/vae/sound_vae.h"
#include "models/vae/vae.h"

namespace sparsereel::models {

/// Loaders by class name.
struct ComponentLoaders {
  template <typename Kind, typename... How>
  using Map = std::map<std::string, std::unique_ptr<Kind> (*)(const Component&, at::Device, How...)>;

  Map<TextEncoder, WeightFormat, Residence> text_encoders = {};
  Map<TextVision, at::ScalarType, const PatchConfig&> text_visions = {};  // by the class of the text encoder
  Map<ImageEncoder, at::ScalarType> image_encoders = {};
  Map<LoadedTransformer, WeightFormat, const Streaming&> transformers = {};
  Map<Vae, at::ScalarType, VaeParts> vaes = {};
  Map<SoundVae> sound_vaes = {};
  /// Functions that return the colors of latents, by the name of the family. They return null if the colors are unknown
  /// for this number of channels.
  std::map<std::string, const LatentColors* (*)(int64_t channels)> colors = {};
};

/// Adds the loaders of a family that an embedding program adds with add_family().
void add_loaders(ComponentLoaders more);

/// Returns the loaders of the published families, which families/loaders.cpp lists.
ComponentLoaders published_loaders();

/// Returns the object that draws previews of latents of a model of this family; nothing if the colors of its latents
/// are unknown.
std::optional<LatentPreview> latent_preview(const std::string& family, const ModelSpec& spec);

/// Loads a text encoder. Residence::file is for an encoder that is used once: its layers are read from the file while
/// it runs, so the component must outlive the encoder.
std::unique_ptr<TextEncoder> load_text_encoder(const Component& component, at::Device device, WeightFormat format,
                                               Residence residence = Residence::device);

/// Loads the vision tower of a text encoder. `patches` says how pictures are cut into patches. Throws Error if the
/// encoder's class or its file has no vision tower.
std::unique_ptr<TextVision> load_text_vision(const Component& component, at::Device device, at::ScalarType dtype,
                                             const PatchConfig& patches);

std::unique_ptr<ImageEncoder> load_image_encoder(const Component& component, at::Device device, at::ScalarType dtype);

/// Loads a transformer. `streaming` says how many blocks do not stay on the GPU.
std::unique_ptr<LoadedTransformer> load_transformer(const Component& component, at::Device device, WeightFormat format,
                                                    const Streaming& streaming = {});

/// Returns the size in bytes of a component's weights when loaded in this format. Packed weights (see Dtype) count with
/// their size in the file. Throws the same errors as loading the component.
uint64_t weight_bytes(const Checkpoint& checkpoint, const std::string& role, WeightFormat format);

/// Returns weight_bytes(), or an estimate from the config alone if the files do not fit the config.
uint64_t likely_weight_bytes(const Checkpoint& checkpoint, const std::string& role, WeightFormat format);

/// Bytes of a transformer's weights: of its largest block, and of all weights outside of the blocks.
struct BlockWeights {
  uint64_t block = 0, rest = 0;
};
/// Returns the bytes for weights loaded in this format. They are an estimate in the same cases as in
/// likely_weight_bytes().
BlockWeights likely_block_weights(const Checkpoint& checkpoint, const std::string& role, WeightFormat format);

/// Returns true if loading would round weights a second time: the file already holds them packed or in 8 bits, and
/// `format` rounds them to 8 bits. Throws as loading does.
bool rounds_again(const Checkpoint& checkpoint, const std::string& role, WeightFormat format);

/// Returns "FILE: 2 tensors that CLASS does not have are left out: ...". Empty if there are none, or if loading throws.
std::string left_out_warning(const Checkpoint& checkpoint, const std::string& role, WeightFormat format);

/// The next two functions read only the config. weight_count() returns the number of weights. has_fp8_layers() returns
/// true if any of them can be in 8 bits.
double weight_count(const Checkpoint& checkpoint, const std::string& role);
bool has_fp8_layers(const Checkpoint& checkpoint, const std::string& role);

/// Bytes that a component of a model takes while it works: its weights, and the tensors that it computes.
struct WorkBytes {
  uint64_t weights = 0, activations = 0;
  uint64_t total() const { return weights + activations; }
};
/// Estimates, from the config alone, the bytes of the vision tower's weights, and of the tensors that it computes for a
/// picture of this size in pixels. Zero if the config does not describe a vision tower.
WorkBytes text_vision_bytes(const Checkpoint& checkpoint, at::ScalarType dtype, const PatchConfig& patches,
                            int64_t height, int64_t width);

/// Counts the weights of the VAE: of its decoder, and of its encoder if that is supported.
uint64_t vae_weight_count(const Checkpoint& checkpoint);

/// Returns a VAE without weights. It can estimate the memory that the VAE needs.
std::unique_ptr<Vae> describe_vae(const Checkpoint& checkpoint, at::ScalarType dtype,
                                  VaeParts parts = VaeParts::decoder);

/// Loads a VAE. Throws Error if the encoder is wanted but not supported.
std::unique_ptr<Vae> load_vae(const Component& component, at::Device device, at::ScalarType dtype,
                              VaeParts parts = VaeParts::decoder);

/// Loads the decoder of an autoencoder of sound.
std::unique_ptr<SoundVae> load_sound_vae(const Component& component, at::Device device);

}  // namespace sparsereel::models
