// The options of every command. No other file sees the parser, which takes long to compile.
#include "tool/commands/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "ferry/ferry.h"
#include "tool/commands/bench_command.h"
#include "tool/commands/commands.h"
#include "tool/commands/models.h"
#include "tool/ranks/ranks.h"

namespace ferry::app {
namespace {

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const AnyFormat& format : all_formats()) names.push_back(format.name());
  return names;
}

// ---- options that several commands share

constexpr const char* kRanksAre =
    "What the ranks are: auto takes GPUs where there are enough, else the processes of a launcher over OpenSHMEM, else "
    "threads";

void add_backend_option(CLI::App& command, std::string& backend, const char* help = kRanksAre) {
  std::vector<std::string> names = {"auto"};
  for (const Backend& known : backends()) names.emplace_back(known.name);
  command.add_option("--backend", backend, help)->check(CLI::IsMember(names))->capture_default_str();
}

void add_share_gpus_flag(CLI::App& command) {
  command.add_flag_callback("--share-gpus", share_gpus,
                            "Several ranks may have the same GPU: to try more ranks than there are GPUs");
}

void add_json_flag(CLI::App& command, bool& json) { command.add_flag("--json", json, "Print JSON instead of a table"); }

// Checked by format_named when used.
void add_format_option(CLI::App& command, std::string& format) {
  command.add_option("--format", format, fmt::format("Token format: {}", fmt::join(format_names(), ", ")))
      ->capture_default_str();
}

void add_combine_option(CLI::App& command, std::string& combine) {
  command
      .add_option("--combine", combine,
                  "exact: every expert row travels back; by_rank: one bf16 partial sum per (token, rank) does")
      ->check(CLI::IsMember({"exact", "by_rank"}))
      ->capture_default_str();
}

CLI::Option* add_list(CLI::App& command, const char* name, std::vector<std::string>& values, const char* help,
                      const std::vector<std::string>& allowed) {
  return command.add_option(name, values, help)->delimiter(',')->check(CLI::IsMember(allowed))->capture_default_str();
}

void add_formats_option(CLI::App& command, std::vector<std::string>& formats, const char* help) {
  std::vector<std::string> allowed = format_names();
  allowed.emplace_back("all");
  add_list(command, "--format", formats, help, allowed);
}

// ---- a command each

void add_demo_command(CLI::App& app) {
  const auto asked = std::make_shared<DemoArguments>();
  CLI::App& demo = *app.add_subcommand("demo", "Run a small MoE layer made from a text in every token format");
  add_backend_option(demo, asked->backend);
  demo.add_option("--ranks", asked->ranks, "Ranks that the tokens and the 32 experts are split over")
      ->capture_default_str();
  add_share_gpus_flag(demo);
  add_formats_option(demo, asked->formats, "Token formats, or all");
  demo.add_option("--seed", asked->seed, "Another one gives another router and other experts")->capture_default_str();
  demo.add_option("--text", asked->text, "Plain text to use in place of the built-in chapter of Moby-Dick");
  demo.add_option("--svg", asked->svg, "Where the picture of the routing goes; - is standard output")
      ->capture_default_str();
  demo.add_flag("--no-svg", asked->no_svg, "Draw no picture")->excludes("--svg");
  add_json_flag(demo, asked->json);
  demo.callback([asked] { run_demo_command(*asked); });
}

void add_layer_command(CLI::App& app) {
  const auto asked = std::make_shared<LayerArguments>();
  CLI::App& layer = *app.add_subcommand("layer", "Run an MoE layer on your tensors (.npy files)");
  add_backend_option(layer, asked->backend);
  layer.add_option("--ranks", asked->ranks, "Ranks that the tokens and the experts are split over")->required();
  layer.add_option("--nodes", asked->nodes, "Nodes that the ranks are split over")->capture_default_str();
  add_share_gpus_flag(layer);
  add_format_option(layer, asked->format);
  add_combine_option(layer, asked->combine);
  layer.add_option("--input-scale", asked->input_scale, "Scale of the tokens, for nvfp4")->capture_default_str();
  layer.add_option("--tokens", asked->paths.tokens, "float32 [tokens, hidden]")->required();
  layer.add_option("--topk-ids", asked->paths.ids, "int32 or int64 [tokens, K]; -1: no expert")->required();
  layer.add_option("--topk-weights", asked->paths.weights, "float32 [tokens, K]")->required();
  layer.add_option("--gate-up", asked->paths.gate_up, "float32 [experts, 2*inter, hidden]: gate rows, then up rows")
      ->required();
  layer.add_option("--down", asked->paths.down, "float32 [experts, hidden, inter]")->required();
  layer.add_option("--shared-gate-up", asked->paths.shared_gate_up,
                   "float32 [2*inter, hidden]: an expert for all tokens");
  layer.add_option("--shared-down", asked->paths.shared_down, "float32 [hidden, inter]");
  layer.add_option("--output", asked->output, "float32 [tokens, hidden]; appears when complete")->required();
  layer.add_option("--dump", asked->dump, "Write each rank's dispatched rows to DIR/rank<r>/; one round")
      ->type_name("DIR");
  layer.add_option("--deadline", asked->deadline_seconds, "Seconds that a rank waits for another before it gives up")
      ->capture_default_str();
  layer.add_flag("--check", asked->check, "Compare with a dense float64 oracle; fail beyond the derived bound");
  add_json_flag(layer, asked->json);
  layer.callback([asked] { run_layer_command(*asked); });
}

