#include "pool/relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <stop_token>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "contract/pool_state.h"
#include "pool/fence.h"
#include "pool/state_board.h"

namespace llorch::pool {
namespace {

using contract::PoolWorkerState;

// A worker that computes a whole answer says nothing for as long as that takes; one that hangs is
// ended by the manager, which ends its connections.
constexpr std::chrono::hours kSilence{24};
constexpr std::chrono::milliseconds kConnectTimeout{3'000};
constexpr std::size_t kSlashesBefore = 5;  // "/v2/workers/{id}/api/" of a relayed path

constexpr std::array<std::string_view, 9> kHopByHop = {
    "connection",        "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
    "transfer-encoding", "upgrade",    "content-length"};
constexpr std::array<std::string_view, 8> kOfRequests = {
    "host",   "expect",           "authorization", "cookie",
    "origin", "x-correlation-id", "referer",       contract::kBootHeader};
constexpr std::array<std::string_view, 3> kOfAnswers = {"date", "content-type", "x-correlation-id"};

template <std::size_t N>
bool is_among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::any_of(names.begin(), names.end(), [name](std::string_view other) {
    return http::equals_ignoring_case(name, other);
  });
}

bool begins_with(std::string_view name, std::string_view prefix) {
  return name.size() >= prefix.size() &&
         http::equals_ignoring_case(name.substr(0, prefix.size()), prefix);
}

// What the Connection fields of a head name: they end here, too.
std::vector<std::string> named_by_connection(const http::Headers& headers) {
  std::vector<std::string> names;
  for (const auto& [name, value] : headers) {
    if (!http::equals_ignoring_case(name, "connection")) continue;
    std::string_view rest = value;
    while (!rest.empty()) {
      std::string_view one = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
      while (one.starts_with(' ')) one.remove_prefix(1);
      while (one.ends_with(' ')) one.remove_suffix(1);
      names.emplace_back(one);
    }
  }
  return names;
}

bool is_named(const std::vector<std::string>& names, std::string_view name) {
  return std::any_of(names.begin(), names.end(), [name](const std::string& other) {
    return http::equals_ignoring_case(name, other);
  });
}

// Of the path as it was sent what is behind "/v2/workers/{id}/api": begins with a slash. It goes on
// unread, so the worker sees what the client wrote; nothing in it can name another worker.
std::string_view path_of_worker(std::string_view path) {
  std::size_t at = 0;
  for (std::size_t slash = 1; slash < kSlashesBefore; ++slash) at = path.find('/', at + 1);
  return path.substr(at);
}

std::optional<std::int64_t> length_of(const http::Headers& headers) {
  const auto text = headers.find("Content-Length");
  if (!text || headers.find("Transfer-Encoding")) return std::nullopt;
  std::int64_t length = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), length);
  if (error != std::errc() || end != text->data() + text->size() || length < 0) return std::nullopt;
  return length;
}

bool has_body(int status) {
  return status >= 200 && status != 204 && status != 304;
}

// Writes the answer as it comes. An error breaks the stream off, so that nobody takes what came for
// all there is.
http::Task<Status> pass_on(http::ResponseStream& answer, http::Responder& responder) {
  http::Headers headers = relayed_headers(answer.headers());
  if (!has_body(answer.status())) {
    http::Response empty;
    empty.status = answer.status();
    empty.headers = std::move(headers);
    co_return co_await responder.send(std::move(empty));
  }
  std::string type(answer.headers().find("Content-Type").value_or("application/octet-stream"));
  Result<http::Stream> stream = co_await responder.open_stream(
      answer.status(), std::move(type), std::move(headers), length_of(answer.headers()));
  if (!stream.ok()) co_return stream.error();
  while (true) {
    const Result<std::string> piece = co_await answer.read_some();
    if (!piece.ok()) co_return piece.error();
    if (piece->empty()) co_return ok_status();
    Status written = co_await stream->write(*piece);
    if (!written.ok()) co_return written;
  }
}

// Counts a relay for as long as it lives.
class RelayCount {
 public:
  explicit RelayCount(const Service& service) : service_(service) {
    ++service_.num_relays;
    ++service_.relays_total;
  }
  ~RelayCount() { --service_.num_relays; }
  RelayCount(const RelayCount&) = delete;
  RelayCount& operator=(const RelayCount&) = delete;

 private:
  const Service& service_;
};

