// Expands comma lists of options to all combinations that a benchmark compares, and describes each in a row.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/lab/measure/table.h"
#include "app/options/option_table.h"
#include "attention/policies/policy.h"
#include "hilbert/token_order.h"
#include "models/request/request.h"
#include "models/request/tuned_profile.h"

namespace sparsereel::app::bench {

/// Comma-separated lists by option key, as the command line gives them. An option without a list keeps its value from
/// the settings.
using Lists = std::map<std::string, std::optional<std::string>>;

/// The key of the only list that is not an option of `generate`, and the choices of its items.
constexpr const char* kRows = "selection_rows";
inline std::vector<std::string> row_choices() {
  return {"64", "128", "192"};
}

bool is_given(const Lists& lists, const std::string& key);
/// Returns the names of the selection options whose lists are given, such as "--topk".
std::vector<std::string> selections_given(const Lists& lists);

/// Parses "full,sparse"; a repeated mode counts once. Throws Error naming an item that is not one of the choices.
std::vector<attention::Mode> parse_modes(const std::string& text, const std::vector<std::string>& choices);
/// Parses a list of token orders as parse_modes() parses modes.
std::vector<hilbert::TokenOrder> parse_orders(const std::string& text);

/// A combination of list items: one way to denoise. All combinations share seed, noise and prompts.
struct Combination {
  attention::Mode mode = attention::Mode::sparse;
  attention::Policy policy{};  // for mode sparse
  hilbert::TokenOrder order = hilbert::TokenOrder::hilbert;
  std::string profile{};  // file of the profile; empty if none
  models::CacheRule cache{};
  std::string preset{};                             // name of the preset; empty if this is no preset
  std::string weights = "auto";                     // as in a request
  std::optional<models::FirstSteps> dense_share{};  // settle() turns it into policy.dense_steps
  std::optional<models::FirstSteps> exact{};        // first steps with full attention
  std::vector<std::string> terms{};                 // the mode or preset=NAME, then items of the lists: "topk=0.5"
  models::Request asked{};                          // the request from which `policy` was read

  /// Returns the request with this combination's block selection in place of the request's own.
  models::Request selected(models::Request request) const;

  /// Turns dense_share and exact into numbers of steps. Call it once the number of steps of a run is known.
  void settle(int64_t steps);
  bool sparse() const { return mode == attention::Mode::sparse; }
  bool untuned() const { return sparse() && profile.empty(); }  // lists and settings give the policy, not a profile
  bool by_head() const { return sparse() && !policy.per_head.empty(); }
  bool has_untuned_means() const { return untuned() && policy.dropped == attention::Dropped::mean; }
};

/// Returns the fields of the combination's row: mode, selection, profile, selection_rows, similarity, dense_steps,
/// token_order, cache and weights; also exact_steps if it is given.
Row fields_of(const Combination& combination);
/// Returns topk, cdf, error_bound, block_error, dropped, select, cell, and also arithmetic if it is 16. All are null
/// without a policy. If `tuned`, each head has its own policy, so the fields that say how many blocks are computed are
/// null too.
Row selection_fields(const attention::Policy* policy, bool tuned = false);
const Columns& selection_columns();

/// The next two functions describe the block selection of a row for titles and charts. selection_name() returns texts
/// such as "0.5", "0.5 means of 16 by error", "error 0.05 means of 16 by error". Both return an empty text if the row
/// has no selection. value_name() returns only the first part: "0.5", "cdf 0.9", "error 0.05", "block error 0.008". It
/// puts the text `topk` before a share of blocks such as "0.5".
std::string selection_name(const Row& row);
std::string value_name(const Row& row, const std::string& topk = {});
/// Returns the name of a row, such as "sparse 0.5 means of 16 by error native first-block:0.1 on 2 GPUs": mode,
/// selection, "in 16 bits" if attention is in 16 bits, token order unless it is hilbert, cache, and the number of GPUs
/// if the row has one.
std::string row_name(const Row& row);
/// Returns a name for errors and files of pictures, such as "topk 0.3, mean, error, cell 16, hilbert". `row` is from
/// fields_of().
std::string combination_name(const Row& row);

/// The settings of a profile of `tune`.
struct ProfilePolicy {
  std::string file;
  std::map<std::string, std::string> options{};  // option values by key, as Source::profile adds them
  attention::Policy policy{};                    // used only if the profile has a policy for each head
};

/// Returns the settings of the profile. Throws Error naming the file if it sets an option that profiles may not set.
ProfilePolicy policy_of(const models::TunedProfile& profile);

/// A preset's name, and the settings that `generate --preset` would use.
struct PresetSettings {
  std::string name;
  Settings settings;
};

/// The combinations of a benchmark.
struct Grid {
  std::vector<Combination> combinations;   // all different
  std::vector<std::string> left_out = {};  // why combinations were left out, a sentence for each reason
  std::vector<std::string> warnings = {};  // about lists without effect
};

/// Prints `warnings`, which must include the warnings of the grid, and adds them to the report. Then prints and adds
/// the combinations that were left out.
void report_choices(const Grid& grid, const std::vector<std::string>& warnings, RunReport& report);

/// The end of the warning that a selection option "has no effect" because all combinations are profiles.
constexpr const char* kBesideProfilesAlone = "beside --profile alone, which has a selection of its own";

/// The choices that a benchmark compares in addition to the items of its Lists.
struct Compared {
  std::vector<attention::Mode> modes = {attention::Mode::sparse};
  std::vector<ProfilePolicy> profiles = {};
  std::vector<PresetSettings> presets = {};
  bool profiles_alone = false;  // if true and no list says how many blocks are computed, only profiles get rows
};

/// Combines the items of the lists in every way. Each combination has the settings that `generate` would have if its
/// command line gave exactly these items: an item brings its own defaults, and removes the values that it excludes if
/// they come from weaker sources. Presets come first. Modes and token orders vary slowest, then `dropped`, `select` and
/// the like; the number of blocks, dense steps, caches and weights vary fastest. Exceptions:
///   topk, cdf, error and block_error exclude each other, so each has its own rows;
///   a profile has its own selection and combines only with listed dense steps, caches and weights, and with token
///     orders if there is a list of profiles;
///   a preset combines only with weights;
///   modes other than sparse combine only with caches and weights, in the first token order;
///   contradictory combinations are left out, such as `select` error, which needs means, with `dropped` none.
/// Throws Error naming an item that is out of range, if there are more than 1000 combinations, or if all combinations
/// of some lists are contradictory.
Grid expand(const Settings& base, const Lists& lists, const Compared& compared);

}  // namespace sparsereel::app::bench
