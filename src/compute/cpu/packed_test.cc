// Tiles: what goes in comes out, and one order of sums whatever the instruction set, the number of
// threads and the number of rows.
#include "compute/cpu/packed.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "compute/conformance.h"
#include "compute/cpu/kernels.h"
#include "tensor/half.h"

namespace llorch::compute::test {
namespace {

std::vector<DType> tiled_types() {
  std::vector<DType> types;
  for (const tensor::DTypeInfo& type : tensor::all_dtypes()) {
    if (has_plain_tiles(type.dtype) || quant_layout(type.dtype).elems > 0)
      types.push_back(type.dtype);
  }
  return types;
}

TEST(Packed, AreTheTypesThatModelsMostlyComeIn) {
  EXPECT_EQ(tiled_types().size(), 26U);
}

TEST(Packed, CodesTakeWhatTheyTakeInTheFile) {
  for (const DType dtype : tiled_types()) {
    if (!has_codes(dtype)) continue;
    EXPECT_EQ(tile_bytes(dtype, 512), kTileRows * *tensor::storage_bytes(dtype, 512))
        << tensor::name(dtype);
  }
}

// Records of a whole tile and of a stretch in its middle, from every set.
TEST(Packed, CodesAreOpenedToTheSameRecordsByEverySet) {
  constexpr std::int64_t kCols = 1024;
  constexpr std::int64_t kBlocks = kCols / kInputBlock;
  constexpr std::size_t kFirst = 8;
  for (const DType dtype : tiled_types()) {
    if (!has_codes(dtype)) continue;
    const auto type = static_cast<std::size_t>(dtype);
    Random random(76);
    const std::vector<std::byte> bytes = random_weight(dtype, kTileRows * kCols, random);
    const WeightSource source = {.name = "w",
                                 .dtype = dtype,
                                 .rows = kTileRows,
                                 .cols = kCols,
                                 .row_stride = kCols,
                                 .bytes = bytes};
    std::vector<std::uint8_t> tile(static_cast<std::size_t>(tile_bytes(dtype, kCols)));
    pack_tile(source, 0, tile.data());
    const auto record = static_cast<std::size_t>(quant_layout(dtype).record_bytes());
    const auto open = [&](const CodeKernels& codes, std::size_t first, std::int64_t count) {
      std::vector<std::uint8_t> records(static_cast<std::size_t>(count) * record);
      codes.open[type](tile.data() + tile.size() / kBlocks * first, count, records.data());
      return records;
    };
    const std::vector<std::uint8_t> expected = open(kCodesPlain, 0, kBlocks);
    for (const Isa& isa : available_isas()) {
      SCOPED_TRACE(fmt::format("{} {}", tensor::name(dtype), isa.name));
      EXPECT_EQ(open(*isa.packed->codes, 0, kBlocks), expected);
      const std::vector<std::uint8_t> middle = open(*isa.packed->codes, kFirst, 16);
      EXPECT_TRUE(std::equal(middle.begin(), middle.end(),
                             expected.begin() + static_cast<std::ptrdiff_t>(kFirst * record)));
    }
  }
}

TEST(Packed, RowsComeOutAsTheyWentIn) {
  Random random(71);
  constexpr std::int64_t kRows = 37;
  constexpr std::int64_t kCols = 512;
  for (const DType dtype : tiled_types()) {
    const std::vector<std::byte> bytes = random_weight(dtype, kRows * kCols, random);
    const WeightSource source = {.name = "w",
                                 .dtype = dtype,
                                 .rows = kRows,
                                 .cols = kCols,
                                 .row_stride = kCols,
                                 .bytes = bytes};
    const std::size_t row_bytes = bytes.size() / kRows;
    std::vector<std::uint8_t> tile(static_cast<std::size_t>(tile_bytes(dtype, kCols)));
    std::vector<std::uint8_t> row(row_bytes);
    for (std::int64_t r = 0; r < kRows; ++r) {
      pack_tile(source, r / kTileRows, tile.data());
      unpack_row(dtype, tile.data(), r % kTileRows, kCols, row.data());
      const auto* expected = reinterpret_cast<const std::uint8_t*>(bytes.data()) +
                             static_cast<std::size_t>(r) * row_bytes;
      ASSERT_EQ(row, std::vector<std::uint8_t>(expected, expected + row_bytes))
          << tensor::name(dtype) << " row " << r;
    }
  }
}

// An odd width leaves half a pair over, which meets whatever stands beside the last input.
TEST(Packed, PlainRowsOfAnyWidthComeOutAndNothingElseIsInTheirTiles) {
  Random random(77);
  constexpr std::int64_t kRows = 3;
  for (const std::int64_t cols : {1, 2, 31, 64, 65, 515}) {
    for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
      SCOPED_TRACE(fmt::format("{} x {}", tensor::name(dtype), cols));
      const std::vector<std::byte> bytes = random_weight(dtype, kRows * cols, random);
      const WeightSource source = {.name = "w",
                                   .dtype = dtype,
                                   .rows = kRows,
                                   .cols = cols,
                                   .row_stride = cols,
                                   .bytes = bytes};
      std::vector<std::uint8_t> tile(static_cast<std::size_t>(tile_bytes(dtype, cols)), 0xFF);
      pack_tile(source, 0, tile.data());
      std::vector<std::uint8_t> row(bytes.size() / kRows);
      for (std::int64_t lane = 0; lane < kTileRows; ++lane) {
        unpack_row(dtype, tile.data(), lane, cols, row.data());
        for (std::size_t i = 0; i < row.size(); ++i) {
          const std::size_t at = static_cast<std::size_t>(lane) * row.size() + i;
          ASSERT_EQ(row[i], at < bytes.size() ? static_cast<std::uint8_t>(bytes[at]) : 0);
        }
        if (dtype != DType::BF16 || cols % 2 == 0) continue;
        std::uint16_t beside;
        std::memcpy(&beside, tile.data() + number_offset(dtype, cols, lane), sizeof(beside));
        EXPECT_EQ(beside, 0);
      }
    }
  }
}

TEST(Packed, PanelsCoverTheRowsInOrder) {
  for (const bool wide : {false, true}) {
    for (std::int64_t rows = 1; rows <= 70; ++rows) {
      const Panels panels = {rows, wide};
      std::int64_t next = 0;
      for (std::int64_t p = 0; p < panels.count(); ++p) {
        const Panel panel = panels.at(p);
        EXPECT_EQ(panel.begin, next);
        ASSERT_TRUE(panel.rows >= 1 && panel.rows <= (wide ? kWideRows : kPanelRows));
        ASSERT_GE(panel.stride, panel.rows);
        ASSERT_LE(panel.begin + panel.stride, rows_of_blocks(rows));
        for (std::int64_t row = next; row < next + panel.rows; ++row)
          EXPECT_EQ(panels.of(row).begin, panel.begin);
        next += panel.rows;
      }
      EXPECT_EQ(next, rows);
    }
  }
}

// Every set rounds the input as the definition does, odd values included.
TEST(Packed, InputIsQuantisedByTheDefinition) {
  Random random(72);
  std::vector<float> x = random.numbers(32 * 12, 5.0F);
  x[5] = 0.5F;  // ties: with a largest value of 127 quants are the values
  x[32] = 127.0F;
  for (std::size_t i = 33; i < 64; ++i) x[i] = static_cast<float>(i) - 48.5F;
  for (std::size_t i = 64; i < 96; ++i) x[i] = 0;
  for (std::size_t i = 96; i < 128; ++i) x[i] = 3e-37F;
  for (std::size_t i = 128; i < 160; ++i) x[i] *= 1e-38F;
  x[170] = std::numeric_limits<float>::infinity();
  x[200] = std::numeric_limits<float>::quiet_NaN();
  x[230] = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 256; i < 288; ++i) x[i] *= 1e37F;
  std::vector<std::int8_t> quants(x.size());
  std::vector<float> scales(x.size() / 32);
  quantize_input(x, quants.data(), scales.data());
  for (const Isa& isa : available_isas()) {
    constexpr std::int64_t kStride = 3;
    std::vector<InputBlock> blocks(scales.size() * kStride);
    isa.packed->quantize(x.data(), static_cast<std::int64_t>(x.size()), blocks.data(), kStride);
    for (std::size_t b = 0; b < scales.size(); ++b) {
      const InputBlock& block = blocks[b * kStride];
      SCOPED_TRACE(fmt::format("{} block {}", isa.name, b));
      EXPECT_EQ(std::bit_cast<std::uint32_t>(block.scale), std::bit_cast<std::uint32_t>(scales[b]));
      int sums[2] = {};
      for (std::size_t i = 0; i < 32; ++i) {
        EXPECT_EQ(block.quants[i], quants[b * 32 + i]) << i;
        sums[i / 16] += block.quants[i];
      }
      EXPECT_EQ(block.starts[0], -128 * (sums[0] + sums[1]));
      EXPECT_EQ(block.starts[1], -16 * (sums[0] + sums[1]));
      EXPECT_EQ(block.starts[2], -8 * (sums[0] + sums[1]));
      EXPECT_EQ(block.starts[3], -32 * sums[0]);
      EXPECT_EQ(block.starts[4], -32 * sums[1]);
    }
  }
}

