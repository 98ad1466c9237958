// The oracle and its bound.
//
// Let b = 2^-8 be bf16's rounding, u = 2^-24 float32's, |v|2 the Euclidean norm, and s(n), t(g) and l what the place of
// the experts says of itself (ExpertErrors): on the host s(n) = step_roundings(n) u, t(g) = 16 u and l = 0. For a token
// x (as the expert sees it) and an expert, the layer's value differs from the exact one by at most
//   gate, up      dg = s(hidden) |x|2 |w_row|2            float32 sums; Cauchy-Schwarz bounds the sum of |x_i w_i|
//   activation    a = silu(g) up, |silu'| <= 1.1:
//                 da = 1.1 dg (|up| + dup) + |silu(g)| dup + l (|up| + dup)        carried over from gate and up
//                 then t(|g| + dg) (|a| + da) for its float32 steps, then b (|a| + da) for the rounding to bf16
//   expert row    dr = |w2_row|2 (|da|2 + s(inter) |a + da|2), then b (|row| + dr) for the rounding to bf16
// and the reduction, over the rows r_k with weights w_k of a token:
//   exact         sum |w_k| dr_k + (K + 2) u sum |w_k| (|r_k| + dr_k)
//   by_rank       the same for each rank's partial p, then what it loses on its way home, then the same over ranks
//   shared        its row and its dr are added
// What travels, a row or a partial, loses what its format does (travel_errors): in bf16 b (|p| + dp). A row in bf16
// loses nothing more, and a row by_source was rounded to bf16 before it travels.
// Each rounding of a number too small for its type adds 2^-133 at most, which is added where it could count.
// The oracle's own float64 roundings are 2^-29 of these and fit in the factor kSlack.
#include "tool/layer/check/layer_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "conformance/oracle/travel_errors.h"
#include "tool/io/bfloat16.h"
#include "tool/layer/base/area.h"
#include "tool/layer/experts/expert_place.h"
#include "tool/layer/experts/experts.h"

namespace ferry::app {
namespace {

constexpr double kBf16 = 0x1p-8;
constexpr double kF32 = 0x1p-24;
constexpr double kTiny = 0x1p-133;
constexpr double kSlack = 1.0 + 0x1p-20;
constexpr std::int64_t kMostTokens = 2048;  // checked at a time
constexpr int kMostRows = 512;              // of an expert at a time

double norm(const double* values, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += values[i] * values[i];
  return std::sqrt(sum);
}

// A matrix rounded to bf16, in float64, with the norm of each row.
struct Matrix {
  std::vector<double> values;
  std::vector<double> norms;

  void load(const float* from, int rows, int columns) {
    values.resize(area(rows, columns));
    norms.resize(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = from_bf16(to_bf16(from[i]));
    for (int row = 0; row < rows; ++row)
      norms[static_cast<std::size_t>(row)] = norm(&values[area(row, columns)], columns);
  }
};

// Values with the bound of each.
struct Bounded {
  std::vector<double> value;
  std::vector<double> bound;

  void clear(std::size_t size) {
    value.assign(size, 0.0);
    bound.assign(size, 0.0);
  }
};

struct Entry {
  std::int64_t token;  // within the tokens checked at a time
  double weight;
};

class Oracle {
 public:
  Oracle(const Layer& layer, const LayerOptions& options, OracleTokens tokens)
      : layer_(layer),
        options_(options),
        tokens_(tokens),
        hidden_(static_cast<std::size_t>(layer.hidden)),
        travel_errors_(options.results, layer.hidden),
        reach_(hidden_) {}

  // The layer's output for these tokens, with bounds.
  const Bounded& run(const TokenSpan& span, const std::function<void(std::int64_t)>& progress) {
    load_tokens(span);
    const std::size_t size = area(span.count, layer_.hidden);
    sum_.clear(size);
    magnitude_.assign(size, 0.0);
    const Shape shape{options_.ranks, layer_.experts, layer_.top_k, 1, layer_.hidden};
    const std::vector<std::vector<Entry>> entries = entries_by_expert(span);
    std::int64_t told = 0;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      partial_.clear(size);
      partial_magnitude_.assign(size, 0.0);
      const int first = first_expert(shape, rank);
      for (int e = first; e < first + num_local_experts(shape, rank); ++e) {
        run_expert(layer_.expert(e), entries[static_cast<std::size_t>(e)]);
        if (progress) {
          progress(span.count * (e + 1) / layer_.experts - told);
          told = span.count * (e + 1) / layer_.experts;
        }
      }
      close_partial();
    }
    for (std::size_t i = 0; i < size; ++i) sum_.bound[i] += additions(options_.ranks) * magnitude_[i];
    if (layer_.shared_inter != 0) add_shared(span);
    return sum_;
  }

