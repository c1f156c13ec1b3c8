// Draws with a font of fixed width, and shrinks with Lanczos.
#include "app/media/drawing.h"

#include <string_view>

namespace sparsereel::app {
namespace {

constexpr int64_t kRows = 12, kColumns = 6, kAdvance = 7, kAscent = 10;  // kAscent: rows above the baseline

/// The font 7x13 of the X Window System ("misc-fixed", in the public domain), from space to tilde. Each character below
/// encodes one row of a letter: its code minus that of '0' is a number of six bits, one for each pixel, with the
/// highest bit on the left.
constexpr std::string_view kFont =
    R"(0000000000000444444404000:::0000000000::O:O::000004?D>5N40000AYB448BUR00000HTTHURM00044400000000024488844200)"
    R"(084422244800000B<o<B000000044O44000000000000><@000000O000000000000004>4001122488@@000<BQQQQQB<0004<D44444O00)"
    R"(0NQQ12<@Po000o124>11QN00026:BRRo22000oPP^a11QN000>@PP^aQQN000o124488@@000NQQQNQQQN000NQQSM112L000004>4004>40)"
    R"(0004>400><@001248@8421000000o00o00000@8421248@000NQQ124404000NQQWY[UPN000<BQQQoQQQ000nAAANAAAn000NQPPPPPQN00)"
    R"(0nAAAAAAAn000oPPPlPPPo000oPPPlPPPP000NQPPPWQSM000QQQQoQQQQ000O4444444O0007222222RL000QRTX`XTRQ000PPPPPPPPo00)"
    R"(0Qcc]]QQQQ000QQaYUSQQQ000NQQQQQQQN000nQQQnPPPP000NQQQQQYUN100nQQQnXTRQ000NQPPN11QN000O44444444000QQQQQQQQN00)"
    R"(0QQQBBB<<<000QQQQ]]ccQ000QQBB<BBQQ000AA::44444000o124<8@Po00N@@@@@@@@@N00@@884221100N222222222N004:A00000000)"
    R"(0000000000o08400000000000000N1OQSM000PPP^aQQa^000000NQPPQN000111MSQQSM000000NQoPQN000>A@@l@@@@000000MRRLPNQN)"
    R"(0PPP^aQQQQ000040<4444O00001031111AA>0PPPRThTRQ000<4444444O000000JEEEEA000000^aQQQQ000000NQQQQN000000^aQa^PPP)"
    R"(0000MSQSM1110000^A@@@@000000NQH6QN0000@@l@@@A>000000QQQQSM000000AAA::4000000AAEEE:000000QB<<BQ000000QQQSM1QN)"
    R"(0000o248@o0078884H488870044444444400L222434222L009EB00000000)";

bool has_pixel(char letter, int64_t row, int64_t column) {
  const auto place = static_cast<size_t>((letter - ' ') * kRows + row);
  return place < kFont.size() && ((kFont[place] - '0') >> (kColumns - 1 - column) & 1) != 0;
}

}  // namespace

int text_width(const std::string& line) {
  return static_cast<int>(std::ssize(line) * kAdvance);
}

void draw_text(Image& picture, const std::string& line, int64_t left, int64_t baseline) {
  for (int64_t i = 0; i < std::ssize(line); ++i) {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t column = 0; column < kColumns; ++column) {
        const int64_t x = left + i * kAdvance + column, y = baseline - kAscent + row;
        const bool inside = x >= 0 && x < picture.width && y >= 0 && y < picture.height;
        if (inside && has_pixel(line[static_cast<size_t>(i)], row, column))
          std::fill_n(picture.pixels.data() + (y * picture.width + x) * 3, 3, uint8_t{0});
      }
    }
  }
}

Image shrunk(const Image& picture, int64_t height, int64_t width) {
  return models::resample(picture, height, width, models::ResampleFilter::lanczos, models::whole(picture));
}

}  // namespace sparsereel::app
