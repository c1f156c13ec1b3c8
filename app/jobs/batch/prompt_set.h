// Files of many prompts: one a line, or a table of prompts and options. No torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/options/settings.h"

namespace sparsereel::app::sets {

struct PromptRow {
  int64_t line = 0;                           // in the file, from 1
  std::map<std::string, std::string> values;  // option key -> text; what a row leaves empty is not given
  Places places;                              // of the values
  int64_t copy = 0;                           // of the videos that --batch-count makes of a row, from 0
};

enum class SetFormat { txt, jsonl, csv, yaml };

/// By the extension. Throws Error listing those that are read.
SetFormat set_format(const std::filesystem::path& file);

/// "txt", "jsonl", "csv", "yaml"; nothing of an empty text. Throws Error for others.
std::optional<SetFormat> parse_set_format(const std::string& text);

/// Of text that has no name, by its first line that is neither empty nor a comment: an object; single words with prompt
/// among them, or nearly; a list's dash or a list of objects; else a prompt a line.
SetFormat guess_format(std::string_view text);

/// The rows of
///   .txt    a prompt a line; # at a line's start begins a comment, empty lines mean nothing
///   .jsonl  an object of options a line
///   .csv    a line of option names, then a record a row
///   .yaml   a list of prompts and of maps of options
/// Throws Error naming file and line: what is not well-formed, an option that does not exist (and the nearest that
/// does) or that belongs to the whole set, a value of the wrong kind, options that exclude each other.
std::vector<PromptRow> parse_prompt_set(std::string_view text, SetFormat format, const std::string& file);

/// The same of a file, or of standard input ("-"); at least one row. `format`: as given; else it is set_format() of a
/// file and guess_format() of standard input.
std::vector<PromptRow> read_prompt_set(const std::filesystem::path& file, std::optional<SetFormat> format = {});

/// The prompts of a set in which nothing else stands. Throws Error where a row has no prompt, or a field beside it.
std::vector<std::string> read_prompts(const std::filesystem::path& file);

}  // namespace sparsereel::app::sets
