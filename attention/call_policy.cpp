// Names, parses and checks policies, and adds up statistics.
#include "attention/call_policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "hilbert/error.h"
#include "hilbert/exact_text.h"

namespace sparsereel::attention {
namespace {

constexpr std::array<std::pair<Mode, std::string_view>, 4> kModes{{
    {Mode::full, "full"},
    {Mode::quantized, "quantized"},
    {Mode::sparse, "sparse"},
    {Mode::check, "check"},
}};
constexpr std::array<std::pair<Dropped, std::string_view>, 2> kDropped{
    {{Dropped::mean, "mean"}, {Dropped::none, "none"}}};
constexpr std::array<std::pair<Ranking, std::string_view>, 2> kRankings{
    {{Ranking::error, "error"}, {Ranking::mass, "mass"}}};

template <typename Names, typename Value>
std::string_view name_of(const Names& names, Value value) {
  for (const auto& [each, text] : names)
    if (each == value) return text;
  return "unknown";
}

template <typename Names>
auto parse_name(const Names& names, const std::string& field, std::string_view text) {
  std::string known;
  for (const auto& [value, spelling] : names) {
    if (spelling == text) return value;
    known += (known.empty() ? "" : ", ") + std::string(spelling);
  }
  throw bad_option(field, std::string(text) + ": one of " + known + " is needed", "use one of these");
}

void require(bool ok, const std::string& field, double value, const std::string& range) {
  if (!ok) throw bad_option(field, "is " + exact_text(value), "set it to " + range);
}

bool is_valid(const HeadPolicy& head, const SelectionField& field) {
  return head.*field.value > 0 && head.*field.value <= field.most;
}

bool is_valid(const HeadPolicy& head) {
  return std::ranges::all_of(kSelections, [&](const SelectionField& each) { return is_valid(head, each); }) &&
         head.similarity >= -1 && head.similarity <= 1 && head.pv_threshold >= 0 && std::isfinite(head.pv_threshold);
}

}  // namespace

std::string_view forced_kernel() {
  constexpr std::array<std::string_view, 6> known = {"hopper", "ada", "ampere", "avx512", "avx2", "portable"};
  const char* name = std::getenv("SPARSEREEL_ATTENTION_KERNEL");  // NOLINT(concurrency-mt-unsafe): nothing here sets it
  if (name == nullptr || *name == '\0') return {};
  if (std::find(known.begin(), known.end(), name) == known.end())
    throw bad_input("the environment variable SPARSEREEL_ATTENTION_KERNEL is '" + std::string(name) + "'",
                    "set it to hopper, ada, ampere, avx512, avx2 or portable, or unset it");
  return name;
}

std::string_view name(Mode mode) {
  return name_of(kModes, mode);
}

Mode parse_mode(std::string_view text) {
  return parse_name(kModes, "attention", text);
}

std::string_view name(Dropped dropped) {
  return name_of(kDropped, dropped);
}

std::string_view name(Ranking ranking) {
  return name_of(kRankings, ranking);
}

Dropped parse_dropped(std::string_view text) {
  return parse_name(kDropped, "dropped", text);
}

Ranking parse_ranking(std::string_view text) {
  return parse_name(kRankings, "select", text);
}

Ranking usual_ranking(Dropped dropped) {
  const BlockPolicy policy;
  if (dropped == policy.dropped) return policy.ranking;
  return dropped == Dropped::mean ? Ranking::error : Ranking::mass;
}

double usual_topk(Dropped dropped) {
  return dropped == Dropped::none ? 0.5 : HeadPolicy{}.topk;
}

void validate(const HeadPolicy& head, const std::string& prefix) {
  for (const SelectionField& field : kSelections)
    require(is_valid(head, field), prefix + field.name, head.*field.value,
            "a value above 0 and at most " + exact_text(field.most));
  require(head.similarity >= -1 && head.similarity <= 1, prefix + "similarity", head.similarity,
          "a value from -1 to 1");
  require(head.pv_threshold >= 0 && std::isfinite(head.pv_threshold), prefix + "pv_threshold", head.pv_threshold,
          "a finite value of at least 0 (32 or more skips nothing)");
}

namespace {

/// Throws Error if the head selects by predicted error but the policy ranks blocks by mass.
void check_means(const BlockPolicy& policy, const HeadPolicy& head) {
  if (needs_errors(head.selection) && !head.dense && policy.ranking != Ranking::error)
    throw bad_input("attention policy: blocks are selected up to a predicted error, but ranked by mass",
                    "rank them by error, or select by topk or cdf");
}

}  // namespace

void validate(const CallPolicy& policy, const std::string& heads) {
  validate(policy.defaults, "");
  if (policy.ranking == Ranking::error && policy.dropped == Dropped::none)
    throw bad_input("attention policy: blocks are ranked by the error of their means, but dropped blocks have no means",
                    "represent dropped blocks by means, or rank blocks by mass");
  const int64_t cell = policy.cell, rows = policy.selection_rows;
  require(cell == 16 || cell == 32 || cell == 64, "cell", static_cast<double>(cell), "16, 32 or 64");
  const int64_t bits = policy.arithmetic;
  require(bits == 8 || bits == 16, "arithmetic", static_cast<double>(bits), "8 or 16");
  require(rows == 64 || rows == 128 || rows == 192, "selection_rows", static_cast<double>(rows), "64, 128 or 192");
  if (policy.heads.empty()) check_means(policy, policy.defaults);
  for (size_t head = 0; head < policy.heads.size(); ++head) {
    check_means(policy, policy.heads[head]);
    if (is_valid(policy.heads[head])) continue;  // the name below is built only for an error
    validate(policy.heads[head], heads + "[" + std::to_string(head) + "].");
  }
}

double Statistics::sparsity() const {
  if (total_blocks == 0) return 0;
  // QK and PV cost the same, so a block is two units of work; skipping its PV saves one.
  const auto done = static_cast<double>(2 * kept_blocks - skipped_pv_blocks);
  return 1 - done / static_cast<double>(2 * total_blocks);
}

double Statistics::mean_share() const {
  return total_blocks > 0 ? static_cast<double>(mean_blocks) / static_cast<double>(total_blocks) : 0;
}

double Statistics::predicted_error() const {
  return predicted_tiles > 0 ? sum_predicted_error / static_cast<double>(predicted_tiles) : 0;
}

double Statistics::mean_relative_l1() const {
  return calls > 0 ? sum_relative_l1 / static_cast<double>(calls) : 0;
}

Statistics& Statistics::operator+=(const Statistics& other) {
  total_blocks += other.total_blocks;
  kept_blocks += other.kept_blocks;
  skipped_pv_blocks += other.skipped_pv_blocks;
  mean_blocks += other.mean_blocks;
  calls += other.calls;
  seconds += other.seconds;
  sum_relative_l1 += other.sum_relative_l1;
  max_relative_l1 = std::max(max_relative_l1, other.max_relative_l1);
  sum_predicted_error += other.sum_predicted_error;
  predicted_tiles += other.predicted_tiles;
  return *this;
}

}  // namespace sparsereel::attention
