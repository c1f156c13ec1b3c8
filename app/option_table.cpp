// The options of `generate`, which other commands share: names, kinds and help.
#include <algorithm>

#include "app/settings.h"
#include "app/split.h"

namespace sparsereel::app {
namespace {

std::vector<OptionSpec> make_table() {
  using enum ValueKind;
  const std::string prompt = "Prompt", video = "Video", sampling = "Sampling", attention = "Attention",
                    machine = "Machine", latents = "Latents", output = "Output and reports";
  const std::vector<std::string> auto_on_off = {"auto", "on", "off"};
  return {
      {"model", "-m,--model", file, "diffusers-layout folder (default: the tiny model)", prompt, {}},
      {"random_weights",
       "--random-weights",
       file,
       "in place of -m: the architecture of this file of configs/ with random weights, to measure a machine",
       prompt,
       {}},
      {"from", "--from", file, "render the video of this .mp4 or .gif again; what is given beside wins", prompt, {}},
      {"prompt", "-p,--prompt", text, "what the video shows", prompt, {}},
      {"prompt_file", "--prompt-file", file, "read the prompt from a text file", prompt, {}},
      {"negative_prompt", "-n,--negative-prompt", text, "what it should not show", prompt, {}},
      {"max_sequence_length", "--max-sequence-length", whole, "prompt tokens (default: the model's)", prompt, {}},

      {"width", "-W,--width", whole, "pixels, usually a multiple of 16 (default: the model's)", video, {}},
      {"height", "-H,--height", whole, "pixels, usually a multiple of 16 (default: the model's)", video, {}},
      {"size", "--size", text, "WxH, in place of --width and --height", video, {}},
      {"frames",
       "--frames,--num-frames",
       whole,
       "usually 1 more than a multiple of 4 (default: the model's)",
       video,
       {}},
      {"fps", "--fps", number, "frames per second (default 8, or the model config's)", video, {}},

      {"seed", "-s,--seed", whole, "seed of the noise (default 42)", sampling, {}},
      {"steps",
       "--steps,--num-inference-steps",
       whole,
       "denoising steps (default 50, or the model config's)",
       sampling,
       {}},
      {"cfg_scale",
       "--cfg-scale,--guidance-scale",
       number,
       "guidance; 1 is none (default 6, or the model config's)",
       sampling,
       {}},
      {"dynamic_cfg", "--dynamic-cfg,!--no-dynamic-cfg", flag, "let guidance grow over the steps", sampling, {}},
      {"scheduler",
       "--scheduler",
       choice,
       "sampler (default: the checkpoint's)",
       sampling,
       {"ddim", "dpm", "CogVideoXDDIMScheduler", "CogVideoXDPMScheduler"}},

      {"attention",
       "--attention",
       choice,
       "how attention runs (default: sparse where it runs, else full: fp32 on a GPU)",
       attention,
       {"full", "quantized", "sparse", "check"}},
      {"topk", "--topk", number, "keep this fraction of the key blocks (default 0.5)", attention, {}},
      {"cdf",
       "--cdf",
       number,
       "keep the blocks that hold this share of the attention, in place of --topk",
       attention,
       {}},
      {"similarity",
       "--similarity",
       number,
       "blocks less self-similar than this stay dense (default -0.1: none)",
       attention,
       {}},
      {"pv_threshold",
       "--pv-threshold",
       number,
       "skip P.V where the maximum rose by less, in log2 units (default 50: never)",
       attention,
       {}},
      {"profile",
       "--profile",
       file,
       "a policy for each layer and head, made by 'sparsereel tune', in place of the options above",
       attention,
       {}},
      {"dense_steps", "--dense-steps", whole, "the first steps keep every block (default 0)", attention, {}},
      {"dense_layers", "--dense-layers", whole, "the first layers keep every block (default 0)", attention, {}},
      {"token_order",
       "--token-order",
       choice,
       "order of the video tokens (default hilbert)",
       attention,
       {"hilbert", "native", "time-major", "morton", "random"}},

      {"device", "--device", choice, "where it runs (default auto)", machine, {"auto", "cpu", "cuda", "cuda:N"}},
      {"dtype",
       "--dtype",
       choice,
       "arithmetic (default auto: fp32 on a CPU, the checkpoint's on a GPU)",
       machine,
       {"auto", "fp32", "bf16", "fp16"}},
      {"vae_tiling", "--vae-tiling", choice, "decode in tiles to save memory (default auto)", machine, auto_on_off},
      {"offload",
       "--offload",
       flag,
       "keep the weights in the host's memory, on the GPU only what computes (slower; for small GPUs)",
       machine,
       {}},
      {"threads", "--threads", whole, "CPU threads (default: all cores)", machine, {}},

      {"save_latents", "--save-latents", file, "keep the latents in this .safetensors", latents, {}},
      {"checkpoint_every",
       "--checkpoint-every",
       whole,
       "save the denoising every N steps: the same command then goes on from there (default 0: never)",
       latents,
       {}},
      {"init_latents", "--init-latents", file, "start from these latents in place of noise", latents, {}},

      {"output",
       "-o,--output",
       file,
       ".mp4 .gif .y4m .safetensors, or a folder for PNGs (default video.mp4)",
       output,
       {}},
      {"crf", "--crf", whole, "H.264 quality, 0 to 51, lower is better (default 17)", output, {}},
      {"codec", "--codec", text, "FFmpeg encoder for an MP4 (default: libx264, or the next best)", output, {}},
      {"no_metadata", "--no-metadata", flag, "write no recipe into the video", output, {}},
      {"contact_sheet", "--contact-sheet", file, "also write a .png with a few frames and the prompt", output, {}},
      {"report", "--report", file, "write a JSON report of the run", output, {}},
      {"quiet", "--quiet", flag, "no progress bar", output, {}},
      {"json", "--json", flag, "print the report on stdout in place of the last line", output, {}},
  };
}

/// "--num-frames" -> "num_frames"; empty for short names.
std::string key_of(std::string name) {
  if (name.size() < 3 || !name.starts_with("--")) return {};
  name.erase(0, 2);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace

const std::vector<OptionSpec>& option_table() {
  static const std::vector<OptionSpec> table = make_table();
  return table;
}

const OptionSpec* find_option(std::string_view key) {
  if (key.empty()) return nullptr;  // what key_of() makes of short names
  for (const OptionSpec& spec : option_table()) {
    for (const std::string& name : split(spec.names, ','))
      if (key_of(name) == key) return &spec;
  }
  return nullptr;
}

}  // namespace sparsereel::app
