#include "worker/memory_plan.h"

#include <bit>
#include <memory>
#include <vector>

#include "base/host_limits.h"
#include "compute/sizing.h"
#include "contract/backend_kind.h"
#include "contract/model_entry.h"
#include "tokenizer/size_estimate.h"
#include "worker/runner_setup.h"

namespace llorch::worker {
namespace {

// Measured (docs/memory.md): code and data that a serving process touches, its own threads and
// buffers; and what each thread of computation adds.
constexpr std::int64_t kProgramBytes = std::int64_t{12'600} << 10;
constexpr std::int64_t kThreadBytes = 32 << 10;
// What requests hold while they are answered grows with the vectors of embeddings.
constexpr std::int64_t kRequestBytesPerDim = 1 << 10;

std::int64_t table_bytes(std::int64_t entries, std::int64_t entry_bytes) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(2 * entries + 2))) *
         entry_bytes;
}

// Tokenizer, texts of all ids, the table for JSON output, and what sampling keeps for each id.
std::int64_t vocabulary_bytes(const tokenizer::TokenizerSize& size) {
  constexpr std::int64_t kBytesPerPiece = 90;
  constexpr std::int64_t kSearchBytesPerPiece = 52;
  // More merges than pieces are SentencePiece's, which have to be found first.
  const std::int64_t search = size.merges > size.pieces ? kSearchBytesPerPiece * size.pieces : 0;
  return table_bytes(size.pieces, 8) + table_bytes(size.merges, 16) + kBytesPerPiece * size.pieces +
         search;
}

Result<tokenizer::TokenizerSize> measure(const WorkerOptions& options,
                                         const formats::WeightFile& file) {
  if (options.model == contract::kBuiltinModel) return tokenizer::measure_gguf(file.metadata());
  return tokenizer::measure_tokenizer(options.model);
}

}  // namespace

Result<contract::MemoryNeed> plan_memory(const WorkerOptions& options,
                                         std::span<const std::string> devices) {
  const Result<OpenedModel> opened = open_model(options);
  if (!opened.ok()) return opened.error();
  const Result<tokenizer::TokenizerSize> vocabulary = measure(options, *opened->file);
  if (!vocabulary.ok()) return vocabulary.error();
  std::vector<std::unique_ptr<compute::Backend>> backends;
  std::vector<const compute::SizingBackend*> sizes;  // the same
  for (const std::string& device : devices) {
    Result<std::unique_ptr<compute::SizingBackend>> made =
        compute::make_sizing_backend(device, {.threads = options.threads});
    if (!made.ok()) return made.error();
    sizes.push_back(made->get());
    backends.push_back(made.take());
  }
  const Result<ModelParts> parts = load_parts(*opened, backends);
  if (!parts.ok()) return parts.error();
  const model::ModelConfig& config = opened->plan.config;
  std::vector<contract::CardNeed> cards;
  for (std::size_t i = 0; i < devices.size(); ++i)
    cards.push_back({.device = devices[i], .weights_bytes = sizes[i]->bytes()});
  const Result<MadeRunner> made = make_runner(options, *parts, backends);
  if (!made.ok()) return made.error();
  const std::int32_t blocks = made->runner->limits().num_blocks;
  const bool is_host = devices.front() == contract::kCpu;

  contract::MemoryNeed need;
  std::int64_t host_scratch = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    contract::CardNeed& card = cards[i];
    card.kv_bytes = made->parts[i]->cache().bytes();
    card.scratch_bytes = sizes[i]->bytes() - card.weights_bytes - card.kv_bytes;
    card.runtime_bytes = sizes[i]->context_bytes();
    need.weights_bytes += card.weights_bytes;
    need.kv_bytes += card.kv_bytes;
    need.scratch_bytes += card.scratch_bytes;
    need.runtime_bytes += card.runtime_bytes;
    need.host_bytes += sizes[i]->host_bytes();
    host_scratch += made->parts[i]->buffers().host_bytes();
  }
  need.context = config.context_length;
  need.slots = options.max_batch;
  need.kv_type = kv_name(options.kv_dtype);
  need.kv_bytes_per_token = need.kv_bytes / blocks / contract::kCacheBlockTokens;
  if (options.kv_dtype != tensor::DType::Q8_0) {
    const Result<std::int64_t> smaller =
        model::KvStorage::block_bytes(config, contract::kCacheBlockTokens, tensor::DType::Q8_0);
    if (smaller.ok()) need.kv_q8_0_bytes = *smaller * blocks;
  }
  const int threads = options.threads > 0 ? options.threads : base::usable_cores();
  const std::int64_t process = kProgramBytes + vocabulary_bytes(*vocabulary) +
                               kThreadBytes * threads + kRequestBytesPerDim * config.hidden_dim;
  if (is_host) {
    need.scratch_bytes += host_scratch;
    need.runtime_bytes = process;
  } else {
    need.host_bytes += process + host_scratch;
  }
  if (cards.size() > 1) need.cards = std::move(cards);
  return need;
}

}  // namespace llorch::worker