 private:
  // Relative roundings of a chain of products and additions over `terms` terms.
  static double additions(int terms) { return (terms + 2) * kF32; }

  void load_tokens(const TokenSpan& span) {
    x_.resize(area(span.count, layer_.hidden));
    std::vector<float> row(hidden_), decoded(hidden_);
    const AnyFormat& format = options_.format;
    const Pages payload(format.payload_bytes(layer_.hidden));
    const Pages scales(area(scales_per_row(format, layer_.hidden) + 1, format.scale_bytes()) + 16);
    for (std::int64_t token = 0; token < span.count; ++token) {
      round_to_bf16(layer_.x + (span.begin + token) * layer_.hidden, row.data(), hidden_);
      if (tokens_ == OracleTokens::as_sent) {  // where the experts round them again, they see what was rounded
        format.encode(SerialGroup{}, {row.data(), DType::f32}, layer_.hidden, options_.input_scale, payload.data(),
                      scales.data());
        format.decode(SerialGroup{}, payload.data(), scales.data(), layer_.hidden, options_.input_scale,
                      decoded.data());
        row.swap(decoded);
        if (errors_.rounds_rows) round_to_bf16(row.data(), row.data(), hidden_);
      }
      std::copy(row.begin(), row.end(), x_.begin() + token * layer_.hidden);
    }
  }

  std::vector<std::vector<Entry>> entries_by_expert(const TokenSpan& span) const {
    std::vector<std::vector<Entry>> entries(static_cast<std::size_t>(layer_.experts));
    for (std::int64_t token = 0; token < span.count; ++token)
      for (int k = 0; k < layer_.top_k; ++k) {
        const std::int64_t expert = layer_.id(span.begin + token, k);
        if (expert < 0) continue;
        const std::int64_t index = (span.begin + token) * layer_.top_k + k;
        entries[static_cast<std::size_t>(expert)].push_back({token, layer_.weights[index]});
      }
    return entries;
  }

  // Adds an expert's weighted rows to the partial sums.
  void run_expert(const ExpertWeights& weights, const std::vector<Entry>& entries) {
    if (entries.empty()) return;
    gate_up_.load(weights.gate_up, 2 * weights.inter, layer_.hidden);
    down_.load(weights.down, layer_.hidden, weights.inter);
    for (std::size_t begin = 0; begin < entries.size(); begin += kMostRows)
      run_rows(weights, {entries.data() + begin, std::min<std::size_t>(kMostRows, entries.size() - begin)});
  }

  void run_rows(const ExpertWeights& weights, std::span<const Entry> entries) {
    const int count = static_cast<int>(entries.size());
    const int inter = weights.inter;
    rows_in_.resize(area(count, layer_.hidden));
    for (std::size_t i = 0; i < entries.size(); ++i)
      std::copy_n(&x_[area(entries[i].token, layer_.hidden)], hidden_, &rows_in_[i * hidden_]);
    products_.resize(area(count, 2 * inter));
    product(rows_in_.data(), gate_up_.values.data(), products_.data(), count, 2 * inter, layer_.hidden);
    activated_.resize(area(count, inter));
    spread_.resize(entries.size());
    for (int i = 0; i < count; ++i) spread_[static_cast<std::size_t>(i)] = activate(i, inter);
    rows_out_.resize(area(count, layer_.hidden));
    product(activated_.data(), down_.values.data(), rows_out_.data(), count, layer_.hidden, inter);
    for (std::size_t i = 0; i < entries.size(); ++i) add_row(entries[i], i, &weights == &shared_);
  }

