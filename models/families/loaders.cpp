// Maps the component classes of all published families to their loaders.
#include "models/families/cogvideox/loaders.h"
#include "models/engine/components.h"
#include "models/families/minimax_h3/loaders.h"
#include "models/families/mochi/loaders.h"
#include "models/families/open_sora_plan/loaders.h"
#include "models/families/wan/loaders.h"
#include "models/image/clip_encoder.h"
#include "models/text/encoder/qwen3_vision.h"
#include "models/text/encoder/t5_encoder.h"

namespace sparsereel::models {

ComponentLoaders published_loaders() {
  return {
      .text_encoders = {{"MT5EncoderModel", load_t5_encoder},
                        {"Qwen3VLForConditionalGeneration", load_minimax_h3_text_encoder},
                        {"T5EncoderModel", load_t5_encoder},
                        {"UMT5EncoderModel", load_t5_encoder}},
      .text_visions = {{"Qwen3VLForConditionalGeneration", load_qwen3_vision}},
      .image_encoders = {{"CLIPVisionModel", load_clip_encoder}, {"CLIPVisionModelWithProjection", load_clip_encoder}},
      .transformers = {{"CogVideoXTransformer3DModel", load_cogvideox_transformer},
                       {"MiniMaxH3Transformer3DModel", load_minimax_h3_transformer},
                       {"MochiTransformer3DModel", load_mochi_transformer},
                       {"OpenSoraT2V", load_open_sora_plan_transformer},
                       {"WanTransformer3DModel", load_wan_transformer}},
      .vaes = {{"AutoencoderKLCogVideoX", load_cogvideox_vae},
               {"AutoencoderKLMiniMaxH3", load_minimax_h3_vae},
               {"AutoencoderKLMochi", load_mochi_vae},
               {"AutoencoderKLWan", load_wan_vae},
               {"CausalVAEModel", load_open_sora_plan_vae}},
      .sound_vaes = {{"AutoencoderKLMiniMaxH3Audio", load_minimax_h3_sound_vae}},
      .colors = {{"CogVideoX", cogvideox_latent_colors}, {"Mochi", mochi_latent_colors}, {"Wan", wan_latent_colors}}};
}

}  // namespace sparsereel::models