// The sets that multiply bfloat16 numbers round as the definition does, and take as zero what their
// products would.
TEST(Packed, InputIsRoundedByTheDefinition) {
  std::vector<float> x;
  for (std::uint32_t high = 0; high < 1U << 16; ++high) {
    for (const std::uint32_t low : {0x0000U, 0x0001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU})
      x.push_back(std::bit_cast<float>(high << 16 | low));
  }
  for (const Isa& isa : available_isas()) {
    if (isa.packed->round == nullptr) continue;
    for (const std::size_t left_out : {0U, 1U, 15U, 16U, 31U}) {
      constexpr std::size_t kStride = 2;
      const std::size_t count = x.size() - left_out;
      std::vector<RoundedBlock> blocks((count + 31) / 32 * kStride);
      std::memset(blocks.data(), 0xFF, blocks.size() * sizeof(RoundedBlock));
      isa.packed->round(x.data(), static_cast<std::int64_t>(count), blocks.data(), kStride);
      for (std::size_t i = 0; i < x.size(); ++i) {
        std::uint16_t expected = 0;
        if (i < count) expected = tensor::float_to_bfloat16(x[i]);
        if (std::fpclassify(x[i]) == FP_SUBNORMAL) expected = std::signbit(x[i]) ? 0x8000 : 0;
        if (i >= count) expected = 0;
        ASSERT_EQ(blocks[i / 32 * kStride].values[i % 32], expected) << isa.name << " " << x[i];
      }
    }
  }
}

