// Names of tensors without what programs put around a model or one of its layers. No torch.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sparsereel::models {

/// The name without the modules that wrap a model or a layer while it is trained or compiled (DDP, FSDP,
/// torch.compile, activation checkpointing, PEFT): "module.blocks.0._orig_mod.attn" is "blocks.0.attn". `separator`
/// stands between the name's parts: '.', or '_' in kohya's names.
std::string without_wrappers(std::string_view name, char separator = '.');

/// The words that programs write before every name of a transformer's file, where several may follow each other.
const std::vector<std::string>& transformer_prefixes();

/// The most prefixes that are taken off one name.
inline constexpr size_t kMostPrefixes = 8;

}  // namespace sparsereel::models
