// NvtxRange: names what the host does in NVIDIA's profilers (Nsight Systems), with the rank as its payload. Without a
// profiler it is a look at a pointer.
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace ferry::cuda {

class NvtxRange {
 public:
  NvtxRange(const char* name, int rank) {
    nvtxEventAttributes_t range{};
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = name;
    range.payloadType = NVTX_PAYLOAD_TYPE_INT32;
    range.payload.iValue = rank;
    nvtxRangePushEx(&range);
  }
  ~NvtxRange() { nvtxRangePop(); }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace ferry::cuda

#else

namespace ferry::cuda {

// Without the headers of NVTX.
struct NvtxRange {
  NvtxRange(const char*, int) {}
};

}  // namespace ferry::cuda

#endif
