// Lists each format's tensors, and checks their shapes.
#include "models/store/checkpoint/quantized_format.h"

#include <algorithm>
#include <bit>

#include "models/files/json_text.h"
#include "models/layers/cuda/packed_blocks.h"
#include "models/store/checkpoint/joined_rows.h"

namespace sparsereel::models {
namespace {

using Shape = std::vector<int64_t>;

constexpr int64_t kMxColumns = PackedBlock<Dtype::mxfp8>::elements, kNvColumns = PackedBlock<Dtype::nvfp4>::elements,
                  kAwqColumns = PackedBlock<Dtype::awq4>::elements;
constexpr int64_t kDefaultGroup = 16;  // columns that share a scale in asym_w4a8_int8

std::string text_of(const Shape& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

/// Returns a complaint if the tensor exists and has none of these shapes, or else an empty string.
std::string unless_shaped(const QuantizedLayer& layer, const std::string& part, const std::vector<Shape>& shapes) {
  const TensorEntry* entry = layer.find(part);
  if (entry == nullptr || std::ranges::count(shapes, entry->shape) > 0) return {};
  return in_quotes(entry->name) + " of the shape " + text_of(entry->shape) + " instead of " + text_of(shapes.front());
}

std::string unless_one_a_row(const QuantizedLayer& layer, const std::string& part) {
  return unless_shaped(layer, part, {{layer.rows}, {layer.rows, 1}, {}, {1}});
}

std::string problem_of_blocks(const QuantizedLayer& layer, int64_t block, Dtype dtype) {
  const TensorEntry& scale = *layer.find("weight_scale");
  if (scale.dtype != dtype && scale.dtype != Dtype::u8)
    return in_quotes(scale.name) + " stored as " + std::string(name(scale.dtype)) + ", not " + std::string(name(dtype));
  const int64_t blocks = layer.columns / block;
  if (layer.columns % block != 0) return "blocks of " + std::to_string(block) + " that do not divide its columns";
  const Shape tiled = tiled_shape(layer.rows, blocks), in_rows = {layer.rows, blocks};
  if (layer.is_marked) return unless_shaped(layer, "weight_scale", {tiled});
  // Files without a description may store scales tiled (LightX2V's, which have "alpha") or row by row (NVIDIA's). If
  // both have the same shape, nothing else tells the order.
  const bool tiles = layer.find("alpha") != nullptr && layer.find("weight_scale_2") == nullptr;
  if (tiled == in_rows && scale.shape == tiled && !tiles)
    return in_quotes(scale.name) + " " + text_of(scale.shape) + " in an order that nothing describes";
  return unless_shaped(layer, "weight_scale", {tiled, in_rows});
}

std::string problem_of_nvfp4(const QuantizedLayer& layer) {
  for (const char* part : {"weight_scale_2", "alpha", "input_global_scale"})
    if (std::string wrong = unless_shaped(layer, part, {{}, {1}}); !wrong.empty()) return wrong;
  if (layer.find("weight_scale_2") == nullptr && (layer.find("alpha") == nullptr || !layer.find("input_global_scale")))
    return "no \"weight_scale_2\" beside its weight";
  return problem_of_blocks(layer, kNvColumns, Dtype::f8_e4m3);
}

std::string problem_of_mxfp8(const QuantizedLayer& layer) {
  return problem_of_blocks(layer, kMxColumns, Dtype::f8_e8m0);
}

std::string problem_of_w4a4(const QuantizedLayer& layer) {
  constexpr int64_t kColumns = PackedBlock<Dtype::int4>::elements;
  if (layer.columns % kColumns != 0)
    return std::to_string(layer.columns) + " columns, not a multiple of " + std::to_string(kColumns);
  return unless_one_a_row(layer, "weight_scale");
}

std::string problem_of_w4a8(const QuantizedLayer& layer) {
  const Shape& scales = layer.find("weight_s_rel")->shape;
  const int64_t bytes = layer.find("weight")->shape[1];
  const bool fits = bytes * 2 == layer.columns || bytes * 4 == layer.columns * 3;
  if (!fits || scales.size() != 2 || scales[1] == 0 || layer.columns % scales[1] != 0 || layer.columns % 16 != 0)
    return in_quotes(layer.find("weight_s_rel")->name) + " of the shape " + text_of(scales) +
           ", which does not fit rows of " + std::to_string(bytes) + " bytes";
  if (layer.group != 0 && layer.group != group_of_w4a8(layer))
    return "a group of " + std::to_string(layer.group) + " but scales for groups of " +
           std::to_string(group_of_w4a8(layer));
  if (bits_of_w4a8(layer) == 6 && layer.find("weight_codebook") != nullptr) return "a codebook for six bits";
  for (const auto& [part, shapes] :
       {std::pair<std::string, std::vector<Shape>>{"weight_s_rel", {{layer.rows, scales[1]}}},
        {"weight_s_channel", {{layer.rows}, {layer.rows, 1}}},
        {"weight_codebook", {{16}}}})
    if (std::string wrong = unless_shaped(layer, part, shapes); !wrong.empty()) return wrong;
  return {};
}

std::string problem_of_awq(const QuantizedLayer& layer) {
  const Shape& scales = layer.find("weight_scale")->shape;
  const int64_t groups = scales.empty() ? 0 : scales[0];
  if (groups == 0 || layer.columns % groups != 0 || layer.columns / groups % kAwqColumns != 0)
    return in_quotes(layer.find("weight_scale")->name) + " of the shape " + text_of(scales) + " instead of " +
           text_of({layer.columns / kAwqColumns, layer.stored_rows});
  if (layer.group != 0 && layer.group != layer.columns / groups)
    return "a group of " + std::to_string(layer.group) + " but scales for groups of " +
           std::to_string(layer.columns / groups);
  for (const char* part : {"weight_scale", "weight_zeros"})
    if (std::string wrong = unless_shaped(layer, part, {{groups, layer.stored_rows}}); !wrong.empty()) return wrong;
  return {};
}

const std::vector<std::string> kOneScale = {"weight_scale", "scale_weight"};

/// The supported formats. float8_e4m3fn, float8_e5m2 and int8_tensorwise have no `problem`: their scales are checked
/// when weights are read.
const QuantizedFormat kFormats[] = {
    {.name = "float8_e4m3fn", .stored = Dtype::f8_e4m3, .packed = Dtype::f8_e4m3, .more = kOneScale},
    {.name = "float8_e5m2", .stored = Dtype::f8_e5m2, .packed = Dtype::f8_e5m2, .more = kOneScale},
    {.name = "int8_tensorwise", .stored = Dtype::i8, .packed = Dtype::i8, .more = kOneScale, .may_rotate = true},
    {.name = "mxfp8",
     .stored = Dtype::f8_e4m3,
     .packed = Dtype::mxfp8,
     .own = {"weight_scale"},
     .problem = problem_of_mxfp8,
     .join = join_mxfp8,
     .padding_rows = 32,
     .padding_columns = 32},
    {.name = "nvfp4",
     .stored = Dtype::u8,
     .packed = Dtype::nvfp4,
     .codes = 2,
     .own = {"weight_scale"},
     .more = {"weight_scale_2", "alpha", "input_global_scale"},
     .problem = problem_of_nvfp4,
     .join = join_nvfp4,
     .row_scales = scales_of_nvfp4,
     .padding_rows = 16,
     .padding_columns = 16},
    {.name = "convrot_w4a4",
     .stored = Dtype::i8,
     .packed = Dtype::int4,
     .codes = 2,
     .own = {"weight_scale"},
     .may_rotate = true,
     .must_rotate = true,
     .problem = problem_of_w4a4,
     .join = join_w4a4,
     .row_scales = scales_of_w4a4},
    {.name = "asym_w4a8_int8",
     .stored = Dtype::i8,
     .packed = Dtype::i8,
     .codes = 0,
     .own = {"weight_s_rel", "weight_s_channel"},
     .more = {"weight_codebook"},
     .may_rotate = true,
     .must_rotate = true,
     .problem = problem_of_w4a8,
     .join = join_w4a8,
     .row_scales = scales_of_w4a8},
    {.name = "awq_w4a16",
     .stored = Dtype::i8,
     .packed = Dtype::awq4,
     .codes = 2,
     .own = {"weight_scale", "weight_zeros"},
     .problem = problem_of_awq,
     .join = join_awq},
};

}  // namespace

const QuantizedFormat* format_named(std::string_view name) {
  const auto* found = std::ranges::find(kFormats, name, &QuantizedFormat::name);
  return found == std::end(kFormats) ? nullptr : found;
}

void set_size(QuantizedLayer& layer) {
  const Shape& shape = layer.find("weight")->shape;
  layer.rows = shape.empty() ? 1 : shape.front();
  layer.columns = shape.size() < 2 ? 1 : shape[1];
  if (shape.size() != 2 || layer.find("weight")->elements() == 0) return;
  layer.columns *= layer.format->codes;
  if (layer.format->codes > 0) return;
  const TensorEntry* scales = layer.find("weight_s_rel");
  const int64_t groups =
      scales == nullptr || scales->shape.size() != 2 || scales->elements() == 0 ? 0 : scales->shape[1];
  const int64_t group = layer.group > 0 ? layer.group : kDefaultGroup;
  const bool is_six = groups * group * 3 == shape[1] * 4;
  layer.columns = is_six ? shape[1] * 4 / 3 : shape[1] * 2;
}

std::string problem_of(const QuantizedLayer& layer) {
  const QuantizedFormat& format = *layer.format;
  const TensorEntry& weight = *layer.find("weight");
  const bool turned = layer.rotation > 0, is_plain = format.problem == nullptr && !turned;
  if (weight.dtype != format.stored)
    return std::string(name(format.stored)) + " weights, but its weight is stored as " +
           std::string(name(weight.dtype));
  if (!is_plain && (weight.shape.size() != 2 || weight.elements() == 0))
    return in_quotes(weight.name) + " of the shape " + text_of(weight.shape);
  if (turned && (!std::has_single_bit(static_cast<uint64_t>(layer.rotation)) ||
                 std::countr_zero(static_cast<uint64_t>(layer.rotation)) % 2 == 1 || layer.rotation < 4))
    return "ConvRot in groups of " + std::to_string(layer.rotation) + ", not a power of 4";
  if (turned && layer.columns % layer.rotation != 0)
    return "ConvRot in groups of " + std::to_string(layer.rotation) + ", which do not divide its " +
           std::to_string(layer.columns) + " columns";
  for (const std::string& part : format.own)
    if (layer.find(part) == nullptr) return "no " + in_quotes(part) + " beside its weight";
  if (std::string wrong = unless_shaped(layer, "pre_quant_scale", {{layer.columns}}); !wrong.empty()) return wrong;
  return format.problem == nullptr ? std::string() : format.problem(layer);
}

}  // namespace sparsereel::models
