#include "pool/joiner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/local_ca.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "contract/error_table.h"
#include "contract/fleet_api.h"
#include "http/client.h"
#include "http/feed.h"
#include "http/url.h"

namespace llorch::pool {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kReserve = 4;  // connections that wait to be used
constexpr milliseconds kFirstPause{200};
constexpr milliseconds kLongestPause{15'000};
constexpr milliseconds kSlice{500};        // how soon a pause hears that it is over
constexpr milliseconds kShortLife{1'000};  // a connection that ends sooner counts as a failure
constexpr milliseconds kDialTimeout{10'000};
constexpr std::size_t kFileBytesMax = 128 * 1024;

const base::Logger& logger() {
  static const base::Logger instance("join");
  return instance;
}

std::filesystem::path join_file(const base::Home& home) {
  return home.state / "join.json";
}
std::filesystem::path authority_file(const base::Home& home) {
  return home.state / "join-ca.pem";
}

Status check_url(const std::string& text) {
  const Result<http::Url> url = http::parse_url(text);
  if (!url.ok()) return url.error();
  if (url->is_tls || http::is_loopback(url->host)) return ok_status();
  return Error{ErrorCode::InvalidArgument,
               "url: a pool joins over https://; the token and every prompt would be readable"};
}

Result<contract::PoolJoinRequest> read_request(const base::Home& home) {
  const Result<std::string> text = base::read_text_file(join_file(home), kFileBytesMax);
  if (!text.ok()) return text.error();
  const Result<json::Value> value = json::parse(*text);
  std::vector<json::FieldError> errors;
  if (!value.ok() || !value->is_object())
    return Error{ErrorCode::Corrupt, join_file(home).string() + " is damaged"};
  auto request =
      contract::read_described<contract::PoolJoinRequest>(value->get_object(), errors, true);
  if (!errors.empty()) return Error{ErrorCode::Corrupt, join_file(home).string() + " is damaged"};
  return request;
}

http::Task<void> pause_for(milliseconds time, const std::atomic<bool>& is_wanted) {
  const auto until = Clock::now() + time;
  http::Waker waker;
  while (is_wanted && Clock::now() < until)
    co_await waker.wait_until(std::min(until, Clock::now() + kSlice));
}

}  // namespace

struct Joiner::Session {
  Session(contract::PoolJoinRequest wanted, const http::ClientOptions& trust)
      : request(std::move(wanted)), client(trust), dialer(trust) {
    while (request.url.ends_with('/')) request.url.pop_back();
  }
  http::ClientRequest call(http::Method method, std::string_view path) const {
    http::ClientRequest made(method, request.url + std::string(path));
    made.total_timeout = kDialTimeout;
    made.headers.add("Authorization", "Bearer " + request.token);
    return made;
  }
  std::string host_path() const { return "/v2/pools/" + http::percent_encode(request.name); }

  contract::PoolJoinRequest request;
  http::Client client;
  http::PipeDialer dialer;
  std::atomic<bool> is_wanted = true;
};

Joiner::Joiner(base::Home home) : home_(std::move(home)) {}

Joiner::~Joiner() {
  end_session();
  io_.stop();
}

void Joiner::end_session() {
  const base::MutexLock lock(mutex_);
  if (session_) session_->is_wanted = false;
  session_.reset();
}

Result<Joiner::SessionPtr> Joiner::make_session(const contract::PoolJoinRequest& request) const {
  if (Status good = check_url(request.url); !good.ok()) return good.error();
  if (!contract::is_host_name(request.name)) {
    return Error{ErrorCode::InvalidArgument,
                 "name: expected 1..64 of [A-Za-z0-9._-], a letter or digit first"};
  }
  http::ClientOptions trust;
  trust.more_ca_file = api::ca_file(home_).string();
  if (!request.ca_pem.empty()) {
    if (Status kept = base::write_file_atomically(authority_file(home_), request.ca_pem);
        !kept.ok())
      return kept.error();
    trust.ca_file = authority_file(home_).string();
  }
  return std::make_shared<Session>(request, trust);
}

void Joiner::start(std::string socket) {
  {
    const base::MutexLock lock(mutex_);
    socket_ = std::move(socket);
  }
  const Result<contract::PoolJoinRequest> request = read_request(home_);
  if (!request.ok()) {
    if (request.error().code != ErrorCode::NotFound)
      logger().error("this pool does not join again", {{"why", request.error().message}});
    return;
  }
  const Result<SessionPtr> session = make_session(*request);
  if (!session.ok()) {
    logger().error("this pool does not join again", {{"why", session.error().message}});
    return;
  }
  begin(*session);
}

void Joiner::begin(const SessionPtr& session) {
  {
    const base::MutexLock lock(mutex_);
    if (session_) session_->is_wanted = false;
    session_ = session;
    state_ = {"connecting", session->request.url, session->request.name, ""};
  }
  for (int i = 0; i < kReserve; ++i) io_.spawn([this, session] { return keep_door(session); });
}

void Joiner::note(const SessionPtr& session, const char* state, std::string reason) {
  const base::MutexLock lock(mutex_);
  if (session_ != session) return;
  if (state_.state != state)
    logger().info(state, {{"url", state_.url}, {"name", state_.name}, {"why", reason}});
  state_.state = state;
  state_.reason = std::move(reason);
}

// One connection in reserve, made again for as long as it is wanted.
http::Task<void> Joiner::keep_door(SessionPtr session) {
  milliseconds pause = kFirstPause;
  while (session->is_wanted) {
    const auto since = Clock::now();
    http::ClientRequest request =
        session->call(http::Method::Post, session->host_path() + "/connect");
    Result<http::Pipe> door =
        co_await session->dialer.open(std::move(request), contract::kPoolProtocol);
    std::string first;
    if (door.ok()) {
      note(session, "joined", "");
      Result<std::string> bytes = co_await door->read_some();
      if (bytes.ok()) first = bytes.take();
    } else {
      const bool is_refused = door.error().code == ErrorCode::NotFound;
      note(session, is_refused ? "refused" : "connecting", door.error().message);
      if (is_refused) co_return;  // taken out of the fleet; only a new join helps
    }
    if (!first.empty()) {
      // Another takes its place before this one is busy.
      io_.spawn([this, session] { return keep_door(session); });
      co_await use_door(door.take(), std::move(first));
      co_return;
    }
    if (door.ok() && Clock::now() - since > kShortLife) pause = kFirstPause;
    co_await pause_for(pause, session->is_wanted);
    pause = std::min(pause * 2, kLongestPause);
  }
}

http::Task<void> Joiner::use_door(http::Pipe door, std::string first) {
  std::string path;
  {
    const base::MutexLock lock(mutex_);
    path = socket_;
  }
  Result<http::Pipe> own = co_await http::Pipe::connect_unix(std::move(path));
  if (!own.ok()) {
    logger().error("this pool's own socket does not answer", {{"why", own.error().message}});
    co_return;
  }
  const Status written = co_await own->write(first);
  if (written.ok()) co_await http::join_pipes(std::move(door), own.take());
}

Result<contract::PoolJoinState> Joiner::join(const contract::PoolJoinRequest& request) {
  const Result<SessionPtr> session = make_session(request);
  if (!session.ok()) return session.error();
  http::ClientRequest call = (*session)->call(http::Method::Post, "/v2/pools/join");
  call.body = json::serialize(json::Object{{"name", request.name}});
  const Result<http::Response> answer = (*session)->client.send(call);
  if (!answer.ok()) return answer.error();
  if (answer->status != 200) {
    const Result<contract::ErrorReport> report = contract::parse_error_body(answer->body);
    return (report.ok() ? report->error : report.error()).in("the orchestrator");
  }
  if (Status kept = base::write_file_atomically(
          join_file(home_), json::serialize(contract::write_fields(request)) + "\n");
      !kept.ok())
    return kept.error();
  begin(*session);
  return state();
}

Result<contract::PoolJoinState> Joiner::leave() {
  SessionPtr session;
  {
    const base::MutexLock lock(mutex_);
    session = session_;
    state_ = {};
  }
  if (!session) return Error{ErrorCode::NotFound, "this pool has not joined a fleet"};
  session->is_wanted = false;
  const Result<http::Response> answer =
      session->client.send(session->call(http::Method::Delete, session->host_path()));
  std::error_code ignored;
  std::filesystem::remove(join_file(home_), ignored);
  std::filesystem::remove(authority_file(home_), ignored);
  end_session();
  if (!answer.ok()) {
    return Error{
        answer.error().code,
        fmt::format("this pool joins no more, but the orchestrator was not told and counts "
                    "it as lost: {}",
                    answer.error().message)};
  }
  return state();
}

contract::PoolJoinState Joiner::state() const {
  const base::MutexLock lock(mutex_);
  return state_;
}

}  // namespace llorch::pool