  // Fills row i of activated_; returns the factor of |w2_row|2 in the bound of the expert's row.
  double activate(int i, int inter) {
    const double x_norm = norm(&rows_in_[area(i, layer_.hidden)], layer_.hidden);
    const double* gate = &products_[area(i, 2 * inter)];
    const double* up = gate + inter;
    const double* const gate_norms = gate_up_.norms.data();
    const double* const up_norms = gate_norms + inter;
    double* const out = &activated_[area(i, inter)];
    const double sums = errors_.of_sum(layer_.hidden) * x_norm;
    double bounds = 0, values = 0;
    for (int j = 0; j < inter; ++j) {
      const double gate_bound = sums * gate_norms[j] + kTiny;
      const double up_bound = sums * up_norms[j] + kTiny;
      const double silu = gate[j] / (1.0 + std::exp(-gate[j]));
      out[j] = silu * up[j];
      double bound = 1.1 * gate_bound * (std::abs(up[j]) + up_bound) + std::abs(silu) * up_bound;
      bound += errors_.lost_silu * (std::abs(up[j]) + up_bound);
      const double steps = errors_.of_activation(std::abs(gate[j]) + gate_bound);
      bound += (steps + kBf16) * (std::abs(out[j]) + bound) * (1 + kBf16) + kTiny;
      bounds += bound * bound;
      values += (std::abs(out[j]) + bound) * (std::abs(out[j]) + bound);
    }
    return std::sqrt(bounds) + errors_.of_sum(inter) * std::sqrt(values);
  }

  double row_bound(std::size_t i, std::size_t column) const {
    const double carried = down_.norms[column] * spread_[i] + kTiny;
    return carried + kBf16 * (std::abs(rows_out_[i * hidden_ + column]) + carried) + kTiny;
  }

  // With the exact reduction each row travels; the shared expert's never does.
  void add_row(const Entry& entry, std::size_t i, bool is_shared) {
    const std::size_t to = area(entry.token, layer_.hidden);
    const bool travels = options_.reduction == Reduction::exact && !is_bf16_ && !is_shared;
    for (std::size_t column = 0; travels && column < hidden_; ++column)
      reach_[column] = std::abs(rows_out_[i * hidden_ + column]) + row_bound(i, column);
    if (travels) travel_errors_.find(reach_);
    for (std::size_t column = 0; column < hidden_; ++column) {
      const double value = entry.weight * rows_out_[i * hidden_ + column];
      const double lost = travels ? travel_errors_[column] : 0;
      const double bound = std::abs(entry.weight) * (row_bound(i, column) + lost) + kTiny;
      partial_.value[to + column] += value;
      partial_.bound[to + column] += bound;
      partial_magnitude_[to + column] += std::abs(value) + bound;
    }
  }

  // A rank's sum joins the token's. With the exact reduction all rows are one chain, and a rank has no rounding of its
  // own.
  void close_partial() {
    for (std::size_t begin = 0; begin < partial_.value.size(); begin += hidden_) {
      bool is_there = false;
      for (std::size_t column = 0; column < hidden_; ++column) {
        const std::size_t i = begin + column;
        partial_.bound[i] += additions(layer_.top_k) * partial_magnitude_[i];
        is_there = is_there || partial_magnitude_[i] != 0;
      }
      if (options_.reduction == Reduction::by_rank && is_there) send_partial(begin);
      for (std::size_t i = begin; i < begin + hidden_; ++i) {
        sum_.value[i] += partial_.value[i];
        sum_.bound[i] += partial_.bound[i];
        magnitude_[i] += std::abs(partial_.value[i]) + partial_.bound[i];
      }
    }
  }

  // The partial sum of the token that begins there.
  void send_partial(std::size_t begin) {
    for (std::size_t column = 0; column < hidden_; ++column) {
      double& bound = partial_.bound[begin + column];
      const double value = std::abs(partial_.value[begin + column]);
      if (options_.rows == RowOrder::by_source && !is_bf16_) bound += kBf16 * (value + bound) + kTiny;
      reach_[column] = value + bound;
    }
    travel_errors_.find(reach_);
    for (std::size_t column = 0; column < hidden_; ++column) partial_.bound[begin + column] += travel_errors_[column];
  }

  void add_shared(const TokenSpan& span) {
    std::vector<Entry> all;
    for (std::int64_t token = 0; token < span.count; ++token) all.push_back({token, 1.0});
    partial_.clear(sum_.value.size());
    partial_magnitude_.assign(sum_.value.size(), 0.0);
    run_expert(shared_, all);
    for (std::size_t i = 0; i < partial_.value.size(); ++i) {
      const double bound = sum_.bound[i] + partial_.bound[i];
      sum_.value[i] += partial_.value[i];
      sum_.bound[i] = bound + kF32 * (std::abs(sum_.value[i]) + bound);
    }
  }

