// Text on its way to a terminal, which obeys what is hidden in names, prompts and metadata of other people's files.
#pragma once

#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace sparsereel::app {

/// Control characters but line feed and tab, and what turns the direction of writing, as \u001b: to a reader of JSON
/// that is the same text. Bytes that are no UTF-8 as \x9b.
std::string printable(std::string_view text);

/// The same with line feeds and tabs too: a name cannot begin a line of its own.
std::string one_line(std::string_view text);

/// Each line of the text by one_line(), those behind the first below it, indented: what is to be copied stands alone.
std::string indented_lines(std::string_view text);

/// While it lives, all that goes to the stream passes through printable().
class PrintableOnly : private std::streambuf {
 public:
  explicit PrintableOnly(std::ostream& stream) : stream_(stream), target_(stream.rdbuf(this)) {}
  ~PrintableOnly() override;
  PrintableOnly(const PrintableOnly&) = delete;
  PrintableOnly& operator=(const PrintableOnly&) = delete;

 private:
  int_type overflow(int_type character) override;
  std::streamsize xsputn(const char* text, std::streamsize size) override;
  int sync() override { return target_->pubsync(); }
  bool put(std::string_view text);

  std::ostream& stream_;
  std::streambuf* target_;
  std::string begun_;  // the first bytes of a character whose last ones are to come
};

}  // namespace sparsereel::app
