// From lists to combinations.
#include "app/commands/bench/quality_grid.h"

#include "app/counted.h"

#include <filesystem>

#include "app/commands/bench/lists.h"
#include "app/options/nearest.h"
#include "hilbert/error.h"

namespace sparsereel::app::bench {
namespace {

using attention::Policy;

/// None where profiles stand in their place.
Selections untuned(const SelectionLists& lists, const Policy& base, const std::vector<ProfilePolicy>& profiles) {
  if (lists.say_how_many_blocks() || profiles.empty()) return combine(lists, base);
  Selections none;
  for (const std::string& option : lists.given())
    none.warnings.push_back(option + " has no effect " + kBesideProfilesAlone);
  return none;
}

std::string words_of(const SelectionCells& cells) {
  for (const auto& [word, value] :
       {std::pair{"topk ", cells.topk}, std::pair{"cdf ", cells.cdf}, std::pair{"error ", cells.error_bound}})
    if (value) return word + chosen_text(*value);
  return {};
}

QualityGrid expand_sparse(const QualityLists& lists, const Policy& base, hilbert::TokenOrder base_order,
                          const std::vector<ProfilePolicy>& profiles) {
  std::vector<int64_t> dense_steps;
  if (lists.dense_steps) dense_steps = parse_wholes("--dense-steps", *lists.dense_steps, 0, 1000);
  std::vector<hilbert::TokenOrder> orders = {base_order};
  if (lists.token_order) orders = parse_orders(*lists.token_order);
  const Selections selections = untuned(lists.selection, base, profiles);
  QualityGrid grid{.combinations = {}, .left_out = selections.left_out, .warnings = selections.warnings};
  for (const hilbert::TokenOrder order : orders) {
    const auto add = [&](const Policy& policy, const std::string& profile) {
      for (const int64_t steps : lists.dense_steps ? dense_steps : std::vector{policy.dense_steps}) {
        Combination& combination = grid.combinations.emplace_back(Combination{policy, order, profile});
        combination.policy.dense_steps = steps;
        attention::validate(combination.policy);
      }
    };
    for (const Policy& policy : selections.policies) add(policy, {});
    for (const ProfilePolicy& profile : profiles) add(profile.policy, profile.file);
  }
  return grid;
}

}  // namespace

SelectionCells Combination::selection() const {
  if (full) return {};
  return profile.empty() ? cells_of(policy) : cells_of_profile(policy);
}

std::string Combination::name() const {
  const std::string reuse = cache.on() ? ", cache " + models::name(cache) : "";
  if (full) return cache.on() ? "full" + reuse : "full, weights reduced";
  const SelectionCells cells = selection();
  std::string text = profile.empty() ? words_of(cells) : std::filesystem::path(profile).stem().string();
  text += ", " + cells.dropped + ", " + cells.select;
  if (cells.cell) text += ", cell " + std::to_string(*cells.cell);
  if (profile.empty() && policy.defaults.similarity >= 0)
    text += ", similarity " + chosen_text(policy.defaults.similarity);
  if (policy.dense_steps > 0) text += ", " + counted(policy.dense_steps, "dense step");
  return text + ", " + std::string(hilbert::name(order)) + reuse;
}

QualityGrid expand(const QualityLists& lists, const Policy& base, hilbert::TokenOrder base_order,
                   const std::vector<ProfilePolicy>& profiles, bool weights_are_reduced) {
  const std::vector<std::string> modes = parse_words("--modes", lists.modes, {"full", "sparse"});
  const auto caches = parse_list<models::CacheRule>(lists.cache.value_or("0"), models::parse_cache_rule);
  QualityGrid grid;
  if (is_choice("sparse", modes)) {
    grid = expand_sparse(lists, base, base_order, profiles);
  } else {
    for (const std::string& option : lists.selection.given())
      grid.warnings.push_back(option + " has no effect with --modes " + lists.modes);
  }
  const Combination full = {.order = base_order, .full = true};
  std::vector<Combination> methods = std::move(grid.combinations);
  if (is_choice("full", modes)) methods.insert(methods.begin(), full);
  grid.combinations.clear();
  if (weights_are_reduced) grid.combinations.push_back(full);
  for (Combination& method : methods) {
    for (const models::CacheRule& cache : caches) {
      method.cache = cache;
      if (!method.full || cache.on()) grid.combinations.push_back(method);
    }
  }
  if (grid.combinations.empty())
    throw bad_input("--modes " + lists.modes + ": full attention without a cache is what all are compared with",
                    "give a cache, as with --cache 0.1,0.2, or other weights, as with --weights fp8");
  return grid;
}

}  // namespace sparsereel::app::bench
