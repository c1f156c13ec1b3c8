// From lists to policies.
#include "app/commands/bench/selection_lists.h"

#include <algorithm>

#include "app/commands/bench/lists.h"
#include "app/options/option_group.h"
#include "app/options/settings.h"
#include "hilbert/error.h"

namespace sparsereel::app::bench {
namespace {

using attention::Dropped;
using attention::HeadPolicy;
using attention::Policy;
using attention::Ranking;
using attention::Selection;

/// The lists with every item checked; an empty one was not given.
struct Axes {
  std::vector<double> topk, cdf, error, similarity;
  std::vector<Dropped> dropped;
  std::vector<Ranking> rankings;
  std::vector<int64_t> cells, selection_rows;
};

template <typename T>
std::vector<T> given_or(const std::vector<T>& given, const T& otherwise) {
  return given.empty() ? std::vector<T>{otherwise} : given;
}

std::vector<double> numbers(const std::string& option, const std::optional<std::string>& text,
                            const NumberRange& range) {
  return text ? parse_numbers(option, *text, range) : std::vector<double>{};
}

NumberRange fraction_of(const std::string& what) {
  return {.least = 0,
          .most = 1,
          .with_least = false,
          .what = "fraction above 0 and at most 1",
          .remedy = "give shares of " + what + ", with commas between them"};
}

/// Each word as the value that it stands for.
template <typename T>
std::vector<T> words(const std::string& option, const std::optional<std::string>& text,
                     const std::vector<std::string>& choices, const std::function<T(const std::string&)>& value_of) {
  std::vector<T> values;
  if (!text) return values;
  for (const std::string& word : parse_words(option, *text, choices)) values.push_back(value_of(word));
  return values;
}

Axes parse_axes(const SelectionLists& lists) {
  const auto whole = [](const std::string& word) { return std::stoll(word); };
  const auto choices = [](const char* key) { return find_option(key)->choices; };
  return {.topk = numbers("--topk", lists.topk, fraction_of("the key blocks")),
          .cdf = numbers("--cdf", lists.cdf, fraction_of("what blocks are ranked by")),
          .error = numbers("--error", lists.error,
                           {.least = 0,
                            .most = 1e6,
                            .with_least = false,
                            .what = "error above 0",
                            .remedy = "give relative errors, e.g. --error 0.02,0.05"}),
          .similarity = numbers("--similarity", lists.similarity,
                                {.least = -1,
                                 .most = 1,
                                 .with_least = true,
                                 .what = "similarity from -1 to 1",
                                 .remedy = "give cosines, e.g. --similarity=-0.1,0.5"}),
          .dropped = words<Dropped>("--dropped", lists.dropped, choices("dropped"), attention::parse_dropped),
          .rankings = words<Ranking>("--select", lists.select, choices("select"), attention::parse_ranking),
          .cells = words<int64_t>("--cell", lists.cell, choices("cell"), whole),
          .selection_rows = words<int64_t>("--selection-rows", lists.selection_rows, {"64", "128", "192"}, whole)};
}

/// What stands for dropped blocks, and what blocks are ranked by.
struct Method {
  Dropped dropped;
  Ranking ranking;
};

class Expansion {
 public:
  Expansion(Axes axes, const Policy& base) : axes_(std::move(axes)), base_(base) {}

  /// Every policy that selects so. Throws where contradictions leave none.
  void add(Selection selection, double HeadPolicy::*value, const std::vector<double>& values);
  Selections result;

 private:
  std::vector<Method> methods(Selection selection);
  Method complete(std::optional<Dropped> dropped, std::optional<Ranking> ranking, Selection selection) const;
  std::vector<Policy> settings(const Method& method) const;

