// A SentencePiece model's table of text replacements (NFKC, white space). It is checked here and applied by
// SentencePiece.
#pragma once

#include <string>
#include <string_view>

namespace sparsereel::models {

/// Checks a `charsmap`. It holds the size of a trie in bytes (u32, little-endian), the trie's units (u32), and
/// replacements that each end in NUL. An empty charsmap replaces nothing. The trie is a double array of UTF-8 strings
/// (github.com/s-yata/darts-clone) whose values point at replacements. SentencePiece follows it without checking
/// bounds. Throws Error naming `path` if a text could lead it out of the trie, to no replacement, or through more
/// matches than it has room for.
void check_charsmap(std::string_view charsmap, const std::string& path);

}  // namespace sparsereel::models
