// The oracle's loops. Index formulas are written out here a second time on purpose: they are what the exchange is held
// to.
#include "conformance/oracle/oracle_parts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace ferry::test {

bool is_padding(const RowOrigin& row) { return row.source < 0; }

bool is_masked_out(const Round& round, int rank) { return is_masked(round.options.mask, rank); }

bool is_gone(const Round& round, int rank) { return is_masked(round.gone, rank); }

RowOrigin seen_row(const Round& round, const RowOrigin& row) {
  return !is_padding(row) && is_gone(round, row.source) ? RowOrigin{-1, -1, -1, true} : row;
}

int alignment_of(const ExchangeOptions& options) {
  return options.expert_alignment == 0 ? options.format.alignment() : options.expert_alignment;
}

int num_groups(const Round& round, int rank) {
  return num_local_experts(round.shape, rank) + (round.options.fused_shared_expert ? 1 : 0);
}

ScaleLayout scale_layout_of(const ExchangeOptions& options) {
  return options.tiled_scales ? ScaleLayout::tiled : options.format.scale_layout();
}

TokenRange shared_tokens(const Round& round, int rank) {
  const int n = round.ranks[static_cast<std::size_t>(rank)].num_tokens;
  if (!round.options.fused_shared_expert) return {0, 0};
  if (!round.options.skip_a2a) return {0, n};
  const int world = round.options.allreduce_world_size;
  const int r = rank % world;
  const int start = r * (n / world) + std::min(r, n % world);
  return {start, start + (n + world - r - 1) / world};
}

std::int64_t worst_row_capacity(const Round& round, int rank) {
  const Shape& shape = round.shape;
  const std::int64_t sources = round.options.skip_a2a ? 1 : shape.ranks;
  const RowOrder order = round.ranks[size(rank)].row_order;
  if (order == RowOrder::padded) return num_groups(round, rank) * expert_stride_of(round, rank);
  if (order == RowOrder::by_source) return sources * shape.max_tokens;
  std::int64_t rows = sources * shape.max_tokens * std::min(shape.top_k, num_local_experts(shape, rank));
  if (round.options.fused_shared_expert) rows += shape.max_tokens;
  return rows + std::int64_t{num_groups(round, rank)} * (alignment_of(round.options) - 1);
}

std::vector<std::vector<RowOrigin>> rows_by_group(const Round& round, int rank) {
  const Shape& shape = round.shape;
  std::vector<std::vector<RowOrigin>> groups;
  if (round.options.fused_shared_expert) {
    groups.emplace_back();
    const TokenRange own = shared_tokens(round, rank);
    for (int token = own.begin; token < own.end; ++token) groups.back().push_back({rank, token, shape.top_k});
  }
  for (int local = 0; local < num_local_experts(shape, rank); ++local) {
    groups.emplace_back();
    for (int source = 0; source < shape.ranks; ++source) {
      if (is_masked_out(round, source) || (round.options.skip_a2a && source != rank)) continue;
      const RankInput& in = round.ranks[size(source)];
      for (int token = 0; token < in.num_tokens; ++token)
        for (int k = 0; k < shape.top_k; ++k)
          if (in.topk_ids[size(token * shape.top_k + k)] == first_expert(shape, rank) + local)
            groups.back().push_back({source, token, k});
    }
  }
  return groups;
}

// 2688 brings the largest magnitude to the largest code times the largest scale of a block.
float dynamic_scale(InputRow row, int hidden) {
  float largest = 0;
  for (int column = 0; column < hidden; ++column) {
    const float value = value_at(row, column);
    if (std::isnan(value) || std::isinf(value)) return 1.0f;
    largest = std::max(largest, std::fabs(value));
  }
  const float scale = largest == 0 ? 1.0f : 2688.0f / largest;
  return std::isinf(scale) ? 1.0f : scale;
}

EncodedToken encode(const Round& round, const RowOrigin& row) {
  const AnyFormat& format = round.options.format;
  const int hidden = round.shape.hidden;
  const RankInput& in = round.ranks[size(row.source)];
  EncodedToken out;
  out.payload.resize(format.payload_bytes(hidden));
  out.scales.resize(size(scales_per_row(format, hidden) * format.scale_bytes()));
  const std::size_t row_bytes = size(hidden) * size_of(in.token_dtype);
  const InputRow input{in.tokens.data() + size(row.token) * row_bytes, in.token_dtype};
  const float scale = round.options.dynamic_scales ? dynamic_scale(input, hidden) : round.input_scale;
  out.inverse = 1.0f / scale;
  format.encode(SerialGroup{}, input, hidden, scale, out.payload.data(), out.scales.data());
  return out;
}

std::size_t scale_index(ScaleLayout layout, const ScaleGroup& group, int per_row, std::int64_t j, int column) {
  switch (layout) {
    case ScaleLayout::none:
      return 0;
    case ScaleLayout::row_major:
      return size((group.first + j) * per_row + column);
    case ScaleLayout::transposed:
      return size(group.begin + column * group.column_step + j);
    case ScaleLayout::tiled: {
      const std::int64_t columns = (per_row + 3) / 4;
      return size(((((group.tile + j / 128) * columns + column / 4) * 32 + j % 32) * 4 + (j % 128) / 32) * 4 +
                  column % 4);
    }
  }
  return 0;
}

