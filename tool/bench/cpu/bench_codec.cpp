// The measured loop of a codec on one core.
#include <algorithm>

#include "tool/bench/base/bench_machine.h"
#include "tool/bench/cpu/bench_exchange.h"
#include "tool/bench/cpu/bench_rank_set.h"
#include "tool/text/progress.h"

namespace ferry::app {
namespace {

struct CodecSet {
  BenchBuffer tokens, payload, scales, values;
};

void encode_all(const BenchCase& bench, const CodecSet& set) {
  const auto hidden = static_cast<std::size_t>(bench.shape.hidden);
  const std::size_t payload = bench.format.payload_bytes(bench.shape.hidden);
  const auto scales = static_cast<std::size_t>(scales_per_row(bench.format, bench.shape.hidden)) *
                      static_cast<std::size_t>(bench.format.scale_bytes());
  for (std::size_t token = 0; token < static_cast<std::size_t>(bench.shape.max_tokens); ++token)
    bench.format.encode(SerialGroup{}, InputRow{set.tokens.data() + token * hidden * 2, DType::bf16},
                        bench.shape.hidden, 1.0f, set.payload.data() + token * payload,
                        set.scales.data() + token * scales);
}

void decode_all(const BenchCase& bench, const CodecSet& set) {
  const auto hidden = static_cast<std::size_t>(bench.shape.hidden);
  const std::size_t payload = bench.format.payload_bytes(bench.shape.hidden);
  const auto scales = static_cast<std::size_t>(scales_per_row(bench.format, bench.shape.hidden)) *
                      static_cast<std::size_t>(bench.format.scale_bytes());
  for (std::size_t token = 0; token < static_cast<std::size_t>(bench.shape.max_tokens); ++token)
    bench.format.decode(SerialGroup{}, set.payload.data() + token * payload, set.scales.data() + token * scales,
                        bench.shape.hidden, 1.0f, set.values.as<float>() + token * hidden);
}

}  // namespace

BenchMeasurement measure_codec(const BenchCase& bench) {
  require_valid(bench.shape);
  const auto tokens = static_cast<std::size_t>(bench.shape.max_tokens);
  const auto hidden = static_cast<std::size_t>(bench.shape.hidden);
  const std::size_t scale_bytes = static_cast<std::size_t>(scales_per_row(bench.format, bench.shape.hidden)) *
                                  static_cast<std::size_t>(bench.format.scale_bytes());
  BenchMeasurement measured;
  measured.bytes.tokens = static_cast<double>(tokens * hidden * 2);
  measured.bytes.rows = static_cast<double>(tokens * (bench.format.payload_bytes(bench.shape.hidden) + scale_bytes));
  measured.bytes.output = static_cast<double>(tokens * hidden * 4);
  const bool decodes = bench.operation == BenchOperation::decode;
  measured.set_bytes = measured.bytes.rows + (decodes ? measured.bytes.output : measured.bytes.tokens);
  measured.input_sets = input_sets_for(measured.set_bytes);
  const double all_bytes = measured.bytes.tokens + measured.bytes.rows + (decodes ? measured.bytes.output : 0);
  require_memory(bench, measured.input_sets * all_bytes);  // tokens are there to be encoded, whatever is measured
  measured.set_bytes *= measured.input_sets;

  Progress::doing("making inputs");
  std::vector<CodecSet> sets;
  for (int index = 0; index < measured.input_sets; ++index) {
    sets.push_back({BenchBuffer(tokens * hidden * 2),
                    BenchBuffer(tokens * bench.format.payload_bytes(bench.shape.hidden)),
                    BenchBuffer(tokens * scale_bytes), BenchBuffer(tokens * hidden * 4)});
    fill_bf16(sets.back().tokens.data(), tokens * hidden * 2, static_cast<std::uint64_t>(index) + 1);
    encode_all(bench, sets.back());
    if (decodes) decode_all(bench, sets.back());
  }
  const auto timed = [&](int iteration) {
    const CodecSet& set = sets[static_cast<std::size_t>(iteration) % sets.size()];
    const auto start = std::chrono::steady_clock::now();
    decodes ? decode_all(bench, set) : encode_all(bench, set);
    return seconds_since(start);
  };
  Progress::doing("measuring the codec" + effort_text(bench.effort));
  timed(0);
  double seconds = 0;
  std::vector<double>& samples = measured.samples.seconds;
  for (int done = 0, next = 0; (next = next_iterations(bench.effort, done, seconds)) > 0;)
    for (const int end = done + next; done < end; ++done) seconds += samples.emplace_back(timed(done));
  return measured;
}

}  // namespace ferry::app
