#include "pool/leftover_routes.h"

#include <utility>

#include "pool/bodies.h"
#include "pool/workers.h"

namespace llorch::pool {
namespace {

// Models that workers run, and those that downloads and verifications are about: their folders are
// left alone.
std::vector<std::string> models_in_use(const Service& service) {
  std::vector<std::string> models = running_models(service.pool.workers.workers());
  for (const DownloadStatus& status : service.pool.downloads.list()) {
    if (!status.has_ended()) models.push_back(status.model);
  }
  return models;
}

Result<http::Response> answer(Result<std::vector<catalog::Leftover>> leftovers) {
  if (!leftovers.ok()) return leftovers.error();
  return json_response(200, contract::write_fields(LeftoverList{leftovers.take()}));
}

}  // namespace

Result<http::Response> list_leftovers(const Service& service, const http::Request&) {
  return answer(catalog::find_leftovers(service.pool.home, models_in_use(service)));
}

Result<http::Response> remove_leftovers(const Service& service, const http::Request&) {
  return answer(catalog::remove_leftovers(service.pool.home, models_in_use(service)));
}

Result<http::Response> adopt_models(const Service& service, const http::Request& request) {
  return answer_body<catalog::AdoptRequest>(
      request, [&](const catalog::AdoptRequest& wanted) -> Result<http::Response> {
        const Result<catalog::AdoptReport> report = service.pool.adopt(wanted);
        if (!report.ok()) return report.error();
        return json_response(200, contract::write_fields(*report));
      });
}

}  // namespace llorch::pool
