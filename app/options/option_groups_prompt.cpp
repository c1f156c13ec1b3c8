// Declares the options that name the model and say what to show.
#include "app/options/option_groups.h"

namespace sparsereel::app::groups {
namespace {

std::vector<OptionSpec> model() {
  using enum ValueKind;
  return {
      {.names = "-m,--model",
       .option = {.kind = folder, .excludes = {{.other = "random_weights"}}},
       .help = "the model: a folder or file of weights (default: a tiny one)",
       .manual = R"(Names the model: a diffusers folder, a folder with files of ComfyUI, of the model's authors or of
           GGUF, or one file that holds all parts. The program recognizes a file by its tensors, not by its name. If
           you give the name of a published repository, ORGANIZATION/NAME, the program prints the commands that
           download and use it. Without this option, the tiny model that comes with the program draws simple moving
           shapes.)",
       .example = "sparsereel generate -m ComfyUI -p \"a panda\"",
       .commands = with_a_model()},
      {.names = "--random-weights",
       .option = {.kind = file},
       .help = "make a model with random weights from a .yaml of configs/",
       .manual = R"(Builds a model of the size that a file of configs/ describes, with random weights. Use it to
           measure speed and memory without a download. Its videos show noise and say nothing about quality.)",
       .example = "sparsereel generate --random-weights configs/tiny.yaml -o noise.mp4 --dry-run",
       .in_help = InHelp::all,
       .commands = with_a_model()},
  };
}

/// Declares an option that reads one part of the model from a file. Parts with the same help text share a row of
/// --help.
OptionSpec part(const char* names, std::string help, std::string manual, std::string example, InHelp in_help) {
  return {.names = names,
          .option = {.kind = ValueKind::file, .excludes = {{.other = "random_weights"}}},
          .help = std::move(help),
          .manual = std::move(manual),
          .example = std::move(example),
          .in_help = in_help,
          .commands = with_a_model()};
}

constexpr const char* kThisPart = "read this part of the model from a file";

std::vector<OptionSpec> parts() {
  return {
      part("--transformer", kThisPart,
           R"(Reads the transformer from this file, in place of the one that -m would use. It may be a .safetensors in
               16 or 8 bits, a .gguf, or a .pth, .bin or .ckpt, whose code never runs. If you name a file for every
               part, -m is not needed. GGUF and 8-bit weights stay packed, and so need less memory.)",
           "sparsereel generate --transformer dit.gguf --vae vae.safetensors --text-encoder t5.gguf -p x",
           InHelp::generate),
      part("--transformer-2", "the second transformer (low noise), from a file",
           R"(Reads the second transformer of a model that has two. The first transformer computes the noisy early
               steps, the second the later steps. If you name only one of the two files, the program looks for the
               other in the same folder, by its name.)",
           "sparsereel generate -m MODEL --transformer high.gguf --transformer-2 low.gguf -p \"a panda\"", InHelp::all),
      part("--vae", kThisPart,
           R"(Reads the VAE, which turns latents into frames, from a file or a folder. Use it if your folder has no
               VAE or more than one. Among several, the program takes the most exact.)",
           "sparsereel generate -m MODEL --vae vae.safetensors -p \"a panda\"", InHelp::generate),
      part("--text-encoder,--t5xxl", kThisPart,
           R"(Reads the text encoder from a file or a folder. It may have another number of bits than the transformer;
               an 8-bit or GGUF file saves several gigabytes. Without the option, the program takes the smallest in
               the model's folder that has about as many bits as the transformer, or more.)",
           "sparsereel generate -m MODEL --text-encoder encoder_fp8.safetensors -p \"a panda\"", InHelp::generate),
      part("--image-encoder,--clip-vision", "the encoder of the first image, from a file",
           R"(Reads the image encoder from a file. Only some image-to-video models have one; 'sparsereel inspect'
               lists the parts that a model needs.)",
           "sparsereel generate -m MODEL --image-encoder clip_vision_h.safetensors -i a.jpg -p waves", InHelp::all),
      part("--tokenizer", "the tokenizer: its file or folder",
           R"(Reads the tokenizer from a spiece.model, a tokenizer.json or a folder with one of them. The option is
               needed if neither the text encoder's file nor its folder nor the model has a tokenizer. A tokenizer
               with another vocabulary than the text encoder's is refused.)",
           "sparsereel generate -m MODEL --tokenizer google/umt5-xxl -p \"a panda\"", InHelp::all),
  };
}

