// How a product walks through tiles and panels, but for passes.
#include <algorithm>

#include "base/check.h"
#include "compute/cpu/packed.h"

namespace llorch::compute {
namespace {

// Tiles that stay in the second cache while all panels pass by.
constexpr std::int64_t kGroupBytes = 192 * 1024;

// Of opened ones that do, the most.
constexpr std::int64_t kOpenedTiles = 16;
// Groups of 32 k that one panel and one tile pass through at a time: both parts fit the first
// cache.
constexpr std::int64_t kOpenedGroups = 16;

// A whole tile's sums to its columns; what does not change from row to row is known.
template <bool has_bias, bool accumulate>
void store_whole(const PackedRange& range, Panel panel, std::int64_t column, const float* sums,
                 std::int64_t stride) {
  for (std::int64_t r = 0; r < panel.rows; ++r, sums += stride) {
    float* out = range.out + (panel.begin + r) * range.out_stride + column;
    for (std::int64_t lane = 0; lane < kTileRows; ++lane) {
      const float sum = has_bias ? sums[lane] + range.bias[column + lane] : sums[lane];
      out[lane] = accumulate ? out[lane] + sum : sum;
    }
  }
}

// A tile with a panel.
void multiply_tile(const PackedKernels& kernels, const PackedRange& range, Panel panel,
                   std::int64_t tile) {
  alignas(64) float sums[kPanelRows * kTileRows];
  const auto type = static_cast<std::size_t>(range.dtype);
  const std::uint8_t* bytes = range.tiles + tile * tile_bytes(range.dtype, range.k);
  if (kernels.quants[type] != nullptr) {
    const std::int64_t blocks = range.k / kInputBlock;
    kernels.quants[type][panel.rows - 1](bytes, range.blocks + panel.begin * blocks, blocks, sums);
  } else {
    kernels.numbers[type][panel.rows - 1](bytes, range.x + panel.begin * range.x_stride,
                                          range.x_stride, range.k, sums);
  }
  store_sums(range, panel, tile, sums);
}

// All panels past the opened tiles first..last.
void multiply_opened(const PackedKernels& kernels, const PackedRange& range, std::int64_t first,
                     std::int64_t last) {
  const OpenedLayout layout = opened_layout(quant_layout(range.dtype));
  const std::int64_t blocks = range.k / kInputBlock;
  const std::int64_t bytes = blocks * layout.group_bytes();
  constexpr std::int64_t kSums = kWideRows * kTileRows;
  alignas(64) float sums[kOpenedTiles * kSums];
  const Panels panels = cut_rows(kernels, range.rows);
  for (std::int64_t p = 0; p < panels.count(); ++p) {
    const Panel panel = panels.at(p);
    const InputBlock* x = range.blocks + panel.begin * blocks;
    const OpenedTile multiply = kernels.opened[layout.index()];
    std::fill_n(sums, (last - first) * kSums, 0.0F);
    for (std::int64_t block = 0; block < blocks; block += kOpenedGroups) {
      const std::int64_t count = std::min(kOpenedGroups, blocks - block);
      for (std::int64_t tile = 0; tile < last - first; ++tile) {
        multiply(range.room + tile * bytes + block * layout.group_bytes(), x + block * panel.stride,
                 count, sums + tile * kSums);
      }
    }
    for (std::int64_t tile = first; tile < last; ++tile)
      store_sums(range, panel, tile, sums + (tile - first) * kSums);
  }
}

void open_and_multiply(const PackedKernels& kernels, const PackedRange& range) {
  CHECK(range.room != nullptr);
  const OpenedLayout layout = opened_layout(quant_layout(range.dtype));
  const std::int64_t blocks = range.k / kInputBlock;
  const std::int64_t bytes = blocks * layout.group_bytes();
  const std::int64_t group = std::clamp<std::int64_t>(kRoomBytes / bytes, 1, kOpenedTiles);
  const std::int64_t end = (range.end + kTileRows - 1) / kTileRows;
  kernels.begin_opened(layout);
  for (std::int64_t first = range.begin / kTileRows; first < end; first += group) {
    const std::int64_t last = std::min(first + group, end);
    for (std::int64_t tile = first; tile < last; ++tile) {
      kernels.open[static_cast<std::size_t>(range.dtype)](
          range.tiles + tile * tile_bytes(range.dtype, range.k), blocks,
          range.room + (tile - first) * bytes);
    }
    multiply_opened(kernels, range, first, last);
  }
  kernels.end_opened();
}

// Codes: a stretch of a tile is opened and meets a band of panels before the next one is, for one
// row as for many; sums wait in memory. The stretch and a panel's x stay in the first cache.
constexpr std::int64_t kCodeGroups = 16;  // whole blocks of every type
constexpr std::int64_t kCodePanels = 64;
constexpr std::int64_t kCodeStretch = kCodeGroups * (2 + 8) * kVectorBytes;
constexpr std::int64_t kCodeRoom =
    kCodeStretch + kCodePanels * kPanelRows * kTileRows * std::int64_t{sizeof(float)};

// visit(panel, its sums) for panels begin..end, whose sums stand behind each other.
template <class F>
void each_panel(const Panels& panels, std::int64_t begin, std::int64_t end, float* sums,
                const F& visit) {
  for (std::int64_t p = begin; p < end; ++p) {
    const Panel panel = panels.at(p);
    visit(panel, sums);
    sums += panel.rows * kTileRows;
  }
}

// One tile with panels begin..end.
void multiply_opened_codes(const PackedKernels& kernels, const PackedRange& range,
                           std::int64_t tile, std::int64_t begin, std::int64_t end) {
  const auto type = static_cast<std::size_t>(range.dtype);
  const std::int64_t blocks = range.k / kInputBlock;
  const std::int64_t bytes = tile_bytes(range.dtype, range.k);
  const Panels panels = cut_rows(kernels, range.rows);
  auto* sums = reinterpret_cast<float*>(range.room + kCodeStretch);
  std::fill_n(sums, (end - begin) * panels.narrow * kTileRows, 0.0F);
  for (std::int64_t block = 0; block < blocks; block += kCodeGroups) {
    const std::int64_t count = std::min(kCodeGroups, blocks - block);
    kernels.codes->open[type](range.tiles + tile * bytes + block * (bytes / blocks), count,
                              range.room);
    each_panel(panels, begin, end, sums, [&](Panel panel, float* of_panel) {
      const InputBlock* x = range.blocks + panel.begin * blocks + block * panel.stride;
      kernels.quants[type][panel.rows - 1](range.room, x, count, of_panel);
    });
  }
  each_panel(panels, begin, end, sums,
             [&](Panel panel, const float* of_panel) { store_sums(range, panel, tile, of_panel); });
}

void multiply_code_row(const PackedKernels& kernels, const PackedRange& range) {
  alignas(64) float sums[kTileRows];
  const std::int64_t bytes = tile_bytes(range.dtype, range.k);
  const QuantTile multiply = kernels.codes->multiply_row[static_cast<std::size_t>(range.dtype)];
  for (std::int64_t tile = range.begin / kTileRows; tile * kTileRows < range.end; ++tile) {
    multiply(range.tiles + tile * bytes, range.blocks, range.k / kInputBlock, sums);
    store_sums(range, {0, 1, 1}, tile, sums);
  }
}

void multiply_codes(const PackedKernels& kernels, const PackedRange& range) {
  CHECK(range.room != nullptr);
  const auto type = static_cast<std::size_t>(range.dtype);
  if (range.rows == 1 && kernels.codes->multiply_row[type] != nullptr)
    return multiply_code_row(kernels, range);
  const std::int64_t panels = cut_rows(kernels, range.rows).count();
  for (std::int64_t begin = 0; begin < panels; begin += kCodePanels) {
    const std::int64_t end = std::min(begin + kCodePanels, panels);
    for (std::int64_t tile = range.begin / kTileRows; tile * kTileRows < range.end; ++tile)
      multiply_opened_codes(kernels, range, tile, begin, end);
  }
}

// Plain numbers: inputs in stretches, so that two opened tiles of one stay in the first cache while
// the rows pass by, and rows in bands whose sums stay in the second.
// BF16 tiles that meet rounded rows stay as they are, which is half of that.
constexpr std::int64_t kStretch = 256;
constexpr std::int64_t kRoundedStretch = 512;
constexpr std::int64_t kFewRounded = 32;  // rows that wait for memory
constexpr std::int64_t kBandRows = 132;
constexpr std::int64_t kBlockTiles = 4;  // that share a stretch of x
static_assert(kStretch % 2 == 0 && kRoundedStretch % kInputBlock == 0);
constexpr std::int64_t kNumberSums = 2 * kTileRows;  // of a row with a tile
constexpr std::int64_t kNumberRoom =
    (kStretch * kBlockTiles * kTileRows + kBandRows * kBlockTiles * kNumberSums) *
    static_cast<std::int64_t>(sizeof(float));

// Parts begin..begin + count of the inputs, for the tiles from `tile` on.
struct NumberStretch {
  std::int64_t tile, tiles;
  std::int64_t begin, count;
};

// Asks for what will be multiplied next, all of it in so many parts.
class NextLines {
 public:
  NextLines(const PackedRange& range, const NumberStretch& next, std::int64_t parts)
      : tile_bytes_(tile_bytes(range.dtype, range.k)),
        lines_(tile_bytes(range.dtype, next.count) / kVectorBytes),
        part_((lines_ * next.tiles + parts - 1) / parts),
        tiles_(next.tiles),
        tile_(range.tiles + next.tile * tile_bytes_ + tile_bytes(range.dtype, next.begin)) {}