void add_codec_options(CLI::App& command, const std::shared_ptr<CodecArguments>& asked) {
  add_format_option(command, asked->format);
  command.get_option("--format")->required()->default_str("");
  command.add_option("--input-scale", asked->input_scale, "Scale of the tensor, for nvfp4")->capture_default_str();
  command.add_option("--payload", asked->payload, "uint8 [rows, bytes of a row]")->required();
  command.add_option("--scales", asked->scales,
                     "float32 or uint8 [rows, blocks], in column order; not needed for bf16");
  add_json_flag(command, asked->json);
}

void add_codec_command(CLI::App& app) {
  const auto asked = std::make_shared<CodecArguments>();
  CLI::App& command = *app.add_subcommand("codec", "Encode or decode the rows of an array (.npy files)");
  command.require_subcommand(1);
  CLI::App& encode = *command.add_subcommand("encode", "float32 or float16 rows to payload and scales");
  encode.add_option("--in", asked->in, "float32 or float16 [rows, hidden]")->required();
  add_codec_options(encode, asked);
  encode.callback([asked] { run_encode_command(*asked); });
  CLI::App& decode = *command.add_subcommand("decode", "Payload and scales to float32 rows");
  decode.add_option("--out", asked->out, "float32 [rows, hidden]; appears when complete")->required();
  add_codec_options(decode, asked);
  decode.callback([asked] { run_decode_command(*asked); });
}

void add_verify_command(CLI::App& app) {
  const auto asked = std::make_shared<VerifyArguments>();
  CLI::App& verify = *app.add_subcommand("verify", "Run the conformance suite here and say what works");
  add_backend_option(verify, asked->backend,
                     "What the ranks are: auto takes each that works here in one process, one after the other; under a "
                     "launcher as for the other commands");
  verify.add_option("--nodes", asked->nodes, "Logical nodes that the processes of a job are split over")
      ->capture_default_str();
  add_share_gpus_flag(verify);
  verify.add_flag("--quick", asked->quick, "Only the cases that are quick");
  verify.add_option("--case", asked->only, "Only cases with this in their name");
  verify.add_flag("--list", asked->list, "List the cases and run none");
  add_json_flag(verify, asked->json);
  verify.callback([asked] { run_verify_command(*asked); });
}

void add_info_command(CLI::App& app) {
  const auto asked = std::make_shared<InfoArguments>();
  CLI::App& info = *app.add_subcommand("info", "Show devices, backends, and the memory that a shape needs");
  add_backend_option(info, asked->backend);
  info.add_option("--model", asked->model, "Shape of a named model, such as deepseek-v3");
  info.add_option("--ranks", asked->ranks, "Ranks (4 where a shape is asked for)");
  info.add_option("--experts", asked->experts, "Experts over all ranks");
  info.add_option("--top-k", asked->top_k, "Experts of a token");
  info.add_option("--tokens", asked->tokens, "Most tokens of a rank in a round (128 where a shape is asked for)");
  info.add_option("--hidden", asked->hidden, "Columns of a token");
  info.add_option("--alignment", asked->alignment, "First row of an expert; 0: the format's default")
      ->capture_default_str();
  add_format_option(info, asked->format);
  add_combine_option(info, asked->combine);
  info.add_flag("--shared-expert", asked->shared, "With a fused shared expert");
  info.add_flag("--tiled-scales", asked->tiled, "mxfp8 scales in tiles");
  add_json_flag(info, asked->json);
  info.callback([asked] { run_info_command(*asked); });
}

// ---- bench

void add_shape_options(CLI::App& command, BenchOptions& options) {
  command
      .add_option("--ranks,--gpus", options.ranks,
                  "ranks, each a thread, a process or a GPU; more than one value is a sweep")
      ->delimiter(',')
      ->check(CLI::Range(1, kMaxRanks))
      ->capture_default_str();
  command.add_option("--experts", options.shape.experts, "experts over all ranks")->capture_default_str();
  command.add_option("--top-k", options.shape.top_k, "experts of a token")->capture_default_str();
  command.add_option("--hidden", options.shape.hidden, "columns of a token")->capture_default_str();
  command.add_option("--tokens,-n", options.tokens, "tokens of each rank; more than one value is a sweep")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_list(command, "--routing", options.routings, "how tokens choose experts", routing_names());
  command.add_option("--zipf-exponent", options.zipf_exponent, "popularity falls as 1 / position^exponent")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  command.add_option("--seconds", options.effort.seconds, "time to measure each line for")
      ->check(CLI::Range(0.01, 600.0))
      ->capture_default_str();
  command.add_option("--iterations", options.effort.iterations, "fixed number of iterations in place of --seconds")
      ->check(CLI::Range(0, 1'000'000));
  add_list(command, "--operation", options.operations, "what to measure; pair is a dispatch and its combine",
           operation_names());
}