// Every exponent with every mantissa that a half keeps, and ties and their neighbours between them:
// numbers, infinities and what is none.
TEST(Kernels, HalvesAreRoundedByTheDefinition) {
  std::vector<float> values;
  std::vector<std::uint16_t> expected;
  for (std::uint32_t high = 0; high < 1U << 19; high += 7) {
    for (const std::uint32_t low : {0x0000U, 0x0001U, 0x0FFFU, 0x1000U, 0x1001U}) {
      values.push_back(std::bit_cast<float>(high << 13 | low));
      expected.push_back(tensor::float_to_half(values.back()));
    }
  }
  for (const Isa& isa : available_isas()) {
    std::vector<std::uint16_t> halves(values.size());
    isa.kernels->to_halves(values.data(), std::ssize(values), halves.data());
    EXPECT_EQ(halves, expected) << isa.name;
  }
}

// The probe that speeds are held against leaves no word out.
TEST(Packed, AllWordsAreRead) {
  std::vector<std::uint64_t> words(4096 + 24);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = i * i + (std::uint64_t{1} << 60);
  for (const Isa& isa : available_isas()) {
    if (isa.packed->loops.sum_words == nullptr) continue;
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{8}, std::size_t{40}, words.size()}) {
      std::uint64_t expected = 0;
      for (std::size_t i = 0; i < count; ++i) expected += words[i];
      EXPECT_EQ(isa.packed->loops.sum_words(words.data(), static_cast<std::int64_t>(count)),
                expected)
          << isa.name << " " << count;
    }
  }
}

