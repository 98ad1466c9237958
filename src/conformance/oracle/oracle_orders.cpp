// The oracle's rows in the other orders than by_expert.
#include <algorithm>
#include <bit>

#include "conformance/oracle/oracle_parts.h"

namespace ferry::test {

std::int64_t expert_stride_of(const Round& round, int rank) {
  const std::int64_t given = round.ranks[size(rank)].expert_stride;
  const std::int64_t sources = round.options.skip_a2a ? 1 : round.shape.ranks;
  return given == 0 ? sources * round.shape.max_tokens : given;
}

ExpectedRows padded_rows(const Round& round, int rank, std::int64_t row_capacity, std::byte poison) {
  const std::int64_t stride = expert_stride_of(round, rank);
  const std::int64_t per_row = scales_per_row(round.options.format, round.shape.hidden);
  ExpectedRows out;
  out.row_capacity = row_capacity;
  std::vector<RowOrigin> dropped;
  out.payload.assign(size(row_capacity) * round.options.format.payload_bytes(round.shape.hidden), poison);
  const bool transposed = scale_layout_of(round.options) == ScaleLayout::transposed;
  const std::int64_t rows_of_scales = transposed ? num_groups(round, rank) * stride : row_capacity;
  out.scales.assign(scale_tensor_bytes(round, rank, rows_of_scales), poison);
  out.row_offsets.push_back(0);
  std::int64_t index = 0;  // of the group
  for (std::vector<RowOrigin>& group : rows_by_group(round, rank)) {
    for (RowOrigin& row : group) row = seen_row(round, row);
    const ScaleGroup scales{index * stride, index * ((stride + 127) / 128), index * per_row * stride, stride};
    const auto came = static_cast<std::int64_t>(group.size());
    const std::int64_t filled = std::min(came, stride);
    out.expert_ids.push_back(static_cast<std::int32_t>(index++));
    out.counts.push_back(static_cast<std::int32_t>(came));
    out.row_offsets.push_back(static_cast<std::uint32_t>(index * stride));
    if (scale_layout_of(round.options) == ScaleLayout::tiled) {
      out.scales_offsets.push_back(static_cast<std::uint32_t>(scales.tile - scales.first / 128));
      zero_tiles(round, scales, filled, out);
    }
    for (std::int64_t j = 0; j < filled; ++j) {
      put_row(round, scales, j, group[size(j)], out);
      out.src_info.insert(out.src_info.end(), {group[size(j)].token, group[size(j)].k});
    }
    for (std::int64_t j = filled; round.zero_padding && j < stride; ++j) put_row(round, scales, j, {}, out);
    out.rows.insert(out.rows.end(), group.begin(), group.begin() + filled);
    dropped.insert(dropped.end(), group.begin() + filled, group.end());
    out.rows.resize(size(index * stride));
    out.src_info.resize(out.rows.size() * 2, kUntouched);
  }
  out.rows.resize(std::max(out.rows.size(), dropped.empty() ? 0 : size(row_capacity)));
  out.rows.insert(out.rows.end(), dropped.begin(), dropped.end());
  return out;
}

namespace {

// The local expert that entry (token, k) names at `rank`, or -1.
std::int64_t local_id(const Round& round, int rank, const RankInput& in, int token, int k) {
  const std::int64_t local = in.topk_ids[size(token * round.shape.top_k + k)] - first_expert(round.shape, rank);
  return local >= 0 && local < num_local_experts(round.shape, rank) ? local : -1;
}

// A token's row, if it names an expert of the rank: ids, weights and origin.
void add_row_of_token(const Round& round, int rank, int source, int token, ExpectedRows& out) {
  const RankInput& in = round.ranks[size(source)];
  const int top_k = round.shape.top_k;
  int first = -1;
  for (int k = top_k - 1; k >= 0; --k)
    if (local_id(round, rank, in, token, k) >= 0) first = k;
  if (first < 0) return;
  for (int k = 0; k < top_k; ++k) {
    const std::int64_t id = local_id(round, rank, in, token, k);
    const float weight = in.weights.empty() || in.weights_are_late ? 1.0f : in.weights[size(token * top_k + k)];
    out.row_topk_ids.push_back(is_gone(round, source) ? -1 : id);
    out.row_topk_weights.push_back(id < 0 || is_gone(round, source) ? 0.0f : weight);
    if (id >= 0) ++out.counts[size(id)];
  }
  const RowOrigin row = seen_row(round, {source, token, first});
  out.rows.push_back(row);
  out.src_info.insert(out.src_info.end(), {row.token, round.options.skip_a2a ? 0 : row.source});
}

}  // namespace

// All rows are one group, from row 0 on.
ExpectedRows rows_by_source(const Round& round, int rank, std::int64_t row_capacity, std::byte poison) {
  ExpectedRows out;
  out.row_capacity = row_capacity;
  out.payload.assign(size(row_capacity) * round.options.format.payload_bytes(round.shape.hidden), poison);
  out.scales.assign(scale_tensor_bytes(round, rank, row_capacity), poison);
  out.counts.resize(size(num_local_experts(round.shape, rank)));
  out.source_offsets.push_back(0);
  for (int source = 0; source < round.shape.ranks; ++source) {
    if (round.options.skip_a2a && source != rank) continue;
    const int tokens = is_masked_out(round, source) ? 0 : round.ranks[size(source)].num_tokens;
    for (int token = 0; token < tokens; ++token) add_row_of_token(round, rank, source, token, out);
    out.source_offsets.push_back(static_cast<std::uint32_t>(out.rows.size()));
  }
  if (!round.ranks[size(rank)].expert_counts.empty()) {  // by counts: delivered as they were given
    std::fill(out.counts.begin(), out.counts.end(), 0);
    for (int source = 0; source < round.shape.ranks; ++source)
      for (std::size_t local = 0; !is_masked_out(round, source) && local < out.counts.size(); ++local)
        out.counts[local] += round.ranks[size(source)].expert_counts[size(first_expert(round.shape, rank)) + local];
  }
  const auto rows = static_cast<std::int64_t>(out.rows.size());
  const ScaleGroup all{0, 0, 0, row_capacity};
  if (scale_layout_of(round.options) == ScaleLayout::tiled) zero_tiles(round, all, rows, out);
  for (std::int64_t row = 0; row < rows; ++row) put_row(round, all, row, out.rows[size(row)], out);
  for (std::int64_t row = rows; round.zero_padding && row < row_capacity; ++row) put_row(round, all, row, {}, out);
  const std::int64_t weights = round.zero_padding ? row_capacity : std::min(rows, row_capacity);
  out.row_topk_weights.resize(size(weights * round.shape.top_k));
  out.row_topk_ids.resize(size(row_capacity * round.shape.top_k), -1);
  out.src_info.resize(size(2 * std::min(rows, row_capacity)));
  return out;
}

// The rows of by_expert, and of each the slot where its message lies; in the slots, scales follow the payload.
ExpectedRows rows_in_place(const Round& round, int rank, std::int64_t row_capacity, std::byte poison) {
  ExpectedRows out = rows_by_expert(round, rank, row_capacity, poison);
  const std::size_t payload_bytes = round.options.format.payload_bytes(round.shape.hidden);
  std::vector<std::byte> payload(size(row_capacity) * payload_bytes, poison), scales;
  for (std::size_t row = 0; row < std::min(out.rows.size(), size(row_capacity)); ++row) {
    const RowOrigin& from = out.rows[row];
    const std::int64_t source = round.options.skip_a2a ? 0 : from.source;
    if (round.options.dynamic_scales) out.global_scales[row] = std::bit_cast<float>(kUntouched);
    out.slots.push_back(is_padding(from) ? -1 : source * round.shape.max_tokens + from.token);
    if (is_padding(from)) {
      scales.resize(scales.size() + scale_bytes_of_row(round), poison);
      continue;
    }
    const EncodedToken token = encode(round, from);
    if (round.options.dynamic_scales) out.global_scales[row] = token.inverse;
    std::copy(token.payload.begin(), token.payload.end(),
              payload.begin() + static_cast<std::ptrdiff_t>(row * payload_bytes));
    scales.insert(scales.end(), token.scales.begin(), token.scales.end());
  }
  scales.resize(size(row_capacity) * scale_bytes_of_row(round), poison);
  out.payload = std::move(payload);
  out.scales = std::move(scales);
  out.scales_offsets.clear();
  return out;
}

}  // namespace ferry::test
