// Strips from tensors' names what training programs and exporters add to them. No torch.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::models {

/// Removes the names of modules that wrap a model or a layer during training or compilation (DDP, FSDP, torch.compile,
/// activation checkpointing, PEFT): "module.blocks.0._orig_mod.attn" becomes "blocks.0.attn". `separator` is the
/// character between the words of the name: '.', or '_' in kohya's names.
std::string without_wrappers(std::string_view name, char separator = '.');

/// Returns the prefixes that programs write before every name in a transformer's file. Several may follow each other.
const std::vector<std::string>& transformer_prefixes();

/// The maximum number of prefixes that are removed from one name.
inline constexpr size_t kMostPrefixes = 8;

}  // namespace sparsereel::models
