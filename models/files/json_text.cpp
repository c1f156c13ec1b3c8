// Guards around nlohmann's parser: depth, duplicate keys, error messages of bounded length.
#include "models/files/json_text.h"

#include <set>
#include <vector>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;

constexpr size_t kLongestQuote = 120;

/// Watches the parser's events and throws Error at the first one that breaks a limit.
class Guard {
 public:
  Guard(const std::string& source, const std::string& remedy) : source_(source), remedy_(remedy) {}

  bool operator()(int depth, json::parse_event_t event, const json& value) {
    // The parser counts the outermost container as depth 0.
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      if (depth >= kMaxJsonDepth)
        throw bad_file(source_, "nested deeper than " + std::to_string(kMaxJsonDepth) + " levels", remedy_);
    }
    if (event == json::parse_event_t::object_start) keys_.emplace_back();
    if (event == json::parse_event_t::object_end) keys_.pop_back();
    if (event == json::parse_event_t::key && !keys_.back().insert(value.get_ref<const std::string&>()).second)
      throw bad_file(source_, "the key " + in_quotes(value.get_ref<const std::string&>()) + " appears twice", remedy_);
    return true;
  }

 private:
  const std::string& source_;
  const std::string& remedy_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
};

/// nlohmann's message without its "[json.exception...] " tag, and without the unbounded excerpt of the input.
std::string brief(const std::string& what) {
  const size_t tag = what.find("] ");
  std::string text = tag == std::string::npos ? what : what.substr(tag + 2);
  if (const size_t excerpt = text.find("; last read:"); excerpt != std::string::npos) text.resize(excerpt);
  if (text.size() > 2 * kLongestQuote) text = text.substr(0, 2 * kLongestQuote) + "...";
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F) c = '?';
  }
  return text;
}

}  // namespace

json parse_json(std::string_view text, const std::string& source, const std::string& remedy) {
  try {
    Guard guard(source, remedy);
    return json::parse(text,
                       [&](int depth, json::parse_event_t event, json& value) { return guard(depth, event, value); });
  } catch (const json::exception& error) {
    throw bad_file(source, "not valid JSON: " + brief(error.what()), remedy);
  }
}

std::string in_quotes(std::string_view name) {
  const bool cut = name.size() > kLongestQuote;
  const json value = std::string(name.substr(0, kLongestQuote)) + (cut ? "..." : "");
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

bool is_git_lfs_pointer(std::string_view start_of_file) {
  return start_of_file.starts_with("version https://git-lfs");
}

}  // namespace sparsereel::models
