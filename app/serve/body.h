// Reads the body of a request for a video: JSON or the parts of a form. No torch.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "app/options/option_table.h"
#include "app/serve/http.h"

namespace sparsereel::app::serve {

/// A video as a client asks for it.
struct AskedVideo {
  std::string model;                            // empty if the client names none
  std::map<std::string, std::string> values;    // by option key
  std::map<std::string, std::string> pictures;  // bytes of the picture's file, by option key: "image", "last_image"
};

/// The name by which requests and errors call an option: "input_reference" for "image".
std::string field_name(const std::string& option);

/// Reads a JSON object. Throws Error naming the field (ErrorSubject::field) if a field is unknown, has a value of the
/// wrong kind, or names an image by anything but a data URL.
AskedVideo parse_json_body(std::string_view text);

/// Reads the parts of a form. Throws like parse_json_body().
AskedVideo parse_form(const std::vector<HttpPart>& parts);

/// Returns the bytes of a data URL of an image: "data:image/png;base64,...". Throws Error naming the field.
std::string decode_data_url(std::string_view url, const std::string& field);

}  // namespace sparsereel::app::serve
