// Parses vocabularies and merges, and refuses steps that byte_pairs.h does not do.
#include "models/text/byte_pair_files.h"

#include <map>
#include <utility>

#include "hilbert/error.h"
#include "models/files/json_text.h"
#include "models/files/regular_file.h"
#include "models/text/split_words.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;

constexpr const char* kFolderRemedy = "use the tokenizer folder that was published with the text encoder";
constexpr const char *kVocabulary = "vocab.json", *kMerges = "merges.txt";
constexpr uint64_t kMostBytes = 64 << 20;  // limit for each file; Qwen3's vocab.json takes 3 MB
/// The default tokens of the class Qwen2Tokenizer of transformers.
constexpr DefaultTokens kDefaults = {"<|endoftext|>", "<|endoftext|>", "<|endoftext|>"};

bool is_id(const json& value) {
  return value.is_number_integer() && value >= 0;
}

class BytePairReader {
 public:
  BytePairReader(const json& file, TokenizerConfig& config, const std::string& path)
      : file_(file), config_(config), path_(path) {}

  BytePairModel read() {
    const json& model = member(file_, "model");
    if (member(model, "type") != "BPE") throw bad("model.type", "is not \"BPE\"");
    for (const char* field : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"})
      check_off(model, field);
    for (const char* field : {"fuse_unk", "byte_fallback", "ignore_merges"}) check_off(model, field);
    check_steps();
    BytePairModel result;
    result.vocabulary = vocabulary_of(member(model, "vocab"), path_, "model.vocab");
    read_merges(member(model, "merges"), result);
    read_added_tokens(file_.value("added_tokens", json::array()));
    return result;
  }

  /// Returns the ids of a vocabulary. Errors name `path` and `field`.
  static std::map<std::string, int64_t> vocabulary_of(const json& vocabulary, const std::string& path,
                                                      const std::string& field) {
    std::map<std::string, int64_t> ids;
    if (!vocabulary.is_object()) throw bad_input(path + ": " + field + " is not an object", kFolderRemedy);
    for (const auto& [content, id] : vocabulary.items()) {
      if (!is_id(id)) throw bad_input(path + ": " + field + " gives " + in_quotes(content) + " no id", kFolderRemedy);
      ids[content] = id.get<int64_t>();
    }
    return ids;
  }

 private:
  Error bad(const std::string& field, const std::string& problem) const {
    return bad_input(path_ + ": " + field + " " + problem, kFolderRemedy);
  }

  const json& member(const json& object, const std::string& name) const {
    if (!object.is_object() || !object.contains(name)) throw bad(name, "is missing");
    return object[name];
  }

  /// Throws Error unless the field is missing, null, empty or false.
  void check_off(const json& model, const char* field) const {
    const json value = model.value(field, json());
    if (!value.is_null() && value != "" && value != false)
      throw bad(std::string("model.") + field, "is " + value.dump() + ", which is not supported");
  }

  void check_steps() const {
    const json expected_split = {{"type", "Split"},
                                 {"pattern", {{"Regex", std::string(kWordPattern)}}},
                                 {"behavior", "Isolated"},
                                 {"invert", false}};
    if (member(file_, "normalizer") != json{{"type", "NFC"}}) throw bad("normalizer", "is not {\"type\":\"NFC\"}");
    const json& steps = member(file_, "pre_tokenizer");
    const json list = steps.is_object() ? steps.value("pretokenizers", json()) : json();
    if (!list.is_array() || list.size() != 2 || list[0] != expected_split)
      throw bad("pre_tokenizer", "does not split words by the expression that is supported, and then into bytes");
    if (!list[1].is_object() || list[1].value("type", json()) != "ByteLevel" ||
        list[1].value("use_regex", json(true)) != false || list[1].value("add_prefix_space", json(true)) != false)
      throw bad("pre_tokenizer", "has a second step that is not ByteLevel without use_regex and add_prefix_space");
  }

  /// Reads merges: "a b", or since tokenizers 0.20 ["a", "b"].
  void read_merges(const json& merges, BytePairModel& result) const {
    if (!merges.is_array()) throw bad("model.merges", "is not a list");
    for (const json& merge : merges) {
      if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        result.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
        continue;
      }
      const std::string text = merge.is_string() ? merge.get<std::string>() : "";
      const size_t space = text.find(' ');
      if (space == std::string::npos) throw bad("model.merges", "holds an entry that is not a pair");
      result.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
  }

  void read_added_tokens(const json& list) {
    if (!list.is_array()) throw bad("added_tokens", "is not a list");
    std::map<int64_t, AddedToken> by_id;
    for (const json& entry : list) {
      const json &content = member(entry, "content"), &id = member(entry, "id");
      if (!content.is_string() || content == "" || !is_id(id))
        throw bad("added_tokens", "holds an entry that is not a token");
      const auto flag = [&](const char* name) { return entry.contains(name) && entry[name] == true; };
      if (flag("single_word")) throw bad("added_tokens", "holds a single_word token, which is not supported");
      by_id[id.get<int64_t>()] = {content.get<std::string>(), flag("lstrip"), flag("rstrip"), flag("normalized"),
                                  id.get<int64_t>()};
    }
    std::vector<AddedToken> tokens;
    for (const auto& [id, token] : by_id) tokens.push_back(token);
    config_.tokens.insert(config_.tokens.begin(), tokens.begin(), tokens.end());
  }

  const json& file_;
  TokenizerConfig& config_;
  const std::string& path_;
};

}  // namespace

BytePairModel parse_byte_pairs(const json& vocabulary, std::string_view merges, const std::string& vocab_path,
                               const std::string& merges_path) {
  BytePairModel result;
  result.vocabulary = BytePairReader::vocabulary_of(vocabulary, vocab_path, "the content");
  for (int64_t number = 1; !merges.empty(); ++number) {
    std::string_view line = merges.substr(0, merges.find('\n'));
    merges.remove_prefix(std::min(line.size() + 1, merges.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      throw bad_input(merges_path + ":" + std::to_string(number) + ": " + in_quotes(line) + " is not a pair",
                      kFolderRemedy);
    result.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return result;
}

BytePairModel parse_byte_pair_json(const json& file, TokenizerConfig& config, const std::string& path) {
  return BytePairReader(file, config, path).read();
}

bool is_byte_pair_json(const json& file) {
  const json model = file.is_object() ? file.value("model", json()) : json();
  return model.is_object() && model.value("type", json()) == "BPE";
}

bool is_byte_pair_file(const std::filesystem::path& file) {
  return file.filename() == kVocabulary || file.filename() == kMerges;
}

std::unique_ptr<TokenModel> byte_pairs_of_json(const json& content, const std::filesystem::path& file) {
  TokenizerConfig config = read_tokenizer_config(file.parent_path(), kDefaults);
  const BytePairModel model = parse_byte_pair_json(content, config, file.string());
  return make_byte_pairs(model, config, file.string());
}

std::unique_ptr<TokenModel> read_byte_pairs(const std::filesystem::path& folder) {
  const std::filesystem::path vocabulary = folder / kVocabulary, merges = folder / kMerges;
  const json ids =
      parse_json(read_regular_file(vocabulary, kMostBytes, kFolderRemedy), vocabulary.string(), kFolderRemedy);
  const std::string lines = read_regular_file(merges, kMostBytes, kFolderRemedy);
  const BytePairModel model = parse_byte_pairs(ids, lines, vocabulary.string(), merges.string());
  return make_byte_pairs(model, read_tokenizer_config(folder, kDefaults), vocabulary.string());
}

}  // namespace sparsereel::models
