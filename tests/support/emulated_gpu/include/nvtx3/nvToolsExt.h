// NVTX as src/cuda/device/nvtx_range.h uses it: ranges of a thread of the host, which tests read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

inline constexpr std::uint16_t NVTX_VERSION = 3;
inline constexpr std::uint16_t NVTX_EVENT_ATTRIB_STRUCT_SIZE = 48;
enum nvtxMessageType_t { NVTX_MESSAGE_UNKNOWN, NVTX_MESSAGE_TYPE_ASCII };
enum nvtxPayloadType_t { NVTX_PAYLOAD_UNKNOWN, NVTX_PAYLOAD_TYPE_INT32 = 3 };

struct nvtxEventAttributes_t {
  std::uint16_t version;
  std::uint16_t size;
  std::int32_t payloadType;
  union {
    std::int32_t iValue;
  } payload;
  std::int32_t messageType;
  union {
    const char* ascii;
  } message;
};

namespace ferry::emulated {

struct HostRange {
  std::string name;
  int payload;
  int depth;  // how many ranges it is in
};
inline thread_local std::vector<HostRange> host_ranges;  // as they began
inline thread_local int open_host_ranges = 0;

}  // namespace ferry::emulated

inline int nvtxRangePushEx(const nvtxEventAttributes_t* range) {
  const bool known = range->version == NVTX_VERSION && range->size == NVTX_EVENT_ATTRIB_STRUCT_SIZE &&
                     range->messageType == NVTX_MESSAGE_TYPE_ASCII && range->payloadType == NVTX_PAYLOAD_TYPE_INT32;
  ferry::emulated::host_ranges.push_back(
      {known ? range->message.ascii : "not understood", range->payload.iValue, ferry::emulated::open_host_ranges});
  return ferry::emulated::open_host_ranges++;
}
inline int nvtxRangePop() { return --ferry::emulated::open_host_ranges; }
