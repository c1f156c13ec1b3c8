// Declares the options of `batch`.
#include "app/commands/batch_options.h"

#include "app/options/option_group.h"
#include "app/options/option_table.h"

namespace sparsereel::app {
namespace {

using sets::BatchOptions;

/// Adds the options that say which rows are made, and by which machines and GPUs.
void add_set_options(CLI::App& command, BatchOptions& options) {
  const OptionGroup set(command, "Prompt set");
  set.add("FILE", options.set,
          {.help = "prompts: .txt (one a line), .jsonl, .csv or .yaml; - is standard input",
           .manual = R"(Names the prompt set. A .txt has one prompt a line; the others have one video a row, with
               options of generate, which win over the command line. After an interruption, the same command makes
               only the videos that are missing.)",
           .example = "sparsereel batch prompts.csv -o videos --steps 20"},
          "FILE");
  set.add("--input-format", options.input_format,
          {.help = "format of FILE (default: by its name)",
           .manual = R"(Names the format of the prompt set if the ending of its name does not. The format of standard
               input is guessed from its beginning; use this option if the guess is wrong.)",
           .example = "sparsereel batch - -o videos --input-format csv",
           .in_help = InHelp::all},
          "txt,csv,jsonl,yaml");
  set.add("--share", options.share,
          {.help = "make only rows i, i+n, i+2n... (default: all, or a launcher's share)",
           .manual = R"(Makes only a part of the set, so that several machines can make it together: 2/8 makes rows 2,
               10, 18 and so on, counted from 0. The shares do not change the videos. Under torchrun, mpirun or Slurm
               each process takes its share without this option.)",
           .example = "sparsereel batch prompts.csv -o shared --share 2/8",
           .in_help = InHelp::all},
          "i/n");
  set.add("--gpus-per-video", options.gpus_per_video,
          {.help = "how many of --gpus make a video together (default 1)",
           .manual = R"(Lets this many GPUs make each video together. --gpus must be a multiple of it. A video is done
           sooner, and the whole set later.)",
           .example = "sparsereel batch prompts.txt -o videos -m MODEL --gpus 4 --gpus-per-video 2",
           .in_help = InHelp::all},
          "N");
  set.add("--status", options.status,
          {.help = "add up the manifests in this folder and make nothing",
           .manual = R"(Adds up the manifests of all shares in a folder of videos: how many videos are finished and
               how many failed. It makes no video, and needs no prompt set.)",
           .example = "sparsereel batch --status videos",
           .in_help = InHelp::all},
          "DIR");
}

/// Adds the options of the output that mean something else in `generate`.
void add_folder_options(CLI::App& command, BatchOptions& options) {
  const OptionGroup output(command, find_option("output")->group);
  output.add(
      "-o,--output", options.folder,
      {.help = "folder of the videos and their manifest",
       .manual = R"(Names the folder for the videos and for the manifest, which has one line for each video. A later
           run reads the manifest and skips finished videos.)",
       .example = "sparsereel batch prompts.txt -o videos"},
      "DIR");
  output.add(
      "--format", options.format,
      {.help = "format of the videos (default mp4)",
       .manual = R"(Sets the format of videos whose rows give no file name. safetensors keeps the frames as a tensor.)",
       .example = "sparsereel batch prompts.txt -o videos --format gif",
       .in_help = InHelp::all},
      "mp4,mov,mkv,webm,gif,y4m,safetensors");
}

}  // namespace

void add_batch_options(CLI::App& command, BatchOptions& options) {
  add_set_options(command, options);
  add_folder_options(command, options);
}

}  // namespace sparsereel::app
