// Parses tokenizer.json field by field, and refuses what SentencePiece cannot do.
#include "models/text/tokenizer_json.h"

#include <map>
#include <utility>

#include "hilbert/error.h"
#include "models/files/base64.h"
#include "models/files/json_text.h"
#include "models/files/regular_file.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;

constexpr const char* kRemedy = "put the spiece.model of the same checkpoint into that folder";

class Reader {
 public:
  Reader(const json& file, TokenizerConfig& config, const std::string& path)
      : file_(file), config_(config), path_(path) {}

  SpieceModel read() {
    const json& model = member(file_, "model");
    if (member(model, "type") != "Unigram") throw bad("model.type", "is not \"Unigram\"");
    read_pieces(member(model, "vocab"));
    read_added_tokens(file_.value("added_tokens", json::array()));
    read_normalizer(file_.value("normalizer", json()));
    return std::move(result_);
  }

 private:
  Error bad(const std::string& field, const std::string& problem) const {
    return bad_input(path_ + ": " + field + " " + problem, kRemedy);
  }

  const json& member(const json& object, const std::string& name) const {
    if (!object.is_object() || !object.contains(name)) throw bad(name, "is missing");
    return object[name];
  }

  void read_pieces(const json& vocabulary) {
    if (!vocabulary.is_array()) throw bad("model.vocab", "is not a list");
    for (const json& entry : vocabulary) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
        throw bad("model.vocab", "holds an entry that is not a piece with a score");
      Piece& piece = result_.pieces.emplace_back();
      piece.text = entry[0].get<std::string>();
      piece.score = entry[1].get<float>();
      ids_.emplace(piece.text, result_.pieces.size() - 1);
    }
    if (const auto unknown = ids_.find("<unk>"); unknown != ids_.end())
      result_.pieces[unknown->second].type = PieceType::unknown;
    read_byte_pieces();
  }

  void read_byte_pieces() {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    std::vector<size_t> bytes;
    for (const char high : kDigits) {
      for (const char low : kDigits) {
        const auto found = ids_.find(std::string("<0x") + high + low + ">");
        if (found != ids_.end()) bytes.push_back(found->second);
      }
    }
    result_.byte_fallback = bytes.size() == kDigits.size() * kDigits.size();
    if (!result_.byte_fallback) return;
    for (const size_t id : bytes) result_.pieces[id].type = PieceType::byte;
  }

  /// Reads the added tokens. A token that is a piece must have the piece's id. The ids of the other tokens must follow
  /// those of the pieces.
  void read_added_tokens(const json& list) {
    if (!list.is_array()) throw bad("added_tokens", "is not a list");
    std::map<int64_t, AddedToken> by_id;
    for (const json& entry : list) {
      const json &content = member(entry, "content"), &id = member(entry, "id");
      if (!content.is_string() || !id.is_number_integer())
        throw bad("added_tokens", "holds an entry that is not a token");
      const auto flag = [&](const char* name) { return entry.contains(name) && entry[name] == true; };
      if (flag("single_word")) throw bad("added_tokens", "holds a single_word token, which is not supported");
      by_id[id.get<int64_t>()] = {content.get<std::string>(), flag("lstrip"), flag("rstrip")};
    }
    auto next = static_cast<int64_t>(result_.pieces.size());
    for (const auto& [id, token] : by_id) {
      const auto known = ids_.find(token.content);
      const int64_t expected = known != ids_.end() ? static_cast<int64_t>(known->second) : next++;
      if (id != expected || token.content.empty())
        throw bad("added_tokens", "gives " + in_quotes(token.content) + " the id " + std::to_string(id) + ", not " +
                                      std::to_string(expected));
      if (known == ids_.end()) continue;
      PieceType& type = result_.pieces[known->second].type;
      if (type == PieceType::normal) type = PieceType::control;
    }
    std::vector<AddedToken> tokens;
    for (const auto& [id, token] : by_id) tokens.push_back(token);
    config_.tokens.insert(config_.tokens.begin(), tokens.begin(), tokens.end());
    config_.extra_ids = 0;
  }

  /// Ignores Strip and Replace, because SentencePiece does the same by itself.
  void read_normalizer(const json& normalizer) {
    if (normalizer.is_null()) return;
    const json& type = member(normalizer, "type");
    if (type == "Sequence") {
      for (const json& step : member(normalizer, "normalizers")) read_normalizer(step);
    } else if (type == "Precompiled") {
      const json& table = member(normalizer, "precompiled_charsmap");
      if (!table.is_string()) throw bad("normalizer.precompiled_charsmap", "is not a string");
      auto charsmap = decode_base64(table.get_ref<const std::string&>());
      if (!charsmap) throw bad("normalizer.precompiled_charsmap", "is not base64");
      result_.precompiled_charsmap = *std::move(charsmap);
    } else if (type != "Strip" && type != "Replace") {
      throw bad("normalizer.type", "is " + type.dump() + ", which is not supported");
    }
  }

  const json& file_;
  TokenizerConfig& config_;
  const std::string& path_;
  SpieceModel result_;
  std::map<std::string, size_t> ids_;
};

}  // namespace

SpieceModel parse_tokenizer_json(const json& file, TokenizerConfig& config, const std::string& path) {
  return Reader(file, config, path).read();
}

json read_tokenizer_json(const std::filesystem::path& path) {
  constexpr uint64_t kMost = 64 << 20;  // UMT5's file has 17 MB
  constexpr const char* kDownload = "use the tokenizer folder that was published with the text encoder";
  return parse_json(read_regular_file(path, kMost, kDownload), path.string(), kDownload);
}

}  // namespace sparsereel::models
