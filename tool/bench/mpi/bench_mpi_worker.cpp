// One process of the MPI baseline. Buffers are made beforehand and the sums are vectorised: what a careful user writes.
#if defined(FERRY_HAVE_MPI)
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>

#include "tool/bench/base/bench_machine.h"
#include "tool/bench/base/bench_routing.h"
#include "tool/bench/mpi/bench_baseline.h"
#include "tool/text/json.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FERRY_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FERRY_CLONES
#endif

namespace ferry::app {
namespace {

using Element = std::uint16_t;  // bf16 bits

struct ProcessSet {
  Routing routing;
  BenchBuffer tokens, rows, results, output;
};

FERRY_CLONES void add_weighted(float* sum, const Element* row, float weight, int columns) {
  for (int c = 0; c < columns; ++c) sum[c] += weight * std::bit_cast<float>(static_cast<std::uint32_t>(row[c]) << 16);
}

FERRY_CLONES void store_rounded(Element* to, const float* sum, int columns) {
  for (int c = 0; c < columns; ++c) {
    const auto bits = std::bit_cast<std::uint32_t>(sum[c]);
    to[c] = static_cast<Element>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
  }
}

// Rows of one exchange, in numbers of rows, by peer.
struct Counts {
  std::vector<int> send, send_at, receive, receive_at;
  explicit Counts(std::size_t ranks) : send(ranks), send_at(ranks), receive(ranks), receive_at(ranks) {}
};

class AllToAll {
 public:
  AllToAll(const BenchCase& bench, int rank, std::size_t most_rows)
      : shape_(bench.shape),
        local_(num_local_experts(shape_, rank)),
        row_(static_cast<std::size_t>(shape_.hidden) * sizeof(Element)),
        home_(static_cast<std::size_t>(shape_.max_tokens) * static_cast<std::size_t>(shape_.top_k) * row_),
        expert_(most_rows * row_),
        position_(static_cast<std::size_t>(shape_.max_tokens) * static_cast<std::size_t>(shape_.top_k)),
        rows_(static_cast<std::size_t>(shape_.ranks)),
        by_expert_(static_cast<std::size_t>(shape_.experts)),
        arriving_(static_cast<std::size_t>(shape_.ranks * local_)),
        sum_(static_cast<std::size_t>(shape_.hidden)) {
    for (int peer = 0; peer < shape_.ranks; ++peer) {
      experts_to_.push_back(num_local_experts(shape_, peer));
      experts_to_at_.push_back(first_expert(shape_, peer));
      experts_from_.push_back(local_);
      experts_from_at_.push_back(peer * local_);
    }
    MPI_Type_contiguous(shape_.hidden, MPI_UINT16_T, &row_type_);
    MPI_Type_commit(&row_type_);
  }
  ~AllToAll() { MPI_Type_free(&row_type_); }
  AllToAll(const AllToAll&) = delete;
  AllToAll& operator=(const AllToAll&) = delete;

  void dispatch(const ProcessSet& set) {
    pack(set);
    MPI_Alltoallv(by_expert_.data(), experts_to_.data(), experts_to_at_.data(), MPI_INT, arriving_.data(),
                  experts_from_.data(), experts_from_at_.data(), MPI_INT, MPI_COMM_WORLD);
    for (std::size_t peer = 0; peer < rows_.send.size(); ++peer) {
      const auto to = by_expert_.begin() + experts_to_at_[peer];
      const auto from = arriving_.begin() + experts_from_at_[peer];
      rows_.send[peer] = std::accumulate(to, to + experts_to_[peer], 0);
      rows_.receive[peer] = std::accumulate(from, from + local_, 0);
    }
    std::exclusive_scan(rows_.send.begin(), rows_.send.end(), rows_.send_at.begin(), 0);
    std::exclusive_scan(rows_.receive.begin(), rows_.receive.end(), rows_.receive_at.begin(), 0);
    MPI_Alltoallv(home_.data(), rows_.send.data(), rows_.send_at.data(), row_type_, expert_.data(),
                  rows_.receive.data(), rows_.receive_at.data(), row_type_, MPI_COMM_WORLD);
    for_each_run([&](std::size_t arrived, std::size_t sorted, std::size_t count) {
      std::memcpy(set.rows.data() + sorted * row_, expert_.data() + arrived * row_, count * row_);
    });
  }

  void combine(const ProcessSet& set) {
    for_each_run([&](std::size_t arrived, std::size_t sorted, std::size_t count) {
      std::memcpy(expert_.data() + arrived * row_, set.results.data() + sorted * row_, count * row_);
    });
    MPI_Alltoallv(expert_.data(), rows_.receive.data(), rows_.receive_at.data(), row_type_, home_.data(),
                  rows_.send.data(), rows_.send_at.data(), row_type_, MPI_COMM_WORLD);
    const auto top_k = static_cast<std::size_t>(shape_.top_k);
    for (std::size_t token = 0; token < static_cast<std::size_t>(shape_.max_tokens); ++token) {
      std::fill(sum_.begin(), sum_.end(), 0.0f);
      for (std::size_t entry = token * top_k; entry < (token + 1) * top_k; ++entry)
        add_weighted(sum_.data(), reinterpret_cast<const Element*>(home_.data() + position_[entry] * row_),
                     set.routing.weights[entry], shape_.hidden);
      store_rounded(reinterpret_cast<Element*>(set.output.data() + token * row_), sum_.data(), shape_.hidden);
    }
  }

