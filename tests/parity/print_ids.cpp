// Reads prompts from standard input, a JSON string per line, and prints their token ids, a JSON list per line.
// compare_tokenizer.py and compare_byte_pairs.py call it.
#include <iostream>
#include <nlohmann/json.hpp>

#include "hilbert/error.h"
#include "models/text/tokenizer.h"

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: print_ids TOKENIZER_FOLDER < prompts.jsonl\n";
    return 2;
  }
  try {
    const auto tokenizer = sparsereel::models::Tokenizer::load(arguments[1]);
    constexpr int64_t kMost = 100000;
    for (std::string line; std::getline(std::cin, line);) {
      sparsereel::models::TokenIds tokens = tokenizer.encode(nlohmann::json::parse(line).get<std::string>(), kMost);
      tokens.ids.resize(tokens.token_count);
      std::cout << nlohmann::json(tokens.ids).dump() << '\n';
    }
  } catch (const sparsereel::Error& error) {
    std::cerr << "error: " << error.what() << "\n  remedy: " << error.remedy() << '\n';
    return error.kind() == sparsereel::ErrorKind::bad_input ? 2 : 1;
  }
  return 0;
}
