// Prompts cleaned before a tokenizer sees them, for models whose reference does so.
#pragma once

#include <string>

namespace sparsereel::models {

/// What diffusers' pipelines make of a prompt with prompt_clean(): ftfy's fix_text (https://ftfy.readthedocs.org),
/// html.unescape twice, and each run of white space as one space, none at the ends. Of ftfy: character references,
/// Windows-1252 in place of control characters, Latin ligatures, fullwidth and halfwidth forms, curly quotes, line
/// breaks, terminal escapes, control characters, normal form C. Left out are its repair of text that was decoded in a
/// wrong encoding ("Ã©" stays) and names of references in capitals ("&EACUTE;"). `text`: UTF-8.
std::string clean_prompt(const std::string& text);

/// Python's lower() and strip(): every character in lower case by Unicode's own mapping (a capital sigma at a word's
/// end as any other, which Python writes as a final one), without white space at the ends. `text`: UTF-8.
std::string lower_prompt(const std::string& text);

/// Of the cleaning of captions that DeepFloyd IF's pipeline in diffusers has, twice as there: several full stops in a
/// row, and one between white space, are a space; each run of white space is one, none at the ends. `text`: UTF-8.
std::string without_stray_full_stops(const std::string& text);

}  // namespace sparsereel::models
