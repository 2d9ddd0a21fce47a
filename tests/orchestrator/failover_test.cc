// A worker is killed in the middle of an answer: its client's text goes on word for word. With the
// real programs, through OpenAI's endpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "fleet_home.h"
#include "http/client.h"
#include "http/io_threads.h"
#include "support/run_program.h"
#include "worker/test_model.h"

namespace llorch::test {
namespace {

struct Streamed {
  int status = 0;
  std::string worker;  // that began it
  std::string raw;
  std::map<std::int64_t, std::string> texts;    // of each choice
  std::map<std::int64_t, std::string> calls;    // of each choice: tools and their arguments
  std::map<std::int64_t, std::string> reasons;  // for which each ended
  bool is_done = false;
};

// On a machine with much to do, what a worker says needs longer to come here than the worker for
// all the rest of its answer, unless everybody else on the way has the processor before it.
void let_others_go_first(pid_t worker) {
  const std::filesystem::path threads = "/proc/" + std::to_string(worker) + "/task";
  for (const auto& thread : std::filesystem::directory_iterator(threads)) {
    const auto id = static_cast<id_t>(std::stoul(thread.path().filename().string()));
    EXPECT_EQ(::setpriority(PRIO_PROCESS, id, 19), 0);
  }
  // Where the kernel shares the processor between sessions first.
  std::ofstream("/proc/" + std::to_string(worker) + "/autogroup") << 19;
}

class FailoverTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(home.start());
    write_test_model(home.folder() / "tale", kSlow);
    const ProgramOutcome registered = run_program(
        LLORCH_POOL, {"models", "register", "tale", "--path", (home.folder() / "tale").string()},
        {"LLORCH_HOME=" + home.folder().path().string()});
    ASSERT_EQ(registered.exit_code, 0) << registered.err;
    // The pool tells the orchestrator; a request that is faster than that is not a 404.
    EXPECT_EQ(home.get("/v1/models/tale").status, 200);
  }

  // Streams an answer. The victim is killed once so many events have come; 0: nobody is.
  Streamed ask(std::string_view path, const json::Object& body, pid_t victim = 0,
               std::size_t kill_after = 0) {
    std::promise<Streamed> done;
    http::IoThreads io(1);
    io.spawn([&]() -> http::Task<void> {
      Streamed answer;
      co_await read(std::string(path), body, victim, kill_after, answer);
      done.set_value(std::move(answer));
    });
    Streamed answer = done.get_future().get();
    parse(answer);
    return answer;
  }

  http::Task<void> read(std::string path, json::Object body, pid_t victim, std::size_t kill_after,
                        Streamed& answer) {
    http::ClientRequest request(http::Method::Post, home.url() + path);
    body["stream"] = true;
    request.body = json::serialize(body);
    request.total_timeout = std::chrono::seconds(120);
    request.idle_timeout = std::chrono::seconds(60);
    Result<http::ResponseStream> stream = co_await client.async_open(std::move(request));
    if (!stream.ok()) co_return;
    answer.status = stream->status();
    answer.worker = stream->headers().find("X-Llorch-Worker").value_or("");
    while (true) {
      const Result<std::string> piece = co_await stream->read_some();
      if (!piece.ok() || piece->empty()) co_return;
      answer.raw += *piece;
      std::size_t events = 0;
      for (std::size_t at = answer.raw.find("data: "); at != std::string::npos;
           at = answer.raw.find("data: ", at + 1))
        ++events;
      if (victim > 0 && events >= kill_after) {
        EXPECT_EQ(::kill(victim, SIGKILL), 0);
        victim = 0;
      }
    }
  }

  // Each call's id, name and arguments as they come.
  static std::string calls_text(const json::Array& calls) {
    std::string text;
    for (const json::Value& call : calls) {
      const json::Object& function = call.at("function").as_object();
      if (const json::Value* id = call.as_object().if_contains("id"))
        text += "\n" + std::string(id->as_string()) + " ";
      if (const json::Value* name = function.if_contains("name"))
        text += std::string(name->as_string()) + ": ";
      if (const json::Value* arguments = function.if_contains("arguments"))
        text += json::view(arguments->as_string());
    }
    return text;
  }

