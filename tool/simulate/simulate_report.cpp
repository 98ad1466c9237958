// Records and tables of simulated rounds.
#include "tool/simulate/simulate_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "ferry/ferry.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

constexpr double kMicro = 1e6;
double micros(double seconds) { return std::round(seconds * kMicro * 100) / 100; }

const PairTraffic& by_kind(const std::array<PairTraffic, kLinkKinds>& traffic, LinkKind kind) {
  return traffic[static_cast<std::size_t>(kind)];
}

std::string routing_name(const SimulatedCase& of) {
  std::string name = to_string(of.bench.routing);
  if (of.node_limit != 0) name += fmt::format(", {} node{}", of.node_limit, of.node_limit == 1 ? "" : "s");
  return name;
}

// Which share of all that dispatch puts on links is routing tables and headers.
double table_share(const Simulated& simulated) {
  double tables = 0;
  double all = 0;
  for (const PairTraffic& sent : simulated.sent) {
    tables += static_cast<double>(sent.table_bytes);
    all += static_cast<double>(sent.bytes());
  }
  return all == 0 ? 0 : tables / all;
}

double pair_seconds(const Simulated& simulated, Way way) {
  return simulated.dispatch_bound(way).seconds + simulated.combine_bound(way).seconds;
}

Json load_json(const PhaseLoad& load, LinkKind kind) {
  const LinkLoad sent = load.most_sent(kind);
  const LinkLoad received = load.most_received(kind);
  const LinkLoad total = load.total(kind);
  return {{"bytes_sent_most", sent.bytes},           {"bytes_received_most", received.bytes},
          {"operations_sent_most", sent.operations}, {"operations_received_most", received.operations},
          {"bytes_all_ranks", total.bytes},          {"operations_all_ranks", total.operations}};
}

Json phase_json(const PhaseLoad& load, const TimeBound& bound) {
  return {{"nvlink", load_json(load, LinkKind::nvlink)},
          {"nic", load_json(load, LinkKind::nic)},
          {"least_us", micros(bound.seconds)},
          {"limit", bound.limit()}};
}

Json traffic_json(const PairTraffic& traffic) {
  return {{"messages", traffic.messages},       {"message_bytes", traffic.message_bytes},
          {"table_bytes", traffic.table_bytes}, {"count_bytes", traffic.count_bytes},
          {"signals", traffic.signals},         {"operations", traffic.operations}};
}

Json links_json(const Cluster& cluster) {
  Json json = {{"ranks_per_node", cluster.ranks_per_node}};
  for (const LinkKind kind : kAllLinkKinds) {
    const LinkSpeed& speed = cluster.speed_of(kind);
    Json link = {{"gb_per_s", speed.bytes_per_second * 1e-9}, {"us", speed.seconds * kMicro}};
    if (speed.operations_per_second > 0) link["operations_per_us"] = speed.operations_per_second / kMicro;
    json[to_string(kind)] = link;
  }
  return json;
}

Table load_table(const std::vector<Simulated>& all) {
  Table table({{"ranks", "ranks"},
               {"nodes", "nodes"},
               {"tokens", "n"},
               {"format", "format", true},
               {"combine", "combine", true},
               {"routing", "routing", true},
               {"memory", "memory"},
               {"nvlink_out", "NVLink out"},
               {"nic_out", "NIC out"},
               {"nic_in", "NIC in"},
               {"operations", "NIC ops"},
               {"tables", "tables"},
               {"dispatch", "dispatch us"},
               {"combine_us", "combine us"},
               {"limit", "limit of dispatch", true}});
  for (const Simulated& each : all) {
    const BenchCase& bench = each.of.bench;
    const WayLoad& load = each.load(Way::direct);
    const TimeBound dispatch = each.dispatch_bound(Way::direct);
    table.add_row(
        {count_cell(bench.shape.ranks), count_cell(each.of.cluster.nodes()), count_cell(bench.shape.max_tokens),
         text_cell(bench.format.name()), text_cell(combine_name(bench)), text_cell(routing_name(each.of)),
         bytes_cell(each.memory.total), bytes_cell(load.dispatch.most_sent(LinkKind::nvlink).bytes),
         bytes_cell(load.dispatch.most_sent(LinkKind::nic).bytes),
         bytes_cell(load.dispatch.most_received(LinkKind::nic).bytes),
         count_cell(static_cast<std::int64_t>(load.dispatch.most_sent(LinkKind::nic).operations)),
         text_cell(fmt::format("{:.1f} %", 100 * table_share(each))), number_cell(dispatch.seconds * kMicro, 1),
         number_cell(each.combine_bound(Way::direct).seconds * kMicro, 1), text_cell(dispatch.limit())});
  }
  return table;
}

