// Two engines with the built-in model behind real servers: an answer of one, cut anywhere, goes on
// at the other.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "api/daemon.h"
#include "http/client.h"
#include "support/test_paths.h"
#include "worker/cut_answers.h"
#include "worker/engine_backend.h"
#include "worker/startup.h"
#include "worker_http/routes.h"

namespace llorch::worker {
namespace {

class LocalWorker {
 public:
  explicit LocalWorker(const std::string& chat_template)
      : backend_([](EngineBackend::Patience) {}, std::chrono::seconds(60)) {
    WorkerOptions options;
    options.model = "builtin";
    options.chat_template = chat_template;
    options.threads = 1;
    options.max_batch = 4;
    options.kv_memory_bytes = std::uint64_t{32} << 20;
    Result<std::unique_ptr<ServingModel>> model =
        load_serving_model(options, {{"cpu"}}, [](double) { return true; });
    EXPECT_TRUE(model.ok()) << model.error().message;
    backend_.set_model(model.take());
    backend_.set_ready();
    Result<std::unique_ptr<http::Server>> server =
        api::start_server([this] { return worker_http::make_router(backend_, {}); },
                          {.host = "127.0.0.1",
                           .port = 0,
                           .paths_without_auth = worker_http::paths_without_auth(),
                           .io_threads = 1,
                           .descriptor_reserve = 16});
    EXPECT_TRUE(server.ok());
    server_ = server.take();
  }
  ~LocalWorker() {
    backend_.stop();
    server_->stop();
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", server_->port()); }

 private:
  EngineBackend backend_;
  std::unique_ptr<http::Server> server_;
};

class CutTest : public testing::Test {
 protected:
  CutTest() {
    const std::filesystem::path file = folder_ / "template.jinja";
    std::ofstream(file) << test::kCutTemplate;
    first_ = std::make_unique<LocalWorker>(file.string());
    second_ = std::make_unique<LocalWorker>(file.string());
  }

  http::Response post(const std::string& path, const std::string& body) const {
    http::ClientRequest request(http::Method::Post, second_->url() + path);
    request.body = body;
    http::Client client;
    Result<http::Response> response = client.send(request);
    EXPECT_TRUE(response.ok());
    return response.ok() ? response.take() : http::Response();
  }
  void expect_400(const std::string& path, const std::string& body, const std::string& words) {
    const http::Response response = post(path, body);
    EXPECT_EQ(response.status, 400) << body << response.body;
    EXPECT_NE(response.body.find(words), std::string::npos) << response.body;
  }

  test::TempDir folder_;
  std::unique_ptr<LocalWorker> first_;
  std::unique_ptr<LocalWorker> second_;
};

TEST_F(CutTest, EveryAnswerGoesOnWithTheSameBytes) {
  std::size_t cuts = 0;
  for (const test::CutCase& one : test::cut_cases(first_->url()))
    cuts += test::check_cuts(one, first_->url(), second_->url());
  RecordProperty("cuts", static_cast<int>(cuts));
  EXPECT_GT(cuts, 150U);
}

TEST_F(CutTest, RefusesWhatTheRequestCannotHaveSaid) {
  const std::string begin = R"({"job_id":"j","prompt":"Once","seed":1,"max_tokens":3,)";
  expect_400("/execute", begin + R"("resume":{"ids":[4096]}})", "not in the vocabulary");
  expect_400("/execute", begin + R"("resume":{"ids":[20,21,22,23]}})", "may have 3 at most");
  expect_400("/execute", R"({"job_id":"j","prompt_ids":[4096]})", "prompt_ids");
  std::string many = "20";
  for (int i = 0; i < 1100; ++i) many += ",20";
  expect_400("/execute",
             R"({"job_id":"j","prompt":"Once","seed":1,"resume":{"ids":[)" + many + "]}}",
             "1101 tokens were said before");
  expect_400(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"x"}],"seed":1,"response_format":{"type":"json_object"},"llorch":{"resume_ids":[40]}})",
      "the format of this request forbids id 40");
}

TEST_F(CutTest, AnswersThatWereWholeEndAtOnce) {
  // The end token itself among the ids, as somebody else may count them.
  const http::Response tokens = post("/tokenize", R"({"text":"a cat sat down."})");
  const json::Array ids = json::parse(tokens.body)->at("tokens").get_array();
  const auto ask = [&](const json::Array& told, const char* more) {
    const std::string body =
        fmt::format(R"({{"job_id":"j","prompt":"There was","seed":1,{}"resume":{{"ids":{}}}}})",
                    more, json::serialize(told));
    return post("/execute", body).body;
  };
  const std::string by_count = ask(ids, fmt::format(R"("max_tokens":{},)", ids.size()).c_str());
  EXPECT_NE(by_count.find(R"("stop_reason":"max_tokens")"), std::string::npos) << by_count;
  EXPECT_EQ(by_count.find("event: token"), std::string::npos) << by_count;
  const std::string by_stop = ask(ids, R"("stop":["down."],)");
  EXPECT_NE(by_stop.find(R"("stop_sequence_matched":"down.")"), std::string::npos) << by_stop;
  const std::string held =
      ask(ids, fmt::format(R"("max_tokens":{},"stop":["down.!"],)", ids.size()).c_str());
  EXPECT_NE(held.find("event: token"), std::string::npos) << "what was held back: " << held;
  EXPECT_NE(held.find(fmt::format(R"("tokens_out":{})", ids.size())), std::string::npos);
}

}  // namespace
}  // namespace llorch::worker
