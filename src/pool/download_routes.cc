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

// A line end in it would forge headers of the request that carries it.
void check_token(json::FieldReader& reader, std::string_view field, const std::string& token) {
  if (contract::check_api_token(token).ok()) return;
  reader.fail(field, "printable ASCII", "must be printable ASCII without spaces and line ends");
}

void check_neighbours(json::FieldReader& reader, const std::vector<NeighbourText>& neighbours) {
  for (std::size_t i = 0; i < neighbours.size(); ++i) {
    const auto& [url, token] = neighbours[i];
    check_token(reader, fmt::format("neighbours[{}].token", i), token);
    if (url.empty()) continue;  // it was told that there must be one
    if (const Result<fetch::Neighbour> parsed = fetch::parse_neighbour(url, {}); !parsed.ok())
      reader.fail(fmt::format("neighbours[{}].url", i), "host, host:port or URL",
                  parsed.error().message);
  }
}

// Of what was checked.
std::vector<fetch::Neighbour> parse_neighbours(const std::vector<NeighbourText>& neighbours) {
  std::vector<fetch::Neighbour> parsed;
  parsed.reserve(neighbours.size());
  for (const auto& [url, token] : neighbours)
    parsed.push_back(fetch::parse_neighbour(url, token).take());
  return parsed;
}

void check_download(json::FieldReader& reader, const DownloadBody& body) {
  if (!body.sha256.empty() && !fetch::is_sha256_hex(body.sha256))
    reader.fail("sha256", "64 hex digits in lower case", "is no SHA-256 in hex");
  check_token(reader, "hf_token", body.hf_token);
  check_neighbours(reader, body.neighbours);
  if (body.only_neighbours && body.neighbours.empty())
    reader.fail("only_neighbours", "needs neighbours",
                "is true, so neighbours must name at least one");
}

void check_named_download(json::FieldReader& reader, const NamedDownloadBody& body) {
  check_download(reader, body.download);
  if (body.id.empty() && body.download.ref.empty())
    reader.fail("ref", "required without id", "is missing: name a model by id, ref, or both");
}

void check_verify(json::FieldReader& reader, const VerifyBody& body) {
  check_neighbours(reader, body.neighbours);
}

Result<http::Response> accepted(const Result<Downloads::Started>& started) {
  if (!started.ok()) return started.error();
  const DownloadStatus& status = started->status;
  const DownloadAccepted answer{status.id, status.model,
                                fmt::format("/v2/downloads/{}/events", status.id), status.state,
                                started->joined};
  return json_response(202, contract::write_fields(answer));
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
    json::Object data{{"state", kDownloadStates[status.state]}, {"model", status.model}};
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

DownloadList all_downloads(const Service& service) {
  DownloadList list;
  for (const DownloadStatus& status : service.pool.downloads.list())
    list.downloads.push_back(view_of(status));
  return list;
}

namespace {

Result<http::Response> start_wanted(const Service& service, std::string id,
                                    const DownloadBody& body) {
  if (!id.empty()) {
    if (Status good = check_id(id); !good.ok()) return good.error();
  }
  catalog::DownloadRequest wanted;
  wanted.id = std::move(id);
  wanted.ref = body.ref;
  wanted.sha256 = body.sha256;
  wanted.hf_token = body.hf_token;
  wanted.max_connections = body.connections.value_or(0);
  wanted.neighbours = parse_neighbours(body.neighbours);
  wanted.only_neighbours = body.only_neighbours;
  const Downloads& downloads = service.pool.downloads;
  Result<catalog::DownloadRequest> settled = catalog::settle_download(
      service.pool.home, std::move(wanted),
      [&](const std::string& model) { return downloads.ref_under_way(model); });
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
  const auto start = [&](const DownloadBody& body) {
    return start_wanted(service, path_param(request, "id"), body);
  };
  return answer_body<DownloadBody>(request, start, check_download);
}

Result<http::Response> start_named_download(const Service& service, const http::Request& request) {
  const auto start = [&](const NamedDownloadBody& body) {
    return start_wanted(service, body.id, body.download);
  };
  return answer_body<NamedDownloadBody>(request, start, check_named_download);
}

namespace {

Result<http::Response> start_wanted(const Service& service, const catalog::VerifyRequest& wanted) {
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

}  // namespace

Result<http::Response> start_verify(const Service& service, const http::Request& request) {
  const auto start = [&](const VerifyBody& body) {
    return start_wanted(service, catalog::VerifyRequest{path_param(request, "id"), body.repair,
                                                        parse_neighbours(body.neighbours)});
  };
  return answer_body<VerifyBody>(request, start, check_verify);
}

Result<http::Response> list_downloads(const Service& service, const http::Request&) {
  return json_response(200, contract::write_fields(all_downloads(service)));
}

Result<http::Response> show_download(const Service& service, const http::Request& request) {
  const Result<DownloadStatus> status = service.pool.downloads.find(path_param(request, "id"));
  if (!status.ok()) return status.error();
  return json_response(200, contract::write_fields(view_of(*status)));
}

Result<http::Response> cancel_download(const Service& service, const http::Request& request) {
  const Result<DownloadStatus> status = service.pool.downloads.cancel(path_param(request, "id"));
  if (!status.ok()) return status.error();
  return json_response(202, contract::write_fields(view_of(*status)));
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
