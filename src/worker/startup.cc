#include "worker/startup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/host_limits.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/utf8.h"
#include "compute/create.h"
#include "contract/backend_kind.h"
#include "contract/model_entry.h"
#include "formats/summary.h"
#include "model/rope.h"
#include "tokenizer/load.h"
#include "worker/build_id.h"
#include "worker/runner_setup.h"

namespace llorch::worker {
namespace {

namespace fs = std::filesystem;

constexpr int kSamplingThreadsMax = 4;  // more wait for memory
constexpr double kOpened = 0.05;        // of the progress: files opened, tokenizer made
constexpr double kLoaded = 0.95;        // weights in place
constexpr std::chrono::minutes kWarmUpPatience{10};
constexpr std::size_t kTemplateBytesMax = std::size_t{1} << 20;

const base::Logger& logger() {
  static const base::Logger instance("worker");
  return instance;
}

// The name clients use: the folder's or the file's, without the ending; a file that every model
// calls so lends its folder's name.
std::string model_id(const std::string& given) {
  fs::path path = fs::path(given).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  std::error_code ignored;
  path = fs::weakly_canonical(path, ignored);
  std::string stem = path.filename().string();
  if (!fs::is_directory(path, ignored)) {
    stem = path.stem().string();
    const bool is_usual = stem.starts_with("model") || stem.starts_with("pytorch_model");
    if (is_usual && path.parent_path().has_filename())
      stem = path.parent_path().filename().string();
  }
  return base::to_valid_utf8(stem);
}

std::int64_t file_time(const std::string& given) {
  std::error_code error;
  fs::file_time_type time = fs::last_write_time(given, error);
  if (error) time = fs::last_write_time("/proc/self/exe", error);  // a model inside of the program
  if (error) return 0;
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::file_clock::to_sys(time).time_since_epoch())
      .count();
}

std::string tokenizer_kind(const std::optional<formats::TokenizerSummary>& summary) {
  if (!summary) return "unknown";
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"gpt2", "bpe"},
      {"BPE", "bpe"},
      {"llama", "sentencepiece"},
      {"Unigram", "unigram"},
      {"WordPiece", "wordpiece"},
      {"bert", "wordpiece"}};
  for (const auto& [source, kind] : kNames) {
    if (summary->kind == source) return std::string(kind);
  }
  if (summary->source == "tokenizer.model") return "sentencepiece";
  return summary->kind.empty() ? "unknown" : base::to_valid_utf8(summary->kind);
}

std::optional<jinja::ChatTemplate> parse_template(const tokenizer::Tokenizer& tokenizer,
                                                  std::string_view name) {
  const std::string* source = tokenizer.chat_template(name);
  if (source == nullptr) return std::nullopt;
  Result<jinja::ChatTemplate> parsed = jinja::ChatTemplate::parse(*source);
  if (parsed.ok()) return parsed.take();
  logger().warn("the model's chat template is not usable",
                {{"template", name}, {"reason", parsed.error().message}});
  return std::nullopt;
}

void add_style(std::string_view template_source, ServingModel& model) {
  const tokenizer::Tokenizer& tokenizer = *model.tokenizer;
  openai::AnswerStyle& style = model.info.style;
  style = openai::detect_answer_style(template_source);
  for (const std::string_view marker : openai::known_markers()) {
    const std::optional<tokenizer::TokenId> id = tokenizer.find_piece(marker);
    if (!id || !tokenizer.is_special(*id) || tokenizer.is_end(*id)) continue;
    style.special_markers.emplace_back(marker);
    model.marker_ids.push_back(*id);
  }
  std::sort(model.marker_ids.begin(), model.marker_ids.end());
}

// What --chat-template names.
Result<std::string> read_template(const std::string& name) {
  if (const auto builtin = jinja::find_builtin_template(name)) return std::string(*builtin);
  Result<std::string> source = base::read_text_file(name, kTemplateBytesMax);
  if (source.ok()) return source;
  return Error{source.error().code,
               fmt::format("--chat-template: {} is no built-in template ({}), and as a file: {}",
                           base::quoted(name), fmt::join(jinja::builtin_template_names(), ", "),
                           source.error().message)};
}

