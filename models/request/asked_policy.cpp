// Builds a policy: first the selection of blocks and the defaults that depend on it, then the fields whose row in
// fields.cpp gives a choose() function.
#include "models/request/asked_policy.h"

#include "models/request/fields.h"

namespace sparsereel::models {
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
  attention::HeadPolicy& head = policy.defaults;
  if (policy.ranking == Ranking::mass && needs_errors(head.selection)) head.selection = Selection::topk;
  head.topk = attention::usual_topk(policy.dropped);
  for (const attention::SelectionField& field : attention::kSelections) {
    const auto& asked = request.*kSelectionFields[static_cast<size_t>(field.selection)];
    if (!asked) continue;
    head.selection = field.selection;
    head.*field.value = *asked;
  }
  for (const Field& field : fields())
    if (field.choose) field.choose(request, policy);
  attention::validate(policy);
  return policy;
}

}  // namespace sparsereel::models
