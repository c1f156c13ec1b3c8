// Numbers, words and token orders.
#include "app/commands/bench/lists.h"

#include <charconv>
#include <optional>

#include "app/options/nearest.h"
#include "app/options/settings.h"
#include "hilbert/error.h"

namespace sparsereel::app::bench {
namespace {

template <typename T>
std::optional<T> number_in(const std::string& text) {
  T value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && stop == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

}  // namespace

std::string at_item(std::string option, const std::string& list, const std::string& item) {
  return option.append(" ").append(list).append(": '").append(item).append("'");
}

std::vector<double> parse_numbers(const std::string& option, const std::string& text, const NumberRange& range) {
  return parse_list<double>(text, [&](const std::string& item) {
    const std::optional<double> value = number_in<double>(item);
    const bool inside =
        value && *value <= range.most && (*value > range.least || (range.with_least && *value == range.least));
    if (!inside) throw bad_input(at_item(option, text, item) + " is no " + range.what, range.remedy);
    return *value;
  });
}

std::vector<int64_t> parse_wholes(const std::string& option, const std::string& text, int64_t least, int64_t most) {
  return parse_list<int64_t>(text, [&](const std::string& item) {
    const std::optional<int64_t> value = number_in<int64_t>(item);
    if (!value || *value < least || *value > most)
      throw bad_input(at_item(option, text, item) + " is no whole number from " + std::to_string(least) + " to " +
                          std::to_string(most),
                      "give numbers in that range, with commas between them");
    return *value;
  });
}

std::vector<std::string> parse_words(const std::string& option, const std::string& text,
                                     const std::vector<std::string>& choices) {
  return parse_list<std::string>(text, [&](const std::string& item) {
    require_choice(at_item(option, text, item), item, choices, "give one of them");
    return item;
  });
}

std::vector<hilbert::TokenOrder> parse_orders(const std::string& text) {
  std::vector<hilbert::TokenOrder> orders;
  for (const std::string& word : parse_words("--token-order", text, find_option("token_order")->choices))
    orders.push_back(hilbert::parse_token_order(word));
  return orders;
}

}  // namespace sparsereel::app::bench
