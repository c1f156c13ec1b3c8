// Declares the options of attention. The help texts take the default values from attention::Policy.
#include <sstream>

#include "app/options/option_groups.h"
#include "attention/policies/policy.h"

namespace sparsereel::app::groups {
namespace {

using sparsereel::attention::Dropped;
using sparsereel::attention::field_of;
using sparsereel::attention::HeadPolicy;
using sparsereel::attention::Policy;
using sparsereel::attention::Selection;
using sparsereel::attention::usual_ranking;
using sparsereel::attention::usual_topk;

std::string number_text(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

std::string default_text(const std::string& value) {
  return " (default " + value + ")";
}

/// Returns " (default X)" for the help if `selection` is the default way of selecting blocks; else an empty string.
std::string default_of(Selection selection) {
  const HeadPolicy head = Policy{}.defaults;
  if (head.selection != selection) return {};
  return default_text(number_text(head.*field_of(selection).value));
}

std::string topk_help() {
  const std::string means = number_text(usual_topk(Dropped::mean)), none = number_text(usual_topk(Dropped::none));
  return "share of blocks computed" + default_text("preset's, else " + means + "; without means " + none);
}

std::string select_help() {
  const std::string means(name(usual_ranking(Dropped::mean))), none(name(usual_ranking(Dropped::none)));
  return "which blocks are computed" + default_text(means + "; without means " + none);
}

std::string similarity_help() {
  const double similarity = Policy{}.defaults.similarity;
  return "always compute blocks whose tokens are less alike than this" +
         default_text(number_text(similarity) + (similarity < 0 ? ": none" : ""));
}

std::string pv_threshold_help() {
  constexpr double never = 32;
  const double threshold = Policy{}.defaults.pv_threshold;
  return "skip P.V of scores this far below the highest, in log2" +
         default_text(number_text(threshold) + (threshold >= never ? ": never" : ""));
}

/// Options of the method, and of how many blocks are computed.
std::vector<OptionSpec> method() {
  using enum Command;
  return {
      {.names = "--attention",
       .help = "method (default: preset's)",
       .manual = R"(Chooses how attention is computed. full is libtorch's attention, which computes every block in 16
           or 32 bits and is the slowest. quantized computes every block in 8 bits. sparse computes some blocks and
           uses means in place of the others. check computes sparse and full attention side by side and reports the
           error of sparse; it takes longer than either. Without a preset, the default is sparse if the device can run
           it.)",
       .example = "sparsereel generate -p \"a panda\" --attention full",
       .in_help = InHelp::generate},
      {.names = "--topk",
       .help = topk_help(),
       .manual = R"(Sets the share of blocks that sparse attention computes, above 0 and up to 1. With --select error,
           the default, all heads and query tiles share one budget of blocks, so that a head that needs more of them
           gets more. A smaller share is faster and has lower fidelity. The option has no effect with --attention full
           or quantized.)",
       .example = "sparsereel generate -p \"a panda\" --topk 0.3",
       .in_help = InHelp::all,
       .commands = {tune}},
      {.names = "--cdf",
       .help = "replaces --topk: share of the predicted error that is computed" + default_of(Selection::cdf),
       .manual =
           R"(Computes the fewest blocks that together hold this share of the predicted error, or with --select mass
           of the attention weights. It is above 0 and up to 1. The number of blocks, and so the time, depends on the
           layer, the step and the prompt. The option replaces --topk.)",
       .example = "sparsereel generate -p \"a panda\" --cdf 0.9",
       .in_help = InHelp::research,
       .commands = {tune}},
      {.names = "--error",
       .help = "replaces --topk: bound on the predicted error of a tile" + default_of(Selection::error),
       .manual = R"(Computes as few blocks as possible such that the predicted error of each query tile stays below
           this bound. The error is relative to the mean length of the head's outputs. Measured errors are about a
           quarter of the bound. The option needs --dropped mean and --select error, and replaces --topk.)",
       .example = "sparsereel generate -p \"a panda\" --error 0.05",
       .in_help = InHelp::research,
       .commands = {tune}},
      {.names = "--block-error",
       .help = "replaces --topk: bound on the predicted error of a block" + default_of(Selection::block_error),
       .manual = R"(Computes every block whose predicted error is above this bound, relative to the mean length of all
           heads' outputs. Layers and steps that need more blocks get more, so fidelity is higher for the same work.
           Useful values are 0.0045 to 0.03 for 2,000 tokens, and a tenth of these for 9,000. The time depends on the
           prompt, so presets use --topk.)",
       .example = "sparsereel generate -p \"a panda\" --block-error 0.01",
       .in_help = InHelp::research,
       .commands = {tune}},
  };
}

