// For tests: a worker that speaks the contract and computes nothing. --model says how it behaves:
//   ok      a short answer in several events
//   echo    answers with the request it got
//   endless one token after the other until the client goes
//   refuse  400      error  an error event in the middle      cut  ends without an end event
//   crash   dies in the middle of an answer                   fail dies before it is ready
//   mute    never becomes ready                               liar says it is another worker
// Its process id goes to the file that the environment variable FAKE_WORKER_PID_FILE names.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "contract/error_table.h"
#include "contract/inference.h"
#include "contract/worker_info.h"
#include "http/client.h"
#include "http/server.h"
#include "http/sse.h"

namespace llorch::cli {
namespace {

using Feed = http::EventFeed<std::string>;

std::string event(std::string_view name, const json::Object& data) {
  return http::format_event(name, json::serialize(data));
}

std::string token(std::int64_t index, std::string text) {
  return event("token", contract::token_event_json({std::move(text), index}));
}

std::string started(const contract::InferenceRequest& request, const std::string& model) {
  contract::StartedEvent data;
  data.job_id = request.job_id;
  data.model = model;
  data.started_at = "2026-01-01T00:00:00Z";
  return event("started", contract::started_event_json(data));
}

std::string end(std::int64_t tokens) {
  contract::InferenceResult result;
  result.tokens_out = tokens;
  result.decode_time_ms = 20;
  result.stop_reason = contract::StopReason::Eos;
  result.prompt_tokens = 4;
  result.ttft_ms = 1.5;
  result.seed = 42;
  return event("end", contract::end_event_json(result));
}

// Pushes the whole answer; on a thread of its own, as an engine would.
void produce(const std::string& model, const contract::InferenceRequest& request,
             const std::string& body, Feed& feed) {
  bool open = feed.try_push(started(request, model));
  if (model == "endless") {
    for (std::int64_t i = 0; open; ++i) {
      open = feed.try_push(token(i, "on and "));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return;
  }
  // A reader that has gone away closes the feed; what is pushed after that is nobody's loss.
  const auto push = [&](std::string text) { std::ignore = feed.try_push(std::move(text)); };
  push(token(0, model == "echo" ? body : ", there was"));
  push(token(1, model == "echo" ? "" : " a café."));
  if (model == "crash") {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::fputs("fake worker: out of ideas\n", stderr);
    std::raise(SIGABRT);
  }
  if (model == "error") {
    push(
        event("error", contract::error_event_json({ErrorCode::DeviceFailed, "the device failed"})));
  } else if (model != "cut") {
    push(end(3));
  }
  feed.close();
}

http::ErrorBody render(const Error& error, std::string_view correlation_id) {
  contract::RenderedError rendered = contract::render_error(error, correlation_id);
  return {rendered.status, "application/json", std::move(rendered.body), {}};
}

http::Task<Status> execute(std::string model, const http::Request& request,
                           http::Responder& responder) {
  std::vector<json::FieldError> errors;
  Result<contract::InferenceRequest> parsed =
      contract::parse_inference_request(request.body, errors);
  if (!parsed.ok()) co_return parsed.error();
  if (model == "refuse")
    co_return Error{ErrorCode::InvalidArgument, "prompt: 9 tokens, room for 8"};
  Result<http::Stream> stream =
      co_await responder.open_stream(200, std::string(http::kEventStreamType));
  if (!stream.ok()) co_return stream.error();
  auto feed = std::make_shared<Feed>(1000);
  std::thread([feed, model, job = parsed.take(), body = request.body] {
    produce(model, job, body, *feed);
  }).detach();
  co_return co_await http::pump_events(*stream, feed, std::chrono::milliseconds(10'000));
}

int serve(std::map<std::string, std::string> flags) {
  base::configure_log({base::LogFormat::Pretty, base::LogLevel::Error});
  if (const char* path = std::getenv("FAKE_WORKER_PID_FILE")) {
    if (!base::write_file_atomically(path, std::to_string(::getpid())).ok()) return 1;
  }
  const std::string model = flags["--model"];
  if (model == "fail") {
    std::fputs("some log line\nllorch-cpud: no.gguf does not exist; name a file that does\n",
               stderr);
    return 1;
  }
  http::Router router;
  router.add(http::Method::Post, "/execute",
             http::Handler([model](const http::Request& request, http::Responder& responder) {
               return execute(model, request, responder);
             }));
  http::ServerOptions options;
  options.render_error = render;
  Result<std::unique_ptr<http::Server>> server = http::Server::start(std::move(router), options);
  if (!server.ok()) return 1;
  contract::ReadyCallback ready;
  ready.worker_id = model == "liar" ? "another" : flags["--worker-id"];
  ready.uri = fmt::format("http://127.0.0.1:{}", (*server)->port());
  ready.model_ref = model;
  ready.worker_type = "fake";
  ready.version = "0";
  http::ClientRequest request(http::Method::Post, flags["--callback-url"]);
  request.headers.add("Content-Type", "application/json");
  request.body = json::serialize(contract::to_json(ready));
  if (model != "mute") {
    const Result<http::Response> answer = http::Client().send(request);
    if (!answer.ok() || answer->status != 200) {
      std::fputs("llorch-cpud: the callback was refused\n", stderr);
      return 1;
    }
  }
  for (;;) ::pause();  // until a signal ends it
}

}  // namespace
}  // namespace llorch::cli

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  return llorch::cli::serve(std::move(flags));
}
