// Reads files of many prompts: one per line, or a table of prompts and options. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/options/option_table.h"

namespace sparsereel::app::sets {

struct PromptRow {
  int64_t line = 0;                           // line in the file, from 1
  std::map<std::string, std::string> values;  // values by option key; empty fields are left out
  Places places;                              // places of the values in the file
  int64_t copy = 0;                           // index, from 0, among the videos that --batch-count makes from the row
};

enum class SetFormat { txt, jsonl, csv, yaml };

/// Returns the format for the file's extension. Throws Error listing the supported extensions.
SetFormat set_format(const std::filesystem::path& file);

/// Parses "txt", "jsonl", "csv" or "yaml"; returns nothing for an empty text. Throws Error for any other text.
std::optional<SetFormat> parse_set_format(const std::string& text);

/// Guesses the format of a text that has no file name. The first line that is neither empty nor a comment decides. A
/// line that begins with { means jsonl. A list of single words means csv if one of them names a row's prompt, perhaps
/// misspelled. The dash of a list, or a list of objects, means yaml. Any other line means txt.
SetFormat guess_format(std::string_view text);

/// Returns the rows of a set. Formats:
///   .txt    one prompt per line; # at the start of a line begins a comment, empty lines are skipped
///   .jsonl  one object of options per line
///   .csv    a line of option names, then one record per row
///   .yaml   a list of prompts and of maps of options
/// Throws Error naming file and line for malformed input, unknown options (with the nearest known one), options of the
/// whole set, values of the wrong kind, and options that exclude each other.
std::vector<PromptRow> parse_prompt_set(std::string_view text, SetFormat format, const std::string& file);

/// Reads the rows, at least one, from a file or from standard input ("-"). If `format` is not given, calls set_format()
/// for a file or guess_format() for standard input.
std::vector<PromptRow> read_prompt_set(const std::filesystem::path& file, std::optional<SetFormat> format = {});

/// Reads the prompts of a set whose rows hold only prompts. Throws Error if a row has no prompt or has another field.
std::vector<std::string> read_prompts(const std::filesystem::path& file);

}  // namespace sparsereel::app::sets
