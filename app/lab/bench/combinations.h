// What a benchmark compares: comma lists of options, expanded to all their combinations, and what a row says of each.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/lab/measure/table.h"
#include "app/options/settings.h"
#include "attention/policies/policy.h"
#include "hilbert/token_order.h"
#include "models/request/request.h"

namespace sparsereel::app::bench {

/// Comma lists by their options' keys, as the command line gives them; unset or absent: as the settings say.
using Lists = std::map<std::string, std::optional<std::string>>;

/// An option that takes a comma list; `help`: what it lists, else as the option's own help says.
void add_list(const OptionGroup& group, Lists& lists, const std::string& key, const std::string& help = {});
/// --topk, --cdf, --error, --block-error, --dropped, --select, --cell and --arithmetic; `topk_default` is what its help
/// says of it.
void add_selection_lists(const OptionGroup& group, Lists& lists, const std::string& topk_default);

bool is_given(const Lists& lists, const std::string& key);
/// Those lists that select blocks and were given, as "--topk".
std::vector<std::string> selections_given(const Lists& lists);

/// "full,sparse"; a mode given twice counts once. Throws Error naming the item that is none of the choices.
std::vector<attention::Mode> parse_modes(const std::string& text, const std::vector<std::string>& choices);
/// Token orders likewise.
std::vector<hilbert::TokenOrder> parse_orders(const std::string& text);

/// One way to denoise; all of them share seed, noise and prompts.
struct Combination {
  attention::Mode mode = attention::Mode::sparse;
  attention::Policy policy{};  // of mode sparse
  hilbert::TokenOrder order = hilbert::TokenOrder::hilbert;
  std::string profile{};  // the file that it comes from; empty: none
  models::CacheRule cache{};
  std::string preset{};                             // that it is; empty: none
  std::string weights = "auto";                     // as in a request
  std::optional<models::FirstSteps> dense_share{};  // in place of the policy's number, until settle()
  std::vector<std::string> terms{};                 // what of the lists made it: the mode or preset=NAME, "topk=0.5"
  models::Request asked{};                          // of mode sparse: what its policy is read from

  /// The request with this block selection in place of its own.
  models::Request selected(models::Request request) const;

  /// Once it is known how many steps there are.
  void settle(int64_t steps);
  bool sparse() const { return mode == attention::Mode::sparse; }
  bool untuned() const { return sparse() && profile.empty(); }  // its policy is of the lists and the settings
  bool by_head() const { return sparse() && !policy.per_head.empty(); }
  bool has_untuned_means() const { return untuned() && policy.dropped == attention::Dropped::mean; }
};

/// Fields of its row: mode, the selection, profile, selection_rows, similarity, dense_steps, token_order, cache and
/// weights.
Row fields_of(const Combination& combination);
/// topk, cdf, error_bound, block_error, dropped, select, cell and, if it is 16, arithmetic; all null without a policy.
/// tuned: head by head, so that no one number says how many blocks are computed.
Row selection_fields(const attention::Policy* policy, bool tuned = false);
const Columns& selection_columns();

/// Of rows, for titles and plots: "0.5", "0.5 means of 16 by error", "error 0.05 means of 16 by error"; empty where it
/// has no selection. value_name() is its first part: "0.5", "cdf 0.9", "error 0.05", "block error
/// 0.008".
std::string selection_name(const Row& row);
std::string value_name(const Row& row, const std::string& topk = {});
/// "sparse 0.5 means of 16 by error native first-block:0.1 on 2 GPUs": mode, selection, the order but for hilbert,
/// cache, and where it is told on how many GPUs.
std::string row_name(const Row& row);
/// "topk 0.3, mean, error, cell 16, hilbert", of fields_of(): for errors and pictures.
std::string combination_name(const Row& row);

/// A profile, and the file that it stands in.
struct ProfilePolicy {
  std::string file;
  std::map<std::string, std::string> options{};  // as Source::profile adds them
  attention::Policy policy{};                    // where it has one for each head
};

/// Throws Error naming the file that is none.
ProfilePolicy read_profile_policy(const std::string& file);

/// What `generate --preset` would take.
struct PresetSettings {
  std::string name;
  Settings settings;
};

struct Grid {
  std::vector<Combination> combinations;   // no two alike
  std::vector<std::string> left_out = {};  // what of the lists contradicts each other, a sentence each
  std::vector<std::string> warnings = {};  // of lists that have no effect
};

/// Prints and reports what was left out, after the warnings, the lists' own among them.
void report_choices(const Grid& grid, const std::vector<std::string>& warnings, RunReport& report);

/// Why options of the selection have no effect where all combinations are profiles.
constexpr const char* kBesideProfilesAlone = "beside --profile alone, which has a selection of its own";

/// What is compared beside the lists.
struct Compared {
  std::vector<attention::Mode> modes = {attention::Mode::sparse};
  std::vector<ProfilePolicy> profiles = {};
  std::vector<PresetSettings> presets = {};
  bool profiles_alone = false;  // without a list of how many blocks there are no rows but theirs
};

/// The settings with each item of a list and each of the others, as if the command line gave just these: what goes
/// with an item comes as with `generate`, and what a weaker source says goes that excludes it. Presets first; modes and
/// token orders outermost, then methods; how many blocks, dense steps, caches and weights innermost. But:
///   topk, cdf, error and block_error take the place of each other, each with rows of its own;
///   a profile has a selection of its own and meets dense steps, caches and weights alone, where these are listed in
///   place of its own, and orders where it is of a list; a preset meets weights alone;
///   modes other than sparse meet caches and weights alone, in the first order;
///   what contradicts itself is left out: blocks ranked by the error of a mean that they have not.
/// Throws Error naming the item that is out of range, and the options that would have no row.
Grid expand(const Settings& base, const Lists& lists, const Compared& compared);

}  // namespace sparsereel::app::bench
