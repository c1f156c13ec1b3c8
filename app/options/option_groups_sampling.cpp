// Declares the options of seeds, steps, guidance and sampler.
#include <algorithm>

#include "app/options/option_groups.h"
#include "models/store/checkpoint/family.h"

namespace sparsereel::app::groups {
namespace {

std::vector<std::string> samplers(std::string models::SamplerSpec::*member) {
  std::vector<std::string> all;
  for (const models::SamplerSpec& sampler : models::all_samplers())
    if (std::ranges::count(all, sampler.*member) == 0) all.push_back(sampler.*member);
  return all;
}

std::vector<OptionSpec> seeds_and_steps() {
  using enum ValueKind;
  using enum Command;
  return {
      {.names = "-s,--seed,--base-seed",
       .help = "seed of the noise; random: a new one each time (default 42)",
       .manual = R"(Sets the seed of the noise that the video is made from. The same seed, options, machine and build
           give the same file; another seed gives another video of the same prompt. With -1 or random a new seed is
           drawn, and the last line of the run names it. For a prompt set, give a number: each row without a seed
           takes this number plus the row's index.)",
       .example = "sparsereel generate -p \"a panda\" --seed 7",
       .commands = that_denoise()},
      {.names = "--batch-count,--count",
       .option = {.kind = whole},
       .help = "videos of each prompt, with successive seeds (default 1)",
       .manual = R"(Makes several videos of each prompt, with the seeds s, s + 1 and so on. Their names are numbered:
           ring-1.mp4, ring-2.mp4. The model is loaded once.)",
       .example = "sparsereel generate -p \"a white ring\" --batch-count 4 --seed random -o ring.mp4",
       .in_help = InHelp::generate,
       .scope = Scope::whole_set,
       .serve = InServe::nothing},
      {.names = "--steps,--num-inference-steps,--sample-steps",
       .help = "denoising steps (default: the model's)",
       .manual = R"(Sets the number of denoising steps. The time of a video is nearly proportional to it. Fewer steps
           than the model's default lower the quality, unless a LoRA was made for few steps. With fewer than 10 steps
           a preset's cache and dense steps are ignored.)",
       .example = "sparsereel generate -p \"a panda\" --steps 12",
       .commands = {bench_quality, tune}},
      {.names = "--sigmas",
       .help = "noise levels of the steps; replaces --steps",
       .manual = R"(Lists the noise level of each step, before the shift, as falling numbers above 0 and up to 1. The
           length of the list is the number of steps. LoRAs for a few steps were trained for such a list. The list
           needs a flow-matching sampler.)",
       .example = "sparsereel generate -m MODEL --sigmas 1,0.75,0.5,0.25 --cfg-scale 1 -p \"a panda\"",
       .in_help = InHelp::all},
  };
}

std::vector<OptionSpec> guidance() {
  return {
      {.names = "--cfg-scale,--guidance-scale,--sample-guide-scale",
       .help = "how strictly to follow the prompt (default: the model's)",
       .manual = R"(Sets the guidance scale: how much more the prediction with the prompt counts than the prediction
           without it. Larger values follow the prompt more closely, but too large values oversaturate the colors; 6
           is usual. At 1 there is no guidance, each step takes one pass of the transformer instead of two, and a
           negative prompt has no effect.)",
       .example = "sparsereel generate -p \"a panda\" --cfg-scale 5",
       .in_help = InHelp::generate,
       .commands = that_denoise()},
      {.names = "--cfg-scale-2,--guidance-scale-2",
       .help = "guidance scale of the second transformer",
       .manual = R"(Sets the guidance scale for the later steps of a model with two transformers. The default is the
           value of --cfg-scale if you give that option, else the model's.)",
       .example = "sparsereel generate -m MODEL --cfg-scale 4 --cfg-scale-2 3 -p \"a panda\"",
       .in_help = InHelp::all,
       .commands = that_denoise()},
      {.names = "--dynamic-cfg,!--no-dynamic-cfg",
       .help = "vary the guidance scale over the steps",
       .manual = R"(Varies the guidance scale over the steps by the formula of use_dynamic_cfg in diffusers. Some
           models were published with it. --no-dynamic-cfg keeps it constant where the model's settings vary it. It
           has no effect without guidance.)",
       .example = "sparsereel generate -p \"a panda\" --dynamic-cfg",
       .in_help = InHelp::all,
       .commands = that_denoise()},
      {.names = "--guidance-passes",
       .help = "in-turn: less memory, more time (default batched)",
       .manual = R"(Decides whether the two passes of guidance run as one batch or one after the other. In turn, they
           need about half of the memory for a step's computation, and more time. Try in-turn if a video is too large
           for your GPU.)",
       .example = "sparsereel generate -m MODEL --guidance-passes in-turn -p \"a panda\"",
       .in_help = InHelp::all,
       .commands = that_denoise()},
  };
}

