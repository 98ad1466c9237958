#include "conformance/rounds/refused_dispatch.h"

namespace ferry::conformance {

void ExcessTokens::give(RankRound& round) const {
  const ConstTensor& own = round.in.tokens;  // where it is encoded, only such tokens may be allowed
  round.in.tokens = own.dtype == DType::u8 ? ConstTensor(tokens_.data(), DType::u8, {count_, own.shape[1]})
                                           : ConstTensor(tokens_.data(), DType::f32, {count_, hidden_});
  for (ConstTensor* each : {&round.in.topk_ids, &round.in.topk_weights, &round.in.in_rank}) each->shape[0] = count_;
}

void run_refused_dispatch(Exchange& exchange, const RankRound& round, RefusedBy call, int odd, int excess) {
  const int most = exchange.shape().max_tokens;
  const std::vector<std::string> fragments{"tokens of rank " + std::to_string(odd),
                                           std::to_string(most + excess) + " rows",
                                           "max_tokens = " + std::to_string(most)};
  const auto refused = [&](const char* place, const std::function<void()>& calls) {
    expect_error(exchange.rank(), place, ErrorKind::invalid_argument, fragments, calls);
  };
  if (call == RefusedBy::dispatch) {
    refused("dispatch", [&] { exchange.dispatch(round.in, round.out); });
  } else {
    exchange.dispatch_async(round.in);
    if (call == RefusedBy::wait_for_counts)
      refused("wait_for_counts", [&] { exchange.wait_for_counts(); });
    else
      refused("dispatch_wait", [&] { exchange.dispatch_wait(round.out); });
  }
  round.check_untouched();
}

}  // namespace ferry::conformance
