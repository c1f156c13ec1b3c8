// The LoRAs of a run: which files, how strong, and what they add to which tensors of the checkpoint. No torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/request/lora_choice.h"
#include "models/request/spec.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/family.h"
#include "models/store/checkpoint/lora_file.h"

namespace sparsereel::models {

/// SHA-256 of each file, with commas between; where settings stand beside it (adapter_config_of()), the one of both
/// files' hashes. Reads them to their ends.
std::string hash_of(const std::vector<LoraChoice>& loras);

/// What the layers' names and shapes tell of the model that a file was made for.
struct LoraOrigin {
  const Family* family = nullptr;  // null: none that is known
  std::string naming;              // "diffusers", "kohya", "original"
  int64_t width = 0, blocks = 0;   // of the transformer, as far as its blocks tell; 0: they do not
  std::string expert;              // "high" or "low" where the name of the file or of its folder says so
};
LoraOrigin origin_of(const LoraFile& lora);

/// Of a model of several experts, each file without one gets the expert that its name, or else its folder's name, says.
/// A file whose layers say it themselves stays as it is. Reads the headers of files whose names say one; throws Error
/// as read_lora() does.
std::vector<LoraChoice> with_experts(std::vector<LoraChoice> loras, const ModelSpec& spec);

/// Lets the checkpoint's weights be read with the LoRAs added. Only headers are read. Layers that the checkpoint has
/// not, tensors that are no LoRA's, and layers of convolutions that have other input channels or a kernel in B are left
/// out where the file's other layers fit (LoRAs of models that take images): a warning a file counts and names them.
/// `strict`: they are refused. Experts are chosen by with_experts(), and a warning says for which files.
/// Throws one Error a file that lists all that does not fit and says what the file seems to be made for.
std::vector<std::string> add_loras(Checkpoint& checkpoint, const ModelSpec& spec, const std::vector<LoraChoice>& loras,
                                   bool strict = false);

}  // namespace sparsereel::models
