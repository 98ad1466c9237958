#include "tool/layer/experts/expert_plan.h"

#include <algorithm>

namespace ferry::app {
namespace {

constexpr double kUnit = 0x1p-24;  // a float32 rounding
constexpr std::int64_t kMostPartialBytes = std::int64_t{512} << 20;
constexpr int kMostRowsAtOnce = 2048;

void add_steps(ExpertPlan& plan, const ExpertStep& whole, std::int64_t count, int rows_at_once) {
  for (std::int64_t done = 0; done < count; done += rows_at_once)
    plan.steps.push_back({whole.group, whole.first + done,
                          static_cast<int>(std::min<std::int64_t>(rows_at_once, count - done)), whole.result + done});
}

}  // namespace

ExpertPlan plan_by_expert(std::span<const TokenSpan> groups, int rows_at_once) {
  ExpertPlan plan;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const TokenSpan& rows = groups[group];
    const auto first = static_cast<std::int64_t>(plan.rows.size());
    for (std::int64_t row = rows.begin; row < rows.begin + rows.count; ++row)
      plan.rows.push_back(static_cast<std::uint32_t>(row));
    add_steps(plan, {static_cast<int>(group), first, 0, rows.begin}, rows.count, rows_at_once);
  }
  return plan;
}

ExpertPlan plan_by_source(std::span<const std::int32_t> ids, int top_k, int groups, int rows_at_once) {
  std::vector<std::vector<std::size_t>> entries(static_cast<std::size_t>(groups));
  for (std::size_t entry = 0; entry < ids.size(); ++entry)
    if (ids[entry] >= 0) entries[static_cast<std::size_t>(ids[entry])].push_back(entry);
  ExpertPlan plan;
  plan.results.assign(ids.size(), -1);
  for (std::size_t group = 0; group < entries.size(); ++group) {
    const auto first = static_cast<std::int64_t>(plan.rows.size());
    for (const std::size_t entry : entries[group]) {
      plan.results[entry] = static_cast<std::int32_t>(plan.rows.size());
      plan.rows.push_back(static_cast<std::uint32_t>(entry / static_cast<std::size_t>(top_k)));
    }
    add_steps(plan, {static_cast<int>(group), first, 0, first}, static_cast<std::int64_t>(entries[group].size()),
              rows_at_once);
  }
  return plan;
}

std::vector<Product> products_of(int rows, int columns, int depth) {
  const int whole = depth / kProductStep;
  std::vector<Product> products;
  if (whole > 0) products.push_back({rows, columns, kProductStep, whole, 0, 0});
  if (depth % kProductStep != 0)
    products.push_back({rows, columns, depth % kProductStep, 1, whole * kProductStep, whole});
  return products;
}

std::int64_t partial_values(int hidden, int inter, int rows) {
  const std::int64_t gate_up = std::int64_t{num_partials(hidden)} * 2 * padded_inter(inter);
  const std::int64_t down = std::int64_t{num_partials(padded_inter(inter))} * hidden;
  return rows * std::max(gate_up, down);
}

int rows_at_once(int hidden, int inter) {
  constexpr std::int64_t kFewest = 64;
  const std::int64_t row_bytes = partial_values(hidden, inter, 1) * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t fit = kMostPartialBytes / std::max<std::int64_t>(row_bytes, 1) / kFewest * kFewest;
  return static_cast<int>(std::clamp<std::int64_t>(fit, kFewest, kMostRowsAtOnce));
}

double gpu_sum_error(int n) {
  const double roundings = 3.0 * std::min(n, kProductStep) + num_partials(n) + 1;
  return roundings * kUnit / (1 - roundings * kUnit);
}

double gpu_activation_error(double gate) {
  constexpr double kMostGate = 88;  // beyond it one of exp(gate) and exp(-gate) no longer counts
  return (11 + 2 * std::min(gate, kMostGate)) * kUnit;
}

}  // namespace ferry::app
