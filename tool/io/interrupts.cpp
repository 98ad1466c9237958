#include "tool/io/interrupts.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "ferry/error.h"

namespace ferry::app {
namespace {

constexpr unsigned char kEndOfWatch = 0;

// A signal may come to any thread, such as one that a library started before main: so a handler, and no mask. All that
// a handler may do here is write to a pipe.
int write_end = -1;

void tell(unsigned char what) {
  while (write(write_end, &what, 1) == -1 && errno == EINTR) continue;
}
void handle(int signal) { tell(static_cast<unsigned char>(signal)); }

struct sigaction watch_signal(int signal) {
  struct sigaction before {};
  struct sigaction after {};
  after.sa_handler = handle;
  after.sa_flags = SA_RESTART;
  sigaction(signal, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(signal, &after, nullptr);
  return before;
}

}  // namespace

OnInterrupt::OnInterrupt(std::function<void()> say) : say_(std::move(say)) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(ErrorKind::system, "a pipe cannot be made, for Ctrl-C");
  came_ = ends[0];
  write_end = ends[1];
  watcher_ = std::thread([this] { watch(); });
  of_int_ = watch_signal(SIGINT);
  of_term_ = watch_signal(SIGTERM);
}

OnInterrupt::~OnInterrupt() {
  sigaction(SIGINT, &of_int_, nullptr);
  sigaction(SIGTERM, &of_term_, nullptr);
  tell(kEndOfWatch);
  watcher_.join();
  close(came_);
  close(write_end);
}

void OnInterrupt::watch() {
  unsigned char came = kEndOfWatch;
  while (read(came_, &came, 1) == -1 && errno == EINTR) continue;
  if (came == kEndOfWatch) return;
  say_();
  // Whoever started this process sees the signal, as without the watch.
  std::signal(came, SIG_DFL);
  std::raise(came);
}

}  // namespace ferry::app
