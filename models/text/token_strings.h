// Finds strings that are single tokens wherever they occur in a text.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/tokenizer_config.h"

namespace sparsereel::models {

class TokenStrings {
 public:
  /// Adds a token, unless one with the same string was added before.
  void add(const AddedToken& token, int64_t id) { tokens_.emplace(token.content, TokenString{token, id}); }
  /// Returns the id of a string; -1 if it is none of the tokens.
  int64_t find(const std::string& content) const;
  /// Splits `text` at the tokens, in order. If several tokens begin at the same position, the longest is taken. The
  /// tokens' ids go to `ids`, the text between them to `rest`.
  void split(std::string_view text, std::vector<int64_t>& ids, const std::function<void(std::string_view)>& rest) const;

 private:
  struct TokenString {
    AddedToken token;
    int64_t id = 0;
  };

  const TokenString* token_at_start(std::string_view text) const;

  std::map<std::string, TokenString> tokens_;  // by content
};

}  // namespace sparsereel::models
