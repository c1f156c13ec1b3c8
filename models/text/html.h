// HTML's character references in prompts (HTML 5, section 13.2.5.72 and after).
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace sparsereel::models {

/// Replaces them as Python's html.unescape does: "&amp;", "&#38;", "&#x26;", and names of old that may lack their
/// semicolon, "&ampx". What is no reference stays.
std::u32string unescape_html(std::u32string_view text);
/// The same for those that end in a semicolon and are one as a whole: "a&notin b" stays.
std::u32string unescape_whole_references(std::u32string_view text);

/// The same until none is left, of those too that come about by it: "&amp;lt;" is "<". `usual`: makes of the text of a
/// reference what is to stand there. Takes time in proportion to the text, however deep they are nested.
std::u32string unescape_nested_references(std::u32string_view text,
                                          const std::function<std::u32string(std::u32string)>& usual);

/// What Windows-1252 has for a control character of U+0080 to U+009F, or the same where it has none.
char32_t windows_1252(char32_t control);

}  // namespace sparsereel::models