/// Options whose names are those of stable-diffusion.cpp (sd.cpp).
std::vector<OptionSpec> names_of_other_programs() {
  using enum ValueKind;
  return {
      {.names = "--diffusion-model",
       .option = {.kind = file,
                  .excludes = {{.other = "random_weights"}, {.other = "transformer"}, {.other = "transformer_2"}}},
       .help = "another name of --transformer, as sd.cpp calls it",
       .manual = R"(Means --transformer, so that command lines of stable-diffusion.cpp (sd.cpp) work. Together with
           --high-noise-diffusion-model it means --transformer-2.)",
       .example = "sparsereel generate -m MODEL --diffusion-model dit.gguf -p \"a panda\"",
       .in_help = InHelp::all,
       .commands = with_a_model()},
      {.names = "--high-noise-diffusion-model",
       .option = {.kind = file,
                  .excludes = {{.other = "random_weights"}, {.other = "transformer"}, {.other = "transformer_2"}}},
       .help = "sd.cpp's name of --transformer, for a model of two transformers",
       .manual = R"(Means --transformer for a model of two transformers, so that command lines of stable-diffusion.cpp
           (sd.cpp) work. The transformer for low noise is then given by --diffusion-model.)",
       .example = "sparsereel generate -m DIR --high-noise-diffusion-model h.gguf --diffusion-model l.gguf -p x",
       .in_help = InHelp::all,
       .commands = with_a_model()},
  };
}

std::vector<OptionSpec> loras() {
  return {
      {.names = "--lora",
       .option = {.excludes = {{.other = "random_weights"}}},
       .help = "add a LoRA; repeat it for several",
       .manual = R"(Adds the changes of a LoRA to the weights. Steps take longer only if the model's file holds packed
           or 8-bit weights, such as GGUF. FILE:0.8 scales the changes by 0.8; a scale may be negative. Several LoRAs
           are separated by commas, or the option is repeated. For a model of two transformers, FILE@high changes the
           transformer for high noise and FILE@low the one for low noise. Layers that the model does not have are left
           out with a warning.)",
       .example = "sparsereel generate -m MODEL --lora style.safetensors:0.8 -p \"a panda\"",
       .in_help = InHelp::generate,
       .commands = that_denoise(),
       .serve = InServe::field},
      {.names = "--strict-lora",
       .help = "refuse a LoRA with layers that the model does not have",
       .manual = R"(Makes it an error if a LoRA has layers that the model does not have. Without it such layers are
           left out with a warning. A LoRA is always refused if none of its layers fits.)",
       .example = "sparsereel generate -m MODEL --lora style.safetensors --strict-lora -p \"a panda\"",
       .in_help = InHelp::all,
       .commands = that_denoise()},
  };
}

std::vector<OptionSpec> texts() {
  using enum ValueKind;
  using enum Command;
  return {
      {.names = "--from",
       .option = {.kind = file},
       .help = "make this video again; options that you add win",
       .manual = R"(Takes every setting that shapes the picture from a video that this program made, or from a .json
           with a recipe or a report. Options that you add win over the recipe. A recipe knows the model, images and
           LoRAs by name and hash only, so name their files again. On the same machine and build, the new file equals
           the old one byte for byte.)",
       .example = "sparsereel generate --from clip.mp4 -o other.mp4 --seed 8",
       .in_help = InHelp::all,
       .serve = InServe::nothing},
      {.names = "-p,--prompt",
       .option = {.excludes = {{.other = "prompt_file"}}},
       .help = "what the video shows",
       .manual = R"(Describes the video. Put the text in quotes. Random weights need no prompt. The part of a prompt
           beyond --max-sequence-length tokens is left out with a warning.)",
       .example = "sparsereel generate -p \"a red circle moving to the right on a blue background\"",
       .commands = {bench_pipeline, tune},
       .serve = InServe::request},
      {.names = "--prompt-file",
       .option = {.kind = file},
       .help = "read the prompt from a text file, or from standard input (-)",
       .manual = R"(Reads the prompt from a text file; - is standard input. Use it for long prompts, or if another
           program writes them. The video's recipe holds the text, not the name of the file.)",
       .example = "sparsereel generate --prompt-file prompt.txt -o clip.mp4",
       .in_help = InHelp::all,
       .commands = {bench_pipeline},
       .quoted = true,
       .serve = InServe::nothing},
      {.names = "-n,--negative-prompt",
       .help = "what the video should not show",
       .manual = R"(Describes what to keep out of the video. Some models have a default, which this replaces. It works
           through guidance, so it has no effect with --cfg-scale 1.)",
       .example = "sparsereel generate -p \"a panda\" -n \"blurry, distorted\"",
       .in_help = InHelp::generate,
       .commands = that_denoise()},
      {.names = "--max-sequence-length",
       .help = "most tokens of a prompt that count (default: the model's)",
       .manual = R"(Sets how many tokens of a prompt the text encoder reads at most. The default is the model's own
           length, so change it only for experiments. The rest of a longer prompt is left out with a warning.)",
       .example = "sparsereel generate -p \"a panda\" --max-sequence-length 128",
       .in_help = InHelp::all,
       .commands = that_denoise()},
  };
}

}  // namespace

std::vector<OptionSpec> prompt() {
  return joined({model(), parts(), names_of_other_programs(), loras(), texts()});
}

}  // namespace sparsereel::app::groups
