#include "http/server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <map>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "http/connection.h"
#include "http/guard.h"
#include "http/unix_path.h"

namespace llorch::http {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr std::size_t kMinTokenLength = 16;
using Acceptor = asio::basic_socket_acceptor<Transport::Protocol>;

// Connections that are taken in one turn: a burst of strangers must not make everybody wait for as
// many turns of the scheduler.
constexpr int kAcceptsPerTurn = 32;
constexpr std::size_t kMaxRefusing = 64;  // connections being told that the server is full
constexpr std::size_t kMaxLeaving = 64;   // connections that make room and are not gone yet
constexpr std::chrono::milliseconds kAcceptPause{50};
constexpr std::chrono::milliseconds kStopGrace{1000};

const base::Logger& logger() {
  static const base::Logger instance("http");
  return instance;
}

Result<tcp::endpoint> listen_endpoint(const ServerOptions& options) {
  boost::system::error_code error;
  const std::string host = options.host == "localhost" ? "127.0.0.1" : options.host;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (error) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("cannot listen on '{}': expected an IP address or localhost", options.host)};
  }
  const bool has_token = options.bearer_token.size() >= kMinTokenLength || options.accepts_token;
  if (!address.is_loopback() && !has_token) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format(
            "cannot listen on {}: an address that others can reach needs an API token of at "
            "least {} characters; give one, or listen on 127.0.0.1",
            options.host, kMinTokenLength)};
  }
  return tcp::endpoint(address, options.port);
}

