// A file is read whole, up to a limit, since its words are counted.
#include "tool/demo/model/demo_words.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "ferry/error.h"
#include "tool/demo/model/demo_model.h"

namespace ferry::app {
namespace {

constexpr std::size_t kMostMegabytes = 64;

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

std::string read_text(const std::string& path) {
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorKind::io, fmt::format("--text {}: {}", path, why));
  };
  const auto fail_to_read = [&] { fail(fmt::format("cannot be read: {}", std::strerror(errno))); };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (!file) fail_to_read();
  std::string text;
  char piece[1 << 16];
  for (std::size_t bytes = sizeof piece; bytes == sizeof piece;) {
    bytes = std::fread(piece, 1, sizeof piece, file.get());
    text.append(piece, bytes);
    if (text.size() > kMostMegabytes << 20)
      fail(fmt::format("it is larger than {} MiB; give a part of it, such as `head -c 1000000`", kMostMegabytes));
  }
  if (std::ferror(file.get()) != 0) fail_to_read();
  if (const std::size_t zero = text.find('\0'); zero != std::string::npos)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--text {}: byte {} is 0, so it is no plain text; give a text file", path, zero));
  const std::size_t words = split_words(text).size();
  if (words < kFewestWords)
    throw Error(ErrorKind::invalid_argument, fmt::format("--text {}: it has {} word{}, must have {} at least", path,
                                                         words, words == 1 ? "" : "s", kFewestWords));
  return text;
}

DemoWords::DemoWords(const std::string& text) : words(split_words(text)), in_text(words.size()) {
  if (words.size() > kMostWords) words.resize(kMostWords);
}

}  // namespace ferry::app