Table way_table(const std::vector<Simulated>& all) {
  Table table({{"ranks", "ranks"},
               {"tokens", "n"},
               {"format", "format", true},
               {"combine", "combine", true},
               {"routing", "routing", true},
               {"direct", "pair us"},
               {"own_entries", "own entries"},
               {"forwarded", "forwarded"},
               {"both", "both"},
               {"gain", "gain"}});
  for (const Simulated& each : all) {
    const BenchCase& bench = each.of.bench;
    std::vector<Cell> cells = {count_cell(bench.shape.ranks), count_cell(bench.shape.max_tokens),
                               text_cell(bench.format.name()), text_cell(combine_name(bench)),
                               text_cell(routing_name(each.of))};
    double best = pair_seconds(each, Way::direct);
    for (const Way way : kWays) {
      cells.push_back(number_cell(pair_seconds(each, way) * kMicro, 1));
      best = std::min(best, pair_seconds(each, way));
    }
    cells.push_back(number_cell(pair_seconds(each, Way::direct) / best, 2));
    table.add_row(std::move(cells));
  }
  return table;
}

}  // namespace

Json to_json(const Simulated& simulated, const std::string& command) {
  const BenchCase& bench = simulated.of.bench;
  Json shape = {{"ranks", bench.shape.ranks},
                {"experts", bench.shape.experts},
                {"top_k", bench.shape.top_k},
                {"hidden", bench.shape.hidden},
                {"tokens", bench.shape.max_tokens}};
  if (!bench.model.empty()) shape["model"] = bench.model;
  Json policy = {{"combine", to_string(bench.reduction)}, {"routing", to_string(bench.routing)}};
  if (bench.names_reduction) policy["reduction"] = to_string(exchange_options(bench).reduction);
  if (bench.routing == RoutingKind::zipf) policy["zipf_exponent"] = bench.zipf_exponent;
  if (simulated.of.node_limit != 0) policy["node_limit"] = simulated.of.node_limit;
  Json json = {{"simulated", true},
               {"version", kVersion},
               {"command", command},
               {"format", bench.format.name()},
               {"shape", shape},
               {"policy", policy},
               {"nodes", simulated.of.cluster.nodes()},
               {"links", links_json(simulated.of.cluster)},
               {"memory_bytes_per_rank", simulated.memory.total},
               {"table_share", std::round(table_share(simulated) * 1e5) / 1e5}};
  json["dispatch_sent"] = {{"own", traffic_json(simulated.own)},
                           {"nvlink", traffic_json(by_kind(simulated.sent, LinkKind::nvlink))},
                           {"nic", traffic_json(by_kind(simulated.sent, LinkKind::nic))}};
  json["combine_sent"] = {{"nvlink", traffic_json(by_kind(simulated.returned, LinkKind::nvlink))},
                          {"nic", traffic_json(by_kind(simulated.returned, LinkKind::nic))}};
  for (const Way way : kWays) {
    Json entry = {{"dispatch", phase_json(simulated.load(way).dispatch, simulated.dispatch_bound(way))},
                  {"combine", phase_json(simulated.load(way).combine, simulated.combine_bound(way))},
                  {"pair_least_us", micros(pair_seconds(simulated, way))}};
    if (way == Way::direct)
      json.update(entry);
    else
      json["other_ways"][to_string(way)] = entry;
  }
  return json;
}

std::string to_text(const std::vector<Simulated>& all) {
  if (all.empty()) return {};
  const BenchCase& bench = all.front().of.bench;
  const Cluster& cluster = all.front().of.cluster;
  const LinkSpeed& nvlink = cluster.speed_of(LinkKind::nvlink);
  const LinkSpeed& nic = cluster.speed_of(LinkKind::nic);
  const bool has_nic =
      std::any_of(all.begin(), all.end(), [](const Simulated& each) { return each.of.cluster.nodes() > 1; });
  std::string text =
      wrapped(
          fmt::format("simulated: {}experts={} top_k={} hidden={}, nodes of {} ranks; each rank and direction: NVLink "
                      "{:g} GB/s and {:g} us, NIC {:g} GB/s and {:g} us",
                      bench.model.empty() ? "" : bench.model + ": ", bench.shape.experts, bench.shape.top_k,
                      bench.shape.hidden, cluster.ranks_per_node, nvlink.bytes_per_second * 1e-9,
                      nvlink.seconds * kMicro, nic.bytes_per_second * 1e-9, nic.seconds * kMicro)) +
      load_table(all).text() + "\n" +
      wrapped(
          "Bytes and operations are those of dispatch on the busiest rank's links; tables: of all its bytes on links, "
          "how "
          "many are routing tables; times: the least that the links allow.");
  if (!has_nic) return text;
  return text + "\n" + way_table(all).text() + "\n" +
         wrapped(
             "Other ways to do it, which Ferry does not have. own entries: a rank gets the routing entries for its own "
             "experts alone; forwarded: one message for each (token, node), passed on there. gain: this protocol's "
             "time "
             "over the least of all.");
}

}  // namespace ferry::app
