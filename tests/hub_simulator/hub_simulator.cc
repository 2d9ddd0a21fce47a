#include "hub_simulator/hub_simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <random>
#include <thread>

#include "base/digest.h"
#include "base/json.h"

namespace llorch::test {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
constexpr int kTicksPerSecond = 50;

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::optional<SimRequest> parse_request(const std::string& head) {
  SimRequest request;
  const std::size_t first_space = head.find(' ');
  const std::size_t second_space = head.find(' ', first_space + 1);
  if (second_space == std::string::npos) return std::nullopt;
  request.method = head.substr(0, first_space);
  request.target = head.substr(first_space + 1, second_space - first_space - 1);
  for (std::size_t line = head.find("\r\n") + 2; line < head.size();) {
    const std::size_t end = head.find("\r\n", line);
    const std::size_t colon = head.find(':', line);
    if (end == line || colon == std::string::npos || colon > end) break;
    std::size_t value = colon + 1;
    while (head[value] == ' ') ++value;
    request.headers[lower(head.substr(line, colon - line))] = head.substr(value, end - value);
    line = end + 2;
  }
  return request;
}

struct Range {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

std::optional<Range> parse_range(const SimRequest& request) {
  const auto found = request.headers.find("range");
  if (found == request.headers.end()) return std::nullopt;
  Range range;
  if (std::sscanf(found->second.c_str(), "bytes=%ld-%ld", &range.first, &range.last) != 2)
    return std::nullopt;
  return range;
}

std::string_view reason_of(int status) {
  return status < 300 ? "OK" : status < 400 ? "Moved" : "Sorry";
}

std::string git_blob_sha1(const std::string& content) {
  base::Digest digest(base::DigestKind::Sha1);
  digest.add(fmt::format("blob {}", content.size()));
  digest.add(std::string_view("\0", 1));
  digest.add(content);
  return digest.finish_hex();
}

std::string unescaped(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    int value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ec == std::errc()) {
      result += static_cast<char>(value);
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

}  // namespace

std::string random_bytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, std::min(sizeof word, size - i));
  }
  return bytes;
}

// What a request gets when nothing goes wrong: a file, or a small text.
struct HubSimulator::Answer {
  int status = 200;
  SimHeaders headers{};
  std::string body{};
  std::shared_ptr<const SimFile> file{};
};

HubSimulator::HubSimulator()
    : main_(std::make_unique<SimListener>()), cdn_(std::make_unique<SimListener>()) {
  main_url_ = fmt::format("http://127.0.0.1:{}", main_->port());
  cdn_url_ = fmt::format("http://127.0.0.1:{}", cdn_->port());
  main_->start([this](SimConnection& connection) { serve(connection, main_url_); });
  cdn_->start([this](SimConnection& connection) { serve(connection, cdn_url_); });
}

void HubSimulator::put_file(std::string path, SimFile file) {
  auto shared = std::make_shared<const SimFile>(std::move(file));
  const base::MutexLock lock(mutex_);
  files_[std::move(path)] = std::move(shared);
}

void HubSimulator::put_repo(SimRepo repo) {
  for (const SimRepo::File& file : repo.files) {
    if (!file.lfs) continue;
    const std::string sha256 = base::sha256_hex(file.content);
    put_file("/lfs/" + sha256, {.content = file.content, .etag = '"' + sha256 + '"'});
  }
  std::string name = repo.name;
  auto shared = std::make_shared<const SimRepo>(std::move(repo));
  const base::MutexLock lock(mutex_);
  repos_[std::move(name)] = std::move(shared);
}

void HubSimulator::put_package(const std::string& name, const std::string& version,
                               std::string tarball, std::string integrity) {
  if (integrity.empty()) {
    base::Digest digest(base::DigestKind::Sha512);
    digest.add(tarball);
    integrity = "sha512-" + digest.finish_base64();
  }
  const std::string base_name = name.substr(name.find('/') + 1);
  const std::string path = fmt::format("/{}/-/{}-{}.tgz", name, base_name, version);
  json::Object dist{{"tarball", main_url_ + path}, {"integrity", integrity}, {"shasum", "unused"}};
  json::Object one{{"name", name}, {"version", version}, {"dist", std::move(dist)}};
  one["license"] = "MIT";
  json::Object versions;
  versions[version] = std::move(one);
  json::Object tags{{"latest", version}};
  const json::Object metadata{
      {"name", name}, {"dist-tags", std::move(tags)}, {"versions", std::move(versions)}};
  put_file(path, {.content = std::move(tarball), .etag = fmt::format("\"{}\"", version)});
  const base::MutexLock lock(mutex_);
  packages_["/" + name] = json::serialize(metadata);
}

