// HTML's character references in prompts (HTML 5, section 13.2.5.72 and after).
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace sparsereel::models {

/// Replaces references as Python's html.unescape does: "&amp;", "&#38;", "&#x26;", and old names that may lack their
/// semicolon, "&ampx". Text that is no reference stays.
std::u32string unescape_html(std::u32string_view text);
/// Replaces only references that end in a semicolon and are complete: "a&notin b" stays.
std::u32string unescape_whole_references(std::u32string_view text);

/// Replaces whole references until no reference is left, including references that a replacement creates: "&amp;lt;"
/// becomes "<". `usual` transforms the text of each reference before it is inserted. The time is proportional to the
/// text, however deep references are nested.
std::u32string unescape_nested_references(std::u32string_view text,
                                          const std::function<std::u32string(std::u32string)>& usual);

/// Returns the Windows-1252 character for a control character U+0080 to U+009F, or `control` itself if there is none.
char32_t windows_1252(char32_t control);

}  // namespace sparsereel::models
