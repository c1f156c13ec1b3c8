// Names of the choices, and the policy that a request's block selection makes.
#include "models/request/request.h"

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

namespace {

bool bounds_errors(const Request& request) {
  return request.error || request.block_error;
}

}  // namespace

attention::Dropped dropped_of(const Request& request) {
  const bool asks_for_means = bounds_errors(request) || request.ranking == attention::Ranking::error;
  return request.dropped.value_or(asks_for_means ? attention::Dropped::mean : attention::Policy{}.dropped);
}

attention::Policy make_policy(const Request& request) {
  using attention::Ranking, attention::Selection;
  attention::Policy policy;
  const bool bounded = bounds_errors(request);
  policy.dropped = dropped_of(request);
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
