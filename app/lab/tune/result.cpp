// Writes profile, report and table.
#include "app/lab/tune/result.h"

#include <algorithm>
#include <cmath>

#include "app/counted.h"
#include "app/lab/measure/table.h"
#include "hilbert/exact_text.h"

namespace sparsereel::app::tuning {
namespace {

attention::ProfileSetting made_with(const models::Plan& untuned) {
  return {.width = untuned.width,
          .height = untuned.height,
          .frames = untuned.num_frames,
          .steps = untuned.num_inference_steps,
          .token_order = std::string(hilbert::name(untuned.token_order)),
          .device = untuned.device,
          .dtype = untuned.dtype};
}

/// Returns bounds within which the errors of all heads lie. They are wider than planned if some heads use the untuned
/// policy because it does less work, although its error is larger.
attention::Bounds kept_bounds(const TunePlan& plan, const attention::Profile& profile) {
  double worst = 0;
  for (const auto& layer : profile.heads)
    for (const attention::ProfileHead& head : layer) worst = std::max(worst, head.error);
  if (worst <= plan.bounds.l2) return plan.bounds;
  const double rounded_up = std::ceil(worst * 1e4) / 1e4;
  return {.l1 = rounded_up, .l2 = rounded_up};
}

void add_heads(const TunePlan& plan, const models::Plan& untuned, const Found& found, attention::Profile& profile) {
  const attention::Policy& policy = untuned.attention_policy;
  profile.sparsity = 1 - found.heads->work;
  profile.untuned_sparsity = 1 - found.heads->untuned_work;
  profile.dropped = policy.dropped;
  profile.ranking = policy.ranking;
  profile.cell = policy.cell;
  profile.selection_rows = found.heads->selection_rows;
  profile.dense.layers = policy.dense_layers;
  if (found.best) profile.dense.steps = found.setting().candidate.dense.of(untuned.num_inference_steps);
  double error = 0, count = 0;
  for (const auto& layer : found.heads->choices) {
    profile.heads.emplace_back();
    for (const attention::HeadChoice& head : layer) {
      profile.heads.back().push_back({.policy = head.policy,
                                      .error = head.policy.dense ? 0 : head.trial.relative_l1(),
                                      .sparsity = head.policy.dense ? 0 : 1 - head.trial.work()});
      error += profile.heads.back().back().error;
      ++count;
    }
  }
  profile.error = count > 0 ? error / count : 0;
  profile.bounds = kept_bounds(plan, profile);
  profile.settings.erase("topk");  // each head has its own number of blocks
  profile.settings.erase("dense_steps");
}

Row row_of(const std::string& what, const Standing& standing, double full_seconds) {
  return {{"what", what},
          {"setting", name(standing.candidate)},
          {"options", standing.candidate.options()},
          {"prompts", standing.videos.size()},
          {"computed_steps", standing.computed_steps},
          {"psnr", standing.mean(&Seen::psnr)},
          {"psnr_p5", standing.videos.size() < 2 ? Row() : Row(standing.psnr_percentile(5))},
          {"psnr_lowest", standing.lowest_psnr()},
          {"ssim", standing.mean(&Seen::ssim)},
          {"denoise_seconds", standing.seconds},
          {"speedup", full_seconds / standing.seconds}};
}

/// Returns the row of the chosen setting, then the rows of full attention and of the presets that have videos, fastest
/// first.
Rows rows_of(const TunePlan& plan, const Found& found, int64_t steps) {
  Rows rows;
  if (!found.best) return rows;
  rows.push_back(row_of("tuned", found.chosen(), found.full_seconds));
  if (found.heads)
    rows.back()["setting"] = rows.back()["setting"].get<std::string>() + ", with blocks chosen for each head";
  for (const Preset& preset : plan.presets) {
    const auto known = found.search->find(preset.candidate);
    if (known && !found.search->standings()[*known].videos.empty())
      rows.push_back(row_of(preset.name, found.search->standings()[*known], found.full_seconds));
  }
  rows.push_back({{"what", "exact"},
                  {"setting", "full attention"},
                  {"computed_steps", steps},
                  {"denoise_seconds", found.full_seconds},
                  {"speedup", 1}});
  std::sort(rows.begin() + 1, rows.end(),
            [](const Row& a, const Row& b) { return a["denoise_seconds"] < b["denoise_seconds"]; });
  return rows;
}

Columns found_columns() {
  return joined({columns({"what", "setting"}), varying({"prompts"}), columns({"computed_steps", "psnr"}),
                 Columns{to_people("psnr_p5", {})}, columns({"psnr_lowest", "ssim", "denoise_seconds", "speedup"})});
}

/// Returns ", 1.42 x as fast as balanced": compares the result with the fastest preset that also reaches the goal.
std::string beside_presets(const TunePlan& plan, const Found& found) {
  const Standing* fastest = nullptr;
  std::string named;
  for (const Preset& preset : plan.presets) {
    const auto known = found.search->find(preset.candidate);
    if (!known) continue;
    const Standing& standing = found.search->standings()[*known];
    if (!found.search->holds(standing) || (fastest != nullptr && fastest->seconds <= standing.seconds)) continue;
    fastest = &standing;
    named = preset.name;
  }
  if (fastest == nullptr) return {};
  return ", " + fixed(fastest->seconds / found.chosen().seconds, 2) + " x as fast as " + named;
}

/// Says how sure the compared videos of a setting make it that other prompts reach the goal's percentile, too.
struct Tail {
  int64_t prompts = 0, below = 0;  // number of videos, and how many of them have a PSNR below the bound
  double share = 0, sure = 0;  // the share of all prompts that may lie below it; the sureness() that no more prompts do
};

Tail tail_of(const Goal& goal, const Standing& chosen) {
  const auto is_below = [&](const auto& video) { return video.second.psnr < *goal.min_tail; };
  Tail tail{.prompts = static_cast<int64_t>(chosen.videos.size()),
            .below = std::ranges::count_if(chosen.videos, is_below),
            .share = goal.tail / 100};
  tail.sure = sureness(tail.prompts, tail.below, tail.share);
  return tail;
}

bool bounds_percentile(const Goal& goal) {
  return goal.min_tail && goal.tail > 0;
}

/// Returns a line that says how sure the percentile is for other prompts, and how many prompts would make it 95% sure.
std::string of_percentile(const Goal& goal, const Standing& chosen) {
  constexpr double kSure = 0.95;
  const Tail tail = tail_of(goal, chosen);
  const std::string bound = exact_text(*goal.min_tail) + " dB";
  std::string text = std::to_string(tail.below) + " of " + counted(tail.prompts, "video") +
                     (tail.below == 1 ? " is" : " are") + " below " + bound + ": it is " +
                     fixed(std::floor(100 * tail.sure), 0) + "% sure that at most " + exact_text(goal.tail) +
                     "% of other such prompts are";
  if (tail.sure >= kSure) return text + "\n";
  const double needed = std::ceil(std::log(1 - kSure) / std::log1p(-tail.share));
  return text + "; --videos " + fixed(needed, 0) + " makes it 95% sure if none is below\n";
}

std::string of_heads(const attention::Profile& profile) {
  return "sparsity " + fixed(profile.sparsity, 3) + " (untuned " + fixed(profile.untuned_sparsity, 3) +
         "), relative L1 " + fixed(profile.error, 3);
}

}  // namespace

attention::Profile make_profile(const TunePlan& plan, const models::Plan& untuned, const models::Pipeline& pipeline,
                                const Found& found) {
  attention::Profile profile;
  profile.model = plan.run.model_name;
  profile.model_sha256 = pipeline.model_hash();
  profile.made_with = made_with(untuned);
  if (found.best) {
    const Standing chosen = found.chosen();
    profile.settings = chosen.candidate.options();
    for (const auto& [key, value] : plan.given)
      if (chosen.candidate.sparse()) profile.settings[key] = value;
    profile.quality = {.psnr = chosen.mean(&Seen::psnr),
                       .ssim = chosen.mean(&Seen::ssim),
                       .psnr_lowest = chosen.lowest_psnr(),
                       .speedup = found.heads ? found.speedup : 0,
                       .seconds = chosen.seconds,
                       .full_seconds = found.full_seconds};
    if (found.heads)
      profile.untuned = {.psnr = found.setting().mean(&Seen::psnr), .ssim = found.setting().mean(&Seen::ssim)};
  }
  if (found.heads) add_heads(plan, untuned, found, profile);
  return profile;
}

std::string missed_goal(const TunePlan& plan, const Found& found) {
  if (found.passed()) return {};
  const Standing best = found.chosen();
  std::string text;
  const auto add = [&](const std::string& figure, const std::string& of) {
    text += (text.empty() ? "the best videos reach " : ", ") + figure + " instead of " + of;
  };
  const Goal& goal = plan.goal;
  const std::string of_psnr = plan.goal_asked ? "--min-psnr " : "the preset balanced's ";
  if (goal.at_most && best.seconds > *goal.at_most)
    text = "the fastest setting that was compared takes " + number_text(best.seconds, 4) + " s, more than --at-most " +
           exact_text(*goal.at_most);
  else if (best.seconds >= found.full_seconds)
    text = "the best setting takes " + number_text(best.seconds, 4) + " s, but full attention takes only " +
           number_text(found.full_seconds, 4) + " s";
  if (goal.min_psnr && best.mean(&Seen::psnr) < *goal.min_psnr)
    add("PSNR " + fixed_below(best.mean(&Seen::psnr), *goal.min_psnr, 2) + " dB", of_psnr + exact_text(*goal.min_psnr));
  if (goal.min_ssim && best.mean(&Seen::ssim) < *goal.min_ssim)
    add("SSIM " + fixed_below(best.mean(&Seen::ssim), *goal.min_ssim, 4), "--min-ssim " + exact_text(*goal.min_ssim));
  if (const double tail = best.psnr_percentile(goal.tail); goal.min_tail && tail < *goal.min_tail)
    add("in " + (goal.tail > 0 ? "percentile " + exact_text(goal.tail) : std::string("the worst video")) + " " +
            fixed_below(tail, *goal.min_tail, 2) + " dB",
        (plan.goal_asked ? of_psnr : "its ") + exact_text(*goal.min_tail));
  if (text.empty())
    text = "for the best setting that was found, only " + counted(static_cast<int64_t>(best.videos.size()), "video") +
           " of " + std::to_string(plan.prompts.size()) + " could be compared";
  return text;
}

std::vector<std::string> warnings_of(const TunePlan& plan, const Found& found, const attention::Profile& profile) {
  std::vector<std::string> warnings;
  int64_t beyond = 0;
  for (const auto& layer : profile.heads)
    for (const attention::ProfileHead& head : layer) beyond += head.error > plan.bounds.l2 ? 1 : 0;
  if (beyond > 0)
    warnings.push_back(
        counted(beyond, "head") + " exceed" + (beyond == 1 ? "s" : "") +
        " the default bounds of error, because settings within the bounds would be slower (--l1 enforces "
        "the bounds)");
  if (!found.search)
    warnings.emplace_back("no whole videos were compared: cache, dense steps and weights were not searched");
  if (!found.complete)
    warnings.push_back("the budget ended before " + found.ended_before +
                       "; run the same command again to continue from there");
  return warnings;
}

nlohmann::json found_report(const TunePlan& plan, const Found& found, const attention::Profile& profile,
                            const TuneState& state) {
  const int64_t steps = profile.made_with.steps;
  nlohmann::json report = {
      {"complete", found.complete},         {"videos", state.video_count()}, {"samples", state.heads.sampled.size()},
      {"by_head", found.heads.has_value()}, {"settings", profile.settings},  {"rows", rows_of(plan, found, steps)}};
  if (plan.times) report["times"] = plan.times->summaries;
  if (!found.no_heads.empty()) report["no_heads"] = found.no_heads;
  if (found.best) report.update({{"passed", found.passed()}, {"full_denoise_seconds", found.full_seconds}});
  if (found.best && bounds_percentile(plan.goal)) {
    const Tail tail = tail_of(plan.goal, found.chosen());
    report["percentile"] = {
        {"percentile", plan.goal.tail}, {"prompts", tail.prompts}, {"below", tail.below}, {"sure", tail.sure}};
  }
  if (!found.heads) return report;
  report.update({{"error", profile.error},
                 {"sparsity", profile.sparsity},
                 {"untuned_sparsity", profile.untuned_sparsity},
                 {"step_speedup", found.speedup}});
  for (const auto& layer : profile.heads) {
    nlohmann::json sparsities = nlohmann::json::array(), errors = nlohmann::json::array();
    for (const attention::ProfileHead& head : layer) {
      sparsities.push_back(head.sparsity);
      errors.push_back(head.error);
    }
    report["head_sparsity"].push_back(sparsities);
    report["head_relative_l1"].push_back(errors);
  }
  return report;
}

std::string summary(const TunePlan& plan, const Found& found, const attention::Profile& profile,
                    const std::filesystem::path& output, double seconds) {
  const int64_t steps = profile.made_with.steps;
  std::string text = output.string() + ": ";
  if (!found.best) return text + of_heads(profile) + ", " + fixed(seconds, 0) + " s";
  const Standing chosen = found.chosen();
  text += name(chosen.candidate) +
          (found.heads ? ", with blocks chosen for each head (" + of_heads(profile) + ")" : "") + ": PSNR " +
          fixed(chosen.mean(&Seen::psnr), 1) + " dB (lowest " + fixed(chosen.lowest_psnr(), 1) + "), " +
          fixed(found.full_seconds / chosen.seconds, 2) + " x as fast as full attention" + beside_presets(plan, found) +
          "; " + fixed(seconds, 0) + " s\n";
  text += (bounds_percentile(plan.goal) ? of_percentile(plan.goal, chosen) : std::string()) + "\n";
  for (const std::string& times : plan.times ? plan.times->summaries : std::vector<std::string>{})
    text += "times: " + times + "\n";
  const Rows rows = rows_of(plan, found, steps);
  return text + markdown(found_columns(), rows, /*aligned=*/true) + explained(found_columns(), rows);
}

HeatMap heat_map(const attention::Profile& profile) {
  HeatMap map{.title = "sparsity of each head, without dense steps and layers",
              .rows = "layer",
              .columns = "head",
              .values = {}};
  for (const auto& layer : profile.heads) {
    map.values.emplace_back();
    for (const attention::ProfileHead& head : layer) map.values.back().push_back(head.sparsity);
  }
  return map;
}

}  // namespace sparsereel::app::tuning
