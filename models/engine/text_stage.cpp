// Tokenizes prompts and runs the text encoder, layer by layer from its file if memory is short.
#include "models/engine/text_stage.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "hilbert/error.h"
#include "models/engine/components.h"
#include "models/engine/memory_policy.h"
#include "models/engine/tile_retry.h"
#include "models/engine/whole_files.h"
#include "models/files/unicode.h"
#include "models/request/request.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/family.h"
#include "models/store/weights/random_weights.h"
#include "models/text/clean_prompt.h"
#include "models/text/encoder/picture_prompt.h"

namespace sparsereel::models {
namespace {

constexpr const char* kRole = "text_encoder";

/// Returns the first `count` ids of a prompt, int64 [1, count].
at::Tensor ids_of(const TokenIds& prompt, int64_t count) {
  return at::tensor(prompt.ids, at::kLong).narrow(0, 0, count).unsqueeze(0);
}

TokenIds random_tokens(const std::string& text, int64_t length, int64_t vocab_size) {
  const at::Tensor ids = random_token_ids(text, length, vocab_size);
  return {.ids = {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + length},
          .token_count = random_token_count(text, length)};
}

/// Returns the rules for the negative prompt, to which no words are added.
PromptRules without_words_around(PromptRules rules) {
  rules.before.clear();
  rules.after.clear();
  return rules;
}

/// Stacks the encoded pictures, which all have the same size, in the form of Conditioning::seen.
at::Tensor joined_pictures(const std::vector<TextPicture>& pictures) {
  std::vector<at::Tensor> all;
  for (const TextPicture& picture : pictures) {
    std::vector<at::Tensor> parts = {picture.tokens};
    parts.insert(parts.end(), picture.of_layers.begin(), picture.of_layers.end());
    all.push_back(at::stack(parts).unflatten(1, {picture.rows, picture.columns}));
  }
  return at::stack(all);
}

/// Splits the result of joined_pictures() again.
std::vector<TextPicture> pictures_in(const at::Tensor& seen) {
  std::vector<TextPicture> pictures;
  for (const at::Tensor& one : seen.unbind()) {
    std::vector<at::Tensor> parts = one.flatten(1, 2).unbind();
    TextPicture picture = {.rows = one.size(1), .columns = one.size(2), .tokens = parts.front()};
    picture.of_layers.assign(parts.begin() + 1, parts.end());
    pictures.push_back(std::move(picture));
  }
  return pictures;
}

}  // namespace

Conditioning encode_prompts(const TextEncoder& encoder, const std::vector<TokenIds>& prompts,
                            const PromptRules& rules) {
  std::vector<Conditioning> passes;
  for (const TokenIds& prompt : prompts) {
    const auto length = static_cast<int64_t>(prompt.ids.size());
    const int64_t count = prompt.token_count;
    if (length == 0) {  // the encoder takes at least one token
      const at::Tensor any = encoder.forward(at::zeros({1, 1}, at::kLong));
      passes.push_back({.text = any.narrow(1, 0, 0), .text_lengths = {0}});
      continue;
    }
    at::Tensor row = ids_of(prompt, rules.encodes_padding ? length : std::max<int64_t>(count, 1));
    if (!rules.encodes_padding)
      row = at::constant_pad_nd(encoder.forward(row).narrow(1, 0, count), {0, 0, 0, length - count});
    passes.push_back({.text = row, .text_lengths = {prompt.token_count}});
  }
  Conditioning all = join(passes);
  if (rules.encodes_padding) all.text = encoder.forward(all.text);
  return all;
}

TextStage::TextStage(const Checkpoint& folder, const ModelSpec& spec, at::Device device, WeightFormat format,
                     const MemoryPolicy& memory)
    : folder_(folder), spec_(spec), device_(device), format_(format), memory_(memory) {}

void TextStage::check() {
  const auto encoder = load_text_encoder(folder_.component(kRole), at::kMeta, format_);
  load_tokenizer();
  if (tokenizer_) check_vocabulary(encoder->vocab_size());
}

void TextStage::check_vision() const {
  if (looks_at_images())
    load_text_vision(folder_.component(kRole), at::kMeta, format_.dtype, *spec_.image.text_patches);
}

at::Tensor TextStage::look(const std::vector<Picture>& pictures) const {
  const c10::InferenceMode guard;
  std::vector<TextPicture> seen;
  read_whole(folder_, {kRole}, device_, [&] {
    const auto vision = load_text_vision(folder_.component(kRole), device_, format_.dtype, *spec_.image.text_patches);
    for (const Picture& picture : pictures) seen.push_back(vision->look(picture));
  });
  return joined_pictures(seen);
}

/// Throws Error unless the tokenizer fits an encoder with a vocabulary of `encoders` pieces. The encoder's vocabulary
/// may be larger than the tokenizer's, because it is padded to a round number, but at most twice as large.
void TextStage::check_vocabulary(int64_t encoders) const {
  const int64_t pieces = tokenizer_->pieces();
  if (pieces <= encoders && pieces >= encoders / 2) return;
  throw bad_file(folder_.tokenizer()->path.string(),
                 "has a tokenizer of " + std::to_string(pieces) + " pieces, but the text encoder's vocab_size is " +
                     std::to_string(encoders),
                 "give " + tokenizer_of(find_family(folder_.pipeline_class())->part("tokenizer")));
}

bool TextStage::fits() const {
  return is_loaded() || memory_.streams_text() || fits_beside(0);
}

bool TextStage::fits_beside(uint64_t bytes) const {
  return bytes + (is_loaded() ? 0 : weight_bytes(folder_, kRole, format_)) <= memory_.room() / 4 * 3;
}

uint64_t TextStage::held_bytes() const {
  return is_loaded() ? weight_bytes(folder_, kRole, format_) : 0;
}

/// Some checkpoints have a text encoder that is larger than the transformer, so it may not fit on the device. Its
/// layers are then read from the file, not kept in page-locked memory: a prompt uses each layer only once, and filling
/// that memory would first copy all of them.
bool TextStage::streams() const {
  return memory_.streams_text() || !fits();
}

void TextStage::load() {
  if (encoder_ || streams()) return;
  try {
    encoder_ = load_text_encoder(folder_.component(kRole), device_, format_);
  } catch (const c10::OutOfMemoryError&) {  // NOLINT(bugprone-empty-catch): encode() streams it
  }
}

/// Frees the encoder and the memory of its mapped files. The files stay open for the next prompt, so the folder may be
/// moved.
void TextStage::release() {
  encoder_.reset();
  for (const auto& file : folder_.component(kRole).files)
    for (const TensorEntry& entry : file->entries()) file->release(entry);
}

Conditioning TextStage::encode(const Plan& plan, std::vector<std::string>* warnings, const at::Tensor& seen) {
  const c10::InferenceMode guard;
  if (looks_at_images() && plan.has_images() && !seen.defined())
    throw bad_option("image", plan.first_given() + " is not among the inputs of this video's text",
                     "encode the images before the text");
  Conditioning encoded;
  const auto work = [&] {
    read_whole(folder_, {kRole}, device_, [&] { encoded = encode_texts(plan, seen, warnings); });
  };
  const auto stream = [this] {
    const bool was_loaded = encoder_ != nullptr;
    encoder_.reset();
    return was_loaded;
  };
  bool tiled = false;
  work_or_retry_tiled(
      tiled, /*may_tile=*/false, [&](bool) { work(); }, stream);
  return encoded;
}

/// Encodes the prompt, with the pictures put before it.
Conditioning TextStage::encode_with_pictures(const TextEncoder& encoder, const Plan& plan, const at::Tensor& seen) {
  load_tokenizer();
  std::vector<TextPicture> pictures = pictures_in(seen.to(device_));
  const PictureMarks marks =
      load_text_vision(folder_.component(kRole), at::kMeta, format_.dtype, *spec_.image.text_patches)->marks();
  const auto ids_of_text = [&](const std::string& text) {
    return whole_prompt(text, spec_.text_length, encoder.vocab_size()).ids;
  };
  PicturePrompt prompt = prompt_with_pictures(ids_of_text, prepared_prompt(plan.prompt, spec_.prompt), pictures, marks);
  const at::Tensor ids = at::tensor(prompt.ids, at::kLong).unsqueeze(0);
  return {.text = encoder.forward_with(ids, pictures),
          .text_lengths = {std::ssize(prompt.ids)},
          .pictures = std::move(prompt.pictures)};
}

Conditioning TextStage::encode_texts(const Plan& plan, const at::Tensor& seen, std::vector<std::string>* warnings) {
  std::unique_ptr<TextEncoder> streamed;
  if (!encoder_) streamed = load_text_encoder(folder_.component(kRole), device_, format_, Residence::file);
  const TextEncoder& encoder = encoder_ ? *encoder_ : *streamed;
  if (seen.defined()) return encode_with_pictures(encoder, plan, seen).to(format_.dtype);
  std::vector<TokenIds> prompts;
  const auto add = [&](const char* name, const std::string& text, const PromptRules& rules) {
    prompts.push_back(token_ids(name, text, rules, plan.max_sequence_length.value_or(spec_.text_length),
                                encoder.vocab_size(), warnings));
  };
  if (plan.is_guided()) add("negative prompt", plan.negative_prompt, without_words_around(spec_.prompt));
  add("prompt", plan.prompt, spec_.prompt);
  return encode_prompts(encoder, prompts, spec_.prompt).to(format_.dtype);
}

void TextStage::load_tokenizer() {
  if (tokenizer_) return;
  if (const auto place = folder_.tokenizer()) tokenizer_ = std::make_unique<Tokenizer>(Tokenizer::load(*place));
}

/// Returns all ids of a prompt. Without a tokenizer, returns at most `length` random ids.
TokenIds TextStage::whole_prompt(const std::string& text, int64_t length, int64_t vocab_size) const {
  if (tokenizer_) return tokenizer_->encode_whole(text);
  TokenIds tokens = random_tokens(text, length, vocab_size);
  tokens.ids.resize(static_cast<size_t>(tokens.token_count));
  return tokens;
}

/// Returns the ids of a prompt, prepared by `rules`. Adds a warning that names the prompt (`name`) if it was cut.
TokenIds TextStage::token_ids(const char* name, const std::string& text, const PromptRules& rules, int64_t length,
                              int64_t vocab_size, std::vector<std::string>* warnings) {
  load_tokenizer();
  if (!rules.has_length) return whole_prompt(prepared_prompt(text, rules), length, vocab_size);
  TokenIds tokens =
      tokenizer_ ? tokenizer_->encode(prepared_prompt(text, rules), length) : random_tokens(text, length, vocab_size);
  if (text.empty() && spec_.empty_prompt_has_no_tokens) tokens.token_count = 0;
  if (tokens.truncated && warnings != nullptr) {
    warnings->push_back(std::string("the ") + name + " was cut to " + std::to_string(length) + " tokens: \"" +
                        std::string(whole_characters(text, 60)) + "...\"");
  }
  return tokens;
}

}  // namespace sparsereel::models
