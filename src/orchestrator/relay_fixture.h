// For tests: answers and relays with a real store and scripted workers, without the owner. The test
// plays its part: it opens attempts and tells the end.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "api/answers.h"
#include "base/mutex.h"
#include "http/client.h"
#include "http/server.h"
#include "http/sse.h"
#include "job_store/sqlite_store.h"
#include "orchestrator/relay.h"
#include "orchestrator/test_pool.h"

namespace llorch::orchestrator::test {

// What was posted to the owner; any thread.
class PostedEvents {
 public:
  void add(fleet::Event event) {
    const base::MutexLock lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }

  // The first of its kind that is not taken yet; waits for it.
  template <class T>
  T take() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const base::MutexLock lock(mutex_);
    while (true) {
      for (auto event = events_.begin(); event != events_.end(); ++event) {
        if (auto* found = std::get_if<T>(&*event)) {
          T taken = std::move(*found);
          events_.erase(event);
          return taken;
        }
      }
      if (!changed_.wait_until(mutex_, deadline)) {
        ADD_FAILURE() << "an event did not come";
        return {};
      }
    }
  }

  template <class T>
  std::size_t count() const {
    const base::MutexLock lock(mutex_);
    std::size_t count = 0;
    for (const fleet::Event& event : events_) count += std::holds_alternative<T>(event) ? 1U : 0U;
    return count;
  }

 private:
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<fleet::Event> events_ LLORCH_GUARDED_BY(mutex_);
};

class RelayHouse {
 public:
  explicit RelayHouse(RelayTimes times = {}, BookLimits limits = {})
      : folder_(testing::TempDir() + fmt::format("relay_{}_{}", ::getpid(), next_number())),
        store_(open_store()),
        book(
            *store_, work, [this](fleet::Event event) { posted.add(std::move(event)); }, limits),
        relays(
            io, work, book, [this](fleet::Event event) { posted.add(std::move(event)); }, times) {
    book_ = &book;
    http::Router router;
    router.add(http::Method::Get, "/follow/{job}",
               http::Handler([this](const http::Request& request, http::Responder& responder) {
                 const std::string job = request.path_params.at("job");
                 return book.follow(fleet::job_id_from_text(job).value_or(fleet::JobId{}),
                                    std::string(request.headers.find("Last-Event-ID").value_or("")),
                                    responder);
               }));
    http::ServerOptions options;
    options.render_error = api::render_error;
    Result<std::unique_ptr<http::Server>> server = http::Server::start(std::move(router), options);
    EXPECT_TRUE(server.ok());
    server_ = server.take();
  }
  ~RelayHouse() {
    server_->stop();
    io.stop();
    book_ = nullptr;
    store_.reset();
    std::filesystem::remove_all(folder_);
  }

  // A job with a record in the store and an open answer.
  fleet::JobId submit(fleet::JobKind kind, fleet::Holder holder = fleet::Holder::Followed,
                      std::uint32_t choices = 1, ClientWish wish = {}) {
    const fleet::JobId job{7, next_number()};
    fleet::SubmittedRecord& facts = facts_[job];
    facts.kind = kind;
    facts.holder = holder;
    facts.choices = choices;
    facts.seed = 42;
    facts.model_name = "story";
    facts.submitted_ms = 1'700'000'000'000;
    EXPECT_TRUE(store_->append(
        {.job = job, .record = facts, .eager = true, .body = std::make_shared<std::string>("{}")}));
    if (holder == fleet::Holder::Connection) book.prepare(job, wish);
    book.open(job, facts, {});
    return job;
  }

  fleet::SubmittedRecord& facts(const fleet::JobId& job) { return facts_[job]; }

  fleet::AttemptId open(const fleet::JobId& job, const std::string& worker,
                        const std::string& from = {}, bool is_exact = true) {
    const fleet::AttemptId attempt{job, 3, ++attempts_[job]};
    AttemptRequest request;
    request.order = {.attempt = attempt,
                     .host = "h",
                     .worker = worker,
                     .resumes = !from.empty(),
                     .is_exact = is_exact,
                     .lost_for_ms = from.empty() ? 0.0 : 1.5,
                     .from_host = from.empty() ? "" : "h",
                     .from_worker = from};
    request.pool = pool.address();
    request.facts = facts_[job];
    std::string body = R"({"prompt":"p"})";
    if (request.facts.kind != fleet::JobKind::Execute)
      body = fmt::format(R"({{"model":"story","messages":[],"stream":false,"n":{}}})",
                         request.facts.choices);
    request.body = std::make_shared<const std::string>(std::move(body));
    relays.open(std::move(request));
    return attempt;
  }