void HubSimulator::add_fault(SimFault fault) {
  const base::MutexLock lock(mutex_);
  faults_.push_back({std::move(fault), 0});
}

void HubSimulator::clear_faults() {
  const base::MutexLock lock(mutex_);
  faults_.clear();
}

void HubSimulator::expire_links() {
  const base::MutexLock lock(mutex_);
  ++link_generation_;
}

std::vector<SimRequest> HubSimulator::requests(std::string_view path_part) const {
  const base::MutexLock lock(mutex_);
  std::vector<SimRequest> found;
  for (const auto& [number, request] : requests_) {
    if (request.target.find(path_part) != std::string::npos) found.push_back(request);
  }
  return found;
}

std::int64_t HubSimulator::bytes_sent(std::string_view path_part) const {
  std::int64_t sum = 0;
  for (const SimRequest& request : requests(path_part)) sum += request.body_bytes;
  return sum;
}

void HubSimulator::forget_requests() {
  const base::MutexLock lock(mutex_);
  requests_.clear();
  most_at_once_ = 0;
}

int HubSimulator::most_at_once() const {
  const base::MutexLock lock(mutex_);
  return most_at_once_;
}

void HubSimulator::serve(SimConnection& connection, const std::string& origin) {
  for (;;) {
    const std::string head = connection.read_head();
    if (head.empty()) return;
    std::optional<SimRequest> request = parse_request(head);
    if (!request) return;
    request->origin = origin;
    std::size_t index = 0;
    {
      const base::MutexLock lock(mutex_);
      index = next_request_++;
      requests_[index] = *request;
    }
    const bool goes_on = answer(connection, *request);
    const base::MutexLock lock(mutex_);
    if (requests_.contains(index)) requests_[index] = *request;
    if (!goes_on) return;
  }
}

std::optional<SimFault> HubSimulator::take_fault(const SimRequest& request) {
  const std::optional<Range> range = parse_range(request);
  const base::MutexLock lock(mutex_);
  for (FaultState& state : faults_) {
    const SimFault& fault = state.fault;
    if (request.target.find(fault.path) == std::string::npos) continue;
    if (fault.only_offset >= 0 && (!range || range->first != fault.only_offset)) continue;
    const int number = state.seen++;
    if (number >= fault.skip && number - fault.skip < fault.times) return fault;
  }
  return std::nullopt;
}

bool HubSimulator::answer(SimConnection& connection, SimRequest& request) {
  const SimFault fault = take_fault(request).value_or(SimFault{});
  if (fault.stall_head) {
    connection.wait_for_end();
    return false;
  }
  Answer answer;
  if (fault.status != 0) {
    answer.status = fault.status;
    answer.headers = fault.headers;
    answer.body = "the simulator was told to";
  } else {
    answer = route(request);
  }
  if (answer.file != nullptr && answer.file->redirect_to.empty())
    return send_file(connection, request, answer, fault);
  if (answer.file != nullptr) {
    answer.status = 302;
    answer.headers.emplace_back("Location", answer.file->redirect_to);
  }
  request.status = answer.status;
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nContent-Length: {}\r\n", answer.status,
                                 reason_of(answer.status), answer.body.size());
  for (const auto& [name, value] : answer.headers) head += fmt::format("{}: {}\r\n", name, value);
  if (!connection.write(head + "\r\n")) return false;
  return send_body(connection, request, answer.body, fault);
}

HubSimulator::Answer HubSimulator::route(const SimRequest& request) const {
  const std::string path = unescaped(request.target.substr(0, request.target.find('?')));
  const base::MutexLock lock(mutex_);
  const std::size_t link = request.target.find("&Link=");
  if (link != std::string::npos && std::stoi(request.target.substr(link + 6)) < link_generation_) {
    return {.status = 403,
            .headers = {{"Content-Type", "application/xml"}},
            .body = "<Code>AccessDenied</Code><Message>Request has expired</Message>"};
  }
  if (const auto file = files_.find(path); file != files_.end()) return {.file = file->second};
  if (const auto package = packages_.find(path); package != packages_.end())
    return {.headers = {{"Content-Type", "application/json"}}, .body = package->second};
  for (const auto& [name, repo] : repos_) {
    for (const std::string& prefix : {"/api/models/" + name + "/", "/" + name + "/"}) {
      if (path.starts_with(prefix)) return route_repo(*repo, request, path.substr(prefix.size()));
    }
  }
  return {
      .status = path.starts_with("/api/models/") ? 401 : 404,
      .headers = {{"X-Error-Code", "RepoNotFound"}, {"X-Error-Message", "Repository not found"}},
      .body = "{\"error\":\"Not found\"}"};
}

