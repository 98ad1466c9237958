#include "tool/ranks/byte_links.h"

#include <fmt/core.h>

#include <algorithm>

#include "net/missing.h"

namespace ferry::app {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;

}  // namespace

ByteLinks::ByteLinks(const net::Job& job, std::chrono::milliseconds deadline)
    : rank_(job.rank), mesh_(net::join(job, net::Deadline(deadline))) {}

void ByteLinks::fail(int peer, std::chrono::milliseconds deadline) {
  link(peer).reset();
  net::throw_missing(rank_, peer, rank_, 0,
                     fmt::format("rank {}: rank {} ended, or did not go on within {} ms, while bytes went between them",
                                 rank_, peer, deadline.count()));
}

void ByteLinks::send(std::span<const std::byte> data, int to, std::chrono::milliseconds deadline) {
  for (std::size_t at = 0; at < data.size(); at += kPiece) {
    const auto piece = data.subspan(at, std::min(kPiece, data.size() - at));
    if (!link(to) || !net::send_all(link(to), piece, net::Deadline(deadline))) fail(to, deadline);
  }
  std::byte taken{};
  if (!link(to) || !net::receive_all(link(to), std::span(&taken, 1), net::Deadline(deadline))) fail(to, deadline);
}

void ByteLinks::receive(std::span<std::byte> data, int from, std::chrono::milliseconds deadline) {
  for (std::size_t at = 0; at < data.size(); at += kPiece) {
    const auto piece = data.subspan(at, std::min(kPiece, data.size() - at));
    if (!link(from) || !net::receive_all(link(from), piece, net::Deadline(deadline))) fail(from, deadline);
  }
  const std::byte taken{1};
  if (!link(from) || !net::send_all(link(from), std::span(&taken, 1), net::Deadline(deadline))) fail(from, deadline);
}

}  // namespace ferry::app
