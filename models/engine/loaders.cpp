// Classes of the components of all published families -> what loads them.
#include "models/dit/cogvideox.h"
#include "models/dit/wan.h"
#include "models/engine/components.h"
#include "models/text/encoder/t5_encoder.h"
#include "models/vae/cogvideox_vae.h"
#include "models/vae/wan_vae.h"

namespace sparsereel::models {

ComponentLoaders published_loaders() {
  return {
      .text_encoders = {{"T5EncoderModel", load_t5_encoder}, {"UMT5EncoderModel", load_t5_encoder}},
      .transformers = {{"CogVideoXTransformer3DModel", load_cogvideox_dit}, {"WanTransformer3DModel", load_wan_dit}},
      .vaes = {{"AutoencoderKLCogVideoX", load_cogvideox_vae}, {"AutoencoderKLWan", load_wan_vae}}};
}

}  // namespace sparsereel::models
