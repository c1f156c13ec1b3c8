// What diffusers calls the layers of Wan's transformer, and what its authors do.
#include <array>
#include <utility>

#include "models/families/wan.h"

namespace sparsereel::models {

std::string wan_original_name(std::string name) {
  // A block's layers, then those beside the blocks; what begins alike stands longest first.
  constexpr std::array<std::pair<const char*, const char*>, 13> kPieces = {
      {{"attn1.to_out.0", "self_attn.o"},
       {"attn2.to_out.0", "cross_attn.o"},
       {"attn1.to_", "self_attn."},
       {"attn2.to_", "cross_attn."},
       {"attn1.", "self_attn."},
       {"attn2.", "cross_attn."},
       {"ffn.net.0.proj", "ffn.0"},
       {"ffn.net.2", "ffn.2"},
       {"condition_embedder.text_embedder.linear_", "text_embedding."},
       {"condition_embedder.time_embedder.linear_", "time_embedding."},
       {"condition_embedder.time_proj", "time_projection.1"},
       {"norm2", "norm3"},
       {"proj_out", "head.head"}}};
  const bool in_block = name.starts_with("blocks.");
  if (const size_t table = name.find("scale_shift_table"); table != std::string::npos)
    return (in_block ? name.substr(0, table) : "head.") + "modulation";
  for (const auto& [ours, theirs] : kPieces) {
    const size_t place = name.find(ours);
    if (place == std::string::npos) continue;
    name.replace(place, std::string_view(ours).size(), theirs);
    break;
  }
  // Two layers with an activation between them: 0 and 2 of a sequence.
  for (const char* embedding : {"text_embedding.", "time_embedding."})
    if (name.starts_with(embedding)) {
      char& number = name[std::string_view(embedding).size()];
      if (number == '1') number = '0';
    }
  return name;
}

}  // namespace sparsereel::models
