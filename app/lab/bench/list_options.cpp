// Declares the options that take comma lists.
#include "app/lab/bench/list_options.h"

#include <utility>

#include "app/options/option_table.h"

namespace sparsereel::app::bench {
namespace {

std::string with_commas(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

/// Returns the placeholder of the list in --help: the words that an item may be, or a word for the kind of its items.
std::string type_of_list(const std::string& key, const OptionSpec* option) {
  const std::string words = with_commas(key == kRows ? row_choices() : option->choices);
  return !words.empty()                       ? words
         : option->kind() == ValueKind::file  ? "FILE,FILE"
         : option->kind() == ValueKind::whole ? "N,N"
         : option->kind() == ValueKind::text  ? "TEXT,TEXT"
                                              : "X,X";
}

constexpr const char* kRowsHelp = "queries that share one choice of blocks";
constexpr const char* kRowsManual = R"(Takes how many queries share one choice of blocks: a comma list of 64, 128 and
    192, one row each. With fewer queries, the choice is finer and takes longer.)";

}  // namespace

void add_list(const OptionGroup& group, Lists& lists, const std::string& key, OptionText text) {
  const OptionSpec* option = find_option(key);
  const std::string name = option_name(key);
  if (text.help.empty()) text.help = key == kRows ? kRowsHelp : option->help;
  if (!group.holds_lists()) text.help = "comma list: " + text.help;
  if (text.manual.empty())
    text.manual = key == kRows ? kRowsManual
                               : "Takes a comma list, and measures a row for each item, combined with the items of the "
                                 "other lists. An item is a value that " +
                                     name + " of generate takes.";
  text.in_help = key == kRows || option->in_help == InHelp::research ? InHelp::research : text.in_help;
  group.add(name.c_str(), lists[key], text, type_of_list(key, option).c_str());
}

void add_selection_lists(const OptionGroup& group, Lists& lists, const std::string& command,
                         const std::string& topk_default) {
  const auto example = [&](const std::string& words) { return "sparsereel " + command + " " + words; };
  add_list(
      group, lists, "topk",
      {.help = "shares of blocks computed (default " + topk_default + ")", .example = example("--topk 0.5,0.3,0.1")});
  for (const auto& [key, words] : {std::pair("cdf", "--cdf 0.9,0.95"), std::pair("error", "--error 0.05,0.1"),
                                   std::pair("block_error", "--block-error 0.005,0.01")})
    add_list(group, lists, key, {.example = example(words)});
  for (const auto& [key, words] :
       {std::pair("dropped", "--topk 0.5 --dropped mean,none"), std::pair("select", "--topk 0.3 --select error,mass"),
        std::pair("cell", "--topk 0.3 --cell 16,32 --device cpu"),
        std::pair("arithmetic", "--topk 0.3 --arithmetic 8,16")})
    add_list(group, lists, key, {.example = example(words), .in_help = InHelp::all});
}

}  // namespace sparsereel::app::bench
