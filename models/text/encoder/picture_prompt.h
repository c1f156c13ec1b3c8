// Puts pictures before a prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/request/conditioning.h"
#include "models/text/encoder/text_vision.h"

namespace sparsereel::models {

struct PicturePrompt {
  std::vector<int64_t> ids = {};
  std::vector<TextSpan> pictures = {};  // for each picture, the span of its tokens and the marks around them
};

/// Converts a text to ids without an end token.
using EncodeText = std::function<std::vector<int64_t>(const std::string& text)>;

/// Returns the ids of "<Picture 1>: " and of the first picture between its marks, then the same for each further
/// picture, then the ids of the prompt. Sets TextPicture::first of each picture. Without pictures these are the ids of
/// the prompt.
PicturePrompt prompt_with_pictures(const EncodeText& encode, const std::string& prompt,
                                   std::vector<TextPicture>& pictures, const PictureMarks& marks);

}  // namespace sparsereel::models