void add_sweep_options(CLI::App& command, BenchOptions& options) {
  std::vector<std::string> models;
  for (const Model& model : kModels) models.emplace_back(model.name);
  models.emplace_back("all");
  add_formats_option(command, options.formats, "token formats, or all");
  add_list(command, "--combine", options.reductions, "how results are reduced", reduction_names());
  add_list(command, "--model", options.models, "named shapes, or all, in place of --experts, --top-k and --hidden",
           models)
      ->excludes("--experts", "--top-k", "--hidden");
  command.add_option("--workers", options.workers, "CPU: threads that work for each rank")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command.add_option("--nodes", options.nodes, "processes: logical nodes that the ranks are split over")
      ->capture_default_str();
  command.add_option("--max-blocks", options.max_blocks, "GPUs: most blocks of a kernel; 0: no limit")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  command
      .add_option("--backend", options.backend,
                  "what the ranks are: auto takes GPUs where there are enough, else the processes of a launcher over "
                  "OpenSHMEM, else threads")
      ->check(CLI::IsMember({"auto", "cpu", "shmem", "cuda", "nvshmem"}))
      ->capture_default_str();
  command.add_flag(
      "--baseline", options.baseline,
      "also measure the same exchange written with MPI; on GPUs NCCL's all-gather and reduce-scatter of the same "
      "tokens; with --backend nvshmem, the same ranks as one node");
  command.add_flag("--json", options.json, "print one JSON object a line");
  command.add_option("--output", options.output, "append the JSON lines to this file");
}

void add_simulate_options(CLI::App& command, SimulateOptions& options) {
  CLI::Option* simulate = command.add_flag(
      "--simulate", options.simulate,
      "compute, for up to 2048 ranks, what a round puts on every link and the least time of it; runs nothing");
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->needs(simulate)->capture_default_str();
  };
  const CLI::Range speeds(1e-6, 1e6);
  const CLI::Range times(0.0, 1e6);
  add("--ranks-per-node", options.ranks_per_node, "simulate: ranks that NVLink joins")
      ->check(CLI::Range(1, kMaxRanksPerNode));
  add("--node-limit", options.node_limit, "simulate: a token's experts lie in at most this many nodes; 0: anywhere")
      ->check(CLI::Range(0, kMaxTopK));
  add("--nvlink", options.nvlink_gb, "simulate: GB/s of a rank within its node, each way")->check(speeds);
  add("--nvlink-us", options.nvlink_us, "simulate: latency within a node")->check(times);
  add("--nic", options.nic_gb, "simulate: GB/s of a rank between nodes, each way")->check(speeds);
  add("--nic-us", options.nic_us, "simulate: latency between nodes")->check(times);
  add("--nic-operations", options.nic_operations, "simulate: puts and signals of a rank's NIC in a us; 0: no limit")
      ->check(times);
}

void add_bench_command(CLI::App& app) {
  const auto options = std::make_shared<BenchOptions>();
  CLI::App* bench = app.add_subcommand(
      "bench", "measure the exchange, the codecs, the wire and a baseline, or simulate up to 2048 ranks");
  add_shape_options(*bench, *options);
  add_sweep_options(*bench, *options);
  add_simulate_options(*bench, options->simulation);
  for (const char* measured :
       {"--baseline", "--operation", "--workers", "--seconds", "--iterations", "--backend", "--max-blocks", "--nodes"})
    bench->get_option("--simulate")->excludes(bench->get_option(measured));
  bench->callback([options] { run_bench_command(*options); });
  const auto worker_options = std::make_shared<BenchOptions>();
  CLI::App* worker = app.add_subcommand("bench-mpi-worker", "a process of the baseline")->group("");
  add_shape_options(*worker, *worker_options);
  worker->callback([worker_options] { run_bench_worker_command(*worker_options); });
}

}  // namespace

void run_command_line(int argc, char** argv) {
  CLI::App app("Carries Mixture-of-Experts tokens to the ranks that own their experts, and back.", "ferry");
  app.set_version_flag("--version", std::string("ferry ") + kVersion);
  app.require_subcommand(1);
  app.footer(
      "Exit code: 0 done; 2 bad use: options, or arrays that do not fit; 1 failed: files, memory, checks.\n"
      "`ferry COMMAND --help` explains a command.");
  add_demo_command(app);
  add_layer_command(app);
  add_codec_command(app);
  add_bench_command(app);
  add_verify_command(app);
  add_info_command(app);
  const auto is_named = [&](const CLI::App* command) { return command->check_name(argv[1]); };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(is_named).empty())
    throw Error(ErrorKind::invalid_argument, std::string(argv[1]) + " is not a command (see --help)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked_for_help) {
    app.exit(asked_for_help);
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::invalid_argument, std::string(error.what()) + " (see --help)");
  }
}

}  // namespace ferry::app
