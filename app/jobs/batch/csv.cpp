// Reads CSV in one pass.
#include "app/jobs/batch/csv.h"

#include <utility>

#include "hilbert/error.h"

namespace sparsereel::app::sets {
namespace {

class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  std::vector<CsvRecord> records() {
    std::vector<CsvRecord> result;
    while (place_ < text_.size()) {
      CsvRecord record{.line = line_, .fields = {}};
      do record.fields.push_back(field());
      while (take(','));
      if (!take('\n') && place_ < text_.size()) throw stray(line_);
      if (record.fields.size() > 1 || !record.fields.front().empty()) result.push_back(std::move(record));
    }
    return result;
  }

 private:
  bool take(char c) {
    if (c == '\n' && text_.substr(place_, 2) == "\r\n") ++place_;
    if (place_ >= text_.size() || text_[place_] != c) return false;
    if (c == '\n') ++line_;
    ++place_;
    return true;
  }

  std::string field() {
    if (take('"')) return quoted();
    const size_t end = std::min(text_.find_first_of(",\n", place_), text_.size());
    std::string content(text_.substr(place_, end - place_));
    if (end < text_.size() && text_[end] == '\n' && content.ends_with('\r')) content.pop_back();
    place_ += content.size();
    if (content.find('"') != std::string::npos) throw stray(line_);
    return content;
  }

  std::string quoted() {
    const int64_t start = line_;
    std::string content;
    while (place_ < text_.size()) {
      const char c = text_[place_++];
      if (c == '\n') ++line_;
      if (c == '"' && !take('"')) return content;
      content += c;
    }
    throw bad_input(at(start) + "a quote is never closed", "end the field with \"");
  }

  std::string at(int64_t line) const { return file_ + ":" + std::to_string(line) + ": "; }
  Error stray(int64_t line) const {
    return bad_input(at(line) + "a quote is inside a field",
                     "put quotes around the whole field, and double the quotes in it");
  }

  std::string_view text_;
  const std::string& file_;
  size_t place_ = 0;
  int64_t line_ = 1;
};

}  // namespace

std::vector<CsvRecord> parse_csv(std::string_view text, const std::string& file) {
  return CsvReader(text, file).records();
}

}  // namespace sparsereel::app::sets