  const Layer& layer_;
  const LayerOptions& options_;
  const OracleTokens tokens_;
  const std::size_t hidden_;
  const ExpertErrors errors_ = options_.experts->errors();
  const bool is_bf16_ = std::string_view(options_.results.name()) == "bf16";
  const ExpertWeights shared_ = layer_.shared_expert();
  test::TravelErrors travel_errors_;
  std::vector<double> reach_;  // of what travels: |value| + bound
  std::vector<double> x_, rows_in_, products_, activated_, rows_out_, spread_;
  Matrix gate_up_, down_;
  Bounded sum_, partial_;
  std::vector<double> magnitude_, partial_magnitude_;  // sums of |value| + bound
};

class Comparison {
 public:
  Comparison(const TokenSpan& span, int hidden, CheckResult& result) : span_(span), hidden_(hidden), result_(result) {}

  void run(const Bounded& oracle, const float* output) {
    for (std::size_t i = 0; i < oracle.value.size(); ++i) {
      const double got = output[i];
      ++result_.elements;
      if (std::isfinite(got) && std::isfinite(oracle.value[i]))
        add(i, std::abs(got - oracle.value[i]), kSlack * oracle.bound[i] + kTiny, oracle.value[i]);
      else if (std::isfinite(got) || std::isfinite(oracle.value[i]))
        note_share(i, std::numeric_limits<double>::infinity());
    }
  }

 private:
  void add(std::size_t i, double error, double bound, double value) {
    result_.rms_error += error * error;
    result_.rms_value += value * value;
    if (error > result_.max_error) {
      result_.max_error = error;
      result_.bound_there = bound;
    }
    note_share(i, std::isnan(error / bound) ? std::numeric_limits<double>::infinity() : error / bound);
  }
  void note_share(std::size_t i, double share) {
    if (share > 1) result_.ok = false;
    if (result_.worst_token >= 0 && share <= result_.worst_share) return;
    result_.worst_share = share;
    result_.worst_token = span_.begin + static_cast<std::int64_t>(i) / hidden_;
    result_.worst_column = static_cast<int>(static_cast<std::int64_t>(i) % hidden_);
  }

  const TokenSpan span_;
  const int hidden_;
  CheckResult& result_;
};

}  // namespace

CheckResult check_layer(const Layer& layer, const LayerOptions& options, const float* output, OracleTokens tokens,
                        const std::function<void(std::int64_t)>& progress) {
  set_product_threads(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  Oracle oracle(layer, options, tokens);
  CheckResult result;
  for (std::int64_t begin = 0; begin < layer.tokens; begin += kMostTokens) {
    const TokenSpan span{begin, std::min(kMostTokens, layer.tokens - begin)};
    Comparison(span, layer.hidden, result).run(oracle.run(span, progress), output + begin * layer.hidden);
  }
  const auto elements = static_cast<double>(std::max<std::int64_t>(1, result.elements));
  result.rms_error = std::sqrt(result.rms_error / elements);
  result.rms_value = std::sqrt(result.rms_value / elements);
  return result;
}

std::vector<double> oracle_values(const Layer& layer, const LayerOptions& options, OracleTokens tokens) {
  set_product_threads(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  Oracle oracle(layer, options, tokens);
  std::vector<double> values;
  for (std::int64_t begin = 0; begin < layer.tokens; begin += kMostTokens) {
    const Bounded& some = oracle.run({begin, std::min(kMostTokens, layer.tokens - begin)}, {});
    values.insert(values.end(), some.value.begin(), some.value.end());
  }
  return values;
}

MemoryNeed check_memory(const Layer& layer) {
  const auto hidden = static_cast<std::uint64_t>(layer.hidden);
  const auto inter = static_cast<std::uint64_t>(layer.largest_inter());
  const auto tokens = static_cast<std::uint64_t>(std::min(kMostTokens, layer.tokens));
  const std::uint64_t rows = std::uint64_t{kMostRows} * (2 * hidden + 3 * inter);
  return {"the check's oracle", sizeof(double) * (7 * tokens * hidden + 3 * inter * hidden + rows)};
}

}  // namespace ferry::app
