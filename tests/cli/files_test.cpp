// Files and memory under the commands: what appears on the disk and when, and when a need is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "ferry/error.h"
#include "tool/io/memory.h"
#include "tool/io/npy.h"
#include "tool/layer/dump/dump.h"
#include "tool/text/table.h"

namespace ferry::app {
namespace {

namespace fs = std::filesystem;

class FilesTest : public testing::Test {
 protected:
  FilesTest() { fs::create_directories(folder_); }
  ~FilesTest() override { fs::remove_all(folder_); }
  std::size_t files() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), {})); }
  static std::string content(const fs::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  const fs::path folder_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(FilesTest, PendingFileAppearsWhenCommitted) {
  PendingFile file("--output", folder_ / "y");
  file.write("abc", 3);
  EXPECT_FALSE(fs::exists(folder_ / "y"));
  file.commit();
  EXPECT_EQ(content(folder_ / "y"), "abc");
  EXPECT_EQ(files(), 1u);
}

TEST_F(FilesTest, ForgottenPendingFileLeavesNothing) {
  std::ofstream(folder_ / "y") << "old";
  {
    PendingFile file("--output", folder_ / "y");
    file.write("new", 3);
  }
  EXPECT_EQ(content(folder_ / "y"), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(FilesTest, PendingFileMayHaveTheLongestName) {
  const std::string first(254, 'y');
  for (const char last : {'a', 'b'}) {
    PendingFile file("--output", folder_ / (first + last));
    file.write(&last, 1);
    file.commit();
  }
  EXPECT_EQ(content(folder_ / (first + 'a')), "a");
  EXPECT_EQ(content(folder_ / (first + 'b')), "b");
  EXPECT_EQ(files(), 2u);
}

TEST_F(FilesTest, PendingFileFollowsALink) {
  std::ofstream(folder_ / "real") << "old";
  fs::create_symlink("real", folder_ / "link");
  PendingFile file("--output", folder_ / "link");
  file.write("new", 3);
  file.commit();
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(content(folder_ / "real"), "new");
}

TEST_F(FilesTest, NpyComesBack) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  NpyWriter writer("--output", folder_ / "a.npy");
  writer.begin(DType::f32, {2, 3});
  writer.write(values.data(), 12);
  EXPECT_THROW(writer.commit(), std::logic_error) << "half of the data is missing";
  writer.write(values.data() + 3, 12);
  EXPECT_THROW(writer.write(values.data(), 1), std::logic_error) << "all of the data is there";
  writer.commit();
  const NpyFile file("--in", folder_ / "a.npy");
  EXPECT_EQ(file.dtype(), DType::f32);
  EXPECT_EQ(file.shape(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(std::equal(values.begin(), values.end(), file.as<float>()));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.as<float>()) % 64, 0u);
}

// Each makes the folder, or finds it made, or finds another that writes there and says so.
TEST_F(FilesTest, DumpsThatBeginAtOnceTakeTurnsOrSayWhy) {
  constexpr int kTries = 300;
  std::mutex held;
  const auto dump = [&] {
    for (int i = 0; i < kTries; ++i) {
      try {
        const Dump one(folder_ / "dump", 2, "");
        const std::unique_lock alone(held, std::try_to_lock);
        EXPECT_TRUE(alone.owns_lock()) << "two write to one folder";
        EXPECT_TRUE(fs::is_directory(folder_ / "dump" / "rank1"));
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("another ferry is writing its dump there"));
      }
    }
  };
  std::thread other(dump);
  dump();
  other.join();
}

// A header of a length that leaves the data at an odd address, as some writers make them.
TEST_F(FilesTest, MisalignedDataIsReadAligned) {
  std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }";
  while ((10 + header.size()) % 4 != 1) header += ' ';
  std::ofstream file(folder_ / "a.npy", std::ios::binary);
  file << std::string("\x93NUMPY\x01\x00", 8) << static_cast<char>(header.size()) << '\0' << header;
  const std::int32_t values[] = {7, -8, 9};
  file.write(reinterpret_cast<const char*>(values), sizeof(values));
  file.close();
  const NpyFile read("--in", folder_ / "a.npy");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.as<std::int32_t>()) % 4, 0u);
  EXPECT_TRUE(std::equal(values, values + 3, read.as<std::int32_t>()));
}

TEST(NpyHeader, EntriesInAnyOrderAndSpacing) {
  const std::string dictionary = "{ \"shape\":(4 , 5),'fortran_order' : True,\n'descr':'|u1'}\n";
  const std::string file =
      std::string("\x93NUMPY\x02\x00", 8) + static_cast<char>(dictionary.size()) + std::string(3, '\0') + dictionary;
  const NpyHeader header = parse_npy_header(file);
  EXPECT_EQ(header.dtype, DType::u8);
  EXPECT_TRUE(header.fortran_order);
  EXPECT_EQ(header.shape, (std::vector<std::int64_t>{4, 5}));
  EXPECT_EQ(header.data_offset, file.size());
}

TEST(Memory, NeedsBeyondWhatIsThereAreRefused) {
  const std::vector<MemoryNeed> needs = {{"small", 10}, {"large", 4'000'000'000}, {"middle", 2000}, {"smallest", 1}};
  require_memory(needs, 4'000'002'011);
  try {
    require_memory(needs, 4'000'002'010);
    FAIL() << "one byte too many passed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::system);
    EXPECT_THAT(error.what(), testing::HasSubstr("large 4.00 GB, middle 2.00 kB, small 10 B"));
  }
  const std::uint64_t all = ~std::uint64_t{0};
  EXPECT_THROW(require_memory({{"a", all}, {"b", 2}}, all - 1), Error) << "the sum wrapped";
}

TEST(Memory, MachineHasSome) {
  EXPECT_GT(memory_left(), 0u);
  EXPECT_LE(memory_left(), total_memory());
}

TEST(Memory, PagesAreZeroAndMove) {
  Pages pages(std::size_t{1} << 36);  // far more than is touched
  EXPECT_EQ(pages.data()[pages.bytes() - 1], std::byte{0});
  pages.data()[5] = std::byte{1};
  const Pages other = std::move(pages);
  EXPECT_EQ(other.data()[5], std::byte{1});
}

TEST(HumanCount, GroupsDigits) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(1000), "1 000");
  EXPECT_EQ(human_count(-1234567), "-1 234 567");
}

TEST(TableText, AlignsAndSpellsNumbers) {
  Table table({{"name", "name", true}, {"n", "n"}});
  table.add_row({text_cell("a\u00e9"), count_cell(-123)});
  table.add_row({text_cell("long name"), bytes_cell(999'960)});
  EXPECT_EQ(table.text(),
            "name             n\n"
            "------------------\n"
            "a\u00e9            -123\n"
            "long name  1.00 MB\n");
  EXPECT_EQ(table.json().dump(), R"([{"name":"aé","n":-123},{"name":"long name","n":999960}])");
  EXPECT_EQ(scientific_cell(std::numeric_limits<double>::quiet_NaN()).value, nullptr);
  EXPECT_THROW(table.add_row({text_cell("x")}), std::logic_error);
}

}  // namespace
}  // namespace ferry::app
