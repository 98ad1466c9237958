#include "gpu/stress/stress_kernels.h"

#include <stdexcept>
#include <string>

#include "ferry/detail/cuda/team/ptx.cuh"
#include "gpu/stress/stress_codec.cuh"

namespace ferry::stress {
namespace {

constexpr int kThreads = 128;

__device__ void report(Verdict* verdict, const Round& r, const Found& found, int place) {
  if (found.wrong == Wrong::none) return;
  if (atomicAdd(&verdict->mismatches, 1ull) != 0) return;
  verdict->wrong = found.wrong;
  verdict->round = r.number;
  verdict->place = place;
  verdict->column = found.column;
  verdict->expected = found.expected;
  verdict->got = found.got;
}

// A block for each token index: its ids on every rank, and this rank's token.
__global__ void make_inputs_kernel(const __grid_constant__ Setting s, const __grid_constant__ Round r, Inputs in) {
  const int token = static_cast<int>(blockIdx.x), n = r.tokens[s.rank];
  for (int entry = static_cast<int>(threadIdx.x); entry < s.ranks * s.top_k; entry += kThreads) {
    const int source = entry / s.top_k, k = entry % s.top_k;
    const int id = token < r.tokens[source] ? id_at(s, r, source, token, k) : -1;
    in.all_ids[(source * s.max_tokens + token) * s.top_k + k] = id;
    if (source != s.rank || token >= n) continue;
    if (s.wide_ids)
      static_cast<long long*>(in.ids)[token * s.top_k + k] = id;
    else
      static_cast<int*>(in.ids)[token * s.top_k + k] = id;
    in.weights[token * s.top_k + k] = weight_at(s, r, source, token, k);
  }
  if (token >= n) return;
  const unsigned key = token_key(s, r, s.rank, token);
  for (int column = static_cast<int>(threadIdx.x); column < s.hidden; column += kThreads)
    in.tokens[static_cast<std::size_t>(token) * static_cast<std::size_t>(s.hidden) + static_cast<std::size_t>(column)] =
        token_bits(s, key, static_cast<unsigned>(column));
}

__global__ void delay_kernel(unsigned nanoseconds) {
  const std::uint64_t end = ptx::global_nanoseconds() + nanoseconds;
  while (ptx::global_nanoseconds() < end) __nanosleep(200);
}

// How many of the entries [0, end) name the expert. All threads of the block call it and get the sum.
__device__ int count_entries(const Inputs& in, int expert, int end) {
  __shared__ int sum;
  __syncthreads();
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  int mine = 0;
  for (int entry = static_cast<int>(threadIdx.x); entry < end; entry += kThreads) mine += in.all_ids[entry] == expert;
  if (mine != 0) atomicAdd(&sum, mine);
  __syncthreads();
  return sum;
}

// A block for each group of this rank.
__global__ void count_kernel(const __grid_constant__ Setting s, const __grid_constant__ Round r, Inputs in,
                             unsigned* counts) {
  const int group = static_cast<int>(blockIdx.x);
  if (s.shared && group == 0) {
    if (threadIdx.x == 0) counts[0] = static_cast<unsigned>(r.tokens[s.rank]);
    return;
  }
  const int expert = s.first_expert + group - (s.shared ? 1 : 0);
  const int count = count_entries(in, expert, s.ranks * s.max_tokens * s.top_k);
  if (threadIdx.x == 0) counts[group] = static_cast<unsigned>(count);
}

// One thread.
__global__ void starts_kernel(const __grid_constant__ Setting s, const __grid_constant__ Round r, Rows rows,
                              Scratch scratch, Verdict* verdict) {
  const auto alignment = static_cast<unsigned>(s.alignment);
  unsigned start = 0, tile = 0;
  for (int group = 0; group <= s.groups; ++group) {
    scratch.starts[group] = start;
    Found found;
    const bool compares = rows.row_offsets != nullptr;
    if (compares) found.compare(Wrong::row_offsets, -1, start, rows.row_offsets[group]);
    if (group < s.groups) {
      scratch.tiles[group] = tile;
      if (compares)
        found.compare(Wrong::expert_ids, -1, static_cast<unsigned>(group),
                      static_cast<unsigned>(rows.expert_ids[group]));
      if (compares && s.layout == Layout::tiled)
        found.compare(Wrong::scales_offsets, -1, tile - start / 128, rows.scales_offsets[group]);
      const unsigned end = (start + scratch.counts[group] + alignment - 1) / alignment * alignment;
      tile += (end - start + 127) / 128;
      start = end;
    }
    report(verdict, r, found, group);
  }
}

// A block for each (source, token, k), then one for each of this rank's tokens where there is a shared expert.
__global__ void rows_kernel(const __grid_constant__ Setting s, const __grid_constant__ Round r, Inputs in, Rows rows,
                            Scratch scratch, Verdict* verdict) {
  const int entries = s.ranks * s.max_tokens * s.top_k, entry = static_cast<int>(blockIdx.x);
  int source = s.rank, token = entry - entries, k = s.top_k, group = 0;
  int in_group = token;
  if (entry < entries) {
    const int id = in.all_ids[entry];
    if (id < 0 || s.owner[id] != s.rank) return;
    source = entry / s.top_k / s.max_tokens;
    token = entry / s.top_k % s.max_tokens;
    k = entry % s.top_k;
    group = id - s.first_expert + (s.shared ? 1 : 0);
    in_group = count_entries(in, id, entry);
  } else if (token >= r.tokens[s.rank]) {
    return;
  }
  const long long row = static_cast<long long>(scratch.starts[group]) + in_group;
  const bool compares = rows.src_info != nullptr;
  if (compares) {
    Found found;
    found.compare(Wrong::src_info, 0, static_cast<unsigned>(token), static_cast<unsigned>(rows.src_info[2 * row]));
    found.compare(Wrong::src_info, 1, static_cast<unsigned>(k), static_cast<unsigned>(rows.src_info[2 * row + 1]));
    check_row_bytes(s, token_key(s, r, source, token), rows,
                    {row, static_cast<unsigned>(in_group), scratch.tiles[group]}, found);
    report(verdict, r, found, static_cast<int>(row));
  }
  const unsigned key = result_key(s, r, source, token, k);
  for (int column = static_cast<int>(threadIdx.x); column < s.hidden; column += kThreads)
    scratch.results[row * s.hidden + column] = value_at(key, static_cast<unsigned>(column));
  if (threadIdx.x != 0 || !compares) return;
  atomicAdd(&verdict->rows_checked, 1ull);
  if (source != s.rank) atomicAdd(&verdict->rows_of_others, 1ull);
}

// Padding rows have scale 0; and so, in tiles, have the rows that are missing in a group's last tile and the columns
// behind the last one of any row.
__device__ void check_zero_scales(const Setting& s, const Rows& rows, const Scratch& scratch, int group, Found& found) {
  const bool tiled = s.layout == Layout::tiled;
  const int blocks = scales_of_row(s), columns = tiled ? (blocks + 3) / 4 * 4 : blocks;
  const unsigned start = scratch.starts[group], filled = scratch.counts[group];
  const unsigned end = scratch.starts[group + 1] - start, scales_end = tiled ? (end + 127) / 128 * 128 : end;
  for (unsigned row = columns == blocks ? filled : 0; row < scales_end; ++row) {
    const RowPlace at{static_cast<long long>(start) + row, row, scratch.tiles[group]};
    const int first = row < filled ? blocks : 0;
    for (int block = first + static_cast<int>(threadIdx.x); block < columns; block += kThreads)
      found.compare(Wrong::padding, block, 0, scale_at(s, rows, at, block));
  }
}

// A block for each group: the rows between its last one and the next group's first.
__global__ void padding_kernel(const __grid_constant__ Setting s, const __grid_constant__ Round r, Rows rows,
                               Scratch scratch, Verdict* verdict) {
  const int group = static_cast<int>(blockIdx.x);
  const int row_bytes = s.hidden * code_bits(s.format) / 8;
  Found found;
  for (long long row = scratch.starts[group] + scratch.counts[group]; row < scratch.starts[group + 1]; ++row) {
    found.compare(Wrong::padding, -1, ~0u, static_cast<unsigned>(rows.src_info[2 * row]));
    found.compare(Wrong::padding, -1, ~0u, static_cast<unsigned>(rows.src_info[2 * row + 1]));
    for (int at = static_cast<int>(threadIdx.x); at < row_bytes; at += kThreads)
      found.compare(Wrong::padding, at, rows.poison, rows.payload[row * row_bytes + at]);
  }
  if (s.layout != Layout::none) check_zero_scales(s, rows, scratch, group, found);
  report(verdict, r, found, group);
}

__device__ float add_products(const Setting& s, const Round& r, const int* ids, int token, int rank, unsigned column) {
  float sum = 0;
  for (int k = 0; k < s.top_k; ++k) {
    if (ids[k] < 0 || (rank >= 0 && s.owner[ids[k]] != rank)) continue;
    const float value = float_of_bf16(value_at(result_key(s, r, s.rank, token, k), column));
    sum = __fadd_rn(sum, __fmul_rn(weight_at(s, r, s.rank, token, k), value));
  }
  return sum;
}

// exact: over k ascending. by_rank: each rank's part, rounded to bf16, ranks ascending.
__device__ float expected_sum(const Setting& s, const Round& r, const int* ids, int token, unsigned column) {
  float sum = 0;
  if (s.exact) {
    sum = add_products(s, r, ids, token, -1, column);
  } else {
    for (int rank = 0; rank < s.ranks; ++rank) {
      bool names = false;
      for (int k = 0; k < s.top_k; ++k) names = names || (ids[k] >= 0 && s.owner[ids[k]] == rank);
      if (names) sum = __fadd_rn(sum, float_of_bf16(bf16_of_float(add_products(s, r, ids, token, rank, column))));
    }
  }
  if (s.shared) sum = __fadd_rn(sum, float_of_bf16(value_at(result_key(s, r, s.rank, token, s.top_k), column)));
  return sum;
}

// A block for each token.
__global__ void sums_kernel(const __grid_constant__ Setting s, const __grid_constant__ Round r, Inputs in,
                            const void* sums, bool wide, Verdict* verdict) {
  const int token = static_cast<int>(blockIdx.x);
  if (token >= r.tokens[s.rank]) return;
  const int* ids = in.all_ids + (s.rank * s.max_tokens + token) * s.top_k;
  Found found;
  for (int column = static_cast<int>(threadIdx.x); column < s.hidden; column += kThreads) {
    const float sum = expected_sum(s, r, ids, token, static_cast<unsigned>(column));
    const std::size_t at =
        static_cast<std::size_t>(token) * static_cast<std::size_t>(s.hidden) + static_cast<std::size_t>(column);
    if (wide)
      found.compare(Wrong::sum, column, __float_as_uint(sum), static_cast<const unsigned*>(sums)[at]);
    else
      found.compare(Wrong::sum, column, bf16_of_float(sum), static_cast<const std::uint16_t*>(sums)[at]);
  }
  report(verdict, r, found, token);
  if (threadIdx.x == 0) atomicAdd(&verdict->sums_checked, 1ull);
}

__global__ void damage_kernel(std::uint8_t* byte) { *byte ^= 0x10; }

void require_launched() {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) throw std::runtime_error(std::string("launch: ") + cudaGetErrorString(status));
}

}  // namespace