  static void parse(Streamed& answer) {
    http::SseReader reader;
    std::vector<http::SseEvent> events;
    EXPECT_TRUE(reader.feed(answer.raw, events).ok());
    for (const http::SseEvent& event : events) {
      if (event.data == "[DONE]") {
        answer.is_done = true;
        continue;
      }
      const Result<json::Value> data = json::parse(event.data);
      ASSERT_TRUE(data.ok()) << event.data;
      ASSERT_TRUE(data->as_object().contains("choices")) << event.data;
      for (const json::Value& entry : data->as_object().at("choices").as_array()) {
        const json::Object& choice = entry.as_object();
        const std::int64_t index = choice.at("index").as_int64();
        const json::Value* text = choice.if_contains("text");
        if (const json::Value* delta = choice.if_contains("delta")) {
          text = delta->as_object().if_contains("content");
          if (const json::Value* calls = delta->as_object().if_contains("tool_calls"))
            answer.calls[index] += calls_text(calls->as_array());
        }
        if (text != nullptr && !text->is_null())
          answer.texts[index] += json::view(text->as_string());
        if (choice.at("finish_reason").is_string())
          answer.reasons[index] = json::view(choice.at("finish_reason").as_string());
      }
    }
  }

  // Returns the answer.
  Streamed expect_same_when_killed(std::string_view path, const json::Object& body,
                                   std::size_t kill_after) {
    Streamed whole = ask(path, body);
    EXPECT_EQ(whole.status, 200) << whole.raw;
    EXPECT_TRUE(whole.is_done) << whole.raw;
    // It answers the next one too.
    const pid_t worker = home.pid_of_worker(whole.worker);
    let_others_go_first(worker);
    const Streamed moved = ask(path, body, worker, kill_after);
    EXPECT_TRUE(moved.is_done) << moved.raw << home.err();
    EXPECT_EQ(moved.texts, whole.texts);
    EXPECT_EQ(moved.calls, whole.calls);
    EXPECT_EQ(moved.reasons, whole.reasons);
    EXPECT_THAT(moved.raw, testing::HasSubstr(": migrated {\"from\":\"local/worker-cpu-"));
    return whole;
  }

  FleetHome home;
  http::Client client;
};

json::Array hello() {
  return {json::Object{{"role", "user"}, {"content", "Tell me a tale."}}};
}

TEST_F(FailoverTest, ChatsGoOnWordForWord) {
  json::Object greedy{
      {"model", "tale"}, {"messages", hello()}, {"temperature", 0}, {"max_tokens", 400}};
  expect_same_when_killed("/v1/chat/completions", greedy, 12);
  json::Object three{{"model", "tale"}, {"messages", hello()}, {"temperature", 0.9}, {"seed", 5},
                     {"n", 3},          {"max_tokens", 200}};
  expect_same_when_killed("/v1/chat/completions", three, 24);
}

TEST_F(FailoverTest, StructuredOutputHoldsAcrossTheBorder) {
  const json::Value schema = *json::parse(
      R"({"type":"json_schema","json_schema":{"name":"tale","schema":{"type":"object","properties":{
"title":{"type":"string","minLength":60,"maxLength":80},"pages":{"type":"array","items":{"type":"integer"},"minItems":12,"maxItems":16}},
"required":["title","pages"],"additionalProperties":false}}})");
  const json::Object body{{"model", "tale"}, {"messages", hello()}, {"temperature", 0.7},
                          {"seed", 11},      {"max_tokens", 900},   {"response_format", schema}};
  expect_same_when_killed("/v1/chat/completions", body, 12);
}

