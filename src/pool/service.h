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
#include "http/client.h"
#include "http/stream.h"
#include "http/task.h"
#include "pool/need_book.h"
#include "pool/routes.h"

namespace llorch::pool {

using api::json_response;

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

// All failures of a request: the contract's envelope with each of them.
http::Response failures_response(const http::Request& request,
                                 std::vector<json::FieldError> errors);

// The request's body as an object; one that is empty counts as {}.
Result<json::Object> read_body(const http::Request& request);
// The query as an object for a FieldReader: numbers and true/false are what they look like.
json::Object read_query(const http::Request& request);

// The parameter of the path; the router has seen to it that there is one.
const std::string& path_param(const http::Request& request, const std::string& name);

}  // namespace llorch::pool
