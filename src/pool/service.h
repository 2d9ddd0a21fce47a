// What every handler of the API works with. Private to pool/.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/answers.h"
#include "base/json_fields.h"
#include "base/mutex.h"
#include "catalog/model_catalog.h"
#include "contract/fields.h"
#include "http/client.h"
#include "http/stream.h"
#include "http/task.h"
#include "pool/need_book.h"
#include "pool/routes.h"

namespace llorch::pool {

using api::failures_response;
using api::json_response;
using api::read_body;
using api::read_query;

// The catalog, read again only when its file has changed: a health check must not parse ten
// thousand models. Any thread.
class CatalogReader {
 public:
  explicit CatalogReader(catalog::ModelCatalog catalog) : catalog_(std::move(catalog)) {}

  const catalog::ModelCatalog& catalog() const { return catalog_; }
  Result<std::shared_ptr<const catalog::CatalogContent>> read();

 private:
  // Which file this is: another one in its place differs in one of these.
  struct Stamp {
    std::uint64_t inode = 0;
    std::int64_t size = -1;
    std::int64_t changed_ns = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  Stamp stamp_of_file() const;

  const catalog::ModelCatalog catalog_;
  base::Mutex mutex_;
  std::optional<Stamp> stamp_ LLORCH_GUARDED_BY(mutex_);
  std::shared_ptr<const catalog::CatalogContent> content_ LLORCH_GUARDED_BY(mutex_);
};

struct Service {
  Service(PoolServices all, const RouteSettings& route_settings);

  PoolServices pool;
  RouteSettings settings;
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  mutable CatalogReader catalog;
  std::vector<contract::ModelEntry> known_models;  // what can be fetched, and the built-in one
  mutable std::atomic<std::size_t> num_followers = 0;
  mutable NeedBook needs;
  mutable http::Client relay_client{{.max_idle_connections = 64}};
  mutable std::atomic<std::size_t> num_relays = 0;
  mutable std::atomic<std::size_t> relays_total = 0;
};
using ServicePtr = std::shared_ptr<const Service>;

// A handler that may block: it runs on one of pool.threads, with a request of its own.
using BlockingTask = Result<http::Response> (*)(const Service& service,
                                                const http::Request& request);
// One that streams, on its io thread.
using StreamTask = http::Task<Status> (*)(ServicePtr service, const http::Request& request,
                                          http::Responder& responder);

http::Task<Status> run_blocking(ServicePtr service, BlockingTask task, const http::Request& request,
                                http::Responder& responder);

// May refuse more of what was read than its description does.
template <class T>
using CheckFields = void (*)(json::FieldReader& reader, const T& value);

// The fields as T is described; what is wrong with them is in `errors`.
template <class T>
T read_fields(const json::Object& fields, std::vector<json::FieldError>& errors,
              CheckFields<T> check = nullptr) {
  json::FieldReader reader(fields);
  contract::FieldTaker taker(reader, contract::OtherFields::Refuse);
  T value;
  describe(taker, value);
  if (check != nullptr) check(reader, value);
  errors = reader.finish();
  return value;
}

// The fields, handed to `answer`; all their failures are the answer.
template <class T, class Answer>
Result<http::Response> answer_fields(const http::Request& request, const json::Object& fields,
                                     Answer answer, CheckFields<T> check = nullptr) {
  std::vector<json::FieldError> errors;
  const T value = read_fields<T>(fields, errors, check);
  if (!errors.empty()) return failures_response(request, std::move(errors));
  return answer(value);
}
template <class T, class Answer>
Result<http::Response> answer_query(const http::Request& request, Answer answer) {
  return answer_fields<T>(request, read_query(request), answer);
}
template <class T, class Answer>
Result<http::Response> answer_body(const http::Request& request, Answer answer,
                                   CheckFields<T> check = nullptr) {
  const Result<json::Object> body = read_body(request);
  if (!body.ok()) return body.error();
  return answer_fields<T>(request, *body, answer, check);
}

// The parameter of the path; the router has seen to it that there is one.
const std::string& path_param(const http::Request& request, const std::string& name);

}  // namespace llorch::pool
