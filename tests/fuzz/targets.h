// The fuzzers' targets. Each one passes arbitrary bytes to a parser. The parser must throw Error or return a plausible
// result; anything else ends the process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "app/jobs/batch/manifest.h"
#include "app/jobs/batch/names.h"
#include "app/jobs/batch/prompt_set.h"
#include "app/serve/body.h"
#include "app/serve/multipart.h"
#include "attention/policies/profile.h"
#include "hilbert/error.h"
#include "hilbert/read_text.h"
#include "models/families/cogvideox/config.h"
#include "models/families/cogvideox/family.h"
#include "models/families/cogvideox/vae_config.h"
#include "models/families/minimax_h3/config.h"
#include "models/families/minimax_h3/sound_config.h"
#include "models/families/minimax_h3/vae_config.h"
#include "models/families/wan/vae_config.h"
#include "models/files/json_text.h"
#include "models/image/clip_config.h"
#include "models/image/processor_config.h"
#include "models/request/patch_config.h"
#include "models/samplers/flow_config.h"
#include "models/store/checkpoint/checkpoint.h"
#include "models/store/checkpoint/gguf.h"
#include "models/store/checkpoint/pickle.h"
#include "models/store/checkpoint/safetensors.h"
#include "models/store/checkpoint/torch_zip.h"
#include "models/text/encoder/qwen3_config.h"
#include "models/text/encoder/qwen3_vision_config.h"
#include "models/text/encoder/t5_config.h"
#include "models/text/gguf_tokenizer.h"
#include "models/text/tokenizer.h"
#include "models/text/tokenizer_json.h"

namespace sparsereel::test {

/// Calls a parser of weight files. Aborts if it returns a tensor that lies outside the file of `file_size` bytes.
template <typename Parse>
void parse_tensor_list(uint64_t file_size, const Parse& parse) {
  try {
    for (const models::TensorEntry& entry : parse().entries) {
      if (entry.offset > file_size || entry.bytes > file_size - entry.offset) std::abort();
    }
  } catch (const Error&) {
    // Most inputs end here.
  }
}

inline void parse_header(std::span<const std::byte> file, uint64_t file_size) {
  parse_tensor_list(file_size, [&] { return models::parse_safetensors_header(file, file_size, "fuzz.safetensors"); });
}

/// Parses the bytes as a GGUF file, and the tokenizer in its key-value pairs.
inline void fuzz_gguf(std::span<const std::byte> bytes) {
  models::TensorList list;
  parse_tensor_list(bytes.size(), [&] { return list = models::parse_gguf(bytes, "fuzz.gguf"); });
  try {
    const models::SpieceModel model = models::parse_gguf_tokenizer(list.metadata, "fuzz.gguf");
    models::Tokenizer(model, {}, "fuzz.gguf").encode("a red <s> b\u00E9", 64);
  } catch (const Error&) {
    // Most inputs end here.
  }
}

/// Parses the bytes as a whole file of torch.save(), and as the pickle inside such a file.
inline void fuzz_torch_zip(std::span<const std::byte> bytes) {
  parse_tensor_list(bytes.size(), [&] { return models::parse_torch_zip(bytes, "fuzz.pth"); });
  try {
    models::read_pickle(bytes, "data.pkl");
  } catch (const Error&) {
    // Most inputs end here.
  }
}

/// Parses the bytes as a whole safetensors file, and as the JSON header of such a file. For the latter, this function
/// adds the header's length, which a fuzzer would seldom guess.
inline void fuzz_safetensors(std::span<const std::byte> bytes) {
  parse_header(bytes, bytes.size());
  const uint64_t length = bytes.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  constexpr uint64_t kDataBytes = 16;
  parse_header(std::as_bytes(std::span(file)), file.size() + kDataBytes);
}

/// Parses the bytes as each kind of JSON file that a checkpoint holds.
inline void fuzz_config(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto attempt = [&](const auto& parse) {
    try {
      parse(models::parse_json(text, "fuzz.json", "none"), "fuzz.json");
    } catch (const Error&) {
      // Most inputs end here.
    }
  };
  // Parses a VAE's config for a VAE with an encoder and for one without.
  const auto attempt_vae = [&](const auto& parse) {
    for (const bool with_encoder : {false, true})
      attempt([&](const auto& json, const auto& file) { parse(json, file, with_encoder); });
  };
  attempt(models::parse_t5_config);
  attempt(models::parse_cogvideox_config);
  attempt_vae(models::parse_cogvideox_vae_config);
  attempt(models::parse_cogvideox_scheduler_config);
  attempt(models::parse_flow_euler_config);
  attempt(models::parse_unipc_config);
  attempt_vae(models::parse_wan_vae_config);
  attempt(models::parse_minimax_h3_config);
  attempt(models::parse_minimax_h3_vae_config);
  attempt(models::parse_minimax_h3_sound_config);
  attempt(models::parse_qwen3_config);
  attempt(models::parse_qwen3_vision_config);
  attempt(models::parse_patch_config);
  attempt(models::parse_clip_vision_config);
  attempt(models::parse_image_processor_config);
  attempt(models::check_model_index);
  attempt(models::parse_weight_map);
  attempt([](const nlohmann::json& json, const std::string& path) {
    models::TokenizerConfig tokenizer_config;
    const models::SpieceModel model = models::parse_tokenizer_json(json, tokenizer_config, path);
    models::Tokenizer(model, tokenizer_config, path).encode("a red <s> b\u00E9", 64);
  });
}

/// Parses the bytes as a prompt set in each format. Aborts if the path of a video leaves the output folder.
inline void fuzz_prompt_set(std::span<const std::byte> bytes) {
  using enum app::sets::SetFormat;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const app::sets::SetFormat format : {txt, jsonl, csv, yaml}) {
    try {
      for (const app::sets::PromptRow& row : app::sets::parse_prompt_set(text, format, "fuzz")) {
        const auto prompt = row.values.find("prompt"), output = row.values.find("output");
        const std::string words = prompt == row.values.end() ? "" : prompt->second;
        if (!app::sets::is_plain_name(app::sets::video_name(row.line, words, ".mp4"))) std::abort();
        if (output != row.values.end() && !app::sets::is_plain_name(output->second)) std::abort();
      }
    } catch (const Error&) {
      // Most inputs end here.
    }
  }
}

