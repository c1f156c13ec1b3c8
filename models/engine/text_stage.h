// Prompts -> what the transformer attends to: the tokenizer, the text encoder and its memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/layers/parameters.h"
#include "models/request/conditioning.h"
#include "models/request/spec.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/text/encoder/text_encoder.h"
#include "models/text/tokenizer.h"

namespace sparsereel::models {

struct Plan;

/// prompts: token ids of one length L, padded. A pass for each, in the encoder's dtype. With padding in one batch,
/// without it prompt by prompt.
Conditioning encode_prompts(const TextEncoder& encoder, const std::vector<TokenIds>& prompts, const PromptRules& rules);

class TextStage {
 public:
  /// offload: the encoder passes through the device layer by layer. Folder and spec must outlive the stage.
  TextStage(const Checkpoint& folder, const ModelSpec& spec, at::Device device, WeightFormat format, bool offload);

  /// Throws Error where the encoder's weights do not fit its config, by their headers, or the tokenizer is damaged or
  /// another encoder's.
  void check();
  /// Whether the encoder finds room on the device. A quarter of the free memory stays free.
  bool fits() const;
  /// The same where so many bytes come beside it.
  bool fits_beside(uint64_t bytes) const;
  /// Whether the encoder passes through layer by layer: with offload, or where it does not fit into memory.
  bool streams() const;
  /// The encoder then stays until it is released. Nothing where it streams.
  void load();
  void release();
  /// In the run's dtype. An encoder that is not loaded is streamed. Where there is no tokenizer the ids are random,
  /// drawn from a generator that the prompt seeds.
  Conditioning encode(const Plan& plan, std::vector<std::string>* warnings = nullptr);

 private:
  Conditioning encode_texts(const Plan& plan, std::vector<std::string>* warnings);
  void load_tokenizer();
  void check_vocabulary(int64_t encoders) const;
  TokenIds token_ids(const char* name, const std::string& text, const PromptRules& rules, int64_t length,
                     int64_t vocab_size, std::vector<std::string>* warnings);

  const Checkpoint& folder_;
  const ModelSpec& spec_;
  at::Device device_;
  WeightFormat format_;
  bool offload_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<TextEncoder> encoder_;
};

}  // namespace sparsereel::models
