// One reader per format, and the checks that all formats share.
#include "app/jobs/batch/prompt_set.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <sstream>
#include <utility>

#include "app/jobs/batch/csv.h"
#include "app/jobs/batch/names.h"
#include "app/options/nearest.h"
#include "app/options/option_table.h"
#include "app/options/text_file.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "models/files/json_text.h"
#include "models/store/configs/yaml_text.h"

namespace sparsereel::app::sets {
namespace {

namespace fs = std::filesystem;
using models::mark_of;
using models::place_in;

constexpr const char* kFieldsAre = "fields are the long option names of 'sparsereel generate --help-all' with _ for -";

std::string at(const std::string& file, int64_t line) {
  return file + ":" + std::to_string(line);
}

std::vector<std::string> names_of_options() {
  std::vector<std::string> names;
  for (const OptionSpec& spec : option_table()) {
    for (std::string name : split(spec.names, ',')) {
      if (!name.starts_with("--")) continue;
      name.erase(0, 2);
      std::replace(name.begin(), name.end(), '-', '_');
      names.push_back(name);
    }
  }
  return names;
}

/// Returns the option that a field names. Throws Error if there is no such option, or if it belongs to the whole set.
const OptionSpec* field(std::string name, const std::string& place) {
  std::replace(name.begin(), name.end(), '-', '_');
  const OptionSpec* spec = find_option(name);
  if (spec == nullptr)
    throw bad_input(place + ": the field " + models::in_quotes(name) + " is unknown",
                    did_you_mean(name, names_of_options(), kFieldsAre));
  if (spec->scope == Scope::whole_set)
    throw bad_input(place + ": " + name + " belongs to the whole set, not to a row", "give it on the command line");
  return spec;
}

/// Adds a field to a row unless its value is empty, and returns its option.
const OptionSpec* add_field(PromptRow& row, const std::string& name, const std::optional<std::string>& value,
                            const std::string& place) {
  const OptionSpec* spec = field(name, place);
  if (!value || value->empty()) return spec;
  const RowFile where = row_file(*spec);
  const bool is_in_one_folder = where == RowFile::in_the_output || where == RowFile::beside_the_set;
  if (is_in_one_folder && !is_plain_name(*value))
    throw bad_input(place + ": " + spec->key() + " " + models::in_quotes(*value) + " is not a plain file name",
                    where == RowFile::in_the_output
                        ? "give a name without a folder: what a row writes goes where -o says"
                        : "give a name without a folder: it is read from the folder of the set");
  if (!row.values.emplace(spec->key(), *value).second)
    throw bad_input(place + ": " + spec->key() + " is given twice", "give it once");
  return spec;
}

std::vector<PromptRow> parse_lines(std::string_view text, const std::string& file) {
  std::vector<PromptRow> rows;
  std::istringstream lines{std::string(text)};
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const size_t begin = line.find_first_not_of(" \t\r"), end = line.find_last_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    if (const size_t lone = line.find('\r', begin); lone < end)
      throw bad_input(at(file, number) + ": a carriage return is inside the line",
                      "end lines with a line feed, as Unix and Windows do");
    rows.push_back({.line = number, .values = {{"prompt", line.substr(begin, end + 1 - begin)}}, .places = {}});
  }
  return rows;
}

constexpr std::string_view kOtherSeparators = "\t;";

bool is_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

/// Returns true if a field of this name gives a row its prompt, allowing for a typing error.
bool names_prompt(const std::string& name) {
  const OptionSpec* option = find_option(name);
  if (option == nullptr) return !nearest(name, {"prompt", "prompt_file"}).empty();
  return option->key() == "prompt" || option->key() == "prompt_file" || option->key() == "from";
}

/// Returns true if the line consists of single words, and one of them names a row's prompt. Such a line is the header
/// of a .csv. If it has a mistake, such as an unknown word or a missing comma, the .csv reader reports the mistake; the
/// .txt reader would take the line for a prompt.
bool is_header(std::string_view line) {
  const size_t separator = line.find_first_of("," + std::string(kOtherSeparators));
  bool has_prompt = false;
  for (std::string name : split(line, separator == std::string_view::npos ? ',' : line[separator])) {
    if (name.size() >= 2 && name.front() == '"' && name.back() == '"') name = name.substr(1, name.size() - 2);
    std::replace(name.begin(), name.end(), '-', '_');
    if (!is_word(name)) return false;
    has_prompt = has_prompt || names_prompt(name);
  }
  return has_prompt;
}

std::optional<std::string> value_text(const nlohmann::json& value, const std::string& name, const std::string& place) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return value.get<std::string>();
  if (value.is_primitive()) return value.dump();
  throw bad_input(place + ": " + models::in_quotes(name) + " is not a single value", "write one number or text");
}

