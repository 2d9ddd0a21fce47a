// Tokens by top-k, top-p and min-p: the ids that engine/sampler.cc chooses, bit for bit. Sums are
// of whole numbers, so nothing here depends on the order in which threads come.
//
// A vocabulary is passed over by many blocks twice: for its largest, and into bins (classes of
// weight, steps below the largest, or stretches of ids) from which follows who can be chosen at
// all. One block for each row does the rest, as a rule among a few candidates in shared memory.
#include <algorithm>

#include "compute/choose.h"
#include "compute/cuda/found_ids.h"
#include "compute/cuda/launch.cuh"
#include "compute/cuda/ranking.cuh"

namespace llorch::compute::cuda {
namespace {

constexpr int kChooseThreads = 1024;
constexpr int kChunk = 1024;   // ids that a block bins
constexpr int kListed = 2048;  // candidates in shared memory
constexpr int kDigits = 256;   // of a search
constexpr unsigned kAllLanes = 0xFFFFFFFFU;

struct Chosen {
  Ranked ranked;
  const std::int32_t* rules;  // (rows, kChoiceWords)
  std::int32_t* out;          // (rows)
  Sum* bins;                  // (rows, 2, kChoiceBins): weights, then counts
};

enum class Kind { TopK, TopP, Ids };

struct Rule {
  float temperature;
  int top_k;
  bool has_top_p;
  std::uint32_t top_p;
  Sum draw, least;

  __device__ static Rule at(const std::int32_t* words) {
    const auto word = [&](int i) { return static_cast<std::uint32_t>(words[i]); };
    return {__uint_as_float(word(0)),
            words[1],
            words[2] != 0,
            word(3),
            word(4) | (static_cast<Sum>(word(5)) << 32),
            word(6) | (static_cast<Sum>(word(7)) << 32)};
  }
  __device__ Kind kind() const {
    if (top_k > 0) return Kind::TopK;
    return has_top_p ? Kind::TopP : Kind::Ids;
  }
  // What counts of a weight in the draw.
  __device__ Sum drawn(Sum weight) const { return weight >= least ? weight : 0; }
};

__device__ int weight_class(Sum weight) {
  const int below = 64 - __clzll(static_cast<long long>(weight)) - 5;
  return below <= 0 ? static_cast<int>(weight) : (below << 4) + static_cast<int>(weight >> below);
}
// Below the logarithm of the least weight of a class, in units.
__device__ float class_floor(int of) {
  const int below = (of >> 4) - 1;
  const float least =
      of < 32 ? static_cast<float>(max(of, 1)) : ldexpf(static_cast<float>(16 + (of & 15)), below);
  return log2f(least) - 40.5F;
}

// Where a candidate belongs. Bins descend: the likely, or the low ids, are in the high ones.
struct Binner {
  Rule rule;
  Weigher weigh;
  int stretch;  // ids of a bin

