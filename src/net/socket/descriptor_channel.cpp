#include "net/socket/descriptor_channel.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/deadline.h"
#include "net/socket/missing.h"

namespace ferry::net {
namespace {

// A name in the abstract namespace has no file and goes with its socket.
sockaddr_un name_of(std::uint64_t token, int rank, socklen_t& length) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = fmt::format("ferry-{:016x}-{}", token, rank);
  std::copy(text.begin(), text.end(), name.sun_path + 1);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

constexpr int kLookEvery = 50;  // ms
constexpr int kTryEvery = 1;    // ms, while another rank's queue is full
constexpr int kForever = 1 << 30;

// Room for the one descriptor of a message.
union Ancillary {
  char bytes[CMSG_SPACE(sizeof(int))];
  cmsghdr aligned;
};

// The descriptor of a message; empty where it has none, or several. Those of a stranger are closed here, too.
Descriptor descriptor_of(msghdr& message) {
  std::vector<Descriptor> all;
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr; control = CMSG_NXTHDR(&message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= control->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, reinterpret_cast<const char*>(control) + at, sizeof fd);
      all.emplace_back(fd);
    }
  }
  return all.size() == 1 ? std::move(all[0]) : Descriptor();
}

[[noreturn]] void throw_cannot_send(int rank, int peer, int error) {
  throw Error(ErrorKind::system, fmt::format("rank {}: cannot hand memory to rank {}: {}. The processes of one host "
                                             "must share a network namespace",
                                             rank, peer, std::strerror(error)));
}

[[noreturn]] void throw_not_taken(int rank, int peer, std::uint64_t call, std::chrono::milliseconds deadline) {
  throw_missing(rank, peer, rank, call,
                fmt::format("rank {}: rank {} did not take this rank's memory within {} ms. Check that it is alive, or "
                            "give a mask that names it",
                            rank, peer, deadline.count()));
}

}  // namespace

struct DescriptorChannel::Note {
  std::uint64_t token;
  std::uint64_t call;
  std::int32_t rank;
  std::int32_t unused;
};

DescriptorChannel::DescriptorChannel(int rank, int size, std::uint64_t token)
    : rank_(rank), size_(size), token_(token), socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  socklen_t length = 0;
  const sockaddr_un name = name_of(token, rank, length);
  if (!socket_ || bind(socket_.get(), reinterpret_cast<const sockaddr*>(&name), length) != 0)
    throw Error(ErrorKind::system, fmt::format("rank {}: no Unix socket to hand memory to the other processes: {}",
                                               rank, std::strerror(errno)));
}

// 0, or the error for which it may be sent later: the queue of the other end is full, or the system's.
int DescriptorChannel::try_send(int peer, const Descriptor& descriptor, const Note& note) const {
  socklen_t length = 0;
  sockaddr_un name = name_of(token_, peer, length);
  Note copy = note;
  iovec body{&copy, sizeof copy};
  Ancillary room{};
  msghdr message{};
  message.msg_name = &name;
  message.msg_namelen = length;
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = room.bytes;
  message.msg_controllen = sizeof room.bytes;
  cmsghdr* control = CMSG_FIRSTHDR(&message);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = descriptor.get();
  std::memcpy(CMSG_DATA(control), &fd, sizeof fd);
  int error = 0;
  do {
    error = sendmsg(socket_.get(), &message, MSG_NOSIGNAL) < 0 ? errno : 0;
  } while (error == EINTR);
  if (error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ETOOMANYREFS) return error;
  if (error == 0 || error == ECONNREFUSED) return 0;  // its process has ended; the next set-up call says so
  throw_cannot_send(rank_, peer, error);
}

bool DescriptorChannel::receive_one(std::uint64_t call, std::vector<Descriptor>& descriptors) {
  Note note{};
  iovec body{&note, sizeof note};
  Ancillary room{};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = room.bytes;
  message.msg_controllen = sizeof room.bytes;
  const ssize_t got = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return false;
  Descriptor descriptor = descriptor_of(message);
  const bool ours = got == sizeof note && note.token == token_ && note.rank >= 0 && note.rank < size_;
  if (!ours || note.call < call) return true;  // from outside of the job, or of a call that has failed: closed again
  if (!descriptor && (message.msg_flags & MSG_CTRUNC) != 0)
    throw Error(ErrorKind::system,
                fmt::format("rank {}: this process cannot open the memory of rank {}: it has as many "
                            "open files as it may. Raise the limit of open files (ulimit -n)",
                            rank_, note.rank));
  if (!descriptor) return true;
  if (note.call == call)
    descriptors[static_cast<std::size_t>(note.rank)] = std::move(descriptor);
  else
    ahead_.push_back({note.call, note.rank, std::move(descriptor)});
  return true;
}

std::vector<Descriptor> DescriptorChannel::all_to_all(const Descriptor& mine, std::uint64_t call, const RankMask& mask,
                                                      std::chrono::milliseconds deadline,
                                                      const std::function<void(int)>& look) {
  const Deadline until(std::min(deadline, kMaxDeadline));
  std::vector<Descriptor> descriptors(static_cast<std::size_t>(size_));
  for (Ahead& ahead : ahead_)
    if (ahead.call == call) descriptors[static_cast<std::size_t>(ahead.rank)] = std::move(ahead.descriptor);
  std::erase_if(ahead_, [call](const Ahead& ahead) { return ahead.call <= call; });
  const Note note{token_, call, rank_, 0};
  for (int step = 1; step < size_; ++step) {
    const int peer = (rank_ + step) % size_;
    if (is_masked(mask, peer)) continue;
    while (const int error = try_send(peer, mine, note)) {
      if (receive_one(call, descriptors)) continue;  // that rank may wait for room in this one's queue
      if (until.has_passed() && error != EAGAIN && error != EWOULDBLOCK) throw_cannot_send(rank_, peer, error);
      if (until.has_passed()) throw_not_taken(rank_, peer, call, deadline);
      if (look) look(peer);
      pause(std::chrono::milliseconds(kTryEvery));
    }
    while (receive_one(call, descriptors)) continue;  // so that no rank's queue stays full
  }
  for (int peer = 0; peer < size_; ++peer) {
    while (peer != rank_ && !is_masked(mask, peer) && !descriptors[static_cast<std::size_t>(peer)]) {
      if (receive_one(call, descriptors)) continue;
      if (until.has_passed())
        throw_missing(rank_, peer, rank_, call,
                      fmt::format("rank {}: rank {} did not hand over its memory within {} ms. Check that it is alive "
                                  "and shares this process's network namespace, or give a mask that names it",
                                  rank_, peer, deadline.count()));
      if (look) look(peer);
      pollfd watched{socket_.get(), POLLIN, 0};
      poll(&watched, 1, until.milliseconds_left(look ? kLookEvery : kForever));
    }
  }
  return descriptors;
}

}  // namespace ferry::net
