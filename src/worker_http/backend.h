// InferenceBackend: what the worker's HTTP API needs of a model, in text. The platform seam: behind
// it stand tokenizer, chat template and engine (worker/), or a recording fake (tests).
//
// What takes time in proportion to a request (prepare, render_chat, tokenize, detokenize) is called
// on work threads and keeps to the WorkLimit that it is given. Nothing else blocks: those calls may
// come from io threads and return within milliseconds. Listeners are called later, on the engine's
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/nvml.h"
#include "base/result.h"
#include "base/work_limit.h"
#include "contract/inference.h"
#include "openai/answer_style.h"
#include "openai/generation.h"

namespace llorch::worker_http {

using openai::AnswerStyle;
using openai::GenerationResult;
using openai::OutputFormat;
using openai::TextPiece;
using openai::TokenProbability;
using openai::TokenReport;

// What prepare() made of a request: ids and a compiled format. Immutable, so the choices of a
// request share one.
class PreparedRequest {
 public:
  virtual ~PreparedRequest() = default;
  virtual std::int64_t prompt_tokens() const = 0;
};
using PreparedPtr = std::shared_ptr<const PreparedRequest>;

// A request that cannot be served as it is, and which part of it is to blame.
struct PrepareError {
  enum class Blame : std::uint8_t {
    Other,      // the error's code says
    Context,    // prompt, or prompt and max_tokens, are longer than the context
    MaxTokens,  // max_tokens alone is more than the context
    Format,     // a schema that the output cannot be held to
    Told,       // what was said elsewhere is not what this request can have said
  };
  Error error;
  Blame blame = Blame::Other;
};
using Preparation = std::variant<PreparedPtr, PrepareError>;

struct TextRequest : openai::GenerationSettings {
  using Prompt = openai::Prompt;

  std::string job_id;
  openai::Prompt prompt;
  std::vector<std::int32_t> told;  // ids that this very request has made elsewhere
  std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
  PreparedPtr prepared;  // of prompt, max_tokens and format, which nobody looks at once it is there
};

// Hears of one request, on the engine's thread and in this order: on_started, on_told (where the
// request has told ids), on_text…, on_end (exactly once; on_started may be missing when it fails
// before). Must be quick.
class TextListener {
 public:
  virtual ~TextListener() = default;
  virtual void on_started(const contract::StartedEvent& started) = 0;
  virtual void on_told(openai::ToldText told) = 0;
  // False: nobody reads this any more, stop computing.
  virtual bool on_text(TextPiece piece) = 0;
  // StopReason::Cancelled comes as Error Cancelled, a passed deadline as DeadlineExceeded.
  virtual void on_end(GenerationResult result) = 0;
};

struct Submission {
  TextRequest request;  // prepared
  std::shared_ptr<TextListener> listener;
};

struct EmbedRequest {
  std::variant<std::string, std::vector<std::int32_t>> input;  // text as users write it, or ids
  PreparedPtr prepared;                                        // of the input
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

class EmbeddingListener {
 public:
  virtual ~EmbeddingListener() = default;
  struct Embedding {
    std::vector<float> values;
    std::int64_t prompt_tokens = 0;
  };
  virtual void on_end(Result<Embedding> result) = 0;
};

// Where a model lies in the memory of GPUs.
struct VramInfo {
  std::int32_t sm = 0;               // compute capability: 90 is 9.0
  std::string cuda_runtime_version;  // "13.0"
  std::int64_t total_bytes = 0;      // that the GPUs have
  std::int64_t weights_bytes = 0;
  std::int64_t cache_bytes = 0;
  std::int64_t workspace_bytes = 0;
  bool is_resident = false;  // weights and cache are there, and nowhere else