// The templates that chats are rendered with, and how the model calls tools and thinks, by the one
// that it would be told of tools by.
Status add_templates(const std::string& chosen, ServingModel& model) {
  const tokenizer::Tokenizer& tokenizer = *model.tokenizer;
  if (chosen.empty()) {
    model.chat = parse_template(tokenizer, "default");
    model.chat_with_tools = parse_template(tokenizer, "tool_use");
    const std::string* source = tokenizer.chat_template("tool_use");
    if (source == nullptr) source = tokenizer.chat_template("default");
    add_style(source != nullptr ? *source : std::string(), model);
    return ok_status();
  }
  const Result<std::string> source = read_template(chosen);
  if (!source.ok()) return source.error();
  Result<jinja::ChatTemplate> parsed = jinja::ChatTemplate::parse(*source);
  if (!parsed.ok()) return parsed.error().in("--chat-template " + chosen);
  model.chat = parsed.take();
  add_style(*source, model);
  return ok_status();
}

std::string piece_of(const tokenizer::Tokenizer& tokenizer, std::optional<std::int32_t> id) {
  return id ? base::to_valid_utf8(tokenizer.piece(*id)) : std::string();
}

Status add_tokenizer(const WorkerOptions& options, const formats::WeightFile& file,
                     ServingModel& model) {
  const std::string& path = options.model;
  Result<tokenizer::Tokenizer> loaded = path == contract::kBuiltinModel
                                            ? tokenizer::from_gguf(file.metadata())
                                            : tokenizer::load_tokenizer(path);
  if (!loaded.ok()) return loaded.error();
  model.tokenizer = std::make_shared<const tokenizer::Tokenizer>(loaded.take());
  const tokenizer::Tokenizer& tokenizer = *model.tokenizer;
  TokenTexts texts = make_token_texts(tokenizer);
  model.mask_table = grammar::TokenTable::create(texts.generated, tokenizer.end_ids());
  model.texts = std::make_shared<const TokenTexts>(std::move(texts));
  if (Status added = add_templates(options.chat_template, model); !added.ok()) return added;
  model.fill_tokens = find_fill_tokens(file.metadata(), tokenizer);
  model.info.fills_in_middle = model.fill_tokens.has_value();
  model.bos_token = piece_of(tokenizer, tokenizer.bos());
  model.eos_token = piece_of(tokenizer, tokenizer.eos());
  return ok_status();
}

// One for each device, in order; a card that is named twice is there twice.
Status add_devices(std::span<const std::string> devices, const WorkerOptions& options,
                   ServingModel& model) {
  for (const std::string& device : devices) {
    Result<std::unique_ptr<compute::Backend>> made =
        compute::make_backend(device, {.threads = options.threads});
    if (!made.ok()) return made.error();
    const std::optional<compute::DeviceFacts> facts = (*made)->facts();
    const bool is_new =
        facts && std::ranges::find(model.gpu_bus_ids, facts->bus_id) == model.gpu_bus_ids.end();
    if (is_new) model.gpu_bus_ids.push_back(facts->bus_id);
    model.compute.push_back(made.take());
  }
  if (model.gpu_bus_ids.empty()) return ok_status();
  Result<std::unique_ptr<base::Nvml>> nvml = base::Nvml::load();
  if (nvml.ok()) {
    model.nvml = nvml.take();
  } else {
    logger().info("no power and temperature of the GPU", {{"reason", nvml.error().message}});
  }
  return ok_status();
}

std::string device_names(Devices devices) {
  std::string names;
  for (const auto& device : devices) names += (names.empty() ? "" : " + ") + device->name();
  return names;
}

