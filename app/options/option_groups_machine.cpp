// Declares the options of devices, number formats and memory.
#include "app/options/option_groups.h"

namespace sparsereel::app::groups {
namespace {

std::vector<OptionSpec> arithmetic() {
  return {
      {.names = "--device",
       .help = "where it runs (default auto)",
       .manual = R"(Chooses where the model runs. auto takes the first GPU if one is usable, else the CPU. cuda:1 is
           the second of the GPUs that CUDA_VISIBLE_DEVICES leaves visible. A full-size model is very slow on a CPU; a
           warning says how long it will take.)",
       .example = "sparsereel generate -p \"a red circle\" --device cpu",
       .in_help = InHelp::all,
       .commands = with_a_model(),
       .serve = InServe::server},
      {.names = "--dtype",
       .help = "number format (default: CPU fp32, GPU as stored)",
       .manual = R"(Sets the number format of the computation. auto is fp32 on a CPU, and the format of the stored
           weights on a GPU; weights stored in fp32 run in bf16 there. fp32 on a GPU takes twice the memory, is slower
           and allows full attention only. Try bf16 or fp32 if a video contains NaN in fp16.)",
       .example = "sparsereel generate -m MODEL --dtype bf16 -p \"a panda\"",
       .in_help = InHelp::all,
       .commands = with_a_model()},
      {.names = "--vae-dtype",
       .help = "number format of the VAE (default auto: usually --dtype)",
       .manual = R"(Sets the number format in which the VAE decodes, and encodes images. With auto, the VAE decodes in
           the format that suits the model, for most models that of --dtype, and encodes images in fp32. fp32 takes
           more time and memory.)",
       .example = "sparsereel generate -m MODEL --vae-dtype fp32 -p \"a panda\"",
       .in_help = InHelp::all,
       .commands = with_a_model()},
      {.names = "--weights",
       .help = "halve the memory: 8-bit weights",
       .manual = R"(With fp8, stores and multiplies the large matrices of the transformer in 8-bit floating point.
           They take half the memory of 16-bit weights and change the video a little. fp8 needs a GPU of compute
           capability 8.9 or higher, such as a GeForce RTX 40; a CPU emulates it slowly. int8 does the same with
           integers, on every GPU from compute capability 8.0 on, such as a GeForce RTX 30. It rotates columns first,
           so that a few columns of large values do not cost precision. If the file already has weights in the format
           that you ask for, they are used as they are. Packed weights, such as GGUF, are rounded a second time, with a
           warning. With auto, a GPU multiplies in integers if the file stores int8 weights.)",
       .example = "sparsereel generate -m MODEL --weights fp8 -p \"a panda\"",
       .commands = {Command::bench_pipeline, Command::tune}},
      {.names = "--text-weights",
       .help = "halve the memory: 8-bit weights",
       .manual = R"(Does for the text encoder what --weights does for the transformer. The text encoder is often as
           large as the transformer, so use both on a small GPU.)",
       .example = "sparsereel generate -m MODEL --weights fp8 --text-weights fp8 -p \"a panda\"",
       .in_help = InHelp::generate,
       .commands = that_denoise()},
  };
}

std::vector<OptionSpec> memory() {
  using enum ValueKind;
  return {
      {.names = "--vae-tiling",
       .help = "decode in tiles, to save memory (default auto)",
       .manual = R"(Decides whether the VAE decodes the video in overlapping tiles, which takes less memory and more
           time. auto uses tiles if memory is short, and always with --offload on. on always uses tiles, and off never
           does.)",
       .example = "sparsereel generate -m MODEL --vae-tiling on -p \"a panda\"",
       .commands = with_a_model()},
      {.names = "--offload",
       .help = "where weights stay: auto, on (host), off (GPU)",
       .manual =
           R"(Decides which weights stay on the GPU. auto keeps as many of the transformer's layers (blocks) there as
           the free memory holds. It copies the others from the host's memory while the GPU computes, and page-locks
           at most half of the host's memory. on, or the option without a value, keeps only two blocks and one layer
           of the text encoder on the GPU. That is slower, most of all for videos with few tokens. The VAE then also
           decodes in tiles, unless --vae-tiling says otherwise. off keeps all blocks on the GPU. The choice does not
           change the latents. On a CPU it has no effect.)",
       .example = "sparsereel generate -m MODEL --offload -p \"a panda\"",
       .more_choices = {"true", "false", "yes", "no"},
       .bare = "true",
       .commands = that_denoise(),
       .serve = InServe::server},
      {.names = "--max-vram",
       .help = "how many GiB of the GPU to use (default: what is free)",
       .manual = R"(Lets --offload auto plan for this many GiB of GPU memory. Memory that other programs use is never
           counted as free. With --dry-run on a machine without a GPU, the option shows what auto would choose on a
           GPU of this size.)",
       .example = "sparsereel generate -m MODEL --max-vram 12 -p \"a panda\"",
       .in_help = InHelp::all,
       .commands = that_denoise(),
       .serve = InServe::server},
      {.names = "--gpus",
       .option = {.kind = whole},
       .help = "how many GPUs to use (default 1)",
       .manual = R"(Uses several GPUs of this host. generate makes one video on all of them: they divide the passes of
           guidance first, then the tokens. batch and serve make one video on each GPU, unless --gpus-per-video says
           otherwise. The GPUs do not divide the weights: each needs room for the whole model, or copies blocks of it
           from host memory (--offload). CUDA_VISIBLE_DEVICES chooses the GPUs.)",
       .example = "sparsereel generate -m MODEL --gpus 4 -p \"a panda\"",
       .in_help = InHelp::generate,
       .scope = Scope::whole_set,
       .serve = InServe::server},
      {.names = "--threads",
       .option = {.kind = whole},
       .help = "how many CPU threads to use (default: all cores)",
       .manual = R"(Sets the number of CPU threads. The default is one for each core. Use fewer if other programs need
           the CPU at the same time. OMP_THREAD_LIMIT limits the number too.)",
       .example = "sparsereel generate -p \"a red circle\" --threads 4",
       .in_help = InHelp::all,
       .commands = with_a_model(),
       .scope = Scope::whole_set,
       .serve = InServe::server},
  };
}

}  // namespace

std::vector<OptionSpec> machine() {
  return joined({arithmetic(), memory()});
}

}  // namespace sparsereel::app::groups
