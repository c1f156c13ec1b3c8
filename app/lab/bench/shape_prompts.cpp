// Finds the words of each trait in prompts, for the classifier.
#include "app/lab/bench/classifier.h"

#include <algorithm>
#include <cctype>
#include <regex>

namespace sparsereel::app::bench {
namespace {

struct Value {
  std::string name;
  std::vector<std::string> words;  // the words for this value in prompts
};

const std::array<std::vector<Value>, kTraits>& vocabulary() {
  static const std::array<std::vector<Value>, kTraits> values = {{
      {{"circle", {"circle", "ball", "disc"}},
       {"square", {"square", "box", "block"}},
       {"triangle", {"triangle"}},
       {"ring", {"ring", "hoop", "donut"}},
       {"star", {"star"}}},
      {{"red", {"red"}},
       {"orange", {"orange"}},
       {"yellow", {"yellow"}},
       {"green", {"green"}},
       {"blue", {"blue"}},
       {"purple", {"purple"}},
       {"white", {"white"}},
       {"black", {"black"}}},
      {{"white", {}}, {"black", {}}, {"gray", {}}, {"blue", {}}, {"green", {}}, {"yellow", {}}},
      {{"right",
        {"moving right", "moves right", "moving to the right", "moves to the right", "sliding to the right",
         "slides to the right", "moving from left to right", "moves from left to right", "sliding right",
         "slides right"}},
       {"left",
        {"moving left", "moves left", "moving to the left", "moves to the left", "sliding to the left",
         "slides to the left", "moving from right to left", "moves from right to left", "sliding left", "slides left"}},
       {"up",
        {"moving up", "moves up", "rising", "rises", "moving upwards", "moves upwards", "floating up", "floats up"}},
       {"down",
        {"moving down", "moves down", "falling", "falls", "moving downwards", "moves downwards", "falling down",
         "falls down"}},
       {"grow", {"growing", "grows", "getting bigger", "gets bigger", "growing larger", "grows larger"}},
       {"shrink", {"shrinking", "shrinks", "getting smaller", "gets smaller"}},
       {"spin", {"spinning", "spins", "rotating", "rotates", "turning around", "turns around"}},
       {"still", {"standing still", "stands still", "not moving", "does not move", "resting", "rests"}}},
  }};
  return values;
}

constexpr size_t kBackground = 2;

/// Returns the prompt in lower case, without full stops and commas, and with one space before and after each word.
std::string plain(const std::string& prompt) {
  std::string text = " ";
  for (const char c : prompt + " ") {
    const bool gap = c == ' ' || c == '.' || c == ',';
    if (gap && text.back() == ' ') continue;
    text += gap ? ' ' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

/// Finds a phrase like "on a blue background", returns the index of its color, and removes it from the text, because
/// this color is not the color of the shape.
int take_background(std::string& text) {
  const std::vector<Value>& backgrounds = vocabulary()[kBackground];
  int found = -1;
  for (size_t i = 0; i < backgrounds.size(); ++i) {
    const std::regex phrase(" (on|against|in front of)( an?)? " + backgrounds[i].name + "( background| wall)? ");
    if (!std::regex_search(text, phrase)) continue;
    text = std::regex_replace(text, phrase, " ");
    found = static_cast<int>(i);
  }
  return found;
}

bool says(const std::string& text, const Value& value) {
  return std::any_of(value.words.begin(), value.words.end(),
                     [&](const std::string& word) { return text.find(" " + word + " ") != std::string::npos; });
}

}  // namespace

size_t trait_values(size_t trait) {
  return vocabulary().at(trait).size();
}

Traits traits_of(const std::string& prompt) {
  std::string text = plain(prompt);
  Traits traits = {-1, -1, -1, -1};
  traits[kBackground] = take_background(text);
  for (size_t trait = 0; trait < kTraits; ++trait) {
    const std::vector<Value>& values = vocabulary()[trait];
    for (size_t i = 0; i < values.size(); ++i)
      if (says(text, values[i])) traits[trait] = static_cast<int>(i);
  }
  return traits;
}

}  // namespace sparsereel::app::bench
