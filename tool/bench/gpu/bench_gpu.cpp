// Bytes, floors and the line through the wire's points: what follows from a GPU measurement by arithmetic.
#include "tool/bench/gpu/bench_gpu.h"

#include <algorithm>

#include "ferry/detail/layout/result_layout.h"
#include "tool/bench/base/bench_routing.h"

namespace ferry::app {
namespace {

double seconds_of(const PhaseBytes& bytes, const GpuSpeeds& speeds) {
  return std::max(bytes.wire / speeds.wire_bytes_per_second, bytes.device / speeds.copy_bytes_per_second);
}

// [source][destination]: how many of each.
struct Matrix {
  std::vector<std::vector<double>> messages, rows;
};

Matrix matrix_of(const BenchCase& bench, const std::vector<std::vector<std::int32_t>>& ids) {
  const auto ranks = static_cast<std::size_t>(bench.shape.ranks);
  Matrix matrix{std::vector(ranks, std::vector<double>(ranks)), std::vector(ranks, std::vector<double>(ranks))};
  for (std::size_t source = 0; source < ranks; ++source) {
    std::vector<int> last_token(ranks, -1);
    for (std::size_t entry = 0; entry < ids[source].size(); ++entry) {
      const int token = static_cast<int>(entry) / bench.shape.top_k;
      const auto destination = static_cast<std::size_t>(owner_of(bench.shape, ids[source][entry]));
      if (last_token[destination] != token) ++matrix.messages[source][destination];
      last_token[destination] = token;
      ++matrix.rows[source][destination];
    }
  }
  return matrix;
}

struct Sums {
  double to_others = 0, from_others = 0, arrived = 0;
};
Sums sums_of(const std::vector<std::vector<double>>& counts, std::size_t rank) {
  Sums sums;
  for (std::size_t other = 0; other < counts.size(); ++other) {
    sums.arrived += counts[other][rank];
    if (other == rank) continue;
    sums.to_others += counts[rank][other];
    sums.from_others += counts[other][rank];
  }
  return sums;
}

// The protocol's formula (docs/protocol.md): messages, tables and headers, counts, signals; partials and their signals.
GpuBytes bytes_of_rank(const BenchCase& bench, const Matrix& matrix, std::size_t rank) {
  const Shape& s = bench.shape;
  const double tokens = s.max_tokens, others = s.ranks - 1, bf16_row = 2.0 * s.hidden;
  const auto message = static_cast<double>(message_bytes(bench.format, s.hidden));
  const double encoded = static_cast<double>(bench.format.payload_bytes(s.hidden)) +
                         static_cast<double>(scales_per_row(bench.format, s.hidden)) * bench.format.scale_bytes();
  const double table = others * (tokens * 8 * s.top_k + 64) + 4.0 * (s.experts - num_local_experts(s, 0));
  const double routing = bench.replays ? 0 : table;
  const auto result = static_cast<double>(result_layout(bench.results, s.hidden).bytes);
  const Sums messages = sums_of(matrix.messages, rank), rows = sums_of(matrix.rows, rank);
  const bool exact = bench.reduction == Reduction::exact;
  const Sums& results = exact ? rows : messages;
  double own_results = 0;  // that come home to this rank, its own among them
  for (const double count : (exact ? matrix.rows : matrix.messages)[rank]) own_results += count;
  GpuBytes bytes;
  bytes.dispatch.wire = std::max(messages.to_others, messages.from_others) * (message + 8) + routing;
  const double given = tokens * (bench.encoded ? encoded : bf16_row);
  const double laid_out = bench.rows == RowOrder::by_source ? messages.arrived : rows.arrived;
  // Slots are written, and read where rows are made of them.
  const double slots = (bench.rows == RowOrder::in_place ? 1 : 2) * messages.arrived * message;
  bytes.dispatch.device = given + slots + (bench.rows == RowOrder::in_place ? 0 : laid_out * encoded);
  bytes.combine.wire = std::max(results.to_others, results.from_others) * (result + 8);
  bytes.combine.device = laid_out * bf16_row + 2 * own_results * result + tokens * bf16_row;
  return bytes;
}

void take_larger(PhaseBytes& most, const PhaseBytes& bytes) {
  most = {std::max(most.wire, bytes.wire), std::max(most.device, bytes.device)};
}

}  // namespace

GpuBytes gpu_bytes_of(const BenchCase& bench, const std::vector<std::vector<std::int32_t>>& ids) {
  const Matrix matrix = matrix_of(bench, ids);
  GpuBytes most;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(bench.shape.ranks); ++rank) {
    const GpuBytes bytes = bytes_of_rank(bench, matrix, rank);
    take_larger(most.dispatch, bytes.dispatch);
    take_larger(most.combine, bytes.combine);
  }
  return most;
}