  __device__ Binner(const Rule& by, float largest, int dim)
      : rule(by),
        weigh(Weigher::at(largest, by.temperature)),
        stretch((dim + kChoiceBins - 1) / kChoiceBins) {}
  // -1: never chosen.
  __device__ int operator()(float x, int id, Sum weight) const {
    switch (rule.kind()) {
      case Kind::TopK: {
        if (!(x > -INFINITY)) return -1;
        const float steps = __fmul_rn(__fsub_rn(weigh.max, x), 16.0F);
        return steps < kChoiceBins - 1 ? kChoiceBins - 1 - static_cast<int>(steps) : 0;
      }
      case Kind::TopP:
        return weight == 0 ? -1 : weight_class(weight);
      default:
        return rule.drawn(weight) == 0 ? -1 : kChoiceBins - 1 - id / stretch;
    }
  }
};

__global__ void bin_kernel(Chosen args) {
  after_previous();
  __shared__ Sum weights[kChoiceBins];
  __shared__ unsigned counts[kChoiceBins];
  const int row = static_cast<int>(blockIdx.y);
  const Sum best = best_of(args.ranked, row);
  const Rule rule = Rule::at(args.rules + row * kChoiceWords);
  if (rule.temperature == 0 || !is_token(best)) return;
  for (int i = static_cast<int>(threadIdx.x); i < kChoiceBins; i += kBlockThreads) {
    weights[i] = 0;
    counts[i] = 0;
  }
  __syncthreads();
  const Binner bin(rule, value_of(best), args.ranked.dim);
  const float* x = args.ranked.x + row * args.ranked.x_stride;
  const int begin = static_cast<int>(blockIdx.x) * kChunk;
  const int end = min(args.ranked.dim, begin + kChunk);
  for (int id = begin + static_cast<int>(threadIdx.x); id < end; id += kBlockThreads) {
    const Sum weight = bin.weigh(x[id]);
    const int found = bin(x[id], id, weight);
    if (found < 0) continue;
    atomicAdd(&weights[found], weight);
    atomicAdd(&counts[found], 1U);
  }
  __syncthreads();
  Sum* bins = args.bins + row * 2 * kChoiceBins;
  for (int i = static_cast<int>(threadIdx.x); i < kChoiceBins; i += kBlockThreads) {
    if (counts[i] == 0) continue;
    atomicAdd(&bins[i], weights[i]);
    atomicAdd(&bins[kChoiceBins + i], static_cast<Sum>(counts[i]));
  }
}

struct Item {
  std::uint32_t key;  // ordered as logits are
  int id;
  Sum weight;
};
struct Place {
  int bin;
  Sum before;  // in the bins above
};
struct Found {
  std::uint32_t key;
  Sum before;  // of keys above
};

struct Shared {
  Item list[kListed];
  Sum digits[kDigits];
  Place place;
  Sum total;
  Sum num_items;
  int num_listed;
};

// The first bin from the top with which the sum is `needed` or more; the lowest where it never is.
// All threads call.
__device__ Place walk_down(const Sum* bins, int num_bins, Sum needed, Shared& shared) {
  const int lane = static_cast<int>(threadIdx.x);
  if (lane < kWarpThreads) {
    const int each = num_bins / kWarpThreads;
    const int top = num_bins - 1 - lane * each;
    Sum mine = 0;
    for (int i = 0; i < each; ++i) mine += bins[top - i];
    Sum reached = mine;
    for (int step = 1; step < kWarpThreads; step *= 2) {
      const Sum other = __shfl_up_sync(kAllLanes, reached, step);
      if (lane >= step) reached += other;
    }
    const unsigned enough = __ballot_sync(kAllLanes, reached >= needed);
    if (lane == (enough != 0 ? __ffs(static_cast<int>(enough)) - 1 : kWarpThreads - 1)) {
      Place place{top, reached - mine};
      while (place.bin > top - each + 1 && place.before + bins[place.bin] < needed)
        place.before += bins[place.bin--];
      shared.place = place;
    }
  }
  __syncthreads();
  const Place place = shared.place;
  __syncthreads();
  return place;
}

// The candidates of a row: those of some bins.
struct Items {
  const float* x;
  int dim;
  const Binner& bin;
  int lowest, highest;  // bins
  float floor;          // of top-p: nothing below is in those bins
  const Item* list;     // null: too many to be listed
  int num_listed;

  // use(item, is_one) in every thread of the block equally often.
  template <class Use>
  __device__ void each(const Use& use) const {
    const int count = list != nullptr ? num_listed : dim;
    for (int base = 0; base < count; base += kChooseThreads) {
      const int at = base + static_cast<int>(threadIdx.x);
      Item item{};
      const bool is_one = at < count && (list != nullptr ? take(at, item) : find(at, item));
      use(item, is_one);
    }
  }

