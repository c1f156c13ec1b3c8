// From lists to combinations; see quality_grid.h.
#include "app/commands/bench/quality_grid.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/commands/bench/lists.h"
#include "hilbert/error.h"

namespace sparsereel::app::bench {
namespace {

using attention::Dropped;
using attention::Policy;
using attention::Ranking;
using attention::Selection;

/// The lists with every item checked; an empty one was not given.
struct Axes {
  std::vector<double> topk, cdf, error, similarity;
  std::vector<Dropped> dropped;
  std::vector<Ranking> rankings;
  std::vector<int64_t> cells, selection_rows, dense_steps;
  std::vector<hilbert::TokenOrder> orders;
};

template <typename T>
std::vector<T> given_or(const std::vector<T>& given, const T& otherwise) {
  return given.empty() ? std::vector<T>{otherwise} : given;
}

std::vector<double> fractions(const std::string& option, const std::optional<std::string>& text,
                              const std::string& of_what) {
  if (!text) return {};
  return parse_numbers(option, *text,
                       {.least = 0,
                        .most = 1,
                        .with_least = false,
                        .what = "fraction above 0 and at most 1",
                        .remedy = "give shares of " + of_what + ", with commas between them"});
}

/// Whole numbers of which only a few are possible.
std::vector<int64_t> one_of(const std::string& option, const std::optional<std::string>& text,
                            const std::vector<std::string>& choices) {
  std::vector<int64_t> values;
  if (!text) return values;
  for (const std::string& word : parse_words(option, *text, choices)) values.push_back(std::stoll(word));
  return values;
}

Axes parse_axes(const QualityLists& lists) {
  Axes axes;
  axes.topk = fractions("--topk", lists.topk, "the key blocks");
  axes.cdf = fractions("--cdf", lists.cdf, "what blocks are ranked by");
  if (lists.error)
    axes.error = parse_numbers("--error", *lists.error,
                               {.least = 0,
                                .most = 1e6,
                                .with_least = false,
                                .what = "error above 0",
                                .remedy = "give relative errors, e.g. --error 0.02,0.05"});
  if (lists.similarity)
    axes.similarity = parse_numbers("--similarity", *lists.similarity,
                                    {.least = -1,
                                     .most = 1,
                                     .with_least = true,
                                     .what = "similarity from -1 to 1",
                                     .remedy = "give cosines, e.g. --similarity=-0.1,0.5"});
  if (lists.dropped)
    for (const std::string& word : parse_words("--dropped", *lists.dropped, {"none", "mean"}))
      axes.dropped.push_back(word == "mean" ? Dropped::mean : Dropped::none);
  if (lists.select)
    for (const std::string& word : parse_words("--select", *lists.select, {"mass", "error"}))
      axes.rankings.push_back(word == "error" ? Ranking::error : Ranking::mass);
  axes.cells = one_of("--cell", lists.cell, {"16", "32", "64"});
  axes.selection_rows = one_of("--selection-rows", lists.selection_rows, {"64", "128", "192"});
  if (lists.dense_steps) axes.dense_steps = parse_wholes("--dense-steps", *lists.dense_steps, 0, 1000);
  if (lists.token_order) axes.orders = parse_orders(*lists.token_order);
  return axes;
}

/// What stands for dropped blocks, and what blocks are ranked by.
struct Method {
  Dropped dropped;
  Ranking ranking;
};

class Expansion {
 public:
  Expansion(Axes axes, const Policy& base) : axes_(std::move(axes)), base_(base) {}

  /// Every policy that selects so, methods outermost, values innermost.
  void add(Selection selection, double attention::HeadPolicy::*value, const std::vector<double>& values);
  std::vector<Policy> policies;
  std::vector<std::string> left_out;

 private:
  using Given = std::pair<std::optional<Dropped>, std::optional<Ranking>>;

  std::vector<Method> methods(Selection selection);
  Method complete(const Given& given, Selection selection) const;
  bool contradicts(const Method& method, Selection selection);
  void leave_out(const std::string& what);