Status open_acceptor(Acceptor& acceptor, const tcp::endpoint& endpoint) {
  boost::system::error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(Acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(Acceptor::max_listen_connections, error);
  if (!error) acceptor.non_blocking(true, error);
  if (!error) return ok_status();
  const std::string address = fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
  if (error == asio::error::address_in_use) {
    return Error{
        ErrorCode::Conflict,
        fmt::format(
            "cannot listen on {}: another program listens there; stop it or choose another port",
            address)};
  }
  return Error{ErrorCode::Unavailable,
               fmt::format("cannot listen on {}: {}", address, error.message())};
}

std::uint16_t port_of(const Acceptor& acceptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(const_cast<Acceptor&>(acceptor).native_handle(),
                    reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

}  // namespace

class Server::Impl {
 public:
  Impl(Router router, ServerOptions options)
      : io_(std::make_unique<asio::io_context>(options.io_threads)),
        acceptor_(std::make_unique<Acceptor>(asio::make_strand(*io_))),
        unix_acceptor_(std::make_unique<Acceptor>(asio::make_strand(*io_))) {
    shared_.router = std::move(router);
    shared_.options = std::move(options);
  }

  Status start();
  Status listen_unix(const std::string& path);
  Status load_tls();
  std::uint16_t port() const { return port_; }
  std::size_t num_connections() const;
  bool spawn(std::function<Task<void>()> body);
  void drain(std::chrono::milliseconds patience);
  void stop();

 private:
  void start_accepting(Acceptor& acceptor);
  Task<void> accept_loop(Acceptor& acceptor);
  void admit(Transport::Socket socket, bool is_unix);
  void forget(std::uint64_t number, bool refused);
  bool make_room() LLORCH_REQUIRES(mutex_);
  void close_acceptor();
  void tell_connections(void (Connection::*what)());
  void run_io();
  void shut_down();

  ConnectionShared shared_;
  std::uint16_t port_ = 0;  // constant after start()

  base::Mutex shut_down_mutex_;  // held while threads are joined
  mutable base::Mutex mutex_ LLORCH_ACQUIRED_AFTER(shut_down_mutex_);
  base::CondVar changed_;
  struct Entry {
    std::weak_ptr<Connection> connection;
    asio::any_io_executor strand;
    bool leaving = false;  // was asked to make room
  };
  // In the order they came.
  std::map<std::uint64_t, Entry> connections_ LLORCH_GUARDED_BY(mutex_);
  std::uint64_t next_number_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::size_t num_refusing_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::size_t num_leaving_ LLORCH_GUARDED_BY(mutex_) = 0;
  bool accepting_ LLORCH_GUARDED_BY(mutex_) = true;
  bool stopping_ LLORCH_GUARDED_BY(mutex_) = false;
  LineLimit accept_lines_{1};  // of the log

  // Last, so that they go first: the coroutines they hold refer to everything above.
  std::unique_ptr<asio::io_context> io_;
  // Used on their strands once they accept.
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<Acceptor> unix_acceptor_;
  UnixPath unix_path_ LLORCH_GUARDED_BY(shut_down_mutex_);
  std::vector<std::jthread> threads_ LLORCH_GUARDED_BY(shut_down_mutex_);
};

Status Server::Impl::start() {
  if (!shared_.options.render_error) {
    return Error{ErrorCode::InvalidArgument, "a server needs a render_error function"};
  }
  if (Status loaded = load_tls(); !loaded.ok()) return loaded;
  const Result<tcp::endpoint> endpoint = listen_endpoint(shared_.options);
  if (!endpoint.ok()) return endpoint.error();
  if (Status opened = open_acceptor(*acceptor_, *endpoint); !opened.ok()) return opened;
  port_ = port_of(*acceptor_);
  const ServerOptions& options = shared_.options;
  Result<WebRules> web =
      make_web_rules(!options.bearer_token.empty(), options.host, port_, options.more_hosts,
                     options.allowed_origins, !options.tls_certificate_file.empty());
  if (!web.ok()) return web.error();
  shared_.web = web.take();
  shared_.web_with_token = shared_.web;
  shared_.web_with_token.has_token = true;
  start_accepting(*acceptor_);
  const base::MutexLock lock(shut_down_mutex_);
  for (int i = 0; i < std::max(shared_.options.io_threads, 1); ++i)
    threads_.push_back(base::start_thread("http-io", [this] { run_io(); }));
  logger().info("listening", {{"host", shared_.options.host}, {"port", port_}});
  return ok_status();
}

Status Server::Impl::load_tls() {
  const std::string& certificate = shared_.options.tls_certificate_file;
  const std::string& key = shared_.options.tls_key_file;
  if (certificate.empty() && key.empty()) return ok_status();
  if (certificate.empty() || key.empty()) {
    return Error{ErrorCode::InvalidArgument,
                 "TLS needs a certificate file and a key file; one of them is missing"};
  }
  Result<TlsContext> context = make_server_tls(certificate, key);
  if (!context.ok()) return context.error();
  const base::MutexLock lock(shared_.tls_mutex);
  shared_.tls = context.take();
  return ok_status();
}

Status Server::Impl::listen_unix(const std::string& path) {
  const base::MutexLock lock(shut_down_mutex_);
  if (threads_.empty() || unix_path_.is_bound())
    return Error{ErrorCode::Conflict, "this server has ended, or has a unix socket already"};
  const Result<int> listener = unix_path_.bind(path);
  if (!listener.ok()) return listener.error();
  boost::system::error_code error;
  unix_acceptor_->assign(asio::local::stream_protocol(), *listener, error);
  if (error) {
    ::close(*listener);
    return Error{ErrorCode::Unavailable,
                 fmt::format("cannot listen on {}: {}", path, error.message())};
  }
  unix_acceptor_->non_blocking(true, error);
  start_accepting(*unix_acceptor_);
  logger().info("listening", {{"unix_socket", path}});
  return ok_status();
}

void Server::Impl::start_accepting(Acceptor& acceptor) {
  asio::co_spawn(acceptor.get_executor(), accept_loop(acceptor),
                 [](const std::exception_ptr& failure) {
                   if (failure) std::rethrow_exception(failure);
                 });
}

// The top frame of an io thread. What arrives here escaped a completion handler, which is gone with
// it: no memory, most likely. The others go on.
void Server::Impl::run_io() {
  while (!io_->stopped()) {
    try {
      io_->run();
    } catch (const std::exception& exception) {
      logger().error("an operation of the server failed", {{"what", exception.what()}});
    }
  }
}

std::size_t Server::Impl::num_connections() const {
  const base::MutexLock lock(mutex_);
  return connections_.size();
}

bool Server::Impl::spawn(std::function<Task<void>()> body) {
  const base::MutexLock lock(mutex_);
  if (stopping_) return false;
  asio::co_spawn(asio::make_strand(*io_), std::move(body), [](const std::exception_ptr& failure) {
    if (failure) std::rethrow_exception(failure);  // run_io says so
  });
  return true;
}

Task<void> Server::Impl::accept_loop(Acceptor& acceptor) {
  const asio::any_io_executor executor = acceptor.get_executor();
  const bool is_unix = &acceptor == unix_acceptor_.get();
  while (acceptor.is_open()) {
    boost::system::error_code error;
    for (int taken = 0; taken < kAcceptsPerTurn && !error; ++taken) {
      Transport::Socket socket(asio::make_strand(*io_));
      acceptor.accept(socket, error);
      if (error) break;
      try {
        admit(std::move(socket), is_unix);
      } catch (const std::exception& exception) {
        logger().error("a connection cannot be served", {{"what", exception.what()}});
      }
    }
    if (!error || error == asio::error::would_block) {
      const auto [failure] =
          co_await acceptor.async_wait(Acceptor::wait_read, asio::as_tuple(asio::use_awaitable));
      error = failure;
      if (!error) continue;
    }
    if (!acceptor.is_open()) break;
    // Out of descriptors, most likely: the connection stays in the backlog until one is free.
    if (const auto left_out = accept_lines_.take(std::chrono::steady_clock::now()))
      logger().warn("cannot accept", {{"why", error.message()}, {"left_out", *left_out}});
    {
      const base::MutexLock lock(mutex_);
      make_room();
    }
    asio::steady_timer pause(executor, kAcceptPause);
    co_await pause.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

// Asks the oldest connection that waits for a request to go. False: there is none.
bool Server::Impl::make_room() {
  if (num_leaving_ >= kMaxLeaving) return false;
  for (auto& [number, entry] : connections_) {
    const std::shared_ptr<Connection> connection = entry.connection.lock();
    if (entry.leaving || !connection || !connection->is_waiting()) continue;
    entry.leaving = true;
    ++num_leaving_;
    asio::post(entry.strand, [connection] { connection->make_room(); });
    return true;
  }
  return false;
}

void Server::Impl::admit(Transport::Socket socket, bool is_unix) {
  const asio::any_io_executor strand = socket.get_executor();
  const auto connection = std::make_shared<Connection>(std::move(socket), is_unix, shared_);
  bool refused = false;
  std::uint64_t number = 0;
  {
    const base::MutexLock lock(mutex_);
    const std::size_t taken = connections_.size() - num_refusing_ - num_leaving_;
    refused = taken >= shared_.options.max_connections && !make_room();
    if (!accepting_ || (refused && num_refusing_ >= kMaxRefusing)) return;  // closes it
    number = next_number_++;
    connections_.emplace(number, Entry{connection, strand});
    if (refused) ++num_refusing_;
  }
  asio::co_spawn(strand, refused ? connection->refuse() : connection->run(),
                 [this, connection, number, refused](const std::exception_ptr& failure) {
                   if (failure) logger().error("connection failed unexpectedly");
                   forget(number, refused);
                 });
}

void Server::Impl::forget(std::uint64_t number, bool refused) {
  const base::MutexLock lock(mutex_);
  const auto found = connections_.find(number);
  if (found != connections_.end()) {
    if (found->second.leaving) --num_leaving_;
    connections_.erase(found);
  }
  if (refused) --num_refusing_;
  changed_.notify_all();
}

void Server::Impl::close_acceptor() {
  {
    const base::MutexLock lock(mutex_);
    if (!std::exchange(accepting_, false)) return;
  }
  shared_.draining = true;
  for (Acceptor* acceptor : {acceptor_.get(), unix_acceptor_.get()}) {
    asio::post(acceptor->get_executor(), [acceptor] {
      boost::system::error_code ignored;
      acceptor->close(ignored);
    });
  }
}

void Server::Impl::tell_connections(void (Connection::*what)()) {
  const base::MutexLock lock(mutex_);
  for (const auto& [key, entry] : connections_) {
    if (const auto connection = entry.connection.lock()) {
      asio::post(entry.strand, [connection, what] { (connection.get()->*what)(); });
    }
  }
}

void Server::Impl::drain(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  {
    const base::MutexLock lock(shut_down_mutex_);
    if (threads_.empty()) return;
    close_acceptor();
    tell_connections(&Connection::begin_drain);
  }
  {
    const base::MutexLock lock(mutex_);
    while (!stopping_ && !connections_.empty() && changed_.wait_until(mutex_, deadline)) {
    }
    if (!connections_.empty() && !stopping_) {
      logger().warn("requests were still running when the drain ended",
                    {{"connections", connections_.size()}});
    }
  }
  stop();
}

void Server::Impl::stop() {
  {
    const base::MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  shut_down();
}

void Server::Impl::shut_down() {
  const base::MutexLock only_one(shut_down_mutex_);
  if (threads_.empty()) return;
  for (const std::jthread& thread : threads_) {
    CHECK(thread.get_id() != std::this_thread::get_id(), "a handler stopped its own server");
  }
  close_acceptor();
  tell_connections(&Connection::abort);
  {
    const auto deadline = std::chrono::steady_clock::now() + kStopGrace;
    const base::MutexLock lock(mutex_);
    while (!connections_.empty() && changed_.wait_until(mutex_, deadline)) {
    }
  }
  io_->stop();
  threads_.clear();
  acceptor_.reset();
  unix_acceptor_.reset();
  unix_path_.remove();
  {
    const base::MutexLock lock(mutex_);
    connections_.clear();  // their strands must not outlive the context
  }
  io_.reset();  // destroys the coroutines that still wait
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() {
  impl_->stop();
}

Result<std::unique_ptr<Server>> Server::start(Router router, ServerOptions options) {
  // The library throws where the system gives no descriptors or threads.
  try {
    auto impl = std::make_unique<Impl>(std::move(router), std::move(options));
    if (const Status started = impl->start(); !started.ok()) return started.error();
    return std::unique_ptr<Server>(new Server(std::move(impl)));
  } catch (const std::exception& exception) {
    return Error{ErrorCode::Unavailable,
                 fmt::format("the server cannot be started: {}", exception.what())};
  }
}

Status Server::listen_unix(const std::string& path) {
  return impl_->listen_unix(path);
}
Status Server::reload_tls() {
  return impl_->load_tls();
}
std::uint16_t Server::port() const {
  return impl_->port();
}
std::size_t Server::num_connections() const {
  return impl_->num_connections();
}
bool Server::spawn(std::function<Task<void>()> body) {
  return impl_->spawn(std::move(body));
}
void Server::drain(std::chrono::milliseconds patience) {
  impl_->drain(patience);
}
void Server::stop() {
  impl_->stop();
}

}  // namespace llorch::http
