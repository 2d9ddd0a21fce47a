#include "orchestrator/test_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "api/answers.h"
#include "base/check.h"
#include "contract/error_table.h"
#include "contract/inference.h"
#include "contract/pool_state.h"
#include "http/sse.h"
#include "openai/errors.h"

namespace llorch::orchestrator::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::string_view, 16> kWords = {
    " once", " upon", " a",    " time",  " there", " was",  " \\\"", " snow\xE2\x98\x83",
    " and",  " the",  " moon", " said:", " {}",    " data", " \\n",  " end"};

std::uint64_t uint_of(const json::Object& object, std::string_view name, std::uint64_t otherwise) {
  const json::Value* value = object.if_contains(name);
  if (value == nullptr) return otherwise;
  if (value->is_int64()) return static_cast<std::uint64_t>(value->get_int64());
  return value->is_uint64() ? value->get_uint64() : otherwise;
}

std::vector<std::int32_t> ids_of(const json::Value& list) {
  std::vector<std::int32_t> ids;
  for (const json::Value& id : list.as_array())
    ids.push_back(static_cast<std::int32_t>(id.as_int64()));
  return ids;
}

// What one request is answered with, event by event. A step is what leaves in one write.
struct Step {
  std::string text;
  std::uint32_t events = 0;
};

class Answer {
 public:
  Answer(const json::Object& body, std::string_view endpoint, const Script& script)
      : is_execute_(endpoint == "execute"),
        is_chat_(endpoint == "v1/chat/completions"),
        seed_(uint_of(body, "seed", 0)),
        script_(script) {
    choices_ = static_cast<std::uint32_t>(uint_of(body, "n", 1));
    resumed_.resize(choices_);
    const std::string_view member = is_execute_ ? "resume" : "llorch";
    const json::Value* resume = body.if_contains(member);
    if (resume != nullptr) {
      const json::Value& ids = resume->as_object().at(is_execute_ ? "ids" : "resume_ids");
      if (choices_ == 1) {
        resumed_[0] = ids_of(ids);
      } else {
        for (std::uint32_t c = 0; c < choices_; ++c) resumed_[c] = ids_of(ids.as_array().at(c));
      }
    }
    const json::Value* options = body.if_contains("stream_options");
    has_usage_ = options != nullptr && options->as_object().contains("include_usage");
    job_ = is_execute_ ? std::string(json::view(body.at("job_id").as_string()))
                       : fmt::format("chatcmpl-{:x}", next_id());
  }

  const std::string& job() const { return job_; }
  std::uint32_t choices() const { return choices_; }

  // Whether the ids it is to go on behind are its own.
  bool knows_ids() const {
    for (std::uint32_t c = 0; c < choices_; ++c)
      for (std::uint32_t i = 0; i < resumed_[c].size(); ++i)
        if (resumed_[c][i] != scripted_id(seed_, c, i)) return false;
    return true;
  }

  std::vector<Step> steps() const {
    std::vector<Step> steps;
    bool is_resumed = false;
    for (const auto& ids : resumed_) is_resumed |= !ids.empty();
    if (is_execute_) {
      const std::string started = fmt::format(
          R"({{"job_id":"{}","model":"scripted","started_at":"2026-01-01T00:00:00Z","seed":{},"prompt_tokens":5,"cached_tokens":2}})",
          job_, seed_);
      steps.push_back({"event: started\ndata: " + started + "\n\n", 1});
    } else if (is_chat_ && !is_resumed) {
      Step roles;
      for (std::uint32_t c = 0; c < choices_; ++c)
        add(chunk(c, R"({"role":"assistant","content":"","refusal":null})", "null", {}), roles);
      steps.push_back(roles);
    }
    for (std::uint32_t position = 0; position < script_.tokens; ++position) {
      Step step;
      for (std::uint32_t c = 0; c < choices_; ++c) add_token(c, position, step);
      if (step.events > 0) steps.push_back(std::move(step));
    }
    steps.push_back(end());
    return steps;
  }

 private:
  static std::uint64_t next_id() {
    static std::atomic<std::uint64_t> newest{0};
    return ++newest;
  }

  std::uint32_t tokens_of(std::uint32_t choice) const {
    return script_.tokens > choice ? script_.tokens - choice : 1;
  }

  static void add(std::string_view event, Step& step) {
    step.text += event;
    ++step.events;
  }

