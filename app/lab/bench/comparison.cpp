// Names rows, compares them prompt by prompt, and finds rows that another row beats.
#include "app/lab/bench/comparison.h"

#include <algorithm>
#include <cmath>

#include "hilbert/error.h"
#include "hilbert/read_text.h"

namespace sparsereel::app::bench {
namespace {

bool has(const Combination& row, const std::string& term) {
  return std::ranges::find(row.terms, term) != row.terms.end();
}

std::string list_of(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

/// Returns the normal form of a term: "--topk 0.5" becomes "topk=0.5", and "dense_steps=1" becomes "dense-steps=1".
std::string term_of(std::string word) {
  if (word.starts_with("--")) word.erase(0, 2);
  const size_t end = std::min(word.find_first_of("= "), word.size());
  std::replace(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  if (end < word.size()) word[end] = '=';
  return word;
}

/// Returns the figure of `row` minus the figure of `other`, for each prompt for which both rows have it.
std::vector<double> differences(const Row& row, const Row& other, const std::string& figure) {
  std::vector<double> all;
  for (size_t i = 0; i < std::min(row["prompts"].size(), other["prompts"].size()); ++i) {
    const auto own = number_of(row["prompts"][i], figure), its = number_of(other["prompts"][i], figure);
    if (own && its) all.push_back(*own - *its);
  }
  return all;
}

void compare(const Row& other, const std::string& figure, Row& row) {
  const std::vector<double> all = differences(row, other, figure);
  if (all.empty()) return;
  const auto count = static_cast<double>(all.size());
  double sum = 0, squares = 0;
  for (const double each : all) sum += each;
  const double mean = sum / count;
  for (const double each : all) squares += (each - mean) * (each - mean);
  row[figure + "_difference"] = mean;
  if (count > 1) row[figure + "_difference_se"] = std::sqrt(squares / (count - 1) / count);
}

/// Returns the quartile of the seconds, or the seconds themselves if the row has no quartiles. `key` is denoise_seconds
/// or full_denoise_seconds; `quartile` is the ending of the quartile's key.
std::optional<double> seconds_of(const Row& row, const std::string& key, const char* quartile) {
  const auto bound = number_of(row, key + quartile);
  return bound ? bound : number_of(row, key);
}

/// Returns true if `other` is faster than `row` and their quartiles do not overlap, so that noise does not explain the
/// difference. `key` is the key of the seconds of `other`.
bool is_faster(const Row& other, const std::string& key, const Row& row) {
  const auto most = seconds_of(other, key, "_upper_quartile");
  return most && *most < *seconds_of(row, "denoise_seconds", "_lower_quartile");
}

}  // namespace

std::vector<std::string> names_of(const std::vector<Combination>& rows) {
  std::vector<std::string> names;
  for (const Combination& row : rows) {
    std::vector<std::string> own;
    for (const std::string& term : row.terms)
      if (!std::ranges::all_of(rows, [&](const Combination& other) { return has(other, term); })) own.push_back(term);
    names.push_back(own.empty() ? row.terms.front() : list_of(own, ","));
  }
  return names;
}

size_t find_row(const std::string& terms, const std::vector<Combination>& rows, const std::vector<std::string>& names) {
  std::vector<std::string> wanted = split(terms, ',');
  std::ranges::transform(wanted, wanted.begin(), term_of);
  const auto whole = std::ranges::find(names, list_of(wanted, ","));
  if (whole != names.end()) return static_cast<size_t>(whole - names.begin());
  std::vector<size_t> found;
  for (size_t i = 0; i < rows.size(); ++i)
    if (std::ranges::all_of(wanted, [&](const std::string& term) { return has(rows[i], term); })) found.push_back(i);
  if (found.size() == 1) return found.front();
  throw bad_input(
      "--against " + terms + " names " + (found.empty() ? "no row" : std::to_string(found.size()) + " rows"),
      "give terms that only one row has; the rows are " + list_of(names, "; "));
}

void compare_prompts(Rows& rows, size_t against) {
  const Row other = rows[against];
  for (size_t i = 0; i < rows.size(); ++i)
    for (const char* figure : {"psnr", "ssim", "ms_ssim"})
      if (i != against) compare(other, figure, rows[i]);
}

void mark_beaten(Rows& rows) {
  for (Row& row : rows) {
    const auto quality = number_of(row, "psnr");
    if (!quality || !number_of(row, "denoise_seconds")) continue;
    const Row* best = nullptr;
    for (const Row& other : rows)
      if (number_of(other, "psnr") > quality && is_faster(other, "denoise_seconds", row) &&
          (best == nullptr || other.at("psnr") > best->at("psnr")))
        best = &other;
    const bool by_full = is_faster(row, "full_denoise_seconds", row);
    row["beaten_by"] = by_full ? Row("full") : best != nullptr ? best->at("name") : Row();
  }
}

}  // namespace sparsereel::app::bench
