// `ferry codec encode|decode`: a token format applied to the rows of an array, row by row.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <vector>

#include "tool/commands/codec/codec_rows.h"
#include "tool/commands/options/commands.h"
#include "tool/commands/options/options.h"
#include "tool/io/memory.h"
#include "tool/io/named_path.h"
#include "tool/io/npy.h"
#include "tool/layer/dump/dump.h"
#include "tool/layer/inputs/value_faults.h"
#include "tool/ranks/job/job.h"
#include "tool/text/progress.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

constexpr std::int64_t kRowsAtATime = 256;

struct CodecCommand : CodecArguments {
  void encode() const;
  void decode() const;
  void decode_dump(const AnyFormat& named) const;
  void write_rows(std::int64_t rows, int hidden,
                  const std::function<void(std::int64_t, std::span<float>)>& decode_row) const;
  void print_report(const char* what, std::int64_t rows, int hidden, std::int64_t non_finite) const;
};

std::size_t bytes_of(std::int64_t rows, std::size_t row_bytes) { return static_cast<std::size_t>(rows) * row_bytes; }

std::size_t scale_row_bytes(const AnyFormat& format, int hidden) {
  return static_cast<std::size_t>(scales_per_row(format, hidden)) * static_cast<std::size_t>(format.scale_bytes());
}

void require_scales_path(const AnyFormat& format, const std::string& scales) {
  if (format.block() != 0 && scales.empty())
    throw Error(ErrorKind::invalid_argument, fmt::format("--scales is required: format {} has scales", format.name()));
}

void note_scales_without_elements(const AnyFormat& format, const std::string& scales) {
  if (format.block() == 0 && !scales.empty())
    note(fmt::format("--scales {}: format {} has no scales, so the array has no elements; it can be left out", scales,
                     format.name()));
}

int hidden_of(const NpyFile& file, std::int64_t hidden) {
  constexpr std::int64_t kMost = std::int64_t{1} << 28;
  if (hidden < kHiddenMultiple || hidden % kHiddenMultiple != 0 || hidden > kMost)
    throw Error(ErrorKind::invalid_argument, fmt::format("{}: hidden is {}, must be a multiple of {}, {} at most",
                                                         file.name(), hidden, kHiddenMultiple, kMost));
  return static_cast<int>(hidden);
}

// Rows in groups: `rows` is called with each row's index and `group` after each group with its first row and size.
template <class Row, class Group>
void for_rows(const char* what, std::int64_t count, const Row& row, const Group& group) {
  Progress progress(what, count);
  for (std::int64_t begin = 0; begin < count; begin += kRowsAtATime) {
    const std::int64_t size = std::min(kRowsAtATime, count - begin);
    for (std::int64_t i = 0; i < size; ++i) row(begin + i, i);
    group(size);
    progress.advance(size);
  }
}

// A codec has no ranks.
void note_if_repeated() {
  if (num_processes() > 1)
    note(
        fmt::format("{} processes were started, and each encodes or decodes the whole array; start it without the "
                    "launcher",
                    num_processes()));
}

