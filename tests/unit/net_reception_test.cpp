// Who is heard when processes connect: ranks in a burst, among more strangers than are kept waiting.
#include "net/reception.h"

#include <gmock/gmock.h>

#include <set>

#include "ferry/error.h"
#include "support/open_files.h"

namespace ferry::net {
namespace {

constexpr std::chrono::milliseconds kLong{20'000};
constexpr int kStrangers = 200;

Descriptor connection_to(const Listener& listener) {
  std::string why;
  Descriptor made = connect_once({"127.0.0.1", listener.port}, Deadline(kLong), why);
  EXPECT_TRUE(made) << why;
  return made;
}

// All connect before the first is heard. The silent strangers come before the ranks or after them.
void hear_a_burst(bool strangers_first) {
  constexpr int kRanks = 71;
  const Deadline deadline(kLong);
  const Listener listener = listen_on({"127.0.0.1", 0});
  std::vector<Descriptor> connections;
  const auto connect_strangers = [&] {
    for (int i = 0; i < kStrangers; ++i) connections.push_back(connection_to(listener));
  };
  if (strangers_first) connect_strangers();
  for (int rank = 1; rank < kRanks; ++rank) {
    Hello hello;
    hello.rank = static_cast<std::int16_t>(rank);
    connections.push_back(connection_to(listener));
    ASSERT_TRUE(send_all(connections.back(), std::as_bytes(std::span(&hello, 1)), deadline));
  }
  if (!strangers_first) connect_strangers();

  const std::vector<Descriptor> met(kRanks);
  Reception reception(listener, met, deadline);
  std::set<int> heard;
  EXPECT_TRUE(reception.run([&](const Reception::Caller& caller) {
    heard.insert(caller.hello.rank);
    return heard.size() == kRanks - 1;
  }));
  EXPECT_EQ(heard.size(), std::size_t{kRanks - 1});
}

TEST(Reception, HearsABurstOfRanksBeforeStrangers) { hear_a_burst(false); }
TEST(Reception, HearsABurstOfRanksAfterStrangers) { hear_a_burst(true); }

TEST(Reception, SaysThatThisProcessCanOpenNoMoreFiles) {
  const Listener listener = listen_on({"127.0.0.1", 0});
  const Descriptor caller = connection_to(listener);
  const std::vector<Descriptor> met(2);
  const Deadline deadline(kLong);
  Reception reception(listener, met, deadline);
  // UBSan opens a pipe to check the type of the first Error that the library makes.
  EXPECT_THROW(listen_on({"127.0.0.1", listener.port}), Error) << "the port is taken";
  const test::NoMoreFiles no_more;
  try {
    reception.run([](const Reception::Caller&) { return false; });
    ADD_FAILURE() << "the connection was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::system);
    EXPECT_THAT(error.what(), testing::HasSubstr("ulimit -n"));
  }
}

}  // namespace
}  // namespace ferry::net
