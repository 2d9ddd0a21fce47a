// Attention and the paged cache of every backend: against the reference, and the promises that need
// no oracle.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "compute/test_backends.h"
#include "compute/test_tensors.h"

namespace llorch::compute::test {
namespace {

// Relative to the largest magnitude of the whole result.
constexpr double kTolerance = 5e-6;

struct Case {
  std::int64_t heads = 4;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 64;
  std::int64_t block_tokens = 16;
  std::vector<std::int64_t> lengths = {23, 1, 40};  // tokens of each sequence
  std::int64_t rows_per_sequence = 5;               // its last tokens ask; fewer when it is shorter
  DType cache_dtype = DType::F32;
  std::int32_t window = 0;
  float softcap = 0;
  bool shuffle_blocks = true;
  std::int64_t ask_before_end = 0;  // the asking rows stop this many tokens before the end
  std::int64_t changed_tokens = 0;  // the last tokens of a sequence have other keys and values
  bool changed_to_nan = false;
  bool want_scores = false;
  std::int64_t only_row = -1;  // call with this row alone
};

struct Rows {
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> sequences;
};

Rows asking_rows(const Case& c) {
  Rows rows;
  for (std::size_t s = 0; s < c.lengths.size(); ++s) {
    const std::int64_t end = std::max<std::int64_t>(1, c.lengths[s] - c.ask_before_end);
    for (std::int64_t p = std::max<std::int64_t>(0, end - c.rows_per_sequence); p < end; ++p) {
      rows.positions.push_back(static_cast<std::int32_t>(p));
      rows.sequences.push_back(static_cast<std::int32_t>(s));
    }
  }
  return rows;
}

struct Paging {
  std::int64_t num_blocks = 0;
  std::int64_t blocks_max = 0;
  std::vector<std::int32_t> tables;  // (sequences, blocks_max)
};

Paging make_paging(const Case& c) {
  Paging paging;
  for (const std::int64_t length : c.lengths) {
    paging.blocks_max = std::max(paging.blocks_max, (length + c.block_tokens - 1) / c.block_tokens);
  }
  paging.num_blocks = paging.blocks_max * static_cast<std::int64_t>(c.lengths.size());
  paging.tables.resize(static_cast<std::size_t>(paging.num_blocks));
  std::iota(paging.tables.begin(), paging.tables.end(), 0);
  if (!c.shuffle_blocks) return paging;
  Random random(5);
  for (std::size_t i = paging.tables.size(); i > 1; --i) {
    std::swap(paging.tables[i - 1],
              paging.tables[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  }
  return paging;
}

// Writes all tokens of all sequences in one call.
void fill_cache(Device& device, const Case& c, const Paging& paging, const KvLayer& cache) {
  std::vector<float> keys;
  std::vector<float> values;
  std::vector<std::int32_t> slots;
  for (std::size_t s = 0; s < c.lengths.size(); ++s) {
    for (std::int64_t p = 0; p < c.lengths[s]; ++p) {
      const bool changed = p >= c.lengths[s] - c.changed_tokens;
      Random random(1000 * s + static_cast<std::uint64_t>(p) + (changed ? 500 : 0));
      for (std::int64_t i = 0; i < c.kv_heads * c.head_dim; ++i) {
        keys.push_back(random.number(2.0F));
        values.push_back(random.number());
        if (!changed || !c.changed_to_nan) continue;
        keys.back() = values.back() = std::numeric_limits<float>::quiet_NaN();
      }
      const std::int64_t at = static_cast<std::int64_t>(s) * paging.blocks_max + p / c.block_tokens;
      slots.push_back(static_cast<std::int32_t>(
          paging.tables[static_cast<std::size_t>(at)] * c.block_tokens + p % c.block_tokens));
    }
  }
  const auto rows = static_cast<std::int64_t>(slots.size());
  device.backend().write_kv({.keys = device.floats(keys, {rows, c.kv_heads, c.head_dim}),
                             .values = device.floats(values, {rows, c.kv_heads, c.head_dim}),
                             .slots = device.ints(slots),
                             .cache = cache});
}

std::vector<float> run(Backend& backend, const Case& c) {
  Device device(backend);
  const Paging paging = make_paging(c);
  const KvLayer cache = {
      device.zeros(c.cache_dtype, {paging.num_blocks, c.kv_heads, c.block_tokens, c.head_dim}),
      device.zeros(c.cache_dtype, {paging.num_blocks, c.kv_heads, c.block_tokens, c.head_dim})};
  fill_cache(device, c, paging, cache);
  Rows rows = asking_rows(c);
  Random random(7);
  const std::int64_t width = c.heads * c.head_dim;
  std::vector<float> q = random.numbers(static_cast<std::int64_t>(rows.positions.size()) * width);
  if (c.only_row >= 0) {
    const auto row = static_cast<std::size_t>(c.only_row);
    const auto begin = q.begin() + c.only_row * width;
    q = std::vector<float>(begin, begin + width);
    rows = {{rows.positions[row]}, {rows.sequences[row]}};
  }
  const auto num_rows = static_cast<std::int64_t>(rows.positions.size());
  const std::int64_t keys_max = paging.blocks_max * c.block_tokens;
  const TensorView out = device.output(num_rows, width, Layout::ColumnRange);
  const TensorView scores = device.zeros(DType::F32, {num_rows, c.heads, keys_max});
  std::vector<SequenceRun> runs;
  for (std::size_t row = 0; row < rows.positions.size(); ++row)
    add_row(runs, rows.sequences[row], rows.positions[row]);
  const TensorView tables =
      device.ints(paging.tables, {static_cast<std::int64_t>(c.lengths.size()), paging.blocks_max});
  backend.attention(
      {.q = device.matrix(q, num_rows, width, Layout::ColumnRange).split_heads(c.heads),
       .cache = cache,
       .positions = device.ints(rows.positions),
       .sequences = device.ints(rows.sequences),
       .block_tables = tables,
       .runs = runs,
       .scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim)),
       .window = c.window,
       .softcap = c.softcap,
       .out = out.split_heads(c.heads),
       .scores = c.want_scores ? scores : TensorView()});
  return device.read(c.want_scores ? scores : out);
}

constexpr StepLimits kAttentionLimits = {.rows = 64, .inputs = 512, .context = 1536};

class Attention : public WithBackend {
 protected:
  Attention() : WithBackend(kAttentionLimits) {}

