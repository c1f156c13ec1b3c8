// Builds the candidates from lists of values.
#include "app/lab/tune/candidate.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "attention/call_policy.h"
#include "hilbert/exact_text.h"
#include "models/request/asked_policy.h"
#include "models/request/request.h"

namespace sparsereel::app::tuning {
namespace {

using attention::Mode;
using models::CacheKind;
using models::CacheRule;
using models::FirstSteps;

constexpr double kTopks[] = {0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7};
constexpr double kBlockErrors[] = {0.0003, 0.0005, 0.0007, 0.001, 0.0014, 0.002,
                                   0.003,  0.0045, 0.008,  0.015, 0.03};  // long videos need the small values
constexpr double kThresholds[] = {0.07, 0.085, 0.1, 0.115, 0.13, 0.15, 0.17, 0.2, 0.225, 0.25, 0.3, 0.35, 0.4, 0.5};
constexpr double kFirstPercents[] = {0, 10, 20, 30};

bool is_given(const Settings& settings, const char* key) {
  const Setting* setting = settings.find(key);
  return setting != nullptr && setting->source != Source::matched_config;
}

bool ranks_by_error(const Settings& settings) {
  models::Request request;
  if (const auto dropped = settings.text("dropped")) request.dropped = attention::parse_dropped(*dropped);
  if (const auto ranking = settings.text("select")) request.ranking = attention::parse_ranking(*ranking);
  return models::make_policy(request).ranking == attention::Ranking::error;
}

std::vector<FirstSteps> first_shares() {
  std::vector<FirstSteps> shares;
  for (const double percent : kFirstPercents)
    shares.push_back(percent > 0 ? FirstSteps{.percent = percent} : FirstSteps{});
  return shares;
}

std::vector<CacheRule> usual_caches() {
  std::vector<CacheRule> caches = {{}};
  for (const double threshold : kThresholds)
    for (const FirstSteps& first : first_shares())
      caches.push_back({.kind = CacheKind::forecast, .threshold = threshold, .first = first});
  return caches;
}

/// Returns a key. Two candidates with equal keys compute the same in a run of `steps` steps.
auto key_of(const Candidate& candidate, int64_t steps) {
  const CacheRule& cache = candidate.cache;
  return std::tuple(candidate.mode, candidate.topk.value_or(0), candidate.block_error.value_or(0),
                    candidate.dense.of(steps), cache.kind, cache.threshold, cache.steps, cache.first.of(steps),
                    cache.last.of(steps), candidate.weights, candidate.exact.of(steps));
}

}  // namespace

std::vector<std::optional<double>> usual_topks() {
  return {std::begin(kTopks), std::end(kTopks)};
}

std::map<std::string, std::string> Candidate::options() const {
  std::map<std::string, std::string> options = {
      {"attention", std::string(attention::name(mode))},
      {"cache", cache.on() ? models::name(cache) : "0"},
      {"weights", weights},
  };
  if (exact != FirstSteps{}) options["exact_steps"] = models::name(exact);
  if (!sparse()) return options;
  if (topk) options["topk"] = exact_text(*topk);
  if (block_error) options["block_error"] = exact_text(*block_error);
  options["dense_steps"] = models::name(dense);
  return options;
}

std::string name(const Candidate& candidate) {
  std::string text(attention::name(candidate.mode));
  if (candidate.sparse() && candidate.topk) text = "topk " + exact_text(*candidate.topk);
  if (candidate.sparse() && candidate.block_error) text = "block error " + exact_text(*candidate.block_error);
  if (candidate.sparse() && candidate.dense != FirstSteps{}) text += ", " + models::name(candidate.dense) + " dense";
  if (candidate.exact != FirstSteps{}) text += ", " + models::name(candidate.exact) + " exact";
  if (candidate.cache.on()) text += ", " + models::name(candidate.cache);
  return text + (candidate.weights == "auto" ? "" : ", weights " + candidate.weights);
}

Axes axes_of(const Settings& settings) {
  Axes axes{.topks = usual_topks(),
            .block_errors = {std::begin(kBlockErrors), std::end(kBlockErrors)},
            .dense = first_shares(),
            .caches = usual_caches(),
            .weights = {"auto", "fp8"}};
  if (std::ranges::any_of(models::kSelectionNames, [&](const char* key) { return is_given(settings, key); })) {
    axes.topks = {settings.number("topk")};  // if topk is unset, other settings choose the blocks
    axes.block_errors.clear();
  }
  if (is_given(settings, "block_error")) {
    axes.topks.clear();
    axes.block_errors = {*settings.number("block_error")};
  }
  if (!ranks_by_error(settings)) axes.block_errors.clear();
  if (is_given(settings, "dense_steps"))
    axes.dense = {models::parse_first_steps(*settings.text("dense_steps"), "dense_steps")};
  if (is_given(settings, "cache")) axes.caches = {models::parse_cache_rule(*settings.text("cache"))};
  if (is_given(settings, "weights")) axes.weights = {*settings.text("weights")};
  return axes;
}

std::vector<Candidate> candidates_of(const Axes& axes, int64_t steps) {
  std::vector<Candidate> all;
  std::set<decltype(key_of({}, 0))> seen;
  const auto add = [&](const Candidate& candidate) {
    if (seen.insert(key_of(candidate, steps)).second) all.push_back(candidate);
  };
  for (const std::string& weights : axes.weights) {
    for (const CacheRule& cache : axes.caches) {
      if (cache.on() || weights != "auto") add({.mode = Mode::full, .cache = cache, .weights = weights});
      add({.mode = Mode::quantized, .cache = cache, .weights = weights});
      for (const FirstSteps& dense : axes.dense) {
        for (const std::optional<double>& topk : axes.topks)
          add({.topk = topk, .dense = dense, .cache = cache, .weights = weights});
        for (const double bound : axes.block_errors)
          add({.block_error = bound, .dense = dense, .cache = cache, .weights = weights});
      }
    }
  }
  return all;
}

Candidate candidate_of(const Settings& settings) {
  Candidate candidate{.mode = attention::parse_mode(settings.text("attention", "sparse")),
                      .cache = models::parse_cache_rule(settings.text("cache", "0")),
                      .weights = settings.text("weights", "auto"),
                      .exact = models::parse_first_steps(settings.text("exact_steps", "0"), "exact_steps")};
  if (!candidate.sparse()) return candidate;
  candidate.topk = settings.number("topk");
  candidate.block_error = settings.number("block_error");
  candidate.dense = models::parse_first_steps(settings.text("dense_steps", "0"), "dense_steps");
  return candidate;
}

}  // namespace sparsereel::app::tuning
