// The LoRAs of a run: their files and scales, and what they add to the tensors of the checkpoint. No torch.
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

/// Returns the SHA-256 of each file, separated by commas. If a file has settings beside it (adapter_config_of()), the
/// hash covers both files' hashes. Reads whole files.
std::string hash_of(const std::vector<LoraChoice>& loras);

/// The model that a LoRA was made for, as far as its layers' names and shapes tell.
struct LoraOrigin {
  const Family* family = nullptr;  // null if the layers fit no known family
  std::string naming;              // "diffusers", "kohya", "original"
  int64_t width = 0, blocks = 0;   // sizes of the transformer; 0 if the layers do not tell
  std::string expert;              // "high" or "low" if the name of the file or of its folder says so
};
LoraOrigin origin_of(const LoraFile& lora);

/// If the model has several experts, assigns each file without an expert to the expert that its name, or else the name
/// of its folder, contains. Files whose layers name their transformer are not changed. Reads the headers of files whose
/// names say an expert. Throws Error as read_lora() does.
std::vector<LoraChoice> with_experts(std::vector<LoraChoice> loras, const ModelSpec& spec);

/// Makes the checkpoint add the LoRAs to its weights when they are read, and returns warnings. Only headers are read. A
/// warning counts and names what is left out of a file: layers that the checkpoint does not have, tensors that do not
/// belong to a LoRA, and convolutions with other input channels (as in LoRAs of models that take images) or with a
/// kernel in B. A warning says which files with_experts() assigned. Throws one Error for all that does not fit in a
/// file, saying what the file seems made for, if nothing fits, a layer has another shape, or the file is for another
/// model. With `strict`, throws it for anything that would be left out.
std::vector<std::string> add_loras(Checkpoint& checkpoint, const ModelSpec& spec, const std::vector<LoraChoice>& loras,
                                   bool strict = false);

}  // namespace sparsereel::models
