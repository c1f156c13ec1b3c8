// Comma lists of --topk, --dropped and the like, expanded to the policies of a benchmark's sparse rows. No torch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attention/policies/policy.h"

namespace sparsereel::app {
class OptionGroup;
}

namespace sparsereel::app::bench {

/// Comma lists as the command line gives them; unset: what the policy has.
struct SelectionLists {
  std::optional<std::string> topk = {}, cdf = {}, error = {};  // they take the place of each other
  std::optional<std::string> dropped = {}, select = {}, cell = {}, selection_rows = {}, similarity = {};
  bool usual_topk = false;  // nothing says a topk, no config either: each kind of dropped block has its usual one

  /// The options that were given, as "--topk".
  std::vector<std::string> given() const;
  bool say_how_many_blocks() const { return topk || cdf || error; }
};

/// --topk, --cdf, --error, --dropped, --select and --cell; `topk_default` is what its help says of it.
void add_selection_lists(const OptionGroup& group, SelectionLists& lists, const std::string& topk_default);

struct Selections {
  std::vector<attention::Policy> policies;
  std::vector<std::string> left_out;  // what of the lists contradicts each other, a sentence each
  std::vector<std::string> warnings;  // of lists that have no effect
};

/// `base` with each item of a list and each of the others, methods outermost, how many blocks innermost, but for:
///   topk, cdf and error, each with the rows of its own; without any of them it is as `base` says, or what is usual;
///   cells, which are nothing to blocks that are dropped without means;
///   what contradicts itself, which is left out: blocks ranked by the error of a mean that they have not.
/// Where --dropped or --select is not given it is `base`'s, or what the other one needs, as with models::make_policy().
/// Throws Error naming the item that is out of range, and the option that would have no row.
Selections combine(const SelectionLists& lists, const attention::Policy& base);

}  // namespace sparsereel::app::bench
