// The base class of all families' transformers. A transformer has a config, blocks of one type, and layers before and
// after the blocks.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "models/store/checkpoint/checkpoint.h"
#include "models/transformer/transformer.h"

namespace sparsereel::models {

/// `Config` must have num_layers, num_attention_heads and attention_head_dim. `Ends` holds the layers before and after
/// the blocks. Ends::weights(visit, config) and Block::weights(visit, name, config) list their weights.
template <typename Config, typename Ends, typename Block>
class LayeredTransformer : public Transformer {
 public:
  size_t layers() const override { return blocks_.size(); }
  void weights(const Visit& visit) override { ends_.weights(visit, config_); }
  void weights(size_t layer, const Visit& visit) override {
    blocks_[layer].weights(visit, blocks_name_ + std::to_string(layer), config_);
  }

 protected:
  /// `blocks_name` is the part of a tensor's name before a block's number: "blocks.". Throws Error as `parse` does.
  LayeredTransformer(const Component& component, Config (*parse)(const nlohmann::json& json, const std::string& file),
                     std::string blocks_name)
      : config_(parse(component.config, component.config_file)),
        config_file_(component.config_file),
        blocks_name_(std::move(blocks_name)),
        blocks_(static_cast<size_t>(config_.num_layers)) {}

  Heads heads() const { return {config_.num_attention_heads, config_.attention_head_dim}; }
  /// Views x [B, N, parts * C] as [B, N, parts, heads, head_dim], where C = heads * head_dim.
  at::Tensor split_heads(const at::Tensor& x) const { return x.unflatten(2, {-1, heads().count, heads().dim}); }

  const Config config_;
  const std::string config_file_, blocks_name_;
  Ends ends_;
  std::vector<Block> blocks_;
};

}  // namespace sparsereel::models