void CodecCommand::encode() const {
  const AnyFormat named = format_named(format);
  note_unused_input_scale(input_scale, named);
  note_if_repeated();
  require_scales_path(named, scales);
  note_scales_without_elements(named, scales);
  require_distinct({{"--payload", payload}, {"--scales", scales}}, {{"--in", in}});
  const NpyFile file("--in", in);
  file.require_dtype({DType::f32, DType::f16});
  file.require_shape({-1, -1}, "[rows, hidden]");
  const int hidden = hidden_of(file, file.extent(1));
  const std::int64_t rows = file.extent(0);
  const std::size_t row_bytes = named.payload_bytes(hidden);
  const std::size_t scale_bytes = scale_row_bytes(named, hidden);
  NpyWriter payload_file("--payload", payload);
  std::unique_ptr<NpyWriter> scales_file;
  if (!scales.empty()) scales_file = std::make_unique<NpyWriter>("--scales", scales);
  payload_file.begin(DType::u8, {rows, static_cast<std::int64_t>(row_bytes)});
  if (scales_file) scales_file->begin(scale_dtype(named), {rows, scales_per_row(named, hidden)});

  const std::size_t in_bytes = static_cast<std::size_t>(hidden) * size_of(file.dtype());
  const Pages one_payload(row_bytes), one_scales(scale_bytes);
  const Pages payloads(bytes_of(kRowsAtATime, row_bytes)), all_scales(bytes_of(kRowsAtATime, scale_bytes));
  std::int64_t non_finite = 0;
  LossFinder loss(named, hidden, input_scale);
  std::vector<float> values(static_cast<std::size_t>(hidden));
  const auto encode_row = [&](std::int64_t row, std::int64_t i) {
    const InputRow source{file.as<std::byte>() + bytes_of(row, in_bytes), file.dtype()};
    for (int column = 0; column < hidden; ++column) values[static_cast<std::size_t>(column)] = value_at(source, column);
    loss.add(row, values);
    non_finite += named.encode(SerialGroup{}, source, hidden, input_scale, one_payload.data(), one_scales.data());
    std::copy_n(one_payload.data(), row_bytes, payloads.data() + bytes_of(i, row_bytes));
    std::copy_n(one_scales.data(), scale_bytes, all_scales.data() + bytes_of(i, scale_bytes));
  };
  for_rows("encode: rows", rows, encode_row, [&](std::int64_t size) {
    payload_file.write(payloads.data(), bytes_of(size, row_bytes));
    if (scales_file) scales_file->write(all_scales.data(), bytes_of(size, scale_bytes));
  });
  payload_file.commit();
  if (scales_file) scales_file->commit();
  if (const std::string lost = loss.text("row", rows); !lost.empty()) note(lost);
  print_report("encoded", rows, hidden, non_finite);
}

void CodecCommand::decode() const {
  const AnyFormat named = format_named(format);
  note_unused_input_scale(input_scale, named);
  note_if_repeated();
  if (!dump.empty()) return decode_dump(named);
  if (payload.empty()) throw Error(ErrorKind::invalid_argument, "--payload is required, or --dump in its place");
  require_scales_path(named, scales);
  note_scales_without_elements(named, scales);
  require_distinct({{"--out", out}}, {{"--payload", payload}, {"--scales", scales}});
  const NpyFile file("--payload", payload);
  file.require_dtype({DType::u8});
  file.require_shape({-1, -1}, "[rows, bytes of a row]");
  const int hidden = hidden_of_payload(file, named);
  const std::int64_t rows = file.extent(0);
  std::unique_ptr<NpyFile> scales_file;
  if (!scales.empty()) {
    scales_file = std::make_unique<NpyFile>("--scales", scales);
    require_scales(*scales_file, named, rows, hidden);
  }
  const std::size_t row_bytes = named.payload_bytes(hidden);
  const std::size_t scale_bytes = scale_row_bytes(named, hidden);
  const Pages one_payload(row_bytes), one_scales(scale_bytes);
  write_rows(rows, hidden, [&](std::int64_t row, std::span<float> values) {
    std::copy_n(file.as<std::byte>() + bytes_of(row, row_bytes), row_bytes, one_payload.data());
    if (scale_bytes != 0)
      std::copy_n(scales_file->as<std::byte>() + bytes_of(row, scale_bytes), scale_bytes, one_scales.data());
    named.decode(SerialGroup{}, one_payload.data(), one_scales.data(), hidden, input_scale, values.data());
  });
}

void CodecCommand::decode_dump(const AnyFormat& named) const {
  std::vector<NamedPath> files;
  for (const char* name : {"payload", "scales", "row_offsets", "scales_offsets", "expert_ids", "src_info"})
    files.push_back({"--dump", fmt::format("{}/{}.npy", dump, name)});
  files.push_back({"--dump", fmt::format("{}/{}", dump, kFormatFile)});
  require_distinct({{"--out", out}}, files);
  require_format_of_dump(named, input_scale, dump);
  const DumpedRows dumped(named, dump);
  write_rows(dumped.rows(), dumped.hidden(),
             [&](std::int64_t row, std::span<float> values) { dumped.decode(row, values, input_scale); });
}