// x (rows, k) times random weights of a type, with the first `rows` rows.
std::vector<float> product(const BackendConfig& config, DType dtype, std::int64_t k, std::int64_t n,
                           std::span<const float> x, std::int64_t rows) {
  const auto backend = make(config, {.rows = rows, .inputs = k, .context = 1});
  Device device(*backend);
  Random random(73);
  const std::vector<std::byte> weight = random_weight(dtype, n * k, random);
  const TensorView out = device.output(rows, n, Layout::Tight);
  const LinearTarget target = {
      .weight = device.weight(dtype, n, k, weight), .bias = {}, .out = out};
  backend->linear({.x = device.floats(x.first(static_cast<std::size_t>(rows * k)), {rows, k}),
                   .targets = {&target, 1}});
  return device.read(out);
}

// The same with BF16 weights and rounded input, as RoundedNumbers says.
std::vector<float> rounded_product(std::int64_t k, std::int64_t n, std::span<const float> x,
                                   std::int64_t rows) {
  Random random(73);
  const std::vector<std::byte> bytes = random_weight(DType::BF16, n * k, random);
  const auto width = static_cast<std::size_t>(k);
  std::vector<float> weights(bytes.size() / 2);
  CHECK(dequantize(DType::BF16, bytes, weights).ok());
  std::vector<float> out;
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    std::vector<float> rounded(width);
    round_input(InputForm::BF16, x.subspan(row * width, width), rounded.data());
    for (std::size_t c = 0; c < static_cast<std::size_t>(n); ++c) {
      const float* weight = weights.data() + c * width;
      float sums[2] = {};
      for (std::size_t i = 0; i < width; i += 2) {
        float& sum = sums[i / 2 % 2];
        if (i + 1 < width) sum = std::fma(weight[i + 1], rounded[i + 1], sum);
        sum = std::fma(weight[i], rounded[i], sum);
      }
      out.push_back(sums[0] + sums[1]);
    }
  }
  return out;
}

// The best set that multiplies BF16 weights as floats.
std::string float_set() {
  for (const Isa& isa : available_isas()) {
    if (isa.packed->round == nullptr) return std::string(isa.name);
  }
  return "";
}

// From one row to 512, in panels of every size, on one thread and on several, with every
// instruction set: the same bits, those of the definition where BF16 weights meet rounded input.
// Wide enough for several groups of tiles, and for stretches of inputs that blocks of 256 do not
// fill.
TEST(Packed, TheSameBitsFromOneRowTo512OnEveryInstructionSet) {
  constexpr std::int64_t kCols = 1792;
  constexpr std::int64_t kOutputs = 37;
  constexpr std::int64_t kRows = 512;
  const std::vector<float> x = Random(74).numbers(kRows * kCols, 2.0F);
  for (const DType dtype : tiled_types()) {
    const BackendConfig best = {.label = "", .backend = "cpu", .isa = float_set(), .threads = 1};
    const std::vector<float> floats = product(best, dtype, kCols, kOutputs, x, kRows);
    const std::vector<float> rounded = rounded_product(kCols, kOutputs, x, kRows);
    for (const Isa& isa : available_isas()) {
      const bool rounds = dtype == DType::BF16 && isa.packed->round != nullptr;
      const std::vector<float>& all = rounds ? rounded : floats;
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 27, 64, 99, 512}) {
        if (rows > 9 && isa.packed == &kPackedPlain) continue;  // panels are panels
        const BackendConfig config = {.label = "",
                                      .backend = "cpu",
                                      .isa = std::string(isa.name),
                                      .threads = rows % 2 == 0 ? 3 : 1};
        const std::vector<float> some = product(config, dtype, kCols, kOutputs, x, rows);
        expect_same_bits(some, std::span(all).first(some.size()),
                         fmt::format("{} {} {} rows", tensor::name(dtype), isa.name, rows));
      }
    }
  }
}