// The token that ends the relays of this request's orchestrator; none: nobody's.
Result<std::stop_token> enter_fence(Fence& fence, const http::Request& request) {
  const Result<std::optional<std::uint64_t>> boot = boot_of(request.headers);
  if (!boot.ok()) return boot.error();
  if (!boot->has_value()) return std::stop_token();
  return fence.enter(**boot, std::chrono::steady_clock::now());
}

}  // namespace

http::ClientRequest relayed_request(const http::Request& request, const std::string& uri) {
  const std::vector<std::string> ended = named_by_connection(request.headers);
  http::ClientRequest out(request.method, uri + std::string(path_of_worker(request.path)));
  if (!request.raw_query.empty()) out.url += "?" + request.raw_query;
  for (const auto& [name, value] : request.headers) {
    if (is_among(kHopByHop, name) || is_among(kOfRequests, name) || is_named(ended, name) ||
        begins_with(name, "sec-"))
      continue;
    out.headers.add(name, value);
  }
  out.headers.add("X-Correlation-Id", request.correlation_id);
  out.body = request.body;
  out.connect_timeout = kConnectTimeout;
  out.total_timeout = std::chrono::milliseconds(0);
  out.idle_timeout = kSilence;
  return out;
}

http::Headers relayed_headers(const http::Headers& answer) {
  const std::vector<std::string> ended = named_by_connection(answer);
  http::Headers out;
  for (const auto& [name, value] : answer) {
    if (is_among(kHopByHop, name) || is_among(kOfAnswers, name) || is_named(ended, name) ||
        begins_with(name, "access-control-"))
      continue;
    out.add(name, value);
  }
  return out;
}

Status check_reachable(const contract::PoolWorker& worker) {
  switch (worker.state) {
    case PoolWorkerState::Ready:
    case PoolWorkerState::Busy:
    case PoolWorkerState::Draining:  // cancels go through; new work it refuses itself
      if (!worker.uri.empty()) return ok_status();
      return Error{ErrorCode::Unavailable,
                   fmt::format("worker {} is draining and never listened", worker.id)};
    case PoolWorkerState::Starting:
      return Error{ErrorCode::Unavailable,
                   fmt::format("worker {} is starting ({:.0f} % loaded); try again", worker.id,
                               worker.load_progress * 100)};
    case PoolWorkerState::Stopped:
      return Error{ErrorCode::NotFound, fmt::format("worker {} was stopped", worker.id)};
    case PoolWorkerState::Failed:
      break;
  }
  return Error{ErrorCode::NotFound, fmt::format("worker {} has failed ({}): {}", worker.id,
                                                contract::name(worker.category), worker.reason)};
}

http::Task<Status> relay_to_worker(ServicePtr service, const http::Request& request,
                                   http::Responder& responder) {
  const std::string& id = path_param(request, "id");
  if (service->pool.phase() == PoolPhase::Starting)
    co_return Error{ErrorCode::Unavailable, "the pool manager is starting; try again"};
  const std::optional<contract::PoolWorker> worker = service->pool.board.find(id);
  if (!worker) {
    co_return Error{ErrorCode::NotFound,
                    fmt::format("there is no worker {}; GET /v2/workers lists those there are",
                                base::quoted(id))};
  }
  if (Status reachable = check_reachable(*worker); !reachable.ok()) co_return reachable;
  const Result<std::stop_token> fence = enter_fence(service->pool.fence, request);
  if (!fence.ok()) co_return fence.error();

  const RelayCount count(*service);
  std::stop_source end;
  const std::stop_callback on_fence(*fence, [end]() mutable { end.request_stop(); });
  responder.on_disconnect([end]() mutable { end.request_stop(); });
  http::ClientRequest upstream = relayed_request(request, worker->uri);
  upstream.stop = end.get_token();
  Result<http::ResponseStream> answer =
      co_await service->relay_client.async_open(std::move(upstream));
  if (!answer.ok()) {
    if (fence->stop_requested()) {
      co_return Error{ErrorCode::Conflict,
                      "the relay was ended: a later orchestrator uses this pool, or this one has "
                      "not polled for too long"};
    }
    Error failure = answer.error().in("worker " + id);
    if (failure.code != ErrorCode::OutOfMemory && failure.code != ErrorCode::Cancelled)
      failure.code = ErrorCode::Unavailable;
    co_return failure;
  }
  co_return co_await pass_on(*answer, responder);
}

}  // namespace llorch::pool
