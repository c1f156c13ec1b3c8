// Declares the options of latents, output and reports.
#include "app/options/option_groups.h"

namespace sparsereel::app::groups {
namespace {

std::vector<OptionSpec> video_files() {
  using enum ValueKind;
  using enum Command;
  return {
      {.names = "-o,--output",
       .option = {.kind = file},
       .help = ".mp4 .mov .mkv .webm .gif .y4m .safetensors, or a PNG folder",
       .manual = R"(Names the file to write. Its ending chooses the format; a name without an ending stands for a
           folder of PNGs. A file appears only when it is complete, and replaces an older one of that name. Without
           this option the file is video.mp4, or video-2.mp4 and so on, so that nothing is replaced.)",
       .example = "sparsereel generate -p \"a blue star spinning on a yellow background\" -o clip.gif",
       .commands = {decode},
       .written = true,
       .scope = Scope::one_video},
      {.names = "--crf",
       .option = {.kind = whole, .no_effect = {NoEffect::not_encoded}},
       .help = "quality of the encoder, 0 to 51; lower is better (default 17)",
       .manual = R"(Sets the quality of the encoded video, from 0, the best quality and the largest file, to 51. It is
           x264's constant rate factor; other encoders use the nearest quality that they have.)",
       .example = "sparsereel generate -p \"a panda\" --crf 23 -o small.mp4",
       .in_help = InHelp::all,
       .commands = {decode},
       .recipe = InRecipe::value},
      {.names = "--codec",
       .option = {.kind = text, .no_effect = {NoEffect::not_encoded}},
       .help = "FFmpeg encoder (default: libx264, for .webm libvpx-vp9)",
       .manual = R"(Names the encoder of FFmpeg that writes the video. It must suit the file's ending. 'sparsereel
           doctor' lists the encoders that this machine has.)",
       .example = "sparsereel generate -p \"a panda\" --codec libx265 -o clip.mp4",
       .in_help = InHelp::all,
       .commands = {decode},
       .recipe = InRecipe::value},
      {.names = "--no-audio",
       .help = "neither decode nor write the sound that a model makes",
       .manual = R"(Leaves out the sound if the model makes videos with sound. The sound is not decoded, which saves a
           little time. The model still makes it together with the picture, so the picture stays the same.)",
       .example = "sparsereel generate -m MODEL -p \"a dog barks\" --no-audio",
       .in_help = InHelp::all,
       .commands = {decode}},
      {.names = "--no-metadata",
       .option = {.kind = flag},
       .help = "write no recipe into the video",
       .manual = R"(Leaves the recipe out of the video. The recipe holds the prompt and every setting that shapes the
           picture; 'inspect' prints it and --from uses it. Use this option before you publish a video whose prompt is
           private.)",
       .example = "sparsereel generate -p \"a panda\" --no-metadata",
       .in_help = InHelp::all,
       .commands = {decode}},
  };
}

std::vector<OptionSpec> pictures() {
  using enum ValueKind;
  using enum Command;
  return {
      {.names = "--contact-sheet",
       .option = {.kind = file},
       .help = "also write a .png with a few frames and the prompt",
       .manual = R"(Also writes a picture with a few evenly spaced frames and the prompt. Use it to look through many
           videos quickly.)",
       .example = "sparsereel generate -p \"a yellow square falling\" -o square.mp4 --contact-sheet square.png",
       .in_help = InHelp::all,
       .commands = {decode},
       .written = true,
       .scope = Scope::one_video},
      {.names = "--preview",
       .option = {.kind = file},
       .help = "during denoising, write previews to this .png or .gif",
       .manual = R"(Writes a small picture of the video so far, after the first step and then after every third, at
           most twice a second. A .png shows the middle frame and a .gif all latent frames, one pixel for each latent.
           The colors are estimated without the VAE. The video itself stays the same. If the colors of a model's
           latents are unknown, a warning says that no preview is written.)",
       .example = "sparsereel generate -p \"a yellow square falling\" -o square.mp4 --preview square.png",
       .in_help = InHelp::all,
       .written = true,
       .scope = Scope::one_video},
  };
}

