#include "compute/cpu/attention_tasks.h"

#include <algorithm>
#include <bit>

#include "compute/cpu/kernels.h"

namespace llorch::compute {
namespace {

std::int64_t share_up(std::int64_t count, std::int64_t by) {
  return (count + by - 1) / by;
}

// The chunks of keys that a row sees.
struct Chunks {
  std::int64_t first, count;
};
Chunks chunks_of(const AttentionShape& shape, const SequenceRun& run) {
  const std::int64_t position = run.first_position;
  const std::int64_t from =
      shape.window > 0 ? std::max<std::int64_t>(0, position - shape.window + 1) : 0;
  const std::int64_t first = from / kKeyChunk;
  return {first, position / kKeyChunk + 1 - first};
}

class Planner {
 public:
  Planner(const AttentionShape& shape, int threads, std::span<float> room, AttentionPlan& plan)
      : shape_(shape), threads_(threads), room_(room), plan_(plan) {
    heads_ = std::min(shape.group, kQueryTile);
    const auto padded =
        static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(heads_)));
    together_ = std::min(kQueryTile / padded, shape.kv_heads);
  }

  void plan(std::span<const SequenceRun> runs) {
    std::int64_t chunks = 0;  // of single rows, with all their heads
    std::int64_t tiles = 0;   // of other rows
    for (const SequenceRun& run : runs) {
      if (run.rows == 1) {
        chunks += chunks_of(shape_, run).count * num_spans();
      } else {
        tiles += num_tiles(run, heads_) * shape_.kv_heads;
      }
    }
    // Scores are told for one key head.
    walks_ = !shape_.tells_scores && shape_.group <= kQueryTile &&
             (threads_ == 1 || chunks + tiles >= std::int64_t{2} * threads_);
    if (!walks_) take_groups_apart(runs);
    piece_ = threads_ == 1 ? INT64_MAX : std::max<std::int64_t>(1, chunks / (8 * threads_));
    longest_ = threads_ == 1 ? INT64_MAX : chunks / num_spans() / (2 * threads_);
    for (const SequenceRun& run : runs) {
      if (run.rows == 1 && walks_) {
        add_row(run);
      } else {
        add_tiles(run);
      }
    }
  }

 private:
  // Key heads that one task takes together.
  std::int64_t num_spans() const { return share_up(shape_.kv_heads, together_); }

  static std::int64_t num_tiles(const SequenceRun& run, std::int64_t heads) {
    return share_up(run.rows, std::max<std::int64_t>(1, kQueryTile / heads));
  }

  void take_groups_apart(std::span<const SequenceRun> runs) {
    const auto num_tasks = [&](std::int64_t heads) {
      std::int64_t tiles = 0;
      for (const SequenceRun& run : runs) tiles += num_tiles(run, heads);
      return tiles * shape_.kv_heads * share_up(shape_.group, heads);
    };
    while (heads_ > 1 && num_tasks(heads_) < threads_) heads_ = (heads_ + 1) / 2;
  }

  void add_tiles(const SequenceRun& run) {
    const std::int64_t tiles = num_tiles(run, heads_);
    for (std::int64_t index = 0; index < tiles; ++index) {
      const std::int64_t begin = run.rows * index / tiles;
      for (std::int64_t kv_head = 0; kv_head < shape_.kv_heads; ++kv_head) {
        for (std::int64_t head = 0; head < shape_.group; head += heads_) {
          plan_.tasks.push_back({.sequence = run.sequence,
                                 .first_row = run.first_row + begin,
                                 .rows = run.rows * (index + 1) / tiles - begin,
                                 .first_position = run.first_position + begin,
                                 .first_head = kv_head * shape_.group + head,
                                 .kv_heads = 1,
                                 .heads = std::min(heads_, shape_.group - head)});
        }
      }
    }
  }

  void add_row(const SequenceRun& run) {
    const Chunks chunks = chunks_of(shape_, run);
    const std::int64_t stride = shape_.kv_heads * shape_.group * part_floats(shape_.head_dim);
    const std::int64_t floats = chunks.count * stride;
    float* parts = nullptr;
    if (chunks.count > std::max(piece_, longest_)) {
      if (floats > std::ssize(room_)) return add_tiles(run);
      parts = room_.data();
      room_ = room_.subspan(static_cast<std::size_t>(floats));
      plan_.joins.push_back({run.first_row, parts, stride, chunks.count});
    }
    const std::int64_t pieces = parts == nullptr ? 1 : share_up(chunks.count, piece_);
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const std::int64_t begin = chunks.count * piece / pieces;
      for (std::int64_t kv_head = 0; kv_head < shape_.kv_heads; kv_head += together_) {
        const std::int64_t first_head = kv_head * shape_.group;
        plan_.tasks.push_back({.sequence = run.sequence,
                               .first_row = run.first_row,
                               .rows = 1,
                               .first_position = run.first_position,
                               .first_head = first_head,
                               .kv_heads = std::min(together_, shape_.kv_heads - kv_head),
                               .heads = shape_.group});
        if (parts == nullptr) continue;
        AttentionTask& task = plan_.tasks.back();
        task.parts = parts + begin * stride + first_head * part_floats(shape_.head_dim);
        task.part_stride = stride;
        task.first_chunk = chunks.first + begin;
        task.num_chunks = chunks.count * (piece + 1) / pieces - begin;
      }
    }
  }

  const AttentionShape& shape_;
  const int threads_;
  std::span<float> room_;
  AttentionPlan& plan_;
  std::int64_t together_ = 1;
  std::int64_t heads_ = 1;    // of a key head, in a tile
  bool walks_ = false;        // single rows take key heads together
  std::int64_t piece_ = 0;    // chunks of a task
  std::int64_t longest_ = 0;  // chunks of a row that stays whole
};

}  // namespace

void plan_attention(const AttentionShape& shape, std::span<const SequenceRun> runs, int threads,
                    std::span<float> room, AttentionPlan& plan) {
  plan.tasks.clear();
  plan.joins.clear();
  Planner(shape, threads, room, plan).plan(runs);
}

std::int64_t attention_room(std::int64_t context, std::int64_t inputs, int threads) {
  constexpr std::int64_t kFloats = std::int64_t{512} << 10;  // two MiB
  constexpr std::int64_t kMost = std::int64_t{1} << 28;
  if (threads == 1 || context <= kKeyChunk) return 0;
  const std::int64_t chunks = share_up(context, kKeyChunk);
  if (chunks > kMost || inputs > kMost) return kMost;
  // The heads of a row are half as wide as the widest input at most (elsewhere fewer rows have
  // room), and parts a quarter wider than their values.
  const std::int64_t row = std::min(kMost, chunks * inputs * 5 / 8);
  return std::min(std::max(row, kFloats), 2 * threads * row);
}

}  // namespace llorch::compute
