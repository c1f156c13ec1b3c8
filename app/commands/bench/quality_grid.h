// What `bench quality` compares with full attention and no cache: lists of options, expanded to all their combinations.
// No torch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/commands/bench/selection_lists.h"
#include "app/commands/bench/selections.h"
#include "attention/policies/policy.h"
#include "hilbert/token_order.h"
#include "models/video/cache_rule.h"

namespace sparsereel::app::bench {

/// Comma lists as the command line gives them; unset: what generate would do.
struct QualityLists {
  SelectionLists selection = {};
  std::optional<std::string> profile = {};  // in place of a selection, or beside its rows
  std::optional<std::string> dense_steps = {}, token_order = {};
  std::string modes = "sparse";
  std::optional<std::string> cache = {};
};

/// One way to leave blocks or steps out.
struct Combination {
  attention::Policy policy{};
  hilbert::TokenOrder order = hilbert::TokenOrder::hilbert;
  std::string profile{};  // the file that the policy comes from; empty: none
  bool full = false;      // attention, whatever the policy says; without a cache it is for the weights alone
  models::CacheRule cache{};

  bool has_means() const { return !full && policy.dropped == attention::Dropped::mean; }
  SelectionCells selection() const;
  /// "topk 0.3, mean, error, cell 16, hilbert": for errors and pictures.
  std::string name() const;
};

/// A profile's policy, and the file that it stands in.
struct ProfilePolicy {
  std::string file;
  attention::Policy policy{};
};

struct QualityGrid {
  std::vector<Combination> combinations;
  std::vector<std::string> left_out;       // what of the lists contradicts each other, a sentence each
  std::vector<std::string> warnings = {};  // of lists that have no effect
};

/// Why options of the selection have no effect where all combinations are profiles.
constexpr const char* kBesideProfilesAlone = "beside --profile alone, which has a selection of its own";

/// Full attention, the policies of combine() and those of the profiles, each with every cache; the policies in each
/// token order and with each number of dense steps. A profile has a selection of its own: it meets none of the other
/// lists. Full attention without a cache is what all are compared with, and no row, unless their weights are reduced:
/// then it is the first one, whatever the modes, and tells what the weights alone cost. Throws Error naming the option
/// that is out of range, and where nothing is left.
QualityGrid expand(const QualityLists& lists, const attention::Policy& base, hilbert::TokenOrder base_order,
                   const std::vector<ProfilePolicy>& profiles, bool weights_are_reduced = false);

}  // namespace sparsereel::app::bench
