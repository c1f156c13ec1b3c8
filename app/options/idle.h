// Options that can have no effect in a run: it goes on, with a warning for each.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "app/options/settings.h"

namespace sparsereel::app {

struct IdleCause {
  Idle idle;
  std::string beside;  // key of the option to blame
  std::string why;     // "with --attention full, which computes every block"; empty: it is none
};

/// "--topk 0.3 has no effect with --attention full, which computes every block": one an option, by the first cause that
/// it has. Silent about what asks for nothing (a flag that is off, an empty text, --cache 0), about configs that fit a
/// model and recipes, which know no run, and where the option to blame comes from a stronger source: that is a choice.
std::vector<std::string> idle_warnings(const Settings& settings, const std::vector<IdleCause>& causes);

/// Keys of the options that the causes leave without effect, given or not.
std::set<std::string> idle_options(const std::vector<IdleCause>& causes);

}  // namespace sparsereel::app