// As encode counts them: columns that share a scale, or rows where there are no scales.
std::int64_t non_finite_blocks(const AnyFormat& format, std::span<const float> row) {
  const std::size_t block = format.block() > 0 ? static_cast<std::size_t>(format.block()) : row.size();
  std::int64_t count = 0;
  for (std::size_t begin = 0; begin < row.size(); begin += block) {
    const std::span<const float> values = row.subspan(begin, std::min(block, row.size() - begin));
    count += std::any_of(values.begin(), values.end(), [](float value) { return !std::isfinite(value); }) ? 1 : 0;
  }
  return count;
}

// To --out, by `decode_row`, which is given a row and where its values go.
void CodecCommand::write_rows(std::int64_t rows, int hidden,
                              const std::function<void(std::int64_t, std::span<float>)>& decode_row) const {
  NpyWriter out_file("--out", out);
  out_file.begin(DType::f32, {rows, hidden});
  const auto columns = static_cast<std::size_t>(hidden);
  const Pages values(bytes_of(kRowsAtATime, columns * sizeof(float)));
  const AnyFormat named = format_named(format);
  std::int64_t non_finite = 0;
  for_rows(
      "decode: rows", rows,
      [&](std::int64_t row, std::int64_t i) {
        const std::span<float> decoded(values.as<float>() + i * hidden, columns);
        decode_row(row, decoded);
        non_finite += non_finite_blocks(named, decoded);
      },
      [&](std::int64_t size) { out_file.write(values.data(), bytes_of(size, columns * sizeof(float))); });
  out_file.commit();
  print_report("decoded", rows, hidden, non_finite);
}

void CodecCommand::print_report(const char* what, std::int64_t rows, int hidden, std::int64_t non_finite) const {
  const AnyFormat named = format_named(format);
  const std::size_t payload_bytes = bytes_of(rows, named.payload_bytes(hidden));
  const std::size_t scale_bytes = bytes_of(rows, scale_row_bytes(named, hidden));
  if (json)
    return print(Json{{"format", format},
                      {"rows", rows},
                      {"hidden", hidden},
                      {"payload_bytes", payload_bytes},
                      {"scale_bytes", scale_bytes},
                      {"non_finite_blocks", non_finite}});
  print(
      fmt::format("{} {} of {} columns as {}: payload {}, scales {}{}\n", what, counted(rows, "row"), hidden, format,
                  human_bytes(payload_bytes), human_bytes(scale_bytes),
                  non_finite == 0 ? "" : fmt::format("; {} with a NaN or an infinity", counted(non_finite, "block"))));
}

// What decode is not told, a dump says itself.
void take_format_of_dump(CodecArguments& asked) {
  if (asked.dump.empty())
    throw Error(ErrorKind::invalid_argument, "--format is required, or --dump with a folder that says it");
  const std::optional<DumpedFormat> dumped = format_of_dump(asked.dump);
  if (!dumped && format_of_dump(asked.dump + "/rank0"))
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("--dump {0}: has the folders of all ranks; give one of them, such as {0}/rank0", asked.dump));
  if (std::error_code error; !dumped && !std::filesystem::is_directory(asked.dump, error))
    throw Error(ErrorKind::io,
                fmt::format("--dump {}: {}", asked.dump, error ? error.message() : "is not a directory"));
  if (!dumped)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("--format is required: there is no {}/{} that says it", asked.dump, kFormatFile));
  asked.format = dumped->name;
  if (!asked.input_scale_is_given) asked.input_scale = dumped->input_scale;
}

}  // namespace

void run_encode_command(const CodecArguments& asked) { CodecCommand{asked}.encode(); }
void run_decode_command(const CodecArguments& asked) {
  CodecArguments whole = asked;
  if (asked.format.empty()) take_format_of_dump(whole);
  CodecCommand{whole}.decode();
}

}  // namespace ferry::app
