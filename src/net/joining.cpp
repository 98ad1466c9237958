#include "net/joining.h"

#include <fmt/core.h>
#include <cstring>
#include <utility>

#include "net/reception.h"
#include "net/socket/missing.h"

namespace ferry::net {
namespace {

constexpr int kMostMsToConnect = 2000;  // where there are other addresses to try

enum class Verdict : std::uint32_t { welcome, other_version, other_size, rank_taken, other_job, missing };

// Rank 0's first answer. `value` says what it has: its version, its size, or the rank that did not come.
struct Answer {
  std::uint64_t magic = kJoinMagic;
  Verdict verdict = Verdict::welcome;
  std::int32_t value = 0;
  std::uint64_t token = 0;
};

// Where a rank can be reached, as rank 0 sees it.
struct Contact {
  char host[56] = {};
  std::uint32_t port = 0;
  std::uint32_t unused = 0;
};

template <class T>
bool send_one(const Descriptor& socket, const T& value, const Deadline& deadline) {
  return send_all(socket, std::as_bytes(std::span(&value, 1)), deadline);
}
template <class T>
bool receive_one(const Descriptor& socket, T& value, const Deadline& deadline) {
  return receive_all(socket, std::as_writable_bytes(std::span(&value, 1)), deadline);
}

Hello hello_of(const Job& job, std::uint16_t port, std::uint64_t token, const Deadline& deadline) {
  Hello hello;
  hello.milliseconds_left = static_cast<std::uint32_t>(deadline.milliseconds_left());
  hello.rank = static_cast<std::int16_t>(job.rank);
  hello.size = static_cast<std::int16_t>(job.size);
  hello.port = port;
  hello.token = token;
  std::strncpy(hello.name, job.name.c_str(), kNameBytes - 1);
  return hello;
}

std::string text_of(const char (&name)[kNameBytes]) { return {name, strnlen(name, kNameBytes)}; }

[[noreturn]] void throw_stopped(const Job& job) {
  throw Error(ErrorKind::aborted,
              fmt::format("rank {}: the call that makes the world was stopped (ProcessPlace::stop)", job.rank));
}

[[noreturn]] void throw_ended(int rank, int ended) {
  throw_missing(rank, ended, rank, 0, fmt::format("rank {}: rank {} ended while the ranks were met", rank, ended),
                Absence::ended);
}

// ---- rank 0

// What rank 0 answers to a Hello, and why.
Answer judge(const Job& job, const Hello& hello, const Mesh& mesh, std::string& refused) {
  Answer answer;
  if (hello.version != kJoinVersion) {
    answer.verdict = Verdict::other_version;
    answer.value = static_cast<std::int32_t>(kJoinVersion);
    refused = fmt::format("a process speaks version {} of the bootstrap, this one {}", hello.version, kJoinVersion);
  } else if (text_of(hello.name) != job.name) {
    answer.verdict = Verdict::other_job;
    refused = fmt::format("a process of the job \"{}\" came, this one is of \"{}\"", text_of(hello.name), job.name);
  } else if (hello.size != job.size || hello.rank < 1 || hello.rank >= job.size) {
    answer.verdict = Verdict::other_size;
    answer.value = job.size;
    refused = fmt::format("a process says that it is rank {} of {}, this one is rank 0 of {}", hello.rank, hello.size,
                          job.size);
  } else if (mesh.peers[static_cast<std::size_t>(hello.rank)]) {
    answer.verdict = Verdict::rank_taken;
    answer.value = hello.rank;
    refused = fmt::format("a second process says that it is rank {}", hello.rank);
  }
  return answer;
}

// Of the ranks that did not come, those that are not named.
std::string nor_others(int count) {
  return count == 0 ? "" : fmt::format(", nor {} other{}", count, count == 1 ? "" : "s");
}

// The deadline at which rank 0 gives up: the first of all ranks that came, its own included. So a rank that came hears
// who is missing while it still waits for that.
struct FirstDeadline {
  Deadline until;
  int rank = 0;

