// The writer, and through it the reader on well-formed files: what goes in comes out.
#include "formats/gguf_writer.h"
#include "formats/test_gguf.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <limits>
#include <numeric>

#include "formats/gguf_reader.h"
#include "support/test_paths.h"

namespace llorch::formats {
namespace {

using tensor::DType;
using tensor::Shape;
using ::testing::ElementsAre, ::testing::ElementsAreArray, ::testing::HasSubstr;

std::vector<std::byte> counting_bytes(std::size_t count, int start) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>(static_cast<int>(i * 7) + start);
  return bytes;
}

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(GgufWriter, EveryValueTypeComesBack) {
  const test::TempDir dir;
  GgufWriter writer;
  writer.add_number("u8", std::uint8_t{200});
  writer.add_number("i8", std::int8_t{-100});
  writer.add_number("u16", std::uint16_t{60000});
  writer.add_number("i16", std::int16_t{-30000});
  writer.add_number("u32", std::uint32_t{4000000000});
  writer.add_number("i32", std::int32_t{-2000000000});
  writer.add_number("u64", std::numeric_limits<std::uint64_t>::max());
  writer.add_number("i64", std::numeric_limits<std::int64_t>::min());
  writer.add_number("f32", 0.1F);
  writer.add_number("f64", 0.1);
  writer.add_number("yes", true);
  writer.add_number("no", false);
  writer.add_text("text", "grüße");
  writer.add_text("empty text", "");
  ASSERT_TRUE(writer.write(dir / "m.gguf").ok());
  const auto file = read_gguf(dir / "m.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Metadata& metadata = file->metadata();
  EXPECT_EQ(metadata.size(), 14U);
  EXPECT_EQ(metadata.integer("u8").take(), 200);
  EXPECT_EQ(metadata.integer("i8").take(), -100);
  EXPECT_EQ(metadata.integer("u16").take(), 60000);
  EXPECT_EQ(metadata.integer("i16").take(), -30000);
  EXPECT_EQ(metadata.integer("u32").take(), 4000000000);
  EXPECT_EQ(metadata.integer("i32").take(), -2000000000);
  EXPECT_EQ(std::get<std::uint64_t>(*metadata.find("u64")),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(metadata.integer("i64").take(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(metadata.number("f32").take(), static_cast<double>(0.1F));
  EXPECT_EQ(metadata.number("f64").take(), 0.1);
  EXPECT_TRUE(metadata.flag("yes").take());
  EXPECT_FALSE(metadata.flag("no").take());
  EXPECT_EQ(metadata.text("text").take(), "grüße");
  EXPECT_EQ(metadata.text("empty text").take(), "");
}

TEST(GgufWriter, ArraysComeBack) {
  const test::TempDir dir;
  GgufWriter writer;
  writer.add_numbers<std::int32_t>("types", std::array{1, -2, 3});
  writer.add_numbers<float>("scores", std::array{0.5F, -1.0F});
  writer.add_numbers<std::uint64_t>("none", {});
  writer.add_numbers<bool>("flags", std::array{true, false, true});
  const std::vector<std::string> tokens = {"<s>", "", "▁the", std::string("a\0b", 3)};
  add_texts(writer, "tokens", tokens);
  ASSERT_TRUE(writer.write(dir / "m.gguf").ok());
  const auto file = read_gguf(dir / "m.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Metadata& metadata = file->metadata();
  EXPECT_THAT(metadata.integers("types").take(), ElementsAre(1, -2, 3));
  EXPECT_THAT(metadata.numbers("scores").take(), ElementsAre(0.5, -1.0));
  EXPECT_TRUE(metadata.integers("none").take().empty());
  EXPECT_THAT(metadata.integers("flags").take(), ElementsAre(1, 0, 1));
  EXPECT_THAT(metadata.texts("tokens").take(), ElementsAreArray(tokens));

  GgufWriter copy;
  copy.add_array("tokens", std::get<ArrayView>(*metadata.find("tokens")));
  ASSERT_TRUE(copy.write(dir / "copy.gguf").ok());
  EXPECT_THAT(read_gguf(dir / "copy.gguf")->metadata().texts("tokens").take(),
              ElementsAreArray(tokens));
}

TEST(GgufWriter, EveryTensorTypeComesBackAtEveryAlignment) {
  const test::TempDir dir;
  for (std::uint32_t alignment = 1; alignment <= 4096; alignment *= 2) {
    GgufWriter writer(alignment);
    writer.add_text("general.architecture", "test");
    std::vector<std::vector<std::byte>> contents;
    for (const tensor::DTypeInfo& row : tensor::all_dtypes()) {
      if (row.ggml_id < 0) continue;
      const Shape shape{3, row.block_elems};
      contents.push_back(
          counting_bytes(3 * static_cast<std::size_t>(row.block_bytes), row.ggml_id));
      writer.add_tensor({std::string(row.name), row.dtype, shape, contents.back(), {}});
    }
    ASSERT_TRUE(writer.write(dir / "m.gguf").ok());
    const auto file = read_gguf(dir / "m.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_EQ(file->tensors().size(), contents.size());
    for (std::size_t i = 0; i < contents.size(); ++i) {
      const WeightTensor& tensor = file->tensors()[i];
      EXPECT_EQ(tensor.name, tensor::name(tensor.dtype));
      EXPECT_EQ(tensor.shape, (Shape{3, tensor::info(tensor.dtype).block_elems}));
      EXPECT_THAT(tensor.bytes, ElementsAreArray(contents[i]))
          << tensor.name << " at alignment " << alignment;
      EXPECT_EQ(static_cast<std::uint64_t>(tensor.bytes.data() - file->files()[0]->bytes().data()) %
                    alignment,
                0U);
    }
  }
}

// The original project took every quantised block for 4 bytes, which switched its bounds checks
// off.
TEST(GgufWriter, HeaderAndPaddedTensorsAreTheWholeFile) {
  const test::TempDir dir;
  GgufWriter writer;
  const std::vector<std::byte> odd = counting_bytes(34 * 3, 0);  // 102: 26 bytes of padding follow
  const std::vector<std::byte> even = counting_bytes(64, 0);
  writer.add_tensor({"odd", DType::Q8_0, Shape{3, 32}, odd, {}});
  writer.add_tensor({"even", DType::F32, Shape{16}, even, {}});
  ASSERT_TRUE(writer.write(dir / "m.gguf").ok());
  const auto file = read_gguf(dir / "m.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const std::byte* start = file->files()[0]->bytes().data();
  const auto header_bytes = file->tensors()[0].bytes.data() - start;
  const std::int64_t records = (8 + 3 + 4 + 2 * 8 + 4 + 8) + (8 + 4 + 4 + 8 + 4 + 8);
  EXPECT_EQ(header_bytes, (24 + records + 31) / 32 * 32);
  EXPECT_EQ(file->file_bytes(), header_bytes + 128 + 64);
  EXPECT_EQ(static_cast<std::int64_t>(std::filesystem::file_size(dir / "m.gguf")),
            file->file_bytes());
}

TEST(GgufWriter, OddNamesComeBack) {
  const test::TempDir dir;
  const std::vector<std::string> names = {
      "a", std::string(64, 'x'),       "blk.0.attn_q.weight",     "größe 🙂",
      " ", std::string("nul\0nul", 7), "quote\"back\\slash\nline"};
  GgufWriter writer;
  for (const std::string& name : names) {
    writer.add_number(name, std::int32_t{1});
    writer.add_tensor({name, DType::F32, Shape{0}, {}, {}});
  }
  ASSERT_TRUE(writer.write(dir / "m.gguf").ok());
  const auto file = read_gguf(dir / "m.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  for (const std::string& name : names) {
    EXPECT_TRUE(file->metadata().contains(name)) << name;
    EXPECT_NE(file->find(name), nullptr) << name;
  }
}

TEST(GgufWriter, StreamsATensorFromACallback) {
  const test::TempDir dir;
  GgufWriter writer;
  const auto produce = [](const GgufTensor::Sink& sink) -> Status {
    for (int piece = 0; piece < 4; ++piece) {
      if (Status taken = sink(counting_bytes(8, piece)); !taken.ok()) return taken;
    }
    return ok_status();
  };
  writer.add_tensor({"t", DType::F32, Shape{2, 4}, {}, produce});
  ASSERT_TRUE(writer.write(dir / "m.gguf").ok());
  const auto file = read_gguf(dir / "m.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_THAT(file->tensors()[0].bytes.subspan(24), ElementsAreArray(counting_bytes(8, 3)));
}

TEST(GgufWriter, AFailedWriteLeavesTheOldFile) {
  const test::TempDir dir;
  std::ofstream(dir / "m.gguf") << "old";
  const auto write_with = [&dir](std::size_t produced) {
    GgufWriter writer;
    writer.add_tensor({"t", DType::F32, Shape{4}, {}, [produced](const GgufTensor::Sink& sink) {
                         return sink(counting_bytes(produced, 0));
                       }});
    return writer.write(dir / "m.gguf");
  };
  EXPECT_THAT(write_with(15).error().message, HasSubstr("1 of its 16 bytes were not produced"));
  EXPECT_THAT(write_with(17).error().message, HasSubstr("more than its 16 bytes"));
  EXPECT_EQ(base::read_text_file(dir / "m.gguf", 100).take(), "old");
  EXPECT_EQ(files_in(dir.path()), 1U);
  EXPECT_TRUE(write_with(16).ok());
  EXPECT_EQ(files_in(dir.path()), 1U);
}

TEST(GgufWriter, RefusesWhatTheFormatCannotHold) {
  const test::TempDir dir;
  const std::vector<std::byte> bytes(64);
  const auto message = [&dir](const GgufWriter& writer) {
    const Status written = writer.write(dir / "m.gguf");
    return written.ok() ? std::string("written") : written.error().message;
  };
  const auto with_tensor = [&](GgufTensor tensor) {
    GgufWriter writer;
    writer.add_tensor(std::move(tensor));
    return message(writer);
  };
  EXPECT_THAT(message(GgufWriter(3)), HasSubstr("alignment 3"));
  EXPECT_THAT(message(GgufWriter(0)), HasSubstr("alignment 0"));
  EXPECT_THAT(with_tensor({"t", DType::F8E4M3, Shape{64}, bytes, {}}),
              HasSubstr("no type for F8_E4M3"));
  EXPECT_THAT(with_tensor({"t", DType::F32, Shape{}, bytes, {}}), HasSubstr("0 dimensions"));
  EXPECT_THAT(with_tensor({"t", DType::F32, Shape{1, 1, 1, 1, 16}, bytes, {}}),
              HasSubstr("5 dimensions"));
  EXPECT_THAT(with_tensor({"t", DType::Q8_0, Shape{2, 48}, bytes, {}}),
              HasSubstr("not whole blocks"));
  EXPECT_THAT(with_tensor({"t", DType::F32, Shape{15}, bytes, {}}), HasSubstr("64 bytes given"));
  EXPECT_THAT(with_tensor({std::string(65, 'n'), DType::F32, Shape{16}, bytes, {}}),
              HasSubstr("65 bytes"));
  EXPECT_THAT(with_tensor({"", DType::F32, Shape{16}, bytes, {}}), HasSubstr("empty tensor name"));
  GgufWriter twice;
  twice.add_number("k", 1);
  twice.add_text("k", "2");
  EXPECT_THAT(message(twice), HasSubstr("\"k\" was added twice"));
  GgufWriter aligned(64);
  aligned.add_number("general.alignment", std::uint32_t{32});
  EXPECT_THAT(message(aligned), HasSubstr("\"general.alignment\" was added twice"));
  GgufWriter twins;
  twins.add_tensor({"t", DType::F32, Shape{16}, bytes, {}});
  twins.add_tensor({"t", DType::F32, Shape{16}, bytes, {}});
  EXPECT_THAT(message(twins), HasSubstr("\"t\" was added twice"));
  EXPECT_EQ(files_in(dir.path()), 0U);
}

// A model of six tensors in three files, the first with the metadata, as the usual splitting tool
// makes them.
class SplitGguf : public ::testing::Test {
 protected:
  struct Part {
    std::uint16_t no;
    std::uint16_t count = 3;
    std::int32_t tensors = 6;
  };

  std::filesystem::path part_path(int number) const {
    return dir_ / fmt::format("m-{:05}-of-00003.gguf", number);
  }

  void write_part(const std::filesystem::path& path, Part part) {
    GgufWriter writer;
    if (part.no == 0) writer.add_text("general.name", "split model");
    writer.add_number("split.no", part.no);
    writer.add_number("split.count", part.count);
    writer.add_number("split.tensors.count", part.tensors);
    const std::vector<std::byte> bytes = counting_bytes(64, part.no);
    for (const char half : {'a', 'b'}) {
      writer.add_tensor({fmt::format("t{}{}", part.no, half), DType::F32, Shape{16}, bytes, {}});
    }
    ASSERT_TRUE(writer.write(path).ok());
  }

  void write_all() {
    for (std::uint16_t no = 0; no < 3; ++no) write_part(part_path(no + 1), {.no = no});
  }

  test::TempDir dir_;
};

TEST_F(SplitGguf, AnyPartOpensTheWhole) {
  write_all();
  for (int number = 1; number <= 3; ++number) {
    const auto file = read_gguf(part_path(number));
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->path(), part_path(number));
    EXPECT_EQ(file->metadata().text("general.name").take(), "split model");
    EXPECT_EQ(file->files().size(), 3U);
    ASSERT_EQ(file->tensors().size(), 6U);
    EXPECT_EQ(file->tensors()[5].name, "t2b");
    EXPECT_THAT(file->find("t1a")->bytes, ElementsAreArray(counting_bytes(64, 1)));
    std::uintmax_t size = 0;
    for (int each = 1; each <= 3; ++each) size += std::filesystem::file_size(part_path(each));
    EXPECT_EQ(static_cast<std::uintmax_t>(file->file_bytes()), size);
  }
}

TEST_F(SplitGguf, AMissingPartIsNamed) {
  write_all();
  std::filesystem::remove(part_path(2));
  const auto file = read_gguf(part_path(3));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, ErrorCode::NotFound);
  EXPECT_THAT(file.error().message, HasSubstr(part_path(2).string()));
}

TEST_F(SplitGguf, PartsThatDoNotBelongTogetherAreRefused) {
  const auto message_with = [this](int number, Part part) {
    write_all();
    write_part(part_path(number), part);
    const auto file = read_gguf(part_path(1));
    return file.ok() ? std::string("accepted") : file.error().message;
  };
  EXPECT_THAT(message_with(2, {.no = 2}), HasSubstr("split.no is 2, expected 1"));
  EXPECT_THAT(message_with(3, {.no = 2, .count = 4}), HasSubstr("split.count is 4, expected 3"));
  EXPECT_THAT(message_with(1, {.no = 0, .tensors = 7}),
              HasSubstr("split.tensors.count is 7, expected 6"));
  EXPECT_THAT(message_with(1, {.no = 0, .count = 2000}), HasSubstr("up to 1024 parts"));
}

TEST_F(SplitGguf, ARenamedPartSaysHowItShouldBeCalled) {
  write_all();
  for (const std::string_view renamed :
       {"model.gguf", "m-00001-of-00004.gguf", "m-0001-of-0003.gguf", "m-00000-of-00003.gguf",
        "m-00004-of-00003.gguf", "m-1a001-of-00003.gguf"}) {
    std::filesystem::copy_file(part_path(1), dir_ / renamed);
    EXPECT_THAT(read_gguf(dir_ / renamed).error().message, HasSubstr("NAME-NNNNN-of-00003.gguf"))
        << renamed;
  }
}

// The merging tool leaves split.count at 0.
TEST_F(SplitGguf, AMergedFileIsWhole) {
  write_part(dir_ / "merged.gguf", {.no = 0, .count = 0, .tensors = 2});
  const auto file = read_gguf(dir_ / "merged.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->tensors().size(), 2U);
}

TEST(ReadGguf, ErrorsNameTheFile) {
  const test::TempDir dir;
  EXPECT_EQ(read_gguf(dir / "none.gguf").error().code, ErrorCode::NotFound);
  std::ofstream empty(dir / "empty.gguf");
  empty.close();
  EXPECT_THAT(read_gguf(dir / "empty.gguf").error().message,
              HasSubstr("empty.gguf: the magic number"));
}

TEST(GgufWriter, CopiesTheValuesOfAnotherFileWithTheirTypes) {
  const test::TempDir dir;
  GgufWriter first;
  first.add_number<std::uint8_t>("u8", 200);
  first.add_number<std::int8_t>("i8", -3);
  first.add_number<std::uint16_t>("u16", 60000);
  first.add_number<std::int16_t>("i16", -30000);
  first.add_number<std::uint32_t>("u32", 4000000000U);
  first.add_number<std::int32_t>("i32", -5);
  first.add_number<std::uint64_t>("u64", UINT64_MAX);
  first.add_number<std::int64_t>("i64", INT64_MIN);
  first.add_number<float>("f32", 0.1F);
  first.add_number<double>("f64", 0.1);
  first.add_number<bool>("bool", true);
  first.add_text("text", "a");
  first.add_numbers<float>("list", std::array{1.0F, 2.0F});
  ASSERT_TRUE(first.write(dir / "first.gguf").ok());
  const auto file = read_gguf(dir / "first.gguf").take();
  EXPECT_EQ(file.metadata().stored_type("i16"), ElementType::I16);
  EXPECT_EQ(file.metadata().stored_type("absent"), std::nullopt);
  GgufWriter second;
  for (const auto& [key, value] : file.metadata().entries())
    second.add_value(key, value, file.metadata().stored_type(key));
  ASSERT_TRUE(second.write(dir / "second.gguf").ok());
  const auto copy = read_gguf(dir / "second.gguf").take();
  EXPECT_EQ(copy.metadata().size(), file.metadata().size());
  for (const auto& [key, value] : file.metadata().entries()) {
    EXPECT_EQ(copy.metadata().stored_type(key), file.metadata().stored_type(key)) << key;
    if (std::holds_alternative<double>(value)) {
      EXPECT_EQ(std::get<double>(*copy.metadata().find(key)), std::get<double>(value)) << key;
    }
  }
  EXPECT_EQ(copy.metadata().numbers("list").value(), (std::vector<double>{1, 2}));
  EXPECT_EQ(std::get<std::uint64_t>(*copy.metadata().find("u64")), UINT64_MAX);
  EXPECT_EQ(copy.metadata().integer("i64").value(), INT64_MIN);
  EXPECT_EQ(copy.metadata().integer("u32").value(), 4000000000);
  EXPECT_EQ(copy.metadata().integer("i8").value(), -3);
  EXPECT_TRUE(copy.metadata().flag("bool").value());
}

TEST(GgufWriter, ValuesWithoutATypeGetTheUsualOne) {
  const test::TempDir dir;
  GgufWriter writer;
  writer.add_value("small", std::uint64_t{7});
  writer.add_value("large", std::uint64_t{1} << 40);
  writer.add_value("negative", std::int64_t{-7});
  writer.add_value("number", 0.5);
  ASSERT_TRUE(writer.write(dir / "file.gguf").ok());
  const auto file = read_gguf(dir / "file.gguf").take();
  EXPECT_EQ(file.metadata().stored_type("small"), ElementType::U32);
  EXPECT_EQ(file.metadata().stored_type("large"), ElementType::U64);
  EXPECT_EQ(file.metadata().stored_type("negative"), ElementType::I32);
  EXPECT_EQ(file.metadata().stored_type("number"), ElementType::F32);
}

}  // namespace
}  // namespace llorch::formats
