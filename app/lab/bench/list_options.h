// Declares the options of `bench` that take comma lists; the table gets a row for each item.
#pragma once

#include <string>

#include "app/lab/bench/combinations.h"
#include "app/options/option_group.h"

namespace sparsereel::app::bench {

/// Adds an option that takes a comma list. If the help or the manual of `text` is empty, the option gets a standard
/// text in its place.
void add_list(const OptionGroup& group, Lists& lists, const std::string& key, OptionText text);
/// Adds --topk, --cdf, --error, --block-error, --dropped, --select, --cell and --arithmetic. `command` begins the
/// examples, such as "bench pipeline"; `topk_default` is the default that help shows for --topk.
void add_selection_lists(const OptionGroup& group, Lists& lists, const std::string& command,
                         const std::string& topk_default);

}  // namespace sparsereel::app::bench
