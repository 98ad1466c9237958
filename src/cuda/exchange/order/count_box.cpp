#include "cuda/exchange/order/count_box.h"

#include "cuda/exchange/order/answer_waits.h"
#include "ferry/detail/base/wait.h"
#include "ferry/detail/cuda/state/cuda_check.h"

namespace ferry::cuda {
CountBox::CountBox(const Plan& plan)
    : memory_(std::make_shared<PinnedMemory>(sizeof(HostCounts) +
                                             static_cast<std::size_t>(host_count_words(plan)) * sizeof(std::uint32_t))),
      counts_(static_cast<HostCounts*>(memory_->data())),
      words_(reinterpret_cast<std::uint32_t*>(counts_ + 1)) {}

void CountBox::ask(CountParams& params) {
  params.to = counts_;
  params.to_words = words_;
  params.question = ++question_;
}

// Where the stream has ended without an answer, a kernel ahead of the question gave up, or the device failed.
bool CountBox::await(const Record& record, cudaStream_t stream) const {
  AnswerPacer pacer;
  cudaError_t status = cudaErrorNotReady;
  const auto has_ended = [&] {
    if (record.has_failed()) return true;
    status = cudaStreamQuery(stream);
    if (status != cudaErrorNotReady) return true;
    cudaGetLastError();  // CUDA keeps it, and the caller's next look at errors would find it
    return false;
  };
  const Waited waited = wait_at_least(counts_->answered, question_, has_ended, pacer);
  if (waited != Waited::arrived && status != cudaErrorNotReady) cuda_check(status, "cudaStreamQuery");
  return waited == Waited::arrived;
}

}  // namespace ferry::cuda
