// Merges byte pairs by rank with a queue, so that a long word takes n log n steps.
#include "models/text/byte_pairs.h"

#include <algorithm>
#include <array>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "hilbert/error.h"
#include "models/files/json_text.h"
#include "models/files/unicode.h"
#include "models/text/normal_form.h"
#include "models/text/split_words.h"
#include "models/text/token_strings.h"

namespace sparsereel::models {
namespace {

constexpr int kByteCount = 256;

bool is_printable(int byte) {
  return (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
}

Error bad_vocabulary(const std::string& path, const std::string& problem) {
  return bad_input(path + ": " + problem, "use the tokenizer folder that was published with the text encoder");
}

/// A token of a word while its neighbors are merged: a node of a doubly linked list.
struct Symbol {
  int64_t id;          // -1 if the token was merged into the token before it
  int previous, next;  // indices; -1 at the ends
};

struct Merge {
  int64_t rank;
  int64_t id;  // of the joined token
};

class BytePairs final : public TokenModel {
 public:
  BytePairs(const BytePairModel& model, const TokenizerConfig& config, const std::string& path) {
    size_ = pieces_ = std::ssize(model.vocabulary);
    check_ids(model.vocabulary, path);
    for (int byte = 0; byte < kByteCount; ++byte) {
      const std::string symbol = byte_symbol(static_cast<uint8_t>(byte));
      byte_ids_[byte] = id_in(model.vocabulary, symbol);
      if (byte_ids_[byte] < 0)
        throw bad_vocabulary(
            path, "the vocabulary lacks " + in_quotes(symbol) + ", which stands for byte " + std::to_string(byte));
    }
    add_merges(model, path);
    for (const AddedToken& token : config.tokens) add(token, model.vocabulary, path);
    const int64_t padding = id_of(config.pad_token, model.vocabulary);
    padding_id_ = std::max<int64_t>(padding, 0);
  }

  std::vector<int64_t> encode(std::string_view text) const override {
    std::vector<int64_t> ids;
    as_typed_.split(text, ids, [&](std::string_view rest) {
      const std::u32string normal = normal_form_c_of_tokenizers(to_code_points(rest));
      normalized_.split(to_utf8(normal), ids, [&](std::string_view plain) {
        split_words(to_code_points(plain), [&](std::u32string_view word) { add_word(to_utf8(word), ids); });
      });
    });
    return ids;
  }
  std::optional<int64_t> end_id() const override { return std::nullopt; }
  int64_t padding_id() const override { return padding_id_; }
  int64_t size() const override { return size_; }
  int64_t pieces() const override { return pieces_; }

 private:
  using Vocabulary = std::map<std::string, int64_t>;

  static int64_t id_in(const Vocabulary& vocabulary, const std::string& content) {
    const auto found = vocabulary.find(content);
    return found == vocabulary.end() ? -1 : found->second;
  }

  static void check_ids(const Vocabulary& vocabulary, const std::string& path) {
    std::vector<bool> seen(vocabulary.size());
    for (const auto& [content, id] : vocabulary) {
      if (id < 0 || id >= std::ssize(vocabulary) || seen[static_cast<size_t>(id)])
        throw bad_vocabulary(path, in_quotes(content) + " has the id " + std::to_string(id) + ", but the " +
                                       std::to_string(vocabulary.size()) + " tokens must have the ids 0 to " +
                                       std::to_string(vocabulary.size() - 1) + ", each used once");
      seen[static_cast<size_t>(id)] = true;
    }
  }

  void add_merges(const BytePairModel& model, const std::string& path) {
    merges_.reserve(model.merges.size());
    for (const auto& [left, right] : model.merges) {
      const int64_t first = id_in(model.vocabulary, left), second = id_in(model.vocabulary, right);
      const int64_t joined = id_in(model.vocabulary, left + right);
      if (first < 0 || second < 0 || joined < 0)
        throw bad_vocabulary(path, "the vocabulary lacks " +
                                       in_quotes(first < 0    ? left
                                                 : second < 0 ? right
                                                              : left + right) +
                                       ", which a merge needs");
      merges_[key_of(first, second)] = {std::ssize(merges_), joined};
    }
  }

  /// Adds a token, unless one with the same string was added before.
  void add(const AddedToken& token, const Vocabulary& vocabulary, const std::string& path) {
    if (as_typed_.find(token.content) >= 0 || normalized_.find(token.content) >= 0) return;
    const int64_t known = id_in(vocabulary, token.content);
    const int64_t id = known >= 0 ? known : size_++;
    if (token.stated_id >= 0 && token.stated_id != id)
      throw bad_vocabulary(path, "the added token " + in_quotes(token.content) + " gets the id " + std::to_string(id) +
                                     ", but its file states " + std::to_string(token.stated_id));
    if (!token.normalized) return as_typed_.add(token, id);
    AddedToken normal = token;
    normal.content = to_utf8(normal_form_c_of_tokenizers(to_code_points(token.content)));
    normalized_.add(normal, id);
  }

  int64_t id_of(const std::string& content, const Vocabulary& vocabulary) const {
    return std::max({as_typed_.find(content), normalized_.find(content), id_in(vocabulary, content)});
  }

  int64_t key_of(int64_t first, int64_t second) const { return first * pieces_ + second; }

  const Merge* merge_of(int64_t first, int64_t second) const {
    const auto found = merges_.find(key_of(first, second));
    return found == merges_.end() ? nullptr : &found->second;
  }

  /// Adds the ids of a word: the pair with the lowest rank is merged first; of equal pairs, the leftmost.
  void add_word(const std::string& word, std::vector<int64_t>& ids) const {
    std::vector<Symbol> symbols;
    for (const char byte : word) {
      const int index = static_cast<int>(symbols.size());
      symbols.push_back({byte_ids_[static_cast<unsigned char>(byte)], index - 1, index + 1});
    }
    symbols.back().next = -1;
    // Rank, index of the left symbol, id of the joined token.
    using Candidate = std::tuple<int64_t, int, int64_t>;
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
    const auto propose = [&](int left) {
      if (left < 0 || symbols[left].next < 0) return;
      if (const Merge* merge = merge_of(symbols[left].id, symbols[symbols[left].next].id))
        queue.emplace(merge->rank, left, merge->id);
    };
    for (int i = 0; i + 1 < std::ssize(symbols); ++i) propose(i);
    while (!queue.empty()) {
      const auto [rank, left, joined] = queue.top();
      queue.pop();
      Symbol& symbol = symbols[left];
      if (symbol.id < 0 || symbol.next < 0) continue;
      const Merge* merge = merge_of(symbol.id, symbols[symbol.next].id);
      if (merge == nullptr || merge->id != joined) continue;  // a neighbor has changed since
      Symbol& gone = symbols[symbol.next];
      symbol.id = joined;
      symbol.next = gone.next;
      gone.id = -1;
      if (symbol.next >= 0) symbols[symbol.next].previous = left;
      propose(symbol.previous);
      propose(left);
    }
    for (const Symbol& symbol : symbols)
      if (symbol.id >= 0) ids.push_back(symbol.id);
  }

  std::array<int64_t, kByteCount> byte_ids_{};
  std::unordered_map<int64_t, Merge> merges_;  // by key_of()
  TokenStrings as_typed_, normalized_;         // added tokens to find before and after normalization
  int64_t pieces_ = 0, size_ = 0, padding_id_ = 0;
};

}  // namespace

std::string byte_symbol(uint8_t byte) {
  char32_t code = byte;
  if (!is_printable(byte)) {
    code = kByteCount;
    for (int before = 0; before < byte; ++before) code += is_printable(before) ? 0 : 1;
  }
  return to_utf8({&code, 1});
}

std::unique_ptr<TokenModel> make_byte_pairs(const BytePairModel& model, const TokenizerConfig& config,
                                            const std::string& path) {
  return std::make_unique<BytePairs>(model, config, path);
}

}  // namespace sparsereel::models
