// Makes text safe for a terminal. Names, prompts and metadata in other people's files may hide control sequences.
#pragma once

#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace sparsereel::app {

/// Escapes control characters other than line feed and tab, and characters that change the direction of writing. The
/// escapes look like \u001b, which JSON readers turn back into the character. Bytes that are not UTF-8 become escapes
/// such as \x9b.
std::string printable(std::string_view text);

/// Escapes line feeds and tabs too, so that a name cannot begin a new line.
std::string one_line(std::string_view text);

/// Formats each line of the text with one_line(), and indents each line after the first. A command that stands in a
/// separate line can then be copied.
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
  std::string begun_;  // the bytes so far of a UTF-8 character that is still incomplete
};

}  // namespace sparsereel::app