std::size_t scale_tensor_bytes(const Round& round, int rank, std::int64_t row_capacity) {
  const std::int64_t per_row = scales_per_row(round.options.format, round.shape.hidden);
  const std::int64_t bytes = round.options.format.scale_bytes();
  if (scale_layout_of(round.options) != ScaleLayout::tiled) return size(row_capacity * per_row * bytes);
  const std::int64_t tiles = (row_capacity + 127) / 128 + num_groups(round, rank);
  return size(tiles * ((per_row + 3) / 4) * 32 * 4 * 4 * bytes);
}

void zero_tiles(const Round& round, const ScaleGroup& group, std::int64_t rows, ExpectedRows& out) {
  rows = std::min(rows, std::max<std::int64_t>(out.row_capacity - group.first, 0));
  const std::int64_t per_row = scales_per_row(round.options.format, round.shape.hidden);
  const std::size_t tile_bytes = size((per_row + 3) / 4 * 32 * 4 * 4 * round.options.format.scale_bytes());
  std::memset(out.scales.data() + size(group.tile) * tile_bytes, 0, size((rows + 127) / 128) * tile_bytes);
}

void put_row(const Round& round, const ScaleGroup& group, std::int64_t j, const RowOrigin& row, ExpectedRows& out) {
  const AnyFormat& format = round.options.format;
  const int per_row = scales_per_row(format, round.shape.hidden);
  const std::size_t scale_bytes = size(format.scale_bytes());
  const std::size_t payload_bytes = format.payload_bytes(round.shape.hidden);
  if (group.first + j >= out.row_capacity) return;
  EncodedToken token;
  token.scales.assign(size(per_row) * scale_bytes, std::byte{0});
  const std::size_t place = size(group.first + j);
  if (round.options.dynamic_scales && out.global_scales.size() <= place)
    out.global_scales.resize(place + 1, std::bit_cast<float>(kUntouched));
  if (!is_padding(row)) token = encode(round, row);
  if (round.options.dynamic_scales) out.global_scales[place] = token.inverse;
  if (is_padding(row) && round.zero_padding) token.payload.resize(payload_bytes);
  std::copy(token.payload.begin(), token.payload.end(),
            out.payload.begin() + static_cast<std::ptrdiff_t>(size(group.first + j) * payload_bytes));
  for (int column = 0; column < per_row; ++column)
    std::memcpy(
        out.scales.data() + scale_index(scale_layout_of(round.options), group, per_row, j, column) * scale_bytes,
        token.scales.data() + size(column) * scale_bytes, scale_bytes);
}

ExpectedRows rows_by_expert(const Round& round, int rank, std::int64_t row_capacity, std::byte poison) {
  const int alignment = alignment_of(round.options);
  ExpectedRows out;
  out.row_capacity = row_capacity;
  out.payload.assign(size(row_capacity) * round.options.format.payload_bytes(round.shape.hidden), poison);
  out.scales.assign(scale_tensor_bytes(round, rank, row_capacity), poison);
  out.row_offsets.push_back(0);
  std::int64_t tile = 0;  // tiles of the groups before
  for (std::vector<RowOrigin>& group : rows_by_group(round, rank)) {
    const auto first = static_cast<std::int64_t>(out.rows.size());
    const ScaleGroup scales{first, tile, first, row_capacity};
    out.expert_ids.push_back(static_cast<std::int32_t>(out.expert_ids.size()));
    out.counts.push_back(static_cast<std::int32_t>(group.size()));
    for (RowOrigin& row : group) row = seen_row(round, row);
    while (group.size() % size(alignment) != 0) group.emplace_back();
    const auto padded = static_cast<std::int64_t>(group.size());
    if (scale_layout_of(round.options) == ScaleLayout::tiled) {
      out.scales_offsets.push_back(static_cast<std::uint32_t>(tile - first / 128));
      zero_tiles(round, scales, padded, out);
    }
    for (std::int64_t j = 0; j < padded; ++j) {
      put_row(round, scales, j, group[size(j)], out);
      out.src_info.insert(out.src_info.end(), {group[size(j)].token, group[size(j)].k});
    }
    out.rows.insert(out.rows.end(), group.begin(), group.end());
    out.row_offsets.push_back(static_cast<std::uint32_t>(out.rows.size()));
    tile += (padded + 127) / 128;
  }
  out.src_info.resize(std::min(out.rows.size(), size(row_capacity)) * 2);
  return out;
}

ExpectedRows expected_rows(const Round& round, int rank, std::int64_t row_capacity, std::byte poison) {
  switch (round.ranks[size(rank)].row_order) {
    case RowOrder::by_expert:
      break;
    case RowOrder::by_source:
      return rows_by_source(round, rank, row_capacity, poison);
    case RowOrder::padded:
      return padded_rows(round, rank, row_capacity, poison);
    case RowOrder::in_place:
      return rows_in_place(round, rank, row_capacity, poison);
  }
  return rows_by_expert(round, rank, row_capacity, poison);
}

}  // namespace ferry::test
