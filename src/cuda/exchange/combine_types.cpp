// CudaSteps: combines whose rows, bias or sums are f16 have kernels of their own.
#include "cuda/device/refuse.h"
#include "cuda/exchange/cuda_steps.h"

namespace ferry::cuda {

bool CudaSteps::has_f16(const CombineArgs& in, const CombineOut* out) {
  const bool has_bias = out != nullptr && in.num_bias != 0 && in.bias[0].dtype == DType::f16;
  return in.dtype == DType::f16 || has_bias || (out != nullptr && out->dtype == DType::f16);
}

void CudaSteps::require_f16(bool wanted, const char* name) const {
  if (!wanted || now().kernels.half != nullptr) return;
  refuse(ErrorKind::unsupported, rank_,
         "{} is f16; the kernels of this exchange, which a program compiled, know bf16 and f32 in combine. Give one of "
         "these, or use kernels without hooks and with results in a format of the library",
         name);
}

void CudaSteps::check_types_in(const CombineArgs& args) const {
  require_f16(args.dtype == DType::f16, "rows");
  require_f16(args.num_bias != 0 && args.bias[0].dtype == DType::f16, "bias");
}

void CudaSteps::check_sums(const CheckContext&, const Ticket& ticket, const CombineOutput& out,
                           const CombineOut& sums) {
  checks_.check_sums(out, sums, ticket.num_tokens);
  check_types_out(sums);
}

}  // namespace ferry::cuda
