// For each combination, adds its items to the settings and reads the result, so that this file does not repeat the
// rules of settings.
#include "app/lab/bench/combinations.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "app/counted.h"
#include "app/jobs/write.h"
#include "app/lab/measure/run_progress.h"
#include "app/options/nearest.h"
#include "app/options/option_group.h"
#include "app/options/options.h"
#include "hilbert/error.h"
#include "hilbert/exact_text.h"
#include "hilbert/read_text.h"
#include "models/request/asked_policy.h"
#include "models/request/fields.h"
#include "models/request/request.h"
#include "models/store/weights/device.h"

namespace sparsereel::app::bench {
namespace {

using attention::Mode;
using attention::Policy;
using attention::Selection;

using Items = std::map<std::string, std::string>;  // one item of each list
using Keys = std::vector<std::string>;

const Keys kSelectionFields(models::kSelectionNames.begin(), models::kSelectionNames.end());
const Keys kHowChosen = {"dropped", "select", "cell", "arithmetic", "selection_rows", "similarity"};

std::string comma_list(const Keys& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

const std::string* list_of(const Lists& lists, const std::string& key) {
  const auto found = lists.find(key);
  return found == lists.end() || !found->second ? nullptr : &*found->second;
}

Keys given_of(const Lists& lists, const Keys& keys) {
  Keys given;
  for (const std::string& key : keys)
    if (list_of(lists, key) != nullptr) given.push_back(key);
  return given;
}

/// The most combinations that can be compared. More would take weeks to measure, and the program compares each row with
/// all others.
constexpr size_t kMostCombinations = 1000;

void check_combinations(double count) {
  if (count > kMostCombinations)
    throw bad_input(
        "the lists make " + std::to_string(static_cast<int64_t>(std::min(count, 1e18))) + " combinations",
        "give shorter lists: at most " + std::to_string(kMostCombinations) + " combinations can be compared");
}

/// Returns all combinations of the given lists' items; the first list varies slowest.
std::vector<Items> product(const Lists& lists, const Keys& keys) {
  double count = 1;
  for (const std::string& key : given_of(lists, keys))
    count *= static_cast<double>(split(*list_of(lists, key), ',').size());
  check_combinations(count);
  std::vector<Items> all(1);
  for (const std::string& key : given_of(lists, keys)) {
    std::vector<Items> longer;
    for (const Items& one : all)
      for (const std::string& item : split(*list_of(lists, key), ',')) longer.emplace_back(one)[key] = item;
    all = std::move(longer);
  }
  return all;
}

template <typename T>
std::vector<T> parse_words(const std::string& key, const std::string& text, const Keys& choices,
                           const std::function<T(const std::string&)>& parse) {
  std::vector<T> values;
  for (const std::string& item : split(text, ',')) {
    require_choice(option_name(key) + " " + item, item, choices, "give one of them");
    const T value = parse(item);
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  return values;
}

class Expansion {
 public:
  Expansion(const Settings& base, const Lists& lists, const Compared& compared)
      : base_(base), lists_(lists), compared_(compared), orders_(product(lists, {"token_order"})) {}

  Grid expand() {
    check({"token_order", "cache", "weights"});
    for (const PresetSettings& preset : compared_.presets) add_preset(preset);
    for (const Mode mode : compared_.modes) {
      if (mode != Mode::sparse) {
        add_products(mode, {}, orders_.front());
        continue;
      }
      for (const Keys& keys : {kSelectionFields, kHowChosen, Keys{"dense_steps"}}) check(keys);
      for (const Items& order : orders_) add_sparse(order);
    }
    warn();
    return std::move(grid_);
  }

 private:
  /// Returns the settings with these items. Throws Error if two items exclude each other, or if an item is not of its
  /// option's kind.
  Settings settings_of(Items items) const { return with(base_, std::move(items)); }
  static Settings with(Settings settings, Items items) {
    items.erase(kRows);
    settings.add(Source::command_line, items);
    return settings;
  }
  const ProfilePolicy* profile_of(const Items& items) const {
    const auto named = items.find("profile");
    const auto found =
        std::ranges::find(compared_.profiles, named == items.end() ? "" : named->second, &ProfilePolicy::file);
    return found == compared_.profiles.end() ? nullptr : &*found;
  }
  Settings settings_of(const ProfilePolicy& profile, const Items& items) const {
    Settings settings = base_;
    settings.add(Source::profile, profile.options, profile.file);
    return with(std::move(settings), items);
  }

  Combination read(Mode mode, const Items& items) const { return read(mode, items, settings_of(items)); }
  Combination read(Mode mode, Items items, const Settings& settings) const {
    Combination result{.mode = mode, .order = hilbert::parse_token_order(settings.text("token_order", "hilbert"))};
    result.cache = models::parse_cache_rule(settings.text("cache", "0"));
    result.weights = settings.text("weights", "auto");
    if (mode != Mode::full && settings.has("exact_steps"))
      result.exact = models::parse_first_steps(*settings.text("exact_steps"), "exact_steps");
    result.terms = {std::string(attention::name(mode))};
    for (const auto& [key, item] : items) result.terms.push_back(option_name(key).substr(2) + "=" + item);
    const ProfilePolicy* tuned = profile_of(items);
    if (tuned != nullptr) result.profile = tuned->file;
    if (mode != Mode::sparse) return result;
    const models::Request request = result.asked = read_request(settings);
    result.policy = models::make_policy(request);
    if (tuned != nullptr && !tuned->policy.per_head.empty()) {
      const attention::Policy asked = std::exchange(result.policy, tuned->policy);
      result.policy.dense_layers = asked.dense_layers;
      result.policy.arithmetic = asked.arithmetic;
    }
    if (items.contains(kRows)) result.policy.selection_rows = std::stoll(items[kRows]);
    result.dense_share = request.dense_steps;
    if (result.dense_share && !result.dense_share->percent) result.settle(0);
    return result;
  }

  void add_preset(const PresetSettings& preset) {
    const std::string mode = preset.settings.text("attention", "sparse");
    for (const Items& items : product(lists_, {"weights"})) {
      Combination row = read(attention::parse_mode(mode), items, with(preset.settings, items));
      row.preset = preset.name;
      row.terms.front() = "preset=" + preset.name;
      add(row);
    }
  }

  /// Throws Error if an item of these lists is invalid even without items of the other lists.
  void check(const Keys& keys) const {
    for (const std::string& key : keys) {
      for (const Items& item : product(lists_, {key})) {
        if (item.empty()) continue;  // no list is given for this option
        const std::string named = option_name(key) + " " + item.at(key);
        if (key == kRows) require_choice(named, item.at(key), row_choices(), "give one of them");
        const Settings settings = settings_of(item);
        try {
          read(Mode::sparse, item);
        } catch (const Error& error) {
          if (error.field() == key && key != "cache") throw bad_input(named + " is out of range", error.remedy());
          throw settings.with_place(error);
        }
      }
    }
  }

  void add(const Combination& combination) {
    Row row = fields_of(combination);
    const auto same = std::ranges::find(rows_, row);
    if (same == rows_.end()) {
      check_combinations(static_cast<double>(rows_.size() + 1));
      rows_.push_back(std::move(row));
      grid_.combinations.push_back(combination);
      return;
    }
    Combination& first = grid_.combinations[static_cast<size_t>(same - rows_.begin())];
    first.terms.insert(first.terms.end(), combination.terms.begin(), combination.terms.end());
    if (first.preset.empty()) first.preset = combination.preset;
  }

  /// Adds all combinations of the lists `keys`. Throws Error if each of them has options that exclude each other.
  void add_products(Mode mode, Keys keys, const Items& order) {
    keys.insert(keys.end(), {"cache", "weights"});
    std::string refused;
    bool possible = false;
    for (Items items : product(lists_, keys)) {
      items.insert(order.begin(), order.end());
      try {
        settings_of(items);
      } catch (const Error& contradiction) {
        refused = contradiction.what();
        std::vector<std::string>& left_out = grid_.left_out;
        if (std::find(left_out.begin(), left_out.end(), refused) == left_out.end()) left_out.push_back(refused);
        continue;
      }
      possible = true;
      add(read(mode, items));
    }
    if (!possible) throw bad_input(refused, "give one of them");
  }

  void add_profile(const ProfilePolicy& profile, const Items& order) {
    for (Items items : product(lists_, {"dense_steps", "cache", "weights"})) {
      items.insert(order.begin(), order.end());
      items["profile"] = profile.file;
      const Settings settings = settings_of(profile, items);
      add(read(attention::parse_mode(settings.text("attention", "sparse")), items, settings));
    }
  }

  void add_sparse(const Items& order) {
    const bool untuned = compared_.profiles.empty() || !compared_.profiles_alone;
    Keys how_many = given_of(lists_, kSelectionFields);
    if (how_many.empty() && untuned) how_many.emplace_back();  // the settings say how many blocks are computed
    for (const std::string& key : how_many) {
      Keys keys = kHowChosen;
      keys.insert(keys.end(), {key, "dense_steps"});
      add_products(Mode::sparse, keys, order);
    }
    if (list_of(lists_, "profile") == nullptr && order != orders_.front()) return;
    for (const ProfilePolicy& profile : compared_.profiles) add_profile(profile, order);
  }

  void warn() {
    const std::vector<Combination>& rows = grid_.combinations;
    const bool untuned = std::ranges::any_of(rows, &Combination::untuned);
    Keys modes;
    for (const Mode mode : compared_.modes) modes.emplace_back(attention::name(mode));
    const std::string why =
        std::ranges::any_of(rows, &Combination::sparse) ? kBesideProfilesAlone : "with --modes " + comma_list(modes);
    for (std::string& option : selections_given(lists_))
      if (!untuned) grid_.warnings.push_back(option.append(" has no effect ").append(why));
    const std::string* cells = list_of(lists_, "cell");
    if (cells != nullptr && untuned && std::ranges::none_of(rows, &Combination::has_untuned_means))
      grid_.warnings.push_back("--cell " + *cells + " has no effect without means for dropped blocks");
    const std::string* bits = list_of(lists_, "arithmetic");
    const auto is_sixteen = [](const Combination& row) { return row.sparse() && row.policy.arithmetic == 16; };
    if (bits == nullptr || std::ranges::none_of(rows, is_sixteen)) return;
    const models::Request in_sixteen = {.arithmetic = 16};
    const at::Device device = models::resolve_device(base_.text("device", "auto"));
    const models::RunFacts facts = {.request = &in_sixteen, .on_cpu = device.is_cpu()};
    if (const std::string no_effect = models::why_no_effect(NoEffect::in_fp32, facts); !no_effect.empty())
      grid_.warnings.push_back("--arithmetic " + *bits + " has no effect " + no_effect);
  }

  const Settings& base_;
  const Lists& lists_;
  const Compared& compared_;
  const std::vector<Items> orders_;
  std::vector<Row> rows_;  // rows of the combinations
  Grid grid_;
};

}  // namespace

bool is_given(const Lists& lists, const std::string& key) {
  return list_of(lists, key) != nullptr;
}

std::vector<std::string> selections_given(const Lists& lists) {
  Keys given = given_of(lists, kSelectionFields);
  for (const std::string& key : given_of(lists, kHowChosen)) given.push_back(key);
  for (std::string& key : given) key = option_name(key);
  return given;
}

std::vector<Mode> parse_modes(const std::string& text, const std::vector<std::string>& choices) {
  return parse_words<Mode>("modes", text, choices, attention::parse_mode);
}

std::vector<hilbert::TokenOrder> parse_orders(const std::string& text) {
  return parse_words<hilbert::TokenOrder>("token_order", text, find_option("token_order")->choices,
                                          hilbert::parse_token_order);
}

Row selection_fields(const Policy* policy, bool tuned) {
  Row row;
  for (const Column& column : selection_columns()) row[column.key] = nullptr;
  if (policy == nullptr) return row;
  row["dropped"] = attention::name(policy->dropped);
  row["select"] = attention::name(policy->ranking);
  if (policy->dropped == attention::Dropped::mean) row["cell"] = policy->cell;
  if (policy->arithmetic == 16) row["arithmetic"] = policy->arithmetic;
  if (tuned) return row;
  const attention::HeadPolicy& head = policy->defaults;
  const attention::SelectionField& field = attention::field_of(head.selection);
  row[field.key] = head.*field.value;
  return row;
}

const Columns& selection_columns() {
  static const Columns all = [] {
    std::vector<std::string> keys;
    for (const auto& field : attention::kSelections) keys.emplace_back(field.key);
    keys.insert(keys.end(), {"dropped", "select", "cell"});
    return columns(keys);
  }();
  return all;
}

Row fields_of(const Combination& combination) {
  const bool tuned = combination.by_head();
  Row row = selection_fields(combination.sparse() ? &combination.policy : nullptr, tuned);
  row.update({{"mode", attention::name(combination.mode)},
              {"profile", combination.profile.empty() ? Row() : Row(combination.profile)},
              {"selection_rows", combination.policy.selection_rows},
              {"similarity", tuned ? Row() : Row(combination.policy.defaults.similarity)},
              {"dense_steps", combination.dense_share ? Row(models::name(*combination.dense_share))
                                                      : Row(combination.policy.dense_steps)},
              {"token_order", hilbert::name(combination.order)},
              {"cache", combination.cache.on() ? Row(models::name(combination.cache)) : Row()},
              {"weights", combination.weights}});
  if (const auto& exact = combination.exact)
    row["exact_steps"] = exact->percent ? Row(models::name(*exact)) : Row(exact->steps);
  return row;
}

models::Request Combination::selected(models::Request request) const {
  if (!sparse()) return request;
  for (const models::Field& field : models::fields())
    if (std::ranges::count(field.no_effect, models::NoEffect::every_block) > 0) field.copy(request, asked);
  return request;
}

void Combination::settle(int64_t steps) {
  if (dense_share) policy.dense_steps = dense_share->of(steps);
  dense_share.reset();
  if (exact && steps > 0) exact = models::FirstSteps{.steps = exact->of(steps)};
}

std::string value_name(const Row& row, const std::string& topk) {
  for (const auto& field : attention::kSelections)
    if (const auto value = number_of(row, field.key))
      return (field.selection == Selection::topk ? topk : std::string(field.words) + " ") + exact_text(*value);
  return {};
}

namespace {

/// Returns "in 16 bits" if the row has the key "arithmetic", which only 16-bit rows have, or else an empty string.
std::string bits_name(const Row& row) {
  const auto bits = number_of(row, "arithmetic");
  return bits ? "in " + exact_text(*bits) + " bits" : "";
}

}  // namespace

std::string selection_name(const Row& row) {
  std::string name = value_name(row);
  if (text_of(row, "dropped") != attention::name(attention::Dropped::mean)) return name;
  name += std::string(name.empty() ? "" : " ") + "means";
  if (const auto cell = number_of(row, "cell")) name += " of " + exact_text(*cell);
  return name + " by " + text_of(row, "select");
}

std::string row_name(const Row& row) {
  const std::string order = text_of(row, "token_order");
  std::string name = text_of(row, "mode");
  for (const std::string& more :
       {selection_name(row), bits_name(row), order == "hilbert" ? "" : order, text_of(row, "cache")})
    if (!more.empty()) name += " " + more;
  if (const auto gpus = number_of(row, "gpus")) name += " on " + counted(static_cast<int64_t>(*gpus), "GPU");
  return name;
}

std::string combination_name(const Row& row) {
  const std::string cache = text_of(row, "cache"), weights = text_of(row, "weights"), mode = text_of(row, "mode");
  std::string reuse = cache.empty() ? "" : ", cache " + cache;
  if (weights != "auto" && !weights.empty()) reuse += ", weights " + weights;
  if (mode != attention::name(Mode::sparse))
    return reuse.empty() && mode == "full" ? "full, weights reduced" : mode + reuse;
  const std::string profile = text_of(row, "profile");
  std::string text = profile.empty() ? value_name(row, "topk ") : std::filesystem::path(profile).stem().string();
  text += ", " + text_of(row, "dropped") + ", " + text_of(row, "select");
  if (const auto cell = number_of(row, "cell")) text += ", cell " + exact_text(*cell);
  const auto similarity = number_of(row, "similarity"), dense_steps = number_of(row, "dense_steps");
  if (const std::string bits = bits_name(row); !bits.empty()) text += ", " + bits;
  if (similarity.value_or(-1) >= 0) text += ", similarity " + exact_text(*similarity);
  if (dense_steps.value_or(0) > 0) text += ", " + counted(static_cast<int64_t>(*dense_steps), "dense step");
  return text + ", " + text_of(row, "token_order") + reuse;
}

void report_choices(const Grid& grid, const std::vector<std::string>& warnings, RunReport& report) {
  report_warnings(warnings, report);
  for (const std::string& what : grid.left_out) print_warnings({"left out: " + what});
  report.content["left_out"] = grid.left_out;
}

ProfilePolicy policy_of(const models::TunedProfile& profile) {
  return {.file = profile.file.string(),
          .options = models::options_of(profile),
          .policy = attention::policy_of(*profile.content)};
}

Grid expand(const Settings& base, const Lists& lists, const Compared& compared) {
  return Expansion(base, lists, compared).expand();
}

}  // namespace sparsereel::app::bench
