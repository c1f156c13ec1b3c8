// Compares every position of a text with every token: there are few tokens, and prompts are short.
#include "models/text/token_strings.h"

#include "models/files/unicode.h"

namespace sparsereel::models {
namespace {

/// Returns the bytes of white space at the end of `text`.
size_t trailing_white_space(std::string_view text) {
  size_t begin = text.size();
  for (size_t i = text.size(); i-- > 0;) {
    const bool continuation = (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
    if (continuation) continue;
    if (white_space_length(text.substr(i)) == 0) break;
    begin = i;
  }
  return text.size() - begin;
}

}  // namespace

int64_t TokenStrings::find(const std::string& content) const {
  const auto found = tokens_.find(content);
  return found == tokens_.end() ? -1 : found->second.id;
}

/// Returns the longest token that `text` starts with; null if there is none.
const TokenStrings::TokenString* TokenStrings::token_at_start(std::string_view text) const {
  const TokenString* longest = nullptr;
  for (const auto& [content, candidate] : tokens_) {
    if (text.starts_with(content) && (longest == nullptr || content.size() > longest->token.content.size()))
      longest = &candidate;
  }
  return longest;
}

void TokenStrings::split(std::string_view text, std::vector<int64_t>& ids,
                         const std::function<void(std::string_view)>& rest) const {
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const TokenString* found = token_at_start(text.substr(i));
    if (found == nullptr) {
      ++i;
      continue;
    }
    std::string_view before = text.substr(begin, i - begin);
    if (found->token.lstrip) before.remove_suffix(trailing_white_space(before));
    if (!before.empty()) rest(before);
    ids.push_back(found->id);
    i += found->token.content.size();
    while (found->token.rstrip && white_space_length(text.substr(i)) > 0) i += white_space_length(text.substr(i));
    begin = i;
  }
  if (begin < text.size()) rest(text.substr(begin));
}

}  // namespace sparsereel::models