// What the bits of the numbers depend on beside model and build.
std::string device_class(Devices devices, const WorkerOptions& options,
                         const model::ModelConfig& config) {
  std::string name = devices.front()->device_class();
  // Where unequal devices share the layers, it matters who has which; how many of one kind does
  // not.
  const bool is_mixed = std::ranges::any_of(
      devices, [&](const auto& device) { return device->device_class() != name; });
  for (std::size_t i = 1; is_mixed && i < devices.size(); ++i)
    name += "+" + devices[i]->device_class();
  if (options.kv_dtype == tensor::DType::Q8_0) name += "-kv-q8_0";
  // Which of LongRoPE's factors are taken follows from --ctx.
  const bool is_long = std::ranges::any_of(config.ropes, [](const model::RopeConfig& rope) {
    return rope.recipe.long_factors.value_or(false);
  });
  if (is_long) name += "-rope-long";
  return name;
}

// Where the model lies; nothing where that is the host's memory. Device memory cannot move, so that
// looking once is enough.
std::optional<worker_http::VramInfo> describe_vram(const MadeRunner& made, Devices devices) {
  worker_http::VramInfo vram;
  vram.is_resident = true;
  std::set<std::string> counted;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::optional<compute::DeviceFacts> facts = devices[i]->facts();
    if (!facts) return std::nullopt;
    if (i == 0) {
      vram.sm = facts->sm;
      vram.cuda_runtime_version = facts->runtime_version;
    }
    if (counted.insert(facts->bus_id).second) vram.total_bytes += facts->memory_bytes;
    const model::TransformerRunner& part = *made.parts[i];
    for (const compute::Buffer* buffer : part.model().weights.buffers()) {
      vram.weights_bytes += buffer->bytes();
      vram.is_resident = vram.is_resident && devices[i]->is_resident(*buffer);
    }
    vram.cache_bytes += part.cache().bytes();
    vram.is_resident = vram.is_resident && devices[i]->is_resident(part.cache().buffer());
    vram.workspace_bytes += part.buffers().device_bytes() + devices[i]->workspace_bytes();
  }
  return vram;
}

Status start_engine(const WorkerOptions& options, const ModelParts& parts, ServingModel& model) {
  Result<MadeRunner> made = make_runner(options, parts, model.compute);
  if (!made.ok()) return made.error();
  for (const model::TransformerRunner* part : made->parts)
    model.info.memory_bytes += part->model().weights.bytes + part->cache().bytes();
  model.info.vram = describe_vram(*made, model.compute);
  engine::EngineOptions engine_options;
  engine_options.max_running = options.max_batch;
  engine_options.max_waiting = options.max_queue;
  const int threads = options.threads > 0 ? options.threads : base::usable_cores();
  engine_options.sampling_threads = std::clamp(threads, 1, kSamplingThreadsMax);
  model.engine = engine::Engine::start(std::move(made->runner), engine_options);
  model.info.context_length = model.engine->max_sequence_tokens();
  const std::int32_t context = parts.front()->config.context_length;
  if (model.info.context_length < context) {
    logger().warn("the cache is smaller than the context",
                  {{"context", context}, {"usable", model.info.context_length}});
  }
  return ok_status();
}

// The first generation pays for what is made on first use, so that no client does.
class WarmUpSink final : public engine::GenerationSink {
 public:
  void on_started(const engine::GenerationStarted&) override {}
  engine::Verdict on_token(const engine::GeneratedToken&) override {
    return engine::Verdict::Continue;
  }
  void on_finished(const engine::GenerationEnd& end) override {
    const base::MutexLock lock(mutex_);
    end_ = end;
    done_.notify_all();
  }
  std::optional<engine::GenerationEnd> wait() {
    const auto deadline = std::chrono::steady_clock::now() + kWarmUpPatience;
    const base::MutexLock lock(mutex_);
    while (!end_ && done_.wait_until(mutex_, deadline)) {
    }
    return end_;
  }

 private:
  base::Mutex mutex_;
  base::CondVar done_;
  std::optional<engine::GenerationEnd> end_ LLORCH_GUARDED_BY(mutex_);
};

