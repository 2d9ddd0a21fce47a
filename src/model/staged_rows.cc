#include "model/staged_rows.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace llorch::model {

std::int64_t widest_table(const BatchPlan& plan, std::int32_t blocks_max) {
  constexpr std::size_t kLeast = 16;
  std::size_t widest = kLeast;
  for (const std::span<const std::int32_t> table : plan.block_tables)
    widest = std::max(widest, std::bit_ceil(table.size()));
  for (const std::span<const std::int32_t> table : plan.block_tables)
    CHECK(table.size() <= static_cast<std::size_t>(blocks_max));
  return std::min<std::int64_t>(static_cast<std::int64_t>(widest), blocks_max);
}

void stage_rows(const BatchPlan& plan, const ModelConfig& config, const KvStorage& cache,
                std::int64_t num_found, std::vector<std::int32_t>& staging) {
  for (const BatchRow& row : plan.rows) {
    if (row.awaited >= 0) {
      CHECK(row.awaited < num_found);
      staging.push_back(-1 - row.awaited);
      continue;
    }
    const auto num_given = static_cast<std::int64_t>(plan.embeddings.size()) / config.hidden_dim;
    CHECK(row.token >= 0 && row.token < (row.is_embedding ? num_given : config.vocab_size));
    staging.push_back(row.is_embedding ? 0 : row.token);
  }
  for (const BatchRow& row : plan.rows) {
    CHECK(row.position >= 0 && row.position < config.context_length);
    staging.push_back(row.position);
  }
  for (const BatchRow& row : plan.rows) {
    CHECK(row.sequence >= 0 && std::cmp_less(row.sequence, plan.block_tables.size()));
    const std::span<const std::int32_t> table =
        plan.block_tables[static_cast<std::size_t>(row.sequence)];
    const auto index = static_cast<std::size_t>(row.position / cache.block_tokens());
    CHECK(index < table.size() && table[index] >= 0 && table[index] < cache.num_blocks());
    staging.push_back(table[index] * cache.block_tokens() + row.position % cache.block_tokens());
  }
}

}  // namespace llorch::model
