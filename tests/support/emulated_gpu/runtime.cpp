// The runtime of emulated GPUs: memory is the host's, streams and kernels are the machine's.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/emulated_gpu/gpus.h"
#include "support/emulated_gpu/graphs.h"
#include "support/emulated_gpu/memory.h"

namespace ferry::emulated {
namespace {

constexpr std::size_t kAlignment = 256;       // of cudaMalloc
constexpr std::size_t kMostPitch = 4 * 1024;  // of copies of rows; on GPUs 2^31 - 1: less, so that tests meet it
constexpr int kGarbage = 0xcd;

struct Allocation {
  std::size_t bytes;
  int device;  // -1: pinned host memory
};

struct State {
  std::mutex guard;
  Gpus gpus;
  std::map<const std::byte*, Allocation> memory;
  std::multimap<std::size_t, std::byte*> given_back;  // pages, by their bytes
  std::map<const Stream*, std::shared_ptr<Stream>> streams;
  std::map<const Stream*, std::shared_ptr<Stream>> destroyed;  // no other one gets its place
  std::map<const void*, int> shared_limits;                    // of kernels
  std::set<std::pair<int, const void*>> loaded;                // kernels by device
  std::vector<std::shared_ptr<Stream>> default_streams;
};
State& state() {
  static State state;
  return state;
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local std::map<int, std::shared_ptr<Stream>> streams_of_thread;

cudaError_t say(cudaError_t status) {
  if (status != cudaSuccess) last_error = status;
  return status;
}
bool is_device(int device) { return device >= 0 && device < state().gpus.count; }

// Pages with a page before and one behind that nobody may touch: who does gets SIGSEGV. Memory ends where they end.
struct Pages {
  static constexpr std::size_t kPage = 4096;
  explicit Pages(std::size_t bytes) : of_memory(round_up(std::max<std::size_t>(bytes, 1), kAlignment)) {}
  std::size_t bytes() const { return round_up(of_memory, kPage) + 2 * kPage; }
  std::size_t offset() const { return bytes() - kPage - of_memory; }
  static std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }
  std::size_t of_memory;
};

// Null where the system has none. Pages that were given back come first.
std::byte* take_pages(const Pages& pages) {
  {
    const std::lock_guard lock(state().guard);
    if (const auto found = state().given_back.find(pages.bytes()); found != state().given_back.end())
      return state().given_back.extract(found).mapped();
  }
  void* const begin = mmap(nullptr, pages.bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return nullptr;
  std::byte* const first = static_cast<std::byte*>(begin) + Pages::kPage;
  if (mprotect(first, pages.bytes() - 2 * Pages::kPage, PROT_READ | PROT_WRITE) == 0)
    return static_cast<std::byte*>(begin);
  munmap(begin, pages.bytes());
  return nullptr;
}

cudaError_t allocate(void** memory, std::size_t bytes, int device) {
  const Pages pages(bytes);
  std::byte* const begin = take_pages(pages);
  if (begin == nullptr) return say(cudaErrorMemoryAllocation);
  *memory = begin + pages.offset();
  std::memset(*memory, kGarbage, bytes);
  const std::lock_guard lock(state().guard);
  state().memory[static_cast<const std::byte*>(*memory)] = {bytes, device};
  return cudaSuccess;
}
// cudaFree of a GPU waits for kernels, and this one does not. So the pages stay: a kernel may still write there.
cudaError_t release(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  const std::lock_guard lock(state().guard);
  const auto found = state().memory.find(static_cast<const std::byte*>(memory));
  if (found == state().memory.end()) return say(cudaErrorInvalidValue);
  const Pages pages(found->second.bytes);
  state().memory.erase(found);
  std::byte* const begin = static_cast<std::byte*>(memory) - pages.offset();
  madvise(begin, pages.bytes(), MADV_DONTNEED);
  state().given_back.emplace(pages.bytes(), begin);
  return cudaSuccess;
}

// The default stream of a device is one for all threads.
Stream& stream_of(cudaStream_t stream) {
  if (stream != nullptr) return *stream;
  const std::lock_guard lock(state().guard);
  auto& streams = state().default_streams;
  const auto device = static_cast<std::size_t>(current_device);
  while (streams.size() <= device) streams.push_back(make_stream(static_cast<int>(streams.size())));
  return *streams[device];
}

bool is_loaded(int device, const void* kernel) {
  const std::lock_guard lock(state().guard);
  return state().loaded.contains({device, kernel});
}

cudaError_t enqueue_work(cudaStream_t stream, const std::function<void()>& work) {
  Stream& to = stream_of(stream);
  if (!add_to_capture(to, [work](Stream& launched) { enqueue(launched, work); })) enqueue(to, work);
  return failure().empty() ? cudaSuccess : say(cudaErrorLaunchFailure);
}

struct CopyCall {
  cudaMemcpyKind kind;
  cudaStream_t stream;
};
cudaError_t copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                      std::size_t height, const CopyCall& how) {
  if (width == 0 || height == 0) return cudaSuccess;
  auto* const target = static_cast<std::byte*>(to);
  const auto* const source = static_cast<const std::byte*>(from);
  const auto copy = [=](const std::byte* rows, std::size_t pitch) {
    for (std::size_t row = 0; row < height; ++row) std::memcpy(target + row * to_pitch, rows + row * pitch, width);
  };
  cudaPointerAttributes of_source{};
  cudaPointerGetAttributes(&of_source, from);
  const bool is_pageable = how.kind == cudaMemcpyDefault && of_source.type == cudaMemoryTypeUnregistered;
  if (how.kind != cudaMemcpyHostToDevice && !is_pageable)
    return enqueue_work(how.stream, [=] { copy(source, from_pitch); });
  std::vector<std::byte> taken(width * height);
  for (std::size_t row = 0; row < height; ++row)
    std::memcpy(taken.data() + row * width, source + row * from_pitch, width);
  return enqueue_work(how.stream, [=, taken = std::move(taken)] { copy(taken.data(), width); });
}

}  // namespace

void set_gpus(const Gpus& gpus) {
  const std::lock_guard lock(state().guard);
  state().gpus = gpus;
  state().loaded.clear();
}

void note_memory(const void* memory, std::size_t bytes, int device) {
  const std::lock_guard lock(state().guard);
  state().memory[static_cast<const std::byte*>(memory)] = {bytes, device};
}
void forget_memory(const void* memory) {
  const std::lock_guard lock(state().guard);
  state().memory.erase(static_cast<const std::byte*>(memory));
}

bool was_destroyed(const Stream* stream) {
  const std::lock_guard lock(state().guard);
  return state().destroyed.contains(stream);
}

}  // namespace ferry::emulated

