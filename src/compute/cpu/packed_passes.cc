// How block types and codes are walked where a set has passes: two tiles at once, a stretch of
// their inputs with all panels before the next one, so that it stays in the first cache, and all
// tiles of a few before the next stretch, so that the panels' part of it stays in the second.
#include <algorithm>

#include "base/check.h"
#include "compute/cpu/packed.h"

namespace llorch::compute {
namespace {

// Blocks of 32 k in a stretch, at most.
constexpr std::int64_t kStretchBlocks = 28;
constexpr std::int64_t kCodeBlocks = 8;  // whole blocks of every type with codes
// Rows whose sums wait in memory between stretches, and tiles.
constexpr std::int64_t kBandRows = 132;
constexpr std::int64_t kBandTiles = 16;
static_assert(kBandTiles % kPassTiles == 0);

constexpr std::int64_t record_bytes_max() {
  std::int64_t most = 0;
  with_each_quant_type([&](auto type) {
    most = std::max(most, record_layout(quant_layout(type())).record_bytes());
  });
  with_each_code_type(
      [&](auto type) { most = std::max(most, quant_layout(type()).record_bytes()); });
  return most;
}
constexpr std::int64_t kRecordsBytes = kPassTiles * kStretchBlocks * record_bytes_max();
constexpr std::int64_t kRoom =
    kRecordsBytes + kBandRows * kBandTiles * kTileRows * std::int64_t{sizeof(float)};
static_assert(kRoom <= kRoomBytes);

// Some inputs of a tile or two.
struct Part {
  std::int64_t tile, tiles;
  std::int64_t begin, blocks;
};

class Walk {
 public:
  Walk(const PackedKernels& kernels, const PackedRange& range)
      : range_(range),
        opens_(has_codes(range.dtype) || range.rows >= kernels.passes.records_from),
        blocks_(range.k / kInputBlock),
        bytes_(tile_bytes(range.dtype, range.k)),
        end_((range.end + kTileRows - 1) / kTileRows),
        panels_(cut_rows(kernels, range.rows)) {
    const auto type = static_cast<std::size_t>(range.dtype);
    const QuantPasses& passes = kernels.passes;
    table_ = (opens_ ? passes.records : passes.tiles)[type];
    open_ = has_codes(range.dtype) ? kernels.codes->open[type] : passes.open[type];
    const QuantLayout layout = quant_layout(range.dtype);
    record_bytes_ = record_layout(layout).record_bytes();
    // Of nearly equal lengths, and whole blocks of the file.
    const std::int64_t unit = has_codes(range.dtype) ? kCodeBlocks : layout.elems / kInputBlock;
    const std::int64_t most = kStretchBlocks / unit * unit;
    const std::int64_t parts = (blocks_ + most - 1) / most;
    stretch_ = (blocks_ + parts * unit - 1) / (parts * unit) * unit;
    // Few rows wait for memory, which is read fastest in few streams.
    tiles_ = opens_ ? kBandTiles : kPassTiles;
  }

  void run() {
    const std::int64_t bands = (range_.rows + kBandRows - 1) / kBandRows;
    for (std::int64_t b = 0; b < bands; ++b) {
      first_panel_ = panels_.count() * b / bands;
      num_panels_ = panels_.count() * (b + 1) / bands - first_panel_;
      const Panel first = panels_.at(first_panel_);
      const Panel last = panels_.at(first_panel_ + num_panels_ - 1);
      band_ = {first.begin, last.begin + last.rows - first.begin, 0};
      CHECK(band_.rows <= kBandRows);
      for (std::int64_t tile = range_.begin / kTileRows; tile < end_; tile += tiles_)
        multiply_tiles(tile, std::min(tiles_, end_ - tile));
    }
  }

 private:
  void multiply_tiles(std::int64_t first, std::int64_t count) {
    const std::int64_t last = first + count;
    for (std::int64_t begin = 0; begin < blocks_; begin += stretch_) {
      for (std::int64_t tile = first; tile < last; tile += kPassTiles) {
        // What comes after this: for the last tiles, what stands behind them, there or not.
        Part next = part(tile + kPassTiles, begin, last);
        if (next.tile >= last) {
          next = begin + stretch_ < blocks_ ? part(first, begin + stretch_, last)
                                            : part(last, 0, last + kPassTiles);
        }
        multiply_part(part(tile, begin, last), next,
                      sums() + (tile - first) * band_.rows * kTileRows);
      }
    }
  }

  Part part(std::int64_t tile, std::int64_t begin, std::int64_t last) const {
    return {tile, std::min<std::int64_t>(kPassTiles, last - tile), begin,
            std::min(stretch_, blocks_ - begin)};
  }
  const std::uint8_t* bytes_at(const Part& at) const {
    return range_.tiles + at.tile * bytes_ + at.begin * (bytes_ / blocks_);
  }
  float* sums() const { return reinterpret_cast<float*>(range_.room + kRecordsBytes); }

  // All panels of the band with a part.
  void multiply_part(const Part& at, const Part& next, float* sums) const {
    const bool last = at.begin + at.blocks == blocks_;
    const std::int64_t column = at.tile * kTileRows;
    const std::int64_t columns = at.tiles * kTileRows;
    const bool whole = range_.begin <= column && column + columns <= range_.end;
    QuantPass pass = {.tiles = bytes_at(at),
                      .tile_bytes = bytes_,
                      .x = nullptr,
                      .blocks = at.blocks,
                      .first = at.begin == 0,
                      .sums = sums,
                      .out = nullptr,
                      .out_stride = range_.out_stride,
                      .bias = range_.bias != nullptr ? range_.bias + column : nullptr,
                      .accumulate = range_.accumulate,
                      .ahead = {.at = bytes_at(next), .second = bytes_, .group = bytes_ / blocks_}};
    if (opens_) {
      pass.tiles = range_.room;
      pass.tile_bytes = at.blocks * record_bytes_;
      for (std::int64_t i = 0; i < at.tiles; ++i)
        open_(bytes_at(at) + i * bytes_, at.blocks, range_.room + i * pass.tile_bytes);
    }
    for (std::int64_t p = 0; p < num_panels_; ++p) {
      const Panel panel = panels_.at(first_panel_ + p);
      pass.x = range_.blocks + panel.begin * blocks_ + at.begin * panel.stride;
      pass.ahead.first = p * kVectorBytes;
      pass.ahead.step = num_panels_ * kVectorBytes;
      if (last && whole) pass.out = range_.out + panel.begin * range_.out_stride + column;
      table_->of[at.tiles - 1][panel.rows - 1](pass);
      pass.sums += panel.rows * columns;
    }
    for (std::int64_t i = 0; last && !whole && i < at.tiles; ++i)
      store_sums(range_, band_, at.tile + i, sums + i * kTileRows, columns);
  }

  const PackedRange& range_;
  const bool opens_;
  const std::int64_t blocks_, bytes_, end_;
  const Panels panels_;
  const PassTable* table_;
  OpenTile open_;
  std::int64_t record_bytes_, stretch_, tiles_;
  std::int64_t first_panel_ = 0;
  std::int64_t num_panels_ = 0;
  Panel band_ = {};
};

}  // namespace

void multiply_in_passes(const PackedKernels& kernels, const PackedRange& range) {
  CHECK(range.room != nullptr);
  Walk(kernels, range).run();
}

}  // namespace llorch::compute