  std::string chunk(std::uint32_t choice, std::string_view delta, std::string_view reason,
                    std::optional<std::int32_t> id) const {
    std::string data = fmt::format(
        R"({{"id":"{}","object":"{}","created":5,"model":"scripted","system_fingerprint":"s","choices":[{{"index":{},"{}":{},"logprobs":null,"finish_reason":{}}}])",
        job_, is_chat_ ? "chat.completion.chunk" : "text_completion", choice,
        is_chat_ ? "delta" : "text", delta, reason);
    if (has_usage_) data += R"(,"usage":null)";
    if (id) data += fmt::format(R"(,"llorch":{{"ids":[{}]}})", *id);
    return "data: " + data + "}\n\n";
  }

  std::string content(std::string_view text) const {
    return is_chat_ ? fmt::format(R"({{"content":"{}"}})", text) : fmt::format(R"("{}")", text);
  }

  // Every third token of a chat makes two chunks, of which the last has the id.
  void add_token(std::uint32_t choice, std::uint32_t position, Step& step) const {
    if (position >= tokens_of(choice)) return;
    const std::int32_t id = scripted_id(seed_, choice, position);
    const std::string text = scripted_text(id);
    if (position >= resumed_[choice].size()) {
      if (is_execute_) {
        add(fmt::format("event: token\ndata: {{\"t\":\"{}\",\"i\":{},\"ids\":[{}]}}\n\n", text,
                        position, id),
            step);
      } else {
        const bool is_double = is_chat_ && position % 3 == 2;
        if (is_double) add(chunk(choice, content(text), "null", {}), step);
        add(chunk(choice, content(is_double ? "" : text), "null", id), step);
      }
    }
    if (!is_execute_ && position + 1 == tokens_of(choice))
      add(chunk(choice, is_chat_ ? "{}" : R"("")", R"("length")", {}), step);
  }

  Step end() const {
    Step step;
    std::uint32_t total = 0;
    for (std::uint32_t c = 0; c < choices_; ++c) total += tokens_of(c);
    if (is_execute_) {
      add(fmt::format(
              "event: end\ndata: {{\"tokens_out\":{},\"decode_time_ms\":1,\"stop_reason\":\"max_"
              "tokens\",\"stop_sequence_matched\":null,\"prompt_tokens\":5,\"seed\":{}}}\n\n",
              total, seed_),
          step);
      return step;
    }
    if (has_usage_) {
      add(fmt::format(
              R"(data: {{"id":"{}","object":"{}","created":5,"model":"scripted","system_fingerprint":"s","choices":[],"usage":{{"prompt_tokens":5,"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":2}}}}}})",
              job_, is_chat_ ? "chat.completion.chunk" : "text_completion", total, total + 5) +
              "\n\n",
          step);
    }
    if (script_.tells_done) add("data: [DONE]\n\n", step);
    return step;
  }

  const bool is_execute_;
  const bool is_chat_;
  const std::uint64_t seed_;
  const Script script_;
  std::uint32_t choices_ = 1;
  bool has_usage_ = false;
  std::vector<std::vector<std::int32_t>> resumed_;
  std::string job_;
};

// What the request itself says, see Script.
void read_own_script(const json::Object& body, Script& script) {
  const json::Value* user = body.if_contains("user");
  if (user == nullptr || !user->is_string()) return;
  std::istringstream words{std::string(json::view(user->get_string()))};
  std::string word;
  if (!(words >> word) || word != "script") return;
  const bool is_resumed = body.contains("llorch") || body.contains("resume");
  while (words >> word) {
    const std::size_t mark = word.find('=');
    if (mark == std::string::npos) continue;
    const std::string name = word.substr(0, mark);
    const auto value = static_cast<std::uint32_t>(std::atoll(word.c_str() + mark + 1));
    if (name == "tokens") script.tokens = value;
    if (name == "pace_us") script.pace = std::chrono::microseconds(value);
    if (name == "cut_after" && !is_resumed) script.cut_after = value;
  }
}

std::string error_event(bool is_execute, const Error& error) {
  if (is_execute)
    return http::format_event("error", json::serialize(contract::error_event_json(error)));
  return http::format_event("", json::serialize(openai::error_json(error)));
}

}  // namespace