const char* to_string(Wrong wrong) {
  constexpr const char* kNames[] = {"nothing", "row_offsets", "expert_ids", "src_info", "scales_offsets",
                                    "payload", "scale",       "padding",    "sum"};
  return kNames[static_cast<int>(wrong)];
}

void make_inputs(const Setting& setting, const Round& round, const Inputs& inputs, cudaStream_t stream) {
  make_inputs_kernel<<<static_cast<unsigned>(setting.max_tokens), kThreads, 0, stream>>>(setting, round, inputs);
  require_launched();
}

void delay(unsigned nanoseconds, cudaStream_t stream) {
  if (nanoseconds == 0) return;
  delay_kernel<<<1, 1, 0, stream>>>(nanoseconds);
  require_launched();
}

static void run_rows(const Setting& setting, const Round& round, const Inputs& inputs, const Rows& rows,
                     const Scratch& scratch, Verdict* verdict, cudaStream_t stream) {
  const auto groups = static_cast<unsigned>(setting.groups);
  const int entries = setting.ranks * setting.max_tokens * setting.top_k + (setting.shared ? setting.max_tokens : 0);
  count_kernel<<<groups, kThreads, 0, stream>>>(setting, round, inputs, scratch.counts);
  starts_kernel<<<1, 1, 0, stream>>>(setting, round, rows, scratch, verdict);
  rows_kernel<<<static_cast<unsigned>(entries), kThreads, 0, stream>>>(setting, round, inputs, rows, scratch, verdict);
}

