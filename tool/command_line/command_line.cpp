// The options of every command but bench (bench_options.cpp), and what the words of a command line lead to.
#include "tool/command_line/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>

#include "base/deadline.h"
#include "ferry/ferry.h"
#include "tool/command_line/completion.h"
#include "tool/command_line/option_table.h"
#include "tool/command_line/parser.h"
#include "tool/commands/options/commands.h"
#include "tool/commands/options/options.h"
#include "tool/demo/model/demo_model.h"
#include "tool/layer/experts/expert_place.h"
#include "tool/ranks/job/job.h"
#include "tool/ranks/ranks.h"
#include "tool/ranks/ranks_unasked.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

// ---- options that several commands share

constexpr const char* kInputScaleHelp =
    "nvfp4: multiplies the tokens before they are encoded, and is divided out again; 2688 / their largest magnitude "
    "fits";

void add_share_gpus_flag(CLI::App& command) {
  command.add_flag_callback("--share-gpus", share_gpus,
                            "Several ranks may have the same GPU: to try more ranks than there are GPUs");
}

void add_result_format_option(CLI::App& command, std::string& results) {
  one_of(command.add_option("--result-format", results, result_format_help()), result_format_names(), "FORMAT")
      ->capture_default_str();
}
std::string join_formats() { return fmt::format("{}", fmt::join(format_names(), ", ")); }

void add_format_option(CLI::App& command, std::string& format) {
  one_of(command.add_option("--format", format, "Token format: " + join_formats()), format_names(), "FORMAT")
      ->capture_default_str();
}

void add_reduction_options(CLI::App& command, std::string& combine, std::string& reduction, int& copies) {
  one_of(command.add_option("--combine", combine, kCombineHelp), combine_names())->default_str("by_rank");
  one_of(command.add_option("--reduction", reduction, kReductionHelp), reduction_names());
  one_of(command.add_option("--message-copies", copies, kCopiesHelp), message_copies_allowed())->capture_default_str();
}

// ---- a command each

void add_demo_command(CLI::App& app) {
  const auto asked = std::make_shared<DemoArguments>();
  CLI::App& demo = *app.add_subcommand("demo", "Run a small MoE layer made from a text in every token format");
  add_backend_option(demo, asked->backend, kBackendHelp);
  in_range(demo.add_option("--ranks", asked->ranks,
                           fmt::format("Ranks that the tokens and the {} experts are split over", DemoModel::kExperts))
               ->capture_default_str(),
           std::int64_t{1}, DemoModel::kExperts);
  add_share_gpus_flag(demo);
  add_formats_option(demo, asked->formats);
  add_seed_option(demo, asked->seed, "Another one gives another router and other experts");
  add_file(demo, "--text", asked->text, "Plain text to use in place of the built-in chapter of Moby-Dick");
  add_file_or_output(demo, "--svg", asked->svg, "Where the picture of the routing goes; - is standard output")
      ->capture_default_str();
  demo.add_flag("--no-svg", asked->no_svg, "Draw no picture")->excludes("--svg");
  add_json_flag(demo, asked->json);
  add_quiet_flag(demo);
  demo.callback([asked, ranks = demo.get_option("--ranks")] {
    if (ranks->count() == 0) asked->ranks = ranks_unasked(asked->backend, asked->ranks);
    run_demo_command(*asked);
  });
}