Status warm_up(const ServingModel& model) {
  const auto sink = std::make_shared<WarmUpSink>();
  engine::GenerationRequest request;
  request.prompt = {model.tokenizer->bos().value_or(0)};
  // At least a prefill and a decode step, where the context has room for both.
  request.max_tokens = std::min(2, model.info.context_length - 1);
  request.sampling.temperature = 0;
  if (request.max_tokens < 1) {
    return Error{ErrorCode::LoadFailed,
                 "the context holds a single token: nothing can be generated"};
  }
  const Result<engine::GenerationId> id = model.engine->submit(std::move(request), sink);
  if (!id.ok()) return id.error().in("warm-up");
  const std::optional<engine::GenerationEnd> end = sink->wait();
  if (!end) return Error{ErrorCode::DeadlineExceeded, "the warm-up took longer than ten minutes"};
  if (end->error) return end->error->in("warm-up");
  return ok_status();
}

}  // namespace

Result<std::unique_ptr<ServingModel>> load_serving_model(const WorkerOptions& options,
                                                         std::span<const std::string> devices,
                                                         const StartupProgress& progress) {
  Result<OpenedModel> opened = open_model(options);
  if (!opened.ok()) return opened.error();
  const std::shared_ptr<const formats::WeightFile> file = opened->file;
  const model::ModelConfig& config = opened->plan.config;
  for (const model::RopeConfig& rope : config.ropes) {
    const std::string scaling = model::describe_scaling(rope, config.context_length);
    if (!scaling.empty()) logger().info(scaling);
  }
  if (!config.assumed.empty()) {
    logger().info("the file leaves out keys, the family's defaults are taken",
                  {{"defaults", fmt::format("{}", fmt::join(config.assumed, ", "))}});
  }
  auto model = std::make_unique<ServingModel>();
  if (Status made = add_tokenizer(options, *file, *model); !made.ok()) return made.error();
  // Many models have more rows than tokens, so that they divide well; nothing was learnt there.
  model::cut_vocabulary(opened->plan, model->tokenizer->num_used_ids());
  if (!progress(kOpened)) return Error{ErrorCode::Cancelled, "loading was given up"};

  if (Status made = add_devices(devices, options, *model); !made.ok()) return made.error();
  const formats::FileSummary summary = formats::summarize(*file);
  worker_http::ModelInfo& info = model->info;
  info.id = model_id(options.model);
  info.architecture = opened->plan.config.architecture;
  info.quant_kind = base::to_valid_utf8(summary.quantization);
  info.tokenizer_kind = tokenizer_kind(summary.tokenizer);
  const contract::BackendKind& kind = *contract::find_device_kind(devices.front());
  info.backend = kind.name;
  info.device = device_names(model->compute);
  info.build = build_id();
  info.memory_type = kind.memory_type;
  info.vocab_size = opened->plan.config.vocab_size;
  info.created = file_time(options.model);
  info.has_chat_template = model->chat.has_value();
  for (const std::string& alias : options.aliases) {
    const bool is_known = alias == info.id || std::find(info.aliases.begin(), info.aliases.end(),
                                                        alias) != info.aliases.end();
    if (!is_known) info.aliases.push_back(alias);
  }
  info.embedding_width = opened->plan.config.hidden_dim;
  // The vocabulary was read, the weights were not yet: what is mapped so far is of no more use.
  for (const std::shared_ptr<const base::MappedFile>& mapped : file->files())
    mapped->forget(mapped->bytes());
#ifdef __GLIBC__
  // Reading a large tokenizer leaves holes that nothing later would fill.
  ::malloc_trim(0);
#endif

  const Result<ModelParts> parts =
      load_parts(*opened, model->compute, [&](std::int64_t done, std::int64_t total) {
        const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
        return progress(kOpened + (kLoaded - kOpened) * share);
      });
  if (!parts.ok()) return parts.error();
  info.device_class = device_class(model->compute, options, config);
  info.parameters = model::count_parameters(opened->plan);
  if (Status started = start_engine(options, *parts, *model); !started.ok()) return started.error();
  if (!progress(kLoaded)) return Error{ErrorCode::Cancelled, "loading was given up"};
  if (Status warm = warm_up(*model); !warm.ok()) return warm.error();
  return model;
}

}  // namespace llorch::worker
