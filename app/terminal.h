// Makes text safe for a terminal. Names, prompts and metadata of other people's files may hide control sequences.
#pragma once

#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace sparsereel::app {

/// Escapes control characters other than line feed and tab, and those that change the direction of writing, as \u001b.
/// A reader of JSON takes that for the same text. Bytes that are not UTF-8 become \x9b.
std::string printable(std::string_view text);

/// Escapes line feeds and tabs too, so that a name cannot begin a new line.
std::string one_line(std::string_view text);

/// Formats each line with one_line(). Later lines are put below the first and indented, so that commands can be copied.
std::string indented_lines(std::string_view text);

/// While this object lives, all output to the stream passes through printable().
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
  std::string begun_;  // the first bytes of an incomplete character
};

}  // namespace sparsereel::app