  void ask() {
    for (std::int64_t i = 0; i < part_ && tiles_ > 0; ++i) {
      __builtin_prefetch(tile_ + line_ * kVectorBytes, 0, 2);
      if (++line_ < lines_) continue;
      line_ = 0;
      --tiles_;
      tile_ += tile_bytes_;
    }
  }

 private:
  std::int64_t tile_bytes_, lines_, part_, tiles_;
  std::int64_t line_ = 0;
  const std::uint8_t* tile_;
};

// Some panels of a product's rows.
struct Band {
  Panel panels[kBandRows];
  std::int64_t count;
  Panel rows;  // of all of them

  Band(const Panels& all, std::int64_t begin, std::int64_t end) : count(end - begin) {
    for (std::int64_t p = begin; p < end; ++p) panels[p - begin] = all.at(p);
    const Panel last = panels[count - 1];
    rows = {panels[0].begin, last.begin + last.rows - panels[0].begin, 0};
    CHECK(rows.rows <= kBandRows);
  }
};

// A panel's rounded rows from an input on.
const RoundedBlock* rounded_at(const PackedRange& range, Panel panel, std::int64_t begin) {
  return range.rounded + panel.begin * rounded_blocks(range.k) + begin / kInputBlock * panel.stride;
}

// A band with one stretch of a few tiles, in twos where the set takes two.
void multiply_stretch(const PackedKernels& kernels, const PackedRange& range,
                      const NumberStretch& at, const NumberStretch& next, const Band& band,
                      float* sums) {
  const NumberBlocks& blocks = kernels.blocks;
  auto* opened = reinterpret_cast<float*>(range.room);
  const std::int64_t bytes = tile_bytes(range.dtype, range.k);
  NextLines ahead(range, next, (at.tiles + blocks.tiles - 1) / blocks.tiles * band.count);
  for (std::int64_t tile = 0; tile < at.tiles; tile += blocks.tiles) {
    const std::int64_t tiles = std::min(blocks.tiles, at.tiles - tile);
    const std::uint8_t* first =
        range.tiles + (at.tile + tile) * bytes + tile_bytes(range.dtype, at.begin);
    if (range.rounded == nullptr)
      blocks.open[static_cast<std::size_t>(range.dtype)](first, bytes, tiles, at.count, opened);
    for (std::int64_t p = 0; p < band.count; ++p) {
      const Panel panel = band.panels[p];
      ahead.ask();
      if (range.rounded != nullptr) {
        blocks.multiply_rounded[tiles - 1][panel.rows - 1](
            first, bytes, rounded_at(range, panel, at.begin), at.count, at.begin == 0, sums);
      } else {
        blocks.multiply[tiles - 1][panel.rows - 1](
            opened, range.x + panel.begin * range.x_stride + at.begin, range.x_stride, at.count,
            at.begin == 0, sums);
      }
      sums += panel.rows * tiles * kNumberSums;
    }
    opened += tiles * at.count * kTileRows;
  }
}

// One tile's sums of some rows, `stride` floats apart, to the output. `room` is for those rows.
void finish_tile(const PackedKernels& kernels, const PackedRange& range, Panel rows,
                 std::int64_t tile, FinishedRows finished, float* room) {
  const std::int64_t column = tile * kTileRows;
  finished.rows = rows.rows;
  if (range.begin <= column && column + kTileRows <= range.end) {
    finished.bias = range.bias != nullptr ? range.bias + column : nullptr;
    finished.accumulate = range.accumulate;
    finished.out = range.out + rows.begin * range.out_stride + column;
    finished.out_stride = range.out_stride;
    return kernels.blocks.finish(finished);
  }
  finished.out = room;
  finished.out_stride = kTileRows;
  kernels.blocks.finish(finished);
  store_sums(range, rows, tile, room);
}

// Those of a band. Opened tiles are no longer needed.
void finish_numbers(const PackedKernels& kernels, const PackedRange& range, std::int64_t first,
                    std::int64_t count, Panel band, const float* sums) {
  static_assert(kBandRows <= kStretch * kBlockTiles);
  for (std::int64_t tile = 0; tile < count; ++tile) {
    const std::int64_t begin = tile / kernels.blocks.tiles * kernels.blocks.tiles;
    const std::int64_t tiles = std::min(kernels.blocks.tiles, count - begin);
    const FinishedRows finished = {.sums = sums + (begin * band.rows + tile - begin) * kNumberSums,
                                   .stride = tiles * kNumberSums};
    finish_tile(kernels, range, band, first + tile, finished, reinterpret_cast<float*>(range.room));
  }
}

// Of nearly equal lengths, all but the last even, or whole blocks of rounded input.
std::int64_t stretch_of(const PackedRange& range) {
  const bool rounded = range.rounded != nullptr;
  const std::int64_t most = rounded ? kRoundedStretch : kStretch;
  const std::int64_t unit = rounded ? kInputBlock : 2;
  const std::int64_t parts = (range.k + most - 1) / most;
  return (range.k + parts * unit - 1) / (parts * unit) * unit;
}

void multiply_in_stretches(const PackedKernels& kernels, const PackedRange& range) {
  CHECK(range.room != nullptr);
  auto* sums = reinterpret_cast<float*>(range.room) + kStretch * kBlockTiles * kTileRows;
  const std::int64_t last = (range.end + kTileRows - 1) / kTileRows;
  const Panels panels = {range.rows, false, kernels.blocks.rows};
  const std::int64_t bands = (range.rows + kBandRows - 1) / kBandRows;
  const std::int64_t stretch = stretch_of(range);
  for (std::int64_t b = 0; b < bands; ++b) {
    const Band band(panels, panels.count() * b / bands, panels.count() * (b + 1) / bands);
    for (std::int64_t first = range.begin / kTileRows; first < last; first += kBlockTiles) {
      const std::int64_t count = std::min(kBlockTiles, last - first);
      for (std::int64_t begin = 0; begin < range.k; begin += stretch) {
        NumberStretch next = {first, count, begin + stretch, 0};
        if (next.begin >= range.k)
          next = {first + count, std::min(kBlockTiles, last - first - count), 0, 0};
        next.count = std::min(stretch, range.k - next.begin);
        const NumberStretch at = {first, count, begin, std::min(stretch, range.k - begin)};
        multiply_stretch(kernels, range, at, next, band, sums);
      }
      finish_numbers(kernels, range, first, count, band.rows, sums);
    }
  }
}

// Few rows with rounded input: one tile after the other from memory, where the first panel asks for
// what the others find in the first cache.
void multiply_few_rounded(const PackedKernels& kernels, const PackedRange& range) {
  alignas(64) float sums[kFewRounded * kNumberSums];
  alignas(64) float whole[kFewRounded * kTileRows];
  const std::int64_t bytes = tile_bytes(range.dtype, range.k);
  const Panels panels = cut_rounded(kernels, range.rows);
  const Band band(panels, 0, panels.count());
  for (std::int64_t tile = range.begin / kTileRows; tile * kTileRows < range.end; ++tile) {
    for (std::int64_t begin = 0; begin < range.k; begin += kRoundedStretch) {
      const std::uint8_t* first = range.tiles + tile * bytes + tile_bytes(range.dtype, begin);
      const std::int64_t count = std::min(kRoundedStretch, range.k - begin);
      for (std::int64_t p = 0; p < band.count; ++p) {
        const Panel panel = band.panels[p];
        kernels.blocks.multiply_rounded[0][panel.rows - 1](
            first, bytes, rounded_at(range, panel, begin), count, begin == 0,
            sums + panel.begin * kNumberSums);
      }
    }
    finish_tile(kernels, range, band.rows, tile, {.sums = sums, .stride = kNumberSums}, whole);
  }
}

// Asks for a part of the tiles that come next, `count` of them from `tile` on: there or not.
void ask_for_next(const PackedRange& range, std::int64_t tile, std::int64_t count,
                  std::int64_t part, std::int64_t parts) {
  const std::int64_t bytes = tile_bytes(range.dtype, range.k);
  const std::uint8_t* first = range.tiles + tile * bytes;
  const std::int64_t lines = count * bytes / kVectorBytes;
  for (std::int64_t line = lines * part / parts; line < lines * (part + 1) / parts; ++line)
    __builtin_prefetch(first + line * kVectorBytes, 0, 2);
}

}  // namespace

std::int64_t room_for_opened(std::int64_t k) {
  constexpr OpenedLayout kLargest = {.has_min = true, .halves = true};
  static_assert(kNumberRoom <= kRoomBytes && kCodeRoom <= kRoomBytes);
  return std::max(kRoomBytes, (k + kInputBlock - 1) / kInputBlock * kLargest.group_bytes());
}

void multiply_packed(const PackedKernels& kernels, const PackedRange& range) {
  const bool has_quants = kernels.quants[static_cast<std::size_t>(range.dtype)] != nullptr;
  if (has_quants && opens_tiles(kernels, range.rows)) return open_and_multiply(kernels, range);
  if (range.rounded != nullptr && range.rows <= kFewRounded)
    return multiply_few_rounded(kernels, range);
  const bool opens_numbers = kernels.blocks.from > 0 && range.rows >= kernels.blocks.from;
  if (range.rounded != nullptr || (!has_quants && opens_numbers))
    return multiply_in_stretches(kernels, range);
  if (has_quants && kernels.passes.records_from > 0 && range.rows > kRowsFromMemory)
    return multiply_in_passes(kernels, range);
  if (has_codes(range.dtype)) return multiply_codes(kernels, range);
  const std::int64_t first = range.begin / kTileRows;
  const std::int64_t last = (range.end + kTileRows - 1) / kTileRows;
  const Panels panels = {range.rows, false, kernels.panel_rows};
  const std::int64_t group =
      std::max<std::int64_t>(1, kGroupBytes / tile_bytes(range.dtype, range.k));
  for (std::int64_t begin = first; begin < last; begin += group) {
    const std::int64_t end = std::min(begin + group, last);
    for (std::int64_t p = 0; p < panels.count(); ++p) {
      const Panel panel = panels.at(p);
      if (range.rows > kRowsFromMemory) ask_for_next(range, end, end - begin, p, panels.count());
      for (std::int64_t tile = begin; tile < end; ++tile)
        multiply_tile(kernels, range, panel, tile);
    }
  }
}

void store_sums(const PackedRange& range, Panel panel, std::int64_t tile, const float* sums,
                std::int64_t stride) {
  const std::int64_t column = tile * kTileRows;
  const std::int64_t first = std::max<std::int64_t>(range.begin - column, 0);
  const std::int64_t last = std::min(range.end - column, kTileRows);
  const bool has_bias = range.bias != nullptr;
  if (first == 0 && last == kTileRows) {
    if (has_bias && range.accumulate)
      return store_whole<true, true>(range, panel, column, sums, stride);
    if (has_bias) return store_whole<true, false>(range, panel, column, sums, stride);
    if (range.accumulate) return store_whole<false, true>(range, panel, column, sums, stride);
    return store_whole<false, false>(range, panel, column, sums, stride);
  }
  for (std::int64_t r = 0; r < panel.rows; ++r, sums += stride) {
    float* out = range.out + (panel.begin + r) * range.out_stride + column;
    for (std::int64_t lane = first; lane < last; ++lane) {
      const float sum = has_bias ? sums[lane] + range.bias[column + lane] : sums[lane];
      out[lane] = range.accumulate ? out[lane] + sum : sum;
    }
  }
}

Panel Panels::at(std::int64_t index) const {
  if (wide) {
    const std::int64_t begin = index * kWideRows;
    return {begin, std::min(kWideRows, rows - begin), kWideRows};
  }
  const std::int64_t begin = rows * index / count();
  const std::int64_t size = rows * (index + 1) / count() - begin;
  return {begin, size, size};
}

Panel Panels::of(std::int64_t row) const {
  if (wide) return at(row / kWideRows);
  std::int64_t index = row * count() / rows;
  while (at(index).begin > row) --index;
  while (at(index).begin + at(index).rows <= row) ++index;
  return at(index);
}

}  // namespace llorch::compute
