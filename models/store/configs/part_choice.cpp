// Ranks files for a part, and compares tokenizers with a text encoder.
#include "models/store/configs/part_choice.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "hilbert/error.h"
#include "models/files/sha256.h"
#include "models/store/configs/expert_pairs.h"
#include "models/text/tokenizer.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

/// A text encoder has enough bits per weight if it has at least this fraction of the transformer's. The fraction is
/// below 1, because two files of one format may differ a little, for example if one of them has biases in fp32.
constexpr double kAlmost = 0.9;

/// Returns how badly a part's number of bits per weight suits the transformer's; smaller is better.
double cost_of_bits(const FoundPart& part, const FoundPart& transformer) {
  const bool is_encoder = part.role == "text_encoder";
  const bool is_enough = part.format.bits >= kAlmost * transformer.format.bits;
  constexpr double kMostBits = 64;
  return is_encoder && is_enough ? part.format.bits : kMostBits - part.format.bits;
}

auto rank_of(const FoundPart& part, const FoundPart& transformer, bool needs_tokenizer) {
  const bool is_encoder = part.role == "text_encoder";
  const bool too_few_bits = is_encoder && part.format.bits < kAlmost * transformer.format.bits;
  return std::tuple(part.file != transformer.file, is_encoder && needs_tokenizer && !part.has_tokenizer, too_few_bits,
                    std::lround(cost_of_bits(part, transformer)), folders_between(part.file, transformer.file),
                    part.file);
}

/// Returns true if the tokenizer has as many pieces as the encoder's vocabulary, or somewhat fewer: encoders pad the
/// vocabulary to a round number. Fewer than half means another tokenizer.
bool fits_vocabulary(const Tokenizer& tokenizer, const Sizes& encoder) {
  const auto vocabulary = encoder.find("vocab_size");
  return vocabulary == encoder.end() ||
         (tokenizer.pieces() <= vocabulary->second && tokenizer.pieces() >= vocabulary->second / 2);
}

}  // namespace

FoundPart best_part(std::vector<FoundPart> parts, const FoundPart& transformer, bool needs_tokenizer) {
  return *std::ranges::min_element(parts, {},
                                   [&](const FoundPart& part) { return rank_of(part, transformer, needs_tokenizer); });
}

std::vector<fs::path> fitting_tokenizers(const std::vector<fs::path>& folders, const Sizes& encoder) {
  if (folders.size() <= 1) return folders;  // if the tokenizer does not fit, opening it gives a better error
  std::vector<fs::path> fitting;
  std::set<std::string> contents;
  for (const fs::path& folder : folders) {
    try {
      std::string content;
      for (const fs::path& file : files_of(TokenizerPlace{folder})) content += sha256_of_file(file);
      if (fits_vocabulary(Tokenizer::load(folder), encoder) && contents.insert(content).second)
        fitting.push_back(folder);
    } catch (const Error&) {  // not a tokenizer that this program reads
    }
  }
  return fitting;
}

}  // namespace sparsereel::models
