#include "gpu/stress/stress_kernels.h"

#include <stdexcept>
#include <string>

#include "ferry/detail/cuda/team/ptx.cuh"
#include "gpu/stress/stress_codec.cuh"
#include "gpu/stress/stress_verdict.cuh"

namespace ferry::stress {
namespace {

constexpr int kThreads = 128;

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
    if (rows.row_offsets != nullptr) found.compare(Wrong::row_offsets, -1, start, rows.row_offsets[group]);
    if (group < s.groups) {
      const unsigned count = scratch.counts[group];
      scratch.tiles[group] = tile;
      if (rows.expert_ids != nullptr)
        found.compare(Wrong::expert_ids, -1, static_cast<unsigned>(group),
                      static_cast<unsigned>(rows.expert_ids[group]));
      if (rows.counts != nullptr) found.compare(Wrong::counts, -1, count, static_cast<unsigned>(rows.counts[group]));
      if (rows.scales_offsets != nullptr)
        found.compare(Wrong::scales_offsets, -1, tile - start / 128, rows.scales_offsets[group]);
      const unsigned end = rows.order == RowOrder::padded ? start + static_cast<unsigned>(s.stride)
                                                          : (start + count + alignment - 1) / alignment * alignment;
      tile += (end - start + 127) / 128;
      start = end;
    }
    report(verdict, r, found, group);
  }
}

// What a row of a token holds, in any order of rows.
__device__ void check_row(const Setting& s, const Round& r, const Rows& rows, const RowPlace& at, int source, int token,
                          int second, Verdict* verdict) {
  Found found;
  found.compare(Wrong::src_info, 0, static_cast<unsigned>(token), static_cast<unsigned>(rows.src_info[2 * at.row]));
  found.compare(Wrong::src_info, 1, static_cast<unsigned>(second),
                static_cast<unsigned>(rows.src_info[2 * at.row + 1]));
  if (rows.gather != nullptr) {  // the slot of (source, token), of any copy
    const int slot = rows.gather[at.row];
    found.compare(Wrong::gather, -1, static_cast<unsigned>(source * s.max_tokens + token),
                  static_cast<unsigned>(slot < 0 ? slot : slot % (s.ranks * s.max_tokens)));
  }
  if (found.wrong == Wrong::none) check_row_bytes(s, token_key(s, r, source, token), rows, at, found);
  report(verdict, r, found, static_cast<int>(at.row));
  if (threadIdx.x != 0) return;
  atomicAdd(&verdict->rows_checked, 1ull);
  if (source != s.rank) atomicAdd(&verdict->rows_of_others, 1ull);
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
  if (rows.src_info != nullptr)
    check_row(s, r, rows, {row, static_cast<unsigned>(in_group), scratch.tiles[group], group}, source, token, k,
              verdict);
  const unsigned key = result_key(s, r, source, token, k);
  for (int column = static_cast<int>(threadIdx.x); column < s.hidden; column += kThreads)
    scratch.results[row * s.hidden + column] = value_at(key, static_cast<unsigned>(column));
}

// A thread for each (source, token): whether it names an expert of this rank.
__global__ void comes_kernel(const __grid_constant__ Setting s, Inputs in, std::uint8_t* comes) {
  const int token = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (token >= s.ranks * s.max_tokens) return;
  bool names = false;
  for (int k = 0; k < s.top_k; ++k) {
    const int id = in.all_ids[token * s.top_k + k];
    names = names || (id >= 0 && s.owner[id] == s.rank);
  }
  comes[token] = names ? 1 : 0;
}

// How many of the tokens [0, end) come. All threads of the block call it and get the sum.
__device__ int count_tokens(const Scratch& scratch, int end) {
  int sum = 0;
  for (int first = 0; first < end; first += kThreads) {
    const int token = first + static_cast<int>(threadIdx.x);
    sum += __syncthreads_count(token < end && scratch.comes[token] != 0);
  }
  return sum;
}