void add_layer_command(CLI::App& app) {
  const auto asked = std::make_shared<LayerArguments>();
  CLI::App& layer = *app.add_subcommand("layer", "Run an MoE layer on your tensors (.npy files)");
  add_backend_option(layer, asked->backend, kBackendHelp);
  in_range(layer.add_option("--ranks", asked->ranks, "Ranks that the tokens and the experts are split over"),
           std::int64_t{1}, kMaxRanks)
      ->required();
  in_range(layer.add_option("--nodes", asked->nodes, "Nodes that the ranks are split over")->capture_default_str(),
           std::int64_t{1}, kMaxRanks);
  add_share_gpus_flag(layer);
  add_format_option(layer, asked->format);
  add_reduction_options(layer, asked->combine, asked->reduction, asked->message_copies);
  add_result_format_option(layer, asked->results);
  one_of(layer.add_option("--rows", asked->rows, "In which order a rank's rows lie (docs/row-orders.md)"),
         row_order_names({RowOrder::by_expert, RowOrder::by_source, RowOrder::padded}))
      ->capture_default_str();
  one_of(layer.add_option("--experts-on", asked->experts_on,
                          "Where the experts run: cpu gives the same bytes whatever the ranks are; gpu, for ranks that "
                          "are GPUs, leaves the rows there, and its sums are rounded in another order"),
         expert_place_names())
      ->capture_default_str();
  layer.add_flag("--encoded", asked->encoded, "Give dispatch tokens that are encoded already: the same output");
  add_input_scale_option(layer, asked->input_scale, kInputScaleHelp);
  add_file(layer, "--tokens", asked->paths.tokens, "float32 [tokens, hidden]: a file, not a count as in bench and info")
      ->required();
  add_file(layer, "--topk-ids", asked->paths.ids, "int32 or int64 [tokens, K]; -1: no expert")->required();
  add_file(layer, "--topk-weights", asked->paths.weights, "float32 [tokens, K]")->required();
  add_file(layer, "--gate-up", asked->paths.gate_up, "float32 [experts, 2*inter, hidden]: gate rows, then up rows")
      ->required();
  add_file(layer, "--down", asked->paths.down, "float32 [experts, hidden, inter]")->required();
  add_file(layer, "--shared-gate-up", asked->paths.shared_gate_up,
           "float32 [2*inter, hidden]: an expert for all tokens");
  add_file(layer, "--shared-down", asked->paths.shared_down, "float32 [hidden, inter]");
  add_file(layer, "--output", asked->output, "float32 [tokens, hidden]; appears when complete")->required();
  as_path(
      layer.add_option("--dump", asked->dump,
                       "Write each rank's dispatched rows to DIR/rank<r>/: row_offsets.npy, expert_ids.npy, "
                       "src_info.npy, payload.npy, scales.npy, for nvfp4 scales_offsets.npy, and format.json: in which "
                       "format they are; one round"),
      "DIR");
  in_range(
      layer
          .add_option("--deadline", asked->deadline_seconds, "Seconds that a rank waits for another before it gives up")
          ->capture_default_str(),
      std::int64_t{1}, std::chrono::floor<std::chrono::seconds>(kMaxDeadline).count());
  layer.add_flag("--check", asked->check, "Compare with a dense float64 oracle; fail beyond the derived bound");
  add_json_flag(layer, asked->json);
  add_quiet_flag(layer);
  layer.callback([asked] { run_layer_command(*asked); });
}

void add_codec_options(CLI::App& command, const std::shared_ptr<CodecArguments>& asked) {
  add_format_option(command, asked->format);
  command.get_option("--format")->required()->default_str("");
  add_input_scale_option(command, asked->input_scale, kInputScaleHelp);
  add_file(command, "--payload", asked->payload, "uint8 [rows, bytes of a row]")->required();
  add_file(command, "--scales", asked->scales, "float32 or uint8 [rows, blocks], in column order; not needed for bf16");
  add_json_flag(command, asked->json);
  add_quiet_flag(command);
}

void add_codec_command(CLI::App& app) {
  const auto asked = std::make_shared<CodecArguments>();
  CLI::App& command = *app.add_subcommand("codec", "Encode or decode the rows of an array (.npy files)");
  command.require_subcommand(1);
  CLI::App& encode = *command.add_subcommand("encode", "float32 or float16 rows to payload and scales");
  add_file(encode, "--in,--input", asked->in, "float32 or float16 [rows, hidden]")->required();
  add_codec_options(encode, asked);
  encode.callback([asked] { run_encode_command(*asked); });
  CLI::App& decode = *command.add_subcommand("decode", "Payload and scales to float32 rows");
  add_file(decode, "--out,--output", asked->out, "float32 [rows, hidden]; appears when complete")->required();
  add_codec_options(decode, asked);
  for (const char* name : {"--format", "--payload"}) decode.get_option(name)->required(false);
  decode.get_option("--format")->description("Needed with --payload; a dump names its own: " + join_formats());
  as_path(decode.add_option(
              "--dump", asked->dump,
              "A rank's folder of `ferry layer --dump`, in place of --payload and --scales: rows of a dispatch, in the "
              "format that its format.json names"),
          "DIR")
      ->excludes("--payload", "--scales");
  decode.callback([asked, scale = decode.get_option("--input-scale")] {
    asked->input_scale_is_given = scale->count() != 0;
    run_decode_command(*asked);
  });
}

