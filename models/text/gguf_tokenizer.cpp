// Reads and checks the tokenizer's key-values.
#include "models/text/gguf_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hilbert/error.h"
#include "models/files/json_text.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;

class GgufKeys {
 public:
  GgufKeys(const std::map<std::string, std::string>& metadata, const std::string& path)
      : metadata_(metadata), path_(path) {}

  bool flag(const std::string& name) const {
    const json value = read(name);
    if (!value.is_boolean()) throw bad(name, "is not true or false");
    return value.get<bool>();
  }

  /// Returns the list of this name. Throws Error unless `takes` returns true for all of its elements.
  json list(const std::string& name, bool (*takes)(const json&)) const {
    json value = read(name);
    if (!value.is_array() || !std::ranges::all_of(value, takes)) throw bad(name, "is not a list of the expected type");
    return value;
  }

  Error bad(const std::string& name, const std::string& problem) const {
    return bad_input(path_ + ": tokenizer.ggml." + name + " " + problem,
                     "give a separate spiece.model as the tokenizer");
  }

 private:
  json read(const std::string& name) const {
    const auto found = metadata_.find("tokenizer.ggml." + name);
    if (found == metadata_.end()) throw bad(name, "is missing");
    return parse_json_if_valid(found->second);
  }

  const std::map<std::string, std::string>& metadata_;
  const std::string& path_;
};

bool is_byte(const json& value) {
  return value.is_number_integer() && value >= 0 && value <= UINT8_MAX;
}

}  // namespace

SpieceModel parse_gguf_tokenizer(const std::map<std::string, std::string>& metadata, const std::string& path) {
  const GgufKeys keys(metadata, path);
  const json tokens = keys.list("tokens", [](const json&value) { return value.is_string(); }),
             scores = keys.list("scores", [](const json&value) { return value.is_number(); }),
             types = keys.list("token_type", is_byte);
  if (tokens.empty() || scores.size() != tokens.size() || types.size() != tokens.size())
    throw keys.bad("tokens", "differ in number from scores or types");
  SpieceModel model;
  for (size_t i = 0; i < tokens.size(); ++i)
    model.pieces.push_back(
        {tokens[i].get<std::string>(), scores[i].get<float>(), static_cast<PieceType>(types[i].get<uint8_t>())});
  for (const json& byte : keys.list("precompiled_charsmap", is_byte))
    model.precompiled_charsmap += static_cast<char>(byte.get<uint8_t>());
  model.add_dummy_prefix = keys.flag("add_space_prefix");
  model.remove_extra_whitespaces = keys.flag("remove_extra_whitespaces");
  model.byte_fallback = std::ranges::count(model.pieces, PieceType::byte, &Piece::type) > 0;
  return model;
}

}  // namespace sparsereel::models