  void expect_close(const Case& c, const std::string& what) {
    SCOPED_TRACE(what);
    const std::vector<float> expected = run(*reference_, c);
    const std::vector<float> found = run(*backend_, c);
    ASSERT_EQ(found.size(), expected.size());
    double largest = 0;
    for (const float value : expected) {
      if (std::isfinite(value)) largest = std::max(largest, std::abs(static_cast<double>(value)));
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (std::isinf(expected[i])) {
        ASSERT_EQ(found[i], expected[i]) << "value " << i;
      } else {
        ASSERT_NEAR(found[i], expected[i], kTolerance * largest) << "value " << i;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Every, Attention, testing::ValuesIn(backends_under_test()), label_of);

TEST_P(Attention, EqualsTheReferenceForEveryHeadShape) {
  for (const DType dtype : {DType::F32, DType::F16}) {
    for (const std::int64_t head_dim : {1, 16, 48, 64, 96, 100}) {
      for (const auto& [heads, kv_heads] : {std::pair{14, 2}, {4, 4}, {3, 1}}) {
        Case c;
        c.cache_dtype = dtype;
        c.head_dim = head_dim;
        c.heads = heads;
        c.kv_heads = kv_heads;
        expect_close(
            c, fmt::format("{} heads {}/{} of {}", tensor::name(dtype), heads, kv_heads, head_dim));
      }
    }
  }
}

// Quantised keys and values are whole blocks of 32. Both sides read the same blocks, so the
// tolerance is that of the other types.
TEST_P(Attention, EqualsTheReferenceForAQuantisedCache) {
  for (const std::int64_t head_dim : {32, 64, 96, 128, 160, 256}) {
    for (const auto& [heads, kv_heads] : {std::pair{6, 2}, {3, 1}, {16, 2}}) {
      for (const std::int64_t block_tokens : {5, 16}) {
        Case c;
        c.cache_dtype = DType::Q8_0;
        c.head_dim = head_dim;
        c.heads = heads;
        c.kv_heads = kv_heads;
        c.block_tokens = block_tokens;
        c.window = block_tokens == 5 ? 7 : 0;
        c.softcap = block_tokens == 5 ? 2.5F : 0;
        const std::string what =
            fmt::format("heads {}/{} of {}, blocks of {}", heads, kv_heads, head_dim, block_tokens);
        expect_close(c, what);
        c.want_scores = true;
        expect_close(c, what + ", scores");
      }
    }
  }
}

// The cache itself costs little: what comes out is close to what an exact cache gives.
TEST_P(Attention, AQuantisedCacheIsCloseToAnExactOne) {
  Case exact;
  Case quantised = exact;
  quantised.cache_dtype = DType::Q8_0;
  const std::vector<float> expected = run(*reference_, exact);
  const std::vector<float> found = run(*backend_, quantised);
  ASSERT_EQ(found.size(), expected.size());
  double largest = 0;
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    worst = std::max(worst, std::abs(static_cast<double>(found[i]) - expected[i]));
  }
  EXPECT_LT(worst, 0.01 * largest);
  EXPECT_GT(worst, 0) << "the cache was not quantised";
}

TEST_P(Attention, EqualsTheReferenceForWindowSoftcapAndBlockSize) {
  for (const std::int32_t window : {0, 1, 7, 16, 100}) {
    for (const float softcap : {0.0F, 2.5F}) {
      for (const std::int64_t block_tokens : {1, 5, 16, 64}) {
        Case c;
        c.window = window;
        c.softcap = softcap;
        c.block_tokens = block_tokens;
        const std::string what =
            fmt::format("window {} softcap {} blocks of {}", window, softcap, block_tokens);
        expect_close(c, what);
        c.want_scores = true;
        expect_close(c, what + ", scores");
      }
    }
  }
}

// Longer than what any backend looks at in one go.
TEST_P(Attention, EqualsTheReferenceForALongContext) {
  for (const std::int32_t window : {0, 200}) {
    for (const bool want_scores : {false, true}) {
      Case c;
      c.lengths = {300, 129, 128};
      c.window = window;
      c.want_scores = want_scores;
      expect_close(c, fmt::format("window {} scores {}", window, want_scores));
    }
  }
}

TEST_P(Attention, ShuffledBlocksEqualContiguousOnesBitForBit) {
  for (const DType dtype : {DType::F32, DType::F16, DType::Q8_0}) {
    Case shuffled;
    shuffled.cache_dtype = dtype;
    Case contiguous = shuffled;
    contiguous.shuffle_blocks = false;
    expect_same_bits(run(*backend_, shuffled), run(*backend_, contiguous), "paged");
    Case one_block = contiguous;
    one_block.block_tokens = 64;
    expect_same_bits(run(*backend_, shuffled), run(*backend_, one_block), "block size");
  }
}

TEST_P(Attention, TheFutureChangesNothing) {
  Case c;
  c.lengths = {23, 40};
  c.ask_before_end = 6;
  Case other = c;
  other.changed_tokens = 6;
  expect_same_bits(run(*backend_, other), run(*backend_, c), "future keys");
  // Rows that come after the change do see it, or this would prove nothing.
  c.ask_before_end = other.ask_before_end = 0;
  EXPECT_NE(run(*backend_, other), run(*backend_, c));
}

// Also where rows that come later are in the same call, and are no numbers.
TEST_P(Attention, AFutureOfNansChangesNothing) {
  for (const DType dtype : {DType::F32, DType::F16, DType::Q8_0}) {
    Case c;
    c.cache_dtype = dtype;
    c.lengths = {75};
    const std::vector<float> sound = run(*backend_, c);
    c.changed_tokens = 2;
    c.changed_to_nan = true;
    const std::vector<float> found = run(*backend_, c);
    const auto kept = static_cast<std::size_t>((c.rows_per_sequence - 2) * c.heads * c.head_dim);
    expect_same_bits(std::span(found).first(kept), std::span(sound).first(kept), "rows before");
    for (std::size_t i = kept; i < found.size(); ++i) ASSERT_TRUE(std::isnan(found[i])) << i;
  }
}

// A prompt in one call has the bits of its rows one after the other, across several tiles of keys.
TEST_P(Attention, APromptEqualsItsRowsOneByOne) {
  for (const DType dtype : {DType::F16, DType::Q8_0}) {
    for (const std::int32_t window : {0, 40}) {
      for (const auto& [heads, kv_heads] :
           {std::pair{14, 2}, {16, 2}, {6, 1}, {2, 2}, {8, 2}, {70, 1}}) {
        Case c;
        c.cache_dtype = dtype;
        c.heads = heads;
        c.kv_heads = kv_heads;
        c.head_dim = 32;
        c.window = window;
        c.softcap = window > 0 ? 2.0F : 0.0F;
        c.lengths = {150};
        c.rows_per_sequence = 150;
        const std::vector<float> together = run(*backend_, c);
        const auto width = static_cast<std::size_t>(c.heads * c.head_dim);
        for (const std::size_t row : {0U, 1U, 39U, 40U, 63U, 64U, 65U, 127U, 128U, 149U}) {
          c.only_row = static_cast<std::int64_t>(row);
          expect_same_bits(run(*backend_, c), std::span(together).subspan(row * width, width),
                           fmt::format("{} {}/{} heads, window {}, row {}", tensor::name(dtype),
                                       heads, kv_heads, window, row));
        }
      }
    }
  }
}

TEST_P(Attention, RowsDoNotDependOnTheirNeighboursOrThreads) {
  for (const DType dtype : {DType::F32, DType::F16, DType::Q8_0}) {
    Case c;
    c.cache_dtype = dtype;
    const std::vector<float> together = run(*backend_, c);
    const auto width = static_cast<std::size_t>(c.heads * c.head_dim);
    for (std::size_t row = 0; row < together.size() / width; ++row) {
      c.only_row = static_cast<std::int64_t>(row);
      expect_same_bits(run(*backend_, c), std::span(together).subspan(row * width, width),
                       "row alone");
    }
    c.only_row = -1;
    if (GetParam().threads == 0) continue;  // Not a backend with threads to choose.
    BackendConfig config = GetParam();
    config.threads = 2;
    const auto two_threads = make(config, kAttentionLimits);
    expect_same_bits(run(*two_threads, c), together, "two threads");
  }
}

// Chunks of keys are joined in one order, whoever attended them: a single row's by one thread or
// several, beside others or not, or among the rows of a prompt.
TEST_P(Attention, ALongContextHasOneResult) {
  for (const DType dtype : {DType::F16, DType::Q8_0}) {
    for (const auto& [heads, kv_heads] : {std::pair{8, 1}, {3, 1}, {14, 2}, {4, 4}, {12, 1}}) {
      Case c;
      c.cache_dtype = dtype;
      c.heads = heads;
      c.kv_heads = kv_heads;
      c.head_dim = 32;
      c.lengths = {1300, 40, 700};
      c.window = heads == 3 ? 900 : 0;
      c.rows_per_sequence = 1;
      const std::string what = fmt::format("{} heads {}/{}", tensor::name(dtype), heads, kv_heads);
      expect_close(c, what);
      const std::vector<float> found = run(*backend_, c);
      for (const int threads : {1, 2, 4, 8}) {
        if (GetParam().threads == 0) break;  // Not a backend with threads to choose.
        BackendConfig config = GetParam();
        config.threads = threads;
        expect_same_bits(run(*make(config, kAttentionLimits), c), found, what + ", threads");
      }
      c.rows_per_sequence = 30;
      const std::vector<float> prompt = run(*backend_, c);
      const auto width = static_cast<std::size_t>(heads * c.head_dim);
      for (const std::size_t row : {0U, 29U, 89U}) {
        c.only_row = static_cast<std::int64_t>(row);
        expect_same_bits(run(*backend_, c), std::span(prompt).subspan(row * width, width),
                         what + ", row alone");
      }
    }
  }
}

// Fourteen query heads share two key heads in runs of seven, not by turns.
TEST_P(Attention, QueryHeadsShareKeyHeadsInRuns) {
  Device device(*backend_);
  const std::vector<float> q(14 * 8, 0.5F);
  const std::vector<float> keys(2 * 8, 0.25F);
  std::vector<float> values(2 * 8, 1.0F);
  std::fill(values.begin() + 8, values.end(), 2.0F);
  const std::vector<std::int32_t> zero = {0};
  const KvLayer cache = {device.zeros(DType::F32, {1, 2, 4, 8}),
                         device.zeros(DType::F32, {1, 2, 4, 8})};
  backend_->write_kv({.keys = device.floats(keys, {1, 2, 8}),
                      .values = device.floats(values, {1, 2, 8}),
                      .slots = device.ints(zero),
                      .cache = cache});
  const TensorView out = device.output(1, 14 * 8, Layout::Tight);
  const std::vector<SequenceRun> runs = {
      {.sequence = 0, .first_row = 0, .rows = 1, .first_position = 0}};
  backend_->attention({.q = device.floats(q, {1, 14, 8}),
                       .cache = cache,
                       .positions = device.ints(zero),
                       .sequences = device.ints(zero),
                       .block_tables = device.ints(zero, {1, 1}),
                       .runs = runs,
                       .scale = 1.0F,
                       .out = out.split_heads(14),
                       .scores = {}});
  const std::vector<float> found = device.read(out);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(found[i], i / 8 < 7 ? 1.0F : 2.0F) << "head " << i / 8;
}

// The tolerance tells the declared form from its neighbours: what is declared is what is computed.
TEST_P(Attention, AnotherFormThanTheDeclaredOneIsSeen) {
  for (const DType dtype : {DType::F32, DType::F16, DType::Q8_0}) {
    Case c;
    c.cache_dtype = dtype;
    const std::vector<float> found = run(*backend_, c);
    const AttentionForm declared = backend_->attention_form(dtype);
    using enum InputForm;
    // A cache of halves has nothing to round.
    const InputForm cache = declared.cache == F16 || dtype == DType::F16 ? F32 : F16;
    const AttentionForm& d = declared;
    for (const AttentionForm& form : {AttentionForm{F16, d.weights, d.cache},
                                      {BF16, d.weights, d.cache},
                                      {Int8, d.weights, d.cache},
                                      {d.query, F16, d.cache},
                                      {d.query, BF16, d.cache},
                                      {d.query, d.weights, BF16},
                                      {d.query, d.weights, cache}}) {
      if (form == declared) continue;
      const auto other = make_reference_backend({.attention = [form](auto) { return form; }});
      double error = 0;
      const std::vector<float> expected = run(*other, c);
      for (std::size_t i = 0; i < found.size(); ++i)
        error = std::max(error, std::abs(static_cast<double>(found[i]) - double{expected[i]}));
      EXPECT_GT(error, 2 * kTolerance)
          << name(form.query) << ", " << name(form.weights) << ", " << name(form.cache);
    }
  }
}

}  // namespace
}  // namespace llorch::compute::test