std::vector<OptionSpec> sampler_and_speed() {
  using enum ValueKind;
  return {
      {.names = "--scheduler,--sample-solver",
       .help = "sampler (default: the checkpoint's)",
       .manual = R"(Chooses the sampler, which turns the model's predictions into the next latents. Each model family
           supports some samplers; the error for another name lists them. The default is the sampler that the
           checkpoint was published with. With another sampler the same seed gives another video.)",
       .example = "sparsereel generate -m MODEL --scheduler euler -p \"a panda\"",
       .in_help = InHelp::all,
       .choices = samplers(&models::SamplerSpec::name),
       .more_choices = samplers(&models::SamplerSpec::class_name),
       .commands = that_denoise()},
      {.names = "--flow-shift,--sample-shift",
       .help = "larger: more steps at high noise (default: the model's)",
       .manual = R"(Shifts the noise levels of a flow-matching sampler. Larger values spend more of the steps on
           noisy latents, where composition and motion are decided; smaller ones spend more on detail. Usual values
           are 3 to 12. Larger videos need larger shifts.)",
       .example = "sparsereel generate -m MODEL --flow-shift 5 -p \"a panda\"",
       .in_help = InHelp::all,
       .commands = that_denoise()},
      {.names = "--cache",
       .help = "reuse steps: forecast:0.1, steps:20, 0 (default: preset's)",
       .manual = R"(Reuses the work of the last computed step if the transformer's first layer changes little. With
           0.1, a change below a tenth counts as little. forecast:0.1 also extrapolates how the output of the other
           layers changes, which has higher fidelity and takes twice the memory. forecast:0.1:20% never reuses work in
           the first fifth of the steps; forecast:0.1:20%:1 never reuses work in the first fifth and in the last step.
           measured:0.2:20%:1 also measures the error of extrapolating, and reuses steps until the errors that it
           expects add up to 0.2. steps:20 computes 20 evenly spread steps, for benchmarks. 0 computes every step.)",
       .example = "sparsereel generate -p \"a panda\" --cache forecast:0.1:20%",
       .in_help = InHelp::all,
       .commands = {Command::tune}},
      {.names = "--distilled",
       .option = {.kind = whole},
       .help = "steps of a distilled model or LoRA: 3, 4 or 8",
       .manual = R"(Sets the sampler, the noise levels, the flow shift and the guidance scale for a model that was
           distilled to this number of steps. configs/ lists these values for each published LoRA. Options that you
           give win. Name the distilled LoRA with --lora, or the distilled transformer with --transformer.)",
       .example = "sparsereel generate -m MODEL --lora LORA --distilled 4 -p \"a panda\"",
       .in_help = InHelp::generate,
       .commands = that_denoise(),
       .serve = InServe::field},
      {.names = "--preset",
       .option = {.kind = choice, .excludes = {{.other = "from"}}},
       .help = "fidelity or speed (default balanced)",
       .manual = R"(Trades time for fidelity, which is how close the video is to the video of the preset exact. The
           preset exact computes full attention in every step; near computes every block in 8 bits; balanced, the
           default, and fast also leave blocks out. All but exact reuse steps. Options that you give win over the
           preset. A profile or a recipe brings its own settings, and a model without presets in configs/ takes none.)",
       .example = "sparsereel generate -p \"a red square rotating on a gray background\" --preset exact",
       .in_help = InHelp::generate,
       .choices = {"exact", "near", "balanced", "fast"},
       .more_choices = {"quality"},
       .scope = Scope::whole_set,
       .serve = InServe::field},
  };
}

}  // namespace

std::vector<OptionSpec> sampling() {
  return joined({seeds_and_steps(), guidance(), sampler_and_speed()});
}

}  // namespace sparsereel::app::groups
