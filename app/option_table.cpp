// The options of `generate`, which other commands share: names, kinds and help.
#include <algorithm>
#include <sstream>

#include "app/settings.h"
#include "app/split.h"
#include "attention/policy.h"
#include "models/family.h"

namespace sparsereel::app {
namespace {

// The defaults of block selection are attention::Policy's own: these texts follow it.
using attention::Policy;
using attention::Selection;

std::string number_text(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

std::string default_text(const std::string& value) {
  return " (default " + value + ")";
}

/// Of the selection that is the default; nothing for the others.
std::string default_of(Selection selection) {
  const attention::HeadPolicy head = Policy{}.defaults;
  if (head.selection != selection) return {};
  return default_text(number_text(selection == Selection::topk  ? head.topk
                                  : selection == Selection::cdf ? head.cdf
                                                                : head.error));
}

std::string topk_help() {
  using attention::Dropped;
  const std::string by_default = number_text(attention::usual_topk(Dropped::mean)) + " with means, " +
                                 number_text(attention::usual_topk(Dropped::none)) + " without, or the model config's";
  return "compute this share of the key blocks, where it matters most" + default_text(by_default);
}

std::string dropped_help() {
  return "what stands for a dropped block: the means of its keys and values, which cut the error several times and "
         "cost 1/cell of full attention (mean), or nothing (none)" +
         default_text(std::string(name(Policy{}.dropped)));
}

std::string select_help() {
  using attention::Dropped;
  return "blocks to compute: where means would err most (error), or that hold most of the attention (mass); "
         "SpargeAttn's method is --dropped none --select mass" +
         default_text(std::string(name(attention::usual_ranking(Dropped::mean))) + " with means, " +
                      std::string(name(attention::usual_ranking(Dropped::none))) + " without");
}

std::string cell_help() {
  return "tokens that share one mean: fewer err less and cost more" +
         default_text(std::to_string(Policy{}.cell) + "; GPUs have 16 only");
}

std::string similarity_help() {
  const double similarity = Policy{}.defaults.similarity;
  return "blocks less self-similar than this stay dense" +
         default_text(number_text(similarity) + (similarity < 0 ? ": none" : ""));
}

std::string pv_threshold_help() {
  constexpr double never = 32;
  const double threshold = Policy{}.defaults.pv_threshold;
  return "skip P.V of a block whose scores all lie this far below the highest so far, in log2 units" +
         default_text(number_text(threshold) + (threshold >= never ? ": never" : ""));
}

std::vector<std::string> sampler_choices() {
  std::vector<std::string> names, classes;
  for (const models::SamplerSpec& sampler : models::all_samplers()) {
    names.push_back(sampler.name);
    classes.push_back(sampler.class_name);
  }
  names.insert(names.end(), classes.begin(), classes.end());
  return names;
}

std::vector<OptionSpec> make_table() {
  using enum ValueKind;
  const std::string prompt = "Prompt", video = "Video", sampling = "Sampling", attention = "Attention",
                    machine = "Machine", latents = "Latents", output = "Output and reports";
  const std::vector<std::string> auto_on_off = {"auto", "on", "off"};
  return {
      {"model", "-m,--model", folder, "model in diffusers layout (default: the tiny one)", prompt, {}},
      {"random_weights",
       "--random-weights",
       file,
       "in place of -m: an architecture of configs/ with random weights",
       prompt,
       {}},
      {"from", "--from", file, "make this video, or a .json recipe's, again; options beside it win", prompt, {}},
      {"prompt", "-p,--prompt", text, "what the video shows", prompt, {}},
      {"prompt_file", "--prompt-file", file, "read the prompt from a text file; - is standard input", prompt, {}},
      {"negative_prompt", "-n,--negative-prompt", text, "what it should not show", prompt, {}},
      {"max_sequence_length", "--max-sequence-length", whole, "prompt tokens (default: the model's)", prompt, {}},

      {"width", "-W,--width", whole, "pixels, usually a multiple of 16 (default: the model's)", video, {}},
      {"height", "-H,--height", whole, "pixels, usually a multiple of 16 (default: the model's)", video, {}},
      {"size", "--size", size, "in place of --width and --height, e.g. 720x480", video, {}},
      {"frames",
       "--frames,--num-frames",
       whole,
       "1, 9, 17, 25 ...; 5, 13, 21 ... make 3 more (default: the model's)",
       video,
       {}},
      {"fps", "--fps", number, "frames per second (default: the model's)", video, {}},

      {"seed",
       "-s,--seed",
       seed,
       "seed of the noise; -1 or random: a new one, which is told (default 42)",
       sampling,
       {}},
      {"batch_count",
       "--batch-count,--count",
       whole,
       "videos of each prompt, with seeds s, s+1 ... (default 1)",
       sampling,
       {}},
      {"steps", "--steps,--num-inference-steps", whole, "denoising steps (default: the model's)", sampling, {}},
      {"cfg_scale", "--cfg-scale,--guidance-scale", number, "guidance; 1 is none (default: the model's)", sampling, {}},
      {"dynamic_cfg", "--dynamic-cfg,!--no-dynamic-cfg", flag, "let guidance grow over the steps", sampling, {}},
      {"scheduler", "--scheduler", choice, "sampler (default: the checkpoint's)", sampling, sampler_choices()},

      {"attention",
       "--attention",
       choice,
       "how attention runs (default: sparse where it runs, else full: fp32 on a GPU)",
       attention,
       {"full", "quantized", "sparse", "check"}},
      {"topk", "--topk", number, topk_help(), attention, {}},
      {"cdf",
       "--cdf",
       number,
       "in place of --topk: the blocks that hold this share of the attention" + default_of(Selection::cdf),
       attention,
       {}},
      {"error",
       "--error",
       number,
       "in place of --topk: most that the others' means may err by, as predicted: give some four times the error "
       "that you want" +
           default_of(Selection::error),
       attention,
       {}},
      {"dropped", "--dropped", choice, dropped_help(), attention, {"mean", "none"}},
      {"select", "--select", choice, select_help(), attention, {"error", "mass"}},
      {"cell", "--cell", choice, cell_help(), attention, {"16", "32", "64"}},
      {"similarity", "--similarity", number, similarity_help(), attention, {}},
      {"pv_threshold", "--pv-threshold", number, pv_threshold_help(), attention, {}},
      {"profile",
       "--profile",
       file,
       "each head's policy, made by 'sparsereel tune', in place of the above",
       attention,
       {}},
      {"dense_steps",
       "--dense-steps",
       whole,
       "the first steps keep every block" + default_text(std::to_string(Policy{}.dense_steps)),
       attention,
       {}},
      {"dense_layers",
       "--dense-layers",
       whole,
       "the first layers keep every block" + default_text(std::to_string(Policy{}.dense_layers)),
       attention,
       {}},
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
       ".mp4 .mov .mkv .webm .gif .y4m .safetensors, or a folder for PNGs (default video.mp4)",
       output,
       {}},
      {"crf", "--crf", whole, "quality, 0 to 51, lower is better (default 17)", output, {}},
      {"codec", "--codec", text, "FFmpeg encoder (default: libx264, for .webm libvpx-vp9)", output, {}},
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