  std::int64_t taken_bytes() const { return weights_bytes + cache_bytes + workspace_bytes; }
};

// Never changes once the model is loaded.
struct ModelInfo {
  std::string id;  // the name clients use: --model's file or folder name, or general.name
  std::string architecture;
  std::string quant_kind;      // "Q4_K_M", "F16"
  std::string tokenizer_kind;  // "bpe", "sentencepiece", …
  std::string backend;         // "cpu", "cuda"
  std::string device;
  std::string device_class;  // contract::HealthReport
  std::string build;
  std::string memory_type;  // "cpu", "vram-only"
  std::int32_t vocab_size = 0;
  std::int32_t context_length = 0;
  std::int64_t memory_bytes = 0;
  std::optional<VramInfo> vram;  // none: it lies in the host's
  std::int64_t parameters = 0;
  std::int64_t created = 0;  // seconds since the epoch: the file's time
  bool has_chat_template = false;
  bool fills_in_middle = false;      // prompts may have a suffix
  std::int32_t embedding_width = 0;  // of a vector; 0: not known
  AnswerStyle style;                 // how it calls tools and thinks
  std::vector<std::string> aliases;  // further names that clients may use
};

struct LoadStatus {
  enum class State : std::uint8_t { Loading, Healthy, Unhealthy, Draining };
  State state = State::Loading;
  double load_progress = 0;  // 0..1
  std::string reason;        // with Unhealthy
};

// Counters since the start and gauges of now; for /health and /metrics.
struct WorkerStats {
  std::int64_t queue_depth = 0;
  std::int64_t slots_total = 0;
  std::int64_t slots_busy = 0;
  std::int64_t kv_blocks_total = 0;
  std::int64_t kv_blocks_free = 0;
  std::optional<std::int64_t> last_token_age_ms;
  double uptime_seconds = 0;
  std::int64_t prompt_tokens_total = 0;
  std::int64_t cached_tokens_total = 0;
  std::int64_t output_tokens_total = 0;
  std::int64_t steps_total = 0;
  std::int64_t preemptions_total = 0;
  double decode_tokens_per_second = 0;
};

struct TokenizedText {
  std::vector<std::int32_t> ids;
  std::vector<std::string> pieces;  // each id's text
};

// A request that was accepted; never used twice.
using Ticket = std::uint64_t;

class InferenceBackend {
 public:
  virtual ~InferenceBackend() = default;

  virtual LoadStatus status() const = 0;
  virtual WorkerStats stats() const = 0;
  // Null until the model is loaded; everything below is Unavailable until then.
  virtual const ModelInfo* model() const = 0;
  // The GPUs of this worker, as their driver sees them now; a driver that says nothing is none.
  // Takes up to tens of milliseconds: on a work thread.
  virtual std::vector<base::GpuReading> read_gpus() const { return {}; }

  // Encodes the prompt, checks that it fits, compiles the format: once for all choices that share
  // them. The errors name the counts or the keyword.
  virtual Preparation prepare(const TextRequest& request, const base::WorkLimit& limit) const = 0;
  virtual Preparation prepare(const EmbedRequest& request, const base::WorkLimit& limit) const = 0;
  // Whether a prepared request can have made what it is told of: ids of the vocabulary, no more
  // than it may make, none that its format forbids or that comes after its end.
  virtual std::optional<PrepareError> check_told(const TextRequest& request,
                                                 const base::WorkLimit& limit) const = 0;

  // All of them or none, in their order. QueueFull when they do not all find a place now,
  // InvalidArgument when so many never do, Conflict when a job id is in use. The listeners hear
  // nothing after a failure here.
  virtual Result<std::vector<Ticket>> submit(std::vector<Submission> submissions) = 0;
  virtual Result<Ticket> embed(EmbedRequest request,
                               std::shared_ptr<EmbeddingListener> listener) = 0;
  // Nobody waits for it any more: compute stops soon. Finished tickets are ignored.
  virtual void abandon(Ticket ticket) = 0;
  // NotFound when no such job ever ran here (finished ones are remembered for a while).
  virtual Status cancel(std::string_view job_id) = 0;

  // The model's own chat template; `context` holds messages, tools, add_generation_prompt …. All
  // text in it is text of users.
  virtual Result<TextRequest::Prompt> render_chat(const json::Object& context,
                                                  const base::WorkLimit& limit) const = 0;
  virtual Result<TokenizedText> tokenize(std::string_view text, bool add_special,
                                         bool parse_special,
                                         const base::WorkLimit& limit) const = 0;
  virtual Result<std::string> detokenize(const std::vector<std::int32_t>& ids) const = 0;

  // Begins the drain that ends the process. `patience`: how long what runs may go on from now;
  // none: until its own end. Asked again it counts anew.
  virtual void request_shutdown(std::optional<std::chrono::seconds> patience) = 0;
};

}  // namespace llorch::worker_http
