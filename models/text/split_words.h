// Splits text into the words within which byte pairs are merged.
#pragma once

#include <functional>
#include <string_view>

namespace sparsereel::models {

/// The expression that split_words() follows, as tokenizer.json spells it.
inline constexpr std::string_view kWordPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Calls `word` with each match of kWordPattern, in order. Every character belongs to one match.
void split_words(std::u32string_view text, const std::function<void(std::u32string_view)>& word);

}  // namespace sparsereel::models