HubSimulator::Answer HubSimulator::route_repo(const SimRepo& repo, const SimRequest& request,
                                              std::string_view rest) const {
  const auto sent = request.headers.find("authorization");
  const bool has_token = sent != request.headers.end() && sent->second == "Bearer " + repo.token;
  const bool sent_one = sent != request.headers.end();
  if (repo.is_private && !has_token) {
    return {.status = sent_one ? 403 : 401,
            .headers = {{"X-Error-Code", "RepoNotFound"},
                        {"X-Error-Message", "Invalid username or password."}}};
  }
  const std::size_t slash = rest.find('/');
  const std::string_view verb = rest.substr(0, slash);
  const std::string_view behind = slash == std::string_view::npos ? "" : rest.substr(slash + 1);
  const std::string_view revision = behind.substr(0, behind.find('/'));
  if (revision != repo.commit && revision != "main") {
    return {.status = 404,
            .headers = {{"X-Error-Code", "RevisionNotFound"},
                        {"X-Error-Message", "Invalid rev id: not found"}}};
  }
  if (verb == "revision") return repo_info(repo);
  if (verb == "tree") return repo_tree(repo, request);
  if (repo.gated && !has_token) {
    return {.status = sent_one ? 403 : 401,
            .headers = {{"X-Error-Code", "GatedRepo"},
                        {"X-Error-Message", "Access to this model is restricted."}}};
  }
  return repo_file(repo, std::string(behind.substr(std::min(behind.size(), revision.size() + 1))));
}

HubSimulator::Answer HubSimulator::repo_info(const SimRepo& repo) const {
  json::Array siblings;
  for (const SimRepo::File& file : repo.files)
    siblings.push_back(json::Object{{"rfilename", file.path}});
  json::Object info{{"id", repo.name}, {"sha", repo.commit}, {"siblings", std::move(siblings)}};
  info["gated"] = repo.gated ? json::Value("manual") : json::Value(false);
  if (!repo.license.empty()) info["cardData"] = json::Object{{"license", repo.license}};
  return {.headers = {{"Content-Type", "application/json"}}, .body = json::serialize(info)};
}

HubSimulator::Answer HubSimulator::repo_tree(const SimRepo& repo, const SimRequest& request) const {
  std::size_t first = 0;
  if (const std::size_t at = request.target.find("cursor="); at != std::string::npos)
    first = std::stoul(request.target.substr(at + 7));
  json::Array entries;
  for (std::size_t i = first; i < std::min(repo.files.size(), first + repo.tree_page); ++i) {
    const SimRepo::File& file = repo.files[i];
    json::Object entry{{"type", "file"},
                       {"oid", git_blob_sha1(file.content)},
                       {"size", file.content.size()},
                       {"path", file.path}};
    if (file.lfs) {
      entry["lfs"] = json::Object{{"oid", base::sha256_hex(file.content)},
                                  {"size", file.content.size()},
                                  {"pointerSize", 134}};
      entry["oid"] = git_blob_sha1("the pointer file, not the content");
    }
    entries.push_back(std::move(entry));
  }
  entries.push_back(json::Object{{"type", "directory"}, {"oid", "0"}, {"size", 0}, {"path", "x"}});
  Answer answer{.headers = {{"Content-Type", "application/json"}},
                .body = json::serialize(entries)};
  if (first + repo.tree_page < repo.files.size()) {
    answer.headers.emplace_back(
        "Link", fmt::format("<{}/api/models/{}/tree/{}?recursive=true&cursor={}>; rel=\"next\"",
                            main_url_, repo.name, repo.commit, first + repo.tree_page));
  }
  return answer;
}

HubSimulator::Answer HubSimulator::repo_file(const SimRepo& repo, const std::string& path) const {
  const auto file = std::find_if(repo.files.begin(), repo.files.end(),
                                 [&](const SimRepo::File& one) { return one.path == path; });
  if (file == repo.files.end()) {
    return {.status = 404,
            .headers = {{"X-Error-Code", "EntryNotFound"}, {"X-Error-Message", "Entry not found"}}};
  }
  if (!file->lfs) {
    return {.headers = {{"X-Repo-Commit", repo.commit}},
            .file = std::make_shared<const SimFile>(
                SimFile{.content = file->content,
                        .etag = fmt::format("\"{}\"", git_blob_sha1(file->content))})};
  }
  const std::string sha256 = base::sha256_hex(file->content);
  return {.status = 302,
          .headers = {{"Location", fmt::format("{}/lfs/{}?Signature=secret&Link={}", cdn_url_,
                                               sha256, link_generation_)},
                      {"X-Repo-Commit", repo.commit},
                      {"X-Linked-Size", std::to_string(file->content.size())},
                      {"X-Linked-ETag", fmt::format("\"{}\"", sha256)},
                      {"Accept-Ranges", "bytes"}}};
}