/// Options of which blocks are computed, what replaces the others, and in how many bits GPUs multiply.
std::vector<OptionSpec> choice_of_blocks() {
  using enum Command;
  return {
      {.names = "--dropped",
       .help = "what replaces blocks that are not computed" + default_text(std::string(name(Policy{}.dropped))),
       .manual = R"(Chooses how blocks are represented that attention does not compute. With mean, every --cell tokens
           of such a block count as one key, their mean, so far fewer blocks need to be computed. With none, such a
           block counts for nothing; together with --select mass, this is the published method SpargeAttn.)",
       .example = "sparsereel generate -p \"a panda\" --dropped none --select mass --topk 0.5",
       .in_help = InHelp::all,
       .commands = {tune}},
      {.names = "--select",
       .help = select_help(),
       .manual = R"(Says which measure chooses the blocks. error computes the blocks whose means would cause the
           largest errors; it needs --dropped mean. mass computes the blocks that hold most of the attention, even if
           means would represent them well. Leave the option at its default unless you compare methods.)",
       .example = "sparsereel generate -p \"a panda\" --select mass --topk 0.3",
       .in_help = InHelp::all,
       .commands = {tune}},
      {.names = "--cell",
       .help = "tokens that share one mean" + default_text(std::to_string(Policy{}.cell) + "; GPUs: only 16"),
       .manual = R"(Sets how many tokens one mean represents. The means cost 1/cell of the work of full attention;
           larger cells cost less and are less exact. A GPU supports only 16; a CPU also supports 32 and 64. With
           --dropped none the option has no effect.)",
       .example = "sparsereel generate -p \"a red circle\" --device cpu --cell 32",
       .in_help = InHelp::research,
       .commands = {tune}},
      {.names = "--arithmetic",
       .help = "bits of attention's products on a GPU" + default_text(std::to_string(Policy{}.arithmetic)),
       .manual = R"(Sets in how many bits a GPU multiplies in sparse attention. 16 computes the same blocks in the
           tensors' own type, two to three times slower. Use it to see the error of sparsity without the error of 8
           bits. A CPU computes sparse attention in fp32, so 16 has no effect there.)",
       .example = "sparsereel generate -m MODEL --attention sparse --arithmetic 16 -p \"a panda\"",
       .in_help = InHelp::research,
       .commands = {tune}},
  };
}

/// Options that make exceptions from the choice of blocks.
std::vector<OptionSpec> exceptions() {
  using enum ValueKind;
  using enum Command;
  return {
      {.names = "--similarity",
       .help = similarity_help(),
       .manual = R"(Always computes a block if the mean cosine similarity of its tokens is below this value.
           SpargeAttn's method needs that, because it predicts tokens from the mean of their block. The default, )" +
                 number_text(Policy{}.defaults.similarity) + R"(, is off.)",
       .example = "sparsereel generate -p \"a panda\" --dropped none --select mass --similarity 0.5",
       .in_help = InHelp::research,
       .commands = {bench_pipeline, tune}},
      {.names = "--pv-threshold",
       .help = pv_threshold_help(),
       .manual = R"(Skips the second product, P.V, of a computed block if none of its scores comes within this many
           log2 units of the highest score. Smaller values skip more blocks and are less exact. The default, )" +
                 number_text(Policy{}.defaults.pv_threshold) + R"(, never skips.)",
       .example = "sparsereel generate -p \"a panda\" --pv-threshold 12",
       .in_help = InHelp::research,
       .commands = that_denoise()},
      {.names = "--profile",
       .option = {.kind = file, .no_effect = {NoEffect::exact}},
       .help = "use the settings that tune found for this model",
       .manual = R"(Uses a profile, the settings that 'sparsereel tune' found for a model: attention, blocks, dense
           steps, cache, 8-bit weights. It works like a preset of your own: options that you give win, and with
           --attention full alone the video is exact. A profile fits only its model. A warning says so if the size or
           the number of steps differs.)",
       .example = "sparsereel generate -m MODEL --profile profile.yaml -p \"a panda\"",
       .in_help = InHelp::all,
       .commands = {bench_pipeline},
       .recipe = InRecipe::file,
       .serve = InServe::field},
      {.names = "--dense-steps",
       .help = "first steps that compute every block: 5 or 20% (default: preset's)",
       .manual = R"(Computes every block, in 8 bits, in the first steps: a number of them, or a share such as 20%.
           Early steps decide the composition, so dense steps keep a sparse video close to the video of full
           attention. Each of them takes as long as with --attention quantized.)",
       .example = "sparsereel generate -p \"a panda\" --topk 0.3 --dense-steps 20%",
       .in_help = InHelp::all,
       .commands = {bench_pipeline, tune}},
      {.names = "--exact-steps",
       .help = "first steps with full attention: 2 or 4% (default: preset's)",
       .manual = R"(Uses full attention, in 16 bits, in the first steps: a number of them, or a share such as 4%. For
           some prompts, the small error of 8 bits in the first steps changes where something is or how it moves. Each
           of these steps takes as long as with --attention full.)",
       .example = "sparsereel generate -p \"a panda\" --attention quantized --exact-steps 2",
       .in_help = InHelp::all},
      {.names = "--dense-layers",
       .help = "first layers that compute every block" + default_text(std::to_string(Policy{}.dense_layers)),
       .manual = R"(Computes every block, in 8 bits, in the first N layers of the transformer, in all steps. The
           default is )" +
                 std::to_string(Policy{}.dense_layers) +
                 R"(. Try it if sparsity in the first layers of your model lowers fidelity; 'sparsereel tune' can give
                     each head its own number of blocks instead.)",
       .example = "sparsereel generate -p \"a panda\" --topk 0.3 --dense-layers 2",
       .in_help = InHelp::all,
       .commands = {bench_pipeline, bench_quality}},
  };
}

std::vector<OptionSpec> order() {
  return {
      {.names = "--token-order",
       .help = "order of the video's tokens (default hilbert)",
       .manual = R"(Sets the order in which the video's tokens stand in memory. 64 tokens in a row form a block.
           hilbert keeps neighbors in space and time together, so a mean represents them well. native is the
           checkpoint's order; morton, time-major and random are there for comparison. The order changes the result of
           sparse attention, but hardly its time.)",
       .example = "sparsereel generate -p \"a panda\" --topk 0.3 --token-order native",
       .in_help = InHelp::research,
       .commands = {Command::tune}},
  };
}

}  // namespace

std::vector<OptionSpec> attention() {
  return joined({method(), choice_of_blocks(), exceptions(), order()});
}

}  // namespace sparsereel::app::groups