GpuBytes gpu_bytes(const BenchCase& bench, int sets) {
  GpuBytes mean;
  for (int set = 0; set < sets; ++set) {
    std::vector<std::vector<std::int32_t>> ids;
    for (int rank = 0; rank < bench.shape.ranks; ++rank) ids.push_back(make_routing(bench, rank, set).ids);
    const GpuBytes most = gpu_bytes_of(bench, ids);
    for (const auto& [sum, one] : {std::pair{&mean.dispatch, &most.dispatch}, {&mean.combine, &most.combine}}) {
      sum->wire += one->wire / sets;
      sum->device += one->device / sets;
    }
  }
  return mean;
}

void fit_line(GpuSpeeds& speeds) {
  double weight = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (const GpuSpeeds::Point& point : speeds.wire) {
    const double w = 1 / (point.seconds * point.seconds);
    weight += w;
    x += w * point.bytes;
    y += w * point.seconds;
    xx += w * point.bytes * point.bytes;
    xy += w * point.bytes * point.seconds;
  }
  const double slope = (weight * xy - x * y) / (weight * xx - x * x);
  speeds.wire_bytes_per_second = 1 / slope;
  speeds.wire_latency = std::max(0.0, (y - slope * x) / weight);
}

void take_fastest_copy(GpuSpeeds& speeds) {
  const GpuSpeeds::Copy& fastest = *std::ranges::max_element(speeds.copies, {}, &GpuSpeeds::Copy::bytes_per_second);
  speeds.copy_bytes_per_second = fastest.bytes_per_second;
  speeds.copy_method = fastest.method;
}

void find_rates(GpuSpeeds& speeds) {
  take_fastest_copy(speeds);
  if (speeds.wire.empty())
    speeds.wire_bytes_per_second = speeds.copy_bytes_per_second;
  else
    fit_line(speeds);
}

double floor_of(const PhaseBytes& bytes, const GpuSpeeds& speeds) {
  return speeds.wire_latency + seconds_of(bytes, speeds);
}
double bound_of(const PhaseBytes& bytes, const GpuSpeeds& speeds) {
  return kPhaseLatency + kPhaseFactor * seconds_of(bytes, speeds);
}

double sm_seconds_of(const std::vector<GpuKernel>& kernels, double seconds, int multiprocessors) {
  double held = 0;
  for (const GpuKernel& kernel : kernels) held += kernel.share * std::min(kernel.blocks, multiprocessors);
  return held * seconds;
}

std::optional<double> GpuMeasurement::sm_seconds(BenchOperation operation) const {
  if (dispatch_kernels.empty() || pair_kernels.empty()) return std::nullopt;
  const double of_dispatch = sm_seconds_of(dispatch_kernels, dispatch.at(0.5), multiprocessors);
  const double of_pair = sm_seconds_of(pair_kernels, pair.at(0.5), multiprocessors);
  if (operation == BenchOperation::dispatch) return of_dispatch;
  return operation == BenchOperation::pair ? of_pair : std::max(0.0, of_pair - of_dispatch);
}

BenchSamples GpuMeasurement::samples(BenchOperation operation) const {
  if (operation == BenchOperation::dispatch) return dispatch;
  if (operation == BenchOperation::pair) return pair;
  BenchSamples combine = pair;
  for (double& seconds : combine.seconds) seconds = std::max(0.0, seconds - dispatch.at(0.5));
  return combine;
}

double GpuResult::floor_seconds() const {
  double floor = 0;
  if (bench.operation != BenchOperation::combine) floor += floor_of(measured.bytes.dispatch, *speeds);
  if (bench.operation != BenchOperation::dispatch) floor += floor_of(measured.bytes.combine, *speeds);
  return floor;
}

double GpuResult::bound_seconds() const {
  double bound = 0;
  if (bench.operation != BenchOperation::combine) bound += bound_of(measured.bytes.dispatch, *speeds);
  if (bench.operation != BenchOperation::dispatch) bound += bound_of(measured.bytes.combine, *speeds);
  return bound;
}

}  // namespace ferry::app
