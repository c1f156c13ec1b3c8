// Declares the options of prompt, video, sampling, machine, latents and output.
#include "app/options/option_groups.h"

#include "models/store/checkpoint/family.h"

namespace sparsereel::app::groups {
namespace {

std::vector<Command> every() {
  std::vector<Command> commands = that_denoise();
  commands.push_back(Command::decode);
  return commands;
}

std::vector<std::string> samplers(std::string models::SamplerSpec::*member) {
  std::vector<std::string> all;
  for (const models::SamplerSpec& sampler : models::all_samplers()) all.push_back(sampler.*member);
  return all;
}

/// Returns one part of the model as a file. All parts have the same help text, so that they share a row of --help.
OptionSpec part(const char* names) {
  return {.names = names,
          .kind = ValueKind::file,
          .help = "this part: one .safetensors, .gguf or .pth; a tokenizer's folder",
          .commands = every(),
          .excludes = {{.other = "random_weights"}}};
}

}  // namespace

std::vector<Command> that_denoise() {
  return {Command::bench_pipeline, Command::bench_quality, Command::tune};
}

std::string default_text(const std::string& value) {
  return " (default " + value + ")";
}

std::vector<OptionSpec> prompt() {
  using enum ValueKind;
  using enum Command;
  return {
      {.names = "-m,--model",
       .kind = folder,
       .help = "diffusers folder, folder or file of weights (default: the tiny one)",
       .commands = every(),
       .excludes = {{.other = "random_weights"}}},
      {.names = "--random-weights",
       .kind = file,
       .help = "in place of -m: an architecture of configs/ with random weights",
       .commands = every()},
      part("--transformer"),
      part("--transformer-2"),
      part("--vae"),
      part("--text-encoder,--t5xxl"),
      part("--image-encoder,--clip-vision"),
      part("--tokenizer"),
      {.names = "--diffusion-model",
       .kind = file,
       .help = "sd.cpp's name of --transformer; beside --high-noise-diffusion-model, of --transformer-2",
       .commands = every(),
       .is_alias = true,
       .excludes = {{.other = "random_weights"}, {.other = "transformer"}, {.other = "transformer_2"}}},
      {.names = "--high-noise-diffusion-model",
       .kind = file,
       .help = "sd.cpp's name of --transformer of a model of two experts",
       .commands = every(),
       .is_alias = true,
       .excludes = {{.other = "random_weights"}, {.other = "transformer"}, {.other = "transformer_2"}}},
      {.names = "--lora",
       .help = "add these LoRAs to the weights; may be repeated",
       .commands = that_denoise(),
       .excludes = {{.other = "random_weights"}}},
      {.names = "--strict-lora", .help = "refuse LoRAs with layers that the model has not", .commands = that_denoise()},
      {.names = "--from", .kind = file, .help = "make this video, or a .json recipe's, again; options beside it win"},
      {.names = "-p,--prompt",
       .help = "what the video shows",
       .commands = {bench_pipeline, tune},
       .excludes = {{.other = "prompt_file"}}},
      {.names = "--prompt-file",
       .kind = file,
       .help = "read the prompt from a text file; - is standard input",
       .commands = {bench_pipeline},
       .quoted = true},
      {.names = "-n,--negative-prompt", .help = "what it should not show", .commands = that_denoise()},
      {.names = "--max-sequence-length", .help = "prompt tokens (default: the model's)", .commands = that_denoise()},
  };
}

std::vector<OptionSpec> video() {
  using enum ValueKind;
  using enum Command;
  return {
      {.names = "-W,--width",
       .help = "pixels, usually a multiple of 16 (default: the model's)",
       .commands = that_denoise()},
      {.names = "-H,--height",
       .help = "pixels, usually a multiple of 16 (default: the model's)",
       .commands = that_denoise()},
      {.names = "--size",
       .help = "720x480, or an area, 480p: in the image's shape, else 16:9",
       .commands = that_denoise()},
      {.names = "--frames,--num-frames,--frame-num",
       .help = "a multiple of the VAE's temporal stride and 1, or so many seconds",
       .commands = that_denoise()},
      {.names = "--seconds,--duration",
       .help = "a multiple of the VAE's temporal stride and 1, or so many seconds",
       .commands = that_denoise()},
      {.names = "-i,--image,--init-img,--first-frame",
       .help = "picture that the video begins with; of a video, its last frame",
       .commands = that_denoise()},
      {.names = "--last-image,--end-img,--last-frame",
       .help = "picture that it ends with, where the model takes one",
       .commands = that_denoise()},
      {.names = "--resize", .help = "fit images: crop or distort them (default cover)", .commands = that_denoise()},
      {.names = "--fps",
       .kind = number,
       .help = "frames per second (default: the model's)",
       .commands = {decode, bench_pipeline},
       .recipe = InRecipe::value,
       .no_effect = {NoEffect::no_frame_rate}},
  };
}

std::vector<OptionSpec> sampling() {
  using enum ValueKind;
  using enum Command;
  return {
      {.names = "-s,--seed,--base-seed",
       .help = "seed of the noise; -1 or random: a new one, which is told (default 42)",
       .commands = that_denoise()},
      {.names = "--batch-count,--count",
       .kind = whole,
       .help = "videos of each prompt, with seeds s, s+1 ... (default 1)",
       .scope = Scope::whole_set},
      {.names = "--steps,--num-inference-steps,--sample-steps",
       .help = "denoising steps (default: the model's)",
       .commands = {bench_quality, tune}},
      {.names = "--sigmas", .help = "in place of --steps: noise levels before the shift, 1,0.75,0.5"},
      {.names = "--cfg-scale,--guidance-scale,--sample-guide-scale",
       .help = "guidance; 1 is none (default: the model's)",
       .commands = that_denoise()},
      {.names = "--cfg-scale-2,--guidance-scale-2",
       .help = "guidance of the second of two transformers (default: the model's)",
       .commands = that_denoise()},
      {.names = "--dynamic-cfg,!--no-dynamic-cfg",
       .help = "let guidance grow over the steps",
       .commands = that_denoise()},
      {.names = "--guidance-passes",
       .help = "in turn: less memory, more time (default batched)",
       .commands = that_denoise()},
      {.names = "--scheduler,--sample-solver",
       .help = "sampler (default: the checkpoint's)",
       .choices = samplers(&models::SamplerSpec::name),
       .more_choices = samplers(&models::SamplerSpec::class_name),
       .commands = that_denoise()},
      {.names = "--flow-shift,--sample-shift",
       .help = "larger dwells on noisy latents (default: the model's)",
       .commands = that_denoise()},
      {.names = "--cache",
       .help = "reuse steps: 0.1, forecast:0.1:20%, steps:20 (default: preset's)",
       .commands = {tune}},
      {.names = "--preset",
       .kind = choice,
       .help = "nearness or speed (default balanced)",
       .choices = {"exact", "near", "balanced", "fast"},
       .more_choices = {"quality"},
       .scope = Scope::whole_set,
       .excludes = {{.other = "from"}}},
  };
}

std::vector<OptionSpec> machine() {
  using enum ValueKind;
  using enum Command;
  return {
      {.names = "--device", .help = "where it runs (default auto)", .commands = every()},
      {.names = "--dtype", .help = "arithmetic (default: CPU fp32, GPU as stored)", .commands = every()},
      {.names = "--vae-dtype", .help = "of decoding (default auto: as --dtype)", .commands = every()},
      {.names = "--weights",
       .help = "fp8: 8-bit products with them (default auto)",
       .commands = {bench_pipeline, tune}},
      {.names = "--text-weights", .help = "fp8: 8-bit products with them (default auto)", .commands = that_denoise()},
      {.names = "--vae-tiling", .help = "decode in tiles to save memory (default auto)", .commands = every()},
      {.names = "--offload",
       .help = "keep the weights in the host's memory (slower; for small GPUs)",
       .commands = that_denoise()},
      {.names = "--gpus",
       .kind = whole,
       .help = "how many to use (default: 1 GPU, all CPU cores)",
       .scope = Scope::whole_set},
      {.names = "--threads",
       .kind = whole,
       .help = "how many to use (default: 1 GPU, all CPU cores)",
       .commands = every(),
       .scope = Scope::whole_set},
  };
}

std::vector<OptionSpec> latents() {
  using enum ValueKind;
  return {
      {.names = "--save-latents",
       .kind = file,
       .help = "keep the latents in this .safetensors",
       .written = true,
       .scope = Scope::one_video},
      {.names = "--checkpoint-every",
       .kind = whole,
       .help = "also save every N steps, for a run that is killed (default 0)",
       .no_effect = {NoEffect::random_seed}},
      {.names = "--init-latents",
       .kind = file,
       .help = "start from these latents in place of noise",
       .recipe = InRecipe::file},
  };
}

std::vector<OptionSpec> output() {
  using enum ValueKind;
  using enum Command;
  return {
      {.names = "-o,--output",
       .kind = file,
       .help = ".mp4 .mov .mkv .webm .gif .y4m .safetensors, or a folder for PNGs (default video.mp4)",
       .commands = {decode},
       .written = true,
       .scope = Scope::one_video},
      {.names = "--crf",
       .kind = whole,
       .help = "quality, 0 to 51, lower is better (default 17)",
       .commands = {decode},
       .recipe = InRecipe::value,
       .no_effect = {NoEffect::not_encoded}},
      {.names = "--codec",
       .kind = text,
       .help = "FFmpeg encoder (default: libx264, for .webm libvpx-vp9)",
       .commands = {decode},
       .recipe = InRecipe::value,
       .no_effect = {NoEffect::not_encoded}},
      {.names = "--no-metadata", .kind = flag, .help = "write no recipe into the video", .commands = {decode}},
      {.names = "--contact-sheet",
       .kind = file,
       .help = "also write a .png with a few frames and the prompt",
       .commands = {decode},
       .written = true,
       .scope = Scope::one_video},
      {.names = "--report",
       .kind = file,
       .help = "write a JSON report of the run",
       .commands = every(),
       .written = true,
       .scope = Scope::whole_set},
      {.names = "--verbose",
       .kind = flag,
       .help = "after the last line: times of the stages, attention, cache, memory",
       .commands = {decode},
       .scope = Scope::whole_set},
      {.names = "--dry-run",
       .kind = flag,
       .help = "show files, sizes and memory needed; load and write nothing",
       .scope = Scope::whole_set},
      {.names = "--quiet",
       .kind = flag,
       .help = "quiet: no progress bar; json: the report in place of the last line",
       .commands = every(),
       .scope = Scope::whole_set},
      {.names = "--json",
       .kind = flag,
       .help = "quiet: no progress bar; json: the report in place of the last line",
       .commands = every(),
       .scope = Scope::whole_set},
  };
}

}  // namespace sparsereel::app::groups
