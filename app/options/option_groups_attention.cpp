// Declares the options of attention. Help takes the defaults of block selection from attention::Policy.
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

/// Returns the help's note on the default if `selection` is the default one, else nothing.
std::string default_of(Selection selection) {
  const HeadPolicy head = Policy{}.defaults;
  if (head.selection != selection) return {};
  return default_text(number_text(head.*field_of(selection).value));
}

std::string topk_help() {
  return "share of blocks computed" + default_text("preset's, else " + number_text(usual_topk(Dropped::mean)) +
                                                   "; no means: " + number_text(usual_topk(Dropped::none)));
}

std::string dropped_help() {
  return "dropped blocks count by their means or not" + default_text(std::string(name(Policy{}.dropped)));
}

std::string select_help() {
  return "what chooses blocks" + default_text(std::string(name(usual_ranking(Dropped::mean))) +
                                              "; no means: " + std::string(name(usual_ranking(Dropped::none))));
}

std::string cell_help() {
  return "tokens a mean stands for" + default_text(std::to_string(Policy{}.cell) + "; GPUs have 16 only");
}

std::string arithmetic_help() {
  return "bits of a GPU's products" + default_text(std::to_string(Policy{}.arithmetic));
}

std::string similarity_help() {
  const double similarity = Policy{}.defaults.similarity;
  return "blocks less self-similar than this stay dense" +
         default_text(number_text(similarity) + (similarity < 0 ? ": none" : ""));
}

std::string pv_threshold_help() {
  constexpr double never = 32;
  const double threshold = Policy{}.defaults.pv_threshold;
  return "skip P.V this far below the highest score, in log2" +
         default_text(number_text(threshold) + (threshold >= never ? ": never" : ""));
}

/// Shared by --cdf, --error and --block-error, so that they share a row of --help.
constexpr const char* kInsteadOfTopk = "for --topk: share of attention kept, or a bound on errors";

/// Returns the options that choose which blocks are computed and what represents the others.
std::vector<OptionSpec> selection() {
  using enum ValueKind;
  using enum Command;
  return {
      {.names = "--topk", .help = topk_help(), .commands = {tune}},
      {.names = "--cdf", .help = kInsteadOfTopk + default_of(Selection::cdf), .commands = {tune}},
      {.names = "--error", .help = kInsteadOfTopk + default_of(Selection::error), .commands = {tune}},
      {.names = "--block-error", .help = kInsteadOfTopk + default_of(Selection::block_error), .commands = {tune}},
      {.names = "--dropped", .help = dropped_help(), .commands = {tune}},
      {.names = "--select", .help = select_help(), .commands = {tune}},
      {.names = "--cell", .help = cell_help(), .commands = {tune}},
      {.names = "--arithmetic", .help = arithmetic_help(), .commands = {tune}},
      {.names = "--similarity", .help = similarity_help(), .commands = {bench_pipeline, tune}},
      {.names = "--pv-threshold", .help = pv_threshold_help(), .commands = that_denoise()},
      {.names = "--profile",
       .kind = file,
       .help = "what tune found: attention, blocks, steps, weights",
       .commands = {bench_pipeline},
       .recipe = InRecipe::file,
       .no_effect = {NoEffect::exact}},
      {.names = "--dense-steps",
       .help = "first steps with every block, in 8 bits: 5, 20% (default: preset's)",
       .commands = {bench_pipeline, tune}},
      {.names = "--dense-layers",
       .help = "the first layers keep every block" + default_text(std::to_string(Policy{}.dense_layers)),
       .commands = {bench_pipeline, bench_quality}},
  };
}

}  // namespace

std::vector<OptionSpec> attention() {
  using enum ValueKind;
  using enum Command;
  std::vector<OptionSpec> options = {{.names = "--attention", .help = "mode (default: sparse where it runs)"}};
  for (OptionSpec& option : selection()) options.push_back(std::move(option));
  options.push_back({.names = "--token-order", .help = "order (default hilbert)", .commands = {tune}});
  return options;
}

}  // namespace sparsereel::app::groups