  const Axes axes_;
  const Policy& base_;
};

Method Expansion::complete(std::optional<Dropped> dropped, std::optional<Ranking> ranking, Selection selection) const {
  if (!ranking && selection == Selection::error) ranking = Ranking::error;
  if (!dropped) dropped = ranking == Ranking::error ? Dropped::mean : base_.dropped;
  if (!ranking) ranking = *dropped == base_.dropped ? base_.ranking : attention::usual_ranking(*dropped);
  return {*dropped, *ranking};
}

/// Empty where the method can be.
std::string contradiction(const Method& method, Selection selection) {
  const std::string excluded = " exclude each other";
  if (selection == Selection::error && method.ranking == Ranking::mass) return "--select mass and --error" + excluded;
  if (method.dropped == Dropped::mean || method.ranking == Ranking::mass) return {};
  return std::string("--dropped none and ") + (selection == Selection::error ? "--error" : "--select error") + excluded;
}

std::vector<Method> Expansion::methods(Selection selection) {
  std::vector<std::optional<Dropped>> dropped(axes_.dropped.begin(), axes_.dropped.end());
  std::vector<std::optional<Ranking>> rankings(axes_.rankings.begin(), axes_.rankings.end());
  if (dropped.empty()) dropped.emplace_back();
  if (rankings.empty()) rankings.emplace_back();
  std::vector<Method> possible;
  std::string last;
  for (const auto& each : dropped) {
    for (const auto& ranking : rankings) {
      const Method method = complete(each, ranking, selection);
      const std::string why_not = contradiction(method, selection);
      if (why_not.empty()) {
        possible.push_back(method);
        continue;
      }
      last = why_not;
      std::vector<std::string>& left_out = result.left_out;
      if (std::find(left_out.begin(), left_out.end(), why_not) == left_out.end()) left_out.push_back(why_not);
    }
  }
  if (possible.empty()) throw bad_input(last, "give one of them");
  return possible;
}

/// The method with each cell, number of rows and similarity.
std::vector<Policy> Expansion::settings(const Method& method) const {
  std::vector<Policy> policies;
  const bool means = method.dropped == Dropped::mean;
  for (const int64_t cell : means ? given_or(axes_.cells, base_.cell) : std::vector{base_.cell}) {
    for (const int64_t rows : given_or(axes_.selection_rows, base_.selection_rows)) {
      for (const double similarity : given_or(axes_.similarity, base_.defaults.similarity)) {
        Policy& policy = policies.emplace_back(base_);
        policy.dropped = method.dropped;
        policy.ranking = method.ranking;
        policy.cell = cell;
        policy.selection_rows = rows;
        policy.defaults.similarity = similarity;
      }
    }
  }
  return policies;
}

void Expansion::add(Selection selection, double HeadPolicy::*value, const std::vector<double>& values) {
  if (values.empty()) return;
  for (const Method& method : methods(selection)) {
    for (const Policy& setting : settings(method)) {
      for (const double each : values) {
        Policy& policy = result.policies.emplace_back(setting);
        policy.defaults.selection = selection;
        policy.defaults.*value = each;
        attention::validate(policy);
      }
    }
  }
}

}  // namespace

std::vector<std::string> SelectionLists::given() const {
  std::vector<std::string> names;
  const std::pair<const char*, const std::optional<std::string>&> all[] = {{"--topk", topk},
                                                                           {"--cdf", cdf},
                                                                           {"--error", error},
                                                                           {"--dropped", dropped},
                                                                           {"--select", select},
                                                                           {"--cell", cell},
                                                                           {"--selection-rows", selection_rows},
                                                                           {"--similarity", similarity}};
  for (const auto& [name, list] : all)
    if (list) names.emplace_back(name);
  return names;
}

void add_selection_lists(const OptionGroup& group, SelectionLists& lists, const std::string& topk_default) {
  const auto list_of = [](const char* key) { return "comma list: " + find_option(key)->help; };
  group.add("--topk", lists.topk, "comma list: fractions of the key blocks computed (default " + topk_default + ")",
            "X,X");
  group.add("--cdf", lists.cdf, list_of("cdf"), "X,X");
  group.add("--error", lists.error, list_of("error"), "X,X");
  group.add("--dropped", lists.dropped, list_of("dropped"), "mean,none");
  group.add("--select", lists.select, list_of("select"), "error,mass");
  group.add("--cell", lists.cell, list_of("cell"), "16,32,64");
}

Selections combine(const SelectionLists& lists, const Policy& base) {
  Axes axes = parse_axes(lists);
  if (!lists.say_how_many_blocks()) {
    if (base.defaults.selection == Selection::topk) axes.topk = {base.defaults.topk};
    if (base.defaults.selection == Selection::cdf) axes.cdf = {base.defaults.cdf};
    if (base.defaults.selection == Selection::error) axes.error = {base.defaults.error};
  }
  Expansion expansion(axes, base);
  expansion.add(Selection::topk, &HeadPolicy::topk, axes.topk);
  expansion.add(Selection::cdf, &HeadPolicy::cdf, axes.cdf);
  expansion.add(Selection::error, &HeadPolicy::error, axes.error);
  std::vector<Policy>& policies = expansion.result.policies;
  if (lists.usual_topk && !lists.say_how_many_blocks())
    for (Policy& policy : policies) policy.defaults.topk = attention::usual_topk(policy.dropped);
  const auto has_means = [](const Policy& policy) { return policy.dropped == Dropped::mean; };
  if (lists.cell && std::none_of(policies.begin(), policies.end(), has_means))
    expansion.result.warnings.push_back("--cell " + *lists.cell + " has no effect without means for dropped blocks");
  return expansion.result;
}

}  // namespace sparsereel::app::bench