  void tell_end(const fleet::JobId& job, fleet::JobState state,
                ErrorCode code = ErrorCode::Internal, std::string message = {}) {
    fleet::EndedRecord end{.state = state, .code = code, .message = std::move(message)};
    book.tell(job, {.kind = fleet::NoticeKind::Ended, .end = end});
    EXPECT_TRUE(store_->append({.job = job, .expected_seq = 1, .record = end, .eager = true}));
  }

  // Follows the job's events to their end, or until `max_events` have come.
  std::future<std::string> follow(const fleet::JobId& job, const std::string& last_event_id = {},
                                  std::size_t max_events = SIZE_MAX) {
    return std::async(std::launch::async, [this, job, last_event_id, max_events] {
      http::Client client;
      http::ClientRequest request(
          http::Method::Get,
          fmt::format("http://127.0.0.1:{}/follow/{}", server_->port(), fleet::text(job)));
      if (!last_event_id.empty()) request.headers.add("Last-Event-ID", last_event_id);
      std::string text;
      std::size_t events = 0;
      const Result<http::Response> answer = client.stream(request, [&](std::string_view bytes) {
        text += bytes;
        events = 0;
        for (std::size_t at = text.find("\n\n"); at != std::string::npos;
             at = text.find("\n\n", at + 2))
          ++events;
        return events < max_events;
      });
      if (answer.ok() && answer->status != 200) return answer->body;
      return text;
    });
  }

  // Waits until its end is durable.
  void wait_ended(const fleet::JobId& job) {
    while (true) {
      const Result<fleet::JobRecords> records = store_->read_job(job);
      if (records.ok() && records->records.size() == 2) return;
      std::this_thread::yield();
    }
  }

  // Waits until so many ids are durable.
  fleet::Position wait_stored(const fleet::JobId& job, std::uint64_t total) {
    while (true) {
      const Result<fleet::JobRecords> records = store_->read_job(job);
      if (records.ok() && records->stored.total() >= total) return records->stored;
      std::this_thread::yield();
    }
  }

  PostedEvents posted;
  TestPool pool;

 private:
  static std::uint64_t next_number() {
    static std::atomic<std::uint64_t> newest{0};
    return ++newest;
  }
  std::unique_ptr<job_store::Store> open_store() {
    std::filesystem::create_directories(folder_);
    job_store::SqliteOptions options;
    options.file = folder_ + "/jobs.db";
    Result<std::unique_ptr<job_store::Store>> store =
        job_store::open_sqlite_store(options, [this](const job_store::Written& written) {
          if (AnswerBook* with = book_) with->note_written(written.answers);
        });
    EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error().message);
    EXPECT_TRUE((*store)->begin_boot().ok());
    return store.take();
  }

  const std::string folder_;
  std::atomic<AnswerBook*> book_{nullptr};
  std::unique_ptr<job_store::Store> store_;
  std::map<fleet::JobId, fleet::SubmittedRecord> facts_;
  std::map<fleet::JobId, std::uint32_t> attempts_;

 public:
  http::WorkThreads work{2};
  AnswerBook book;
  http::IoThreads io{2};
  Relays relays;

 private:
  std::unique_ptr<http::Server> server_;
};

inline std::vector<http::SseEvent> events_of(const std::string& text) {
  http::SseReader reader;
  std::vector<http::SseEvent> events;
  EXPECT_TRUE(reader.feed(text, events).ok());
  return events;
}

// The text of a choice, put together from the events of any kind of answer.
inline std::string text_of(const std::string& stream, std::uint32_t choice = 0) {
  std::string text;
  for (const http::SseEvent& event : events_of(stream)) {
    const Result<json::Value> data = json::parse(event.data);
    if (!data.ok() || !data->is_object()) continue;
    const json::Object& object = data->get_object();
    if (event.event == "token") text += json::view(object.at("t").as_string());
    const json::Value* choices = object.if_contains("choices");
    if (choices == nullptr) continue;
    for (const json::Value& each : choices->as_array()) {
      if (each.as_object().at("index") != json::Value(choice)) continue;
      const json::Value* delta = each.as_object().if_contains("delta");
      const json::Value* piece = delta != nullptr ? delta->as_object().if_contains("content")
                                                  : each.as_object().if_contains("text");
      if (piece != nullptr) text += json::view(piece->as_string());
    }
  }
  return text;
}

}  // namespace llorch::orchestrator::test