/// Parses the bytes as a manifest. Aborts if a line neither gives an entry nor causes a warning, if the path of a video
/// leaves the output folder, or if an entry's row is beyond its rows.
inline void fuzz_manifest(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::string> warnings;
  const auto entries = app::sets::parse_manifest(text, "fuzz", warnings);
  for (const app::sets::ManifestEntry& entry : entries)
    if (!app::sets::is_plain_name(entry.output) || entry.row >= entry.rows) std::abort();
  const auto ends = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  if (entries.size() + warnings.size() != ends + (text.empty() || text.ends_with('\n') ? 0 : 1)) std::abort();
}

/// Parses the bytes as the JSON of a request for a video, as a form with the boundary "limit", and as the parts of a
/// form: each line is a part, "NAME=text" or, for a file, "@NAME=bytes". Aborts if an accepted value or picture belongs
/// to an option that requests may not give.
inline void fuzz_request(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto attempt = [](const auto& parse) {
    try {
      const app::serve::AskedVideo asked = parse();
      for (const auto& [key, value] : asked.values)
        if (!app::is_request_field(*app::find_option(key))) std::abort();
      for (const auto& [key, picture] : asked.pictures)
        if (key != "image" && key != "last_image") std::abort();
    } catch (const Error&) {
      // Most inputs end here.
    }
  };
  attempt([&] { return app::serve::parse_json_body(text); });
  std::vector<app::serve::HttpPart> parts;
  for (const std::string& line : split(text, '\n')) {
    const size_t end = std::min(line.find('='), line.size());
    const bool is_file = end > 0 && line[0] == '@';
    parts.push_back({.name = line.substr(is_file ? 1 : 0, end - (is_file ? 1 : 0)),
                     .content = line.substr(std::min(end + 1, line.size())),
                     .is_file = is_file});
  }
  attempt([&] { return app::serve::parse_form(parts); });
  attempt(
      [&] { return app::serve::parse_form(app::serve::parse_multipart(text, "multipart/form-data; boundary=limit")); });
}

/// Parses the bytes as a profile. If it is accepted, writes and reads it again, and aborts if the result differs.
inline void fuzz_profile(std::span<const std::byte> bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  try {
    const std::string written = attention::to_yaml(attention::parse_profile(text, "fuzz.yaml"));
    if (attention::to_yaml(attention::parse_profile(written, "written.yaml")) != written) std::abort();
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with("written.yaml")) std::abort();
  }
}

/// Parses the bytes as a spiece.model. If they are accepted, tokenizes difficult texts and the bytes themselves. Aborts
/// if an id lies outside the vocabulary.
inline void fuzz_tokenizer(std::span<const std::byte> bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  models::TokenizerConfig config;
  config.extra_ids = 2;
  config.tokens = {{.content = "red"}, {.content = "<s>", .lstrip = true, .rstrip = true}};
  try {
    const models::Tokenizer tokenizer(models::parse_spiece(text, "spiece.model"), config, "spiece.model");
    for (const std::string& prompt :
         {std::string("a red <s> b\u00E9 e\u0301 \U0001F600 \uFB01 \u3000a\0a", 33), text}) {
      for (const int64_t id : tokenizer.encode(prompt, 64).ids)
        if (id < 0 || id >= tokenizer.vocabulary_size()) std::abort();
    }
  } catch (const Error&) {
    // Most inputs end here.
  }
}

}  // namespace sparsereel::test