  void take(const Hello& hello) {
    const Deadline theirs = until.in(std::chrono::milliseconds(hello.milliseconds_left));
    if (theirs.milliseconds_left() >= until.milliseconds_left()) return;
    until = theirs;
    rank = hello.rank;
  }
  std::string text() const {
    if (rank == 0) return fmt::format("within {} ms", until.given().count());
    return fmt::format("before the deadline of rank {}, {} ms after that rank came", rank, until.given().count());
  }
};

[[noreturn]] void throw_not_come(const Job& job, int missing, int others, const FirstDeadline& first,
                                 const std::string& refused) {
  throw_missing(job.rank, missing, job.rank, 0,
                fmt::format("rank 0: rank {} did not come to {} {}{}. Start it with the same "
                            "address and {} ranks{}{}",
                            missing, to_string(job.address), first.text(), nor_others(others), job.size,
                            refused.empty() ? "" : ". Refused: ", refused));
}

Mesh receive_all_ranks(const Job& job, const Deadline& deadline) {
  const auto listener = job.listener != nullptr ? job.listener : std::make_shared<Listener>(listen_on(job.address));
  Mesh mesh;
  mesh.peers.resize(static_cast<std::size_t>(job.size));
  mesh.token = random_number();
  std::vector<Contact> contacts(mesh.peers.size());
  int come = 1;
  std::string refused;
  FirstDeadline first{deadline};
  Reception reception(*listener, mesh.peers, first.until);
  const bool all = job.size == 1 || reception.run([&](Reception::Caller caller) {
    const Answer answer = judge(job, caller.hello, mesh, refused);
    if (answer.verdict != Verdict::welcome) {
      send_one(caller.socket, answer, deadline);
      return false;
    }
    Contact& contact = contacts[static_cast<std::size_t>(caller.hello.rank)];
    std::strncpy(contact.host, peer_host(caller.socket).c_str(), sizeof contact.host - 1);
    contact.port = caller.hello.port;
    mesh.peers[static_cast<std::size_t>(caller.hello.rank)] = std::move(caller.socket);
    first.take(caller.hello);
    return ++come == job.size;
  });
  if (deadline.is_stopped()) throw_stopped(job);
  Answer answer;
  answer.token = mesh.token;
  for (int rank = job.size - 1; !all && rank > 0; --rank)
    if (!mesh.peers[static_cast<std::size_t>(rank)]) answer = {kJoinMagic, Verdict::missing, rank, 0};
  if (reception.ended() >= 0) answer = {kJoinMagic, Verdict::missing, reception.ended(), 0};
  const Deadline goodbye(std::chrono::milliseconds(1000));
  for (const Descriptor& peer : mesh.peers) {
    if (!peer) continue;
    send_one(peer, answer, goodbye);
    if (answer.verdict == Verdict::welcome) send_all(peer, std::as_bytes(std::span(contacts)), deadline);
  }
  if (reception.ended() >= 0) throw_ended(job.rank, reception.ended());
  if (!all) throw_not_come(job, answer.value, job.size - come - 1, first, refused);
  return mesh;
}

// ---- other ranks

[[noreturn]] void throw_refused(const Job& job, const Answer& answer) {
  const std::string at = to_string(job.address);
  switch (answer.verdict) {
    case Verdict::missing:
      throw_missing(job.rank, answer.value, 0, 0,
                    fmt::format("rank {}: rank {} did not come to {}, as rank 0 reports. Check that it was started",
                                job.rank, answer.value, at));
    case Verdict::other_size:
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("rank {}: this process was given {} ranks; rank 0 at {} was given {}. Start all with the "
                              "same number",
                              job.rank, job.size, at, answer.value));
    case Verdict::rank_taken:
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("rank {}: another process with this rank has come to {} already. Give each process a "
                              "rank of its own, 0 to {}",
                              job.rank, at, job.size - 1));
    default:
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("rank {}: the process at {} has another version of the bootstrap ({}; this one {}). Build "
                      "all from one version",
                      job.rank, at, answer.value, kJoinVersion));
  }
}

// Rank 0 says at the first deadline of those that came who is missing. Ranks with the same deadline wait for that a
// moment longer.
bool receive_answer(const Descriptor& rank_0, Answer& answer, const Deadline& deadline) {
  constexpr std::chrono::milliseconds kMoment{1000};
  return receive_one(rank_0, answer, deadline.in(std::chrono::milliseconds(deadline.milliseconds_left()) + kMoment));
}