void add_verify_command(CLI::App& app) {
  const auto asked = std::make_shared<VerifyArguments>();
  CLI::App& verify = *app.add_subcommand("verify", "Run the conformance suite here and say what works");
  add_backend_option(verify, asked->backend,
                     "What the ranks are: auto takes each that works here in one process, one after the other; under a "
                     "launcher as for the other commands");
  in_range(verify.add_option("--nodes", asked->nodes, "Logical nodes that the processes of a job are split over")
               ->capture_default_str(),
           std::int64_t{1}, kMaxRanks);
  add_share_gpus_flag(verify);
  verify.add_flag("--quick", asked->quick, "Only the cases that are quick");
  offer(verify.add_option("--case", asked->only, "Only cases with this in their name"), verify_case_names());
  verify.add_flag("--list", asked->list, "List the cases and run none");
  add_json_flag(verify, asked->json);
  verify.add_flag("-q,--quiet", asked->quiet, "Print the cases that fail, and the sums");
  verify.callback([asked] { run_verify_command(*asked); });
}

void add_info_command(CLI::App& app) {
  const auto asked = std::make_shared<InfoArguments>();
  CLI::App& info = *app.add_subcommand("info", "Show devices, backends, and the memory that a shape needs");
  add_backend_option(info, asked->backend,
                     "Of which ranks: a shape is answered for any of them, whatever this machine has");
  one_of(info.add_option("--model", asked->model,
                         fmt::format("Shape of a named model: {}", fmt::join(model_names(), ", "))),
         model_names(), "MODEL");
  info.add_flag("--list-models", asked->lists_models, "List the models with their shapes, and nothing else");
  const auto add_number = [&](const char* name, std::optional<int>& value, std::int64_t high, const char* help) {
    in_range(info.add_option(name, value, help)->type_name("INT"), std::int64_t{1}, high);
  };
  add_number("--ranks", asked->ranks, kMaxRanks, "Ranks (4 where a shape is asked for)");
  add_number("--experts", asked->experts, kNoLimit, "Experts over all ranks");
  add_number("--top-k", asked->top_k, kMaxTopK, "Experts of a token");
  add_number("--tokens,--tokens-per-rank", asked->tokens, kNoLimit,
             "Most tokens of a rank in a round: a count, not a file as in layer (128 where a shape is asked for)");
  add_number("--hidden", asked->hidden, kNoLimit, "Columns of a token");
  zero_or_one_of(info.add_option("--alignment", asked->alignment,
                                 "An expert's first row is at a multiple of this; 0: the format's default")
                     ->capture_default_str(),
                 {1, 4, 8, 16, 32, 64, 128}, "that of the format");
  add_format_option(info, asked->format);
  add_result_format_option(info, asked->results);
  add_reduction_options(info, asked->combine, asked->reduction, asked->message_copies);
  info.add_flag("--shared-expert", asked->shared, "With a fused shared expert");
  info.add_flag("--tiled-scales", asked->tiled, "mxfp8 scales in tiles");
  add_json_flag(info, asked->json);
  info.footer(
      "Examples:\n"
      "  ferry info --model deepseek-v3 --ranks 64 --tokens 4096 --format fp8_block128 --backend nvshmem\n"
      "  ferry info --list-models\n\n" +
      std::string(kHelpEnd));
  info.callback([asked] { run_info_command(*asked); });
}

// ---- what is of the command line itself

