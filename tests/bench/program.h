// Code that the benchmark programs share: reading arguments, printing errors and results, writing tensors, and a timed
// loop.
#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "hilbert/error.h"
#include "models/store/checkpoint/safetensors.h"
#include "models/store/checkpoint/tensor_file.h"

namespace sparsereel::bench {

/// Runs the body of a program's main() and returns its exit code. An exception becomes a message and a nonzero code.
inline int guarded(const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n  remedy: %s\n", error.what(), error.remedy().c_str());
    return error.kind() == sparsereel::ErrorKind::bad_input ? 2 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}

/// Runs a program that takes exactly the arguments named in `usage` and prints one JSON object. Returns the exit code.
inline int print_json(std::span<char*> arguments, const std::vector<std::string>& usage,
                      const std::function<nlohmann::json(const std::vector<std::string>&)>& run) {
  if (arguments.size() != usage.size() + 1) {
    std::cerr << "usage: " << arguments[0];
    for (const std::string& name : usage) std::cerr << " " << name;
    std::cerr << "\n";
    return 2;
  }
  return guarded([&] {
    std::cout << run({arguments.begin() + 1, arguments.end()}) << "\n";
    return 0;
  });
}

inline at::Tensor read_tensor(const models::TensorFile& file, const std::string& name, at::ScalarType dtype) {
  const models::TensorEntry* entry = file.find(name);
  if (entry == nullptr)
    throw bad_input(file.path().string() + " holds no tensor " + name, "let the compare_*.py script write it");
  return at::from_blob(const_cast<std::byte*>(file.data(*entry).data()), entry->shape, dtype).clone();
}

inline void write_tensor(const std::string& path, const std::string& name, const at::Tensor& fp32) {
  const at::Tensor values = fp32.contiguous();
  const std::span data(values.const_data_ptr<float>(), static_cast<size_t>(values.numel()));
  models::write_safetensors(path, {{name, models::Dtype::f32, values.sizes().vec(), std::as_bytes(data)}});
}

/// Calls `run` `count` times. Returns the seconds of each call.
inline std::vector<double> timed(int count, const std::function<void()>& run) {
  std::vector<double> seconds;
  for (int i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return seconds;
}

}  // namespace sparsereel::bench
