#include "pool/download_routes.h"

#include <fmt/format.h>

#include <utility>

#include "base/utf8.h"
#include "contract/api_token.h"
#include "contract/error_table.h"
#include "fetch/chunks.h"
#include "fetch/transfer.h"
#include "http/sse.h"

namespace llorch::pool {
namespace {

constexpr std::size_t kNeighboursMax = 64;
constexpr std::size_t kRefBytesMax = 2048;
constexpr std::size_t kTokenBytesMax = 4096;
constexpr std::size_t kIdBytesMax = 128;
constexpr std::size_t kSha256Digits = 64;

// A line end in it would forge headers of the request that carries it.
void check_token(json::FieldReader& reader, std::string_view field, const std::string& token) {
  if (contract::check_api_token(token).ok()) return;
  reader.fail(field, "printable ASCII", "must be printable ASCII without spaces and line ends");
}

std::vector<fetch::Neighbour> read_neighbours(json::FieldReader& reader) {
  std::vector<fetch::Neighbour> neighbours;
  const json::Array* array = reader.optional_array("neighbours");
  if (array == nullptr) return neighbours;
  if (array->size() > kNeighboursMax) {
    reader.fail("neighbours", fmt::format("at most {}", kNeighboursMax),
                fmt::format("has {} elements, more than {}", array->size(), kNeighboursMax));
    return neighbours;
  }
  for (std::size_t i = 0; i < array->size(); ++i) {
    const json::Object* object = (*array)[i].if_object();
    if (object == nullptr) {
      reader.fail(fmt::format("neighbours[{}]", i), "object",
                  R"(must be an object: {"url":"http://host:9200"})");
      continue;
    }
    json::FieldReader one(*object, fmt::format("neighbours[{}].", i));
    fetch::Neighbour neighbour;
    neighbour.url = one.required_string("url", {1, kRefBytesMax});
    neighbour.token = one.optional_string("token", {0, kTokenBytesMax}).value_or("");
    check_token(one, "token", neighbour.token);
    Result<fetch::Neighbour> parsed = fetch::parse_neighbour(neighbour.url, {});
    if (parsed.ok())
      parsed->token = std::move(neighbour.token);
    else if (!neighbour.url.empty())
      one.fail("url", "host, host:port or URL", parsed.error().message);
    reader.add(one.finish());
    if (parsed.ok()) neighbours.push_back(parsed.take());
  }
  return neighbours;
}

Result<http::Response> accepted(const Result<Downloads::Started>& started) {
  if (!started.ok()) return started.error();
  const DownloadStatus& status = started->status;
  return json_response(
      202, json::Object{{"download_id", status.id},
                        {"model", status.model},
                        {"events_url", fmt::format("/v2/downloads/{}/events", status.id)},
                        {"state", name(status.state)},
                        {"joined", started->joined}});
}

Status check_id(const std::string& id) {
  if (contract::is_model_id(id)) return ok_status();
  return Error{ErrorCode::InvalidArgument,
               fmt::format("{} is no model id: expected 1 to 128 of A-Z a-z 0-9 . _ -, beginning "
                           "with a letter or digit",
                           base::quoted(id))};
}

// The catalog means the disk by it, the wire means memory.
Error as_told(const Error& error) {
  if (error.code != ErrorCode::OutOfMemory) return error;
  return {ErrorCode::Unavailable, error.message};
}

// What one look at a download has to tell, given what was told before.
struct Told {
  std::int64_t note = 0;  // the number of the last one
};

std::string next_events(const DownloadStatus& status, Told& told) {
  std::string text;
  for (const auto& [number, note] : status.notes) {
    if (number <= told.note) continue;
    told.note = number;
    text += http::format_event("note",
                               json::serialize(json::Object{{"text", base::to_valid_utf8(note)}}));
  }
  if (!status.has_ended()) {
    json::Object data{{"state", name(status.state)}, {"model", status.model}};
    if (status.progress) {
      for (const auto& field : contract::to_json(*status.progress))
        data[field.key()] = field.value();
    }
    return text + http::format_event("progress", json::serialize(data));
  }
  if (status.error)
    return text +
           http::format_event("error", json::serialize(contract::error_event_json(*status.error)));
  return text + http::format_event("done", json::serialize(status.result));
}

}  // namespace

json::Array downloads_json(const Service& service) {
  json::Array downloads;
  for (const DownloadStatus& status : service.pool.downloads.list())
    downloads.emplace_back(to_json(status));
  return downloads;
}

namespace {

// `wanted` has the id where the path names one; else the body may.
Result<http::Response> start_wanted(const Service& service, const http::Request& request,
                                    const json::Object& body, catalog::DownloadRequest wanted) {
  json::FieldReader reader(body);
  if (wanted.id.empty()) wanted.id = reader.optional_string("id", {1, kIdBytesMax}).value_or("");
  wanted.ref = reader.optional_string("ref", {1, kRefBytesMax}).value_or("");
  wanted.sha256 = reader.optional_string("sha256", {kSha256Digits, kSha256Digits}).value_or("");
  if (!wanted.sha256.empty() && !fetch::is_sha256_hex(wanted.sha256))
    reader.fail("sha256", "64 hex digits in lower case", "is no SHA-256 in hex");
  wanted.hf_token = reader.optional_string("hf_token", {1, kTokenBytesMax}).value_or("");
  check_token(reader, "hf_token", wanted.hf_token);
  wanted.max_connections = static_cast<int>(
      reader.optional_integer("connections", 1, fetch::kConnectionsMax).value_or(0));
  wanted.neighbours = read_neighbours(reader);
  wanted.only_neighbours = reader.optional_bool("only_neighbours").value_or(false);
  if (wanted.only_neighbours && wanted.neighbours.empty())
    reader.fail("only_neighbours", "needs neighbours",
                "is true, so neighbours must name at least one");
  if (wanted.id.empty() && wanted.ref.empty())
    reader.fail("ref", "required without id", "is missing: name a model by id, ref, or both");
  if (std::vector<json::FieldError> errors = reader.finish(); !errors.empty())
    return failures_response(request, std::move(errors));
  if (!wanted.id.empty()) {
    if (Status good = check_id(wanted.id); !good.ok()) return good.error();
  }
  const Downloads& downloads = service.pool.downloads;
  Result<catalog::DownloadRequest> settled =
      catalog::settle_download(service.pool.home, std::move(wanted),
                               [&](const std::string& id) { return downloads.ref_under_way(id); });
  if (!settled.ok()) return settled.error();
  settled->join = true;
  Downloads::Job job;
  job.kind = "download";
  job.model = settled->id;
  job.what = settled->ref;
  job.work = [download = service.pool.download, wanted = settled.take()](
                 const contract::OnDownloadEvent& on_event,
                 std::stop_token stop) -> Result<json::Object> {
    const Result<contract::ModelEntry> entry = download(wanted, on_event, std::move(stop));
    if (!entry.ok()) return as_told(entry.error());
    return json::Object{{"model", contract::to_json(*entry)}};
  };
  return accepted(service.pool.downloads.start(std::move(job)));
}

}  // namespace

Result<http::Response> start_download(const Service& service, const http::Request& request) {
  const Result<json::Object> body = read_body(request);
  if (!body.ok()) return body.error();
  catalog::DownloadRequest wanted;
  wanted.id = path_param(request, "id");
  if (Status good = check_id(wanted.id); !good.ok()) return good.error();
  return start_wanted(service, request, *body, std::move(wanted));
}

Result<http::Response> start_named_download(const Service& service, const http::Request& request) {
  const Result<json::Object> body = read_body(request);
  if (!body.ok()) return body.error();
  return start_wanted(service, request, *body, {});
}

Result<http::Response> start_verify(const Service& service, const http::Request& request) {
  const Result<json::Object> body = read_body(request);
  if (!body.ok()) return body.error();
  catalog::VerifyRequest wanted;
  wanted.id = path_param(request, "id");
  json::FieldReader reader(*body);
  wanted.repair = reader.optional_bool("repair").value_or(false);
  wanted.neighbours = read_neighbours(reader);
  if (std::vector<json::FieldError> errors = reader.finish(); !errors.empty())
    return failures_response(request, std::move(errors));
  if (Result<contract::ModelEntry> entry = service.catalog.catalog().find(wanted.id); !entry.ok())
    return entry.error();
  Downloads::Job job;
  job.kind = "verify";
  job.model = wanted.id;
  job.what = wanted.repair ? "repair" : "";
  job.work = [verify = service.pool.verify, wanted](const contract::OnDownloadEvent& on_event,
                                                    std::stop_token stop) -> Result<json::Object> {
    const Result<catalog::VerifyReport> report = verify(wanted, on_event, std::move(stop));
    if (!report.ok()) return as_told(report.error());
    return catalog::to_json(*report);
  };
  return accepted(service.pool.downloads.start(std::move(job)));
}

Result<http::Response> list_downloads(const Service& service, const http::Request&) {
  return json_response(200, json::Object{{"downloads", downloads_json(service)}});
}

Result<http::Response> show_download(const Service& service, const http::Request& request) {
  const Result<DownloadStatus> status = service.pool.downloads.find(path_param(request, "id"));
  if (!status.ok()) return status.error();
  return json_response(200, to_json(*status));
}

Result<http::Response> cancel_download(const Service& service, const http::Request& request) {
  const Result<DownloadStatus> status = service.pool.downloads.cancel(path_param(request, "id"));
  if (!status.ok()) return status.error();
  return json_response(202, to_json(*status));
}

http::Task<Status> stream_download(ServicePtr service, const http::Request& request,
                                   http::Responder& responder) {
  const std::string id = path_param(request, "id");
  const auto watch = std::make_shared<DownloadWatch>(1);
  Result<DownloadStatus> status = service->pool.downloads.watch(id, watch);
  if (!status.ok()) co_return status.error();
  Result<http::Stream> stream =
      co_await responder.open_stream(200, std::string(http::kEventStreamType));
  if (!stream.ok()) co_return stream.error();
  // Nobody pushes into `pause`: it is there to wait on.
  const auto pause = std::make_shared<DownloadWatch>(1);
  stream->on_disconnect([watch, pause] {
    watch->close();
    pause->close();
  });
  Told told;
  for (;;) {
    const std::string text = next_events(*status, told);
    Status written = co_await stream->write(text);
    if (!written.ok()) co_return written;
    if (status->has_ended()) co_return ok_status();
    // However many changes come, the reader gets the newest a few times a second.
    co_await pause->next(service->settings.event_interval);
    DownloadWatch::Next next;
    for (;;) {
      next = co_await watch->next(service->settings.keep_alive);
      if (next.item || next.ended) break;
      Status alive = co_await stream->write(http::kKeepAliveComment);
      if (!alive.ok()) co_return alive;
    }
    if (next.ended) co_return Error{ErrorCode::Cancelled, "the client is gone"};
    status = service->pool.downloads.find(id);
    if (!status.ok()) co_return status.error();
  }
}

}  // namespace llorch::pool
