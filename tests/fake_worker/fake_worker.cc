// For tests: a worker that speaks the contract and computes nothing. The last part of --model says
// how it behaves, words with commas between them. How it answers:
//   ok      a short answer in several events
//   echo    answers with the request it got
//   endless one token after the other until the client goes
//   refuse  400      error  an error event in the middle      cut  ends without an end event
//   crash   dies in the middle of an answer                   mute never says that it is ready
//   liar    says it is another worker                         fail dies before it is ready
//   overflow  400: longer than the context
// With "chat" among the words its model has a chat template, and it answers conversations in the
// same ways.
// And as a process:
//   listen=MS       listens only then            load=MS         is ready only then
//   exit=CODE       ends before it is ready      die=SIGNAL      the same by a signal
//   exit-later=MS   ends with code 3 then        hang            stops answering once it is ready
//   stall           always has work, never makes a token         unhealthy  says so once it is
//   ready no-token        answers everything, but /execute never ends ignore-term ignore-shutdown
//   lines=N         writes N lines alloc=MB        takes memory                 grandchild leaves
//   one that ignores signals pry=PORT        tries what a confined worker must not, and to connect
//   to that port; the outcome is in its output
// Its process id goes to the file that the environment variable FAKE_WORKER_PID_FILE names.
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "contract/error_table.h"
#include "contract/inference.h"
#include "contract/worker_info.h"
#include "http/client.h"
#include "http/server.h"
#include "http/sse.h"
#include "http/test_events.h"

namespace llorch::test {
namespace {

using Feed = http::EventFeed<std::string>;

std::string event(std::string_view name, const json::Object& data) {
  return http::format_event(name, json::serialize(data));
}

// How events look: those of POST /execute, or chunks of POST /v1/chat/completions.
class Dialect {
 public:
  Dialect(bool is_chat, std::string model, std::string job_id)
      : is_chat_(is_chat), model_(std::move(model)), job_id_(std::move(job_id)) {}

  std::string started() const {
    if (is_chat_) return chunk({{"role", "assistant"}, {"content", ""}}, nullptr);
    contract::StartedEvent data;
    data.job_id = job_id_;
    data.model = model_;
    data.started_at = "2026-01-01T00:00:00Z";
    return event("started", contract::started_event_json(data));
  }

  std::string token(std::int64_t index, std::string text) const {
    if (is_chat_) return chunk({{"content", text}}, nullptr);
    return event("token", contract::token_event_json({std::move(text), index}));
  }

  std::string thought(const std::string& text) const {
    return is_chat_ ? chunk({{"reasoning_content", text}}, nullptr) : std::string();
  }

  std::string error(const Error& error) const {
    if (!is_chat_) return event("error", contract::error_event_json(error));
    return event("", {{"error", json::Object{{"message", error.message}}}});
  }

  std::string end(std::int64_t tokens) const {
    if (is_chat_) {
      const json::Object usage{{"prompt_tokens", 4}, {"completion_tokens", tokens}};
      return chunk({}, "stop") + event("", {{"choices", json::Array()}, {"usage", usage}}) +
             "data: [DONE]\n\n";
    }
    contract::InferenceResult result;
    result.tokens_out = tokens;
    result.decode_time_ms = 20;
    result.stop_reason = contract::StopReason::Eos;
    result.prompt_tokens = 4;
    result.ttft_ms = 1.5;
    result.seed = 42;
    return event("end", contract::end_event_json(result));
  }

 private:
  std::string chunk(json::Object delta, json::Value finish_reason) const {
    json::Object choice{{"index", 0}, {"delta", std::move(delta)}};
    choice["finish_reason"] = std::move(finish_reason);
    return event("", {{"model", model_}, {"choices", json::Array{std::move(choice)}}});
  }