// Three characters that the text has in its second half only.
std::string find_stop(const std::string& text) {
  const auto is_plain = [](char c) { return c > ' ' && c <= '~'; };
  for (std::size_t at = text.size() * 3 / 4; at + 3 <= text.size(); ++at) {
    std::string piece = text.substr(at, 3);
    if (std::all_of(piece.begin(), piece.end(), is_plain) && text.find(piece) > text.size() / 2)
      return piece;
  }
  return {};
}

TEST_F(FailoverTest, AStopStringCountsBehindTheBorder) {
  json::Object body{{"model", "tale"},
                    {"messages", hello()},
                    {"temperature", 0.9},
                    {"seed", 13},
                    {"max_tokens", 60}};
  const std::string text = ask("/v1/chat/completions", body).texts[0];
  const std::string stop = find_stop(text);
  ASSERT_FALSE(stop.empty()) << text;
  body["stop"] = json::Array{stop, "nothing that is in it"};
  const Streamed stopped = expect_same_when_killed("/v1/chat/completions", body, 12);
  EXPECT_EQ(stopped.texts.at(0), text.substr(0, text.find(stop)));
  EXPECT_EQ(stopped.reasons.at(0), "stop");
}

TEST_F(FailoverTest, ARequiredToolCallGoesOn) {
  const json::Value tools = *json::parse(
      R"([{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{
"city":{"type":"string","minLength":60,"maxLength":80},"days":{"type":"array","items":{"type":"integer"},"minItems":12,"maxItems":16}},
"required":["city","days"],"additionalProperties":false}}}])");
  const json::Object body{{"model", "tale"},           {"messages", hello()},
                          {"temperature", 0.7},        {"seed", 17},
                          {"max_tokens", 900},         {"tools", tools},
                          {"tool_choice", "required"}, {"parallel_tool_calls", false}};
  const Streamed called = expect_same_when_killed("/v1/chat/completions", body, 12);
  ASSERT_TRUE(called.calls.contains(0)) << called.raw;
  const std::string& call = called.calls.at(0);
  constexpr std::string_view kName = " get_weather: ";
  ASSERT_THAT(call, testing::HasSubstr(std::string(kName)));
  const Result<json::Value> arguments = json::parse(call.substr(call.find(kName) + kName.size()));
  ASSERT_TRUE(arguments.ok()) << call;
  EXPECT_GE(arguments->at("days").as_array().size(), 12U);
  EXPECT_EQ(called.reasons.at(0), "tool_calls");
}

TEST_F(FailoverTest, CompletionsGoOnAndWholeAnswersAreTheWorkersOwn) {
  json::Object body{{"model", "tale"},    {"prompt", "Once upon a time"},
                    {"temperature", 0.8}, {"seed", 3},
                    {"max_tokens", 400},  {"logprobs", 2}};
  expect_same_when_killed("/v1/completions", body, 15);

  // Field for field what the worker itself answers, but for what names this one answer.
  const Answer folded = home.post("/v1/completions", body);
  ASSERT_EQ(folded.status, 200);
  std::string worker(folded.headers.find("X-Llorch-Worker").value_or(""));
  worker.erase(0, worker.find('/') + 1);
  http::ClientRequest direct(http::Method::Post,
                             home.pool_url() + "/v2/workers/" + worker + "/api/v1/completions");
  body.erase("model");
  direct.body = json::serialize(body);
  const Result<http::Response> own = client.send(direct);
  ASSERT_TRUE(own.ok());
  ASSERT_EQ(own->status, 200) << own->body;
  json::Object expected = json::parse(own->body)->as_object();
  json::Object found = folded.body.as_object();
  for (const std::string_view name : {"id", "created", "model"}) {
    EXPECT_TRUE(found.contains(name));
    expected[name] = found[name];
  }
  // What its cache had of the prompt, the second time.
  expected.at("usage").as_object().erase("prompt_tokens_details");
  found.at("usage").as_object().erase("prompt_tokens_details");
  EXPECT_EQ(json::serialize(found), json::serialize(expected));
}

}  // namespace
}  // namespace llorch::test
