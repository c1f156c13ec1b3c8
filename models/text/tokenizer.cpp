// Reads a tokenizer's files, and fits its ids to a length.
#include "models/text/tokenizer.h"

#include <utility>

#include "hilbert/error.h"
#include "models/files/unicode.h"
#include "models/text/byte_pair_files.h"
#include "models/text/gguf_tokenizer.h"
#include "models/text/spiece_tokens.h"
#include "models/text/tokenizer_json.h"

namespace sparsereel::models {

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  const std::filesystem::path file = file_of({path});
  if (is_byte_pair_file(file)) return Tokenizer(read_byte_pairs(file.parent_path()));
  const nlohmann::json content = file.extension() == ".json" ? read_tokenizer_json(file) : nlohmann::json();
  if (is_byte_pair_json(content)) return Tokenizer(byte_pairs_of_json(content, file));
  TokenizerConfig config = read_tokenizer_config(file.parent_path());
  const SpieceModel model =
      content.is_null() ? read_spiece(file) : parse_tokenizer_json(content, config, file.string());
  return {model, config, file.string()};
}

Tokenizer Tokenizer::load(const TokenizerPlace& place) {
  if (place.weights == nullptr) return load(place.path);
  const TokenizerConfig config = {.extra_ids = 0, .tokens = {{"</s>"}, {"<unk>"}, {"<pad>"}}};
  if (place.spiece == nullptr) {
    const std::string name = place.path.string() + ": tokenizer.ggml";
    return {parse_gguf_tokenizer(place.weights->metadata(), name), config, name};
  }
  const std::string name = place.path.string() + ": " + place.spiece->name;
  const std::span<const std::byte> data = place.weights->data(*place.spiece);
  return {parse_spiece({reinterpret_cast<const char*>(data.data()), data.size()}, name), config, name};
}

Tokenizer::Tokenizer(std::shared_ptr<const TokenModel> model) : model_(std::move(model)) {}

Tokenizer::Tokenizer(const SpieceModel& model, const TokenizerConfig& config, const std::string& path)
    : Tokenizer(make_spiece_tokens(model, config, path)) {}

namespace {

void require_utf8(const std::string& text) {
  if (!is_utf8(text))
    throw bad_input("the prompt is not UTF-8", "save the prompt as UTF-8, or set the terminal's locale to it");
}

}  // namespace

TokenIds Tokenizer::encode_whole(const std::string& text) const {
  require_utf8(text);
  TokenIds result{model_->encode(text)};
  result.token_count = std::ssize(result.ids);
  return result;
}

TokenIds Tokenizer::encode(const std::string& text, int64_t max_length) const {
  if (max_length < 1) throw bad_option("max_sequence_length", "is " + std::to_string(max_length), "use at least 1");
  require_utf8(text);
  TokenIds result{model_->encode(text)};
  const std::optional<int64_t> end = model_->end_id();
  const int64_t most = end ? max_length - 1 : max_length;
  result.truncated = std::ssize(result.ids) > most;
  if (result.truncated) result.ids.resize(most);
  if (end && (result.ids.empty() || result.ids.back() != *end)) result.ids.push_back(*end);
  result.token_count = std::ssize(result.ids);
  result.ids.resize(max_length, model_->padding_id());
  return result;
}

int64_t Tokenizer::vocabulary_size() const {
  return model_->size();
}

int64_t Tokenizer::pieces() const {
  return model_->pieces();
}

}  // namespace sparsereel::models
