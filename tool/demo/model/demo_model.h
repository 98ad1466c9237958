// The layer of `ferry demo`: tokens from a text, a router that has seen it, and experts with fixed weights. The same
// text and seed give the same layer everywhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tool/layer/layer.h"

namespace ferry::app {

extern const char* const kDemoText;  // the first chapter of Moby-Dick

class DemoModel {
 public:
  static constexpr int kHidden = 512;
  static constexpr int kInter = 128;
  static constexpr int kExperts = 32;
  static constexpr int kTopK = 4;

  // Words are tokens. Another seed gives another router and other experts.
  explicit DemoModel(std::vector<std::string> words, std::uint64_t seed = 0);

  const Layer& layer() const { return layer_; }
  const std::vector<std::string>& words() const { return words_; }  // one for each token

  // Words that an expert gets more often than the others do, the most telling first.
  std::vector<std::string> words_of_expert(int expert, int count) const;

 private:
  void embed();
  void route();
  void make_experts();

  std::uint64_t seeded(std::uint64_t stream) const;  // differs for each stream of each seed

  std::vector<std::string> words_;
  std::uint64_t seed_;
  std::vector<float> x_;
  std::vector<std::int32_t> ids_;
  std::vector<float> weights_;
  std::vector<float> gate_up_;
  std::vector<float> down_;
  Layer layer_;
};

// Words and marks of a text, in order and in lower case.
std::vector<std::string> split_words(const std::string& text);

}  // namespace ferry::app
