// Joins labels, pictures and a prompt.
#include "models/text/encoder/picture_prompt.h"

namespace sparsereel::models {

PicturePrompt prompt_with_pictures(const EncodeText& encode, const std::string& prompt,
                                   std::vector<TextPicture>& pictures, const PictureMarks& marks) {
  PicturePrompt result;
  std::vector<int64_t>& ids = result.ids;
  const auto add = [&](const std::string& text) {
    const std::vector<int64_t> more = encode(text);
    ids.insert(ids.end(), more.begin(), more.end());
  };
  for (size_t i = 0; i < pictures.size(); ++i) {
    TextPicture& picture = pictures[i];
    add("<Picture " + std::to_string(i + 1) + ">: ");
    const int64_t begin = std::ssize(ids), tokens = picture.rows * picture.columns;
    ids.push_back(marks.begin);
    picture.first = std::ssize(ids);
    ids.insert(ids.end(), static_cast<size_t>(tokens), marks.picture);
    ids.push_back(marks.end);
    result.pictures.push_back({.first = begin, .count = tokens + 2});
  }
  add(prompt);
  return result;
}

}  // namespace sparsereel::models