std::vector<PromptRow> parse_jsonl(std::string_view text, const std::string& file) {
  std::vector<PromptRow> rows;
  std::istringstream lines{std::string(text)};
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string place = at(file, ++number);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const nlohmann::json object = models::parse_json(line, place, "write one JSON object a line");
    if (!object.is_object())
      throw bad_input(place + ": this is not a JSON object",
                      "write for example {\"prompt\": \"a red ball\", \"seed\": 7}");
    PromptRow row{.line = number, .values = {}, .places = {}};
    for (const auto& [name, value] : object.items()) add_field(row, name, value_text(value, name, place), place);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<PromptRow> parse_csv_rows(std::string_view text, const std::string& file) {
  const std::vector<CsvRecord> records = parse_csv(text, file);
  std::vector<PromptRow> rows;
  if (records.empty()) return rows;
  const std::vector<std::string>& names = records.front().fields;
  for (const std::string& name : names) {
    const std::string place = at(file, records.front().line);
    if (const size_t other = name.find_first_of(kOtherSeparators); other != std::string::npos)
      throw bad_input(
          place + ": a " + (name[other] == ';' ? "semicolon" : "tab") + " separates the names of the fields",
          "separate fields with commas");
    field(name, place);
  }
  for (size_t i = 1; i < records.size(); ++i) {
    const std::string place = at(file, records[i].line);
    const std::vector<std::string>& fields = records[i].fields;
    if (fields.size() != names.size())
      throw bad_input(
          place + ": " + std::to_string(fields.size()) + " fields for " + std::to_string(names.size()) + " names",
          "give as many fields as the first line has names, and put quotes around text with commas");
    PromptRow row{.line = records[i].line, .values = {}, .places = {}};
    for (size_t j = 0; j < names.size(); ++j) add_field(row, names[j], fields[j], place);
    rows.push_back(std::move(row));
  }
  return rows;
}

PromptRow yaml_row(const YAML::Node& node, const std::string& file) {
  PromptRow row{.line = node.Mark().line + 1, .values = {}, .places = {}};
  if (node.IsScalar()) {
    add_field(row, "prompt", node.Scalar(), place_in(file, node.Mark()));
    row.places["prompt"] = {mark_of(node.Mark()), mark_of(node.Mark())};
    return row;
  }
  if (!node.IsMap())
    throw bad_input(place_in(file, node.Mark()) + ": this is neither a prompt nor a map of options",
                    "write '- a red ball' or '- {prompt: a red ball, seed: 7}'");
  for (const auto& entry : node) {
    const std::string place = place_in(file, entry.first.Mark());
    if (!entry.first.IsScalar() || !(entry.second.IsScalar() || entry.second.IsNull()))
      throw bad_input(place + ": a field is not one name with a single value", "write lines of the form 'steps: 25'");
    const std::optional<std::string> value =
        entry.second.IsNull() ? std::nullopt : std::optional<std::string>(entry.second.Scalar());
    const OptionSpec* spec = add_field(row, entry.first.Scalar(), value, place);
    row.places[spec->key()] = {mark_of(entry.first.Mark()), mark_of(entry.second.Mark())};
  }
  return row;
}

std::vector<PromptRow> parse_yaml(std::string_view text, const std::string& file) {
  const YAML::Node node = models::load_yaml(std::string(text), file);
  std::vector<PromptRow> rows;
  if (node.IsNull()) return rows;
  if (!node.IsSequence())
    throw bad_input(place_in(file, node.Mark()) + ": this is not a list of rows",
                    "begin each row with '- ', as in '- prompt: a red ball'");
  for (const YAML::Node& row : node) rows.push_back(yaml_row(row, file));
  return rows;
}

std::vector<PromptRow> parse(std::string_view text, SetFormat format, const std::string& file) {
  switch (format) {
    case SetFormat::txt:
      return parse_lines(text, file);
    case SetFormat::jsonl:
      return parse_jsonl(text, file);
    case SetFormat::csv:
      return parse_csv_rows(text, file);
    case SetFormat::yaml:
      return parse_yaml(text, file);
  }
  return {};
}

}  // namespace

