// Tests that control characters are printed as escapes, because a terminal would obey them.
#include "app/terminal.h"

#include <gtest/gtest.h>

#include <sstream>

namespace sparsereel::app {
namespace {

TEST(Terminal, KeepsPrintableText) {
  for (const char* text :
       {"", "a red circle\n\tgr\u00fc\u00df \u8d64\u3044\u4e38 \U0001F600 \u0645\u0631\u062d", "e\u0301 \u200f\u200d"})
    EXPECT_EQ(printable(text), text);
}

TEST(Terminal, EscapesControlCharacters) {
  EXPECT_EQ(printable("\x1b[31mred\x07\r\x7f"), R"(\u001b[31mred\u0007\u000d\u007f)");
  EXPECT_EQ(printable("\u009b31m\u0085"), R"(\u009b31m\u0085)");
  EXPECT_EQ(printable("a\u202egpm.4\u2066"), R"(a\u202egpm.4\u2066)");
  EXPECT_EQ(printable(std::string_view("\0", 1)), R"(\u0000)");
}

TEST(Terminal, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("\x9b"
                      "31m \xff \xe9t\xe9 \xe2\x82"),
            R"(\x9b31m \xff \xe9t\xe9 \xe2\x82)");
}

TEST(Terminal, EscapesLineEndsInNames) {
  EXPECT_EQ(one_line("a\nerror: \tb"), R"(a\u000aerror: \u0009b)");
}

TEST(Terminal, IndentsTheLinesOfAText) {
  EXPECT_EQ(indented_lines(""), "");
  EXPECT_EQ(indented_lines("a\tb"), R"(a\u0009b)");
  EXPECT_EQ(indented_lines("one:\nerror: \x1b\n\nb"), "one:\n    error: \\u001b\n    \n    b");
}

TEST(Terminal, EscapesStreamsThatArriveInPieces) {
  std::ostringstream out;
  {
    const PrintableOnly only(out);
    out << "\x1b"
        << "[0m " << std::unitbuf;
    for (const char byte : std::string("\u00fc\u009b\U0001F600.")) out << byte;
    out << "\xe2\x82" << 5 << '\xf0';
  }
  out << "\x1b";
  EXPECT_EQ(out.str(), "\\u001b[0m \u00fc\\u009b\U0001F600.\\xe2\\x825\\xf0\x1b");
}

}  // namespace
}  // namespace sparsereel::app
