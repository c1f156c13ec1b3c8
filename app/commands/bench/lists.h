// Comma lists on the command line: each item checked, an item given twice counts once. No torch.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "app/options/split.h"
#include "hilbert/token_order.h"

namespace sparsereel::app::bench {

template <typename T>
std::vector<T> parse_list(const std::string& text, const std::function<T(const std::string& item)>& parse) {
  std::vector<T> values;
  for (const std::string& item : split(text, ',')) {
    const T value = parse(item);
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  return values;
}

/// How errors name an item of a list: "--modes full,fast: 'fast'".
std::string at_item(std::string option, const std::string& list, const std::string& item);

/// A range of numbers, `what` in words: "a fraction above 0 and at most 1".
struct NumberRange {
  double least = 0, most = 1;
  bool with_least = true;  // least itself is allowed
  std::string what;
  std::string remedy;
};

/// Throws Error naming the item that is no number of the range.
std::vector<double> parse_numbers(const std::string& option, const std::string& text, const NumberRange& range);

/// Throws Error naming the item that is no whole number from least to most.
std::vector<int64_t> parse_wholes(const std::string& option, const std::string& text, int64_t least, int64_t most);

/// Throws Error naming the item that is none of the choices, and the nearest of them.
std::vector<std::string> parse_words(const std::string& option, const std::string& text,
                                     const std::vector<std::string>& choices);

/// Of --token-order.
std::vector<hilbert::TokenOrder> parse_orders(const std::string& text);

}  // namespace sparsereel::app::bench
