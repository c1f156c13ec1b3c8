// An example that replaces a program's attention on a CPU with the library's. Prints the difference of the two results,
// the beginning of a token order, and the message about an invalid call.
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

struct Shape {
  int64_t batch, tokens, heads, head_dim;
  int64_t size() const { return batch * tokens * heads * head_dim; }
};

// The program's attention: softmax(q k^T / sqrt(head_dim)) v over [batch, tokens, heads, head_dim].
void own_attention(const float* q, const float* k, const float* v, float* out, const Shape& s) {
  const int64_t row = s.heads * s.head_dim;
  std::vector<double> weight(static_cast<size_t>(s.tokens));
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h)
      for (int64_t i = 0; i < s.tokens; ++i) {
        const auto at = [&](int64_t token) { return (b * s.tokens + token) * row + h * s.head_dim; };
        double sum = 0;
        for (int64_t j = 0; j < s.tokens; ++j) {
          double score = 0;
          for (int64_t d = 0; d < s.head_dim; ++d) score += static_cast<double>(q[at(i) + d]) * k[at(j) + d];
          sum += weight[j] = std::exp(score / std::sqrt(static_cast<double>(s.head_dim)));
        }
        for (int64_t d = 0; d < s.head_dim; ++d) {
          double x = 0;
          for (int64_t j = 0; j < s.tokens; ++j) x += weight[j] / sum * v[at(j) + d];
          out[at(i) + d] = static_cast<float>(x);
        }
      }
}

// The library's attention, which replaces it.
#include <sparsereel/attention.hpp>

void attention(const float* q, const float* k, const float* v, float* out, const Shape& s, double topk) {
  static sparsereel::Attention library(SPARSEREEL_CPU);
  static std::vector<char> workspace;
  sparsereel::AttentionCall call(s.batch, s.tokens, s.heads, s.head_dim);
  call.q.data = const_cast<float*>(q);
  call.k.data = const_cast<float*>(k);
  call.v.data = const_cast<float*>(v);
  call.out.data = out;
  call.policy.all.topk = topk;
  workspace.resize(std::max(workspace.size(), library.workspace_size(call)));
  library.run(call, workspace.data(), workspace.size());
}

int main() {
  const Shape shape{1, 10 * 8 * 8, 2, 64};
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> q(shape.size()), k(shape.size()), v(shape.size()), own(shape.size()), out(shape.size());
  for (auto* tensor : {&q, &k, &v})
    for (float& x : *tensor) x = normal(generator);
  own_attention(q.data(), k.data(), v.data(), own.data(), shape);
  for (const double topk : {1.0, 0.25}) {
    attention(q.data(), k.data(), v.data(), out.data(), shape, topk);
    double error = 0, size = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      error += std::abs(out[i] - own[i]);
      size += std::abs(own[i]);
    }
    std::printf("topk %g: relative L1 %.3g\n", topk, error / size);
  }
  const std::vector<int64_t> order = sparsereel::token_order(SPARSEREEL_HILBERT, 10, 8, 8);
  std::printf("Hilbert order begins with %lld, %lld, %lld\n", static_cast<long long>(order[0]),
              static_cast<long long>(order[1]), static_cast<long long>(order[2]));
  try {
    attention(q.data(), k.data(), v.data(), out.data(), shape, 2);
  } catch (const sparsereel::AttentionError& error) {
    std::printf("%s: %s\n", sparsereel_status_name(error.status()), error.what());
  }
}
