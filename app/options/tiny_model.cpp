// Finds the tiny model, and the words and sizes in requests on which it was not trained.
#include "app/options/tiny_model.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "app/counted.h"
#include "hilbert/lower_case.h"
#include "models/files/unicode.h"
#include "models/store/configs/data_folder.h"
#include "models/text/tokenizer.h"

namespace sparsereel::app {
namespace {

namespace fs = std::filesystem;

/// Returns true for words that the tiny model was trained on. The tokenizer makes one token of each; it splits other
/// words into letters.
bool knows(const models::Tokenizer& tokenizer, const std::string& word) {
  constexpr int64_t kRoom = 8;
  return tokenizer.encode(word, kRoom).token_count <= 2;  // the word and the end-of-text token
}

/// Returns the word in lower case, without the punctuation around it.
std::string bare(std::string word) {
  const auto no_letter = [](unsigned char c) { return c < 0x80 && std::isalnum(c) == 0; };
  word.erase(word.begin(), std::find_if_not(word.begin(), word.end(), no_letter));
  word.erase(std::find_if_not(word.rbegin(), word.rend(), no_letter).base(), word.end());
  return lower_case(std::move(word));
}

bool is_tiny(const fs::path& model) {
  std::error_code error;
  return fs::equivalent(model, tiny_model(), error) && !error;
}

/// Returns the word, or only the beginning of a very long word.
std::string shortened(const std::string& word) {
  constexpr size_t kLongest = 40;
  const std::string_view begin = models::whole_characters(word, kLongest);
  return std::string(begin) + (begin.size() < word.size() ? "..." : "");
}

}  // namespace

fs::path tiny_model() {
  return models::data_folder() / "assets" / "tiny";
}

std::string unusual_shape_warning(const fs::path& model, const std::vector<VideoShape>& shapes) {
  constexpr int64_t kFrames = 33, kLeast = 192, kMost = 512;  // at these sizes the classifier recognizes its videos
  constexpr int64_t kGainless = int64_t{9} * 128 * 128;  // pixels of a video for which sparse attention gains nothing
  const auto is_unusual = [](const VideoShape& shape) {
    const auto [least, most] = std::minmax(shape.width, shape.height);
    return shape.frames != kFrames || least < kLeast || most > kMost;
  };
  const auto found = std::find_if(shapes.begin(), shapes.end(), is_unusual);
  if (found == shapes.end() || !is_tiny(model)) return {};
  return "the tiny model was trained on 33 frames of 256x256, and can draw 33 frames of 192x192 to 512x512; " +
         counted(found->frames, "frame") + " of " + std::to_string(found->width) + "x" + std::to_string(found->height) +
         " may show something else" +
         (found->frames * found->width * found->height <= kGainless
              ? ", and sparse attention is no faster than full there"
              : "");
}

std::string unknown_words_warning(const fs::path& model, const std::vector<std::string>& prompts) {
  constexpr size_t kShown = 3;
  if (!is_tiny(model)) return {};
  const models::Tokenizer tokenizer = models::Tokenizer::load(model / "tokenizer");
  std::vector<std::string> unknown;
  for (const std::string& prompt : prompts) {
    std::istringstream words(prompt);
    for (std::string word; words >> word && unknown.size() <= kShown;) {
      word = bare(word);
      const bool told = std::find(unknown.begin(), unknown.end(), word) != unknown.end();
      if (!word.empty() && !told && !knows(tokenizer, word)) unknown.push_back(word);
    }
  }
  if (unknown.empty()) return {};
  std::string text;
  for (size_t i = 0; i < std::min(unknown.size(), kShown); ++i) text += (i == 0 ? "" : ", ") + shortened(unknown[i]);
  if (unknown.size() > kShown) text += " ...";
  return "the tiny model knows moving shapes only, such as \"a red circle moving to the right on a blue background\"; "
         "these words mean nothing to it: " +
         text;
}

}  // namespace sparsereel::app
