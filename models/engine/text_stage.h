// Turns prompts into the transformer's text input. Owns the tokenizer and the text encoder.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/image/resample.h"
#include "models/layers/parameters.h"
#include "models/request/conditioning.h"
#include "models/request/spec.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/text/encoder/text_encoder.h"
#include "models/text/tokenizer.h"

namespace sparsereel::models {

class MemoryPolicy;
struct Plan;

/// Encodes prompts, given as token ids that are all padded to one length L. Returns Conditioning::text with a row for
/// each prompt, in the encoder's dtype. With PromptRules::encodes_padding, the encoder takes all prompts as one batch,
/// else one by one. The row of a prompt without tokens has text length 0.
Conditioning encode_prompts(const TextEncoder& encoder, const std::vector<TokenIds>& prompts, const PromptRules& rules);

class TextStage {
 public:
  /// Folder, spec and memory policy must outlive the stage.
  TextStage(const Checkpoint& folder, const ModelSpec& spec, at::Device device, WeightFormat format,
            const MemoryPolicy& memory);

  /// Checks the files of the encoder and the tokenizer. Throws Error if the headers of the encoder's weights do not fit
  /// its config, or if the tokenizer is damaged or belongs to another encoder.
  void check();
  /// Checks the encoder's vision tower, if the model needs one. Throws Error if the tower does not fit its config, or
  /// if the encoder's file does not have it.
  void check_vision() const;
  /// Encodes pictures of the video's size with the text encoder's vision tower, and returns Conditioning::seen. Call
  /// this before encode(). The tower is loaded for this call only. Throws Error for pictures that are too narrow.
  at::Tensor look(const std::vector<Picture>& pictures) const;
  /// Returns true if the encoder is loaded, if the memory policy streams its layers, or if fits_beside(0) is true.
  bool fits() const;
  /// Returns true if `bytes`, together with the encoder unless it is loaded, fit on the device and leave a quarter of
  /// the free memory free.
  bool fits_beside(uint64_t bytes) const;
  /// Returns true if the encoder's layers pass through the device one by one, because the memory policy says so or the
  /// encoder does not fit.
  bool streams() const;
  /// Loads the encoder, which stays until it is released. Does nothing if the encoder streams, or if memory runs out.
  void load();
  bool is_loaded() const { return encoder_ != nullptr; }
  /// Returns the bytes of the device that release() would free.
  uint64_t held_bytes() const;
  void release();
  /// Encodes the plan's prompts in the run's dtype. An encoder that is not loaded is streamed. Without a tokenizer, the
  /// ids are random numbers from a generator seeded by the prompt. If the plan has images and the encoder looks at
  /// images, `seen` must be the result of look(); the encoded text then includes the pictures.
  Conditioning encode(const Plan& plan, std::vector<std::string>* warnings = nullptr, const at::Tensor& seen = {});

 private:
  bool looks_at_images() const { return spec_.image.text_patches.has_value(); }
  Conditioning encode_texts(const Plan& plan, const at::Tensor& seen, std::vector<std::string>* warnings);
  Conditioning encode_with_pictures(const TextEncoder& encoder, const Plan& plan, const at::Tensor& seen);
  void load_tokenizer();
  void check_vocabulary(int64_t encoders) const;
  TokenIds whole_prompt(const std::string& text, int64_t length, int64_t vocab_size) const;
  TokenIds token_ids(const char* name, const std::string& text, const PromptRules& rules, int64_t length,
                     int64_t vocab_size, std::vector<std::string>* warnings);

  const Checkpoint& folder_;
  const ModelSpec& spec_;
  at::Device device_;
  WeightFormat format_;
  const MemoryPolicy& memory_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<TextEncoder> encoder_;
};

}  // namespace sparsereel::models
