#include "shmem/process/shmem_lost_peer.h"

#include <dlfcn.h>
#include <sys/uio.h>

#include <cstddef>

#include "ferry/detail/base/order.h"

namespace {

ferry::DeviceWord<int> hiding;

// UCX's ucs_status_t, an enum of one byte.
using Status = signed char;
constexpr Status kDone = 0;
constexpr Status kNoProgress = -10;  // UCX tries again later

// The function of UCX that the one of this program replaces. UCX is loaded outside of the program's symbol scope.
template <class Function>
Function* in_ucx(const char* name) {
  void* library = dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

bool is_lost(Status status) { return status < kDone && status != kNoProgress && ferry::load_acquire(hiding) != 0; }

using Send = Status(int socket, const void* data, std::size_t* length);
using SendPieces = Status(int socket, iovec* pieces, std::size_t count, std::size_t* length);
using Receive = Status(int socket, void* data, std::size_t* length);

}  // namespace

// UCX must find these three: only they leave the library (visibility is hidden by default).
#pragma GCC visibility push(default)

// `length` is in: the bytes to send, out: the bytes that were sent.
extern "C" Status ucs_socket_send_nb(int socket, const void* data, std::size_t* length) {
  static Send* const send = in_ucx<Send>("ucs_socket_send_nb");
  const std::size_t wanted = *length;
  const Status status = send(socket, data, length);
  if (!is_lost(status)) return status;
  *length = wanted;
  return kDone;
}

extern "C" Status ucs_socket_sendv_nb(int socket, iovec* pieces, std::size_t count, std::size_t* length) {
  static SendPieces* const send = in_ucx<SendPieces>("ucs_socket_sendv_nb");
  const Status status = send(socket, pieces, count, length);
  if (!is_lost(status)) return status;
  *length = 0;
  for (std::size_t i = 0; i < count; ++i) *length += pieces[i].iov_len;
  return kDone;
}

extern "C" Status ucs_socket_recv_nb(int socket, void* data, std::size_t* length) {
  static Receive* const receive = in_ucx<Receive>("ucs_socket_recv_nb");
  const Status status = receive(socket, data, length);
  if (!is_lost(status)) return status;
  *length = 0;
  return kNoProgress;
}

#pragma GCC visibility pop

namespace ferry::cpu::shmem {

void hide_lost_peers(bool hide) { store_release(hiding, hide ? 1 : 0); }

}  // namespace ferry::cpu::shmem
