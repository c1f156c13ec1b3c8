// Tables of Unicode 14, sorted by code point.
#pragma once

namespace sparsereel::models {

/// Canonical: "é" is "e" and an acute. second is 0 where a code point stands for one other.
struct Decomposition {
  char32_t code, first, second;
  bool composes;  // the pair becomes the code point again
};

/// Code points of one canonical combining class other than 0.
struct ClassRun {
  char32_t first, last;
  int value;
};

/// A fullwidth or halfwidth form and what it is in usual width; second is 0 where that is one code point.
struct Width {
  char32_t code, first, second;
};

/// Capitals first, first + step, .. last, each `distance` before its small letter.
struct LowerRun {
  char32_t first, last;
  int step, distance;
};

#include "models/text/unicode_tables.inc"  // NOLINT(bugprone-suspicious-include): tables

}  // namespace sparsereel::models
