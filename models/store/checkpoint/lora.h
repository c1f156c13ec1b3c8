// Adds the LoRAs of a run to the checkpoint's tensors, and tells for which model a LoRA was made. No torch.
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

/// Returns the SHA-256 of each file, separated by commas. If a file has settings beside it (adapter_config_of()), its
/// hash is the SHA-256 of both files' hashes. Reads whole files.
std::string hash_of(const std::vector<LoraChoice>& loras);

/// The model for which a LoRA was made, as far as the names and shapes of its layers tell.
struct LoraOrigin {
  const Family* family = nullptr;  // null if the layers fit no known family
  std::string naming;              // "diffusers", "kohya", "original"
  int64_t width = 0, blocks = 0;   // sizes of the transformer; 0 if the layers do not tell
  std::string expert;              // "high" or "low" if the name of the file or of its folder says so
};
LoraOrigin origin_of(const LoraFile& lora);

/// Does nothing if the model has only one expert. Otherwise, assigns an expert to each file that has none yet, if the
/// file's name, or else its folder's name, contains "high" or "low" for an expert. A file whose layers name their
/// transformer is not assigned. Reads the headers of files with such a name. Throws Error as read_lora() does.
std::vector<LoraChoice> with_experts(std::vector<LoraChoice> loras, const ModelSpec& spec);

/// Registers the LoRAs' changes with the checkpoint, which adds them when it reads weights. Reads only headers. Returns
/// warnings. One kind of warning tells what is left out of a file, with numbers and names: layers that the checkpoint
/// does not have, tensors that do not belong to a LoRA, and convolutions with other input channels (as in LoRAs of
/// models that take images) or with a kernel in B. Another kind tells to which expert with_experts() assigned a file.
/// Throws Error if nothing in a file fits, if a layer has another shape, or if the file is for another model. The Error
/// lists everything that does not fit, and says for which model the file seems to be. With `strict`, anything that
/// would be left out throws this Error.
std::vector<std::string> add_loras(Checkpoint& checkpoint, const ModelSpec& spec, const std::vector<LoraChoice>& loras,
                                   bool strict = false);

}  // namespace sparsereel::models