 private:
  __device__ bool take(int at, Item& item) const {
    item = list[at];
    return true;
  }
  __device__ bool find(int id, Item& item) const {
    const float value = x[id];
    if (bin.rule.kind() == Kind::TopP &&
        __fmul_rn(__fsub_rn(value, bin.weigh.max), bin.weigh.factor) < floor)
      return false;
    item = {key_of(value), id, bin.weigh(value)};
    const int found = bin(value, id, item.weight);
    return found >= lowest && found <= highest;
  }
};

// Adds for a whole warp; most often all of it goes to one place.
__device__ void add_up(Sum* places, unsigned place, Sum amount) {
  const unsigned some = __ballot_sync(kAllLanes, amount != 0);
  if (some == 0) return;
  const unsigned common = __shfl_sync(kAllLanes, place, __ffs(static_cast<int>(some)) - 1);
  if (__all_sync(kAllLanes, amount == 0 || place == common) != 0) {
    const Sum sum = warp_total(amount);
    if (threadIdx.x % kWarpThreads == 0) atomicAdd(&places[common], sum);
  } else if (amount != 0) {
    atomicAdd(&places[place], amount);
  }
}

template <class Measure>
__device__ Sum total_of(const Items& items, const Measure& measure, Shared& shared) {
  if (threadIdx.x == 0) shared.total = 0;
  __syncthreads();
  items.each(
      [&](const Item& item, bool is_one) { add_up(&shared.total, 0, is_one ? measure(item) : 0); });
  __syncthreads();
  const Sum total = shared.total;
  __syncthreads();
  return total;
}

// Among items from the highest key down: the first key with which they measure `needed` or more,
// needed > 0; they do in all.
template <class Key, class Measure>
__device__ Found search(const Items& items, const Key& key, const Measure& measure, Sum needed,
                        Shared& shared) {
  Found found{0, 0};
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (threadIdx.x < kDigits) shared.digits[threadIdx.x] = 0;
    __syncthreads();
    items.each([&](const Item& item, bool is_one) {
      const std::uint32_t at = key(item);
      // Of 64 bits, so that the first time nothing is left to compare.
      const bool agrees = (static_cast<Sum>(at ^ found.key) >> (shift + 8)) == 0;
      add_up(shared.digits, (at >> shift) % kDigits, is_one && agrees ? measure(item) : 0);
    });
    __syncthreads();
    const Place place = walk_down(shared.digits, kDigits, needed - found.before, shared);
    found.key |= static_cast<std::uint32_t>(place.bin) << shift;
    found.before += place.before;
  }
  return found;
}

__device__ std::uint32_t by_rank(const Item& item) {
  return item.key;
}
__device__ std::uint32_t by_id(const Item& item) {
  return ~static_cast<std::uint32_t>(item.id);
}
__device__ Sum weight_in(const Item& item) {
  return item.weight;
}

// A number below the total.
__device__ Sum draw_below(Sum total, Sum draw) {
  constexpr int kDrawBits = 53;
  return (__umul64hi(total, draw) << (64 - kDrawBits)) | ((total * draw) >> kDrawBits);
}
// A share of it, at least 1: somebody is always kept.
__device__ Sum share_of(Sum total, std::uint32_t share) {
  const Sum part = (__umul64hi(total, share) << 32) | ((total * share) >> 32);
  return part > 0 ? part : 1;
}

// The most probable of some items: all above a key, and so many that have it.
struct Prefix {
  std::uint32_t key;
  Sum ties;
};

// Draws among the candidates above the border, in the order of ids, and then those of a prefix, by
// rank.
template <class Above>
__device__ int draw_among(const Items& items, const Above& is_above, const Prefix& prefix,
                          Shared& shared) {
  const Binner& bin = items.bin;
  const auto drawn = [&](const Item& item) { return bin.rule.drawn(item.weight); };
  const auto above = [&](const Item& item) { return is_above(item) ? drawn(item) : 0; };
  const auto below = [&](const Item& item) { return is_above(item) ? 0 : drawn(item); };
  const Sum upper = total_of(items, above, shared);
  const Sum lower = total_of(
      items, [&](const Item& item) { return item.key > prefix.key ? below(item) : 0; }, shared);
  const Sum of_tie = bin.rule.drawn(bin.weigh(value_of_key(prefix.key)));
  const Sum target = draw_below(upper + lower + prefix.ties * of_tie, bin.rule.draw);
  if (target < upper) return static_cast<int>(~search(items, by_id, above, target + 1, shared).key);
  const Sum rest = target - upper;
  const Found found = search(items, by_rank, below, rest + 1, shared);
  const Sum tie = (rest - found.before) / bin.rule.drawn(bin.weigh(value_of_key(found.key)));
  const auto is_tie = [&](const Item& item) -> Sum {
    return !is_above(item) && item.key == found.key ? 1 : 0;
  };
  return static_cast<int>(~search(items, by_id, is_tie, tie + 1, shared).key);
}

__device__ Prefix prefix_of_weight(const Items& items, const Found& found, Sum needed) {
  const Sum weight = items.bin.weigh(value_of_key(found.key));
  return {found.key, (needed - found.before + weight - 1) / weight};
}

__device__ int choose_top_k(const Items& items, Sum num_items, Shared& shared) {
  const Rule& rule = items.bin.rule;
  const Sum wanted = min(num_items, static_cast<Sum>(rule.top_k));
  const Found last = search(
      items, by_rank, [](const Item&) -> Sum { return 1; }, wanted, shared);
  Prefix prefix{last.key, wanted - last.before};
  if (rule.has_top_p) {
    const Sum above = total_of(
        items, [&](const Item& item) { return item.key > prefix.key ? item.weight : 0; }, shared);
    const Sum total = above + prefix.ties * items.bin.weigh(value_of_key(prefix.key));
    const Sum needed = share_of(total, rule.top_p);
    prefix = prefix_of_weight(items, search(items, by_rank, weight_in, needed, shared), needed);
  }
  return draw_among(
      items, [](const Item&) { return false; }, prefix, shared);
}

// `needed` of the weights of the lowest bin.
__device__ int choose_top_p(const Items& items, Sum needed, Shared& shared) {
  const auto is_above = [&](const Item& item) { return weight_class(item.weight) > items.lowest; };
  const auto at_border = [&](const Item& item) { return is_above(item) ? 0 : item.weight; };
  const Found found = search(items, by_rank, at_border, needed, shared);
  return draw_among(items, is_above, prefix_of_weight(items, found, needed), shared);
}

// A block for each row.
__global__ void __launch_bounds__(kChooseThreads) choose_kernel(Chosen args) {
  after_previous();
  __shared__ Shared shared;
  const int row = static_cast<int>(blockIdx.x);
  const Sum best = best_of(args.ranked, row);
  const Rule rule = Rule::at(args.rules + row * kChoiceWords);
  if (rule.temperature == 0 || !is_token(best)) {
    if (threadIdx.x == 0) args.out[row] = is_token(best) ? place_of(best) : -1;
    return;
  }
  const Binner bin(rule, value_of(best), args.ranked.dim);
  const Sum* weights = args.bins + row * 2 * kChoiceBins;
  const Sum* counts = weights + kChoiceBins;
  if (threadIdx.x == 0) {
    shared.total = 0;
    shared.num_items = 0;
    shared.num_listed = 0;
  }
  __syncthreads();
  static_assert(kChoiceBins % kWarpThreads == 0 && kChoiceBins <= kChooseThreads);
  if (threadIdx.x < kChoiceBins) add_up(&shared.total, 0, weights[threadIdx.x]);
  __syncthreads();
  const Sum total = shared.total;
  const Kind kind = rule.kind();
  const Sum target = draw_below(total, rule.draw);  // of Kind::Ids
  const Sum needed = kind == Kind::TopK   ? static_cast<Sum>(rule.top_k)
                     : kind == Kind::TopP ? share_of(total, rule.top_p)
                                          : target + 1;
  const Place border =
      walk_down(kind == Kind::TopK ? counts : weights, kChoiceBins, needed, shared);
  const int highest = kind == Kind::Ids ? border.bin : kChoiceBins - 1;
  if (const int i = static_cast<int>(threadIdx.x); i < kChoiceBins)
    add_up(&shared.num_items, 0, i >= border.bin && i <= highest ? counts[i] : 0);
  __syncthreads();
  const Sum num_items = shared.num_items;
  Items items{.x = args.ranked.x + row * args.ranked.x_stride,
              .dim = args.ranked.dim,
              .bin = bin,
              .lowest = border.bin,
              .highest = highest,
              .floor = class_floor(border.bin),
              .list = nullptr,
              .num_listed = 0};
  if (num_items <= kListed) {
    items.each([&](const Item& item, bool is_one) {
      if (is_one) shared.list[atomicAdd(&shared.num_listed, 1)] = item;
    });
    __syncthreads();
    items.list = shared.list;
    items.num_listed = shared.num_listed;
  }
  int id = 0;
  if (kind == Kind::TopK) {
    id = choose_top_k(items, num_items, shared);
  } else if (kind == Kind::TopP) {
    id = choose_top_p(items, needed - border.before, shared);
  } else {
    id = static_cast<int>(~search(items, by_id, weight_in, needed - border.before, shared).key);
  }
  if (threadIdx.x == 0) args.out[row] = id;
}

}  // namespace

void launch_choose(const ChooseArgs& args, void* workspace, const Queue& queue) {
  const std::int64_t rows = args.x.rows();
  auto* words = static_cast<Sum*>(workspace);
  const Chosen chosen{.ranked = {.x = static_cast<const float*>(args.x.data),
                                 .x_stride = args.x.row_stride,
                                 .dim = static_cast<int>(args.x.dims[1]),
                                 .ranks = words,
                                 .cleared = words + rows * kDrawBlocks,
                                 .num_cleared = 2 * kChoiceBins},
                      .rules = static_cast<const std::int32_t*>(args.rules.data),
                      .out = static_cast<std::int32_t*>(args.out.data),
                      .bins = words + rows * kDrawBlocks};
  const std::int64_t chunks = (args.x.dims[1] + kChunk - 1) / kChunk;
  launch("choose", rank_kernel<>, queue, kDrawBlocks, rows, kBlockThreads, chosen.ranked);
  launch("choose", bin_kernel, queue, chunks, rows, kBlockThreads, chosen);
  launch("choose", choose_kernel, queue, rows, 1, kChooseThreads, chosen);
}

}  // namespace llorch::compute::cuda