SetFormat set_format(const fs::path& file) {
  const std::string extension = file.extension().string();
  if (extension == ".txt") return SetFormat::txt;
  if (extension == ".jsonl") return SetFormat::jsonl;
  if (extension == ".csv") return SetFormat::csv;
  if (extension == ".yaml" || extension == ".yml") return SetFormat::yaml;
  throw bad_file(file, "prompt sets of this kind are not supported",
                 did_you_mean(extension, {".txt", ".jsonl", ".csv", ".yaml"}, "use .txt, .jsonl, .csv or .yaml"));
}

std::optional<SetFormat> parse_set_format(const std::string& text) {
  if (text.empty()) return std::nullopt;
  require_choice("--input-format " + text, text, {"txt", "jsonl", "csv", "yaml"}, "see 'sparsereel batch --help'");
  return set_format("set." + text);
}

SetFormat guess_format(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::string_view line;
  while (line.empty() || line.front() == '#') {
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    if (text.empty()) return SetFormat::txt;
    line = text.substr(0, text.find_first_of("\r\n"));
    line = line.substr(0, line.find_last_not_of(kBlanks) + 1);
    if (line.front() == '#') text.remove_prefix(line.size());
  }
  if (line.front() == '{') return SetFormat::jsonl;
  const bool list_of_objects =
      line.front() == '[' && text.substr(std::min(text.find_first_not_of(kBlanks, 1), text.size())).starts_with('{');
  if (line == "-" || line == "---" || line.starts_with("- ") || list_of_objects) return SetFormat::yaml;
  return is_header(line) ? SetFormat::csv : SetFormat::txt;
}

std::vector<PromptRow> parse_prompt_set(std::string_view text, SetFormat format, const std::string& file) {
  std::vector<PromptRow> rows = parse(checked_text(text, file), format, file);
  for (PromptRow& row : rows) {
    const Place line{.key = {.line = row.line}, .value = {.line = row.line}};
    for (const auto& [key, value] : row.values)
      row.places.try_emplace(key, line);  // keeps the exact places that the .yaml reader has set
    Settings().add(Source::row, row.values, file, row.places);
  }
  return rows;
}

std::vector<PromptRow> read_prompt_set(const fs::path& file, std::optional<SetFormat> format) {
  const std::string name = name_of_input(file);
  if (!format && !is_standard_input(file)) format = set_format(file);
  const std::string text = read_input(file, format == SetFormat::yaml ? kMostYamlBytes : kMostSetBytes);
  if (!format) format = guess_format(checked_text(text, name));
  if (format == SetFormat::yaml && text.size() > kMostYamlBytes)
    throw bad_file(name, "is larger than " + models::mebibytes(kMostYamlBytes),
                   "write the rows as .jsonl or .csv, which may be larger");
  std::vector<PromptRow> rows = parse_prompt_set(text, *format, name);
  if (rows.empty()) throw bad_file(name, "holds no row", "write one prompt on each line, for example");
  return rows;
}

std::vector<std::string> read_prompts(const fs::path& file) {
  std::vector<std::string> prompts;
  for (const PromptRow& row : read_prompt_set(file)) {
    const std::string place = at(name_of_input(file), row.line);
    for (const auto& [key, value] : row.values)
      if (key != "prompt")
        throw bad_input(place + ": " + key + " is given in a row, but this command takes only prompts from a set",
                        "leave it out of the rows, and give it on the command line");
    const auto prompt = row.values.find("prompt");
    if (prompt == row.values.end() || is_blank(prompt->second))
      throw bad_input(place + ": there is no prompt", "give each row one");
    prompts.push_back(prompt->second);
  }
  return prompts;
}

}  // namespace sparsereel::app::sets