// Rows by_source: a block for each (source, token).
__global__ void source_rows_kernel(const __grid_constant__ Setting s, const __grid_constant__ Round r, Inputs in,
                                   Rows rows, Scratch scratch, Verdict* verdict) {
  const int index = static_cast<int>(blockIdx.x);
  if (scratch.comes[index] == 0) return;
  const int source = index / s.max_tokens, token = index % s.max_tokens;
  const int row = count_tokens(scratch, index);
  const int* ids = in.all_ids + index * s.top_k;
  if (rows.src_info != nullptr) {
    const auto place = static_cast<unsigned>(row);
    check_row(s, r, rows, {row, place, 0, 0}, source, token, source, verdict);
    Found found;
    for (int k = static_cast<int>(threadIdx.x); k < s.top_k; k += kThreads) {
      const bool is_local = ids[k] >= 0 && s.owner[ids[k]] == s.rank;
      found.compare(Wrong::row_topk_ids, k, static_cast<unsigned>(is_local ? ids[k] - s.first_expert : -1),
                    static_cast<unsigned>(rows.row_topk_ids[row * s.top_k + k]));
      found.compare(Wrong::row_topk_weights, k, __float_as_uint(is_local ? weight_at(s, r, source, token, k) : 0.0f),
                    __float_as_uint(rows.row_topk_weights[row * s.top_k + k]));
    }
    report(verdict, r, found, row);
  }
  for (int column = static_cast<int>(threadIdx.x); column < s.hidden; column += kThreads)
    scratch.results[static_cast<long long>(row) * s.hidden + column] =
        bf16_of_float(add_products(s, r, ids, source, token, s.rank, static_cast<unsigned>(column)));
}

// One block: the first row of each source, and ids behind the last row.
__global__ void sources_kernel(const __grid_constant__ Setting s, const __grid_constant__ Round r, Rows rows,
                               Scratch scratch, Verdict* verdict) {
  Found found;
  int total = 0;
  for (int source = 0; source <= s.ranks; ++source) {
    total = count_tokens(scratch, source * s.max_tokens);
    if (threadIdx.x == 0)
      found.compare(Wrong::source_offsets, source, static_cast<unsigned>(total), rows.source_offsets[source]);
  }
  for (long long at = static_cast<long long>(total) * s.top_k + threadIdx.x; at < rows.capacity * s.top_k;
       at += kThreads)
    found.compare(Wrong::row_topk_ids, -1, ~0u, static_cast<unsigned>(rows.row_topk_ids[at]));
  if (total < rows.capacity)
    for (int byte = static_cast<int>(threadIdx.x); byte < s.hidden * code_bits(s.format) / 8; byte += kThreads)
      found.compare(Wrong::padding, byte, rows.poison,
                    rows.payload[static_cast<long long>(total) * s.hidden * code_bits(s.format) / 8 + byte]);
  report(verdict, r, found, total);
}

// Padding rows have scale 0; and so, in tiles, have the rows that are missing in a group's last tile and the columns
// behind the last one of any row.
__device__ void check_zero_scales(const Setting& s, const Rows& rows, const Scratch& scratch, int group, Found& found) {
  const bool tiled = s.layout == Layout::tiled;
  const int blocks = scales_of_row(s), columns = tiled ? (blocks + 3) / 4 * 4 : blocks;
  const unsigned start = scratch.starts[group], filled = scratch.counts[group];
  const unsigned end = scratch.starts[group + 1] - start, scales_end = tiled ? (end + 127) / 128 * 128 : end;
  for (unsigned row = columns == blocks ? filled : 0; row < scales_end; ++row) {
    const RowPlace at{static_cast<long long>(start) + row, row, scratch.tiles[group], group};
    const int first = row < filled ? blocks : 0;
    for (int block = first + static_cast<int>(threadIdx.x); block < columns; block += kThreads)
      found.compare(Wrong::padding, block, 0, scale_at(s, rows, at, block));
  }
}

// A row that belongs to no token: marked, or, where rows are padded, as it was.
__device__ void check_empty_row(const Setting& s, const Rows& rows, long long row, Found& found) {
  const unsigned mark = rows.order == RowOrder::padded ? rows.poison * 0x01010101u : ~0u;
  found.compare(Wrong::padding, -1, mark, static_cast<unsigned>(rows.src_info[2 * row]));
  found.compare(Wrong::padding, -1, mark, static_cast<unsigned>(rows.src_info[2 * row + 1]));
  if (rows.gather != nullptr) {
    found.compare(Wrong::gather, -1, ~0u, static_cast<unsigned>(rows.gather[row]));
    return;
  }
  const int row_bytes = s.hidden * code_bits(s.format) / 8;
  for (int at = static_cast<int>(threadIdx.x); at < row_bytes; at += kThreads)
    found.compare(Wrong::padding, at, rows.poison, rows.payload[row * row_bytes + at]);
}