// Plain numbers may have any width: one that ends a stretch at an odd input, and one below it.
TEST(Packed, PlainNumbersOfOddWidthsHaveTheSameBitsToo) {
  constexpr std::int64_t kOutputs = 85;
  constexpr std::int64_t kRows = 140;
  for (const std::int64_t cols : {1, 31, 257, 515, 1090}) {
    const std::vector<float> x = Random(75).numbers(kRows * cols, 2.0F);
    for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
      const BackendConfig plain = {.label = "", .backend = "cpu", .isa = "scalar", .threads = 1};
      const std::vector<float> floats = product(plain, dtype, cols, kOutputs, x, kRows);
      const std::vector<float> rounded = rounded_product(cols, kOutputs, x, kRows);
      for (const Isa& isa : available_isas()) {
        const bool rounds = dtype == DType::BF16 && isa.packed->round != nullptr;
        const std::vector<float>& all = rounds ? rounded : floats;
        for (const std::int64_t rows : {1, 8, 11, 12, 13, 17, 132, 133, 140}) {
          const BackendConfig config = {.label = "",
                                        .backend = "cpu",
                                        .isa = std::string(isa.name),
                                        .threads = rows % 2 == 0 ? 3 : 1};
          const std::vector<float> some = product(config, dtype, cols, kOutputs, x, rows);
          expect_same_bits(
              some, std::span(all).first(some.size()),
              fmt::format("{} {} {} columns {} rows", tensor::name(dtype), isa.name, cols, rows));
        }
      }
    }
  }
}

// The largest numbers there are meet the largest inputs: nothing overflows on the way.
TEST(Packed, ExtremeNumbersDoNotOverflow) {
  constexpr std::int64_t kCols = 256;
  for (const DType dtype : tiled_types()) {
    if (quant_layout(dtype).elems == 0) continue;
    for (const int fill : {0x00, 0x80, 0x7F, 0xFF}) {
      std::vector<std::byte> weight(
          static_cast<std::size_t>(tensor::storage_bytes(dtype, kCols).value()),
          static_cast<std::byte>(fill));
      const auto type_bytes = static_cast<std::size_t>(tensor::info(dtype).block_bytes);
      for (std::size_t at = 0; at < weight.size(); at += type_bytes) {
        if (dtype == DType::MXFP4) weight[at] = std::byte{127};
        if (dtype == DType::IQ1_M) put_spread_half(tensor::float_to_half(1.0F), &weight[at]);
        for (const int offset : scale_offsets(dtype)) {
          const std::uint16_t one = tensor::float_to_half(1.0F);
          std::memcpy(weight.data() + at + static_cast<std::size_t>(offset), &one, sizeof(one));
        }
      }
      std::vector<float> decoded(kCols);
      ASSERT_TRUE(dequantize(dtype, weight, decoded).ok());
      for (const float sign : {1.0F, -1.0F}) {
        double expected = 0;
        double size = 0;
        std::vector<float> x(kCols);
        for (std::size_t i = 0; i < x.size(); ++i) {
          x[i] = sign * 127.0F;
          expected += static_cast<double>(x[i]) * static_cast<double>(decoded[i]);
          size += 127.0 * std::abs(static_cast<double>(decoded[i]));
        }
        for (const Isa& isa : available_isas()) {
          const auto backend =
              make({.label = "", .backend = "cpu", .isa = std::string(isa.name), .threads = 1},
                   {.rows = 1, .inputs = kCols, .context = 1});
          Device device(*backend);
          const TensorView out = device.output(1, 1, Layout::Tight);
          const LinearTarget target = {
              .weight = device.weight(dtype, 1, kCols, weight), .bias = {}, .out = out};
          backend->linear({.x = device.floats(x, {1, kCols}), .targets = {&target, 1}});
          EXPECT_NEAR(device.read(out)[0], expected, 1e-6 * size)
              << tensor::name(dtype) << " " << isa.name << " filled with " << fill;
        }
      }
    }
  }
}

}  // namespace
}  // namespace llorch::compute::test
