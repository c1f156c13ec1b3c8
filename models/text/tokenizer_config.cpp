// Collects the strings that are tokens, as transformers does, from the files that its older and newer versions write.
#include "models/text/tokenizer_config.h"

#include <algorithm>
#include <map>

#include "hilbert/error.h"
#include "models/store/checkpoint/checkpoint.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;

constexpr const char* kNamedTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};

Error bad_field(const std::filesystem::path& file, const std::string& field, const std::string& problem) {
  return bad_input(file.string() + ": " + field + " " + problem,
                   "use the tokenizer folder that was published with the model");
}

json read_if_present(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return json::object();
  json content = read_json(file);
  if (!content.is_object()) throw bad_field(file, "the content", "is not an object");
  return content;
}

/// Parses a token: a string, or an object with its content and the way to match it.
AddedToken parse_token(const json& value, const std::filesystem::path& file, const std::string& field) {
  AddedToken token;
  if (value.is_string()) {
    token.content = value.get<std::string>();
    return token;
  }
  if (!value.is_object() || !value.contains("content") || !value["content"].is_string()) {
    throw bad_field(file, field, "is neither a string nor an object with a string \"content\"");
  }
  token.content = value["content"].get<std::string>();
  const std::string prefix = field + ".";
  for (const auto& [key, flag] : value.items()) {
    if (key == "content" || key == "__type") continue;
    if (!flag.is_boolean()) throw bad_field(file, prefix + key, "is not true or false");
    if (key == "lstrip") token.lstrip = flag.get<bool>();
    if (key == "rstrip") token.rstrip = flag.get<bool>();
    if (key == "normalized") token.normalized = flag.get<bool>();
    if (key == "single_word" && flag.get<bool>())
      throw bad_field(file, prefix + key, "is true, which is not supported");
  }
  return token;
}

void refuse_unless(const json& config, const std::filesystem::path& file, const std::string& field,
                   const json& supported) {
  if (config.contains(field) && config[field] != supported) {
    throw bad_field(file, field, "is " + config[field].dump() + "; only " + supported.dump() + " is supported");
  }
}

class ConfigReader {
 public:
  ConfigReader(const std::filesystem::path& folder, const DefaultTokens& defaults)
      : defaults_(defaults),
        config_file_(folder / "tokenizer_config.json"),
        map_file_(folder / "special_tokens_map.json"),
        added_file_(folder / "added_tokens.json") {}

  TokenizerConfig read() {
    const json config = read_if_present(config_file_);
    refuse_unless(config, config_file_, "padding_side", "right");
    refuse_unless(config, config_file_, "truncation_side", "right");
    refuse_unless(config, config_file_, "split_special_tokens", false);
    read_extra_ids(config);
    // Newer configurations list the tokens in added_tokens_decoder. The two older files are then ignored.
    const bool legacy = !config.contains("added_tokens_decoder");
    const json map = legacy ? read_if_present(map_file_) : json::object();
    read_named_tokens(config, map);
    const std::vector<AddedToken> extra = extra_tokens(config, map);
    if (legacy) {
      add_legacy_tokens();
    } else {
      add_listed_tokens(config["added_tokens_decoder"]);
    }
    for (const char* name : kNamedTokens) {
      if (const auto token = named_.find(name); token != named_.end()) add(token->second);
    }
    for (const AddedToken& token : extra) add(token);
    return result_;
  }

 private:
  void add(const AddedToken& token) {
    if (token.content.empty()) return;
    const auto same = [&](const AddedToken& known) { return known.content == token.content; };
    if (std::none_of(result_.tokens.begin(), result_.tokens.end(), same)) result_.tokens.push_back(token);
  }

  void read_extra_ids(const json& config) {
    if (!config.contains("extra_ids")) return;
    const json& count = config["extra_ids"];
    if (!count.is_number_integer() || count < 0 || count > 100000)
      throw bad_field(config_file_, "extra_ids", "is not a count");
    result_.extra_ids = count.get<int64_t>();
  }

  void read_named_tokens(const json& config, const json& map) {
    named_["eos_token"].content = defaults_.eos;
    named_["unk_token"].content = defaults_.unknown;
    named_["pad_token"].content = defaults_.padding;
    for (const char* name : kNamedTokens) {
      if (config.contains(name) && !config[name].is_null())
        named_[name] = parse_token(config[name], config_file_, name);
      if (map.contains(name) && !map[name].is_null()) named_[name] = parse_token(map[name], map_file_, name);
    }
    result_.eos_token = named_.at("eos_token").content;
    result_.pad_token = named_.at("pad_token").content;
  }

  std::vector<AddedToken> extra_tokens(const json& config, const json& map) {
    std::vector<AddedToken> extra;
    const auto append = [&](const json& source, const std::filesystem::path& file, const std::string& field) {
      if (!source.contains(field) || source[field].is_null()) return;
      if (!source[field].is_array()) throw bad_field(file, field, "is not a list");
      for (const json& token : source[field]) extra.push_back(parse_token(token, file, field));
    };
    append(config, config_file_, "extra_special_tokens");
    if (extra.empty()) append(config, config_file_, "additional_special_tokens");
    append(map, map_file_, "additional_special_tokens");
    append(map, map_file_, "extra_special_tokens");
    return extra;
  }

  /// Reads added_tokens_decoder, which maps ids to tokens. The ids only determine the order of the tokens.
  void add_listed_tokens(const json& decoder) {
    if (!decoder.is_object()) throw bad_field(config_file_, "added_tokens_decoder", "is not an object");
    std::map<int64_t, AddedToken> by_id;
    for (const auto& [id, token] : decoder.items()) {
      const std::string field = "added_tokens_decoder." + id;
      if (id.empty() || id.size() > 9 || id.find_first_not_of("0123456789") != std::string::npos)
        throw bad_field(config_file_, field, "is not an id");
      AddedToken& listed = by_id[std::stoll(id)] = parse_token(token, config_file_, field);
      listed.stated_id = std::stoll(id);
    }
    for (const auto& [id, token] : by_id) add(token);
  }

  /// Reads added_tokens.json, which maps the content of tokens to ids.
  void add_legacy_tokens() {
    std::map<int64_t, AddedToken> by_id;
    const json added = read_if_present(added_file_);
    for (const auto& [content, id] : added.items()) {
      if (!id.is_number_integer()) throw bad_field(added_file_, content, "is not an id");
      by_id[id.get<int64_t>()] = {.content = content, .stated_id = id.get<int64_t>()};
    }
    for (const auto& [id, token] : by_id) add(token);
  }

  DefaultTokens defaults_;
  std::filesystem::path config_file_, map_file_, added_file_;
  std::map<std::string, AddedToken> named_;
  TokenizerConfig result_;
};

}  // namespace

TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder, const DefaultTokens& defaults) {
  return ConfigReader(folder, defaults).read();
}

}  // namespace sparsereel::models