// A block for each group: the rows between its last one and the next group's first; of padded ones the first.
__global__ void padding_kernel(const __grid_constant__ Setting s, const __grid_constant__ Round r, Rows rows,
                               Scratch scratch, Verdict* verdict) {
  const int group = static_cast<int>(blockIdx.x);
  const bool padded = rows.order == RowOrder::padded;
  const unsigned first = scratch.starts[group] + scratch.counts[group];
  const unsigned end = padded ? min(first + 1, scratch.starts[group + 1]) : scratch.starts[group + 1];
  Found found;
  for (unsigned row = first; row < end; ++row) check_empty_row(s, rows, row, found);
  if (rows.order == RowOrder::by_expert && rows.scales != nullptr) check_zero_scales(s, rows, scratch, group, found);
  report(verdict, r, found, group);
}

// A block for each row. One that points outside of the slots is left as it is, and found by the check.
__global__ void gather_kernel(const __grid_constant__ Setting s, Rows rows, Slots slots) {
  const long long row = blockIdx.x;
  const int slot = rows.gather[row], row_bytes = s.hidden * code_bits(s.format) / 8;
  if (slot < 0 || slot >= slots.count) return;
  auto* payload = const_cast<std::uint8_t*>(rows.payload) + row * row_bytes;
  for (int at = static_cast<int>(threadIdx.x); at < row_bytes; at += kThreads)
    payload[at] = slots.payload[slot * slots.payload_pitch + at];
  const int scale_bytes = scales_of_row(s) * (s.format == Format::fp8_block128 ? 4 : 1);
  auto* scales = const_cast<std::uint8_t*>(rows.scales) + row * scale_bytes;
  for (int at = static_cast<int>(threadIdx.x); at < scale_bytes; at += kThreads)
    scales[at] = slots.scales[slot * slots.scales_pitch + at];
}

__global__ void damage_kernel(std::uint8_t* byte) { *byte ^= 0x10; }

}  // namespace

const char* to_string(Wrong wrong) {
  constexpr const char* kNames[] = {
      "nothing",          "row_offsets",    "expert_ids", "src_info", "scales_offsets", "counts",  "row_topk_ids",
      "row_topk_weights", "source_offsets", "gather",     "payload",  "scale",          "padding", "sum"};
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
  const auto tokens = static_cast<unsigned>(setting.ranks * setting.max_tokens);
  count_kernel<<<static_cast<unsigned>(setting.groups), kThreads, 0, stream>>>(setting, round, inputs, scratch.counts);
  starts_kernel<<<1, 1, 0, stream>>>(setting, round, rows, scratch, verdict);
  if (rows.order == RowOrder::by_source) {
    comes_kernel<<<(tokens + kThreads - 1) / kThreads, kThreads, 0, stream>>>(setting, inputs, scratch.comes);
    source_rows_kernel<<<tokens, kThreads, 0, stream>>>(setting, round, inputs, rows, scratch, verdict);
    return;
  }
  const int entries = static_cast<int>(tokens) * setting.top_k + (setting.shared ? setting.max_tokens : 0);
  rows_kernel<<<static_cast<unsigned>(entries), kThreads, 0, stream>>>(setting, round, inputs, rows, scratch, verdict);
}

void check_rows(const Setting& setting, const Round& round, const Inputs& inputs, const Rows& rows,
                const Scratch& scratch, Verdict* verdict, cudaStream_t stream) {
  run_rows(setting, round, inputs, rows, scratch, verdict, stream);
  if (rows.order == RowOrder::by_source)
    sources_kernel<<<1, kThreads, 0, stream>>>(setting, round, rows, scratch, verdict);
  else
    padding_kernel<<<static_cast<unsigned>(setting.groups), kThreads, 0, stream>>>(setting, round, rows, scratch,
                                                                                   verdict);
  require_launched();
}

void gather_rows(const Setting& setting, const Rows& rows, const Slots& slots, cudaStream_t stream) {
  gather_kernel<<<static_cast<unsigned>(rows.capacity), kThreads, 0, stream>>>(setting, rows, slots);
  require_launched();
}

void make_results(const Setting& setting, const Round& round, const Inputs& inputs, const Scratch& scratch,
                  Verdict* verdict, cudaStream_t stream) {
  Rows rows{};
  rows.order = round.order[setting.rank];
  run_rows(setting, round, inputs, rows, scratch, verdict, stream);
  require_launched();
}

void damage(void* memory, std::size_t byte, cudaStream_t stream) {
  damage_kernel<<<1, 1, 0, stream>>>(static_cast<std::uint8_t*>(memory) + byte);
  require_launched();
}

}  // namespace ferry::stress