  const Axes axes_;
  const Policy& base_;
};

void Expansion::leave_out(const std::string& what) {
  if (std::find(left_out.begin(), left_out.end(), what) == left_out.end()) left_out.push_back(what);
}

Method Expansion::complete(const Given& given, Selection selection) const {
  const auto& [dropped, ranking] = given;
  Method method{base_.dropped, base_.ranking};
  if (ranking)
    method.ranking = *ranking;
  else if (selection == Selection::error)
    method.ranking = Ranking::error;
  else if (dropped == Dropped::none)
    method.ranking = Ranking::mass;
  method.dropped = dropped.value_or(method.ranking == Ranking::error ? Dropped::mean : base_.dropped);
  return method;
}

bool Expansion::contradicts(const Method& method, Selection selection) {
  if (selection == Selection::error && method.ranking == Ranking::mass)
    leave_out("--error with --select mass: the bound is one of predicted errors");
  else if (method.ranking == Ranking::error && method.dropped == Dropped::none)
    leave_out(std::string(selection == Selection::error ? "--error" : "--select error") +
              " with --dropped none: it is the error of a mean, which dropped blocks then have not");
  else
    return false;
  return true;
}

std::vector<Method> Expansion::methods(Selection selection) {
  std::vector<std::optional<Dropped>> dropped(axes_.dropped.begin(), axes_.dropped.end());
  std::vector<std::optional<Ranking>> rankings(axes_.rankings.begin(), axes_.rankings.end());
  if (dropped.empty()) dropped.emplace_back();
  if (rankings.empty()) rankings.emplace_back();
  std::vector<Method> result;
  for (const auto& each : dropped) {
    for (const auto& ranking : rankings) {
      const Method method = complete({each, ranking}, selection);
      if (!contradicts(method, selection)) result.push_back(method);
    }
  }
  return result;
}

void Expansion::add(Selection selection, double attention::HeadPolicy::*value, const std::vector<double>& values) {
  if (values.empty()) return;
  for (const Method& method : methods(selection)) {
    const bool means = method.dropped == Dropped::mean;
    for (const int64_t cell : means ? given_or(axes_.cells, base_.cell) : std::vector{base_.cell}) {
      for (const int64_t rows : given_or(axes_.selection_rows, base_.selection_rows)) {
        for (const double similarity : given_or(axes_.similarity, base_.defaults.similarity)) {
          for (const double each : values) {
            Policy& policy = policies.emplace_back(base_);
            policy.dropped = method.dropped;
            policy.ranking = method.ranking;
            policy.cell = cell;
            policy.selection_rows = rows;
            policy.defaults.similarity = similarity;
            policy.defaults.selection = selection;
            policy.defaults.*value = each;
          }
        }
      }
    }
  }
}

/// The values of what the base selects by, where no list says how many blocks are kept.
void select_as_base(Axes& axes, const attention::HeadPolicy& base) {
  if (base.selection == Selection::topk) axes.topk = {base.topk};
  if (base.selection == Selection::cdf) axes.cdf = {base.cdf};
  if (base.selection == Selection::error) axes.error = {base.error};
}

/// Options that change nothing in any combination.
void refuse_idle_lists(const QualityLists& lists, const std::vector<Policy>& policies) {
  const bool selects = lists.topk || lists.cdf || lists.error || !lists.profile;
  const bool means = std::any_of(policies.begin(), policies.end(),
                                 [](const Policy& policy) { return policy.dropped == Dropped::mean; });
  const auto refuse = [](const char* option, const char* beside) {
    throw bad_input(std::string(option) + " has no effect " + beside, "leave it out");
  };
  for (const auto& [option, list] : {std::pair{"--dropped", &lists.dropped},
                                     {"--select", &lists.select},
                                     {"--selection-rows", &lists.selection_rows},
                                     {"--similarity", &lists.similarity}})
    if (*list && !selects) refuse(option, "beside --profile alone, which has a selection of its own");
  if (lists.cell && !means) refuse("--cell", "where no mean stands for a dropped block");
}

}  // namespace

std::optional<double> Combination::value_of(Selection selection) const {
  const attention::HeadPolicy& head = policy.defaults;
  if (!profile.empty() || head.selection != selection) return {};
  return selection == Selection::topk ? head.topk : selection == Selection::cdf ? head.cdf : head.error;
}

std::string Combination::name() const {
  std::string text = profile.empty() ? "" : std::filesystem::path(profile).stem().string();
  for (const auto& [word, selection] :
       {std::pair{"topk ", Selection::topk}, {"cdf ", Selection::cdf}, {"error ", Selection::error}})
    if (const auto value = value_of(selection)) text = word + nlohmann::json(*value).dump();
  text += ", " + std::string(attention::name(policy.dropped)) + ", " + std::string(attention::name(policy.ranking));
  if (has_means()) text += ", cell " + std::to_string(policy.cell);
  if (profile.empty() && policy.defaults.similarity >= 0)
    text += ", similarity " + nlohmann::json(policy.defaults.similarity).dump();
  if (policy.dense_steps > 0) text += ", " + std::to_string(policy.dense_steps) + " dense steps";
  return text + ", " + std::string(hilbert::name(order));
}

QualityGrid expand(const QualityLists& lists, const Policy& base, hilbert::TokenOrder base_order,
                   const std::vector<ProfilePolicy>& profiles) {
  Axes axes = parse_axes(lists);
  if (!lists.topk && !lists.cdf && !lists.error && profiles.empty()) select_as_base(axes, base.defaults);
  Expansion expansion(axes, base);
  expansion.add(Selection::topk, &attention::HeadPolicy::topk, axes.topk);
  expansion.add(Selection::cdf, &attention::HeadPolicy::cdf, axes.cdf);
  expansion.add(Selection::error, &attention::HeadPolicy::error, axes.error);
  if (expansion.policies.empty() && profiles.empty())
    throw bad_input("nothing is left to compare: " + expansion.left_out.front(),
                    "let means stand for dropped blocks (--dropped mean), or rank blocks by mass (--select mass)");
  refuse_idle_lists(lists, expansion.policies);

  QualityGrid grid{.combinations = {}, .left_out = expansion.left_out};
  for (const hilbert::TokenOrder order : given_or(axes.orders, base_order)) {
    const auto add = [&](const Policy& policy, const std::string& profile) {
      for (const int64_t steps : given_or(axes.dense_steps, policy.dense_steps)) {
        Combination& combination = grid.combinations.emplace_back(Combination{policy, order, profile});
        combination.policy.dense_steps = steps;
        attention::validate(combination.policy);
      }
    };
    for (const Policy& policy : expansion.policies) add(policy, {});
    for (const ProfilePolicy& profile : profiles) add(profile.policy, profile.file);
  }
  return grid;
}

}  // namespace sparsereel::app::bench
