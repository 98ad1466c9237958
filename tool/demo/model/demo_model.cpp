// Embeddings are sums of hashed features: the word, its letters in threes, its neighbours, and the words of the
// sentences around it; so tokens that look alike or stand alike get like vectors, and the router sends them to like
// experts.
#include "tool/demo/model/demo_model.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <utility>

namespace ferry::app {
namespace {

// splitmix64: a short generator with a fixed sequence for a seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }
  double normal() { return std::sqrt(-2.0 * std::log(uniform())) * std::cos(2.0 * std::numbers::pi * uniform()); }

 private:
  std::uint64_t state_;
};

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

std::vector<double> random_vector(std::uint64_t seed, int size) {
  Random random(seed);
  std::vector<double> values(static_cast<std::size_t>(size));
  for (double& value : values) value = random.normal();
  return values;
}

void add(std::vector<double>& to, const std::vector<double>& from, double factor) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += factor * from[i];
}

// The features of a word on its own.
std::vector<double> word_vector(const std::string& word) {
  std::vector<double> sum = random_vector(hash_of(word), DemoModel::kHidden);
  const std::string padded = "^" + word + "$";
  for (std::size_t i = 0; i + 3 <= padded.size(); ++i)
    add(sum, random_vector(hash_of(padded.substr(i, 3)), DemoModel::kHidden), 0.6);
  const double norm = std::sqrt(std::inner_product(sum.begin(), sum.end(), sum.begin(), 0.0) / DemoModel::kHidden);
  for (double& value : sum) value /= norm;
  return sum;
}

// Some columns of a trained model's tokens are much larger than the rest; block formats are made for that.
std::vector<double> column_gains() {
  std::vector<double> gains = random_vector(1, DemoModel::kHidden);
  for (double& gain : gains) gain = std::exp(0.7 * gain);
  return gains;
}

void fill_normal(std::vector<float>& values, std::uint64_t seed, double deviation) {
  Random random(seed);
  for (float& value : values) value = static_cast<float>(deviation * random.normal());
}

struct Choice {
  double score;
  int expert;
};

}  // namespace

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(word);
    word.clear();
  };
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || byte >= 0x80 || (c == '\'' && !word.empty())) {
      word += static_cast<char>(std::tolower(byte));
    } else {
      end_word();
      if (std::isspace(byte) == 0) words.emplace_back(1, c);
    }
  }
  end_word();
  return words;
}

DemoModel::DemoModel(std::vector<std::string> words, std::uint64_t seed) : words_(std::move(words)), seed_(seed) {
  embed();
  route();
  make_experts();
  layer_.tokens = static_cast<std::int64_t>(words_.size());
  layer_.hidden = kHidden;
  layer_.experts = kExperts;
  layer_.top_k = kTopK;
  layer_.inter = kInter;
  layer_.x = x_.data();
  layer_.ids = ConstTensor(ids_.data(), DType::i32, {layer_.tokens, kTopK});
  layer_.weights = weights_.data();
  layer_.gate_up = gate_up_.data();
  layer_.down = down_.data();
}

std::uint64_t DemoModel::seeded(std::uint64_t stream) const { return stream ^ (seed_ * 0xD1B54A32D192ED03u); }

void DemoModel::embed() {
  std::map<std::string, std::vector<double>> vectors;
  for (const std::string& word : words_)
    if (!vectors.contains(word)) vectors[word] = word_vector(word);
  const std::vector<double> gains = column_gains();
  std::vector<double> context(kHidden, 0.0);  // fades over about kMemory words
  constexpr double kMemory = 40;
  x_.resize(words_.size() * kHidden);
  for (std::size_t token = 0; token < words_.size(); ++token) {
    std::vector<double> sum = vectors[words_[token]];
    for (double& value : context) value *= 1.0 - 1.0 / kMemory;
    if (words_[token].size() > 3) add(context, sum, 1.0 / std::sqrt(kMemory));
    add(sum, context, 1.0);
    if (token > 0) add(sum, vectors[words_[token - 1]], 0.35);
    if (token + 1 < words_.size()) add(sum, vectors[words_[token + 1]], 0.2);
    for (std::size_t column = 0; column < kHidden; ++column)
      x_[token * kHidden + column] = static_cast<float>(sum[column] * gains[column]);
  }
}

