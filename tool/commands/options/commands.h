// The commands of `ferry`: what each is asked for, with its defaults, and the function that does it, which throws on
// failure. command_line.cpp gives each its options; `ferry bench` is in bench/bench_command.h.
//
// Exit codes: 0 when what was asked was done, 2 for bad use (ErrorKind::invalid_argument, which is also what the parser
// throws), 1 for every other failure.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tool/layer/inputs/layer_inputs.h"

namespace ferry::app {

// What was asked was carried out and came out wrong: a check or a conformance case failed. Exit code 1.
class CommandFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct DemoArguments {
  std::string backend = "auto";
  int ranks = 4;
  std::vector<std::string> formats = {"all"};
  std::uint64_t seed = 0;
  std::string text;  // a file; empty: the built-in chapter
  std::string svg = "ferry-demo.svg";
  bool no_svg = false;
  bool json = false;
};
void run_demo_command(const DemoArguments& asked);

struct LayerArguments {
  std::string backend = "auto";
  int ranks = 0;
  int nodes = 1;
  std::string format = "bf16";
  std::string combine, reduction;  // empty: not given
  int message_copies = 2;
  std::string rows = "by_expert";
  std::string results = "bf16";
  std::string experts_on = "cpu";
  bool encoded = false;
  float input_scale = 1.0f;
  LayerPaths paths;
  std::string output;
  std::string dump;
  int deadline_seconds = 300;
  bool check = false;
  bool json = false;
};
void run_layer_command(const LayerArguments& asked);

struct CodecArguments {
  std::string format;  // of decode, empty: the one that --dump names
  float input_scale = 1.0f;
  bool input_scale_is_given = false;  // else decode takes the one that --dump names, where --format is left out
  std::string in, out;                // of encode, of decode
  std::string payload, scales;
  std::string dump;  // of decode: a rank's folder of `layer --dump`, in place of payload and scales
  bool json = false;
};
void run_encode_command(const CodecArguments& asked);
void run_decode_command(const CodecArguments& asked);

struct VerifyArguments {
  std::string backend = "auto";
  std::string only;
  int nodes = 1;
  bool quick = false;
  bool list = false;
  bool quiet = false;
  bool json = false;
};
void run_verify_command(const VerifyArguments& asked);
std::vector<std::string> verify_case_names();

// What is not given has no value; the parser has refused what is out of range, and models and formats that are not
// there.
struct InfoArguments {
  std::string backend = "auto";
  std::string model;
  std::optional<int> ranks, experts, top_k, tokens, hidden;
  int alignment = 0;
  std::string format = "bf16";
  std::string results = "bf16";
  std::string combine, reduction;  // empty: not given
  int message_copies = 2;
  bool shared = false;
  bool tiled = false;
  bool lists_models = false;
  bool json = false;
};
void run_info_command(const InfoArguments& asked);

}  // namespace ferry::app
