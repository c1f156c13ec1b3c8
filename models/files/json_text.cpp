// Builds a value from nlohmann's parser events, with limits on depth, duplicate keys and error messages.
#include "models/files/json_text.h"

#include <utility>
#include <vector>

#include "hilbert/error.h"

namespace sparsereel::models {
namespace {

using nlohmann::json;

constexpr size_t kLongestQuote = 120;

/// Returns nlohmann's message without its "[json.exception...] " tag and without the unbounded excerpt of the input.
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

/// Builds the value from the parser's events, and throws Error at the first event that breaks a limit. nlohmann's own
/// parser callback is not used for this: it searches all members of an object after each new one, which takes minutes
/// for large headers.
class Builder final : public nlohmann::json_sax<json> {
 public:
  Builder(const std::string& source, const std::string& remedy) : source_(source), remedy_(remedy) {}

  json& value() { return value_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }

  bool start_object(size_t) override { return open(json::object()); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    const auto [member, is_new] = open_.back()->get_ref<json::object_t&>().emplace(std::move(name), nullptr);
    if (!is_new) throw bad_file(source_, "the key " + in_quotes(member->first) + " appears twice", remedy_);
    member_ = &member->second;
    return true;
  }

  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    throw bad_file(source_, "not valid JSON: " + brief(error.what()), remedy_);
  }

 private:
  template <typename Value>
  bool add(Value&& value) {
    place(std::forward<Value>(value));
    return true;
  }

  bool open(json container) {
    if (open_.size() >= kMaxJsonDepth)
      throw bad_file(source_, "nested deeper than " + std::to_string(kMaxJsonDepth) + " levels", remedy_);
    open_.push_back(&place(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  /// Puts a value at the parser's position: at the root, after the last element of an array, or at the last key.
  json& place(json value) {
    if (open_.empty()) return value_ = std::move(value);
    if (open_.back()->is_array()) return open_.back()->get_ref<json::array_t&>().emplace_back(std::move(value));
    return *member_ = std::move(value);
  }

  const std::string& source_;
  const std::string& remedy_;
  json value_;
  // The open containers, outermost first. The pointers stay valid, because a container does not move while a container
  // inside it is open.
  std::vector<json*> open_;
  json* member_ = nullptr;  // the member whose key was just read and whose value comes next
};

}  // namespace

json parse_json(std::string_view text, const std::string& source, const std::string& remedy) {
  Builder builder(source, remedy);
  json::sax_parse(text, &builder);
  return std::move(builder.value());
}

json parse_cbor(std::span<const uint8_t> bytes, const std::string& source, const std::string& remedy) {
  Builder builder(source, remedy);
  json::sax_parse(bytes.begin(), bytes.end(), &builder, json::input_format_t::cbor);
  return std::move(builder.value());
}

json parse_json_if_valid(std::string_view text) {
  try {
    return parse_json(text, "", "");
  } catch (const Error&) {
    return json(json::value_t::discarded);
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
