// Names of the choices, and the policy that a request's block selection makes.
#include "models/video/request.h"

#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "hilbert/read_text.h"

namespace sparsereel::models {

std::string_view name(GuidancePasses passes) {
  return passes == GuidancePasses::batched ? "batched" : "in-turn";
}

GuidancePasses parse_guidance_passes(const std::string& text) {
  for (const auto passes : {GuidancePasses::batched, GuidancePasses::in_turn})
    if (text == name(passes)) return passes;
  throw bad_option("guidance_passes", text + ": one of batched, in-turn is needed", "use one of these");
}

std::string_view name(VaeTiling tiling) {
  return tiling == VaeTiling::automatic ? "auto" : tiling == VaeTiling::on ? "on" : "off";
}

VaeTiling parse_vae_tiling(const std::string& text) {
  for (const auto tiling : {VaeTiling::automatic, VaeTiling::on, VaeTiling::off})
    if (text == name(tiling)) return tiling;
  throw bad_option("vae_tiling", text + ": one of auto, on, off is needed", "use one of these");
}

std::string_view name(ResizeRule rule) {
  return rule == ResizeRule::cover ? "cover" : "stretch";
}

ResizeRule parse_resize_rule(const std::string& text) {
  for (const auto rule : {ResizeRule::cover, ResizeRule::stretch})
    if (text == name(rule)) return rule;
  throw bad_option("resize", text + ": one of cover, stretch is needed", "use one of these");
}

attention::Policy make_policy(const Request& request) {
  using attention::Dropped, attention::Ranking, attention::Selection;
  attention::Policy policy;
  const bool bounded = request.error || request.block_error;
  const bool asks_for_means = bounded || request.ranking == Ranking::error;
  policy.dropped = request.dropped.value_or(asks_for_means ? Dropped::mean : policy.dropped);
  policy.ranking = request.ranking.value_or(bounded ? Ranking::error : attention::usual_ranking(policy.dropped));
  policy.cell = request.cell.value_or(policy.cell);
  policy.arithmetic = request.arithmetic.value_or(policy.arithmetic);
  attention::HeadPolicy& head = policy.defaults;
  if (policy.ranking == Ranking::mass && needs_errors(head.selection)) head.selection = Selection::topk;
  head.topk = attention::usual_topk(policy.dropped);
  for (const attention::SelectionField& field : attention::kSelections) {
    const auto& asked = request.*kHowMany[static_cast<size_t>(field.selection)];
    if (!asked) continue;
    head.selection = field.selection;
    head.*field.value = *asked;
  }
  head.similarity = request.similarity.value_or(head.similarity);
  head.pv_threshold = request.pv_threshold.value_or(head.pv_threshold);
  policy.dense_layers = request.dense_layers.value_or(policy.dense_layers);
  attention::validate(policy);
  return policy;
}

}  // namespace sparsereel::models
