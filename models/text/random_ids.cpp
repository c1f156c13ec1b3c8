// Draws token ids; see random_ids.h.
#include "models/text/random_ids.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "models/weights/random_weights.h"

namespace sparsereel::models {

at::Tensor random_token_ids(const std::string& text, int64_t length, int64_t vocab_size) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed_of_name(text, 0));
  return at::randint(vocab_size, {length}, generator, at::TensorOptions().dtype(at::kLong));
}

}  // namespace sparsereel::models
