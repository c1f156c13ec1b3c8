// Text normalisation (NFKC, white space) by a SentencePiece model's table, as transformers applies it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::models {

/// The table: a double-array trie of UTF-8 strings (darts-clone: github.com/s-yata/darts-clone) whose values point at
/// replacements.
class Normalizer {
 public:
  /// `charsmap`: size of the trie in bytes (u32, little-endian), the trie's units (u32), then replacements ending in
  /// NUL each; empty: nothing is ever replaced. Throws Error naming `path` when the sizes do not fit, or a replacement
  /// is not UTF-8: what normalize() returns is cut into characters without another look.
  Normalizer(std::string_view charsmap, const std::string& path);

  /// `text` is well-formed UTF-8. A grapheme cluster under 6 bytes that starts with a string of the table becomes the
  /// replacement of the SHORTEST such string, what follows in the cluster is lost; otherwise each character is replaced
  /// on its own. SentencePiece itself takes the longest match anywhere: the two differ on stacked accents, for
  /// instance.
  std::string normalize(std::string_view text) const;

 private:
  /// Replacement of the shortest string of the table that `text` starts with; nullptr where there is none, or where the
  /// table points outside of the replacements or into the middle of a character.
  const char* find(std::string_view text) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace sparsereel::models