using namespace ferry::emulated;

const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "cudaErrorInvalidValue";
  }
}
const char* cudaGetErrorString(cudaError_t status) {
  thread_local std::string text;
  text = status == cudaErrorLaunchFailure ? failure() : "an emulated GPU refused the call";
  return text.c_str();
}
cudaError_t cudaGetLastError() {
  const cudaError_t status = last_error;
  last_error = cudaSuccess;
  return status;
}

// ---- devices
cudaError_t cudaGetDeviceCount(int* count) {
  *count = state().gpus.count;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return say(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!is_device(device)) return say(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = state().gpus.multiprocessors;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(state().gpus.shared_bytes);
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
  }
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!is_device(device)) return say(cudaErrorInvalidDevice);
  *properties = {};
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  std::snprintf(text, static_cast<std::size_t>(bytes), "emulated:%d", device);
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = is_device(device) && is_device(peer) ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() {
  if (spoil_captures(current_device)) return say(cudaErrorStreamCaptureUnsupported);
  return synchronize_device(current_device) ? cudaSuccess : say(cudaErrorLaunchFailure);
}

// ---- memory
cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* total) {
  *left = *total = std::size_t{1} << 40;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) { return allocate(memory, bytes, current_device); }
cudaError_t cudaFree(void* memory) {
  if (spoil_own_captures()) return say(cudaErrorStreamCaptureUnsupported);
  synchronize_device(current_device);  // as CUDA does
  return release(memory);
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) { return allocate(memory, bytes, -1); }
cudaError_t cudaFreeHost(void* memory) {
  return spoil_own_captures() ? say(cudaErrorStreamCaptureUnsupported) : release(memory);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  *attributes = {cudaMemoryTypeUnregistered, -1};
  const auto* at = static_cast<const std::byte*>(pointer);
  const std::lock_guard lock(state().guard);
  auto next = state().memory.upper_bound(at);
  if (next == state().memory.begin()) return cudaSuccess;
  --next;
  if (at >= next->first + next->second.bytes) return cudaSuccess;
  *attributes = {next->second.device < 0 ? cudaMemoryTypeHost : cudaMemoryTypeDevice, next->second.device};
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return enqueue_work(stream, [=] { std::memset(to, value, bytes); });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t status = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return status != cudaSuccess ? status : cudaStreamSynchronize(nullptr);
}
// A copy from the host takes the bytes at once, as CUDA does for memory that is not pinned.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return copy_rows(to, bytes, from, bytes, bytes, 1, {kind, stream});
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  const std::size_t pitch = std::max(to_pitch, from_pitch);
  if (pitch > kMostPitch || width > std::min(to_pitch, from_pitch)) return cudaErrorInvalidValue;
  return copy_rows(to, to_pitch, from, from_pitch, width, height, {kind, stream});
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  *pool = new int(properties->location.id);
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete pool;
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** memory, std::size_t bytes, cudaMemPool_t pool, cudaStream_t) {
  return allocate(memory, bytes, *pool);
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  synchronize(stream_of(stream));
  return release(memory);
}