 private:
  // Rows in the order of expert, then token: so also in the order of rank.
  void pack(const ProcessSet& set) {
    std::fill(by_expert_.begin(), by_expert_.end(), 0);
    for (const std::int32_t id : set.routing.ids) ++by_expert_[static_cast<std::size_t>(id)];
    std::vector<std::size_t> next(by_expert_.size());
    std::exclusive_scan(by_expert_.begin(), by_expert_.end(), next.begin(), std::size_t{0});
    for (std::size_t entry = 0; entry < position_.size(); ++entry) {
      position_[entry] = next[static_cast<std::size_t>(set.routing.ids[entry])]++;
      const std::size_t token = entry / static_cast<std::size_t>(shape_.top_k);
      std::memcpy(home_.data() + position_[entry] * row_, set.tokens.data() + token * row_, row_);
    }
  }

  // visit(first row as it arrives, first row in expert order, rows) for each (expert, source).
  template <class Visit>
  void for_each_run(const Visit& visit) {
    std::vector<int> arrived = rows_.receive_at;
    std::size_t sorted = 0;
    for (int expert = 0; expert < local_; ++expert) {
      for (std::size_t source = 0; source < arrived.size(); ++source) {
        const int count = arriving_[source * static_cast<std::size_t>(local_) + static_cast<std::size_t>(expert)];
        visit(static_cast<std::size_t>(arrived[source]), sorted, static_cast<std::size_t>(count));
        arrived[source] += count;
        sorted += static_cast<std::size_t>(count);
      }
    }
  }

  const Shape shape_;
  const int local_;
  const std::size_t row_;
  const BenchBuffer home_, expert_;    // rows as they leave and as they arrive; combine uses both the other way round
  std::vector<std::size_t> position_;  // [n, K]: the row of home_ that holds it
  Counts rows_;
  std::vector<int> by_expert_, arriving_;  // [E] leaving; [R, L] arriving
  std::vector<float> sum_;
  std::vector<int> experts_to_, experts_to_at_, experts_from_, experts_from_at_;
  MPI_Datatype row_type_ = MPI_DATATYPE_NULL;
};

std::size_t rows_arriving(const BenchCase& bench, int rank, int set) {
  std::size_t rows = 0;
  for (int source = 0; source < bench.shape.ranks; ++source) {
    const Routing routing = make_routing(bench, source, set);
    rows += static_cast<std::size_t>(std::count_if(routing.ids.begin(), routing.ids.end(),
                                                   [&](std::int32_t id) { return owner_of(bench.shape, id) == rank; }));
  }
  return rows;
}

Span iterate(const BenchCase& bench, AllToAll& exchange, const ProcessSet& set) {
  if (bench.operation == BenchOperation::combine) exchange.dispatch(set);
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = now_seconds();
  if (bench.operation != BenchOperation::combine) exchange.dispatch(set);
  if (bench.operation != BenchOperation::dispatch) exchange.combine(set);
  return {begin, now_seconds()};
}

double max_of_all(double mine) {
  MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return mine;
}

std::vector<double> measure(const BenchCase& bench, AllToAll& exchange, const std::vector<ProcessSet>& sets) {
  for (std::size_t warm_up = 0; warm_up < sets.size() + 3; ++warm_up) {
    exchange.dispatch(sets[warm_up % sets.size()]);
    iterate(bench, exchange, sets[warm_up % sets.size()]);
  }
  std::vector<double> begin, end;
  double seconds = 0;
  for (int done = 0, next = 0; (next = next_iterations(bench.effort, done, max_of_all(seconds))) > 0; done += next) {
    const double start = now_seconds();
    for (int iteration = done; iteration < done + next; ++iteration) {
      const Span span = iterate(bench, exchange, sets[static_cast<std::size_t>(iteration) % sets.size()]);
      begin.push_back(span.begin);
      end.push_back(span.end);
    }
    seconds += now_seconds() - start;
  }
  const int iterations = static_cast<int>(end.size());
  MPI_Allreduce(MPI_IN_PLACE, begin.data(), iterations, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, end.data(), iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  std::transform(end.begin(), end.end(), begin.begin(), end.begin(), std::minus<>());
  return end;
}

void run_process(const BenchCase& bench, int rank) {
  const std::size_t token_bytes =
      static_cast<std::size_t>(bench.shape.max_tokens) * static_cast<std::size_t>(bench.shape.hidden) * sizeof(Element);
  const BenchBytes one = mean_bytes(bench, 1);
  const int count = input_sets_for(one.tokens + one.rows + one.results + one.output);
  std::vector<ProcessSet> sets;
  std::size_t most_rows = 0;
  for (int index = 0; index < count; ++index) {
    const std::size_t rows = rows_arriving(bench, rank, index);
    const std::size_t row_bytes = rows * static_cast<std::size_t>(bench.shape.hidden) * sizeof(Element);
    most_rows = std::max(most_rows, rows);
    sets.push_back({make_routing(bench, rank, index), BenchBuffer(token_bytes), BenchBuffer(row_bytes),
                    BenchBuffer(row_bytes), BenchBuffer(token_bytes)});
    fill_bf16(sets.back().tokens.data(), token_bytes,
              static_cast<std::uint64_t>(rank) * 1000 + static_cast<std::uint64_t>(index) + 1);
    fill_bf16(sets.back().results.data(), row_bytes, 7);
  }
  AllToAll exchange(bench, rank, most_rows);
  const std::vector<double> seconds = measure(bench, exchange, sets);
  if (rank != 0) return;
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  std::string library(version, static_cast<std::size_t>(length));
  library.resize(std::min(library.find(','), library.size()));
  const Json result = {{"library", library}, {"seconds", seconds}};
  fmt::print("{}\n", result.dump());
  std::fflush(stdout);
}

}  // namespace

void run_mpi_worker(const BenchCase& bench) {
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != bench.shape.ranks)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--ranks is {}, but mpirun started {} processes", bench.shape.ranks, size));
  run_process(bench, rank);
  MPI_Finalize();
}

}  // namespace ferry::app
#endif
