// Makes random weights. With them a machine's speed can be measured before gigabytes are downloaded.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace sparsereel::models {

/// Derives a seed from `seed` and a name. The result is the same on every machine.
uint64_t seed_of_name(const std::string& name, uint64_t seed);

/// Makes the tensor of this name on the device. It depends only on name, seed, device, dtype and shape, not on earlier
/// calls. Matrices and kernels of convolutions are normal with standard deviation (inputs per output)^-0.5, which keeps
/// activations near unit scale at any width. Biases are normal with standard deviation 0.02. Other vectors are weights
/// of norms, and are ones. On the meta device, it draws no numbers.
at::Tensor random_weight(const std::string& name, const std::vector<int64_t>& shape, at::Device device,
                         at::ScalarType dtype, uint64_t seed);

/// Returns token ids for a text encoder with random weights, which has no tokenizer: int64 [length], uniform in [0,
/// vocab_size). The text is the generator's seed, so different texts give different ids.
at::Tensor random_token_ids(const std::string& text, int64_t length, int64_t vocab_size);

/// Returns how many of the ids from random_token_ids() count as the text and its end; the others count as padding. Four
/// bytes of text count as one token, about as in English prompts.
int64_t random_token_count(const std::string& text, int64_t length);

}  // namespace sparsereel::models
