// A SentencePiece model's table of replacements in text (NFKC, white space): checked here, applied by SentencePiece.
#pragma once

#include <string>
#include <string_view>

namespace sparsereel::models {

/// `charsmap`: size of a trie in bytes (u32, little-endian), the trie's units (u32), then replacements that end in NUL
/// each; empty: nothing is replaced. The trie is a double array of UTF-8 strings (github.com/s-yata/darts-clone) whose
/// values point at replacements. SentencePiece follows it without a look at its bounds. Throws Error naming `path` when
/// some text could lead it out of the trie, to a place that is no replacement, or through more matches than it has room
/// for.
void check_charsmap(std::string_view charsmap, const std::string& path);

}  // namespace sparsereel::models
