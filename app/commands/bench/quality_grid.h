// What `bench quality` compares with full attention: lists of options, expanded to all their combinations. No torch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attention/policy.h"
#include "hilbert/token_order.h"

namespace sparsereel::app::bench {

/// Comma lists as the command line gives them; unset: what generate would do.
struct QualityLists {
  std::optional<std::string> topk = {}, cdf = {}, error = {}, profile = {};  // alternatives of each other
  std::optional<std::string> dropped = {}, select = {}, cell = {}, selection_rows = {}, similarity = {};
  std::optional<std::string> dense_steps = {}, token_order = {};
};

/// One way to leave blocks out.
struct Combination {
  attention::Policy policy;
  hilbert::TokenOrder order = hilbert::TokenOrder::hilbert;
  std::string profile;  // the file that the policy comes from; empty: none

  bool has_means() const { return policy.dropped == attention::Dropped::mean; }
  /// The value of topk, cdf or error, where blocks are selected so and no profile decides.
  std::optional<double> value_of(attention::Selection selection) const;
  /// "topk 0.3, mean, error, cell 16, hilbert": for errors and pictures.
  std::string name() const;
};

/// A profile's policy, and the file that it stands in.
struct ProfilePolicy {
  std::string file;
  attention::Policy policy;
};

struct QualityGrid {
  std::vector<Combination> combinations;
  std::vector<std::string> left_out;  // what of the lists contradicts each other, a sentence each
};

/// Of every list each item with each of the others, but for:
///   topk, cdf, error and profiles, which take the place of each other;
///   a profile, which has a selection of its own: it meets token orders and dense steps alone;
///   cells, which are nothing to blocks that are dropped without means;
///   what contradicts itself, which is left out: blocks ranked by the error of a mean that they have not.
/// Where --dropped or --select is not given it is `base`'s, or what the other one needs. Throws Error naming the option
/// that is out of range or without effect, and where nothing is left.
QualityGrid expand(const QualityLists& lists, const attention::Policy& base, hilbert::TokenOrder base_order,
                   const std::vector<ProfilePolicy>& profiles);

}  // namespace sparsereel::app::bench
