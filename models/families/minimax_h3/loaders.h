// Loads MiniMax-H3's text encoder, transformer, VAE and autoencoder of sound.
#pragma once

#include <memory>

#include "models/store/weights/layer_weights.h"
#include "models/text/encoder/text_encoder.h"
#include "models/transformer/loaded_transformer.h"
#include "models/vae/sound_vae.h"
#include "models/vae/vae.h"

namespace sparsereel::models {

/// Loads the transformer. Its predict() takes latents [1, C, F, H, W], latents of the sound, and keyframes if there are
/// any. `streaming` works as in loaded_transformer(). The component must outlive the transformer.
std::unique_ptr<LoadedTransformer> load_minimax_h3_transformer(const Component& component, at::Device device,
                                                               WeightFormat format, const Streaming& streaming = {});

/// Loads the parts of the VAE that `parts` names. It multiplies matrices in fp32 on a CPU and in fp16 on a GPU,
/// whatever `dtype` says. Its encoder encodes single pictures.
std::unique_ptr<Vae> load_minimax_h3_vae(const Component& component, at::Device device, at::ScalarType dtype,
                                         VaeParts parts = VaeParts::decoder);

/// Loads the text encoder: the first 50 layers of a Qwen3-VL's language model. The other layers are not used.
std::unique_ptr<TextEncoder> load_minimax_h3_text_encoder(const Component& component, at::Device device,
                                                          WeightFormat format, Residence residence);

/// Loads the decoder of the autoencoder of sound, in fp32.
std::unique_ptr<SoundVae> load_minimax_h3_sound_vae(const Component& component, at::Device device);

}  // namespace sparsereel::models