// ---- streams

cudaStream_t emulated_stream_of_thread() {
  std::shared_ptr<Stream>& stream = streams_of_thread[current_device];
  if (stream == nullptr) stream = make_stream(current_device);
  return stream.get();
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  auto made = make_stream(current_device);
  *stream = made.get();
  const std::lock_guard lock(state().guard);
  state().streams[made.get()] = std::move(made);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  synchronize(*stream);
  const std::lock_guard lock(state().guard);
  return say(state().destroyed.insert(state().streams.extract(stream)).inserted ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return synchronize(stream_of(stream)) ? cudaSuccess : say(cudaErrorLaunchFailure);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (!failure().empty()) return say(cudaErrorLaunchFailure);
  return is_idle(stream_of(stream)) ? cudaSuccess : say(cudaErrorNotReady);
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  *device = device_of(stream_of(stream));
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new int(0);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t stream) {
  if (stream == cudaStreamLegacy && is_anything_captured()) return say(cudaErrorStreamCaptureImplicit);
  return say(was_destroyed(stream) ? cudaErrorInvalidResourceHandle : cudaSuccess);
}
// Events order nothing here, so an exchange whose calls change streams gets an error.
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t) { return cudaErrorInvalidResourceHandle; }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

// ---- kernels

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  const std::lock_guard lock(state().guard);
  const auto found = state().shared_limits.find(kernel);
  *attributes = {0, found == state().shared_limits.end() ? 48 * 1024 : found->second};
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  const std::lock_guard lock(state().guard);
  if (static_cast<std::size_t>(value) > state().gpus.shared_bytes) return say(cudaErrorInvalidValue);
  state().shared_limits[kernel] = value;
  return cudaSuccess;
}
void emulated_load(const void* kernel) {
  const std::lock_guard lock(state().guard);
  state().loaded.emplace(current_device, kernel);
}
cudaError_t emulated_launch(const cudaLaunchConfig_t& config, const void* kernel, const char* name,
                            std::function<void()> body) {
  if (!failure().empty()) return say(cudaErrorLaunchFailure);
  Grid grid;
  grid.blocks = config.gridDim;
  grid.block_size = config.blockDim;
  grid.shared_bytes = config.dynamicSmemBytes;
  grid.name = name;
  grid.body = is_loaded(device_of(stream_of(config.stream)), kernel) ? std::move(body) : [name] {
    // CUDA would load it here, and wait for all kernels that run.
    throw std::runtime_error(std::string("a kernel was launched that had not been loaded on its device: ") + name);
  };
  for (unsigned i = 0; i < config.numAttrs; ++i)
    if (config.attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
      grid.overlaps = config.attrs[i].val.programmaticStreamSerializationAllowed != 0;
  Stream& to = stream_of(config.stream);
  if (!add_to_capture(to, [grid](Stream& launched) { enqueue(launched, grid); })) enqueue(to, std::move(grid));
  return cudaSuccess;
}
