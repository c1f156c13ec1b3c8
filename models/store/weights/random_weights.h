// Weights for a model that has none: a machine can then be measured before gigabytes are downloaded.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace sparsereel::models {

/// A generator's seed for something with this name, the same on every machine.
uint64_t seed_of_name(const std::string& name, uint64_t seed);

/// The tensor of this name, the same for the same seed, device, dtype and shape whatever was asked for before; made on
/// the device. Matrices and kernels are normal with a deviation of (inputs an output sums)^-0.5, which keeps
/// activations near unit scale at any width; biases are normal with 0.02; other vectors scale a norm and are ones. On
/// the meta device nothing is drawn.
at::Tensor random_weight(const std::string& name, const std::vector<int64_t>& shape, at::Device device,
                         at::ScalarType dtype, uint64_t seed);

/// Token ids for a text encoder that has no tokenizer, because its weights are random: int64 [length] in
/// [0, vocab_size), evenly drawn from a generator that the text seeds. Other texts give other ids.
at::Tensor random_token_ids(const std::string& text, int64_t length, int64_t vocab_size);

/// How many of them stand for the text and its end, the rest being padding: one for four bytes, about what English
/// prompts have.
int64_t random_token_count(const std::string& text, int64_t length);

}  // namespace sparsereel::models