// The connection to rank 0, after its answer. Tries again while nobody listens, or while another job does.
Descriptor greet(const Job& job, std::uint16_t port, const Deadline& deadline, Answer& answer) {
  std::string why = "no answer";
  for (std::size_t tries = 0; !deadline.has_passed(); ++tries) {
    const std::size_t which = tries % (job.other_addresses.size() + 1);
    const Deadline turn = deadline.in(std::chrono::milliseconds(  // one of several addresses may lead nowhere
        job.other_addresses.empty() ? deadline.milliseconds_left() : deadline.milliseconds_left(kMostMsToConnect)));
    Descriptor socket = connect_once(which == 0 ? job.address : job.other_addresses[which - 1], turn, why);
    if (socket && send_one(socket, hello_of(job, port, 0, deadline), deadline) &&
        receive_answer(socket, answer, deadline) && answer.magic == kJoinMagic) {
      if (answer.verdict == Verdict::welcome) return socket;
      if (answer.verdict != Verdict::other_job) throw_refused(job, answer);
      why = "another job listens there";
    } else if (socket) {
      why = "what listens there does not answer as Ferry does";
    }
    pause(std::chrono::milliseconds(deadline.milliseconds_left(20)));
  }
  if (deadline.is_stopped()) throw_stopped(job);
  throw_missing(
      job.rank, 0, job.rank, 0,
      fmt::format("rank {}: rank 0 was not met at {} within {} ms ({}). Check the address, and that rank 0 was "
                  "started",
                  job.rank, to_string(job.address), deadline.given().count(), why));
}

// Rank 0 sees ranks of its own host under loopback names, which mean another host elsewhere.
HostPort reach(const Contact& contact, const Descriptor& rank_0) {
  const std::string host(contact.host, strnlen(contact.host, sizeof contact.host));
  return {is_loopback(host) ? peer_host(rank_0) : host, static_cast<std::uint16_t>(contact.port)};
}

// The error of a rank that another one does not reach. The others hear of it (Bootstrap::fail_joining).
std::exception_ptr not_met(const Job& job, int missing, const std::string& what) {
  try {
    throw_missing(job.rank, missing, job.rank, 0, what);
  } catch (...) {
    return std::current_exception();
  }
}

Mesh meet_all_ranks(const Job& job, const Deadline& deadline) {
  // Where several addresses lead to rank 0, this rank may be reached by any interface, too.
  const Listener listener = listen_on({job.other_addresses.empty() ? job.address.host : "", 0});
  Mesh mesh;
  mesh.peers.resize(static_cast<std::size_t>(job.size));
  Answer answer;
  std::vector<Contact> contacts(mesh.peers.size());
  Descriptor rank_0 = greet(job, listener.port, deadline, answer);
  mesh.token = answer.token;
  if (!receive_all(rank_0, std::as_writable_bytes(std::span(contacts)), deadline)) {
    if (deadline.is_stopped()) throw_stopped(job);
    throw_ended(job.rank, 0);
  }
  mesh.peers[0] = std::move(rank_0);
  for (int rank = 1; rank < job.rank; ++rank) {
    std::string why;
    const HostPort there = reach(contacts[static_cast<std::size_t>(rank)], mesh.peers[0]);
    Descriptor socket = connect_once(there, deadline, why);
    if (!socket || !send_one(socket, hello_of(job, 0, mesh.token, deadline), deadline)) {
      mesh.missing = rank;
      mesh.error = not_met(job, rank,
                           fmt::format("rank {}: rank {} cannot be reached at {} ({}). Every process must reach every "
                                       "other",
                                       job.rank, rank, to_string(there), why));
      return mesh;
    }
    mesh.peers[static_cast<std::size_t>(rank)] = std::move(socket);
  }
  int missing = job.size - 1 - job.rank;
  Reception reception(listener, mesh.peers, deadline);
  const bool all = missing == 0 || reception.run([&](Reception::Caller caller) {
    const int rank = caller.hello.rank;
    if (caller.hello.token != mesh.token || rank <= job.rank || rank >= job.size) return false;
    Descriptor& place = mesh.peers[static_cast<std::size_t>(rank)];
    if (place) return false;
    place = std::move(caller.socket);
    return --missing == 0;
  });
  if (all) return mesh;
  mesh.missing = reception.ended();
  if (mesh.missing >= 0) return mesh;
  mesh.missing = job.rank + 1;
  while (mesh.peers[static_cast<std::size_t>(mesh.missing)]) ++mesh.missing;
  mesh.error = not_met(
      job, mesh.missing,
      fmt::format("rank {}: rank {} did not connect within {} ms", job.rank, mesh.missing, deadline.given().count()));
  return mesh;
}

}  // namespace

Mesh join(const Job& job, const Deadline& deadline) {
  if (job.name.size() >= kNameBytes)
    throw Error(ErrorKind::invalid_argument, fmt::format("rank {}: the job's name has {} characters; the limit is {}",
                                                         job.rank, job.name.size(), kNameBytes - 1));
  Mesh mesh = job.rank == 0 ? receive_all_ranks(job, deadline) : meet_all_ranks(job, deadline);
  if (mesh.missing >= 0 && deadline.is_stopped()) throw_stopped(job);  // it is this rank that others miss
  return mesh;
}

}  // namespace ferry::net