std::vector<OptionSpec> reports() {
  using enum ValueKind;
  using enum Command;
  return {
      {.names = "--report",
       .option = {.kind = file},
       .help = "write a JSON report of the run",
       .manual = R"(Writes everything that was measured into a JSON file: seconds of each stage, attention, cache,
           memory, warnings and the recipe. A run that fails writes its error there.)",
       .example = "sparsereel generate -p \"a panda\" --report run.json",
       .in_help = InHelp::all,
       .commands = with_a_model(),
       .written = true,
       .scope = Scope::whole_set,
       .serve = InServe::nothing},
      {.names = "--verbose",
       .option = {.kind = flag},
       .help = "also print times of the stages, attention, cache and memory",
       .manual = R"(Prints more after the last line: the seconds of each stage, the share of attention that was not
           computed, the number of computed steps, and the peak memory. --report has the same in more detail.)",
       .example = "sparsereel generate -p \"a panda\" --verbose",
       .in_help = InHelp::all,
       .commands = {decode},
       .scope = Scope::whole_set,
       .serve = InServe::nothing},
      {.names = "--dry-run",
       .option = {.kind = flag},
       .help = "show files, size and memory needed, and stop",
       .manual = R"(Shows the file of each part of the model, the size, frames, steps and preset, and the memory that
           each stage needs. It loads no weights and writes nothing. The exit code is 0. If the run would end with an
           error, that error is printed and the exit code is 2.)",
       .example = "sparsereel generate -p \"a panda\" --seconds 4 --dry-run",
       .in_help = InHelp::generate,
       .scope = Scope::whole_set,
       .serve = InServe::nothing},
      {.names = "--quiet",
       .option = {.kind = flag},
       .help = "show no progress bar",
       .manual = R"(Shows no progress bar. Warnings, errors and the last line are still printed.)",
       .example = "sparsereel generate -p \"a panda\" --quiet",
       .in_help = InHelp::all,
       .commands = with_a_model(),
       .scope = Scope::whole_set},
      {.names = "--json",
       .option = {.kind = flag},
       .help = "print the report as JSON in place of the last line",
       .manual = R"(Prints the report as one JSON object on standard output, in place of the last line. Use it in
           scripts. A run that fails prints its error there.)",
       .example = "sparsereel generate -p \"a panda\" --quiet --json",
       .in_help = InHelp::all,
       .commands = with_a_model(),
       .scope = Scope::whole_set,
       .serve = InServe::nothing},
  };
}

}  // namespace

std::vector<OptionSpec> latents() {
  using enum ValueKind;
  return {
      {.names = "--save-latents",
       .option = {.kind = file},
       .help = "keep the latents in this .safetensors",
       .manual = R"(Keeps the denoised latents in a file. 'sparsereel decode' turns them into a video again, with
           another format, quality or tiling, without denoising again.)",
       .example = "sparsereel generate -p \"a panda\" --save-latents clip.safetensors",
       .in_help = InHelp::all,
       .written = true,
       .scope = Scope::one_video},
      {.names = "--checkpoint-every",
       .option = {.kind = whole, .no_effect = {NoEffect::random_seed}},
       .help = "save progress every N steps (default 0: only on Ctrl-C)",
       .manual = R"(Saves the progress of denoising every N steps, so that a run that was killed can continue. Run the
           same command again: it continues and makes the same frames. Ctrl-C and SIGTERM save the progress without
           this option. The file is removed once the video is written.)",
       .example = "sparsereel generate -m MODEL -p \"a panda\" --checkpoint-every 10",
       .in_help = InHelp::all},
      {.names = "--init-latents",
       .option = {.kind = file},
       .help = "start from these latents in place of noise",
       .manual = R"(Starts denoising from the tensor `latents` of a .safetensors file in place of the seed's noise.
           Use it to give two programs the same noise. The tensor must have the shape of the video's latents.)",
       .example = "sparsereel generate -p \"a panda\" --init-latents noise.safetensors",
       .in_help = InHelp::all,
       .recipe = InRecipe::file,
       .serve = InServe::nothing},
  };
}

std::vector<OptionSpec> output() {
  return joined({video_files(), pictures(), reports()});
}

}  // namespace sparsereel::app::groups
