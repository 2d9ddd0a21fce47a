#include "pool/test_host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "api/answers.h"
#include "base/check.h"
#include "http/client.h"
#include "pool/model_files.h"

namespace llorch::pool::test {
namespace {

namespace fs = std::filesystem;

http::ServerOptions server_options(std::string token) {
  http::ServerOptions options;
  options.bearer_token = std::move(token);
  options.render_error = api::render_error;
  return options;
}

std::unique_ptr<http::Server> start_server(http::Router router, std::string token) {
  auto server = http::Server::start(std::move(router), server_options(std::move(token)));
  CHECK(server.ok(), server.error().message);
  return server.take();
}

void must(const Status& status) {
  CHECK(status.ok(), status.error().message);
}

}  // namespace

std::string random_bytes(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text(bytes, '\0');
  std::size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(text.data() + i, &word, 8);
  }
  for (; i < bytes; ++i) text[i] = static_cast<char>(random());
  return text;
}

void write_file(const fs::path& path, std::string_view content) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  CHECK(file.good(), path.string());
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void rot_byte(const fs::path& path, std::int64_t offset) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  CHECK(fd >= 0, path.string());
  struct stat before {};
  CHECK(::fstat(fd, &before) == 0, "stat");
  char byte = 0;
  CHECK(::pread(fd, &byte, 1, offset) == 1, "the byte to change is in the file");
  byte = static_cast<char>(byte ^ 0x40);
  CHECK(::pwrite(fd, &byte, 1, offset) == 1, "write");
  const timespec times[2] = {before.st_atim, before.st_mtim};
  CHECK(::futimens(fd, times) == 0, "times");
  ::close(fd);
}

Host::Host() {
  const std::string root = folder_.path().string();
  const auto found = base::find_home([&](const char* name) -> const char* {
    return std::string_view(name) == "LLORCH_HOME" ? root.c_str() : nullptr;
  });
  CHECK(found.ok(), "home");
  home_ = *found;
}

Host::~Host() = default;

void Host::add_model(const std::string& id, const Files& files, std::int64_t chunk_bytes) {
  contract::ModelEntry entry;
  entry.id = id;
  entry.name = id;
  entry.path = files.size() == 1 ? (folder(id) / files[0].first).string() : folder(id).string();
  entry.downloaded = true;
  entry.revision = "rev-1";
  std::vector<fetch::FileChunks> chunks;
  for (const auto& [path, content] : files) {
    write_file(folder(id) / path, content);
    auto hashed = fetch::hash_file(folder(id) / path, path, {}, chunk_bytes);
    CHECK(hashed.ok(), hashed.error().message);
    entry.files.push_back(
        {.path = path, .size = hashed->size, .sha256 = hashed->sha256, .modified_ms = 0});
    entry.size_bytes += hashed->size;
    chunks.push_back(hashed.take());
  }
  must(fetch::save_chunks(home_.chunks(), id, chunks));
  must(catalog().update([&](catalog::CatalogContent& content) {
    content.put(entry);
    return ok_status();
  }));
}

void Host::register_in_place(const std::string& id, const fs::path& folder, const Files& files) {
  contract::ModelEntry entry;
  entry.id = id;
  entry.name = id;
  entry.path = folder.string();
  entry.downloaded = true;
  for (const auto& [path, content] : files) {
    write_file(folder / path, content);
    entry.files.push_back({.path = path,
                           .size = static_cast<std::int64_t>(content.size()),
                           .sha256 = {},
                           .modified_ms = 0});
  }
  must(catalog().update([&](catalog::CatalogContent& content) {
    content.put(entry);
    return ok_status();
  }));
}

void Host::serve(std::string token) {
  http::Router router;
  add_model_file_routes(router, catalog(), home_.chunks());
  server_ = start_server(std::move(router), std::move(token));
}

void Host::stop_serving() {
  server_.reset();
}

std::string Host::url() const {
  return fmt::format("http://127.0.0.1:{}", server_->port());
}

catalog::Downloader Host::downloader() const {
  catalog::Downloader downloader;
  downloader.home = home_;
  fetch::RetryPolicy retry;
  retry.max_attempts = 2;
  retry.first_pause = std::chrono::milliseconds(1);
  downloader.source.retry = retry;
  downloader.transfer.retry = retry;
  return downloader;
}

FakeNeighbour::FakeNeighbour(std::string manifest, Answer answer) {
  http::Router router;
  router.add(http::Method::Get, "/v2/models/{id}/manifest",
             [text = std::move(manifest)](const http::Request&) -> Result<http::Response> {
               return http::Response(200, "application/json", text);
             });
  router.add(
      http::Method::Get, "/v2/models/{id}/files/{n}",
      [this, answer = std::move(answer)](const http::Request& request, http::Responder& responder) {
        ++num_file_requests_;
        return answer(request, responder);
      });
  server_ = start_server(std::move(router), {});
}

FakeNeighbour::~FakeNeighbour() = default;

std::string FakeNeighbour::url() const {
  return fmt::format("http://127.0.0.1:{}", server_->port());
}

std::string fetch_text(const std::string& url) {
  http::Client client;
  const Result<http::Response> response = client.send(http::ClientRequest(http::Method::Get, url));
  return response.ok() ? response->body : response.error().message;
}

}  // namespace llorch::pool::test