  const bool is_chat_;
  const std::string model_;
  const std::string job_id_;
};

// Pushes the whole answer; on a thread of its own, as an engine would.
void produce(const std::string& model, const Dialect& dialect, const std::string& body,
             Feed& feed) {
  bool open = feed.try_push(dialect.started());
  if (model == "silent") return;
  if (model == "endless") {
    for (std::int64_t i = 0; open; ++i) {
      open = feed.try_push(dialect.token(i, "on and "));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return;
  }
  // A reader that has gone away closes the feed; what is pushed after that is nobody's loss.
  const auto push = [&](std::string text) { std::ignore = feed.try_push(std::move(text)); };
  if (model == "think") push(dialect.thought("hm"));
  push(dialect.token(0, model == "echo" ? body : ", there was"));
  push(dialect.token(1, model == "echo" ? "" : " a café."));
  if (model == "crash") {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::fputs("fake worker: out of ideas\n", stderr);
    std::raise(SIGABRT);
  }
  if (model == "error") {
    push(dialect.error({ErrorCode::DeviceFailed, "the device failed"}));
  } else if (model != "cut") {
    push(dialect.end(3));
  }
  feed.close();
}

http::ErrorBody render(const Error& error, std::string_view correlation_id) {
  contract::RenderedError rendered = contract::render_error(error, correlation_id);
  return {rendered.status, "application/json", std::move(rendered.body), {}};
}

http::Task<Status> answer(std::string model, Dialect dialect, const http::Request& request,
                          http::Responder& responder) {
  Result<http::Stream> stream =
      co_await responder.open_stream(200, std::string(http::kEventStreamType));
  if (!stream.ok()) co_return stream.error();
  auto feed = std::make_shared<Feed>(1000);
  std::thread([feed, model, dialect, body = request.body] {
    produce(model, dialect, body, *feed);
  }).detach();
  co_return co_await http::test::pump_events(*stream, feed, std::chrono::milliseconds(10'000));
}

http::Task<Status> execute(std::string model, const http::Request& request,
                           http::Responder& responder) {
  std::vector<json::FieldError> errors;
  Result<contract::InferenceRequest> parsed =
      contract::parse_inference_request(request.body, errors);
  if (!parsed.ok()) co_return parsed.error();
  if (model == "refuse")
    co_return Error{ErrorCode::InvalidArgument, "prompt: 9 tokens, room for 8"};
  const std::string shown_model = model;
  co_return co_await answer(std::move(model), Dialect(false, shown_model, parsed->job_id), request,
                            responder);
}

http::Task<Status> chat(std::string model, const http::Request& request,
                        http::Responder& responder) {
  if (model == "overflow") {
    json::Object error{{"message", "9 tokens, the context has 8"},
                       {"type", "invalid_request_error"}};
    error["code"] = "context_length_exceeded";
    http::Response response(400, "application/json",
                            json::serialize(json::Object{{"error", std::move(error)}}));
    co_return co_await responder.send(std::move(response));
  }
  const std::string shown_model = model;
  co_return co_await answer(std::move(model), Dialect(true, shown_model, ""), request, responder);
}

// The words of --model.
class Behaviour {
 public:
  explicit Behaviour(std::string_view model) {
    model.remove_prefix(std::min(model.rfind('/') + 1, model.size()));
    first_ = model.substr(0, model.find(','));
    while (!model.empty()) {
      const std::string_view word = model.substr(0, model.find(','));
      model.remove_prefix(std::min(word.size() + 1, model.size()));
      const std::size_t is = word.find('=');
      const std::string value(is == std::string_view::npos ? "1" : word.substr(is + 1));
      words_[std::string(word.substr(0, is))] = std::atoi(value.c_str());
    }
  }
  const std::string& first() const { return first_; }
  bool has(const std::string& word) const { return words_.contains(word); }
  int number(const std::string& word) const { return has(word) ? words_.at(word) : 0; }
  void wait(const std::string& word) const {
    std::this_thread::sleep_for(std::chrono::milliseconds(number(word)));
  }

 private:
  std::string first_;
  std::map<std::string, int> words_;
};

void leave_grandchild() {
  const pid_t child = ::fork();
  if (child != 0) return;
  ::setsid();
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_IGN);
  fmt::print(stderr, "grandchild {}\n", ::getpid());
  for (;;) ::pause();
}

void pry(const Behaviour& behaviour) {
  const auto say = [](std::string_view what, bool worked) {
    fmt::print(stderr, "pry: {} {}\n", what,
               worked ? "worked" : fmt::format("failed: {}", std::strerror(errno)));
  };
  const char* home = std::getenv("HOME");
  const std::string file = std::string(home != nullptr ? home : "/tmp") + "/pried";
  say("home", ::open(file.c_str(), O_WRONLY | O_CREAT, 0600) >= 0);
  say("tmp", ::open("/tmp/llorch-pried", O_WRONLY | O_CREAT, 0600) >= 0);
  say("ptrace", ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0);
  say("keeper", ::kill(::getppid(), 0) == 0);
  say("null", ::open("/dev/null", O_RDWR) >= 0);
  say("passwd", ::open("/etc/passwd", O_RDONLY) >= 0);
  const std::string token = std::string(home != nullptr ? home : "/tmp") + "/token";
  say("token", ::open(token.c_str(), O_RDONLY) >= 0);
  const char* const arguments[] = {"/bin/sh", "-c", "exit 0", nullptr};
  const pid_t shell = ::vfork();
  if (shell == 0) {
    ::execv(arguments[0], const_cast<char* const*>(arguments));
    ::_exit(errno);
  }
  int status = 0;
  ::waitpid(shell, &status, 0);
  errno = WEXITSTATUS(status);
  say("shell", errno == 0);
  say("udp", ::socket(AF_INET, SOCK_DGRAM, 0) >= 0);
  say("local socket", ::socket(AF_UNIX, SOCK_STREAM, 0) >= 0);
  sockaddr_in other{};
  other.sin_family = AF_INET;
  other.sin_port = htons(static_cast<std::uint16_t>(behaviour.number("pry")));
  other.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int tcp = ::socket(AF_INET, SOCK_STREAM, 0);
  say("connect", ::connect(tcp, reinterpret_cast<const sockaddr*>(&other), sizeof other) == 0);
}

// Before it listens.
void behave_early(const Behaviour& behaviour) {
  if (behaviour.has("ignore-term")) ::signal(SIGTERM, SIG_IGN);
  if (behaviour.has("grandchild")) leave_grandchild();
  if (behaviour.has("pry")) pry(behaviour);
  for (int i = 0; i < behaviour.number("lines"); ++i) fmt::print(stderr, "line {}\n", i);
  behaviour.wait("listen");
  if (behaviour.has("die")) {
    std::fputs("fake worker: dies\n", stderr);
    std::raise(behaviour.number("die"));
  }
}

// What others may see of it; the io threads read, the main thread writes.
struct Shown {
  std::atomic<bool> ready = false;
  std::atomic<bool> draining = false;
};

http::Response health(const Behaviour& behaviour, const Shown& shown) {
  contract::HealthReport report;
  report.status = shown.ready ? contract::WorkerStatus::Healthy : contract::WorkerStatus::Loading;
  if (shown.draining) report.status = contract::WorkerStatus::Draining;
  if (shown.ready && behaviour.has("unhealthy")) {
    report.status = contract::WorkerStatus::Unhealthy;
    report.reason = "the engine stopped";
  }
  report.model_loaded = shown.ready;
  report.chat_template = behaviour.has("chat");
  if (!shown.ready) report.load_progress = 0.5;
  report.slots_total = 4;
  report.slots_busy = shown.ready && behaviour.has("stall") ? 1 : 0;
  report.last_token_age_ms = behaviour.has("stall") ? 3'600'000 : 0;
  return {contract::http_status(report.status), "application/json",
          json::serialize(contract::to_json(report))};
}

http::Router make_router(const Behaviour& behaviour, Shown& shown, std::function<void()> end) {
  http::Router router;
  router.add(http::Method::Post, "/execute",
             http::Handler([&](const http::Request& request, http::Responder& responder) {
               return execute(behaviour.has("no-token") ? "silent" : behaviour.first(), request,
                              responder);
             }));
  router.add(http::Method::Post, "/v1/chat/completions",
             http::Handler([&](const http::Request& request, http::Responder& responder) {
               return chat(behaviour.first(), request, responder);
             }));
  router.add(http::Method::Get, "/health",
             http::PlainHandler([&](const http::Request&) -> Result<http::Response> {
               return health(behaviour, shown);
             }));
  router.add(http::Method::Get, "/metrics",
             http::PlainHandler([](const http::Request&) -> Result<http::Response> {
               return http::Response(200, "text/plain",
                                     "# HELP\nllorch_steps_total 7\n"
                                     "llorch_decode_tokens_per_second 12.5\n");
             }));
  router.add(http::Method::Post, "/shutdown",
             http::PlainHandler([&, end](const http::Request&) -> Result<http::Response> {
               if (!behaviour.has("ignore-shutdown")) end();
               return http::Response(202, "application/json", "{}");
             }));
  return router;
}

// True once somebody took it, or nobody needs it any more; an answer of another status is final.
bool tell_ready(const std::string& url, const contract::ReadyCallback& ready,
                const std::future<void>& end) {
  http::ClientRequest request(http::Method::Post, url);
  if (const char* mark = std::getenv(contract::kWorkerMarkVariable))
    request.headers.add(std::string(contract::kWorkerMarkHeader), mark);
  request.body = json::serialize(contract::to_json(ready));
  for (int i = 0; i < 400; ++i) {
    const Result<http::Response> answer = http::Client().send(request);
    if (answer.ok()) return answer->status == 200;
    if (end.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready) return true;
  }
  return false;
}

int serve(std::map<std::string, std::string> flags) {
  base::configure_log({base::LogFormat::Pretty, base::LogLevel::Error});
  if (const char* path = std::getenv("FAKE_WORKER_PID_FILE")) {
    if (!base::write_file_atomically(path, std::to_string(::getpid())).ok()) return 1;
  }
  const Behaviour behaviour(flags["--model"]);
  if (behaviour.has("fail")) {
    std::fputs("some log line\nllorch-cpud: no.gguf does not exist; name a file that does\n",
               stderr);
    return 1;
  }
  behave_early(behaviour);
  Shown shown;
  std::promise<void> asked_to_end;
  std::atomic_flag is_asked;
  http::ServerOptions options;
  options.render_error = render;
  options.port = static_cast<std::uint16_t>(std::atoi(flags["--port"].c_str()));
  Result<std::unique_ptr<http::Server>> server =
      http::Server::start(make_router(behaviour, shown,
                                      [&] {
                                        if (!is_asked.test_and_set()) asked_to_end.set_value();
                                      }),
                          options);
  if (!server.ok()) {
    fmt::print(stderr, "llorch-cpud: {}\n", server.error().message);
    return 1;
  }
  std::vector<char> memory(static_cast<std::size_t>(behaviour.number("alloc")) << 20, 'x');
  const std::future<void> end = asked_to_end.get_future();
  end.wait_for(std::chrono::milliseconds(behaviour.number("load")));
  if (behaviour.has("exit")) return behaviour.number("exit");
  contract::ReadyCallback ready;
  ready.worker_id = behaviour.has("liar") ? "another" : flags["--worker-id"];
  ready.uri = fmt::format("http://127.0.0.1:{}", (*server)->port());
  ready.model_ref = flags["--model"];
  ready.worker_type = "fake";
  ready.version = "0";
  shown.ready = !behaviour.has("mute");
  if (!behaviour.has("mute") && !tell_ready(flags["--callback-url"], ready, end)) {
    std::fputs("llorch-cpud: the callback was refused\n", stderr);
    return 1;
  }
  if (behaviour.has("hang")) ::raise(SIGSTOP);
  if (behaviour.has("exit-later")) {
    behaviour.wait("exit-later");
    std::fputs("fake worker: had enough\n", stderr);
    return 3;
  }
  end.wait();  // or until a signal ends it
  shown.draining = true;
  (*server)->drain(std::chrono::seconds(1));
  return memory.empty() || memory[0] == 'x' ? 0 : 1;
}

}  // namespace
}  // namespace llorch::test

// A sanitizer that looks for leaks traces the process, which a confined one may not do.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0";
}

int main(int argc, char** argv) {
  // A sanitizer would make an exit code of these.
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS}) std::signal(signal, SIG_DFL);
  std::map<std::string, std::string> flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  return llorch::test::serve(std::move(flags));
}