bool HubSimulator::send_file(SimConnection& connection, SimRequest& request, const Answer& answer,
                             const SimFault& fault) {
  const SimFile& file = *answer.file;
  const auto real_size = static_cast<std::int64_t>(file.content.size());
  const std::int64_t size = fault.claimed_size >= 0 ? fault.claimed_size : real_size;
  const std::string& etag = fault.etag.empty() ? file.etag : fault.etag;
  const auto if_range = request.headers.find("if-range");
  const bool is_current = if_range == request.headers.end() || if_range->second == etag;
  const std::optional<Range> asked = parse_range(request);
  const bool in_part = asked.has_value() && file.ranges && is_current;
  const Range range = asked.value_or(Range{});
  std::string head;
  std::int64_t first = 0;
  std::int64_t last = size - 1;
  if (in_part && range.first >= size) {
    request.status = 416;
    return connection.write(fmt::format(
        "HTTP/1.1 416 Range\r\nContent-Range: bytes */{}\r\nContent-Length: 0\r\n\r\n", size));
  }
  if (in_part) {
    first = range.first;
    last = std::min(range.last, size - 1);
    head = fmt::format("HTTP/1.1 206 Partial\r\nContent-Range: bytes {}-{}/{}\r\n", first, last,
                       file.total ? std::to_string(size) : "*");
    request.status = 206;
  } else {
    head = "HTTP/1.1 200 OK\r\n";
    request.status = 200;
  }
  if (file.ranges) head += "Accept-Ranges: bytes\r\n";
  head += file.length ? fmt::format("Content-Length: {}\r\n", last - first + 1)
                      : std::string("Connection: close\r\n");
  if (!etag.empty()) head += fmt::format("ETag: {}\r\n", etag);
  for (const auto& [name, value] : file.headers) head += fmt::format("{}: {}\r\n", name, value);
  for (const auto& [name, value] : answer.headers) head += fmt::format("{}: {}\r\n", name, value);
  if (!connection.write(head + "\r\n")) return false;
  if (request.method == "HEAD") return true;
  // A size that is a lie is not kept.
  first = std::min(first, real_size);
  last = std::min(last, real_size - 1);
  std::string_view body =
      std::string_view(file.content)
          .substr(static_cast<std::size_t>(first), static_cast<std::size_t>(last - first + 1));
  std::string changed;
  if (fault.extra_bytes > 0 || (fault.corrupt_at >= first && fault.corrupt_at <= last)) {
    changed = body;
    if (fault.corrupt_at >= first && fault.corrupt_at <= last) {
      char& byte = changed[static_cast<std::size_t>(fault.corrupt_at - first)];
      byte = static_cast<char>(byte ^ 0x40);
    }
    changed.append(static_cast<std::size_t>(fault.extra_bytes), 'x');
    body = changed;
  }
  return send_body(connection, request, body, fault) && file.length && fault.extra_bytes == 0 &&
         fault.claimed_size < 0;
}

bool HubSimulator::send_body(SimConnection& connection, SimRequest& request, std::string_view body,
                             const SimFault& fault) {
  {
    const base::MutexLock lock(mutex_);
    most_at_once_ = std::max(most_at_once_, ++at_once_);
  }
  struct AtEnd {
    HubSimulator& simulator;
    ~AtEnd() {
      const base::MutexLock lock(simulator.mutex_);
      --simulator.at_once_;
    }
  } const at_end{*this};
  const std::int64_t stop_at = fault.cut_after >= 0 ? fault.cut_after : fault.stall_after;
  if (stop_at >= 0) body = body.substr(0, static_cast<std::size_t>(stop_at));
  std::size_t piece = kPieceBytes;
  const auto ticks = std::clamp<std::int64_t>(fault.bytes_per_second, 1, kTicksPerSecond);
  if (fault.bytes_per_second > 0) piece = static_cast<std::size_t>(fault.bytes_per_second / ticks);
  while (!body.empty()) {
    const std::string_view now = body.substr(0, piece);
    if (!connection.write(now)) return false;
    request.body_bytes += static_cast<std::int64_t>(now.size());
    body.remove_prefix(now.size());
    if (fault.bytes_per_second > 0 && !body.empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(1000 / ticks));
  }
  if (fault.stall_after >= 0) connection.wait_for_end();
  if (fault.cut_after >= 0) connection.reset_at_end();
  return stop_at < 0;
}

}  // namespace llorch::test