// Scores are products with a random direction for each expert. A bias for each expert, moved a few times against its
// load, keeps the busiest in bounds, as balanced models do.
void DemoModel::route() {
  constexpr int kSteps = 24;
  std::vector<double> scores(words_.size() * kExperts);
  for (std::size_t expert = 0; expert < kExperts; ++expert) {
    const std::vector<double> direction = random_vector(seeded(1000 + expert), kHidden);
    for (std::size_t token = 0; token < words_.size(); ++token) {
      double sum = 0;
      for (std::size_t column = 0; column < kHidden; ++column) sum += direction[column] * x_[token * kHidden + column];
      scores[token * kExperts + expert] = sum / std::sqrt(double{kHidden});
    }
  }
  std::vector<double> bias(kExperts, 0.0);
  ids_.resize(words_.size() * kTopK);
  weights_.resize(words_.size() * kTopK);
  for (int step = 0; step <= kSteps; ++step) {
    std::vector<double> load(kExperts, 0.0);
    for (std::size_t token = 0; token < words_.size(); ++token) {
      std::vector<Choice> choices;
      for (std::size_t expert = 0; expert < kExperts; ++expert)
        choices.push_back({scores[token * kExperts + expert] + bias[expert], static_cast<int>(expert)});
      std::partial_sort(choices.begin(), choices.begin() + kTopK, choices.end(),
                        [](const Choice& a, const Choice& b) { return a.score > b.score; });
      double total = 0;
      for (std::size_t k = 0; k < kTopK; ++k) {
        const auto expert = static_cast<std::size_t>(choices[k].expert);
        ids_[token * kTopK + k] = choices[k].expert;
        load[expert] += 1;
        const double weight = std::exp(scores[token * kExperts + expert]);
        weights_[token * kTopK + k] = static_cast<float>(weight);
        total += weight;
      }
      for (std::size_t k = 0; k < kTopK; ++k)
        weights_[token * kTopK + k] = static_cast<float>(weights_[token * kTopK + k] / total);
    }
    const double even = static_cast<double>(words_.size()) * kTopK / kExperts;
    for (std::size_t expert = 0; expert < kExperts; ++expert) bias[expert] -= 0.08 * (load[expert] / even - 1.0);
  }
}

void DemoModel::make_experts() {
  gate_up_.resize(std::size_t{kExperts} * 2 * kInter * kHidden);
  down_.resize(std::size_t{kExperts} * kHidden * kInter);
  fill_normal(gate_up_, seeded(2), 1.0 / std::sqrt(double{kHidden}));
  fill_normal(down_, seeded(3), 1.0 / std::sqrt(double{kInter}));
}

std::vector<std::string> DemoModel::words_of_expert(int expert, int count) const {
  constexpr std::size_t kTellingLetters = 4;
  std::map<std::string, double> all, here;
  for (std::size_t token = 0; token < words_.size(); ++token) {
    if (words_[token].size() < kTellingLetters) continue;
    all[words_[token]] += 1;
    for (std::size_t k = 0; k < kTopK; ++k)
      if (ids_[token * kTopK + k] == expert) here[words_[token]] += 1;
  }
  std::vector<std::pair<double, std::string>> ranked;
  constexpr double kEven = double{kTopK} / kExperts;
  for (const auto& [word, times] : here) ranked.emplace_back(times * std::log(times / all[word] / kEven), word);
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> words;
  for (const auto& [score, word] : ranked)
    if (words.size() < static_cast<std::size_t>(count)) words.push_back(word);
  return words;
}

}  // namespace ferry::app
