// The oracle's outputs that may be left out, from the ids of all ranks and the rows that they give.
#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "conformance/oracle/oracle_parts.h"

namespace ferry::test {
namespace {

int sources_of(const Round& round) { return round.options.skip_a2a ? 1 : round.shape.ranks; }
int source_seen(const Round& round, int source) { return round.options.skip_a2a ? 0 : source; }

// Whether this rank's rows in padding are marked: those between groups, not those at the end of a stride.
bool marks_padding(const Round& round, int rank) {
  const RowOrder order = round.ranks[size(rank)].row_order;
  return order == RowOrder::by_expert || order == RowOrder::in_place;
}

float weight_of(const Round& round, const RowOrigin& row) {
  const std::vector<float>& weights = round.ranks[size(row.source)].weights;
  const bool are_late = round.ranks[size(row.source)].weights_are_late;
  const bool travels = round.options.reduction != Reduction::exact && !weights.empty() && !are_late;
  return travels && row.k < round.shape.top_k ? weights[size(row.token * round.shape.top_k + row.k)] : 1.0f;
}

std::int32_t bits_of(float value) {
  std::int32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

void add_row_facts(const Round& round, int rank, const ExpectedRows& rows, std::int64_t row_capacity,
                   ExpectedMore& more) {
  if (round.ranks[size(rank)].row_order == RowOrder::by_source) return;
  more.row_weights.assign(size(row_capacity), kUntouched);
  more.row_sources.assign(size(row_capacity), kUntouched);
  const bool marks = marks_padding(round, rank);
  for (std::size_t i = 0; i < std::min(rows.rows.size(), size(row_capacity)); ++i) {
    const RowOrigin& row = rows.rows[i];
    if (!is_padding(row)) {
      more.row_weights[i] = bits_of(weight_of(round, row));
      more.row_sources[i] = source_seen(round, row.source);
      continue;
    }
    const bool in_stride = i < size(rows.row_offsets.back());
    if (marks || row.is_of_gone || (round.zero_padding && in_stride)) more.row_weights[i] = 0;
    if (marks || row.is_of_gone) more.row_sources[i] = -1;
  }
}

// Every message that names an expert of the rank, and its rows by k.
void add_messages(const Round& round, int rank, const ExpectedRows& rows, std::int64_t row_capacity,
                  ExpectedMore& more) {
  const bool by_source = round.ranks[size(rank)].row_order == RowOrder::by_source;
  std::map<std::tuple<int, int, int>, std::size_t> row_of;
  for (std::size_t i = 0; i < rows.rows.size(); ++i)
    row_of[{rows.rows[i].source, rows.rows[i].token, by_source ? 0 : rows.rows[i].k}] = i;
  more.source_offsets.push_back(0);
  const int top_k = round.shape.top_k;
  for (int source = 0; source < round.shape.ranks; ++source) {
    if (round.options.skip_a2a && source != rank) continue;
    const RankInput& in = round.ranks[size(source)];
    const bool gone = is_gone(round, source);  // rows by_source keep the numbers of its messages
    const bool counts = !is_masked_out(round, source) && (by_source || !gone);
    for (int token = 0; counts && token < in.num_tokens; ++token) {
      std::vector<std::int32_t> line{source_seen(round, source), token};
      bool comes = false;
      for (int k = 0; k < top_k; ++k) {
        const std::int64_t local = in.topk_ids[size(token * top_k + k)] - first_expert(round.shape, rank);
        const bool is_here = local >= 0 && local < num_local_experts(round.shape, rank);
        comes = comes || is_here;
        const auto row =
            is_here && !gone ? static_cast<std::int64_t>(row_of.at({source, token, by_source ? 0 : k})) : -1;
        line.push_back(row < row_capacity ? static_cast<std::int32_t>(row) : -1);
      }
      if (gone) std::fill(line.begin(), line.end(), -1);
      if (comes) more.messages.insert(more.messages.end(), line.begin(), line.end());
    }
    more.source_offsets.push_back(static_cast<std::uint32_t>(more.messages.size() / size(2 + top_k)));
  }
}

}  // namespace

ExpectedMore expected_more(const Round& round, int rank, const ExpectedRows& rows, std::int64_t row_capacity) {
  ExpectedMore more;
  for (const std::vector<RowOrigin>& group : rows_by_group(round, rank))
    for (int source = 0; source < sources_of(round); ++source)
      more.source_starts.push_back(static_cast<std::int32_t>(std::count_if(
          group.begin(), group.end(), [&](const RowOrigin& row) { return source_seen(round, row.source) < source; })));
  add_row_facts(round, rank, rows, row_capacity, more);
  add_messages(round, rank, rows, row_capacity, more);
  for (std::size_t i = size(row_capacity); i < rows.rows.size(); ++i)
    more.overflow += is_padding(rows.rows[i]) && !rows.rows[i].is_of_gone ? 0 : 1;
  return more;
}

std::vector<std::byte> expected_row_scales(const Round& round, int rank, const ExpectedRows& rows, std::size_t index) {
  const bool exists = index < rows.rows.size();
  if (exists && !is_padding(rows.rows[index])) return encode(round, rows.rows[index]).scales;
  const RowOrder order = round.ranks[size(rank)].row_order;
  const bool in_group = exists && index < (rows.row_offsets.empty() ? 0 : size(rows.row_offsets.back()));
  const bool is_zero = exists && rows.rows[index].is_of_gone ? true
                       : order == RowOrder::by_expert        ? in_group
                       : order == RowOrder::padded           ? round.zero_padding && in_group
                                                             : round.zero_padding;
  return is_zero ? std::vector<std::byte>(scale_bytes_of_row(round)) : std::vector<std::byte>{};
}

}  // namespace ferry::test
