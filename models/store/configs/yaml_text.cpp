// Loads YAML with yaml-cpp. Also refuses what yaml-cpp does not: a second document, and text that is not UTF-8.
#include "models/store/configs/yaml_text.h"

#include <yaml-cpp/eventhandler.h>

#include <sstream>

#include "hilbert/error.h"
#include "models/files/unicode.h"

namespace sparsereel::models {
namespace {

namespace fs = std::filesystem;

/// Counts documents and ignores their content. It replaces yaml-cpp's LoadAll, which never ends on texts such as ",".
class DocumentCounter : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override { last = mark; }
  void OnDocumentEnd() override { ++count; }
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

  int count = 0;
  YAML::Mark last;
};

void require_one_document(const std::string& text, const fs::path& file) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentCounter documents;
  while (documents.count < 2 && parser.HandleNextDocument(documents)) {
  }
  if (documents.count > 1) throw bad_yaml(file, documents.last, "a second document begins", "keep one document a file");
}

}  // namespace

Mark mark_of(const YAML::Mark& mark) {
  return {mark.line + 1, mark.column + 1};
}

std::string place_in(const fs::path& file, const YAML::Mark& mark) {
  const Mark position = mark_of(mark);
  if (position.line == 0) return file.string();
  return file.string() + ":" + std::to_string(position.line) + ":" + std::to_string(position.column);
}

Error bad_yaml(const fs::path& file, const YAML::Mark& mark, const std::string& problem, const std::string& remedy) {
  return {ErrorKind::bad_input, place_in(file, mark) + ": " + problem, remedy, {.file = file.string()}};
}

YAML::Node load_yaml(const std::string& text, const fs::path& file) {
  checked_text(text, file.string());  // yaml-cpp silently changes text that is not UTF-8
  // yaml-cpp's exceptions do not know the file, so they are replaced by ours.
  try {
    require_one_document(text, file);
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw bad_yaml(file, error.mark, "this is not valid YAML: " + error.msg, "correct the file");
  }
}

}  // namespace sparsereel::models