CommandEntry entry_of(CLI::App& app, const std::string& parent) {
  CommandEntry entry;
  entry.name = app.get_name();
  entry.path = parent.empty() ? entry.name : parent + " " + entry.name;
  entry.help = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    OptionEntry& next = entry.options.emplace_back();
    for (const std::string& name : option->get_lnames()) next.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) next.names.push_back("-" + name);
    const std::string type = option->get_type_name();
    next.help = option->get_description();
    next.takes_value = option->get_items_expected_max() != 0;
    next.takes_many = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    next.may_be_empty = type == kFileOrOutput;
    next.takes_path = type == "FILE" || type == "DIR" || type == kFileOrOutput;
    next.values = values_of(*option);
  }
  for (CLI::App* below : app.get_subcommands({})) {
    entry.commands.push_back(entry_of(*below, entry.path));
    entry.commands.back().is_hidden = below->get_group().empty();
  }
  return entry;
}

// The commands below `parent` as words that stand behind `path`, without options.
std::vector<CommandEntry> names_below(const CommandEntry& parent, const std::string& path) {
  std::vector<CommandEntry> names;
  for (const CommandEntry* command : shown_commands(parent)) {
    const std::string own = path + " " + command->name;
    names.push_back({command->name, own, command->help, {}, names_below(*command, own)});
  }
  return names;
}

// The entry of all commands. `ferry help` takes the name of any of them, and of those below.
CommandEntry entry_of_all(CLI::App& app) {
  CommandEntry table = entry_of(app, "");
  const std::vector<CommandEntry> explained = names_below(table, table.name + " help");
  for (CommandEntry& command : table.commands)
    if (command.name == "help") command.commands = explained;
  return table;
}

void add_version_command(CLI::App& app) {
  const std::string version = std::string("ferry ") + kVersion;
  app.set_version_flag("-v,--version", version);
  const auto json = std::make_shared<bool>(false);
  CLI::App& command = *app.add_subcommand("version", "Print the version");
  add_json_flag(command, *json, "Print JSON instead of a line");
  command.callback([version, json] { *json ? print(Json{{"version", kVersion}}) : print(version + "\n"); });
}

void add_completion_command(CLI::App& app) {
  CLI::App& completion = *app.add_subcommand("completion", "Print what a shell loads to complete words of ferry");
  completion.require_subcommand(1);
  completion.add_subcommand("bash", "For bash: source <(ferry completion bash)")->callback([&app] {
    print(bash_completion(entry_of_all(app)));
  });
  completion.add_subcommand("zsh", "For zsh: source <(ferry completion zsh)")->callback([&app] {
    print(zsh_completion(entry_of_all(app)));
  });
}

void add_commands(CLI::App& app) {
  app.require_subcommand(1);
  app.formatter(help_format());
  app.footer(kHelpEnd);
  add_demo_command(app);
  add_layer_command(app);
  add_codec_command(app);
  add_bench_command(app);
  add_verify_command(app);
  add_info_command(app);
  add_completion_command(app);
  add_version_command(app);
  app.add_subcommand("help", "Explain a command");
}

// `ferry help X` is `ferry X --help`.
std::vector<std::string> without_help_command(std::vector<std::string> words) {
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  words.emplace_back("--help");
  return words;
}

}  // namespace

void run_command_line(int argc, char** argv) {
  CLI::App app("Carries Mixture-of-Experts tokens to the ranks that own their experts, and back.", "ferry");
  add_commands(app);
  std::vector<std::string> words = without_help_command({argv + std::min(argc, 1), argv + argc});
  if (words.empty()) {
    if (speaks_for_all()) std::fputs(app.help().c_str(), stderr);
    throw Error(ErrorKind::invalid_argument, "a command is missing; the help above lists them");
  }
  const CommandEntry table = entry_of_all(app);
  require_known_words(table, words);
  const std::string path = command_of(table, words).path;
  std::reverse(words.begin(), words.end());  // as the parser takes them
  try {
    app.parse(std::move(words));
  } catch (const CLI::Success& asked_for_help) {
    std::ostringstream text;  // print() says why standard output takes nothing, std::cout does not
    app.exit(asked_for_help, text);
    print(text.str());
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorKind::invalid_argument, fmt::format("{} (see {} --help)", error.what(), path));
  }
}

}  // namespace ferry::app