std::int32_t scripted_id(std::uint64_t seed, std::uint32_t choice, std::uint32_t position) {
  std::uint64_t x = seed + 0x9e3779b97f4a7c15U * (choice + 1) + position * 0xbf58476d1ce4e5b9U;
  x ^= x >> 31U;
  x *= 0x94d049bb133111ebU;
  x ^= x >> 29U;
  return static_cast<std::int32_t>(x % 50'000);
}

std::string scripted_text(std::int32_t id) {
  return std::string(kWords[static_cast<std::size_t>(id) % kWords.size()]);
}

std::string scripted_answer(std::uint64_t seed, std::uint32_t choice, std::uint32_t tokens) {
  std::string text;
  for (std::uint32_t i = 0; i < tokens; ++i) text += scripted_text(scripted_id(seed, choice, i));
  // The words are written as JSON has them.
  const Result<json::Value> plain = json::parse("\"" + text + "\"");
  return std::string(json::view(plain->get_string()));
}

std::string scripted_state(std::uint32_t workers, std::int32_t slots) {
  contract::PoolState state;
  state.pool_id = "scripted";
  contract::PoolDevice cpu;
  cpu.backend = "cpu";
  cpu.total_bytes = cpu.free_bytes = std::int64_t{1} << 40;
  state.devices = {cpu};
  contract::PoolModel model;
  model.id = model.name = "story";
  model.model_hash = std::string(32, 'a');
  model.downloaded = true;
  model.backends = {"cpu"};
  model.weight_bytes = model.need_bytes = 1000;
  state.models = {model};
  for (std::uint32_t i = 0; i < workers; ++i) {
    contract::PoolWorker worker;
    worker.id = fmt::format("w{}", i);
    worker.backend = "cpu";
    worker.model = "story";
    worker.model_hash = std::string(32, 'a');
    worker.start = 1;
    worker.slots = slots;
    worker.context = 4096;
    worker.can_resume = true;
    worker.build = worker.device_class = "scripted";
    worker.state = contract::PoolWorkerState::Ready;
    state.workers.push_back(std::move(worker));
  }
  return json::serialize(contract::to_json(state));
}

TestPool::TestPool(int io_threads) {
  http::ServerOptions options;
  options.render_error = api::render_error;
  options.max_connections = 8192;
  options.io_threads = io_threads;
  Result<std::unique_ptr<http::Server>> server = http::Server::start(make_router(), options);
  CHECK(server.ok(), server.ok() ? "" : server.error().message);
  server_ = server.take();
}

TestPool::~TestPool() = default;

PoolAddress TestPool::address() const {
  return {fmt::format("http://127.0.0.1:{}", server_->port()), ""};
}

void TestPool::stop() {
  server_->stop();
}

void TestPool::script(const std::string& worker, Script script) {
  const base::MutexLock lock(mutex_);
  scripts_[worker].push_back(std::move(script));
}

void TestPool::set_usual(Script script) {
  const base::MutexLock lock(mutex_);
  usual_ = std::move(script);
}

void TestPool::set_state(std::string json) {
  const base::MutexLock lock(mutex_);
  state_ = std::move(json);
}

std::vector<Seen> TestPool::seen() const {
  const base::MutexLock lock(mutex_);
  return seen_;
}

std::uint32_t TestPool::running() const {
  const base::MutexLock lock(mutex_);
  return running_;
}

std::uint32_t TestPool::cancels() const {
  const base::MutexLock lock(mutex_);
  return cancels_;
}

http::Router TestPool::make_router() {
  http::Router router;
  router.add(http::Method::Get, "/v2/state",
             http::PlainHandler([this](const http::Request&) -> Result<http::Response> {
               const base::MutexLock lock(mutex_);
               return http::Response(200, "application/json", state_);
             }));
  for (const std::string_view endpoint :
       {"execute", "cancel", "v1/completions", "v1/chat/completions", "v1/embeddings"}) {
    router.add(http::Method::Post, fmt::format("/v2/workers/{{id}}/api/{}", endpoint),
               http::Handler([this](const http::Request& request, http::Responder& responder) {
                 return answer(request, responder);
               }));
  }
  return router;
}

Script TestPool::next_script(const std::string& worker) {
  const base::MutexLock lock(mutex_);
  std::deque<Script>& waiting = scripts_[worker];
  if (waiting.empty()) return usual_;
  Script next = std::move(waiting.front());
  waiting.pop_front();
  return next;
}

void TestPool::cancel(const std::string& job) {
  const base::MutexLock lock(mutex_);
  ++cancels_;
  cancelled_[job] = true;
  if (const auto waiting = waiting_.find(job); waiting != waiting_.end()) waiting->second.notify();
}

http::Task<Status> TestPool::refuse(http::Responder& responder, int status, std::string body) {
  http::Response response(status, "application/json", std::move(body));
  co_return co_await responder.send(std::move(response));
}

http::Task<Status> TestPool::answer(const http::Request& request, http::Responder& responder) {
  const std::string worker = request.path_params.at("id");
  const std::string endpoint = request.path.substr(request.path.find("/api/") + 5);
  const Result<json::Value> parsed = json::parse(request.body);
  if (!parsed.ok() || !parsed->is_object())
    co_return Error{ErrorCode::InvalidArgument, "the body is no object"};
  const json::Object& body = parsed->get_object();
  if (endpoint == "cancel") {
    cancel(std::string(json::view(body.at("job_id").as_string())));
    co_return co_await refuse(responder, 202, R"({"status":"cancelling"})");
  }
  {
    const base::MutexLock lock(mutex_);
    if (seen_.size() < 10'000) seen_.push_back({worker, endpoint, body, request.headers});
  }
  Script script = next_script(worker);
  read_own_script(body, script);
  if (script.refuse) co_return co_await refuse(responder, *script.refuse, script.refusal);
  if (endpoint == "v1/embeddings") {
    co_return co_await refuse(responder, 200,
                              R"({"object":"list","data":[{"object":"embedding","index":0,)"
                              R"("embedding":[0.5,1.0]}],"model":"scripted",)"
                              R"("usage":{"prompt_tokens":202,"total_tokens":202}})");
  }
  co_return co_await stream(request, responder, body, std::move(script));
}

// Counts itself among the running.
http::Task<Status> TestPool::stream(const http::Request& request, http::Responder& responder,
                                    json::Object body, Script script) {
  const std::string endpoint = request.path.substr(request.path.find("/api/") + 5);
  const bool is_execute = endpoint == "execute";
  const Answer answer(body, endpoint, script);
  if (!answer.knows_ids())
    co_return Error{ErrorCode::InvalidArgument, "these are not the ids of this request"};
  http::Waker waker;
  const std::string cancel_name =
      answer.choices() == 1 ? answer.job() : fmt::format("{}-0", answer.job());
  {
    const base::MutexLock lock(mutex_);
    ++running_;
    waiting_.insert_or_assign(cancel_name, waker);
  }
  struct Leave {
    TestPool& pool;
    const std::string& name;
    ~Leave() {
      const base::MutexLock lock(pool.mutex_);
      --pool.running_;
      pool.waiting_.erase(name);
      pool.cancelled_.erase(name);
    }
  } const leave{*this, cancel_name};
  Result<http::Stream> out =
      co_await responder.open_stream(200, std::string(http::kEventStreamType));
  if (!out.ok()) co_return out.error();
  out->on_disconnect([waker]() mutable { waker.notify(); });
  const auto is_cancelled = [&] {
    const base::MutexLock lock(mutex_);
    return script.hears_cancel && cancelled_.contains(cancel_name);
  };
  std::uint32_t events = 0;
  Clock::time_point next = Clock::now();
  for (const Step& step : answer.steps()) {
    next += script.pace;
    while (Clock::now() < next && !out->is_closed() && !is_cancelled())
      co_await waker.wait_until(next);
    if (out->is_closed()) co_return Error{ErrorCode::Cancelled, "the client is gone"};
    if (is_cancelled()) {
      const Error cancelled{ErrorCode::Cancelled, "it was cancelled"};
      co_return co_await out->write(error_event(is_execute, cancelled));
    }
    // The last event before something happens leaves alone.
    std::string text = step.text;
    for (const auto& [at, what] : {std::pair(script.cut_after, 0), std::pair(script.stall_after, 1),
                                   std::pair(script.fail_after, 2)}) {
      if (!at || events + step.events <= *at) continue;
      std::size_t end = 0;
      for (std::uint32_t i = events; i < *at; ++i) end = text.find("\n\n", end) + 2;
      text.resize(end);
      if (what == 2) text += error_event(is_execute, script.error);
      const Status written = co_await out->write(text);
      if (!written.ok()) co_return written;
      if (what == 0) co_return Error{ErrorCode::Internal, "scripted cut"};
      if (what == 2) co_return ok_status();
      while (!out->is_closed() && !is_cancelled())
        co_await waker.wait_until(Clock::now() + std::chrono::seconds(60));
      co_return Error{ErrorCode::Cancelled, "the client is gone"};
    }
    const Status written = co_await out->write(text);
    if (!written.ok()) co_return written;
    events += step.events;
  }
  co_return ok_status();
}

}  // namespace llorch::orchestrator::test
