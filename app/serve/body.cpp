// Turns bodies into option values. Each value is checked separately, so that the error can name its field.
#include "app/serve/body.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "app/options/nearest.h"
#include "app/options/text_file.h"
#include "hilbert/error.h"
#include "models/files/base64.h"
#include "models/files/json_text.h"

namespace sparsereel::app::serve {
namespace {

constexpr size_t kMostTextBytes = 64 << 10;  // of one field: the server keeps it in memory and sends it to every client
constexpr const char* kSeeOptions = "see /v1/options for the fields";

/// The fields of images, and the options that they stand for.
constexpr std::array<std::pair<const char*, const char*>, 2> kPictures = {
    {{"input_reference", "image"}, {"last_frame", "last_image"}}};

const char* picture_option(const std::string& field) {
  const auto found = std::ranges::find(kPictures, field, [](const auto& each) { return std::string(each.first); });
  return found == kPictures.end() ? nullptr : found->second;
}

std::string remedy_of_unknown(const std::string& name) {
  std::vector<std::string> names = {"model", "input_reference", "last_frame"};
  for (const OptionSpec& option : option_table())
    if (is_request_field(option)) names.push_back(option.key());
  return did_you_mean(name, names, kSeeOptions);
}

/// Returns the client's name for a field, in quotes if the name is empty, long or has unusual characters.
std::string shown_name(const std::string& name) {
  constexpr std::string_view kUsual = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.[]";
  const bool is_usual = !name.empty() && name.size() <= 64 && name.find_first_not_of(kUsual) == std::string::npos;
  return is_usual ? name : models::in_quotes(name);
}

void add_value(AskedVideo& asked, std::string name, const std::string& text) {
  std::ranges::replace(name, '-', '_');
  if (text.size() > kMostTextBytes)
    throw bad_option(shown_name(name), "has more than " + std::to_string(kMostTextBytes >> 10U) + " KiB", "shorten it");
  if (name == "model") {
    asked.model = text;
    return;
  }
  const OptionSpec* option = find_option(name);
  if (option == nullptr || !is_request_field(*option))
    throw bad_option(shown_name(name), "is not a field of a video", remedy_of_unknown(name));
  const std::string checked(checked_text(text, name));
  try {
    const bool is_name = option->kind() == ValueKind::file || option->kind() == ValueKind::loras;
    if (!is_name) program_options().words().check(option->option, option->key() + " " + checked, checked);
  } catch (const Error& error) {
    throw Error(error.kind(), std::string(error.what()).substr(option->key().size() + 1), kSeeOptions,
                {.field = option->key()});
  }
  if (!asked.values.emplace(option->key(), checked).second)
    throw bad_option(option->key(), "is given twice", "give it once");
}

void add_picture(AskedVideo& asked, const std::string& field, std::string bytes) {
  if (bytes.empty()) throw bad_option(field, "is empty", "send a picture, or leave it out");
  if (!asked.pictures.emplace(picture_option(field), std::move(bytes)).second)
    throw bad_option(field, "is given twice", "send one picture");
}

std::string text_of_scalar(const nlohmann::json& value, const std::string& name) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  throw bad_option(name, "is neither a text nor a number", kSeeOptions);
}

std::string text_of_value(const nlohmann::json& value, const std::string& name) {
  if (!value.is_array()) return text_of_scalar(value, name);
  std::string all;
  for (const nlohmann::json& each : value) all += (all.empty() ? "" : ",") + text_of_scalar(each, name);
  return all;
}

/// Returns the URL of a picture, which OpenAI's clients also send as {"image_url": ...}.
std::string picture_url(const nlohmann::json& value, const std::string& field) {
  const nlohmann::json& url =
      value.is_object() && value.size() == 1 && value.contains("image_url") ? value.at("image_url") : value;
  if (url.is_string()) return url.get<std::string>();
  throw bad_option(field, "is not a data URL", "send the picture as a file of a form, or as data:image/png;base64,...");
}

}  // namespace

std::string field_name(const std::string& option) {
  const auto found = std::ranges::find(kPictures, option, [](const auto& each) { return std::string(each.second); });
  return found == kPictures.end() ? option : found->first;
}

std::string decode_data_url(std::string_view url, const std::string& field) {
  const size_t comma = url.find(',');
  const std::string_view head = url.substr(0, comma);
  if (comma == std::string_view::npos || !head.starts_with("data:image/") || !head.ends_with(";base64"))
    throw bad_option(field, "is not a data URL of an image",
                     "send data:image/png;base64,..., or the picture as a file of a form: this server opens neither "
                     "files nor other URLs");
  std::string digits(url.substr(comma + 1));
  digits.resize(std::min(digits.size(), digits.find('=')));
  std::ranges::replace(digits, '-', '+');  // some clients send base64url
  std::ranges::replace(digits, '_', '/');
  auto bytes = models::decode_base64(digits);
  if (!bytes) throw bad_option(field, "is not valid base64", "encode the picture again");
  return *std::move(bytes);
}

AskedVideo parse_json_body(std::string_view text) {
  const nlohmann::json body = models::parse_json(text, "the body", "send a JSON object with the field prompt");
  if (!body.is_object()) throw bad_input("the body is not a JSON object", "send {\"prompt\": \"...\"}");
  AskedVideo asked;
  for (const auto& [name, value] : body.items()) {
    if (value.is_null()) continue;
    if (picture_option(name) != nullptr)
      add_picture(asked, name, decode_data_url(picture_url(value, name), name));
    else
      add_value(asked, name, text_of_value(value, name));
  }
  return asked;
}

AskedVideo parse_form(const std::vector<HttpPart>& parts) {
  AskedVideo asked;
  std::map<std::string, std::string> lists;  // clients send a list as several parts "name[]"
  for (const HttpPart& part : parts) {
    if (part.name.ends_with("[]")) {
      std::string& all = lists[part.name.substr(0, part.name.size() - 2)];
      all += (all.empty() ? "" : ",") + part.content;
    } else if (picture_option(part.name) == nullptr) {
      if (part.is_file) throw bad_option(shown_name(part.name), "is a file", "send it as a text");
      add_value(asked, part.name, part.content);
    } else {
      add_picture(asked, part.name, part.is_file ? part.content : decode_data_url(part.content, part.name));
    }
  }
  for (const auto& [name, values] : lists) add_value(asked, name, values);
  return asked;
}

}  // namespace sparsereel::app::serve