void check_rows(const Setting& setting, const Round& round, const Inputs& inputs, const Rows& rows,
                const Scratch& scratch, Verdict* verdict, cudaStream_t stream) {
  run_rows(setting, round, inputs, rows, scratch, verdict, stream);
  padding_kernel<<<static_cast<unsigned>(setting.groups), kThreads, 0, stream>>>(setting, round, rows, scratch,
                                                                                 verdict);
  require_launched();
}

void make_results(const Setting& setting, const Round& round, const Inputs& inputs, const Scratch& scratch,
                  Verdict* verdict, cudaStream_t stream) {
  run_rows(setting, round, inputs, Rows{}, scratch, verdict, stream);
  require_launched();
}

void check_sums(const Setting& setting, const Round& round, const Inputs& inputs, const void* sums, bool wide,
                Verdict* verdict, cudaStream_t stream) {
  sums_kernel<<<static_cast<unsigned>(setting.max_tokens), kThreads, 0, stream>>>(setting, round, inputs, sums, wide,
                                                                                  verdict);
  require_launched();
}

void damage(void* memory, std::size_t byte, cudaStream_t stream) {
  damage_kernel<<<1, 1, 0, stream>>>(static_cast<std::uint8_t*>(memory) + byte);
  require_launched();
}

}  // namespace ferry::stress
