#include "pool/leftover_routes.h"

#include <utility>

#include "base/utf8.h"
#include "catalog/leftovers.h"
#include "pool/workers.h"

namespace llorch::pool {
namespace {

constexpr std::size_t kPathBytesMax = 4096;

// Models that workers run, and those that downloads and verifications are about: their folders are
// left alone.
std::vector<std::string> models_in_use(const Service& service) {
  std::vector<std::string> models = running_models(service.pool.workers.workers());
  for (const DownloadStatus& status : service.pool.downloads.list()) {
    if (!status.has_ended()) models.push_back(status.model);
  }
  return models;
}

Result<http::Response> answer(const Result<std::vector<catalog::Leftover>>& leftovers) {
  if (!leftovers.ok()) return leftovers.error();
  json::Array list;
  for (const catalog::Leftover& leftover : *leftovers) {
    json::Object object = catalog::to_json(leftover);
    for (const char* field : {"path", "model", "ref"})
      object[field] = base::to_valid_utf8(json::view(object[field].get_string()));
    list.emplace_back(std::move(object));
  }
  return json_response(200, json::Object{{"leftovers", std::move(list)},
                                         {"bytes", catalog::total_bytes(*leftovers)}});
}

}  // namespace

Result<http::Response> list_leftovers(const Service& service, const http::Request&) {
  return answer(catalog::find_leftovers(service.pool.home, models_in_use(service)));
}

Result<http::Response> remove_leftovers(const Service& service, const http::Request&) {
  return answer(catalog::remove_leftovers(service.pool.home, models_in_use(service)));
}

Result<http::Response> adopt_models(const Service& service, const http::Request& request) {
  const Result<json::Object> body = read_body(request);
  if (!body.ok()) return body.error();
  json::FieldReader reader(*body);
  catalog::AdoptRequest wanted;
  wanted.from = reader.optional_string("from", {1, kPathBytesMax}).value_or("");
  wanted.dry_run = reader.optional_bool("dry_run").value_or(false);
  if (std::vector<json::FieldError> errors = reader.finish(); !errors.empty())
    return failures_response(request, std::move(errors));
  const Result<catalog::AdoptReport> report = service.pool.adopt(wanted);
  if (!report.ok()) return report.error();
  return json_response(200, catalog::to_json(*report));
}

}  // namespace llorch::pool
